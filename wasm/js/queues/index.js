// Entry of `leasehold/queues`, for Node only.
import "../client/unbundled.js";

export { LeaseholdError } from "../error.js";
export { connect } from "./queues.js";

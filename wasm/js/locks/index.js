// Entry of `leasehold/locks`, for Node only.
import "../client/unbundled.js";

export { LeaseholdError } from "../error.js";
export { connect } from "./locks.js";

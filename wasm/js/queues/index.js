// Entry of `leasehold/queues`, for Node only.
export { LeaseholdError } from "../error.js";
export { connect } from "./queues.js";

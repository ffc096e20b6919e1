// Entry of `leasehold/locks`, for Node only.
export { LeaseholdError } from "../error.js";
export { connect } from "./locks.js";

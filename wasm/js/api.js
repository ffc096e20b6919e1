// The exports of the npm package `leasehold`. They are the same in Node and in browsers.
export { canonicalForm, checkBatch, encodeSourceId, Reconciliation, Verification } from "../pkg/leasehold.js";
export { LeaseholdError } from "./error.js";

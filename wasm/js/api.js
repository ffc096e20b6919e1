// What the package offers, wherever it runs.
export { canonicalForm, checkBatch, encodeSourceId, Reconciliation, Verification } from "../pkg/leasehold.js";
export { LeaseholdError } from "./error.js";

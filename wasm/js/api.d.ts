export { canonicalForm, checkBatch, encodeSourceId, Reconciliation, Verification } from "../pkg/leasehold.js";
export type {
    Claim,
    ClaimColumns,
    DatedLease,
    Detail,
    Finding,
    ReconciliationEvent,
    ReconciliationSettings,
    ReconciliationStep,
    ReconciliationSummary,
    RecordColumns,
    RefusedClaim,
    RowColumns,
    Source,
    Subject,
    TextKey,
    VerificationReport,
    VerificationSettings,
    VerificationStep,
} from "../pkg/leasehold.js";
export { LeaseholdError } from "./error.js";

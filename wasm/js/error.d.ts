import type { Detail } from "../pkg/leasehold.js";

/** What every call of the package throws. */
export class LeaseholdError extends Error {
    private constructor();

    readonly name: "LeaseholdError";

    /**
     * The reason, as on the wire. Otherwise `INVALID_ARGUMENT` or `INVALID_ROWS` (not of the form that its type says),
     * `INVALID_CHECKPOINT`, `OUT_OF_TURN` (no answer to the step that a run asks for), of simulations `INVALID_TRACE` and
     * `IMPOSSIBLE` (it can't happen as the world stands), or `PANIC` (a defect: report it).
     */
    readonly code: string;

    /** Each claim that offends, where claims do. */
    readonly details: readonly Detail[];
}

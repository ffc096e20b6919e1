// What the compiler must refuse, beside what the other tests show it to take. An error that is expected and absent is one.
import assert from "node:assert/strict";
import { it } from "node:test";

import {
    canonicalForm,
    type Claim,
    encodeSourceId,
    LeaseholdError,
    Reconciliation,
    type ReconciliationStep,
    Verification,
    type VerificationStep,
} from "leasehold";

/** Compiles where every step is told apart by its name, and none is left over. */
function needs(step: ReconciliationStep | VerificationStep): "server" | "database" | "nothing" {
    switch (step.step) {
        case "list_leases":
        case "list_records":
        case "settle":
        case "begin":
        case "commit":
        case "roll_back":
            return "server";
        case "find_rows":
        case "list_rows":
        case "delete_row":
        case "find_bound":
        case "read_rows":
        case "read_again":
            return "database";
        case "page_done":
        case "done":
            return "nothing";
        default:
            return step satisfies never;
    }
}

/** Never run. */
export function refused(run: Verification, error: LeaseholdError): unknown[] {
    return [
        // @ts-expect-error A key is no number: it may be larger than numbers are exact.
        encodeSourceId(7),
        // @ts-expect-error A type is a number.
        canonicalForm("USERNAMES", "alice"),
        // @ts-expect-error An id is a bigint.
        { bucket_type: 4, bucket_value: "alice", subject: { subject_type: 4, id: 7 } } satisfies Claim,
        // @ts-expect-error An id is bytes.
        { bucket_type: 4, bucket_value: "alice", source: { source_type: 1, id: "7" } } satisfies Claim,
        // @ts-expect-error Times are bigints.
        new Reconciliation({ stale_after_micros: 600, rows_per_page: 10 }),
        // @ts-expect-error A column of ids has 64 bits.
        run.rows({ keys: new Float64Array(1), claims: [] }, 0n),
        // @ts-expect-error The time is missing.
        run.rows({ keys: [], claims: [] }),
        // @ts-expect-error There is no such list.
        run.refused([{ list: "updates", position: 0, code: "CLAIM_BUSY" }]),
        // @ts-expect-error A report's counts are read only by their names.
        run.report().no_such_count,
        // @ts-expect-error Only the package makes one.
        new LeaseholdError("CODE", "message", []),
        // @ts-expect-error A code is not changed.
        (error.code = "OTHER"),
    ];
}

it("every step says where it is taken", () => {
    assert.equal(needs(new Reconciliation({ stale_after_micros: 1n, rows_per_page: 1 }).step()), "server");
});

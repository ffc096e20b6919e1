// Calls that the TypeScript compiler must refuse. `tsc` fails if a line after `@ts-expect-error`
// has no error.
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
import { connect, type HeldLock } from "leasehold/locks";
import { type Batch, connect as connectQueues } from "leasehold/queues";

/**
 * Returns the participant that takes a step. The function compiles only if `step` tells the members
 * of the union apart and each is handled.
 */
function participant(step: ReconciliationStep | VerificationStep): "server" | "database" | "nothing" {
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
        case "refused":
        case "done":
            return "nothing";
        default:
            return step satisfies never;
    }
}

/** Contains calls that the compiler must refuse. The function is compiled but never called. */
export function refusedByCompiler(run: Verification, error: LeaseholdError, lock: HeldLock, batch: Batch): unknown[] {
    return [
        // @ts-expect-error A key is not a `number`, which is exact up to 2^53 only.
        encodeSourceId(7),
        // @ts-expect-error A bucket type is a number.
        canonicalForm("USERNAMES", "alice"),
        // @ts-expect-error A subject id is a bigint.
        { bucket_type: 4, bucket_value: "alice", subject: { subject_type: 4, id: 7 } } satisfies Claim,
        // @ts-expect-error A source id is a `Uint8Array`.
        { bucket_type: 4, bucket_value: "alice", source: { source_type: 1, id: "7" } } satisfies Claim,
        // @ts-expect-error Times are bigints.
        new Reconciliation({ stale_after_micros: 600, rows_per_page: 10 }),
        // @ts-expect-error A column of integer keys is a `BigInt64Array`.
        run.rows({ keys: new Float64Array(1), claims: [] }, 0n),
        // @ts-expect-error The argument `now` is missing.
        run.rows({ keys: [], claims: [] }),
        // @ts-expect-error A list is `creates` or `destroys`.
        run.refused([{ list: "updates", position: 0, code: "CLAIM_BUSY" }]),
        // @ts-expect-error A report has no such count.
        run.report().no_such_count,
        // @ts-expect-error The constructor is private to the package.
        new LeaseholdError("CODE", "message", []),
        // @ts-expect-error The code is read-only.
        (error.code = "OTHER"),
        // @ts-expect-error The duration of a session has its unit in its name.
        connect({ sessionDuration: 15 }),
        // @ts-expect-error The function is missing.
        connect().lock("user", "7", { wait: 2 }),
        // @ts-expect-error A fence is a bigint.
        connect().force("user", "7", 42),
        // @ts-expect-error A fence is read-only.
        (lock.fence = 42n),
        // @ts-expect-error An outcome is `succeeded` or `failed`.
        lock.release({ outcome: "done" }),
        // @ts-expect-error A request has a key.
        connectQueues().submit("sheets", { body: "row 1" }),
        // @ts-expect-error A kind is `create` or `update`.
        connectQueues().submit("sheets", { key: "7", kind: "delete" }),
        // @ts-expect-error The function is missing.
        connectQueues().work("sheets", { credit: 2 }),
        // @ts-expect-error A list of lanes is `ready`, `delayed`, `taken` or `paused`.
        connectQueues().listLanes("sheets", "waiting"),
        // @ts-expect-error The fence of a batch is read-only.
        (batch.fence = 42n),
        // @ts-expect-error The body of a request is bytes.
        batch.requests[0]?.body.toUpperCase(),
    ];
}

it("the type of steps discriminates every step by its name", () => {
    assert.equal(participant(new Reconciliation({ stale_after_micros: 1n, rows_per_page: 1 }).step()), "server");
});

import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { Reconciliation, type ReconciliationEvent, type ReconciliationStep, type ReconciliationSummary } from "leasehold";

import { NOW, thrownBy } from "./support.js";

const STALE = 600_000_000n;
const LEASES = [1, 2, 3].map((number) => `00000000-0000-7000-8000-00000000000${number}`) as [string, string, string];

function newRun(): Reconciliation {
    return new Reconciliation({ stale_after_micros: STALE, rows_per_page: 10 });
}

/**
 * For each pair, checks that the run's next step is the step of the pair, and feeds the pair's
 * event to the run.
 */
function play(run: Reconciliation, steps: [ReconciliationStep, ReconciliationEvent][]): void {
    for (const [step, event] of steps) {
        assert.deepEqual(run.step(), step);
        run.feed(event);
    }
}

describe("Reconciliation", () => {
    it("commits leases with a local row, rolls back stale leases without one, and leaves fresh leases (R01)", () => {
        const [committed, missing, fresh] = LEASES;
        const old = NOW - STALE;
        const leases = [{ created_at: old, lease: committed }, { created_at: old, lease: missing }, { created_at: NOW, lease: fresh }];
        const run = newRun();
        play(run, [
            [{ step: "list_leases", cursor: undefined }, { event: "leases", leases: leases.slice(0, 1), now: NOW, cursor: "next" }],
            [{ step: "find_rows", leases: [committed] }, { event: "rows", rows: leases.slice(0, 1), now: NOW }],
            [{ step: "settle", lease: committed, outcome: "Committed" }, { event: "settled", answer: "done" }],
            [{ step: "delete_row", lease: committed, fate: "committed" }, { event: "deleted" }],
            [{ step: "list_leases", cursor: "next" }, { event: "leases", leases: leases.slice(1), now: NOW }],
            [{ step: "find_rows", leases: [missing, fresh] }, { event: "rows", rows: [], now: NOW }],
            [{ step: "settle", lease: missing, outcome: "RolledBack" }, { event: "settled", answer: "done" }],
            [{ step: "list_rows", after: undefined, min_age_micros: STALE, limit: 10 }, { event: "rows", rows: [], now: NOW }],
        ]);
        assert.deepEqual(run.step(), { step: "done" } satisfies ReconciliationStep);
        const summary: ReconciliationSummary = {
            leases_seen: 3, committed: 1, rolled_back: 1, settled_meanwhile: 0, looked_up: 0, forgotten: 0, lost: [],
            rows_deleted: 1, failed: 0, incomplete: false,
        };
        assert.deepEqual(run.summary(), summary);
    });

    it("looks up the outcome of stale local rows, and lists the rows page by page (R01)", () => {
        const run = newRun();
        run.feed({ event: "leases", leases: [], now: NOW });
        const lease = (at: number): string => `00000000-0000-7000-8000-0000000001${at + 10}`;
        const rows = Array.from({ length: 10 }, (_, at) => ({ created_at: 2n ** 60n + BigInt(at), lease: lease(at) }));
        run.feed({ event: "rows", rows, now: 2n ** 62n });
        const answers = ["rolled_back", "not_found", "committed"] as const;
        rows.forEach((_, at) => run.feed({ event: "settled", answer: answers[Math.min(at, 2)] ?? "committed" }));
        const fates = rows.map(() => {
            const step = run.step();
            run.feed({ event: "deleted" });
            return step.step === "delete_row" ? step.fate : step.step;
        });
        assert.deepEqual(fates, ["lost", "forgotten", ...Array<string>(8).fill("committed")]);
        assert.deepEqual(run.step(), { step: "list_rows", after: rows[9], min_age_micros: STALE, limit: 10 });
        run.feed({ event: "failed" });
        const { lost, looked_up, incomplete } = run.summary();
        assert.deepEqual({ lost, looked_up, incomplete }, { lost: [lease(0)], looked_up: 9, incomplete: true });
    });

    it("throws OUT_OF_TURN for the event of another step, and stays unchanged", () => {
        const run = newRun();
        assert.equal(thrownBy(() => run.feed({ event: "deleted" })).code, "OUT_OF_TURN");
        assert.deepEqual(run.step(), { step: "list_leases", cursor: undefined });
    });

    it("throws INVALID_ARGUMENT for a malformed event", () => {
        const run = newRun();
        const event = { event: "leases", leases: [{ created_at: NOW, lease: "L1" }], now: NOW } as const;
        assert.equal(thrownBy(() => run.feed(event)).code, "INVALID_ARGUMENT");
        // @ts-expect-error `ReconciliationEvent` has no such event.
        assert.equal(thrownBy(() => run.feed({ event: "nonsense" })).code, "INVALID_ARGUMENT");
    });
});

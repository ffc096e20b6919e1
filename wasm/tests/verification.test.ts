import assert from "node:assert/strict";
import { describe, it } from "node:test";

import {
    type Claim,
    encodeSourceId,
    type Finding,
    type RecordColumns,
    type RowColumns,
    Verification,
    type VerificationReport,
    type VerificationSettings,
    type VerificationStep,
} from "leasehold";

import { LONG_AGO, NOW, sourceId, thrownBy, USER, USERNAMES, username, USERS } from "./support.js";

const SETTINGS: VerificationSettings = {
    source_type: USERS,
    bucket_types: [USERNAMES],
    recent_within_micros: 3_600_000_000n,
    rows_per_page: 10,
    dry_run: false,
    hash_seed: 2n ** 64n - 1n,
};

const UNBOUNDED = new Uint8Array();

const ZERO_COUNTS: VerificationReport = {
    dry_run: false, over_destroy_limit: false, pages: 0, pages_surveyed: 0, rows: 0, claims: 0, records: 0, updates: 0, rows_recent: 0, records_recent: 0,
    records_held: 0, missing: 0, different: 0, extra: 0, created: 0, replaced: 0, destroyed: 0, gone: 0, invalid: 0,
    other_cell: 0, other_row: 0, busy: 0, changed: 0, recent: 0, failed: 0,
};

type Names = Record<number, string>;

/**
 * Returns the server's records of users with these usernames, by the users' keys. No lease holds
 * them.
 */
function recordsOf(names: Names): RecordColumns {
    const keys = Object.keys(names).map(BigInt);
    return {
        source_ids: keys.map(sourceId),
        bucket_types: new Int32Array(keys.length).fill(USERNAMES),
        values: Object.values(names),
        subject_types: new Int32Array(keys.length).fill(USER),
        subject_ids: BigInt64Array.from(keys),
        updated_at: new BigInt64Array(keys.length).fill(LONG_AGO),
        held: keys.map(() => false),
    };
}

/** Returns rows of users with these usernames, by the users' keys. They were changed long ago. */
function rowsOf(names: Names): RowColumns {
    const keys = BigInt64Array.from(Object.keys(names).map(BigInt));
    const claims = { bucket_type: USERNAMES, values: Object.values(names), subject_type: USER, subject_ids: keys };
    return { keys, updated_at: new BigInt64Array(keys.length).fill(LONG_AGO), claims: [claims] };
}

/** Returns a verification run that has taken its only page of the server's records. */
function withRecords(names: Names, settings: Partial<VerificationSettings> = {}): Verification {
    const run = new Verification({ ...SETTINGS, ...settings });
    run.bound();
    run.records(recordsOf(names), false, NOW);
    return run;
}

/**
 * Takes every remaining step of a verification run. Returns the creates and destroys of each update
 * that it begins. Every update is committed. Rows that are read again without a lease are reported
 * as deleted.
 */
function finish(run: Verification): [Claim[], Claim[]][] {
    const updates: [Claim[], Claim[]][] = [];
    let isBegun = false;
    for (let step = run.step(); step.step !== "done" && step.step !== "refused"; step = run.step()) {
        if (step.step === "begin") {
            updates.push([step.creates, step.destroys]);
            run.begun();
            isBegun = true;
        } else if (step.step === "commit" || step.step === "roll_back") {
            run.settled();
            isBegun = false;
        } else if (step.step === "read_again" && isBegun) {
            run.unchanged();
        } else if (step.step === "read_again") {
            run.rows({ keys: [], claims: [] }, NOW);
        } else {
            run.proceed();
        }
    }
    return updates;
}

/**
 * Begins the update that the run requests, answers `read_again` with these rows, and commits the
 * update.
 */
function commitUpdate(run: Verification, names: Names): void {
    run.begun();
    assert.deepEqual(run.step(), { step: "read_again", ids: Object.keys(names).map(BigInt).map(sourceId) });
    run.rows(rowsOf(names), NOW);
    assert.deepEqual(run.step(), { step: "commit" });
    run.settled();
}

describe("Verification", () => {
    it("creates missing claims, replaces different ones and destroys extra ones (V01)", () => {
        const run = new Verification(SETTINGS);
        const expectStep = (step: VerificationStep): void => assert.deepEqual(run.step(), step);
        expectStep({ step: "find_bound", after: UNBOUNDED, rows: 10 });
        run.bound(sourceId(3n));
        expectStep({ step: "list_records", after: UNBOUNDED, upto: sourceId(3n) });
        run.records(recordsOf({ 1: "alice", 2: "bob" }), false, NOW);
        expectStep({ step: "read_rows", after: UNBOUNDED, upto: sourceId(3n) });
        run.rows(rowsOf({ 1: "Alice", 3: "carol" }), NOW);
        expectStep({ step: "read_again", ids: [sourceId(1n)] });
        run.rows(rowsOf({ 1: "Alice" }), NOW);
        const [created, destroyed] = [username("Alice", 1n), { ...username("alice", 1n), subject: undefined }];
        expectStep({ step: "begin", creates: [created], destroys: [destroyed] });
        commitUpdate(run, { 1: "Alice" });
        expectStep({ step: "begin", creates: [username("carol", 3n)], destroys: [] });
        commitUpdate(run, { 3: "carol" });
        expectStep({ step: "page_done" });
        run.proceed();
        expectStep({ step: "find_bound", after: sourceId(3n), rows: 10 });
        run.bound();
        run.records(recordsOf({}), false, NOW);
        expectStep({ step: "read_rows", after: sourceId(3n), upto: UNBOUNDED });
        run.rows({ keys: new BigInt64Array(), claims: [] }, NOW);
        expectStep({ step: "page_done" });
        run.proceed();
        expectStep({ step: "read_again", ids: [sourceId(2n)] });
        run.rows({ keys: [], claims: [] }, NOW);
        expectStep({ step: "begin", creates: [], destroys: [{ ...username("bob", 2n), subject: undefined }] });
        run.begun();
        expectStep({ step: "read_again", ids: [sourceId(2n)] });
        run.rows({ keys: [], claims: [] }, NOW);
        expectStep({ step: "commit" });
        run.settled();
        expectStep({ step: "done" });
        assert.deepEqual(run.report(), {
            ...ZERO_COUNTS, pages: 2, rows: 2, claims: 2, records: 2, updates: 3, missing: 1, different: 1, extra: 1,
            created: 1, replaced: 1, destroyed: 1,
        });
    });

    it("rolls an update back if its rows have changed under the lease", () => {
        const run = withRecords({});
        run.rows(rowsOf({ 1: "alice", 2: "bob", 3: "carol" }), NOW);
        run.begun();
        assert.deepEqual(run.step(), { step: "read_again", ids: [1n, 2n, 3n].map(sourceId) });
        const { keys, claims } = rowsOf({ 2: "bobby", 3: "carol" });
        run.rows({ keys, updated_at: BigInt64Array.of(LONG_AGO, NOW), claims }, NOW);
        assert.deepEqual(run.step(), { step: "roll_back" });
        run.settled();
        finish(run);
        const { updates, created, changed, recent } = run.report();
        assert.deepEqual({ updates, created, changed, recent }, { updates: 1, created: 0, changed: 2, recent: 1 });
    });

    it("takes text keys as UUIDs or as encoded source ids", () => {
        const key = "01a1fefb-0383-7360-95c3-3b4e0d5dfab0";
        const claims = [{ bucket_type: USERNAMES, values: ["alice"], subject_type: USER, subject_ids: BigInt64Array.of(7n) }];
        for (const form of [key, encodeSourceId(key)]) {
            const run = withRecords({});
            run.rows({ keys: [form], claims }, NOW);
            const [[[claim] = []] = []] = finish(run);
            assert.deepEqual(claim?.source?.id, encodeSourceId(key));
        }
    });

    it("claims integers as decimal text and nothing for null, and skips recent rows (V02)", () => {
        const run = withRecords({}, { bucket_types: [USERNAMES, 10] });
        const keys = BigInt64Array.of(1n, 2n, 2n ** 63n - 1n);
        run.rows({
            keys,
            updated_at: BigInt64Array.of(LONG_AGO, NOW, -1n),
            claims: [
                { bucket_type: USERNAMES, values: [null, "new", "carol"], subject_type: USER, subject_ids: keys },
                { bucket_type: 10, values: keys, subject_type: USER, subject_ids: keys },
            ],
        }, NOW);
        const [[creates = []] = []] = finish(run);
        const created = creates.map((claim) => [claim.bucket_type, claim.bucket_value, claim.subject?.id]);
        assert.deepEqual(created, [[10, "1", 1n], [USERNAMES, "carol", keys[2]], [10, String(keys[2]), keys[2]]]);
        assert.equal(run.report().rows_recent, 1);
    });

    it("skips records that a lease holds", () => {
        const run = new Verification(SETTINGS);
        run.bound();
        run.records({ ...recordsOf({ 1: "alice" }), held: [true] }, false, NOW);
        run.rows(rowsOf({}), NOW);
        assert.deepEqual(finish(run), []);
        assert.equal(run.report().records_held, 1);
    });

    it("begins an update again without the claims that the server refused (V06)", () => {
        const run = withRecords({});
        run.rows(rowsOf({ 1: "alice", 2: "bob" }), NOW);
        const creates = (): string[] => {
            const step = run.step();
            return step.step === "begin" ? step.creates.map((claim) => claim.bucket_value) : [step.step];
        };
        assert.deepEqual(creates(), ["alice", "bob"]);
        run.refused([{ list: "creates", position: 0, code: "CLAIM_BUSY" }]);
        assert.deepEqual(creates(), ["bob"]);
        run.failed();
        finish(run);
        const { failed, created } = run.report();
        assert.deepEqual({ failed, created }, { failed: 1, created: 0 });
    });

    it("stops, resumes from a checkpoint, and reports values as hashes (V07, V09)", () => {
        const settings = { ...SETTINGS, dry_run: true, rows_per_page: 1 };
        const run = new Verification(settings);
        run.bound(sourceId(1n));
        run.records(recordsOf({}), false, NOW);
        run.rows(rowsOf({ 1: "alice" }), NOW);
        run.stop();
        assert.deepEqual(finish(run), []);
        const resumed = new Verification(settings, run.checkpoint());
        assert.deepEqual(resumed.step(), { step: "find_bound", after: sourceId(1n), rows: 1 });
        resumed.bound();
        resumed.records(recordsOf({}), false, NOW);
        resumed.rows(rowsOf({ 5: "bob" }), NOW);
        finish(resumed);
        const findings = resumed.takeFindings();
        const [{ value_hash = "" } = {}] = findings;
        assert.match(value_hash, /^[0-9a-f]{16}$/u);
        const found = { outcome: "created", bucket_type: USERNAMES, source_id: "0000000000000005", value_hash } satisfies Finding;
        assert.ok(findings.some((finding) => finding.source_id === found.source_id && finding.outcome === found.outcome));
        assert.equal(resumed.checkpoint(), undefined);
    });

    it("is refused before it destroys more than ten claims and a tenth of all, and continues with a larger share (V11)", () => {
        const names = (count: number): Names => Object.fromEntries(Array.from({ length: count }, (_, at) => [at + 1, `name${at}`]));
        const ten = withRecords(names(10), { max_destroy_share: 0 });
        ten.rows(rowsOf({}), NOW);
        assert.deepEqual(finish(ten).map(([, destroys]) => destroys.length), [10]);
        const run = withRecords(names(20), { rows_per_page: 100 });
        run.rows(rowsOf({ 20: "name19" }), NOW);
        assert.deepEqual(finish(run), []);
        assert.deepEqual(run.step(), { step: "refused", destroys: 19, claims: 20, needed_share: 0.95 });
        assert.equal(thrownBy(() => run.proceed()).code, "OUT_OF_TURN");
        const told = new Verification({ ...SETTINGS, max_destroy_share: 0.95 }, run.checkpoint());
        assert.deepEqual(finish(told).map(([, destroys]) => destroys.length), [19]);
        assert.deepEqual(told.step(), { step: "done" });
        const dry = withRecords(names(20), { dry_run: true });
        dry.rows(rowsOf({}), NOW);
        finish(dry);
        assert.equal(dry.report().over_destroy_limit, true);
        assert.equal(thrownBy(() => new Verification({ ...SETTINGS, max_destroy_share: 1.5 })).code, "INVALID_ARGUMENT");
    });

    it("throws INVALID_CHECKPOINT for another text, and does not show the text", () => {
        const error = thrownBy(() => new Verification(SETTINGS, '{"scan":"secret"}'));
        assert.equal(error.code, "INVALID_CHECKPOINT");
        assert.ok(!error.message.includes("secret"));
    });

    it("throws OUT_OF_TURN for the answer of another step", () => {
        const run = new Verification(SETTINGS);
        const answers = [
            () => run.begun(), () => run.settled(), () => run.failed(), () => run.unchanged(), () => run.proceed(),
            () => run.rows(rowsOf({}), NOW),
        ];
        for (const answer of answers) {
            assert.equal(thrownBy(answer).code, "OUT_OF_TURN");
        }
    });
});

describe("columns of rows and records", () => {
    const good = rowsOf({ 1: "alice" });
    const [claims] = good.claims;
    const bad: Record<string, unknown> = {
        "`updated_at` of another length": { ...good, updated_at: new BigInt64Array(2) },
        "`values` that are too few": { ...good, claims: [{ ...claims, values: [] }] },
        "`subject_ids` that are too many": { ...good, claims: [{ ...claims, subject_ids: new BigInt64Array(2) }] },
        "`keys` that are numbers": { ...good, keys: [1] },
        "`keys` that are negative": { ...good, keys: BigInt64Array.of(-1n) },
        "`values` that are not text": { ...good, claims: [{ ...claims, values: [7] }] },
        "no `claims`": { keys: good.keys },
        "`claims` with a null entry": { ...good, claims: [null] },
        "a `bucket_type` that the run does not verify": { ...good, claims: [{ ...claims, bucket_type: 5 }] },
        "keys out of order": rowsOfKeys([2n, 1n]),
        "undefined instead of an object": undefined,
    };

    function rowsOfKeys(keys: bigint[]): RowColumns {
        return { keys: BigInt64Array.from(keys), claims: [] };
    }

    for (const [fault, rows] of Object.entries(bad)) {
        it(`rows with ${fault} are refused`, () => {
            const run = withRecords({});
            const error = thrownBy(() => run.rows(rows as RowColumns, NOW));
            assert.ok(["INVALID_ROWS", "INVALID_ARGUMENT"].includes(error.code), error.code);
            run.rows(good, NOW);
        });
    }

    it("records with a column that is shorter than the others are refused", () => {
        const run = new Verification(SETTINGS);
        run.bound();
        const columns = recordsOf({ 1: "alice", 2: "bob" });
        const short: Partial<RecordColumns>[] = [
            { source_ids: [] }, { bucket_types: new Int32Array(1) }, { values: ["alice"] }, { held: [] },
            { subject_types: new Int32Array(1) }, { subject_ids: new BigInt64Array(1) }, { updated_at: new BigInt64Array(1) },
        ];
        for (const column of short) {
            assert.equal(thrownBy(() => run.records({ ...columns, ...column }, false, NOW)).code, "INVALID_ROWS");
        }
        run.records(columns, true, NOW);
        assert.deepEqual(run.step(), { step: "read_rows", after: UNBOUNDED, upto: sourceId(2n) });
    });
});

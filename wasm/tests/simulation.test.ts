import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";

import {
    type Allowance,
    type Arrow,
    type CellView,
    type Changed,
    type ClaimView,
    type ClientView,
    type Clock,
    type Entry,
    type Event,
    Explorer,
    type FiredView,
    type FrontView,
    type LaneView,
    LeaseholdError,
    type LeaseRowView,
    type LeaseView,
    type LockSettings,
    type LocksView,
    type LockView,
    type MessageView,
    type Plan,
    type Progress,
    type Rates,
    type ReconcilerSummary,
    type ReconcilerView,
    type RequestView,
    type Rule,
    rules,
    ruleWorld,
    type RowView,
    type Scenario,
    scenarios,
    type SessionView,
    type Settings,
    Simulation,
    type Thresholds,
    type Trace,
    transitionTables,
    type TransactionView,
    type VerifierReport,
    type VerifierView,
    type View,
    type WorkerView,
} from "leasehold/simulation";

import { thrownBy } from "./support.js";

interface Golden {
    settings: Partial<Settings>;
    events: number;
    runs: { seed: number; trace: string; world: string }[];
}

const golden = JSON.parse(
    readFileSync(new URL("../../../simulation/tests/golden.json", import.meta.url), "utf8"),
) as Golden;
const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

/** Returns a run of random events that contains every kind of fault. Its position is the end. */
function played(seed: number, events: number, changes: Partial<Settings> = {}): Simulation {
    const run = new Simulation({ ...golden.settings, seed, ...changes });
    run.play(events);
    return run;
}

/** Returns a run of random events in a world of locks. Its position is the end. */
function playedLocks(seed: number, events: number, changes: Partial<Settings> = {}): Simulation {
    const run = new Simulation({ seed, cells: 3, locks: { count: 2, duration_seconds: 4, grace_seconds: 2, tick_millis: 1000 }, ...changes });
    run.play(events);
    return run;
}

/** Returns a run of random events in the world of a queue. Its position is the end. */
function playedQueue(seed: number, events: number): Simulation {
    const run = new Simulation({ seed, cells: 3, locks: { count: 0, lanes: 2, duration_seconds: 4, grace_seconds: 2, tick_millis: 1000 } });
    run.play(events);
    return run;
}

/** Returns the median duration of 41 calls of a function, in milliseconds. */
function medianMillis(call: (round: number) => unknown): number {
    const times = Array.from({ length: 41 }, (_, round) => {
        const start = performance.now();
        call(round);
        return performance.now() - start;
    });
    return times.sort((a, b) => a - b)[20] ?? NaN;
}

describe("Simulation", () => {
    it("plays the same trace to the same world as the native build, byte for byte", () => {
        const runs = golden.runs.map(({ seed }) => {
            const run = played(seed, golden.events);
            return { seed, trace: sha256(run.trace()), world: sha256(JSON.stringify(run.view())) };
        });
        assert.deepEqual(runs, golden.runs);
        assert.equal(runs.length, 3);
    });

    it("steps, seeks, loads a trace, and drops the rest of a run when an event is applied", () => {
        const run = played(5, 300);
        assert.deepEqual([run.position, run.length], [300, 300]);
        const end = run.view();
        assert.ok(run.back());
        assert.equal(run.position, 299);
        assert.ok(run.step());
        assert.deepEqual(run.view(), end);
        assert.equal(run.step(), false);
        run.seek(0);
        assert.equal(run.back(), false);
        run.seek(1e6);
        assert.equal(run.position, 300);

        const again = Simulation.load(run.trace());
        assert.deepEqual([again.position, again.length], [0, 300]);
        assert.deepEqual(again.entries(0, 300), run.entries(0, 300));
        again.seek(100);
        again.apply({ wait: { seconds: 60 } });
        assert.deepEqual([again.position, again.length], [101, 101]);
        assert.deepEqual((JSON.parse(again.trace()) as Trace).events.at(-1), { wait: { seconds: 60 } });
        assert.equal(again.entries(0, 1000).at(-1)?.says, "time passes: 1 minute");
        const added = again.quiesce();
        assert.equal(again.length, 101 + added);
        assert.deepEqual([again.view().messages, again.marks().violation], [[], undefined]);
    });

    it("describes an event in advance with the words that its entry has afterwards", () => {
        const run = new Simulation({ cells: 1 });
        const event: Event = { save: { cell: 1, worker: 0, change: { create: 0 } } };
        assert.equal(run.describe(event), "a user of cell 1 asks worker 0 to create alice");
        assert.equal(run.length, 0);
        run.apply(event);
        assert.deepEqual(run.possible().includes("stop_service"), true);
        for (const possible of run.possible()) {
            const words = run.describe(possible);
            const fork = Simulation.load(run.trace());
            fork.seek(1);
            fork.apply(possible);
            assert.equal(fork.entries(1, 2)[0]?.says, words);
        }
    });

    it("seeks in a run that is too long for a snapshot of each 64 events", () => {
        const run = played(5, 140_000);
        for (const position of [100, 70_001]) {
            run.seek(position);
            assert.deepEqual(run.view(), played(5, position).view());
        }
        assert.ok(run.step());
        assert.equal(run.position, 70_002);
        run.apply({ wait: { seconds: 60 } });
        run.seek(0);
        run.seek(70_003);
        assert.deepEqual([run.position, run.length], [70_003, 70_003]);
    });

    it("seeks in a run of 10,000 events within half a frame of 60 a second", (context) => {
        const run = played(5, 10_000);
        const millis = medianMillis((round) => {
            run.seek((round * 7919) % 10_000);
            run.view();
            const top = Math.max(0, run.position - 30);
            run.entries(top, top + 60);
            run.arrows(top, top + 60);
        });
        context.diagnostic(`a seek takes ${millis.toFixed(2)} ms`);
        assert.ok(millis < 8, `${millis} ms`);
    });
});

/**
 * Checks that the objects have exactly the members of their type `T`. The compiler checks that
 * `members` lists all of these. Each member must occur in at least one object.
 */
function checkMembers<T extends object>(members: Record<keyof T, true>, objects: readonly (T | undefined)[]): void {
    const keys = new Set(objects.flatMap((object) => Object.keys(object ?? {})));
    assert.deepEqual([...keys].sort(), Object.keys(members).sort());
}

/** Returns a run without idempotency keys in which the service finds the call of a begin cancelled. */
function cancelledBegin(): Simulation {
    const run = new Simulation({ ...golden.settings, rules_off: ["replay_keys"] });
    run.apply({ save: { cell: 1, worker: 0, change: { create: 0 } } });
    while (!run.view().messages.some(({ is_answer }) => is_answer)) run.apply(run.nextCalm() ?? "stop_service");
    const [answer] = run.view().messages;
    run.apply({ cancel_call: answer?.id ?? 0 });
    return run;
}

it("takes the lease of a cancelled begin back (B25)", () => {
    const run = cancelledBegin();
    const [lease] = run.view().leases;
    assert.deepEqual(run.view().take_backs, [lease?.lease]);
    assert.ok(run.possible().includes("take_back"));
    assert.equal(run.nextCalm(), "take_back");
    run.apply("take_back");
    assert.equal(run.view().leases[0]?.status, "RolledBack");
    assert.equal(run.entries(run.length - 1, run.length)[0]?.says, "the service rolls back lease 1, which no caller can know");
    assert.deepEqual(run.marks(), { faults: [run.length - 2] });
});

it("objects have exactly the members that their types declare", () => {
    const runs = [played(1, 3000), played(3, 20_000, { rules_off: ["settled_lease_memory"] }), cancelledBegin(), playedLocks(1, 2000), playedQueue(1, 2000)];
    const views = runs.flatMap((run) => {
        const positions = Array.from({ length: run.length + 1 }, (_, position) => position);
        return positions.map((position) => (run.seek(position), run.view()));
    });
    const cells = views.flatMap((view) => view.cells);
    const t = true;
    checkMembers<View>(
        { events: t, now_micros: t, names: t, is_up: t, claims: t, leases: t, take_backs: t, cells: t, messages: t, fired: t, changed: t, locks: t, violation: t },
        views,
    );
    const locks = views.flatMap((view) => view.locks ?? []);
    checkMembers<LocksView>({ sessions: t, locks: t, lanes: t, requests: t, is_paused: t, undecided: t, ahead_seconds: t }, locks);
    checkMembers<SessionView>(
        { session: t, cell: t, number: t, status: t, silent_ticks: t, expires_at_ticks: t },
        locks.flatMap(({ sessions }) => sessions),
    );
    checkMembers<LockView>(
        { lock: t, status: t, holder: t, fence: t, waiting: t, newest_fence: t, writes: t, refused: t },
        locks.flatMap((view) => view.locks),
    );
    checkMembers<LaneView>(
        { lane: t, status: t, holder: t, fence: t, waiting: t, newest_fence: t, writes: t, refused: t },
        locks.flatMap((view) => view.lanes ?? []),
    );
    checkMembers<RequestView>(
        { number: t, lane: t, kind: t, status: t, attempts: t, max_attempts: t },
        locks.flatMap((view) => view.requests ?? []),
    );
    checkMembers<FrontView>({ submits: t, is_waiting: t, told: t }, cells.flatMap((cell) => cell.front ?? []));
    checkMembers<ClientView>(
        { task: t, phase: t, fence: t, batch: t, session: t, standing: t, is_paused: t, is_renewing: t, told: t },
        cells.flatMap((cell) => cell.client ?? []),
    );
    checkMembers<ClaimView>(
        { name: t, cell: t, status: t, row: t, row_before: t, lease: t, updated_micros: t },
        views.flatMap((view) => view.claims),
    );
    checkMembers<LeaseView>(
        { lease: t, number: t, cell: t, status: t, fence: t, age_micros: t, names: t },
        views.flatMap((view) => view.leases),
    );
    checkMembers<MessageView>(
        { id: t, cell: t, process: t, is_answer: t, copy: t, says: t, sent_micros: t, can_arrive: t },
        views.flatMap((view) => view.messages),
    );
    checkMembers<FiredView>(
        { machine: t, of: t, edge: t, from: t, event: t, to: t },
        views.flatMap((view) => view.fired),
    );
    checkMembers<Changed>({ names: t, leases: t, sent: t }, views.map((view) => view.changed));
    checkMembers<CellView>(
        { cell: t, mode: t, is_cut_off: t, clock_ahead_micros: t, rows: t, lease_rows: t, transactions: t, workers: t, reconcilers: t, verifier: t, client: t, front: t },
        cells,
    );
    checkMembers<RowView>({ row: t, name: t, age_micros: t, is_stray: t }, cells.flatMap((cell) => cell.rows));
    checkMembers<LeaseRowView>({ lease: t, age_micros: t }, cells.flatMap((cell) => cell.lease_rows));
    checkMembers<TransactionView>({ worker: t, state: t, writes: t, lease: t }, cells.flatMap((cell) => cell.transactions));
    checkMembers<WorkerView>({ change: t, phase: t, lease: t, is_ready: t, told: t }, cells.flatMap((cell) => cell.workers));
    const reconcilers = cells.flatMap((cell) => cell.reconcilers);
    checkMembers<ReconcilerView>({ step: t, is_waiting: t, last: t }, reconcilers);
    checkMembers<ReconcilerSummary>(
        { leases_seen: t, committed: t, rolled_back: t, settled_meanwhile: t, looked_up: t, forgotten: t, lost: t, rows_deleted: t, failed: t, incomplete: t },
        reconcilers.map(({ last }) => last),
    );
    checkMembers<VerifierView>({ step: t, is_waiting: t, last: t }, cells.map((cell) => cell.verifier));
    checkMembers<VerifierReport>(
        {
            dry_run: t, over_destroy_limit: t, pages: t, pages_surveyed: t, rows: t, claims: t, records: t, updates: t,
            rows_recent: t, records_recent: t, records_held: t, missing: t, different: t, extra: t, created: t,
            replaced: t, destroyed: t, gone: t, invalid: t, other_cell: t, other_row: t, busy: t, changed: t, recent: t, failed: t,
        },
        cells.map((cell) => cell.verifier.last),
    );
    checkMembers<Entry>(
        { position: t, event: t, at_micros: t, says: t, lane: t, sent: t, arrived: t, lost: t, fired: t, fault: t, refused: t, violation: t },
        runs.flatMap((run) => run.entries(0, run.length)),
    );
    checkMembers<Arrow>(
        { id: t, from: t, to: t, says: t, lease: t, sent: t, ended: t, how: t, refused: t },
        runs.flatMap((run) => run.arrows(0, run.length)),
    );
    const settings = new Simulation().settings();
    checkMembers<Settings>(
        { seed: t, cells: t, workers: t, reconcilers: t, names: t, modes: t, clocks: t, rules_off: t, thresholds: t, step_micros: t, rates: t, locks: t },
        [settings, playedLocks(1, 1).settings()],
    );
    checkMembers<LockSettings>(
        { count: t, lanes: t, duration_seconds: t, grace_seconds: t, tick_millis: t },
        [playedLocks(1, 1).settings().locks, playedQueue(1, 1).settings().locks],
    );
    checkMembers<Clock>({ ahead_seconds: t, fast_ppm: t }, settings.clocks);
    checkMembers<Rates>(
        { save: t, step: t, deliver: t, drop: t, duplicate: t, time_out: t, crash: t, disconnect: t, partition: t, restart: t, wait: t, drift: t },
        [settings.rates],
    );
    checkMembers<Thresholds>(
        {
            stale_after_seconds: t, commit_within_seconds: t, transaction_within_seconds: t,
            recent_within_seconds: t, remember_within_seconds: t, replica_lag_seconds: t,
        },
        [settings.thresholds],
    );
});

describe("scenarios, rules and transition tables", () => {
    it("every scenario plays to its expected end without a violation", () => {
        const all = scenarios();
        checkMembers<Scenario>({ id: true, title: true, watch: true, end: true, trace: true }, all);
        assert.ok(all.length >= 13);
        for (const scenario of all) {
            const run = Simulation.load(JSON.stringify(scenario.trace));
            run.seek(run.length);
            const view = run.view();
            const atRest = view.claims.filter(({ status }) => status === "Active");
            const claims = atRest.map(({ name, cell, row }) => [view.names.indexOf(name), cell, row]);
            assert.deepEqual(claims, scenario.end.claims, scenario.id);
            assert.equal(run.marks().violation, undefined);
        }
    });

    it("fired transitions index the transition tables", () => {
        const tables = transitionTables();
        assert.deepEqual([tables.claim.length, tables.lease.length, tables.session.length, tables.lock.length, tables.request.length], [9, 5, 8, 8, 8]);
        const runs = [played(1, 4000), playedLocks(1, 4000), playedQueue(1, 4000)];
        const fired = runs.flatMap((run) => run.entries(0, 4000)).flatMap((entry) => entry.fired);
        assert.deepEqual([...new Set(fired.map(({ machine }) => machine))].sort(), ["claim", "lease", "lock", "request", "session"]);
        for (const { machine, edge, from, event, to } of fired) {
            assert.deepEqual(tables[machine][edge ?? NaN], { from, event, to });
        }
    });

    it("the explorer finds a violation without each rule, and none with the rule on", () => {
        const all = rules();
        assert.equal(all.length, 17);
        for (const { rule, summary } of all) {
            assert.ok(summary.length > 20);
            const plan: Plan = ruleWorld(rule);
            assert.deepEqual(plan.settings.rules_off, [rule]);
            const found = explore(plan).found();
            assert.ok(found, rule);
            const run = Simulation.load(found.trace);
            assert.equal(run.marks().violation, run.length - 1);
            assert.equal(run.entries(run.length - 1, run.length)[0]?.violation, found.violation);
        }
        const withRule = ruleWorld("replay_keys");
        withRule.settings.rules_off = [];
        const explorer = explore(withRule);
        assert.equal(explorer.found(), undefined);
        const progress = explorer.progress();
        assert.ok(progress.is_finished && !progress.is_cut_off);
        checkMembers<Progress>({ states: true, events: true, depth: true, open: true, is_cut_off: true, is_finished: true }, [progress]);
        checkMembers<Allowance>(
            {
                drops: true, duplicates: true, cancels: true, time_outs: true, crashes: true, disconnects: true, stops: true, waits: true,
                reconciliations: true, verifications: true, ticks: true, renewals: true, pauses: true, jumps: true,
            },
            [withRule.allowance],
        );
    });

    it("minimise shortens the trace of a random violation", () => {
        const run = played(3, 20_000, { rules_off: ["settled_lease_memory"] });
        assert.equal(run.marks().violation, run.length - 1);
        const minimal = run.minimise();
        assert.ok(minimal !== undefined);
        const shorter = Simulation.load(minimal);
        assert.ok(shorter.length < 40 && shorter.marks().violation === shorter.length - 1);
        assert.equal(new Simulation().minimise(), undefined);
    });
});

/** Returns an explorer that has searched the whole world of a plan. */
function explore(plan: Plan): Explorer {
    const explorer = new Explorer(plan);
    while (explorer.explore(1000));
    return explorer;
}

describe("errors of the simulation", () => {
    const codeOf = (call: () => unknown): string => thrownBy(call).code;

    it("carry a code, and leave the run unchanged", () => {
        const run = played(1, 50);
        const before = run.trace();
        assert.equal(codeOf(() => run.apply("start_service")), "IMPOSSIBLE");
        assert.equal(codeOf(() => run.apply({ wait: { seconds: -1 } })), "INVALID_ARGUMENT");
        assert.equal(codeOf(() => run.apply({ wait: { hours: 1 } } as unknown as Event)), "INVALID_ARGUMENT");
        assert.equal(codeOf(() => run.apply(undefined as unknown as Event)), "INVALID_ARGUMENT");
        assert.equal(codeOf(() => run.apply(1n as unknown as Event)), "INVALID_ARGUMENT");
        assert.equal(run.trace(), before);
        assert.match(thrownBy(() => new Simulation({ cells: 99 })).message, /^`settings.cells` is 99: pass an integer from 1 to 8$/u);
        assert.equal(codeOf(() => new Simulation({ seed: 2 ** 53 })), "INVALID_ARGUMENT");
        assert.equal(codeOf(() => Simulation.load("{}")), "NO_TRACE");
        assert.equal(codeOf(() => ruleWorld("no_such_rule" as Rule)), "INVALID_ARGUMENT");
        assert.equal(codeOf(() => new Explorer({} as Plan)), "INVALID_ARGUMENT");
        assert.deepEqual(thrownBy(() => Simulation.load("{}")).details, []);
        assert.ok(thrownBy(() => Simulation.load("{}")) instanceof LeaseholdError);
    });
});

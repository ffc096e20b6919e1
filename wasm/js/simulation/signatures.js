// The arguments of each export of `leasehold/simulation`: the names that the types have, in their order,
// with their kinds.
import { LeaseholdError } from "../error.js";
import { INT32, UINT16, UINT32, UINT8, integer, list, object, optional, text, tuple, variant, word } from "../arguments.js";

/**
 * The most events or states of one call. A call blocks JavaScript, and what it makes stays in memory: a
 * million events need up to a gigabyte, of the four that a wasm file can have.
 */
const MAX_STEPS = 1_000_000;

const STEPS = integer(0, MAX_STEPS);
const SEED = integer(0, Number.MAX_SAFE_INTEGER);

const [CELL, WORKER, NAME, LOCK, LANE] = Array(5).fill(UINT8);
const [ROW, MESSAGE, SECONDS, POSITION] = Array(4).fill(UINT32);

/** Returns an object type's members, all of one kind. */
function all(kind, names) {
    return Object.fromEntries(names.split(" ").map((name) => [name, kind]));
}

const RULE = word(
    ..."lease_exclusivity ownership settled_lease_memory replay_keys commit_guard skip_recent_rows".split(" "),
    ..."skip_recent_claims observed_silence grace whole_duration fence_check one_worker shared_lane".split(" "),
    ..."early_count settle_fence settle_memory request_ids".split(" "),
);

const RENAME = object({ row: ROW, name: NAME });

const CHANGE = variant({
    invalid: undefined,
    create: NAME,
    create_two: tuple(NAME, NAME),
    rename: RENAME,
    delete: ROW,
    swap: tuple(ROW, ROW),
    transfer: object({ from: ROW, to: ROW }),
});

const DRIFT = variant({ insert: NAME, rename: RENAME, delete: ROW });

const PROCESS = variant({ worker: UINT8, reconciler: UINT8, ...all(undefined, "verifier client keepalive front") });

const EVENT = variant({
    save: object({ cell: CELL, worker: WORKER, change: CHANGE }),
    ...all(object({ cell: CELL, process: PROCESS }), "step time_out crash"),
    ...all(object({ cell: CELL, worker: WORKER }), "finish_commit lose_commit disconnect"),
    ...all(MESSAGE, "deliver drop duplicate cancel_call"),
    ...all(object({ cell: CELL }), "restart_database partition heal replicate close pause resume evict serve fail_work give_back"),
    ...all(undefined, "take_back stop_service start_service forget pause_service resume_service tick decide"),
    drift: object({ cell: CELL, drift: DRIFT }),
    wait: object({ seconds: SECONDS }),
    work: object({ cell: CELL, lock: LOCK }),
    force: LOCK,
    jump_clock: INT32,
    submit: object({ cell: CELL, lane: LANE, kind: word("create", "update", "poison") }),
});

const THRESHOLDS = object({
    ...all(SECONDS, "stale_after_seconds commit_within_seconds transaction_within_seconds"),
    ...all(SECONDS, "recent_within_seconds remember_within_seconds replica_lag_seconds"),
});

const LOCKS = object({
    count: optional(UINT8),
    lanes: optional(UINT8),
    ...all(optional(UINT32), "duration_seconds grace_seconds tick_millis"),
});

const SETTINGS = object({
    seed: optional(SEED),
    // The bounds of `simulation/src/settings.rs`, so that one message tells them.
    ...all(optional(integer(1, 8)), "cells workers"),
    reconcilers: optional(integer(0, 4)),
    names: optional(integer(1, 32)),
    modes: optional(list(word("before_commit", "lease_first"))),
    clocks: optional(list(object({ ahead_seconds: INT32, fast_ppm: INT32 }))),
    rules_off: optional(list(RULE)),
    thresholds: optional(THRESHOLDS),
    step_micros: optional(UINT32),
    rates: optional(object(all(UINT16, "save step deliver drop duplicate time_out crash disconnect partition restart wait drift"))),
    locks: optional(LOCKS),
});

const ALLOWANCE = object({
    ...all(optional(UINT8), "drops duplicates cancels time_outs crashes disconnects stops waits"),
    ...all(optional(UINT8), "reconciliations verifications ticks renewals pauses jumps"),
});

const PLAN = object({
    settings: SETTINGS,
    before: optional(list(EVENT)),
    wishes: list(object({ cell: CELL, worker: WORKER, change: CHANGE })),
    drifts: optional(list(tuple(CELL, DRIFT))),
    works: optional(list(tuple(CELL, LOCK))),
    starts: optional(list(EVENT)),
    allowance: ALLOWANCE,
    wait_seconds: SECONDS,
    depth: UINT32,
});

const TRACE = object({ version: UINT32, settings: SETTINGS, events: list(EVENT) });

/** The start of the message for a text that has another form than a trace. */
const NO_TRACE = "the text is not a trace: ";

/**
 * Returns the error for a text that `load` has refused. The JSON parser of the wasm file names types of
 * Rust, so the text is read again to find the wrong member.
 */
function traceError(error, trace) {
    if (error.code !== "NO_TRACE") return error;
    try {
        TRACE(JSON.parse(trace), "trace");
        return error;
    } catch (fault) {
        const message = fault instanceof LeaseholdError ? fault.message : "it is no JSON: pass what `trace` of a `Simulation` has returned";
        return new LeaseholdError(error.code, NO_TRACE + message);
    }
}

export const ruleWorld = { rule: RULE };

export const Explorer = {
    create: { plan: PLAN },
    methods: { explore: { states: STEPS }, progress: {}, found: {} },
};

export const Simulation = {
    create: { settings: optional(SETTINGS) },
    factories: { load: { signature: { trace: text }, explain: traceError } },
    getters: ["position", "length"],
    methods: {
        settings: {},
        trace: {},
        step: {},
        back: {},
        seek: { position: POSITION },
        apply: { event: EVENT },
        play: { events: STEPS },
        quiesce: {},
        possible: {},
        nextCalm: { except: optional(MESSAGE) },
        describe: { event: EVENT },
        view: {},
        entries: { from: POSITION, to: POSITION },
        arrows: { from: POSITION, to: POSITION },
        marks: {},
        minimise: {},
    },
};

import type { ReconciliationSummary as ReconcilerSummary, VerificationReport as VerifierReport } from "./leasehold.js";

/**
 * The counts of the last reconciliation and verification run, as the engine's own sessions return
 * them.
 */
export type { ReconcilerSummary, VerifierReport };

/**
 * A process of a cell. Workers make saves for users, reconcilers settle outstanding leases, and the
 * verifier compares tables. The client works under locks or on a queue, its keepalive renews its
 * session, and the front submits requests to the queue.
 */
export type Process = { worker: number } | { reconciler: number } | "verifier" | "client" | "keepalive" | "front";

/** The kind of a request of a queue. A poison is an update that ends each worker that works on it. */
export type WorkKind = "create" | "update" | "poison";

/**
 * A change of rows that a user asks a worker to save. A row is identified by its key, a name by its
 * number.
 */
export type Change =
    | "invalid"
    | { create: number }
    | { create_two: [number, number] }
    | { rename: { row: number; name: number } }
    | { delete: number }
    | { swap: [number, number] }
    | { transfer: { from: number; to: number } };

/** A change of a row by plain SQL, which leaves the row's claim as it was. */
export type Drift = { insert: number } | { rename: { row: number; name: number } } | { delete: number };

/** The id of a message between a cell and the service. */
export type MessageId = number;

/**
 * An event of a simulated world. Cells are numbered from 1; workers, reconcilers and names from 0.
 */
export type Event =
    | { save: { cell: number; worker: number; change: Change } }
    | { step: { cell: number; process: Process } }
    | { finish_commit: { cell: number; worker: number } }
    | { lose_commit: { cell: number; worker: number } }
    | { deliver: MessageId }
    | { drop: MessageId }
    | { duplicate: MessageId }
    | { cancel_call: MessageId }
    | "take_back"
    | { time_out: { cell: number; process: Process } }
    | { crash: { cell: number; process: Process } }
    | { disconnect: { cell: number; worker: number } }
    | { restart_database: { cell: number } }
    | { partition: { cell: number } }
    | { heal: { cell: number } }
    | "stop_service"
    | "start_service"
    | { replicate: { cell: number } }
    | "forget"
    | { drift: { cell: number; drift: Drift } }
    | { wait: { seconds: number } }
    | { work: { cell: number; lock: number } }
    | { close: { cell: number } }
    | { pause: { cell: number } }
    | { resume: { cell: number } }
    | "pause_service"
    | "resume_service"
    | "tick"
    | "decide"
    | { evict: { cell: number } }
    | { force: number }
    | { jump_clock: number }
    | { submit: { cell: number; lane: number; kind: WorkKind } }
    | { serve: { cell: number } }
    | { fail_work: { cell: number } }
    | { give_back: { cell: number } };

/** A rule of the protocol that a simulation can switch off, to show which promise it protects. */
export type Rule =
    | "lease_exclusivity"
    | "ownership"
    | "settled_lease_memory"
    | "replay_keys"
    | "commit_guard"
    | "skip_recent_rows"
    | "skip_recent_claims"
    | "observed_silence"
    | "grace"
    | "whole_duration"
    | "fence_check"
    | "one_worker"
    | "shared_lane"
    | "early_count"
    | "settle_fence"
    | "settle_memory"
    | "request_ids";

/**
 * The moment at which a cell begins a save's lease: immediately before its local COMMIT, or before
 * its local BEGIN.
 */
export type Mode = "before_commit" | "lease_first";

/** The durations that the protocol uses, such as the age from which a lease is stale. */
export interface Thresholds {
    stale_after_seconds: number;
    commit_within_seconds: number;
    transaction_within_seconds: number;
    recent_within_seconds: number;
    remember_within_seconds: number;
    replica_lag_seconds: number;
}

/** The difference between the clock of a cell's database and the service's clock. */
export interface Clock {
    ahead_seconds: number;
    fast_ppm: number;
}

/** The relative weights of random events. An event with weight 0 never happens. */
export interface Rates {
    save: number;
    step: number;
    deliver: number;
    drop: number;
    duplicate: number;
    time_out: number;
    crash: number;
    disconnect: number;
    partition: number;
    restart: number;
    wait: number;
    drift: number;
}

/** The locks of a simulated world or the lanes of its queue, and the terms of every session. */
export interface LockSettings {
    /** The number of locks, 0 in the world of a queue. */
    count: number;
    /** The number of lanes of the queue; absent in a world of locks. */
    lanes?: number | undefined;
    duration_seconds: number;
    grace_seconds: number;
    /** The least time between two ticks of the service, in milliseconds. */
    tick_millis: number;
}

/** The settings of a simulated world. A list with fewer items than there are cells repeats. */
export interface Settings {
    /** The seed of the random generator, below 2^53. */
    seed: number;
    cells: number;
    workers: number;
    reconcilers: number;
    names: number;
    modes: Mode[];
    clocks: Clock[];
    rules_off: Rule[];
    thresholds: Thresholds;
    step_micros: number;
    rates: Rates;
    /** The locks of the world; absent in a world of claims. */
    locks?: LockSettings | undefined;
}

/** A recorded run: the settings of a simulated world, and its events. */
export interface Trace {
    version: number;
    settings: Settings;
    events: Event[];
}

/**
 * The participant at which an event happens: the users of a cell, a process, the database of a
 * cell, or the service.
 */
export type Lane = { user: number } | { process: [cell: number, process: Process] } | { database: number } | "service";

/** A message from its sending to its end. `sent` and `ended` are positions of events, from 0. */
export interface Arrow {
    id: MessageId;
    from: Lane;
    to: Lane;
    says: string;
    /** The id of the lease that the message is about; absent if it is about none. */
    lease?: string | undefined;
    sent: number;
    /**
     * The position of the event at which the message arrived or was lost. Absent if the message is
     * in flight at the end of the run.
     */
    ended?: number | undefined;
    /** The message's fate. `ignored`: it arrived, but its receiver had stopped waiting for it. */
    how?: "arrived" | "lost" | "ignored" | undefined;
    /** True if the message refuses its request; absent otherwise. */
    refused?: true | undefined;
}

/**
 * A transition of a claim, a lease, a session or a lock in an event. `edge` is absent if the table has no such edge,
 * because a rule is switched off.
 */
export interface FiredView {
    machine: "claim" | "lease" | "session" | "lock" | "request";
    /** The claimed name, the id of the lease or session, or the key of the lock that changed. */
    of: string;
    /** The index of the transition's edge in `TransitionTables`. */
    edge?: number | undefined;
    from: string;
    event: string;
    to: string;
}

/** An event of a run that has happened, with its effects. */
export interface Entry {
    /** The position of the event in the run, from 0. */
    position: number;
    event: Event;
    /** The world's clock after the event, in microseconds since the start of the run. */
    at_micros: number;
    /** A sentence that describes the event and its effects. */
    says: string;
    lane: Lane;
    /** The messages that the event sent. A duplication sends a copy. */
    sent: Arrow[];
    arrived?: MessageId | undefined;
    lost: MessageId[];
    fired: FiredView[];
    /** True if the event is a fault, such as a crash or the loss of a message. */
    fault: boolean;
    /** True if the service, a database or a resource refused something in the event; absent otherwise. */
    refused?: true | undefined;
    /**
     * The violation that the event caused, in words; absent unless it is the first one of the run.
     */
    violation?: string | undefined;
}

/** The positions in a run of the faults and of the first violation. */
export interface Marks {
    faults: number[];
    violation?: number | undefined;
}

/**
 * A claim in the simulated service. `row_before` is the row that made the claim before a replace.
 */
export interface ClaimView {
    name: string;
    cell: number;
    status: "Active" | "Creating" | "Destroying" | "Replacing";
    row?: number | undefined;
    row_before?: number | undefined;
    lease?: string | undefined;
    updated_micros: number;
}

/** A lease in the simulated service. */
export interface LeaseView {
    lease: string;
    /** The number of the lease in the order of begins, from 1. */
    number: number;
    cell: number;
    status: "Outstanding" | "Committed" | "RolledBack";
    fence: number;
    age_micros: number;
    names: string[];
}

/**
 * A committed row of a cell's table. `is_stray` is true if plain SQL wrote the row without changing
 * its claim.
 */
export interface RowView {
    row: number;
    name: string;
    age_micros: number;
    is_stray: boolean;
}

/** The committed row of a lease in a cell's own database. */
export interface LeaseRowView {
    lease: string;
    age_micros: number;
}

/** An open transaction in a cell's database. */
export interface TransactionView {
    worker: number;
    state: "open" | "committing" | "orphaned";
    /**
     * The rows that the transaction has written: each row's key, its name before, and its name
     * after.
     */
    writes: [row: number, before: string | null, after: string | null][];
    lease?: string | undefined;
}

/**
 * The phase of a worker's save: the action that the worker takes next, or the answer for which it
 * waits.
 */
export type Phase =
    | "validate"
    | "open"
    | "write"
    | "begin"
    | "await_begin"
    | "write_lease"
    | "commit"
    | "await_database"
    | "commit_lease"
    | "await_commit"
    | "delete_row"
    | "abort"
    | "find_lease"
    | "await_found"
    | "roll_back_lease"
    | "await_rollback";

/**
 * The result of a save as reported to the user. `refused` carries the rejection's code on the wire.
 */
export type Told = "saved" | "invalid" | { refused: string } | "conflict" | "too_late" | "unavailable" | "unknown";

/** The state of a worker process of a cell. */
export interface WorkerView {
    change?: Change | undefined;
    phase?: Phase | undefined;
    lease?: string | undefined;
    is_ready: boolean;
    told?: Told | undefined;
}

/** The next step of a reconciler process. Times are microseconds since 1970. */
export type ReconcilerStep =
    | { step: "list_leases"; cursor: string | null }
    | { step: "find_rows"; leases: string[] }
    | {
          step: "list_rows";
          after: { created_at: number; lease: string } | null;
          min_age_micros: number;
          limit: number;
      }
    | { step: "settle"; lease: string; outcome: "Committed" | "RolledBack" }
    | { step: "delete_row"; lease: string; fate: "committed" | "lost" | "forgotten" }
    | { step: "done" };

/**
 * The state of a reconciler process. `step` is absent between runs; `last` has the counts of the
 * last run.
 */
export interface ReconcilerView {
    step?: ReconcilerStep | undefined;
    is_waiting: boolean;
    last?: ReconcilerSummary | undefined;
}

/**
 * The state of a cell's verifier process. `step` is absent between runs; `last` has the counts of
 * the last run.
 */
export interface VerifierView {
    step?:
        | "find_bound"
        | "list_records"
        | "read_rows"
        | "read_again"
        | "begin"
        | "write_lease"
        | "commit"
        | "delete_row"
        | "roll_back"
        | "page_done"
        | "done"
        | undefined;
    is_waiting: boolean;
    last?: VerifierReport | undefined;
}

/** The phase of a client's task: the action that it takes next, or the answer for which it waits. */
export type WorkPhase =
    | "open_session"
    | "await_session"
    | "acquire"
    | "await_grant"
    | "check"
    | "write_resource"
    | "release"
    | "await_release"
    | "leave"
    | "await_leave"
    | "take"
    | "await_take"
    | "settle"
    | "await_settle"
    | "close"
    | "await_close";

/** The result of a client's task. */
export type WorkResult =
    | "done"
    | "gave_up"
    | "lost"
    | "taken"
    | "fenced"
    | "unanswered"
    | "died"
    | "closed"
    | "idle"
    | "failed"
    | "given_back";

/** The state of a cell's client of locks. */
export interface ClientView {
    /** The task of the client: work under the lock with this number, work on the queue, or the close of its session. */
    task?: { work: number } | "serve" | "close" | undefined;
    phase?: WorkPhase | undefined;
    fence?: number | undefined;
    /** The requests that the client works on, in a few words. */
    batch?: string | undefined;
    /** The number of the client's session, from 1. */
    session?: number | undefined;
    /** The standing of the session by the client's own clock. */
    standing?: "safe" | "jeopardy" | "lost" | undefined;
    is_paused: boolean;
    /** True if the keepalive waits for the answer to a renewal. */
    is_renewing: boolean;
    told?: WorkResult | undefined;
}

/** The state of a cell's front. */
export interface FrontView {
    /** The request that the front submits, in a few words; absent while it is idle. */
    submits?: string | undefined;
    is_waiting: boolean;
    /** The result of the last submit. `known` has the number of the create that the resource has already. */
    told?: "submitted" | { known: number } | "unanswered" | "died" | undefined;
}

/** The state of a simulated cell: its database and its processes. */
export interface CellView {
    cell: number;
    mode: Mode;
    is_cut_off: boolean;
    clock_ahead_micros: number;
    rows: RowView[];
    lease_rows: LeaseRowView[];
    transactions: TransactionView[];
    workers: WorkerView[];
    reconcilers: ReconcilerView[];
    verifier: VerifierView;
    /** The client of locks; absent in a world of claims. */
    client?: ClientView | undefined;
    /** The front; absent unless the world has a queue. */
    front?: FrontView | undefined;
}

/** A session in the simulated service. */
export interface SessionView {
    session: string;
    cell: number;
    /** The number of the session among the sessions of its client, from 1. */
    number: number;
    status: "Live" | "Closed" | "Expired" | "Evicted";
    /** The number of ticks since the last renewal. Absent if the service does not watch the session. */
    silent_ticks?: number | undefined;
    /** The number of silent ticks at which the session expires. */
    expires_at_ticks: number;
}

/** A lock in the simulated service, and the resource that it guards. */
export interface LockView {
    lock: string;
    status: "Absent" | "Free" | "Held" | "Withheld";
    /** The number of the cell whose client holds the lock. */
    holder?: number | undefined;
    fence?: number | undefined;
    /** The numbers of the cells whose clients wait, in the order of their turns. */
    waiting: number[];
    /** The newest fence that the resource has seen. */
    newest_fence?: number | undefined;
    /** The number of writes that the resource has accepted. */
    writes: number;
    /** The number of writes that the resource has refused. */
    refused: number;
}

/** A lane of the simulated queue, and the resource that it is about. */
export interface LaneView {
    lane: string;
    status: "idle" | "ready" | "delayed" | "taken";
    /** The number of the cell whose client has the lane. */
    holder?: number | undefined;
    fence?: number | undefined;
    /** The number of requests that wait. */
    waiting: number;
    /** The newest fence that the resource has seen. */
    newest_fence?: number | undefined;
    /** The number of writes that the resource has accepted. */
    writes: number;
    /** The number of writes that the resource has refused. */
    refused: number;
}

/** A request of the simulated queue. */
export interface RequestView {
    /** The number of the request among all requests of the world. */
    number: number;
    lane: string;
    kind: WorkKind;
    status: "New" | "InProgress" | "Complete" | "Error";
    attempts: number;
    max_attempts: number;
}

/** The sessions of a simulated world, and its locks or its queue. */
export interface LocksView {
    sessions: SessionView[];
    locks: LockView[];
    /** The lanes of the queue; absent in a world of locks. */
    lanes?: LaneView[] | undefined;
    /** The requests of the queue, in the order of their numbers; absent if there is none. */
    requests?: RequestView[] | undefined;
    is_paused: boolean;
    /** The number of proposals that the engine has not decided. */
    undecided: number;
    /** The number of seconds that the service's wall clock is ahead. */
    ahead_seconds: number;
}

/** A message in flight between a cell and the service. */
export interface MessageView {
    id: MessageId;
    /** The number of the cell whose process made the call. */
    cell: number;
    /** The process that made the call. */
    process: Process;
    is_answer: boolean;
    /** The number of this copy of the message, from 0; a duplication makes further copies. */
    copy: number;
    says: string;
    sent_micros: number;
    can_arrive: boolean;
}

/** The names, leases and messages that the last event of the run changed. */
export interface Changed {
    names: string[];
    leases: string[];
    sent: MessageId[];
}

/** A violated invariant or promise of the protocol. */
export type Violation =
    | { engine: string }
    | { owned_twice: { name: string; cells: [number, number] } }
    | { unclaimed: { cell: number; row: number; name: string } }
    | { miscorrected: { cell: number; row: number; name: string } }
    | { committed_without_rows: { lease: string } }
    | { rolled_back_under_rows: { lease: string } }
    | {
          told_wrongly: {
              lease: string;
              ended?: "Committed" | "RolledBack" | undefined;
              told: "done" | "rolled_back" | "committed" | "not_found";
          };
      }
    | "own_obstacle"
    | { passed_on: { lock: string; cell: number; fence: number } }
    | { written_out_of_order: { newer: number } }
    | { lane_passed_on: { lane: string; cell: number; fence: number } }
    | { updated_too_early: { update: number; create: number } }
    | { not_done: { request: number } }
    | { deadly_too_often: { request: number; deaths: number } }
    | { settle_denied: { cell: number; fence: number } }
    | { submitted_twice: { request: number } };

/** The state of a simulated world at one position of a run. */
export interface View {
    /** The number of events that have happened up to this position. */
    events: number;
    /** The world's clock, in microseconds since the start of the run. */
    now_micros: number;
    /** The names that users can claim in this world. A name's number is its index. */
    names: string[];
    /** True while the service runs. */
    is_up: boolean;
    claims: ClaimView[];
    leases: LeaseView[];
    /** The leases that the service will roll back because no caller can know them. */
    take_backs?: string[] | undefined;
    cells: CellView[];
    /** The messages in flight, the oldest first. */
    messages: MessageView[];
    /** The transitions in the last event. */
    fired: FiredView[];
    changed: Changed;
    /** The sessions and locks; absent in a world of claims. */
    locks?: LocksView | undefined;
    /** The first violation of the run: as data, and as a sentence. */
    violation?: [Violation, string] | undefined;
}

/**
 * The expected end of a scenario. `outstanding` is the number of outstanding leases, `lease_rows`
 * that of committed lease rows. For locks and queues, `worked` has the last results of clients, and
 * `writes` the accepted and refused writes to each resource. For queues, `requests` has the states of requests.
 */
export interface End {
    claims: [name: number, cell: number, row: number][];
    rows: [cell: number, row: number, name: number][];
    told: [cell: number, worker: number, told: Told][];
    outstanding: number;
    lease_rows: number;
    worked?: [cell: number, result: WorkResult][] | undefined;
    requests?: [request: number, status: RequestView["status"]][] | undefined;
    writes?: [resource: number, accepted: number, refused: number][] | undefined;
}

/** A recorded run that shows one case of the protocol, with a title and an explanation. */
export interface Scenario {
    /** The id of the scenario in the page's links. */
    id: string;
    title: string;
    /** A sentence that tells what to watch in this scenario. */
    watch: string;
    end: End;
    trace: Trace;
}

/** A rule that can be switched off, with a one-sentence summary. */
export interface RuleInfo {
    rule: Rule;
    summary: string;
}

/**
 * A save that a user may ask for at any time of an exploration. One worker makes its saves in the
 * order of the list.
 */
export interface Wish {
    cell: number;
    worker: number;
    change: Change;
}

/** The largest numbers of faults, waits and runs that an exploration may use. */
export interface Allowance {
    drops: number;
    duplicates: number;
    cancels: number;
    time_outs: number;
    crashes: number;
    disconnects: number;
    stops: number;
    waits: number;
    reconciliations: number;
    verifications: number;
    ticks: number;
    renewals: number;
    pauses: number;
    jumps: number;
}

/**
 * A small world that an `Explorer` searches. `before` lists events that precede the search;
 * `drifts` lists changes by plain SQL.
 */
export interface Plan {
    settings: Settings;
    before: Event[];
    wishes: Wish[];
    drifts: [cell: number, drift: Drift][];
    /** The works under locks that programs may ask for. */
    works?: [cell: number, lock: number][] | undefined;
    /** The submits, and the works on a queue, that programs may ask for. */
    starts?: Event[] | undefined;
    allowance: Allowance;
    /** The length of one `wait` event, in seconds. */
    wait_seconds: number;
    /** The largest number of events in a schedule of the search. */
    depth: number;
}

/** The counters of an exploration. */
export interface Progress {
    /** The number of different states of the world that the search has reached. */
    states: number;
    /** The number of events that the search has applied. */
    events: number;
    /** The number of events in the schedules that the search is extending. */
    depth: number;
    /** The number of states that the search has reached but not yet extended. */
    open: number;
    /** True if the search cut off a schedule because it reached the plan's `depth`. */
    is_cut_off: boolean;
    /** True if the search has explored every schedule up to the plan's `depth`. */
    is_finished: boolean;
}

/**
 * A violation that an exploration found: a sentence, and one of the shortest traces to it as JSON
 * text.
 */
export interface Found {
    violation: string;
    trace: string;
}

/** An edge of a transition table: a state, an event, and the state after it. */
export interface Edge {
    from: string;
    event: string;
    to: string;
}

/**
 * The engine's transition tables of claims, leases, sessions, locks and requests. `FiredView.edge` is an index into them.
 */
export interface TransitionTables {
    claim: Edge[];
    lease: Edge[];
    session: Edge[];
    lock: Edge[];
    request: Edge[];
}

import type { ReconciliationSummary as ReconcilerSummary, VerificationReport as VerifierReport } from "./leasehold.js";

/** The counts of the last runs, in the form of the engine's own sessions. */
export type { ReconcilerSummary, VerifierReport };

/**
 * A process of a cell. Workers save for users, reconcilers settle outstanding leases, the verifier
 * compares tables.
 */
export type Process = { worker: number } | { reconciler: number } | "verifier";

/** A change that a user asks a worker to save. Rows are identified by key, names by number. */
export type Change =
    | "invalid"
    | { create: number }
    | { create_two: [number, number] }
    | { rename: { row: number; name: number } }
    | { delete: number }
    | { swap: [number, number] }
    | { transfer: { from: number; to: number } };

/** A change of a row without its claim, as plain SQL makes it. */
export type Drift = { insert: number } | { rename: { row: number; name: number } } | { delete: number };

/** The identifier of a message. */
export type MessageId = number;

/** An event of a world. Cells are numbered from 1; workers, reconcilers and names from 0. */
export type Event =
    | { save: { cell: number; worker: number; change: Change } }
    | { step: { cell: number; process: Process } }
    | { finish_commit: { cell: number; worker: number } }
    | { lose_commit: { cell: number; worker: number } }
    | { deliver: MessageId }
    | { drop: MessageId }
    | { duplicate: MessageId }
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
    | { wait: { seconds: number } };

/** A rule of the protocol that can be switched off. */
export type Rule =
    | "lease_exclusivity"
    | "ownership"
    | "settled_lease_memory"
    | "replay_keys"
    | "local_fence"
    | "skip_recent_rows"
    | "skip_recent_claims";

/**
 * The moment at which a cell begins a save's lease: immediately before its local COMMIT, or before
 * its local BEGIN.
 */
export type Mode = "before_commit" | "lease_first";

/** The time limits of the protocol. */
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

/** The weights of random events. An event of weight 0 never happens. */
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

/** The settings of a world. A list that is shorter than the number of cells is repeated. */
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
}

/** A recorded run: the settings of a world and its events. */
export interface Trace {
    version: number;
    settings: Settings;
    events: Event[];
}

/**
 * The participant at which an event happens: a cell's users, a process, a cell's database, or the
 * service.
 */
export type Lane = { user: number } | { process: [cell: number, process: Process] } | { database: number } | "service";

/** A message from its sending to its end. Positions are those of events, from 0. */
export interface Arrow {
    id: MessageId;
    from: Lane;
    to: Lane;
    says: string;
    /** The lease that the message is about. */
    lease?: string | undefined;
    sent: number;
    /**
     * The position at which the message arrived or was lost; absent if it is in flight at the end
     * of the run.
     */
    ended?: number | undefined;
    /** The message's fate. `ignored` means that it arrived but its receiver had stopped waiting. */
    how?: "arrived" | "lost" | "ignored" | undefined;
}

/**
 * A transition that fired. `edge` is absent if the table has no such edge: a rule that is off has
 * allowed it.
 */
export interface FiredView {
    machine: "claim" | "lease";
    /** The name whose claim changed state, or the lease. */
    of: string;
    /** The edge's index in `TransitionTables`. */
    edge?: number | undefined;
    from: string;
    event: string;
    to: string;
}

/** An event that happened, with its effects. */
export interface Entry {
    /** The event's index in the run, from 0. */
    position: number;
    event: Event;
    /** The world's clock after the event, since the start. */
    at_micros: number;
    /** The event and its effects in a sentence. */
    says: string;
    lane: Lane;
    /** The messages that the event sent, including the copy that a duplication makes. */
    sent: Arrow[];
    arrived?: MessageId | undefined;
    lost: MessageId[];
    fired: FiredView[];
    /** True if the event is a fault. */
    fault: boolean;
    /** The invariant that the event violated, if that is the run's first violation. */
    violation?: string | undefined;
}

/** The positions of faults and of the first violation in a run. */
export interface Marks {
    faults: number[];
    violation?: number | undefined;
}

/** A claim in the service. `row_before` is the row that owned it before a replace. */
export interface ClaimView {
    name: string;
    cell: number;
    status: "Active" | "Creating" | "Destroying" | "Replacing";
    row?: number | undefined;
    row_before?: number | undefined;
    lease?: string | undefined;
    updated_micros: number;
}

/** A lease in the service. */
export interface LeaseView {
    lease: string;
    /** The lease's number in the run, from 1. */
    number: number;
    cell: number;
    status: "Outstanding" | "Committed" | "RolledBack";
    fence: number;
    age_micros: number;
    names: string[];
}

/**
 * A committed row of a cell's table. `is_stray` is true if plain SQL wrote the row without its
 * claim.
 */
export interface RowView {
    row: number;
    name: string;
    age_micros: number;
    is_stray: boolean;
}

/** The committed row of a lease in a cell's database. */
export interface LeaseRowView {
    lease: string;
    age_micros: number;
}

/** An open transaction of a cell's database. */
export interface TransactionView {
    worker: number;
    state: "open" | "committing" | "orphaned";
    /** The rows that the transaction writes, each with its name before and after. */
    writes: [row: number, before: string | null, after: string | null][];
    lease?: string | undefined;
}

/** The phase of a save: the action that its worker takes next, or the answer that it awaits. */
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

/** The answer to a user's save. A refusal carries the rejection's code on the wire. */
export type Told = "saved" | "invalid" | { refused: string } | "conflict" | "too_late" | "unavailable" | "unknown";

/** A worker of a cell. */
export interface WorkerView {
    change?: Change | undefined;
    phase?: Phase | undefined;
    lease?: string | undefined;
    is_ready: boolean;
    told?: Told | undefined;
}

/** The step that a reconciler takes next. Times are microseconds since 1970. */
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

/** A reconciler of a cell. `step` is absent between runs; `last` counts the last run. */
export interface ReconcilerView {
    step?: ReconcilerStep | undefined;
    is_waiting: boolean;
    last?: ReconcilerSummary | undefined;
}

/** The verifier of a cell. `step` is absent between runs; `last` counts the last run. */
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

/** The state of a cell. */
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
}

/** A message in flight. */
export interface MessageView {
    id: MessageId;
    /** The cell that made the call. */
    cell: number;
    /** The process that made the call. */
    process: Process;
    is_answer: boolean;
    /** The copy's number, from 0. */
    copy: number;
    says: string;
    sent_micros: number;
    can_arrive: boolean;
}

/** The names, leases and messages that the last event changed. */
export interface Changed {
    names: string[];
    leases: string[];
    sent: MessageId[];
}

/** A violated invariant. */
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
    | "own_obstacle";

/** The state of a world. */
export interface View {
    /** The number of events that have happened. */
    events: number;
    /** The world's clock, since the start. */
    now_micros: number;
    /** The names of the world; a name's number is its index. */
    names: string[];
    /** True while the service runs. */
    is_up: boolean;
    claims: ClaimView[];
    leases: LeaseView[];
    cells: CellView[];
    /** The messages in flight, the oldest first. */
    messages: MessageView[];
    /** The transitions that the last event fired. */
    fired: FiredView[];
    changed: Changed;
    /** The first violation, as data and in words. */
    violation?: [Violation, string] | undefined;
}

/**
 * The expected end of a scenario. `outstanding` counts leases, `lease_rows` the committed rows of
 * leases.
 */
export interface End {
    claims: [name: number, cell: number, row: number][];
    rows: [cell: number, row: number, name: number][];
    told: [cell: number, worker: number, told: Told][];
    outstanding: number;
    lease_rows: number;
}

/** A recorded run that shows one case of the protocol. */
export interface Scenario {
    /** The identifier that links to the page use. */
    id: string;
    title: string;
    /** A sentence about the point to watch. */
    watch: string;
    end: End;
    trace: Trace;
}

/** A rule that can be switched off, with one sentence about it. */
export interface RuleInfo {
    rule: Rule;
    summary: string;
}

/**
 * A save that a user may ask for at any time. One worker's saves happen in the order of the list.
 */
export interface Wish {
    cell: number;
    worker: number;
    change: Change;
}

/** The largest number of each fault, wait and run in an exploration. */
export interface Allowance {
    drops: number;
    duplicates: number;
    time_outs: number;
    crashes: number;
    disconnects: number;
    stops: number;
    waits: number;
    reconciliations: number;
    verifications: number;
}

/**
 * A small world to explore. `before` lists events that precede the search; `drifts` are changes by
 * plain SQL.
 */
export interface Plan {
    settings: Settings;
    before: Event[];
    wishes: Wish[];
    drifts: [cell: number, drift: Drift][];
    allowance: Allowance;
    /** The length of one `wait` event. */
    wait_seconds: number;
    /** The largest number of events in a schedule. */
    depth: number;
}

/** The progress of an exploration. */
export interface Progress {
    /** The number of different states reached. */
    states: number;
    /** The number of events applied. */
    events: number;
    /** The length of the schedules that are being explored. */
    depth: number;
    /** The number of states left to explore. */
    open: number;
    /** True if a schedule was cut off at the plan's depth. */
    is_cut_off: boolean;
    /** True if every schedule up to the plan's depth was explored. */
    is_finished: boolean;
}

/** A violation in words, and one of the shortest traces that lead to it as JSON. */
export interface Found {
    violation: string;
    trace: string;
}

/** An edge of a transition table. */
export interface Edge {
    from: string;
    event: string;
    to: string;
}

/** The engine's transition tables. `FiredView.edge` is an index into them. */
export interface TransitionTables {
    claim: Edge[];
    lease: Edge[];
}

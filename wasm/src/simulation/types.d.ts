import type { ReconciliationSummary as ReconcilerSummary, VerificationReport as VerifierReport } from "./leasehold.js";

/** What the last runs did, as the engine's own sessions say it. */
export type { ReconcilerSummary, VerifierReport };

/** A process of a cell: workers save for users, reconcilers settle leases that were left, the verifier compares tables. */
export type Process = { worker: number } | { reconciler: number } | "verifier";

/** What a user wants to be saved. Rows and names go by number. */
export type Change =
    | "invalid"
    | { create: number }
    | { create_two: [number, number] }
    | { rename: { row: number; name: number } }
    | { delete: number }
    | { swap: [number, number] }
    | { transfer: { from: number; to: number } };

/** A change past the claims, as plain SQL makes it. */
export type Drift = { insert: number } | { rename: { row: number; name: number } } | { delete: number };

/** A message's name. */
export type MessageId = number;

/** One thing that happens to a world. Cells are numbered from 1, what they have from 0. */
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

/** When a cell begins the lease of a save: right before its local COMMIT, or before its local BEGIN. */
export type Mode = "before_commit" | "lease_first";

/** The spans of time that the protocol goes by. */
export interface Thresholds {
    stale_after_seconds: number;
    commit_within_seconds: number;
    transaction_within_seconds: number;
    recent_within_seconds: number;
    remember_within_seconds: number;
    replica_lag_seconds: number;
}

/** How the clock of a cell's database differs from the service's. */
export interface Clock {
    ahead_seconds: number;
    fast_ppm: number;
}

/** How often chance draws what, as weights; 0 is never. */
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

/** What a world is made of. Lists begin again where they end before the cells do. */
export interface Settings {
    /** Whence chance draws: below 2 to the 53rd. */
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

/** A run: the settings of a world, and what befell it. */
export interface Trace {
    version: number;
    settings: Settings;
    events: Event[];
}

/** Where something happens: with a cell's users, in a process, in a cell's database, or in the service. */
export type Lane = { user: number } | { process: [cell: number, process: Process] } | { database: number } | "service";

/** A message on its way; positions are those of events, from 0. */
export interface Arrow {
    id: MessageId;
    from: Lane;
    to: Lane;
    says: string;
    /** The lease that it is about. */
    lease?: string | undefined;
    sent: number;
    /** Where its way ended; absent while it is under way at the end of the run. */
    ended?: number | undefined;
    /** `ignored` where nobody waited for it any more. */
    how?: "arrived" | "lost" | "ignored" | undefined;
}

/** An edge of the engine's tables that fired; `edge` is absent where a rule that is off let happen what the table lacks. */
export interface FiredView {
    machine: "claim" | "lease";
    /** The name or the lease. */
    of: string;
    /** Its place in the engine's table. */
    edge?: number | undefined;
    from: string;
    event: string;
    to: string;
}

/** What happened by one event. */
export interface Entry {
    /** From 0. */
    position: number;
    event: Event;
    /** The clock after it, since the start. */
    at_micros: number;
    /** In words. */
    says: string;
    lane: Lane;
    /** The messages that it sent, a copy by duplication too. */
    sent: Arrow[];
    arrived?: MessageId | undefined;
    lost: MessageId[];
    fired: FiredView[];
    /** Whether it is trouble. */
    fault: boolean;
    /** What does not hold since then, where that is the run's first violation. */
    violation?: string | undefined;
}

/** Where a run is worth looking at: positions of events. */
export interface Marks {
    faults: number[];
    violation?: number | undefined;
}

/** A claim; `row_before` is the row of a replace that it came from before. */
export interface ClaimView {
    name: string;
    cell: number;
    status: "Active" | "Creating" | "Destroying" | "Replacing";
    row?: number | undefined;
    row_before?: number | undefined;
    lease?: string | undefined;
    updated_micros: number;
}

/** A lease. */
export interface LeaseView {
    lease: string;
    /** From 1. */
    number: number;
    cell: number;
    status: "Outstanding" | "Committed" | "RolledBack";
    fence: number;
    age_micros: number;
    names: string[];
}

/** A committed row; `is_stray` where it was written past the claims. */
export interface RowView {
    row: number;
    name: string;
    age_micros: number;
    is_stray: boolean;
}

/** The committed row of a lease. */
export interface LeaseRowView {
    lease: string;
    age_micros: number;
}

/** A transaction that is not at its end; writes are row, name before, name after. */
export interface TransactionView {
    worker: number;
    state: "open" | "committing" | "orphaned";
    writes: [row: number, before: string | null, after: string | null][];
    lease?: string | undefined;
}

/** What a save does next, or waits for. */
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

/** What a user was told; a refusal with its reason, as on the wire. */
export type Told = "saved" | "invalid" | { refused: string } | "conflict" | "too_late" | "unavailable" | "unknown";

/** A worker. */
export interface WorkerView {
    change?: Change | undefined;
    phase?: Phase | undefined;
    lease?: string | undefined;
    is_ready: boolean;
    told?: Told | undefined;
}

/** What a reconciler does next; times are microseconds since 1970. */
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

/** A reconciler: what it does next, where it is at a run, and what its last run did. */
export interface ReconcilerView {
    step?: ReconcilerStep | undefined;
    is_waiting: boolean;
    last?: ReconcilerSummary | undefined;
}

/** A verifier: what it does next, where it is at a run, and what its last run did. */
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

/** A cell. */
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

/** A message under way. */
export interface MessageView {
    id: MessageId;
    /** The cell whose call it belongs to. */
    cell: number;
    /** The process that called. */
    process: Process;
    is_answer: boolean;
    /** Which copy it is, from 0. */
    copy: number;
    says: string;
    sent_micros: number;
    can_arrive: boolean;
}

/** What the last event has changed. */
export interface Changed {
    names: string[];
    leases: string[];
    sent: MessageId[];
}

/** What does not hold, by name. */
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

/** A world. */
export interface View {
    /** How many have happened. */
    events: number;
    /** The clock, since the start. */
    now_micros: number;
    /** Every name, by number. */
    names: string[];
    /** Whether the service serves. */
    is_up: boolean;
    claims: ClaimView[];
    leases: LeaseView[];
    cells: CellView[];
    /** Under way, the oldest first. */
    messages: MessageView[];
    /** By the last event. */
    fired: FiredView[];
    changed: Changed;
    /** The first thing that does not hold, and the same in words. */
    violation?: [Violation, string] | undefined;
}

/** How a scenario ends: claims at rest, committed rows, what users were told last, what is left. */
export interface End {
    claims: [name: number, cell: number, row: number][];
    rows: [cell: number, row: number, name: number][];
    told: [cell: number, worker: number, told: Told][];
    outstanding: number;
    lease_rows: number;
}

/** A schedule to watch. */
export interface Scenario {
    /** For links. */
    id: string;
    title: string;
    /** What to watch. */
    watch: string;
    end: End;
    trace: Trace;
}

/** A rule that can be switched off, in one sentence. */
export interface RuleInfo {
    rule: Rule;
    summary: string;
}

/** What a user asks for at some time; of one worker's wishes the earlier comes first. */
export interface Wish {
    cell: number;
    worker: number;
    change: Change;
}

/** How much trouble there is at the most, and how much of what can be started at any time. */
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

/** A small world to explore: `before` is what has happened already; `drifts` are changes past the claims, by cell. */
export interface Plan {
    settings: Settings;
    before: Event[];
    wishes: Wish[];
    drifts: [cell: number, drift: Drift][];
    allowance: Allowance;
    /** How much time passes at a time. */
    wait_seconds: number;
    /** The longest schedule. */
    depth: number;
}

/** How far an exploration has come; `depth` is the length of the schedules that are looked at now. */
export interface Progress {
    states: number;
    events: number;
    depth: number;
    open: number;
    /** Whether some schedule was cut off at the greatest depth. */
    is_cut_off: boolean;
    is_finished: boolean;
}

/** A violation in words, and one of the shortest traces to it, as JSON. */
export interface Found {
    violation: string;
    trace: string;
}

/** An edge of a machine: from a state, by an event, to a state. */
export interface Edge {
    from: string;
    event: string;
    to: string;
}

/** The engine's tables, in the order in which `FiredView.edge` counts. */
export interface TransitionTables {
    claim: Edge[];
    lease: Edge[];
}

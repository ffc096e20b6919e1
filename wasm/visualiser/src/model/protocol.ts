// The types of the simulation under the names that the page uses. `Event` is called `WorldEvent`,
// because `Event` is a DOM event in a browser.
export type {
    Arrow,
    CellView,
    Change,
    ClaimView,
    ClientView,
    Drift,
    Edge,
    Entry,
    Event as WorldEvent,
    FiredView,
    FrontView,
    Lane,
    LaneView,
    LeaseView,
    LockSettings,
    LocksView,
    LockView,
    Marks,
    MessageId,
    MessageView,
    Mode,
    Phase,
    Plan,
    Process,
    Progress,
    Rates,
    RequestView,
    Rule,
    RuleInfo,
    Scenario,
    SessionView,
    Settings,
    Simulation,
    Told,
    Trace,
    View,
    WorkerView,
    WorkKind,
    WorkPhase,
    WorkResult,
} from "leasehold/simulation";

import type { Arrow, Entry, Marks } from "leasehold/simulation";

/**
 * The source of the lanes' contents: a run of the simulation, or the audit log of a live server.
 */
export interface Timeline {
    readonly length: number;
    /** Returns the events from position `from` up to, not including, position `to`. */
    entries(from: number, to: number): Entry[];
    /** Returns the messages that were in flight at some position of that range. */
    arrows(from: number, to: number): Arrow[];
    /** Returns the positions of the faults and of the first violation. */
    marks(): Marks;
}

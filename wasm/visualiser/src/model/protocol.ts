// The types of the simulation under the page's names. `Event` is renamed to `WorldEvent`: in a
// browser it is a DOM event.
export type {
    Arrow,
    CellView,
    Change,
    ClaimView,
    Drift,
    Edge,
    Entry,
    Event as WorldEvent,
    FiredView,
    Lane,
    LeaseView,
    Marks,
    MessageId,
    MessageView,
    Mode,
    Phase,
    Plan,
    Process,
    Progress,
    Rates,
    Rule,
    RuleInfo,
    Scenario,
    Settings,
    Simulation,
    Told,
    Trace,
    View,
    WorkerView,
} from "leasehold/simulation";

import type { Arrow, Entry, Marks } from "leasehold/simulation";

/** The data of the lanes: a run of the simulation, or the log of a live server. */
export interface Timeline {
    readonly length: number;
    /** Returns the events from one position up to another. */
    entries(from: number, to: number): Entry[];
    /** Returns the messages that were in flight at some point between two positions. */
    arrows(from: number, to: number): Arrow[];
    /** Returns the positions of faults and of the first violation. */
    marks(): Marks;
}

// The package's types by the names that the page uses: `Event` means something else in a browser.
export type {
    Arrow,
    CellView,
    Change,
    ClaimView,
    Drift,
    Edge,
    Entry,
    Event as Happening,
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

/** Whatever the lanes can show: a run of the simulation, or a recording of a live server. */
export interface Timeline {
    readonly length: number;
    /** What happened from one position on, up to another. */
    entries(from: number, to: number): Entry[];
    /** Messages that were under way somewhere between two positions. */
    arrows(from: number, to: number): Arrow[];
    marks(): Marks;
}

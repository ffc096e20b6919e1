// What the page remembers of how a run came to be, so that a link can say it in few words.
import { commonStart } from "./happening";
import type { Happening, Scenario, Settings } from "./protocol";

/** Where a run comes from. */
export type Origin =
    | { kind: "scenario"; id: string }
    /** Chance, from the settings' seed: so many events of it, before anybody meddled. */
    | { kind: "free"; settings: Settings; chance: number }
    /** Somebody's trace: nothing shorter than its events says it. */
    | { kind: "trace"; settings: Settings; title: string };

/** A scenario's events that were kept, and what was done instead of the rest. */
export interface Bends {
    kept: number;
    events: Happening[];
}

/** How a run differs from its scenario; undefined where it does not. */
export function bendsOf(scenario: Scenario, events: readonly Happening[]): Bends | undefined {
    const kept = commonStart(scenario.trace.events, events);
    if (kept === events.length && kept === scenario.trace.events.length) return undefined;
    return { kept, events: events.slice(kept) };
}

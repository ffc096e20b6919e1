// The origin of a run: the shortest description from which a link can reproduce it.
import { commonPrefixLength } from "./events";
import type { Scenario, Settings, WorldEvent } from "./protocol";

/** The source of a run. */
export type Origin =
    | { kind: "scenario"; id: string }
    /**
     * Random events from the settings' seed. `randomEvents` is their number before a person applied
     * an event.
     */
    | { kind: "free"; settings: Settings; randomEvents: number }
    /** A trace, from a file or a search. Only its list of events reproduces it. */
    | { kind: "trace"; settings: Settings; title: string };

/**
 * The difference of a run from its scenario: the number of events in common, and the events after
 * them.
 */
export interface Divergence {
    kept: number;
    events: WorldEvent[];
}

/** Returns the difference of a run from its scenario, or `undefined` if the run is the scenario. */
export function divergenceFrom(scenario: Scenario, events: readonly WorldEvent[]): Divergence | undefined {
    const kept = commonPrefixLength(scenario.trace.events, events);
    if (kept === events.length && kept === scenario.trace.events.length) return undefined;
    return { kept, events: events.slice(kept) };
}

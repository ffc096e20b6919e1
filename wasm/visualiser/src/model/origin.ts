// The origin of a run, which a link stores. The link also stores the events that the origin does not give.
import { commonPrefixLength } from "./events";
import type { Scenario, Settings, WorldEvent } from "./protocol";

/** The origin of a run: a scenario, random events, or a trace. */
export type Origin =
    | { kind: "scenario"; id: string }
    /**
     * A world with random events from the seed in `settings`. `randomEvents` is the number of
     * events before a person applied one. In a world with `isByHand` no random events happen: a
     * person applies events, and the autopilot plays on without faults.
     */
    | { kind: "free"; settings: Settings; randomEvents: number; isByHand?: true }
    /** A trace, from a file or a search. Its list of events is needed to reproduce it. */
    | { kind: "trace"; settings: Settings; title: string };

/** Returns true if the run is of a world in which a person applies the events. */
export function isWorldByHand(origin: Origin): boolean {
    return origin.kind === "free" && origin.isByHand === true;
}

/**
 * The difference between a run and its scenario: how many events at the start are equal, and the
 * run's events after these.
 */
export interface Divergence {
    kept: number;
    events: WorldEvent[];
}

/**
 * Returns the difference between a run's events and its scenario, or `undefined` if they are equal.
 */
export function divergenceFrom(scenario: Scenario, events: readonly WorldEvent[]): Divergence | undefined {
    const kept = commonPrefixLength(scenario.trace.events, events);
    if (kept === events.length && kept === scenario.trace.events.length) return undefined;
    return { kept, events: events.slice(kept) };
}

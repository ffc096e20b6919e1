// Loads runs from links and files. The page shows a run only after it is loaded completely, so a
// damaged link or file replaces nothing.
import { LeaseholdError, Simulation } from "leasehold/simulation";

import { looksLikeTextLog } from "../model/audit";
import { DAMAGED_LINK, LinkError, type LinkState } from "../model/link";
import type { Divergence, Origin } from "../model/origin";
import type { Settings, WorldEvent } from "../model/protocol";
import { scenarioById } from "../model/scenarios";

/** A run that was loaded from a link. */
export interface LoadedRun {
    simulation: Simulation;
    origin: Origin;
    isEdited: boolean;
    /**
     * Texts about parts of the link that are impossible. The run is then the nearest possible one.
     */
    warnings: string[];
}

/** Returns the run that a link describes. Throws `LinkError` if the link is damaged. */
export function runFromLink(link: LinkState): LoadedRun {
    const { origin, divergence } = link;
    const warnings: string[] = [];
    const simulation = origin.kind === "free" && divergence === undefined ? playRandomly(origin.settings, origin.randomEvents) : replayLink(link, warnings);
    if (link.unknown) warnings.push(`the link has \`${link.unknown.join("`, `")}\`, which this page does not know: it may come from another version`);
    const length = simulation.length;
    if (link.position > length) warnings.push(`the link goes to event ${link.position}, but its run has ${length}: it may have been cut short`);
    if (link.position < 0) warnings.push(`the link goes to event ${link.position}, but a run begins at event 0: it may have been changed`);
    return { simulation, origin, isEdited: divergence !== undefined && isEditedOrigin(origin, divergence), warnings };
}

/**
 * Returns true if a link's divergence means that a person has changed the run. For a trace, the
 * divergence only contains the events of the trace.
 */
function isEditedOrigin(origin: Origin, { kept, events }: Divergence): boolean {
    if (origin.kind === "scenario") return events.length > 0 || kept < (scenarioById(origin.id)?.trace.events.length ?? 0);
    return origin.kind === "free";
}

/**
 * The largest number of random events in a link. More would block the page for too long, and
 * anybody can write a link.
 */
const MAX_RANDOM_EVENTS = 1_000_000;

function playRandomly(settings: Settings, events: number): Simulation {
    if (events > MAX_RANDOM_EVENTS) throw new LinkError(`the link asks for ${events} random events, more than ${MAX_RANDOM_EVENTS}: ask its sender for a shorter run`);
    const simulation = worldOf(settings);
    simulation.play(events);
    return simulation;
}

function replayLink({ origin, rulesOff, divergence }: LinkState, warnings: string[]): Simulation {
    if (origin.kind !== "scenario") return warnIfTruncated(replay(worldOf(origin.settings), divergence?.events ?? []), warnings);
    const scenario = scenarioById(origin.id);
    if (scenario === undefined) throw new LinkError(`the link names the scenario \`${origin.id}\`, which this page does not have: choose one of the list`);
    const { settings, events } = scenario.trace;
    if (divergence && divergence.kept > events.length) {
        warnings.push(`the link keeps ${divergence.kept} events of a scenario that has ${events.length}: it may have been changed`);
    }
    const result = replay(worldOf({ ...settings, rules_off: rulesOff }), divergence ? [...events.slice(0, divergence.kept), ...divergence.events] : events);
    // If a rule is off, an event of the scenario itself may be impossible. The run then ends before
    // it, without a warning.
    return divergence ? warnIfTruncated(result, warnings) : result.simulation;
}

function warnIfTruncated({ simulation, isTruncated }: ReplayResult, warnings: string[]): Simulation {
    if (isTruncated) warnings.push("the link's run cannot be replayed to its end: it comes from another version of this page");
    return simulation;
}

/** Returns a run without events, in a world with the settings of a link. */
function worldOf(settings: Settings): Simulation {
    try {
        return new Simulation(settings);
    } catch {
        throw new LinkError(DAMAGED_LINK);
    }
}

/**
 * The result of replaying events. `isTruncated` is true if an event was impossible; the run then
 * ends before that event.
 */
export interface ReplayResult {
    simulation: Simulation;
    isTruncated: boolean;
}

/**
 * Applies events to a run, up to the first impossible one. Throws `LinkError` if a value is not an
 * event.
 */
export function replay(simulation: Simulation, events: readonly WorldEvent[]): ReplayResult {
    for (const event of events) {
        try {
            simulation.apply(event);
        } catch (error) {
            if ((error as { code?: string }).code !== "IMPOSSIBLE") throw new LinkError(DAMAGED_LINK);
            return { simulation, isTruncated: true };
        }
    }
    return { simulation, isTruncated: false };
}

/** The error for a file that contains no run. Its message tells the person what to do. */
export class FileError extends Error {
    override name = "FileError";
}

/** Returns the run that a file contains. Throws `FileError` if there is none. */
export function runFromFile(text: string, name: string): Simulation {
    checkJsonObject(text, name);
    try {
        return Simulation.load(text);
    } catch (error) {
        throw new FileError(traceErrorText(error, name));
    }
}

function checkJsonObject(text: string, name: string): void {
    const isObject = text.trimStart().startsWith("{");
    if (!isObject && looksLikeTextLog(text)) {
        throw new FileError(`\`${name}\` is a server's log in text format, which this page does not read: write it with \`leasehold serve --log-format json\``);
    }
    if (!isObject) throw new FileError(`\`${name}\` is neither a saved run nor a server's log: open a file that “Save” has written`);
    try {
        JSON.parse(text);
    } catch {
        throw new FileError(`\`${name}\` is damaged or was cut short: save the run again`);
    }
}

/** Returns the text for the person about a file that the simulation refused (`simulation/src/trace.rs`). */
function traceErrorText(error: unknown, name: string): string {
    const isTrace = error instanceof LeaseholdError && error.code === "INVALID_TRACE";
    if (isTrace) return `\`${name}\` was changed, or comes from another version of this page: ${error.message}`;
    return `\`${name}\` contains no run that this page can read: open a file that “Save” has written`;
}

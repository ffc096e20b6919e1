// Runs from outside, out of links and files: made before anything is shown, so that what is damaged replaces nothing.
import { Simulation } from "leasehold/simulation";

import { looksLikeProse } from "../model/audit";
import { DAMAGED, LinkError, type LinkState } from "../model/link";
import type { Happening, Settings } from "../model/protocol";
import type { Bends, Origin } from "../model/run";
import { scenarioOf } from "../model/scenarios";

/** A run that a link says. */
export interface Opened {
    simulation: Simulation;
    origin: Origin;
    isBent: boolean;
    /** What the link says and cannot mean, in words: what is shown is the nearest to it. */
    doubts: string[];
}

/** The run of a link. Throws where the link is damaged. */
export function openedBy(link: LinkState): Opened {
    const { origin, bends } = link;
    const doubts: string[] = [];
    const simulation = origin.kind === "free" && bends === undefined ? playedByChance(origin.settings, origin.chance) : replayed(link, doubts);
    const length = simulation.length;
    if (link.position > length) doubts.push(`the link goes to event ${link.position}, but its run has ${length}: it may have been cut short`);
    return { simulation, origin, isBent: bends !== undefined && isOther(origin, bends), doubts };
}

/** Whether they make another run of what is opened. */
function isOther(origin: Origin, { kept, events }: Bends): boolean {
    if (origin.kind === "scenario") return events.length > 0 || kept < (scenarioOf(origin.id)?.trace.events.length ?? 0);
    return origin.kind === "free";
}

/** More than anybody waits for. */
const MOST_CHANCE = 1_000_000;

function playedByChance(settings: Settings, events: number): Simulation {
    if (events > MOST_CHANCE) throw new LinkError(`the link asks for ${events} events by chance, more than ${MOST_CHANCE}: ask for another`);
    const simulation = world(settings);
    simulation.play(events);
    return simulation;
}

function replayed({ origin, rulesOff, bends }: LinkState, doubts: string[]): Simulation {
    if (origin.kind !== "scenario") return intact(replay(world(origin.settings), bends?.events ?? []), doubts);
    const scenario = scenarioOf(origin.id);
    if (scenario === undefined) throw new LinkError(`the link names a scenario that this page does not have, \`${origin.id}\`: choose one of the list`);
    const { settings, events } = scenario.trace;
    if (bends && bends.kept > events.length) {
        doubts.push(`the link keeps ${bends.kept} events of a scenario that has ${events.length}: it may have been changed`);
    }
    const again = replay(world({ ...settings, rules_off: rulesOff }), bends ? [...events.slice(0, bends.kept), ...bends.events] : events);
    // Without a rule a scenario's own events may lead elsewhere.
    return bends ? intact(again, doubts) : again.simulation;
}

function intact({ simulation, isCut }: Replayed, doubts: string[]): Simulation {
    if (isCut) doubts.push("the link's run cannot be replayed to its end: it comes from another version of this page");
    return simulation;
}

/** A world as a link describes it. */
function world(settings: Settings): Simulation {
    try {
        return new Simulation(settings);
    } catch {
        throw new LinkError(DAMAGED);
    }
}

/** A run of given events, and whether not all of them could happen. */
export interface Replayed {
    simulation: Simulation;
    isCut: boolean;
}

/** Lets events happen in a world, until one is impossible there. Throws where one is no event at all. */
export function replay(simulation: Simulation, events: readonly Happening[]): Replayed {
    for (const event of events) {
        try {
            simulation.apply(event);
        } catch (error) {
            if ((error as { code?: string }).code !== "IMPOSSIBLE") throw new LinkError(DAMAGED);
            return { simulation, isCut: true };
        }
    }
    return { simulation, isCut: false };
}

/** A file that is no run, in words. */
export class FileError extends Error {
    override name = "FileError";
}

/** The run of a file. Throws where it holds none. */
export function openedFile(text: string, name: string): Simulation {
    refuseNoTrace(text, name);
    try {
        return Simulation.load(text);
    } catch (error) {
        throw new FileError(whyNot(error instanceof Error ? error.message : "", name));
    }
}

function refuseNoTrace(text: string, name: string): void {
    const isObject = text.trimStart().startsWith("{");
    if (!isObject && looksLikeProse(text)) {
        throw new FileError(`\`${name}\` is a server's log as text, which this page does not read: write it with \`leasehold serve --log-format json\``);
    }
    if (!isObject) throw new FileError(`\`${name}\` is neither a saved run nor a server's log: open a file that “Save” has written`);
    try {
        JSON.parse(text);
    } catch {
        throw new FileError(`\`${name}\` is damaged or was cut short: save the run once more`);
    }
}

/** The simulation's refusal, without its parser's words. */
function whyNot(message: string, name: string): string {
    if (message.startsWith("the trace is of version")) return `\`${name}\`: ${message}`;
    const event = /^event (\d+) of the trace/.exec(message)?.[1];
    if (event !== undefined) return `\`${name}\` cannot be replayed: its event ${Number(event) + 1} can't happen. it was changed, or comes from another version of this page`;
    return `\`${name}\` holds no run that this page can read: open a file that “Save” has written`;
}

// What became of a whole run, in words: for people who open somebody's link, and for those who bent it themselves.
import { about, commonStart, processOf } from "./happening";
import type { Arrow, Entry, Rule, Scenario, View } from "./protocol";
import { SETTLES } from "./tries";
import { leaseNumber, NEEDED_WHEN, readable, RULE_NAMES } from "./words";

/** How a run ends. */
export type Verdict =
    /** At a position a promise is broken. */
    | { kind: "broken"; position: number; text: string }
    | { kind: "held"; text: string }
    /** It has not come to rest. */
    | { kind: "open"; text: string };

/** A whole run, and the world at its end. */
export interface Ended {
    entries: Entry[];
    view: View;
    rulesOff: readonly Rule[];
    /** Whether more is to happen. */
    isOpen: boolean;
}

/** How a run ends: what broke, or why nothing did. */
export function verdictOf({ entries, view, rulesOff, isOpen }: Ended): Verdict {
    const broken = entries.find(({ violation }) => violation !== undefined);
    if (broken?.violation !== undefined) return { kind: "broken", position: broken.position, text: `${readable(broken.violation)}.` };
    if (isOpen) return { kind: "open", text: "How it ends is open: play on." };
    const beginning = rulesOff.length === 0 ? ["Nothing broke."] : rulesOff.map((rule) => `Nothing broke this time without the rule ${nameOf(rule)}.`);
    const needed = rulesOff.map((rule) => NEEDED_WHEN[rule]);
    return { kind: "held", text: [...beginning, ...lastFate(entries, view), ...needed].join(" ") };
}

function nameOf(rule: Rule): string {
    return `“${RULE_NAMES[rule].toLowerCase()}”`;
}

/** What became of the latest lease that had trouble: more is not read. */
function lastFate(entries: readonly Entry[], view: View): string[] {
    const arrows = entries.flatMap((entry) => entry.sent);
    const sent = new Map(arrows.map((arrow) => [arrow.id, arrow]));
    // Those that the service has forgotten since are the older ones.
    const leases = new Set([...arrows.flatMap(({ lease }) => lease ?? []), ...view.leases.map(({ lease }) => lease)]);
    const fates = [...leases].map((lease) => fateOf(lease, entries, sent)).filter((text) => text !== undefined);
    return fates.slice(-1);
}

type Sent = ReadonlyMap<number, Arrow>;

/** What became of a lease; undefined where nothing out of the ordinary did. */
function fateOf(lease: string, entries: readonly Entry[], sent: Sent): string | undefined {
    const settled = entries.find(({ fired }) => fired.some((edge) => edge.machine === "lease" && edge.of === lease && isSettled(edge.to)));
    const losses = entries.flatMap((entry) => entry.lost.map((id) => ({ entry, arrow: sent.get(id) })));
    const lost = losses.filter(({ arrow }) => arrow?.lease === lease).at(-1);
    const number = `lease ${leaseNumber(lease)}`;
    if (lost?.arrow && SETTLES.includes(lost.arrow.says) && !(settled && settled.position < lost.entry.position)) {
        const what = lost.arrow.says === "commit" ? "commit" : "rollback";
        return `The ${what} of ${number} was lost at event ${lost.entry.position + 1}, before the service knew of it, so the lease stayed outstanding. ${ending(settled, sent)}`;
    }
    if (lost?.arrow && settled && settled.position < lost.entry.position) {
        const again = entries.find((entry) => entry.position > lost.entry.position && isAsked(entry, lease, sent));
        const memory = again ? `Asked again at event ${again.position + 1}, it answered from its memory.` : "Nobody asked again.";
        return `The service had ${outcome(settled)} ${number} when a message about it was lost at event ${lost.entry.position + 1}. ${memory}`;
    }
    return isByReconciler(settled, sent) ? `Nobody was left to finish ${number}. ${ending(settled, sent)}` : undefined;
}

function isSettled(state: string): boolean {
    return state === "Committed" || state === "RolledBack";
}

function isAsked(entry: Entry, lease: string, sent: Sent): boolean {
    const arrow = entry.arrived === undefined ? undefined : sent.get(entry.arrived);
    return arrow?.lease === lease && SETTLES.includes(arrow.says);
}

function isByReconciler(settled: Entry | undefined, sent: Sent): boolean {
    const from = settled?.arrived === undefined ? undefined : sent.get(settled.arrived)?.from;
    return from !== undefined && from !== "service" && "process" in from && processOf(from.process[1]).kind === "reconciler";
}

function outcome(settled: Entry): string {
    return settled.fired.some(({ machine, to }) => machine === "lease" && to === "Committed") ? "committed" : "rolled back";
}

function ending(settled: Entry | undefined, sent: Sent): string {
    if (settled === undefined) return "It is outstanding still.";
    const [how, where] = [outcome(settled), `at event ${settled.position + 1}`];
    if (!isByReconciler(settled, sent)) return `Whoever had asked got no answer, asked again, and it was ${how} ${where}.`;
    const proof = how === "committed" ? "its row is in the cell's database" : "no row of it is in the cell's database";
    return `Reconciliation found it and had it ${how} ${where}, since ${proof}.`;
}

/** Trouble that somebody has made, rather than what follows from it. */
const MADE = ["drop", "duplicate", "crash", "disconnect", "lose_commit", "restart_database", "partition", "stop_service", "drift"];
/** More is not read. */
const MOST_MADE = 2;

/** How a run differs from its scenario; undefined where it does not. */
export function differenceOf(scenario: Scenario, entries: readonly Entry[], rulesOff: readonly Rule[]): string | undefined {
    const own = scenario.trace.events;
    const kept = commonStart(own, entries.map(({ event }) => event));
    const without = rulesOff.length > 0 ? `Played without the rule ${rulesOff.map(nameOf).join(" and ")}.` : "";
    if (kept === own.length && kept === entries.length) return without === "" ? undefined : `${without} With it: ${scenario.watch}`;
    const first = entries[kept];
    if (first === undefined) return `${without} It ends after event ${kept}, before the scenario does.`.trim();
    const made = entries.slice(kept + 1).filter(({ event }) => MADE.includes(about(event).kind));
    const more = made.slice(0, MOST_MADE).map(({ position, says }) => `; at event ${position + 1} ${says}`);
    const begins = kept === own.length ? `After the scenario's ${kept} events it goes on` : `From event ${kept + 1} on it differs from the scenario`;
    return `${without} ${begins}: ${first.says}${more.join("")}.`.trim();
}

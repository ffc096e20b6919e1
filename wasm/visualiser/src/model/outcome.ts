// Describes the outcome of a whole run, and its difference from the scenario, for people who open a
// link or have changed a run.
import { commonPrefixLength, partsOf, processParts } from "./events";
import { isCommitRequest, isSettleRequest, isUnavailableAnswer, isUnknownLeaseAnswer } from "./message_texts";
import type { Arrow, Entry, Rule, Scenario, View } from "./protocol";
import { leaseLabel, NEEDED_WHEN, quotedRule, readableText } from "./texts";

/** The outcome of a run, with a text for people. */
export type Verdict =
    /** The event at `position` violates an invariant or a promise. */
    | { kind: "violated"; position: number; text: string }
    /** The run is at rest, and no event violates anything. */
    | { kind: "held"; text: string }
    /** The run is not at rest, so its outcome is open. */
    | { kind: "open"; text: string };

/** All events of a run, with the state of its world at the end. */
export interface WholeRun {
    entries: Entry[];
    view: View;
    rulesOff: readonly Rule[];
    /** True if the run is not at rest, so that more events can follow. */
    canContinue: boolean;
}

/** Returns the outcome of a run: the violation, or the reason for which nothing is violated. */
export function verdictFor({ entries, view, rulesOff, canContinue }: WholeRun): Verdict {
    const violating = entries.find(({ violation }) => violation !== undefined);
    if (violating?.violation !== undefined) return { kind: "violated", position: violating.position, text: `${readableText(violating.violation)}.` };
    if (canContinue) return { kind: "open", text: "The outcome is open: play on." };
    const held = rulesOff.length === 0 ? ["No invariant is violated."] : rulesOff.map((rule) => `No invariant is violated in this run without the rule ${quotedRule(rule)}.`);
    const needed = rulesOff.map((rule) => NEEDED_WHEN[rule]);
    return { kind: "held", text: [...held, ...lastUnusualLease(entries, view), ...needed].join(" ") };
}

/**
 * Returns the story of the latest lease that a fault touched, as a list with at most one text.
 * People would not read more than one.
 */
function lastUnusualLease(entries: readonly Entry[], view: View): string[] {
    const arrows = entries.flatMap((entry) => entry.sent);
    const sent = new Map(arrows.map((arrow) => [arrow.id, arrow]));
    // The view lists leases by age, the newest last, without those that the service has forgotten.
    // Forgotten leases are older and occur only in messages, so the messages' leases come first.
    const leases = new Set([...arrows.flatMap(({ lease }) => lease ?? []), ...view.leases.map(({ lease }) => lease)]);
    const stories = [...leases].map((lease) => leaseStory(lease, entries, sent)).filter((text) => text !== undefined);
    return stories.slice(-1);
}

type SentMessages = ReadonlyMap<number, Arrow>;

/** Returns the story of a lease, or `undefined` if no fault touched it. */
function leaseStory(lease: string, entries: readonly Entry[], sent: SentMessages): string | undefined {
    const settled = entries.find(({ fired }) => fired.some((edge) => edge.machine === "lease" && edge.of === lease && isSettledState(edge.to)));
    const losses = entries.flatMap((entry) => entry.lost.map((id) => ({ entry, arrow: sent.get(id) })));
    const lost = losses.filter(({ arrow }) => arrow?.lease === lease).at(-1);
    const label = `lease ${leaseLabel(lease)}`;
    const wasSettledBefore = lost !== undefined && settled !== undefined && settled.position < lost.entry.position;
    if (lost?.arrow && isSettleRequest(lost.arrow.says) && !wasSettledBefore) {
        const request = isCommitRequest(lost.arrow.says) ? "commit" : "rollback";
        return `The ${request} of ${label} was lost at event ${lost.entry.position + 1}, before it reached the service, so the lease stayed outstanding. ${settlementStory(settled, sent)}`;
    }
    if (lost?.arrow && wasSettledBefore) {
        const retry = entries.find((entry) => entry.position > lost.entry.position && isSettleArrival(entry, lease, sent));
        const memory = retry ? retryStory(retry) : "The caller did not retry.";
        return `The service had ${outcomeText(settled)} ${label} when a message about the lease was lost at event ${lost.entry.position + 1}. ${memory}`;
    }
    return isByReconciler(settled, sent) ? `The process that began ${label} did not settle it in time. ${settlementStory(settled, sent)}` : undefined;
}

function retryStory({ position, sent }: Entry): string {
    const answer = sent[0]?.says ?? "";
    if (isUnavailableAnswer(answer)) return `The caller retried at event ${position + 1}, when the service was down.`;
    if (isUnknownLeaseAnswer(answer)) return `The caller retried at event ${position + 1}, and the service had forgotten the lease.`;
    return `The caller retried at event ${position + 1}, and the service answered from its memory.`;
}

function isSettledState(state: string): boolean {
    return state === "Committed" || state === "RolledBack";
}

/** Returns true if an entry is the arrival of a request to settle this lease. */
function isSettleArrival(entry: Entry, lease: string, sent: SentMessages): boolean {
    const arrow = entry.arrived === undefined ? undefined : sent.get(entry.arrived);
    return arrow?.lease === lease && isSettleRequest(arrow.says);
}

function isByReconciler(settled: Entry | undefined, sent: SentMessages): boolean {
    const from = settled?.arrived === undefined ? undefined : sent.get(settled.arrived)?.from;
    return from !== undefined && from !== "service" && "process" in from && processParts(from.process[1]).kind === "reconciler";
}

function outcomeText(settled: Entry): string {
    return settled.fired.some(({ machine, to }) => machine === "lease" && to === "Committed") ? "committed" : "rolled back";
}

function settlementStory(settled: Entry | undefined, sent: SentMessages): string {
    if (settled === undefined) return "The lease is still outstanding.";
    const [outcome, place] = [outcomeText(settled), `at event ${settled.position + 1}`];
    if (!isByReconciler(settled, sent)) return `The caller got no answer and retried; the lease was ${outcome} ${place}.`;
    const proof = outcome === "committed" ? "has its lease row" : "has no lease row";
    return `Reconciliation found the lease and had it ${outcome} ${place}, because the cell's database ${proof}.`;
}

/**
 * The kinds of faults that a person can apply. Their consequences, such as a time-out, are not
 * listed.
 */
const APPLIED_FAULTS = ["drop", "duplicate", "cancel_call", "crash", "disconnect", "lose_commit", "restart_database", "partition", "stop_service", "drift", "pause", "pause_service", "jump_clock", "evict", "force", "fail_work"];
/**
 * The largest number of faults that the text about a difference lists. People would not read more.
 */
const MAX_LISTED_FAULTS = 2;

/**
 * Returns a text about the difference between a run and its scenario, or `undefined` if they are
 * equal.
 */
export function differenceText(scenario: Scenario, entries: readonly Entry[], rulesOff: readonly Rule[]): string | undefined {
    const own = scenario.trace.events;
    const kept = commonPrefixLength(own, entries.map(({ event }) => event));
    const without = rulesOff.length > 0 ? `Played without the rule ${rulesOff.map(quotedRule).join(" and ")}.` : "";
    if (kept === own.length && kept === entries.length) return without === "" ? undefined : `${without} With the rule: ${scenario.watch}`;
    const first = entries[kept];
    if (first === undefined) return `${without} The run ends after event ${kept}, before the scenario does.`.trim();
    const faults = entries.slice(kept + 1).filter(({ event }) => APPLIED_FAULTS.includes(partsOf(event).kind));
    const more = faults.slice(0, MAX_LISTED_FAULTS).map(({ position, says }) => `; at event ${position + 1} ${says}`);
    const start = kept === own.length ? `The run continues after the scenario's ${kept} events` : `From event ${kept + 1} on the run differs from the scenario`;
    return `${without} ${start}: ${first.says}${more.join("")}.`.trim();
}

// Texts that explain single events to people who see the protocol for the first time. Every sentence
// is chosen by the state of the world: `tests/truth` holds each one against it.
import { partsOf, processParts } from "./events";
import {
    isBeginRequest,
    isBegunAnswer,
    isBusyAnswer,
    isCommitRequest,
    isDoneAnswer,
    isOutcomeAnswer,
    isRollbackRequest,
    isSettleRequest,
    isUnavailableAnswer,
    isUnknownLeaseAnswer,
} from "./message_texts";
import { hasLeaseRow, leaseIn, type Moment, workerIn } from "./moment";
import { explainLocal } from "./process_texts";
import type { Arrow, LeaseView, Process, Rule } from "./protocol";
import { reasonFor } from "./reasons";
import { quotedRule, sentences, WITHOUT_RULE } from "./texts";

/** The explanation of one event, with the actions that the page offers below it. */
export interface Explanation {
    text: string;
    /** The rule that decided the event, which the page offers to switch off. */
    rule?: Rule;
    /** True if the text holds while the rule is off. Otherwise another text is shown then. */
    holdsWithoutRule?: boolean;
    /** True if the event lost a request. The page then offers to lose the answer instead. */
    isLostRequest?: boolean;
}

/** Returns the explanation of an event in a world of claims, or `undefined` if it has none. */
export function explain(moment: Moment): Explanation | undefined {
    return underRules(explainEvent(moment) ?? ordinary(moment, false), moment.rulesOff);
}

/** Returns the explanation of an event that every run has, or `undefined` if it has none. */
export function ordinary({ entry, rulesOff }: Moment, isAboutLocks: boolean): Explanation | undefined {
    const text = reasonFor(entry.says, isAboutLocks, rulesOff);
    return text === undefined ? undefined : { text };
}

/**
 * Returns an explanation that holds under the rules of the world. The promise of a rule that is off
 * is replaced by the danger without the rule.
 */
export function underRules(explanation: Explanation | undefined, rulesOff: readonly Rule[]): Explanation | undefined {
    const rule = explanation?.rule;
    if (rule === undefined || explanation?.holdsWithoutRule || !rulesOff.includes(rule)) return explanation;
    return { ...explanation, text: `The rule ${quotedRule(rule)} is switched off. Without it ${WITHOUT_RULE[rule]}.` };
}

function explainEvent(moment: Moment): Explanation | undefined {
    const { kind } = partsOf(moment.entry.event);
    if (kind === "deliver") return explainArrival(moment);
    if (kind === "drop") return explainLoss(moment);
    const text = EVENTS[kind];
    return text === undefined ? explainLocal(moment) : { text };
}

const LOST_MESSAGE = "Nobody is notified of a lost message. A caller that gets no answer cannot know if its request reached the service.";

const EVENTS: Record<string, string> = {
    duplicate: "Networks and retries deliver messages twice. The second copy must change nothing.",
    cancel_call: "The begin had no idempotency key and its answer has not left, so nobody can know the lease. The service will roll it back, before the next begin at the latest.",
    take_back: "The service settles no other lease by itself: without an idempotency key, the caller of this one could neither settle it nor get it by a repeated begin.",
    partition: "Messages wait until the connection is healed. The cell can still read and commit locally, but it cannot begin a lease.",
    stop_service: "Claims and leases are on the service's disk. It loses only the requests that it has not answered.",
    start_service: "The service is back with its claims and leases, and with the outcome of each settled lease that it remembers.",
    drift: "Plain SQL has changed a row. The claims stay as they were until verification compares both sides.",
    forget: "A settled lease is remembered for longer than any caller retries. Only older ones are forgotten.",
};

function explainLoss(moment: Moment): Explanation {
    const { message, after, rulesOff } = moment;
    const lease = leaseIn(after, message?.lease);
    if (message === undefined || lease === undefined) return { text: LOST_MESSAGE };
    if (isSettleRequest(message.says)) return explainLostSettle(lease);
    if (message.from !== "service" || !awaitsAnswer(moment)) return { text: LOST_MESSAGE };
    if (isOutcomeAnswer(message.says)) {
        return {
            text: "The lease is settled, but the cell does not know. If it asks again, the service must tell the outcome although the lease is no longer outstanding: that is why settled leases are remembered.",
            rule: "settled_lease_memory",
        };
    }
    if (isBegunAnswer(message.says) && lease.status === "Outstanding") {
        const isKeyed = !rulesOff.includes("replay_keys");
        return {
            text: sentences("The names are held, but the cell does not know.", isKeyed && "If it begins again under the same idempotency key, it gets the same lease."),
            rule: "replay_keys",
        };
    }
    return { text: LOST_MESSAGE };
}

/** Returns true if the process to which the moment's message was sent waits for an answer. */
function awaitsAnswer({ message, after }: Moment): boolean {
    const [cell, process] = processOf(message?.to);
    const state = after.cells.find((other) => other.cell === cell);
    if (state === undefined || process === undefined) return false;
    if (process === "verifier") return state.verifier.is_waiting;
    const { kind, number } = processParts(process);
    if (kind === "reconciler") return state.reconcilers[number]?.is_waiting ?? false;
    return /^await_(?!database)/u.test(workerIn(after, cell, process)?.phase ?? "");
}

function processOf(lane: Arrow["to"] | undefined): [cell?: number, process?: Process] {
    return lane !== undefined && lane !== "service" && "process" in lane ? lane.process : [];
}

function explainLostSettle(lease: LeaseView): Explanation {
    if (lease.status !== "Outstanding") return { text: "The lease is settled already, so this request would have changed nothing. Its caller gets no answer." };
    return {
        text: "The request never reaches the service: the lease stays outstanding, and its names stay held. If its caller does not retry, reconciliation settles the lease once it is stale.",
        isLostRequest: true,
    };
}

const IGNORED_ANSWER: Explanation = { text: "Its receiver no longer waits for this answer, so it changes nothing there." };

function explainArrival(moment: Moment): Explanation | undefined {
    const { message, request, entry } = moment;
    if (message === undefined) return undefined;
    if (message.how === "ignored") return IGNORED_ANSWER;
    if (request !== undefined) return isDoneAnswer(message.says) ? explainDone(moment, request) : undefined;
    const answer = entry.sent[0]?.says;
    if (answer === undefined) return undefined;
    if (isUnavailableAnswer(answer)) return moment.after.is_up ? BROKEN_TABLES : SERVICE_DOWN;
    if (isSettleRequest(message.says)) return explainSettle(moment, message, answer);
    return isBeginRequest(message.says) ? explainBegin(moment, answer) : undefined;
}

const SERVICE_DOWN: Explanation = { text: "The service is down, so the request changes nothing. Its caller learns nothing about earlier requests." };
const BROKEN_TABLES: Explanation = { text: "The service's tables contradict each other, so it decides nothing." };

function explainDone(moment: Moment, request: Arrow): Explanation | undefined {
    const { kind } = processParts(processOf(request.from)[1] ?? "verifier");
    if (isRollbackRequest(request.says) && kind === "verifier") {
        return { text: "The verifier read the rows again under the lease: some no longer called for their corrections, or the lease was too old by then. The update is rolled back, and the remaining corrections are begun again." };
    }
    if (isRollbackRequest(request.says) && !hasLeaseRow(moment.after, request.lease)) {
        return { text: "The lease has had no effect: it has changed no name, and has left no row in the cell's database." };
    }
    if (!isCommitRequest(request.says) || !hasLeaseRow(moment.after, request.lease)) return undefined;
    if (kind === "verifier") return { text: "The lease row has done its work: it proved that the correction was decided. The cell deletes it next." };
    return { text: "The lease row has done its work: it proved that the local transaction was committed. The cell deletes it next." };
}

function explainSettle(moment: Moment, message: Arrow, answer: string): Explanation | undefined {
    if (isUnknownLeaseAnswer(answer)) {
        return {
            text: "The service has forgotten this lease, so it cannot tell if the lease was committed or rolled back. This caller never learns the outcome.",
            rule: "settled_lease_memory",
            holdsWithoutRule: true,
        };
    }
    const settled = moment.entry.fired.find(({ machine, of }) => machine === "lease" && of === message.lease);
    if (settled !== undefined) return explainSettled(moment, message, settled.to);
    if (isDoneAnswer(answer)) {
        return {
            text: "This lease was settled before. The service remembers its outcome and repeats it, so a caller may ask again at any time: after a lost answer, or in the place of a process that died.",
            rule: "settled_lease_memory",
        };
    }
    const was = leaseIn(moment.before, message.lease)?.status === "Committed" ? "committed" : "rolled back";
    return { text: `This lease was ${was} before, and an outcome never changes. The service remembers it, so the caller learns the truth.`, rule: "settled_lease_memory" };
}

/** Returns the explanation of a request that has settled its lease. */
function explainSettled(moment: Moment, message: Arrow, outcome: string): Explanation {
    const { kind } = processParts(processOf(message.from)[1] ?? "verifier");
    if (kind === "reconciler") return explainReconciled(moment, outcome);
    if (outcome !== "Committed") {
        return { text: "The save goes no further, so its lease is rolled back: its claims are again as they were before the lease. The service remembers the outcome.", rule: "settled_lease_memory" };
    }
    if (kind === "verifier") {
        return { text: "The correction was decided when its lease row was written, so it is final now. The service remembers the outcome for callers that retry.", rule: "settled_lease_memory" };
    }
    return { text: "The rows are committed already, so the change of the claims is final now. The service remembers the outcome for callers that retry.", rule: "settled_lease_memory" };
}

function explainReconciled({ rulesOff }: Moment, outcome: string): Explanation {
    if (outcome === "Committed") {
        return { text: "Reconciliation has found the lease row in the cell's database, so the local transaction was committed. Therefore the lease is committed, too." };
    }
    const isGuarded = !rulesOff.includes("commit_guard");
    const proof = isGuarded ? "and the lease is too old for a local COMMIT. So nothing was saved, and its claims are again as they were before the lease." : "but without the rule “late commits are refused”, a COMMIT may still come.";
    return {
        text: sentences(`Reconciliation has found no lease row in the cell's database, ${proof}`, "The service remembers the rollback: a process that turns up later is told the truth."),
        rule: "settled_lease_memory",
    };
}

function explainBegin(moment: Moment, answer: string): Explanation | undefined {
    const isNew = moment.entry.fired.some(({ machine, to }) => machine === "lease" && to === "Outstanding");
    if (isBegunAnswer(answer) && !isNew) {
        return { text: "This begin carries the idempotency key of an earlier one, so it gets that one's lease instead of a second lease.", rule: "replay_keys" };
    }
    if (isBegunAnswer(answer)) {
        return { text: "From now on the lease holds the names for its caller: nobody else can begin a lease on them.", rule: "lease_exclusivity" };
    }
    if (isBusyAnswer(answer)) {
        return { text: "Another lease holds a name of this update. That lease may still be committed or rolled back, so the answer is: try again later.", rule: "lease_exclusivity" };
    }
    return { text: "An update is refused as a whole, so the service has changed nothing. A retry gets the same answer as long as the claims stay as they are." };
}

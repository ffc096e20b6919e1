// Texts that explain single events to people who see the protocol for the first time.
import { partsOf, processParts } from "./events";
import {
    isBeginRequest,
    isBegunAnswer,
    isBusyAnswer,
    isCommitRequest,
    isDoneAnswer,
    isLeaseRowWrite,
    isOutcomeAnswer,
    isRefusedAnswer,
    isRefusedByDatabase,
    isRollbackRequest,
    isSettleRequest,
    isUnknownLeaseAnswer,
    isVerifierLeaseRow,
} from "./message_texts";
import type { Arrow, Entry, Rule, Timeline } from "./protocol";

/** The explanation of one event, with the actions that the page offers below it. */
export interface Explanation {
    text: string;
    /** The rule that decided the event, which the page offers to switch off. */
    rule?: Rule;
    /** True if the event lost a request. The page then offers to lose the answer instead. */
    isLostRequest?: boolean;
}

/** Returns the request that `answer` answers, or `undefined` if the message is not an answer. */
export function answeredRequest(answer: Arrow, timeline: Timeline): Arrow | undefined {
    const request = timeline.entries(answer.sent, answer.sent + 1)[0]?.arrived;
    return request === undefined ? undefined : timeline.arrows(answer.sent, answer.sent + 1).find(({ id }) => id === request);
}

/**
 * Returns the explanation of an event, or `undefined` if the event needs none. `message` is the
 * message that arrived or was lost in the event. If `message` is an answer, `request` is the text
 * of its request.
 */
export function explain(entry: Entry, message: Arrow | undefined, request?: string): Explanation | undefined {
    const { kind } = partsOf(entry.event);
    if (kind === "deliver") return message && explainArrival(entry, message, request);
    if (kind === "drop" && message) return explainLoss(message);
    if (kind === "finish_commit") return explainLocalCommit(entry);
    if (kind === "step") return explainCorrection(entry);
    const text = EVENTS[kind];
    return text === undefined ? undefined : { text };
}

const EVENTS: Record<string, string> = {
    drop: "Nobody is notified of a lost message. The caller cannot know if the request reached the service, so it retries.",
    duplicate: "Networks and retries deliver messages twice. The second copy must change nothing.",
    cancel_call: "The begin had no idempotency key and its answer has not left, so nobody can know the lease. The service will roll it back, before the next begin at the latest.",
    take_back: "This is the only lease that the service settles by itself: without an idempotency key, its caller could neither settle it nor get it by a repeated begin.",
    crash: "The process has lost its memory, and its open transaction is rolled back. Its lease is still outstanding at the service until reconciliation finds it.",
    disconnect: "Without its connection the worker cannot know the outcome of its transaction. It leaves the lease to reconciliation.",
    lose_commit: "The database never carried out the COMMIT. The lease row was part of that transaction, so it is gone as well.",
    restart_database: "Every connection is lost, and every open transaction is rolled back.",
    partition: "Messages wait until the connection is healed. The cell can still read and commit locally, but it cannot begin a lease.",
    stop_service: "Claims and leases are on the service's disk. It loses only the requests that it has not answered.",
    start_service: "The service is back with its claims, its leases and the outcome of each settled lease.",
    time_out: "A missing answer is not a refusal: the call may have taken effect. The caller retries under the same idempotency key, or leaves the lease to reconciliation.",
    drift: "Plain SQL has changed a row. The claims stay as they were until verification compares both sides.",
    forget: "Settled leases are remembered for a day, longer than any caller retries. Only older ones are forgotten.",
};

function explainLoss(message: Arrow): Explanation {
    if (isSettleRequest(message.says)) {
        return {
            text: "The request never reaches the service: the lease stays outstanding, and its names stay held. The caller retries after a while, or reconciliation settles the lease once it is stale.",
            isLostRequest: true,
        };
    }
    if (message.from === "service" && isOutcomeAnswer(message.says)) {
        return {
            text: "The lease is settled, but the cell does not know. When the cell retries, the service must tell the outcome although the lease is no longer outstanding: that is why settled leases are remembered.",
            rule: "settled_lease_memory",
        };
    }
    if (message.from === "service" && isBegunAnswer(message.says)) {
        return {
            text: "The names are held, but the cell does not know. It retries under the same idempotency key, and gets the same lease.",
            rule: "replay_keys",
        };
    }
    return { text: EVENTS["drop"] ?? "" };
}

function explainArrival(entry: Entry, arrived: Arrow, request: string | undefined): Explanation | undefined {
    const answer = entry.sent[0]?.says;
    const lease = entry.fired.find((fired) => fired.machine === "lease");
    if (isSettleRequest(arrived.says)) {
        return lease ? explainSettled(arrived, lease.to) : explainRepeatedSettle(answer);
    }
    if (isBeginRequest(arrived.says)) return explainBegin(answer, lease !== undefined);
    return isDoneAnswer(arrived.says) ? explainDone(request, processKind(arrived.to)) : undefined;
}

function processKind(lane: Arrow["from"]): string | undefined {
    return lane !== "service" && "process" in lane ? processParts(lane.process[1]).kind : undefined;
}

function explainDone(request: string | undefined, receiver: string | undefined): Explanation | undefined {
    if (request === undefined) return undefined;
    if (isRollbackRequest(request) && receiver === "verifier") {
        return { text: "The verifier read the rows again under the lease, and some no longer called for their corrections. The update is rolled back, and the remaining corrections are begun again." };
    }
    if (isCommitRequest(request)) return { text: "The lease row has done its work: it proved that the local transaction was committed. The cell deletes it next." };
    if (isRollbackRequest(request)) return { text: "The save has had no effect: the names are as they were before, and the lease has left no row in the cell's database." };
    return undefined;
}

function explainSettled(arrived: Arrow, outcome: string): Explanation | undefined {
    const isReconciler = processKind(arrived.from) === "reconciler";
    if (isReconciler && outcome === "Committed") {
        return { text: "The lease row is in the cell's database, so the local transaction was committed. Therefore the lease is committed, too." };
    }
    if (isReconciler) {
        return {
            text: "The cell's database has no lease row, and the lease is too old for a local COMMIT. So nothing was saved, and the names are free again. The service remembers the rollback: a process that turns up later is told the truth.",
            rule: "settled_lease_memory",
        };
    }
    return outcome === "Committed"
        ? { text: "The rows are committed already, so the claim is final now. The service remembers the outcome for callers that retry.", rule: "settled_lease_memory" }
        : undefined;
}

function explainRepeatedSettle(answer: string | undefined): Explanation | undefined {
    if (answer === undefined) return undefined;
    if (isUnknownLeaseAnswer(answer)) {
        return {
            text: "The service has forgotten this lease, so it cannot tell if the lease was committed or rolled back. The caller never learns the outcome.",
            rule: "settled_lease_memory",
        };
    }
    return {
        text: "This lease was settled before; only the answer was lost. The service remembers the outcome and repeats it, so a retry is safe. That is why settled leases are remembered.",
        rule: "settled_lease_memory",
    };
}

function explainBegin(answer: string | undefined, isNew: boolean): Explanation | undefined {
    if (answer === undefined) return undefined;
    if (isBegunAnswer(answer) && !isNew) {
        return { text: "The retry carries the idempotency key of the first attempt, so it gets the first attempt's lease instead of a second one.", rule: "replay_keys" };
    }
    if (isBegunAnswer(answer)) {
        return { text: "From now on the lease holds the names for this save: no other save can begin a lease on them.", rule: "lease_exclusivity" };
    }
    if (isBusyAnswer(answer)) {
        return { text: "Another save holds the name. That save may still be committed or rolled back, so the answer is: try again later.", rule: "lease_exclusivity" };
    }
    if (isRefusedAnswer(answer)) return { text: "The refusal is final: a retry would get the same answer." };
    return undefined;
}

/** Returns the explanation of a verifier's step that concerns the lease row of its correction. */
function explainCorrection(entry: Entry): Explanation | undefined {
    if (!isVerifierLeaseRow(entry.says)) return undefined;
    if (isRefusedByDatabase(entry.says)) return COMMIT_TOO_LATE;
    return isLeaseRowWrite(entry.says)
        ? { text: "The verifier read the rows again under the lease, and they still call for the corrections. From here on the update will be committed: by reconciliation if the verifier dies." }
        : undefined;
}

const COMMIT_TOO_LATE: Explanation = {
    text: "The lease is too old: reconciliation may have rolled it back meanwhile. So the database itself refuses the COMMIT.",
    rule: "commit_guard",
};

function explainLocalCommit(entry: Entry): Explanation | undefined {
    if (isRefusedByDatabase(entry.says)) return COMMIT_TOO_LATE;
    return { text: "This COMMIT decides the save: the rows and the lease row are committed together, or not at all." };
}

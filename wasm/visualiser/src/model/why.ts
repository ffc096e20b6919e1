// Why something happened as it did, for people who see the protocol for the first time.
import { about, processOf } from "./happening";
import type { Arrow, Entry, Rule, Timeline } from "./protocol";

/** A remark about one event. */
export interface Note {
    text: string;
    /** The rule that it is about: switch it off to see what it is there for. */
    rule?: Rule;
    /** Whether it is about a lost request whose answer might as well have been lost. */
    isOfRequest?: boolean;
}

/** The request that a message answers; undefined where it is none's answer. */
export function requestOf(answer: Arrow, timeline: Timeline): Arrow | undefined {
    const asked = timeline.entries(answer.sent, answer.sent + 1)[0]?.arrived;
    return asked === undefined ? undefined : timeline.arrows(answer.sent, answer.sent + 1).find(({ id }) => id === asked);
}

/**
 * A remark about what has just happened, where there is something to say. `message` is the one that arrived, or was
 * lost; `asked` is what the request said that it answers.
 */
export function explain(entry: Entry, message: Arrow | undefined, asked?: string): Note | undefined {
    const { kind } = about(entry.event);
    if (kind === "deliver") return message && aboutArrival(entry, message, asked);
    if (kind === "drop" && message) return aboutLoss(message);
    if (kind === "finish_commit") return aboutCommit(entry);
    if (kind === "step") return aboutCorrection(entry);
    const text = FAULTS[kind];
    return text === undefined ? undefined : { text };
}

const FAULTS: Record<string, string> = {
    drop: "Nobody is told that a message was lost. Whoever waits for the answer cannot know whether the request got through, so it asks once more.",
    duplicate: "Networks and retries deliver things twice. The second copy must change nothing.",
    crash: "All that the process knew is gone, and a transaction that it had open is rolled back. Its lease is still at the service: reconciliation will find it.",
    disconnect: "Without its connection the worker cannot know how its transaction ended. It leaves its lease to reconciliation.",
    lose_commit: "The database never carried the COMMIT out. The lease's row was part of that transaction, so it is gone as well.",
    restart_database: "Every connection is lost, and with it every transaction that was not committed.",
    partition: "Messages wait at the border. The cell can still read and commit locally, but it cannot claim anything.",
    stop_service: "What the service had promised is on its disk. It forgets only who was asking.",
    start_service: "It comes back with all that it had made durable: claims, leases, and how each of them was settled.",
    time_out: "No answer is not a no. The call may have taken effect, so it is repeated under the same key, or given up and left to reconciliation.",
    drift: "Somebody has changed a row by plain SQL. The claims know nothing of it until verification compares both sides.",
    forget: "Settled leases are remembered for a day, longer than anybody could still be asking. Only older ones are forgotten.",
};

function aboutLoss(message: Arrow): Note {
    if (message.says === "commit" || message.says === "roll back") {
        return {
            text: "The service never learns of it: the lease stays outstanding, and its names stay held. Whoever asked waits in vain and asks again, or reconciliation does once the lease is old.",
            isOfRequest: true,
        };
    }
    if (message.from === "service" && ANSWERS_TO_SETTLE.test(message.says)) {
        return {
            text: "The lease is settled, but the cell does not know. When it asks again it must hear how the lease ended, though the lease is no longer outstanding: that is why settled leases are remembered.",
            rule: "settled_lease_memory",
        };
    }
    if (message.from === "service" && message.says.startsWith("begun")) {
        return {
            text: "The names are held, but the cell does not know. It will ask again under the same key, and get the same lease.",
            rule: "replay_keys",
        };
    }
    return { text: FAULTS["drop"] ?? "" };
}

const ANSWERS_TO_SETTLE = /^(done|it was )/;

function aboutArrival(entry: Entry, arrived: Arrow, asked: string | undefined): Note | undefined {
    const answer = entry.sent[0]?.says;
    const lease = entry.fired.find((fired) => fired.machine === "lease");
    if (arrived.says === "commit" || arrived.says === "roll back") {
        return lease ? aboutSettled(arrived, lease.to) : aboutAsked(answer);
    }
    if (arrived.says.startsWith("begin:")) return aboutBegin(answer, lease !== undefined);
    return arrived.says === "done" ? aboutDone(asked, kindOf(arrived.to)) : undefined;
}

function kindOf(lane: Arrow["from"]): string | undefined {
    return lane !== "service" && "process" in lane ? processOf(lane.process[1]).kind : undefined;
}

function aboutDone(asked: string | undefined, kind: string | undefined): Note | undefined {
    if (asked === "roll back" && kind === "verifier") {
        return { text: "When the rows were read again under the lease, some no longer called for what was begun for them. It is undone, and what the other rows still call for is begun anew." };
    }
    if (asked === "commit") return { text: "Now the lease's row is needed no more: it was only there to prove that the local transaction was committed." };
    if (asked === "roll back") return { text: "Nothing came of this save: the names are as they were before it, and the lease has left no row in the cell's database that anybody would have to delete." };
    return undefined;
}

function aboutSettled(arrived: Arrow, to: string): Note | undefined {
    const isReconciler = kindOf(arrived.from) === "reconciler";
    if (isReconciler && to === "Committed") {
        return { text: "The lease's row is in the cell's database, so its transaction was committed: the lease is committed, too." };
    }
    if (isReconciler) {
        return {
            text: "There is no row of this lease in the cell's database, and it is too old to be committed any more. So nothing was saved, and the names are free again. The service remembers that it rolled this lease back: should the process turn up after all, it is told the truth.",
            rule: "settled_lease_memory",
        };
    }
    return to === "Committed"
        ? { text: "The rows are committed already, so the claim is final now. The service remembers this, should anybody ask again.", rule: "settled_lease_memory" }
        : undefined;
}

function aboutAsked(answer: string | undefined): Note | undefined {
    if (answer === undefined) return undefined;
    if (answer.includes("no such lease")) {
        return {
            text: "The service no longer knows this lease, so it cannot tell whether it was committed or rolled back. Who asks is left in the dark.",
            rule: "settled_lease_memory",
        };
    }
    return {
        text: "This lease was settled before; only the answer had not arrived. The service remembers how it ended and says so again, so asking twice is safe. That is why settled leases are remembered.",
        rule: "settled_lease_memory",
    };
}

function aboutBegin(answer: string | undefined, isNew: boolean): Note | undefined {
    if (answer === undefined) return undefined;
    if (answer.startsWith("begun") && !isNew) {
        return { text: "It carries the key of the first try, so it gets the lease of the first try instead of a second one.", rule: "replay_keys" };
    }
    if (answer.startsWith("begun")) {
        return { text: "From now on the names are held for this save: nobody else can begin anything with them.", rule: "lease_exclusivity" };
    }
    if (answer.includes("lease") || answer.includes("busy")) {
        return { text: "Another save holds the name just now. That may end either way, so the answer is: try again later.", rule: "lease_exclusivity" };
    }
    if (answer.startsWith("refused")) return { text: "That is final: trying again would change nothing." };
    return undefined;
}

/** What a verifier does under the lease of a correction. */
function aboutCorrection(entry: Entry): Note | undefined {
    if (!/verifier .*row of its lease/.test(entry.says)) return undefined;
    if (entry.says.includes("refused")) return TOO_LATE;
    return entry.says.includes("writes")
        ? { text: "The rows were read again under the lease, and still call for what was begun. From here on it will be committed, by reconciliation if the verifier dies." }
        : undefined;
}

const TOO_LATE: Note = {
    text: "The lease is older than its cell may rely on: reconciliation may have given it up meanwhile. So the database itself refuses the COMMIT.",
    rule: "local_fence",
};

function aboutCommit(entry: Entry): Note | undefined {
    if (/refuse|too late/i.test(entry.says)) return TOO_LATE;
    return { text: "This is the moment that decides: the rows and the row of the lease are committed together, or not at all." };
}

// The explanations of events at a process or a database of a cell: crashes, lost connections,
// time-outs and local COMMITs. Each sentence holds in the state of the world, because a newcomer
// believes it.
import { isSameProcess, partsOf, processParts } from "./events";
import type { Explanation } from "./explanations";
import { isBeginRequest, isLeaseRowWrite, isTransactionTooOld, isVerifierLeaseRow } from "./message_texts";
import { hasLeaseRow, leaseIn, type Moment, transactionOf, workerIn, workerNumber } from "./moment";
import type { CellView, Phase } from "./protocol";
import { sentences } from "./texts";

/** Returns the explanation of an event at a process or a database, or `undefined`. */
export function explainLocal(moment: Moment): Explanation | undefined {
    const { kind, process } = partsOf(moment.entry.event);
    if (kind === "finish_commit") return explainLocalCommit(moment);
    if (kind === "step") return explainStep(moment);
    if (kind === "crash" && process) return { text: sentences("The process has lost its memory.", ...lossOfProcess(moment)) };
    if (kind === "disconnect") return { text: sentences(...lossOfWorker(moment)) };
    if (kind === "restart_database") return { text: sentences("Every connection is lost.", ...lostTransactions(moment)) };
    if (kind === "lose_commit") return { text: sentences("The database never carries out the COMMIT.", hasLostLeaseRow(moment) && "The lease row was part of that transaction, so it is gone as well.") };
    return kind === "time_out" ? explainTimeOut(moment) : undefined;
}

function lossOfProcess(moment: Moment): (string | false)[] {
    const { kind } = processParts(partsOf(moment.entry.event).process ?? "verifier");
    if (kind === "worker") return lossOfWorker(moment);
    if (kind === "reconciler") return ["Reconciliation keeps nothing in memory: its next run finds the same leases and lease rows."];
    return ["If it had begun a lease for a correction, reconciliation settles that lease by its lease row."];
}

/** Returns the sentences about the transaction and the lease of a worker that has lost its save. */
function lossOfWorker(moment: Moment): (string | false)[] {
    const { cell, process } = partsOf(moment.entry.event);
    const transaction = transactionOf(moment.before, cell, process);
    return [
        transaction === "open" && "Its open transaction is rolled back.",
        transaction === "committing" && "The database has received its COMMIT, and still decides the transaction.",
        leaseLeftBehind(moment),
    ];
}

const UNANSWERED_BEGIN: readonly (Phase | undefined)[] = ["await_begin", "await_found", "find_lease"];

/** Returns a sentence about the lease that a worker leaves behind. */
function leaseLeftBehind(moment: Moment): string {
    const { cell, process } = partsOf(moment.entry.event);
    const worker = workerIn(moment.before, cell, process);
    const lease = worker?.lease;
    const status = leaseIn(moment.after, lease)?.status;
    if (status === "Outstanding") return "Its lease is still outstanding at the service, until reconciliation finds it.";
    if (lease !== undefined && hasLeaseRow(moment.after, lease)) return "Its lease is settled already; only the lease row stays, until reconciliation deletes it.";
    if (lease !== undefined) return "Its lease is settled already, so nothing is left to reconcile.";
    const mayHaveBegun = UNANSWERED_BEGIN.includes(worker?.phase) || isBeginInFlight(moment) || hasUnknownLease(moment, cell);
    if (mayHaveBegun) return "Nobody has told it if its begin took effect: if so, reconciliation finds the lease.";
    return "It has no lease, so nothing is left at the service.";
}

/** Returns true if a begin of the event's process may still arrive, also one for which it waits no more. */
function isBeginInFlight({ entry, after }: Moment): boolean {
    const { cell, process } = partsOf(entry.event);
    return after.messages.some((message) => message.cell === cell && process !== undefined && isSameProcess(message.process, process) && isBeginRequest(message.says));
}

/** Returns true if the service has an outstanding lease of the cell of which no worker knows. */
function hasUnknownLease({ before, after }: Moment, cell: number | undefined): boolean {
    const known = before.cells.flatMap(({ workers }) => workers.map(({ lease }) => lease));
    return after.leases.some((lease) => lease.cell === cell && lease.status === "Outstanding" && !known.includes(lease.lease));
}

function lostTransactions(moment: Moment): (string | false)[] {
    const states = cellOf(moment)?.transactions.map(({ state }) => state) ?? [];
    return [
        states.includes("open") && "Every open transaction is rolled back.",
        states.some((state) => state !== "open") && "A COMMIT that the database has received may still be carried out.",
    ];
}

/** Returns the state of the event's cell before the event. */
function cellOf({ entry, before }: Moment): CellView | undefined {
    const { cell } = partsOf(entry.event);
    return before.cells.find((other) => other.cell === cell);
}

function hasLostLeaseRow(moment: Moment): boolean {
    return cellOf(moment)?.transactions.some(({ state, lease }) => state === "orphaned" && lease !== undefined) ?? false;
}

const MAY_HAVE_HAPPENED = "A missing answer is not a refusal: the call may have taken effect.";

function explainTimeOut(moment: Moment): Explanation {
    return { text: sentences(MAY_HAVE_HAPPENED, nextAfterTimeOut(moment)) };
}

/** Returns a sentence about the next action of a worker that has stopped to wait for an answer. */
function nextAfterTimeOut(moment: Moment): string | undefined {
    const { cell, process } = partsOf(moment.entry.event);
    const [before, after] = [workerIn(moment.before, cell, process), workerIn(moment.after, cell, process)];
    if (before === undefined || after === undefined) return undefined;
    if (after.phase === "begin" || after.phase === "find_lease") return repeatedBegin(moment);
    if (after.phase === "commit_lease" || after.phase === "roll_back_lease") return "The worker repeats its request, which is safe: the service remembers a settled lease.";
    if (after.phase !== undefined) return "The worker gives its save up.";
    const isOutstanding = leaseIn(moment.after, before.lease)?.status === "Outstanding";
    return isOutstanding ? "The worker stops here, and leaves its lease to reconciliation." : "The worker stops here.";
}

function repeatedBegin({ rulesOff }: Moment): string {
    return rulesOff.includes("replay_keys") ? "The worker begins again." : "The worker begins again under the same idempotency key.";
}

const COMMIT_TOO_LATE: Explanation = {
    text: "The lease is too old: reconciliation may have rolled it back meanwhile. So the database itself refuses the COMMIT.",
    rule: "commit_guard",
};

function explainLocalCommit({ entry, before }: Moment): Explanation {
    if (entry.refused && isTransactionTooOld(entry.says)) {
        return { text: "The transaction has been open for too long, so the database itself refuses the COMMIT.", rule: "commit_guard" };
    }
    if (entry.refused) return COMMIT_TOO_LATE;
    const { cell, process } = partsOf(entry.event);
    const number = workerNumber(process);
    const committed = before.cells.find((other) => other.cell === cell)?.transactions.find(({ worker, state }) => worker === number && state !== "open");
    if (committed?.lease === undefined) return { text: "This COMMIT decides the save. Its rows change no claim, so there is no lease row." };
    return { text: "This COMMIT decides the save: the rows and the lease row are committed together, or not at all." };
}

/** Returns the explanation of a step that the database refuses, or that writes a verifier's lease row. */
function explainStep({ entry }: Moment): Explanation | undefined {
    if (isVerifierLeaseRow(entry.says)) {
        if (entry.refused) return COMMIT_TOO_LATE;
        return isLeaseRowWrite(entry.says)
            ? { text: "The verifier read the rows again under the lease, and they still call for the corrections. From here on the update will be committed: by reconciliation if the verifier dies." }
            : undefined;
    }
    return entry.refused ? { text: "The cell's own database has the last word on its rows. The save cannot go on: the worker rolls it back, and its lease if it has one." } : undefined;
}

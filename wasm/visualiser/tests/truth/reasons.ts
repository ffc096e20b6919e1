// The reasons of ordinary events, and the states in which they hold.
import type { Entry, RequestView, View } from "../../src/model/protocol";
import type { Evidence, Statement } from "./sentences";
import { cellOf, hasLeaseRow, same, transactionOf, workerOf } from "./claims";

const sentLease = ({ entry }: Evidence) => entry.sent[0]?.lease ?? "";

/** The sentences of reasons in worlds of claims that depend on the state. */
export const REASONS: Statement[] = [
    { pattern: /^Rows of an open transaction are not saved yet/u, holds: (it) => transactionOf(it.after, it)?.state === "open" && same(cellOf(it.before, it)?.rows.length, cellOf(it.after, it)?.rows.length) },
    { pattern: /^The answer names the lease|^From now on its receiver can settle/u, holds: (it) => it.message?.lease !== undefined && (workerOf(it.after, it) === undefined || workerOf(it.after, it)?.lease === it.message.lease) },
    { pattern: /^The lease row is part of the local transaction/u, holds: (it) => transactionOf(it.after, it)?.lease !== undefined },
    { pattern: /^From now on the database decides/u, holds: (it) => transactionOf(it.after, it)?.state === "committing" },
    { pattern: /^The lease row proves that the save|^So it must be told that the rows/u, holds: (it) => it.provenLeases.has(sentLease(it)) },
    { pattern: /^The service has no outstanding lease of this cell/u, holds: (it) => it.message?.says.startsWith("0 ") === true },
    { pattern: /^The cell's database has no lease row/u, holds: (it) => sentLease(it) !== "" && !hasLeaseRow(it.after, sentLease(it)) },
    { pattern: /^So the user is told the truth/u, holds: (it) => { const lease = workerOf(it.before, it)?.lease; return lease === undefined || it.provenLeases.has(lease); } },
];

/** The sentences of reasons in worlds of claims that say nothing about the present state. */
export const GENERAL_REASONS: string[] = [
    "Any cell may be asked for any name.",
    "So its own database is not enough to tell if the name is free.",
    "An invalid change ends here, before it costs a call to the service.",
    "Rows and lease row must be saved together or not at all.",
    "So one local transaction writes both.",
    "Like each save, a correction needs a lease.",
    "Only the service knows the names of all cells.",
    "So a worker must ask it before the COMMIT.",
    "So it is there exactly if the rows are saved.",
    "If the worker dies, the lease row tells what the database has decided.",
    "So the lease must be committed, too.",
    "The service cannot see the cell's database.",
    "So the reconciler takes the save for lost.",
    "A save that goes no further must not hold names any longer.",
    "Names that stay as they are need no lease.",
    "A lease row is of no use once the service knows the outcome.",
    "A rollback removes all that the transaction has written, also a lease row.",
    "A save that is refused must leave nothing behind in its cell.",
    "A save without a transaction leaves no row, but its begin may have taken effect.",
    "A save without a lease has nothing to settle.",
    "The local COMMIT alone saves the rows.",
    "A service that answers so has changed nothing.",
    "So the call may be repeated.",
    "The answer tells the caller where it stands.",
    "A lease that nobody settles would hold its names for ever.",
    "So the reconciler looks for such leases.",
    "Only the cell knows if its saves were committed.",
    "So the service lists the leases, and decides nothing.",
    "A young lease may belong to a save that still runs.",
    "So the reconciler only touches stale ones.",
    "A lease row tells the outcome: where it is, the save was committed.",
    "A worker may die before it deletes its lease row.",
    "Here the reconciler finds such rows.",
    "The reconciler runs again and again, and keeps nothing in memory.",
    "Plain SQL can change rows without their claims.",
    "So the verifier compares both sides, page by page.",
    "Outstanding leases become stale with time.",
    "Settled ones stay as they are.",
    "So it has nothing to settle.",
    "Messages that have waited can arrive now.",
    "A replica lags behind its database.",
    "So it may show an older state.",
    "A settled lease is remembered for longer than any caller retries.",
];

/** Returns the request about which the service answers a submit. */
function requestOf({ locks }: View, sent: Entry["sent"]): RequestView | undefined {
    const number = sent.map(({ says }) => /^request (\d+) is in its lane/u.exec(says)?.[1]).find((one) => one !== undefined);
    return locks?.requests?.find((request) => request.number === Number(number));
}

/** The sentences of reasons in worlds of locks and queues that depend on the state. */
export const LOCK_REASONS: Statement[] = [
    { pattern: /^A request waits in the lane/u, holds: ({ after, entry }) => requestOf(after, entry.sent)?.status === "New" },
    { pattern: /^A worker waits already, so it gets the request/u, holds: ({ after, entry }) => requestOf(after, entry.sent)?.status === "InProgress" && entry.sent.some(({ says }) => says.startsWith("taken:")) },
    { pattern: /^The request was submitted before/u, holds: ({ before, after }) => before.locks?.requests?.length === after.locks?.requests?.length },
    { pattern: /^The ask waits at the service/u, holds: ({ after, message }) => after.locks?.locks.some(({ waiting }) => typeof message?.from === "object" && "process" in message.from && waiting.includes(message.from.process[0])) === true },
];

/** The sentences of reasons in worlds of locks and queues that say nothing about the present state. */
export const GENERAL_LOCK_REASONS: string[] = [
    "A client without a session must stop: another one may have its work by now.",
    "A session stands for a live client.",
    "What the client holds ends with it.",
    "The service counts the silence of each session.",
    "So it notices a client that dies.",
    "Only the service knows if another client holds the lock.",
    "Each grant has a larger fence than the grants before it.",
    "The client sends the fence with each write.",
    "A former holder has a smaller one.",
    "After its deadline a client must not work.",
    "So it looks at its clock before each write.",
    "The resource remembers the newest fence, and refuses an older one.",
    "A release spares others the wait for the end of the session.",
    "A lock for which nobody waits is free after its release.",
    "A session without renewals expires.",
    "So the keepalive renews it.",
    "A renewal starts the count of silence again.",
    "An answered renewal gives the client a later deadline.",
    "Each tick counts the silence of every session: a renewal starts the count again.",
    "After an attempt without a result, a request waits for a while.",
    "Then the next worker gets it.",
    "A client that gives up must say so.",
    "Otherwise the lock would be granted to nobody.",
    "Those who wait behind a client that leaves move up.",
    "A client waits only as long as its program allows.",
    "Once the work is over, others may have their turn.",
    "The id of a submit lets the service recognise it when it is repeated.",
    "A request in its lane is on the service's disk.",
    "So the front need not wait for the work.",
    "A worker asks for work, and gets the requests of one lane.",
    "If no lane is ready, a take waits at the service.",
    "The lane is taken under a new fence, and is settled under it.",
    "The worker sends the fence with each write and with its settle.",
    "A former worker has a smaller one.",
    "The service keeps a request until it is settled, because a worker may die.",
    "A settled lane is ready for the next worker.",
    "A service that is down receives nothing.",
    "So the call may be repeated.",
    "A service that answers so has changed nothing.",
    "Messages that have waited can arrive now.",
    "The service has carried the call out, so its caller goes on.",
];

// The reason for each ordinary event, for people who ask why it happens. Events that depend on the
// state of the world have explanations of their own (`explanations.ts`, `lock_texts.ts`).
import type { Rule } from "./protocol";

/** The reason for the events whose sentence matches `pattern`. */
interface Reason {
    pattern: RegExp;
    text: string;
    /** The rule without which the reason does not hold. */
    needs?: Rule;
}

/** The reasons in worlds of claims. The first one that matches counts. */
const CLAIMS: readonly Reason[] = [
    { pattern: / asks worker /u, text: "Any cell may be asked for any name. So its own database is not enough to tell if the name is free." },
    { pattern: / validates its change/u, text: "An invalid change ends here, before it costs a call to the service." },
    { pattern: / begins its local transaction/u, text: "Rows and lease row must be saved together or not at all. So one local transaction writes both." },
    { pattern: /worker \d+ writes its rows$/u, text: "Rows of an open transaction are not saved yet: the COMMIT decides." },
    { pattern: /verifier sends begin/u, text: "Like each save, a correction needs a lease." },
    { pattern: / sends begin/u, text: "Only the service knows the names of all cells. So a worker must ask it before the COMMIT." },
    { pattern: / receives the answer: begun/u, text: "The answer names the lease. From now on its receiver can settle it." },
    { pattern: /worker \d+ writes its lease row/u, text: "The lease row is part of the local transaction. So it is there exactly if the rows are saved." },
    { pattern: / sends COMMIT to its database/u, text: "From now on the database decides. If the worker dies, the lease row tells what the database has decided." },
    { pattern: /reconciler \d+ sends commit of lease/u, text: "The lease row proves that the save was committed. So the lease must be committed, too." },
    { pattern: / sends commit of lease/u, text: "The service cannot see the cell's database. So it must be told that the rows are saved." },
    { pattern: /reconciler \d+ sends rollback of lease/u, text: "The cell's database has no lease row. So the reconciler takes the save for lost." },
    { pattern: / sends rollback of lease/u, text: "A save that goes no further must not hold names any longer." },
    { pattern: /needs no lease/u, text: "Names that stay as they are need no lease." },
    { pattern: / deletes (?:its lease row|the row of lease)/u, text: "A lease row is of no use once the service knows the outcome." },
    { pattern: / rolls its local transaction back/u, text: "A rollback removes all that the transaction has written, also a lease row." },
    { pattern: / receives the answer: refused/u, text: "A save that is refused must leave nothing behind in its cell." },
    { pattern: / gives its save up/u, text: "A save without a transaction leaves no row, but its begin may have taken effect." },
    { pattern: / ends its save, which has no lease/u, text: "A save without a lease has nothing to settle." },
    { pattern: / receives the answer: unavailable; the user is told: saved/u, text: "The local COMMIT alone saves the rows. So the user is told the truth." },
    { pattern: / receives the answer: unavailable/u, text: "A service that answers so has changed nothing. So the call may be repeated." },
    { pattern: / receives the answer: (?:done|it was|no such)/u, text: "The answer tells the caller where it stands." },
    { pattern: / asks for its outstanding leases/u, text: "A lease that nobody settles would hold its names for ever. So the reconciler looks for such leases." },
    { pattern: /list leases, and answers/u, text: "Only the cell knows if its saves were committed. So the service lists the leases, and decides nothing." },
    { pattern: /reconciler \d+ receives the answer: 0 /u, text: "The service has no outstanding lease of this cell. So it has nothing to settle." },
    { pattern: /reconciler \d+ receives the answer: \d/u, text: "A young lease may belong to a save that still runs. So the reconciler only touches stale ones." },
    { pattern: / looks up its rows of these leases/u, text: "A lease row tells the outcome: where it is, the save was committed." },
    { pattern: / looks for stale lease rows/u, text: "A worker may die before it deletes its lease row. Here the reconciler finds such rows." },
    { pattern: /reconciler \d+ ends its run/u, text: "The reconciler runs again and again, and keeps nothing in memory." },
    { pattern: /verifier|list claims/u, text: "Plain SQL can change rows without their claims. So the verifier compares both sides, page by page." },
    { pattern: /^time passes/u, text: "Outstanding leases become stale with time. Settled ones stay as they are." },
    { pattern: / reaches the service again/u, text: "Messages that have waited can arrive now." },
    { pattern: / applies a change/u, text: "A replica lags behind its database. So it may show an older state." },
    { pattern: /^the service deletes/u, text: "A settled lease is remembered for longer than any caller retries." },
];

/** The reasons in worlds of locks and of queues. */
const LOCKS: readonly Reason[] = [
    { pattern: /; the client stops: its session is lost/u, text: "A client without a session must stop: another one may have its work by now." },
    { pattern: / sends open session/u, text: "A session stands for a live client. What the client holds ends with it." },
    { pattern: /: open session, and answers/u, text: "The service counts the silence of each session. So it notices a client that dies." },
    { pattern: / sends acquire/u, text: "Only the service knows if another client holds the lock." },
    { pattern: /^the service receives .*: acquire \S+$/u, text: "The ask waits at the service until its turn comes." },
    { pattern: /: acquire .*answers: granted/u, text: "Each grant has a larger fence than the grants before it." },
    { pattern: / receives the answer: granted/u, text: "The client sends the fence with each write. A former holder has a smaller one." },
    { pattern: /the deadline of its session has not passed/u, text: "After its deadline a client must not work. So it looks at its clock before each write." },
    { pattern: / which accepts the write/u, text: "The resource remembers the newest fence, and refuses an older one.", needs: "fence_check" },
    { pattern: / sends release/u, text: "A release spares others the wait for the end of the session." },
    { pattern: /: release .* is free, and answers/u, text: "A lock for which nobody waits is free after its release." },
    { pattern: / sends renew session/u, text: "A session without renewals expires. So the keepalive renews it." },
    { pattern: /: renew session, and answers: done/u, text: "A renewal starts the count of silence again." },
    { pattern: /keepalive receives the answer: done/u, text: "An answered renewal gives the client a later deadline." },
    { pattern: / counts a tick$/u, text: "Each tick counts the silence of every session: a renewal starts the count again.", needs: "observed_silence" },
    { pattern: / counts a tick; it tells/u, text: "After an attempt without a result, a request waits for a while. Then the next worker gets it." },
    { pattern: / sends leave the queue/u, text: "A client that gives up must say so. Otherwise the lock would be granted to nobody." },
    { pattern: /: leave the queue, and answers/u, text: "Those who wait behind a client that leaves move up." },
    { pattern: / the client gives up/u, text: "A client waits only as long as its program allows." },
    { pattern: /; the work is done/u, text: "Once the work is over, others may have their turn." },
    { pattern: / sends submit/u, text: "The id of a submit lets the service recognise it when it is repeated.", needs: "request_ids" },
    { pattern: /: submit .*is in its lane; it tells .*: taken/u, text: "A worker waits already, so it gets the request in the same event." },
    { pattern: /: submit .*is in its lane/u, text: "A request waits in the lane of its sheet, in the order of arrival." },
    { pattern: / receives the answer: request/u, text: "A request in its lane is on the service's disk. So the front need not wait for the work." },
    { pattern: / sends take/u, text: "A worker asks for work, and gets the requests of one lane." },
    { pattern: /^the service receives .*: take$/u, text: "If no lane is ready, a take waits at the service." },
    { pattern: /: take, and answers: taken/u, text: "The lane is taken under a new fence, and is settled under it." },
    { pattern: / receives the answer: taken/u, text: "The worker sends the fence with each write and with its settle. A former worker has a smaller one." },
    { pattern: / sends (?:complete|fail|give back)/u, text: "The service keeps a request until it is settled, because a worker may die." },
    { pattern: /: (?:complete|fail|give back) .*answers: done/u, text: "A settled lane is ready for the next worker." },
    { pattern: /^the service is down/u, text: "A service that is down receives nothing. So the call may be repeated." },
    { pattern: / receives the answer: unavailable/u, text: "A service that answers so has changed nothing. So the call may be repeated." },
    { pattern: / reaches the service again/u, text: "Messages that have waited can arrive now." },
    { pattern: / receives the answer: done/u, text: "The service has carried the call out, so its caller goes on." },
];

/** Returns the reason for an ordinary event, or `undefined` if the event has none. */
export function reasonFor(says: string, isAboutLocks: boolean, rulesOff: readonly Rule[]): string | undefined {
    const reason = (isAboutLocks ? LOCKS : CLAIMS).find(({ pattern }) => pattern.test(says));
    return reason?.needs !== undefined && rulesOff.includes(reason.needs) ? undefined : reason?.text;
}

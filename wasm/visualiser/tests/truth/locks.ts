// The sentences about worlds of locks and of queues, and the states in which they hold.
import { clientText } from "../../src/model/lock_texts";
import { partsOf } from "../../src/model/events";
import type { ClientView, LockView, View } from "../../src/model/protocol";
import type { Evidence, Statement } from "./sentences";

function cellOf({ entry, message }: Evidence): number | undefined {
    const lane = [message?.from, message?.to, entry.lane].find((other) => typeof other === "object");
    const number = lane === undefined || typeof lane === "string" ? undefined : "process" in lane ? lane.process[0] : "user" in lane ? lane.user : lane.database;
    return partsOf(entry.event).cell ?? number;
}

function clientOf(view: View, it: Evidence): ClientView | undefined {
    return view.cells.find(({ cell }) => cell === cellOf(it))?.client;
}

const locks = ({ locks }: View): LockView[] => locks?.locks ?? [];
const writes = (view: View) => [...locks(view), ...(view.locks?.lanes ?? [])].reduce((all, { writes }) => all + writes, 0);
const refused = (view: View) => [...locks(view), ...(view.locks?.lanes ?? [])].reduce((all, { refused }) => all + refused, 0);
const live = ({ locks }: View) => locks?.sessions.filter(({ status }) => status === "Live") ?? [];
const fired = ({ entry }: Evidence, machine: string, event: string) => entry.fired.some((one) => one.machine === machine && one.event === event);
const statusOfRequest = ({ locks }: View, number: number) => locks?.requests?.find((request) => request.number === number)?.status;
const isHandOver = ({ entry }: Evidence) => entry.fired.some(({ machine, event }) => machine === "lock" && event.endsWith("HandOver"));

/** The cells whose sessions have expired in the event. */
function expiredCells({ before, entry }: Evidence): number[] {
    const expired = entry.fired.filter(({ machine, event }) => machine === "session" && event === "Silence").map(({ of }) => of);
    return before.locks?.sessions.filter(({ session }) => expired.includes(session)).map(({ cell }) => cell) ?? [];
}

const ownLocks = (view: View, it: Evidence) => locks(view).filter(({ holder }) => holder !== undefined && expiredCells(it).includes(holder));
const ownLanes = (view: View, it: Evidence) => view.locks?.lanes?.filter(({ holder }) => holder !== undefined && expiredCells(it).includes(holder)) ?? [];

/** The sentences of explanations that depend on the state. */
export const LOCK_EXPLANATIONS: Statement[] = [
    { pattern: /its keepalive sends no renewal|^The process does not notice/u, holds: (it) => clientOf(it.after, it)?.is_paused === true },
    { pattern: /^The process goes on where it stopped/u, holds: (it) => clientOf(it.after, it)?.is_paused === false },
    { pattern: /^A service that is paused/u, holds: ({ after }) => after.locks?.is_paused === true },
    { pattern: /^Time passes, and the service counts no tick/u, holds: ({ before, after }) => after.now_micros > before.now_micros && JSON.stringify(before.locks?.sessions) === JSON.stringify(after.locks?.sessions) },
    { pattern: /^Its session lives on/u, holds: (it) => live(it.after).some(({ cell, number }) => cell === cellOf(it) && number === clientOf(it.before, it)?.session) },
    { pattern: /is withheld until its time is over/u, holds: ({ after }) => locks(after).some(({ status }) => status === "Withheld") },
    { pattern: /^The evicted client holds no lock|so the lock is not withheld/u, holds: ({ after }) => !locks(after).some(({ status }) => status === "Withheld") },
    { pattern: /^The service proposes an end/u, holds: ({ after }) => (after.locks?.undecided ?? 0) > 0 },
    { pattern: /no lock passes on by the restart/u, holds: ({ before, after }) => JSON.stringify(locks(before).map(({ holder }) => holder)) === JSON.stringify(locks(after).map(({ holder }) => holder)) },
    { pattern: /refuses the older one/u, holds: ({ before, after, entry }) => entry.refused === true && refused(after) === refused(before) + 1 },
    { pattern: /saw no renewal/u, holds: (it) => fired(it, "session", "Silence") },
    { pattern: /gives its lock to the next client/u, holds: (it) => isHandOver(it) },
    { pattern: /^Nobody waits for its locks/u, holds: (it) => !isHandOver(it) && ownLocks(it.before, it).length > 0 },
    { pattern: /^It held no lock/u, holds: (it) => it.before.locks?.lanes === undefined && ownLocks(it.before, it).length === 0 },
    { pattern: /^It had taken nothing/u, holds: (it) => it.before.locks?.lanes !== undefined && ownLanes(it.before, it).length === 0 },
    { pattern: /^It has looked at its clock before the pause/u, holds: (it) => clientOf(it.before, it)?.phase === "write_resource" },
    { pattern: /^The requests that it has taken come back next/u, holds: (it) => ownLanes(it.after, it).length > 0 },
    { pattern: /^Now it (.*)\.$/u, holds: (it, [, step]) => step === clientText({ phase: clientOf(it.after, it)?.phase, is_paused: false, is_renewing: false }) },
    { pattern: /^It is idle/u, holds: (it) => clientOf(it.after, it)?.phase === undefined },
    { pattern: /ends a grant makes the next one|^Exactly one client is woken/u, holds: (it) => isHandOver(it) },
    { pattern: /^A broken connection alone/u, holds: ({ before, after }) => JSON.stringify(locks(before)) === JSON.stringify(locks(after)) },
    { pattern: /^The close of a session/u, holds: ({ entry }) => partsOf(entry.event).kind === "close" },
    { pattern: /^The process is gone before it could settle/u, holds: (it) => clientOf(it.after, it)?.batch === undefined },
    { pattern: /^The hold of this worker has ended/u, holds: ({ entry }) => entry.refused === true && entry.fired.length === 0 },
    { pattern: /and another one has the lane/u, holds: (it) => it.after.locks?.lanes?.some(({ holder }) => holder !== undefined && holder !== cellOf(it)) === true },
    { pattern: /^All updates that wait are one batch/u, holds: ({ entry }) => entry.sent.some(({ says }) => /taken: \d+ updates/u.test(says)) || entry.says.includes("receives the answer") },
    { pattern: /^So its requests are new again/u, holds: ({ entry, after }) => entry.fired.filter(({ machine, event }) => machine === "request" && event === "Silence").every(({ of }) => statusOfRequest(after, Number(of)) === "New") },
    { pattern: /^The worker is gone or sleeps|^The worker has been silent/u, holds: (it) => fired(it, "request", "Silence") || fired(it, "request", "SilenceLast") },
    { pattern: /^It is in error now/u, holds: ({ entry, after }) => entry.fired.filter(({ event }) => event === "SilenceLast").every(({ of }) => statusOfRequest(after, Number(of)) === "Error") },
    { pattern: /^The second front learns/u, holds: ({ entry }) => entry.says.includes("has a create already") },
    { pattern: /^The rule “.*” is switched off|^Without it /u, holds: ({ rulesOff }) => rulesOff.length > 0 },
];

/** The sentences of explanations that say nothing about the present state. */
export const GENERAL_LOCK_EXPLANATIONS: string[] = [
    "“Let its session expire”, in its menu, shows the consequences.",
    "The client opens a session if it has none, and asks for the lock.",
    "Step on, or play, to see its next actions.",
    "Nobody has to wait for its silence.",
    "A tick that comes late counts as one, so nobody expires by it.",
    "Nobody is notified of a lost message.",
    "A client that gets no answer repeats its call, or gives up.",
    "Networks and retries deliver messages twice.",
    "The second copy must change nothing.",
    "What has ended is remembered for a while, so that a call that comes late or twice gets the true answer.",
    "The first tick after the pause counts as one, however late it is.",
    "No session expires by the pause.",
    "Messages wait until the connection is healed.",
    "The process has lost its memory.",
    "If its submit has arrived, the request stays in its lane.",
    "Sessions, locks and the queue are on the service's disk.",
    "Renewals were in memory only.",
    "A missing answer is not a refusal: the call may have taken effect.",
    "For the service, a repeated call is the same call.",
    "It learns of this by its next renewal at the earliest; until then, the resource refuses it by its fence.",
    "No wall clock decides about a session: silence is counted in ticks.",
    "The client does not know if its renewal has arrived.",
    "It may work on until its own deadline, and the service waits for longer than that.",
    "A session whose end is proposed is not renewed until then.",
    "The renewals before the stop are forgotten.",
    "The lock has passed on while the client could not look at its clock.",
    "The front sends the request.",
    "A worker that waits is woken by the same write that adds it.",
    "The client opens a session if it has none, and asks for work.",
    "If no lane is ready, its call waits.",
    "A worker that stops gives its requests back.",
    "Once the service knows, they are new again, and the attempt does not count.",
    "The worker tells that its work has failed.",
    "Unless it was their last attempt, the requests keep their place, and are tried again after a while.",
    "The attempt was counted when the request was taken, so this cannot go on for ever.",
    "What it has settled meanwhile, or will, is its own.",
    "Whoever has the lane next has a larger fence.",
    "What comes meanwhile is the next batch.",
    "A create is taken alone.",
    "The updates behind it wait in the same lane, so no other worker finds them.",
    "They keep their place in the lane, and the next worker has a larger fence.",
    "A sheet is created once.",
];

/** The row texts of events, each with the state in which it holds. */
export const LOCK_EVENTS: Statement[] = [
    { pattern: /asks for work|closes its session$|'s program submits/u, holds: ({ entry }) => typeof entry.lane === "object" && "user" in entry.lane },
    { pattern: /client is paused/u, holds: (it) => clientOf(it.after, it)?.is_paused === true },
    { pattern: /client runs again/u, holds: (it) => clientOf(it.after, it)?.is_paused === false },
    { pattern: /^the service is paused/u, holds: ({ after }) => after.locks?.is_paused === true },
    { pattern: /^the service runs again/u, holds: ({ after }) => after.locks?.is_paused === false },
    { pattern: /counts a tick/u, holds: ({ before }) => before.is_up && before.locks?.is_paused === false },
    { pattern: /proposes (?:an|\d+) ends?/u, holds: ({ after }) => (after.locks?.undecided ?? 0) > 0 },
    { pattern: /decides a proposal/u, holds: ({ before }) => (before.locks?.undecided ?? 0) > 0 },
    { pattern: /evicts the session/u, holds: ({ before, after }) => live(after).length < live(before).length },
    { pattern: /takes the lock/u, holds: ({ entry }) => entry.fired.some(({ machine }) => machine === "lock") },
    { pattern: /wall clock jumps/u, holds: ({ before, after }) => before.locks?.ahead_seconds !== after.locks?.ahead_seconds },
    { pattern: /has been silent for too long and expires/u, holds: ({ before, after }) => live(after).length < live(before).length },
    { pattern: /the lock (\S+) passes on/u, holds: ({ before, after }, [, lock]) => (lockNamed(before, lock)?.fence ?? 0) < (lockNamed(after, lock)?.fence ?? 0) && lockNamed(after, lock)?.holder !== undefined },
    { pattern: /the lock (\S+) is withheld/u, holds: ({ after }, [, lock]) => lockNamed(after, lock)?.status === "Withheld" },
    { pattern: /; the lock (\S+) is free/u, holds: ({ after }, [, lock]) => lockNamed(after, lock)?.status === "Free" },
    { pattern: /which accepts the write/u, holds: ({ before, after }) => writes(after) === writes(before) + 1 },
    { pattern: /has seen a newer fence and refuses/u, holds: ({ before, after, entry }) => entry.refused === true && refused(after) === refused(before) + 1 },
    { pattern: /looks at its clock/u, holds: (it) => clientOf(it.before, it)?.phase === "check" },
    { pattern: /deadline of its session has not passed/u, holds: (it) => clientOf(it.after, it)?.standing !== "lost" },
    { pattern: /(?:create|update|poison) (\d+) is complete/u, holds: ({ after }, [, number]) => statusOfRequest(after, Number(number)) === "Complete" },
    { pattern: /(?:create|update|poison) (\d+) is in error/u, holds: ({ after }, [, number]) => statusOfRequest(after, Number(number)) === "Error" },
    { pattern: /(?:create|update|poison) (\d+) is new again/u, holds: ({ after }, [, number]) => statusOfRequest(after, Number(number)) === "New" || statusOfRequest(after, Number(number)) === "InProgress" },
    { pattern: /sends nothing/u, holds: ({ entry }) => entry.sent.length === 0 },
    { pattern: /'s (?:client|keepalive|front) sends (?!nothing)/u, holds: ({ entry }) => entry.sent.length > 0 },
    { pattern: /^the service receives/u, holds: ({ before }) => before.is_up && before.locks?.is_paused === false },
    { pattern: /^the service is down, and receives nothing/u, holds: ({ before }) => !before.is_up },
    { pattern: /answers: refused/u, holds: ({ entry }) => entry.refused === true },
    { pattern: /receives the answer/u, holds: ({ message }) => message !== undefined && message.how !== "lost" },
    { pattern: /but no longer waits for it/u, holds: ({ message }) => message?.how === "ignored" },
    { pattern: /dies of it|crashes and restarts/u, holds: (it) => clientOf(it.after, it)?.phase === undefined || /front|keepalive/u.test(it.entry.says) },
    { pattern: /stops waiting for its answer/u, holds: ({ before, after }) => JSON.stringify(before) !== JSON.stringify(after) },
    { pattern: /^the network loses/u, holds: ({ entry, after }) => entry.lost.length === 1 && !after.messages.some(({ id }) => entry.lost.includes(id)) },
    { pattern: /^the network duplicates/u, holds: ({ before, after }) => after.messages.length === before.messages.length + 1 },
    { pattern: /is cut off from the service/u, holds: ({ after }) => after.cells.some(({ is_cut_off }) => is_cut_off) },
    { pattern: /reaches the service again/u, holds: (it) => it.after.cells.find(({ cell }) => cell === cellOf(it))?.is_cut_off === false },
    { pattern: /^the service stops/u, holds: ({ after }) => !after.is_up },
    { pattern: /^the service starts again/u, holds: ({ after }) => after.is_up },
    { pattern: /^time passes/u, holds: ({ before, after }) => after.now_micros > before.now_micros },
    { pattern: /^the service deletes/u, holds: ({ before, after }) => (after.locks?.sessions.length ?? 0) <= (before.locks?.sessions.length ?? 0) },
    { pattern: /writes .* to the sheet under fence|writes to the resource under fence/u, holds: ({ before, after }) => writes(after) + refused(after) === writes(before) + refused(before) + 1 },
    { pattern: /works on .*dies of it/u, holds: (it) => clientOf(it.after, it)?.batch === undefined },
    { pattern: /the work of cell \d+'s client fails|is told to stop, and gives back/u, holds: (it) => clientOf(it.after, it)?.phase === "settle" },
    { pattern: /has nothing to do/u, holds: (it) => clientOf(it.before, it)?.task === undefined },
];

function lockNamed(view: View, lock: string | undefined): LockView | undefined {
    return locks(view).find((other) => other.lock === lock);
}

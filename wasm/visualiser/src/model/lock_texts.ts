// The page's texts about sessions and locks.
import { partsOf } from "./events";
import { type Explanation, ordinary, underRules } from "./explanations";
import type { Moment } from "./moment";
import type { ClientView, View, WorkPhase, WorkResult } from "./protocol";
import { explainQueue } from "./queue_texts";
import { sentences } from "./texts";

/** The introduction that the page shows at the start of a scenario of locks. */
export const LOCK_INTRODUCTION =
    "A lock lets one client at a time do a piece of work. A client keeps its session alive by renewals. If it is silent for too long, its locks pass on, and the fence of the next grant is larger: the resource refuses every older one. Pause a client, drop a renewal or restart the service, and watch.";

/** The hint at the start of a world of locks without random events. */
export const FIRST_LOCK_EVENT = "Click the head of a column, such as the program of a cell, and choose an event. Then play, or step: the others react.";

const PHASES: Record<WorkPhase, string> = {
    open_session: "opens a session",
    await_session: "waits for its session",
    acquire: "asks for the lock",
    await_grant: "waits for the lock",
    check: "looks at its clock",
    write_resource: "writes to the resource",
    release: "releases the lock",
    await_release: "waits for the answer to its release",
    leave: "leaves the queue",
    await_leave: "waits for the answer to its leave",
    take: "asks for work",
    await_take: "waits for work",
    settle: "settles what it has taken",
    await_settle: "waits for the answer to its settle",
    close: "closes its session",
    await_close: "waits for the answer to its close",
};

const RESULTS: Record<WorkResult, string> = {
    done: "its work is done",
    gave_up: "it gave up, because the lock was not granted in time",
    lost: "it stopped, because its session was lost",
    taken: "it stopped, because an operator took its lock",
    fenced: "it stopped, because the resource refused its fence",
    unanswered: "it gave up, because the service did not answer",
    died: "it died before its work was done",
    closed: "it closed its session",
    idle: "it found no work",
    failed: "its work failed",
    given_back: "it gave back what it had taken",
};

/** Returns the result of a client's task as a text for people. */
export function workResultText(result: WorkResult): string {
    return RESULTS[result];
}

/** Returns the state of a client as a verb phrase without a subject. */
export function clientText({ phase, told, is_paused }: ClientView): string {
    const paused = is_paused ? "is paused; then it " : "";
    if (phase) return `${paused}${PHASES[phase]}`;
    return `${paused}is idle${told ? `: ${workResultText(told)}` : ""}`;
}

const EVENTS: Record<string, string> = {
    pause: "The process does not notice that it is paused: its clock runs on, and its keepalive sends no renewal. “Let its session expire”, in its menu, shows the consequences.",
    pause_service: "A service that is paused counts no ticks, so it expires nobody.",
    work: "The client opens a session if it has none, and asks for the lock. Step on, or play, to see its next actions.",
    close: "The close of a session ends all its grants at once. Nobody has to wait for its silence.",
    wait: "Time passes, and the service counts no tick. A tick that comes late counts as one, so nobody expires by it.",
    drop: "Nobody is notified of a lost message. A client that gets no answer repeats its call, or gives up.",
    duplicate: "Networks and retries deliver messages twice. The second copy must change nothing.",
    forget: "What has ended is remembered for a while, so that a call that comes late or twice gets the true answer.",
    resume_service: "The first tick after the pause counts as one, however late it is. No session expires by the pause.",
    partition: "Messages wait until the connection is healed. A broken connection alone passes no lock on.",
    stop_service: "Sessions, locks and the queue are on the service's disk. Renewals were in memory only.",
    time_out: "A missing answer is not a refusal: the call may have taken effect. For the service, a repeated call is the same call.",
};

const JUMP: Explanation = {
    text: "No wall clock decides about a session: silence is counted in ticks.",
    rule: "observed_silence",
};

const LOST_RENEWAL: Explanation = {
    text: "The client does not know if its renewal has arrived. It may work on until its own deadline, and the service waits for longer than that.",
    rule: "grace",
};

const PROPOSAL: Explanation = {
    text: "The service proposes an end, and the engine decides. A session whose end is proposed is not renewed until then.",
};

const START: Explanation = {
    text: "The renewals before the stop are forgotten. So each live session has its whole duration again, and no lock passes on by the restart.",
    rule: "whole_duration",
};

const LATE_WRITE: Explanation = {
    text: "The lock has passed on while the client could not look at its clock. The resource has seen the newer fence, and refuses the older one.",
    rule: "fence_check",
};

const HANDED_OVER = "The write that ends a grant makes the next one: the lock is never free while somebody waits. Exactly one client is woken.";

/** Returns the explanation of an expiry. `isPassedOn` is true if a lock has passed on by it. */
function expiry({ entry, before }: Moment, isPassedOn: boolean): Explanation {
    const expired = entry.fired.filter(({ machine, event }) => machine === "session" && event === "Silence").map(({ of }) => of);
    const cells = before.locks?.sessions.filter(({ session }) => expired.includes(session)).map(({ cell }) => cell) ?? [];
    const held = [...(before.locks?.locks ?? []), ...(before.locks?.lanes ?? [])].filter(({ holder }) => holder !== undefined && cells.includes(holder));
    const next = isPassedOn
        ? "The same write gives its lock to the next client that waits."
        : before.locks?.lanes
          ? held.length > 0 ? "The requests that it has taken come back next." : "It had taken nothing."
          : held.length > 0 ? "Nobody waits for its locks." : "It held no lock.";
    return { text: `The service was awake for duration and grace, and saw no renewal. ${next}`, rule: "observed_silence" };
}

/** Returns the explanation of the end of a pause, by the next step of the client. */
function explainResume({ entry, after }: Moment): Explanation {
    const { phase } = after.cells.find(({ cell }) => cell === partsOf(entry.event).cell)?.client ?? {};
    const next =
        phase === "write_resource"
            ? "It has looked at its clock before the pause, so its next step is a write under a fence that may be old."
            : phase === undefined ? "It is idle." : `Now it ${PHASES[phase]}.`;
    return { text: `The process goes on where it stopped. ${next}` };
}

/** Returns the explanation of an operator's act, which may withhold locks. */
function operatorAct({ after }: Moment, withheld: string, free: string): Explanation {
    const isWithheld = after.locks?.locks.some(({ status }) => status === "Withheld") ?? false;
    return { text: isWithheld ? withheld : free };
}

/** Returns the explanation of a crash, by the session that the client had. */
function explainCrash({ entry, before, after }: Moment): Explanation {
    const { cell, process } = partsOf(entry.event);
    const isFront = process === "front";
    const isLive = !isFront && hasLiveSession(after, before, cell);
    return {
        text: sentences(
            "The process has lost its memory.",
            isFront && "If its submit has arrived, the request stays in its lane.",
            isLive && "Its session lives on at the service until it has been silent for duration and grace.",
        ),
    };
}

/** Returns true if the session that the cell's client had before is live afterwards. */
function hasLiveSession(after: View, before: View, cell: number | undefined): boolean {
    const number = before.cells.find((other) => other.cell === cell)?.client?.session;
    return after.locks?.sessions.some((session) => session.cell === cell && session.number === number && session.status === "Live") ?? false;
}

/** Returns the explanation of an event in a world of locks, or `undefined` if it has none. */
export function explainLock(moment: Moment): Explanation | undefined {
    return underRules(explainQueue(moment) ?? explainLockEvent(moment) ?? ordinary(moment, true), moment.rulesOff);
}

function explainLockEvent(moment: Moment): Explanation | undefined {
    const { entry } = moment;
    const { kind } = partsOf(entry.event);
    if (kind === "crash") return explainCrash(moment);
    if (kind === "resume") return explainResume(moment);
    if (kind === "evict") return operatorAct(moment, "The evicted client may not know it yet, so its lock is withheld until its time is over.", "The evicted client holds no lock.");
    if (kind === "force") {
        return operatorAct(moment, "The former holder may still work, so the lock is withheld until its time is over. It learns of this by its next renewal at the earliest; until then, the resource refuses it by its fence.", "Nobody can still work under the old fence, so the lock is not withheld.");
    }
    if (kind === "start_service") return START;
    if (kind === "jump_clock") return JUMP;
    if (kind === "tick" && entry.says.includes("proposes")) return PROPOSAL;
    if (kind === "drop" && entry.says.includes("renew session")) return LOST_RENEWAL;
    if (entry.says.includes("has seen a newer fence")) return LATE_WRITE;
    const isPassedOn = entry.fired.some(({ machine, event }) => machine === "lock" && event.endsWith("HandOver"));
    if (entry.fired.some(({ machine, event }) => machine === "session" && event === "Silence")) return expiry(moment, isPassedOn);
    if (isPassedOn) return { text: HANDED_OVER };
    const text = EVENTS[kind];
    return text === undefined ? undefined : { text };
}

// The page's texts about queues.
import { partsOf } from "./events";
import type { Explanation } from "./explanations";
import type { Moment } from "./moment";
import type { FrontView, WorkKind } from "./protocol";

/** The introduction that the page shows at the start of a scenario of a queue. */
export const QUEUE_INTRODUCTION =
    "Fronts submit requests about sheets: the create of a sheet, and updates. The requests of one sheet are its lane, which one worker at a time takes. Waiting updates are taken as one. A worker that dies gives its requests back. Crash a client, pause it, or submit a poison, and watch.";

/** The hint at the start of the world of a queue without random events. */
export const FIRST_QUEUE_EVENT = "Click the head of a program and submit a request. Then play, or step: a client takes the request, and works on it.";

const KINDS: Record<WorkKind, string> = { create: "create", update: "update", poison: "poison" };

/** Returns the kind of a request as a word. */
export function kindText(kind: WorkKind): string {
    return KINDS[kind];
}

/** Returns the state of a front as a verb phrase without a subject. */
export function frontText({ submits, is_waiting, told }: FrontView): string {
    if (submits) return is_waiting ? `waits for the answer to its submit: ${submits}` : `submits ${submits}`;
    if (told === undefined) return "is idle";
    if (typeof told === "object") return `is idle: the sheet has a create already, request ${told.known}`;
    const results = { submitted: "its request is in its lane", unanswered: "it gave up, because the service did not answer", died: "it died" };
    return `is idle: ${results[told]}`;
}

const EVENTS: Record<string, string> = {
    submit: "The front sends the request. A worker that waits is woken by the same write that adds it.",
    serve: "The client opens a session if it has none, and asks for work. If no lane is ready, its call waits.",
    give_back: "A worker that stops gives its requests back. Once the service knows, they are new again, and the attempt does not count.",
    fail_work: "The worker tells that its work has failed. Unless it was their last attempt, the requests keep their place, and are tried again after a while.",
};

const DEATH: Explanation = {
    text: "The process is gone before it could settle. The attempt was counted when the request was taken, so this cannot go on for ever.",
    rule: "early_count",
};

/** Returns the explanation of a settle that comes too late. */
function lateSettle({ after, message }: Moment): Explanation {
    const cell = message !== undefined && typeof message.from === "object" && "process" in message.from ? message.from.process[0] : undefined;
    const isTaken = after.locks?.lanes?.some(({ holder }) => holder !== undefined && holder !== cell) ?? false;
    const next = isTaken ? "and another one has the lane. What it has settled meanwhile, or will, is its own." : "so it settles nothing any more. Whoever has the lane next has a larger fence.";
    return { text: `The hold of this worker has ended, ${next}`, rule: "settle_fence" };
}

const TAKEN_AS_ONE: Explanation = {
    text: "All updates that wait are one batch: one piece of work, and one settle. What comes meanwhile is the next batch.",
};

const CREATE_TAKEN: Explanation = {
    text: "A create is taken alone. The updates behind it wait in the same lane, so no other worker finds them.",
    rule: "shared_lane",
};

const TAKEN_BACK: Explanation = {
    text: "The worker is gone or sleeps: it has been silent for too long. So its requests are new again. They keep their place in the lane, and the next worker has a larger fence.",
};

const LAST_ATTEMPT: Explanation = {
    text: "The worker has been silent for too long, and this was the last attempt of a request. It is in error now, so it holds up no other.",
};

const SECOND_CREATE: Explanation = {
    text: "A sheet is created once. The second front learns which request does it.",
};

/** Returns the explanation of an event of a queue, or `undefined` if it needs none. */
export function explainQueue(moment: Moment): Explanation | undefined {
    const { says, fired, event: happened } = moment.entry;
    if (says.includes("dies of it")) return DEATH;
    if (says.includes("has a create already")) return SECOND_CREATE;
    if (/: (?:complete|fail|give back) .*answers: refused/u.test(says)) return lateSettle(moment);
    if (fired.some(({ machine, event }) => machine === "request" && event === "SilenceLast")) return LAST_ATTEMPT;
    if (fired.some(({ machine, event }) => machine === "request" && event === "Silence")) return TAKEN_BACK;
    if (/taken: \d+ updates/u.test(says)) return TAKEN_AS_ONE;
    if (says.includes("taken: the create")) return CREATE_TAKEN;
    const text = EVENTS[partsOf(happened).kind];
    return text === undefined ? undefined : { text };
}

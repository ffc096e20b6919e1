// The arguments of each function and method of `leasehold/queues`: the names that the types have, in their
// order, with their kinds.
import { UINT32, flag, invalidArgument, list, object, optional, word } from "../arguments.js";
import { CALLBACK, CONTENT, COUNT, ID, NAME, SECONDS, SIGNAL, options, settings } from "../client/kinds.js";

const REQUEST = object({
    key: NAME,
    body: optional(CONTENT),
    kind: optional(word("create", "update")),
    priority: optional(UINT32),
    delay: optional(SECONDS),
    maxAttempts: optional(COUNT),
    id: optional(ID),
});

const TAKE = { credit: COUNT, maxRequests: COUNT, signal: SIGNAL, stopSeconds: SECONDS, onReconnect: CALLBACK };

/** The key of a lane. On the wire an empty key stands for all lanes, which a caller with an empty variable does not mean. */
function LANE_KEY(value, path) {
    if (value !== "") return NAME(value, path);
    throw invalidArgument(`\`${path}\` is empty: pass the key of a lane, or none for all lanes`);
}

const LANE = options({ key: LANE_KEY });
const REQUEST_LISTS = word("waiting", "taken", "settled");
const LANE_LISTS = word("ready", "delayed", "taken", "paused");

export const CONNECT = { settings: settings() };
export const FAIL = { options: options({ retryAfter: SECONDS }) };
export const NOTE_PROGRESS = { progress: CONTENT };
export const METHODS = {
    submit: { queue: NAME, request: REQUEST },
    submitAll: { queue: NAME, requests: list(REQUEST) },
    take: { queue: NAME, options: options(TAKE) },
    work: { queue: NAME, options: options({ ...TAKE, onError: CALLBACK }), run: CALLBACK },
    getRequest: { id: ID, options: options({ withBody: flag }) },
    listRequests: { queue: NAME, list: REQUEST_LISTS, options: LANE },
    listLanes: { queue: NAME, list: LANE_LISTS },
    getQueue: { queue: NAME },
    pause: { queue: NAME, options: LANE },
    resume: { queue: NAME, options: LANE },
    setLimit: { queue: NAME, limit: optional(COUNT) },
    withdraw: { id: ID },
    resubmit: { id: ID },
};

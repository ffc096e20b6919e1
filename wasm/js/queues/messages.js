// Conversions between the values of callers and the messages of queues.
import { date, idBytes, micros, timedId, uuid, word } from "../client/values.js";

/** Returns the message for a request to submit. Its id is the same however often the call is repeated (Q09). */
export function newRequest({ key, body = "", kind = "update", priority = 0, delay = 0, maxAttempts = 25, id }) {
    return {
        requestId: id === undefined ? timedId() : idBytes(id),
        key,
        kind: kind.toUpperCase(),
        priority,
        delayMicros: String(micros("delay", delay)),
        maxAttempts,
        body: Buffer.from(body),
    };
}

/** Returns the reply to one request of a submit. */
export function submitted({ requestId, isNew }) {
    return { id: uuid(requestId), isNew };
}

/** Returns the part of a request that names a lane, or all lanes of a queue if there is no key. */
export function lanePath(queue, key = "") {
    return { queue, key };
}

/** Returns a state; undefined for that of a request that the server does not have. */
export function stateOf(state) {
    return state === "REQUEST_STATE_UNSPECIFIED" ? undefined : word(state);
}

/** Returns a request as the server stores it. */
export function requestStatus(request) {
    const { requestId, queue, key, number, kind, priority, attempts, maxAttempts, bodyBytes } = request;
    return {
        id: uuid(requestId),
        queue,
        key,
        number: BigInt(number),
        kind: word(kind),
        priority,
        state: stateOf(request.state),
        notBefore: date(request.notBefore),
        attempts,
        maxAttempts,
        bodyBytes,
        submittedAt: date(request.submittedAt),
        updatedAt: date(request.updatedAt),
    };
}

/** Returns a request with its body, which no text of the object shows (Q22). */
export function withBody(status, body) {
    return Object.defineProperty(status, "body", { value: Uint8Array.from(body) });
}

/** Returns a lane as the server stores it. */
export function laneStatus({ queue, key, isPaused, waiting, notBefore, sessionId, fence, takenAt, updatedAt }) {
    return {
        queue,
        key,
        isPaused,
        waiting,
        notBefore: date(notBefore),
        sessionId: uuid(sessionId),
        fence: fence === "0" ? undefined : BigInt(fence),
        takenAt: date(takenAt),
        updatedAt: date(updatedAt),
    };
}

// Conversions between the values of callers and the messages of locks.
import { date, uuid, word } from "../client/values.js";

/** Returns the message for the name of a lock, or of a slot of it. No error contains a part of it (K24). */
export function lockPath(namespace, key, slot = 0) {
    return { namespace, key, slot };
}

/** Returns the part of an acquire that names a lock, and says how the ask shares it. */
export function wantedLock({ namespace, key, shared = false, permits = 0 }) {
    return { lock: lockPath(namespace, key), shared, permits };
}

/** Returns a rest of a wait, in milliseconds, as the microseconds of a request. */
export function waitMicros(millis, shortest) {
    // The server refuses waits of more than a day, so none that it allows is cut.
    return String(Math.max(Math.round(Math.min(millis, Number.MAX_SAFE_INTEGER / 1e3) * 1e3), shortest));
}

/** Returns the part of a release that says how the work ended (K03). */
export function ending({ outcome = "succeeded", value = "" }) {
    return { failed: outcome === "failed", value: Buffer.from(value) };
}

/** Returns a lock as the server stores it. */
export function lockStatus({ path, state, fence, sessionId, updatedAt, waiting, last, obituary, takenSlots, permits }) {
    return {
        ...path,
        state: word(state),
        fence: fence === "0" ? undefined : BigInt(fence),
        sessionId: uuid(sessionId),
        updatedAt: date(updatedAt),
        waiting,
        last: last ? endedGrant(last) : undefined,
        obituary: obituary ? obituaryOf(obituary) : undefined,
        takenSlots,
        permits,
    };
}

/** Returns the grant whose cleanup is due. */
export function obituaryOf({ fence, end, endedAt, attempts, mostAttempts }) {
    return { fence: BigInt(fence), end: word(end), endedAt: date(endedAt), attempts, mostAttempts };
}

function endedGrant({ fence, end, value, endedAt }) {
    return { fence: BigInt(fence), end: word(end), value: Uint8Array.from(value), endedAt: date(endedAt) };
}

// Conversions between the values of callers and the messages of sessions and locks.
import { randomUUID } from "node:crypto";

import { LeaseholdError } from "../error.js";
import { misconfigured } from "./error.js";

const MAX_UINT64 = 2n ** 64n - 1n;
const MAX_UINT32 = 2 ** 32 - 1;
/** Half of a surrogate pair, which Protobuf cannot carry. */
const HALF_PAIR = /\p{Surrogate}/u;

/** Returns the bytes of a random UUID. */
export function randomId() {
    return Buffer.from(randomUUID().replaceAll("-", ""), "hex");
}

/** Returns the message for the name of a lock, or of a slot of it. No error contains a part of it (K24). */
export function lockPath(namespace, key, slot = 0) {
    return { namespace: text("namespace", namespace), key: text("key", key), slot: whole("slot", slot, 0) };
}

/** Returns the part of an acquire that names a lock, and says how the ask shares it. */
export function wantedLock({ namespace, key, shared, permits }) {
    return { lock: lockPath(namespace, key), ...shareOf({ shared, permits }) };
}

/** Returns this part for each lock of several. The server checks their number. */
export function wantedLocks(wanted) {
    if (!Array.isArray(wanted)) throw new TypeError("`wanted` is no array: pass one of locks");
    return wanted.map((each) => wantedLock({ ...each }));
}

/** Returns the part of an acquire that says how the ask shares its lock (K13). */
function shareOf({ shared = false, permits }) {
    if (permits === undefined) return { shared: Boolean(shared), permits: 0 };
    if (shared) throw misconfigured("both `shared` and `permits` are given: pass one of them");
    return { shared: false, permits: whole("permits", permits, 1) };
}

/** Returns a number that the contract can carry. The server refuses smaller ones by its own limits. */
function whole(name, number, smallest) {
    if (Number.isInteger(number) && number >= smallest && number <= MAX_UINT32) return number;
    throw misconfigured(`\`${name}\` is no whole number from ${smallest} on: pass one`);
}

/** Returns a text that Protobuf can carry. */
export function text(name, value) {
    if (typeof value !== "string") throw new TypeError(`\`${name}\` is a \`${typeof value}\`, not a string: pass a string`);
    if (!HALF_PAIR.test(value)) return value;
    throw new LeaseholdError("INVALID_UPDATE", `\`${name}\` has half of a surrogate pair: pass valid Unicode`);
}

/** Returns a duration in microseconds. The server checks its bounds. */
export function micros(name, seconds) {
    if (!(Number.isFinite(seconds) && seconds >= 0)) {
        throw misconfigured(`\`${name}\` is no finite number of seconds: pass one that is not negative`);
    }
    const micros = BigInt(Math.round(seconds * 1e6));
    return micros < MAX_UINT64 ? micros : MAX_UINT64;
}

/** Returns a rest of a wait, in milliseconds, as the microseconds of a request. */
export function waitMicros(millis, shortest) {
    // The server refuses waits of more than a day, so none that it allows is cut.
    return String(Math.max(Math.round(Math.min(millis, Number.MAX_SAFE_INTEGER / 1e3) * 1e3), shortest));
}

/** Returns the message for a fence. */
export function fenceNumber(fence) {
    if (typeof fence === "bigint" && fence >= 0n && fence <= MAX_UINT64) return String(fence);
    throw misconfigured("`fence` is no bigint of 64 bits: pass the `fence` of a lock");
}

/** Returns the part of a release that says how the work ended (K03). */
export function ending({ outcome = "succeeded", value = "" }) {
    if (outcome !== "succeeded" && outcome !== "failed") {
        throw misconfigured("`outcome` is unknown: pass `succeeded` or `failed`");
    }
    if (typeof value !== "string" && !(value instanceof Uint8Array)) {
        throw new TypeError(`\`value\` is a \`${typeof value}\`, not a string or a Uint8Array: pass one of these`);
    }
    return { failed: outcome === "failed", value: Buffer.from(value) };
}

/** Returns the member of the wire's enumeration for a decision about an orphaned lock. */
export function resolutionOf(resolution) {
    if (resolution === "retry" || resolution === "cleaned") return resolution.toUpperCase();
    throw misconfigured("the resolution is unknown: pass `retry` or `cleaned`");
}

/** Returns a lock as the server stores it. */
export function lockStatus({ path, state, fence, sessionId, updatedAt, waiting, last, obituary, takenSlots, permits }) {
    return {
        ...path,
        state: state.toLowerCase().replace("_", "-"),
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
    return { fence: BigInt(fence), end: end.toLowerCase(), endedAt: date(endedAt), attempts, mostAttempts };
}

function endedGrant({ fence, end, value, endedAt }) {
    return { fence: BigInt(fence), end: end.toLowerCase(), value: Uint8Array.from(value), endedAt: date(endedAt) };
}

function uuid(bytes) {
    const [, ...groups] = /^(.{8})(.{4})(.{4})(.{4})(.{12})$/u.exec(bytes.toString("hex")) ?? [];
    return groups.length > 0 ? groups.join("-") : undefined;
}

function date(timestamp) {
    return timestamp ? new Date(Number(timestamp.seconds) * 1e3 + Math.floor(timestamp.nanos / 1e6)) : undefined;
}

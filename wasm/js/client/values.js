// Conversions between the values of callers and the values of messages.
import { randomUUID } from "node:crypto";

import { LeaseholdError } from "../error.js";
import { misconfigured } from "./error.js";

const MAX_UINT64 = 2n ** 64n - 1n;
const MAX_UINT32 = 2 ** 32 - 1;
/** Half of a surrogate pair, which Protobuf cannot carry. */
const HALF_PAIR = /\p{Surrogate}/u;

export const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/iu;

/** Returns the bytes of a random UUID. */
export function randomId() {
    return idBytes("id", randomUUID());
}

/**
 * Returns the bytes of a UUIDv7: the milliseconds since 1970, then the rest of a random id (RFC 9562,
 * section 5.7). So a store finds requests of one time side by side, and forgets them together.
 */
export function timedId() {
    const id = randomId();
    id.writeUIntBE(Date.now(), 0, 6);
    id[6] = (id[6] & 0x0f) | 0x70;
    return id;
}

/** Returns the bytes of a UUID. */
export function idBytes(name, id) {
    if (typeof id === "string" && UUID.test(id)) return Buffer.from(id.replaceAll("-", ""), "hex");
    throw misconfigured(`\`${name}\` is not a UUID: pass one as a string`);
}

/** Returns a number that the contract can carry. The server refuses smaller ones by its own limits. */
export function whole(name, number, smallest) {
    if (Number.isInteger(number) && number >= smallest && number <= MAX_UINT32) return number;
    throw misconfigured(`\`${name}\` is no whole number from ${smallest} on: pass one`);
}

/** Returns a text that Protobuf can carry. */
export function text(name, value) {
    if (typeof value !== "string") throw new TypeError(`\`${name}\` is a \`${typeof value}\`, not a string: pass a string`);
    if (!HALF_PAIR.test(value)) return value;
    throw new LeaseholdError("INVALID_UPDATE", `\`${name}\` has half of a surrogate pair: pass valid Unicode`);
}

/** Returns the bytes of a value; those of a text are UTF-8. */
export function bytes(name, value) {
    if (typeof value === "string" || value instanceof Uint8Array) return Buffer.from(value);
    throw new TypeError(`\`${name}\` is a \`${typeof value}\`, not a string or a Uint8Array: pass one of these`);
}

/** Returns the member of an enumeration of the wire for a word. */
export function member(name, word, words) {
    if (words.includes(word)) return word.toUpperCase();
    throw misconfigured(`\`${name}\` is unknown: pass one of ${words.map((each) => `\`${each}\``).join(", ")}`);
}

/** Returns the word for a member of an enumeration of the wire. */
export function word(member) {
    return member.toLowerCase().replace("_", "-");
}

/** Returns a duration in microseconds. The server checks its bounds. */
export function micros(name, seconds) {
    if (!(Number.isFinite(seconds) && seconds >= 0)) {
        throw misconfigured(`\`${name}\` is no finite number of seconds: pass one that is not negative`);
    }
    const micros = BigInt(Math.round(seconds * 1e6));
    return micros < MAX_UINT64 ? micros : MAX_UINT64;
}

/** Returns the message for a fence. */
export function fenceNumber(fence) {
    if (typeof fence === "bigint" && fence >= 0n && fence <= MAX_UINT64) return String(fence);
    throw misconfigured("`fence` is no bigint of 64 bits: pass the `fence` of a lock");
}

/** Returns the text of a UUID; undefined if there are no bytes. */
export function uuid(bytes) {
    const [, ...groups] = /^(.{8})(.{4})(.{4})(.{4})(.{12})$/u.exec(bytes.toString("hex")) ?? [];
    return groups.length > 0 ? groups.join("-") : undefined;
}

/** Returns the date of a timestamp; undefined if there is none. */
export function date(timestamp) {
    return timestamp ? new Date(Number(timestamp.seconds) * 1e3 + Math.floor(timestamp.nanos / 1e6)) : undefined;
}

// Conversions between the values of callers and the values of messages.
import { randomUUID } from "node:crypto";

import { misconfigured } from "./error.js";

const MAX_UINT64 = 2n ** 64n - 1n;

export const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/iu;

/** Returns the bytes of a random UUID. */
export function randomId() {
    return idBytes(randomUUID());
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
export function idBytes(id) {
    return Buffer.from(id.replaceAll("-", ""), "hex");
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

/** Returns the text of a UUID; undefined if there are no bytes. */
export function uuid(bytes) {
    const [, ...groups] = /^(.{8})(.{4})(.{4})(.{4})(.{12})$/u.exec(bytes.toString("hex")) ?? [];
    return groups.length > 0 ? groups.join("-") : undefined;
}

/** Returns the date of a timestamp; undefined if there is none. */
export function date(timestamp) {
    return timestamp ? new Date(Number(timestamp.seconds) * 1e3 + Math.floor(timestamp.nanos / 1e6)) : undefined;
}

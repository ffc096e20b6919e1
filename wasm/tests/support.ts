import assert from "node:assert/strict";

import { LeaseholdError, type Claim } from "leasehold";

export const USERNAMES = 4;
export const USER = 4;
export const USERS = 1;

/**
 * The current time of the tests, in microseconds since 1970. `LONG_AGO` is more than three years
 * earlier.
 */
export const NOW = 1_800_000_000_000_000n;
export const LONG_AGO = 1_700_000_000_000_000n;

/**
 * Calls a function and returns the `LeaseholdError` that it throws. Fails if it returns or throws
 * another error.
 */
export function thrownBy(call: () => unknown): LeaseholdError {
    try {
        call();
    } catch (error) {
        assert.ok(error instanceof LeaseholdError, String(error));
        return error;
    }
    assert.fail("the call returned instead of throwing");
}

/** Returns the source id of an integer primary key: 8 bytes, big-endian. */
export function sourceId(key: bigint): Uint8Array {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setBigUint64(0, key);
    return bytes;
}

/** Returns a claim of the username `name` by the user whose row has the primary key `key`. */
export function username(name: string, key = 1n): Claim {
    return {
        bucket_type: USERNAMES,
        bucket_value: name,
        subject: { subject_type: USER, id: key },
        source: { source_type: USERS, id: sourceId(key) },
    };
}

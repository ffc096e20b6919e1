import assert from "node:assert/strict";

import { LeaseholdError, type Claim } from "leasehold";

export const USERNAMES = 4;
export const USER = 4;
export const USERS = 1;

/** Microseconds since 1970: a time, and one that is long before it. */
export const NOW = 1_800_000_000_000_000n;
export const LONG_AGO = 1_700_000_000_000_000n;

/** What a call throws, which is one of ours. */
export function thrownBy(call: () => unknown): LeaseholdError {
    try {
        call();
    } catch (error) {
        assert.ok(error instanceof LeaseholdError, String(error));
        return error;
    }
    assert.fail("nothing was thrown");
}

/** A source id as the engine has it. */
export function sourceId(key: bigint): Uint8Array {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setBigUint64(0, key);
    return bytes;
}

/** A user's claim to a name. */
export function username(name: string, key = 1n): Claim {
    return {
        bucket_type: USERNAMES,
        bucket_value: name,
        subject: { subject_type: USER, id: key },
        source: { source_type: USERS, id: sourceId(key) },
    };
}

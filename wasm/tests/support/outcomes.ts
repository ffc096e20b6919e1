// The outcomes that tests of queues wait for: errors of calls that must fail, the end of an iteration, an abort.
import assert from "node:assert/strict";
import { once } from "node:events";

import { LeaseholdError } from "leasehold/queues";

/** Returns the error of a call that must fail. */
export async function rejection(call: Promise<unknown>): Promise<LeaseholdError> {
    const error: unknown = await call.then(() => assert.fail("the call did not fail"), (error: unknown) => error);
    assert.ok(error instanceof LeaseholdError, String(error));
    return error;
}

/** Returns the code of the error of a call that must fail. */
export async function code(call: Promise<unknown>): Promise<string> {
    return (await rejection(call)).code;
}

/** Waits until a signal is aborted, and returns its reason. */
export async function abortOf(signal: AbortSignal): Promise<unknown> {
    if (!signal.aborted) await once(signal, "abort");
    return signal.reason;
}

/** Returns all items of an iteration. */
export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
    const found: T[] = [];
    for await (const item of items) found.push(item);
    return found;
}

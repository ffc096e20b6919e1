// Locks that several processes share, and permits, on the real server.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, describe, it } from "node:test";

import { type HeldLock, LeaseholdError, type Locks, type LockStatus } from "leasehold/locks";

import { ClaimsServer } from "./support/claims_server.js";

const NAMESPACE = "user.update";
/** Terms that never pass in a test. */
const LONG = { sessionDurationSeconds: 3600, sessionGraceSeconds: 60 };
/** A wait that no test reaches. */
const PATIENT = 60;
/** The longest time of the tests of one `describe`, and of a wait within one of them. */
const BOUND = { timeout: 600_000 };
const REAPED = '[[locks.reaped]]\nnamespaces = ["reaped"]\nattempts = 2\n';

const server = new ClaimsServer(undefined, REAPED);
before(() => server.start());
after(() => server.end());

async function rejection(call: Promise<unknown>): Promise<LeaseholdError> {
    const error: unknown = await call.then(() => assert.fail("the call did not fail"), (error: unknown) => error);
    assert.ok(error instanceof LeaseholdError, String(error));
    return error;
}

async function code(call: Promise<unknown>): Promise<string> {
    return (await rejection(call)).code;
}

/** Reads a lock until a number of asks wait. The time limit of the test ends it. */
async function waiting(locks: Locks, key: string, count: number): Promise<void> {
    while ((await locks.get(NAMESPACE, key)).waiting !== count);
}

async function loss(lock: HeldLock): Promise<LeaseholdError> {
    if (!lock.signal.aborted) await once(lock.signal, "abort", { signal: AbortSignal.timeout(BOUND.timeout) });
    return lock.signal.reason;
}

describe("a lock that readers share", BOUND, () => {
    it("K13: is held by several at once, and starves nobody who wants it alone", async (test) => {
        const [locks, other] = [server.connect(test, LONG), server.connect(test, LONG)];
        const readers = [await locks.acquire(NAMESPACE, "s", { shared: true }), await other.acquire(NAMESPACE, "s", { shared: true })];
        assert.deepEqual(readers.map(({ slot }) => slot), [1, 2]);
        const { state, slot, fence, takenSlots, permits } = await locks.get(NAMESPACE, "s");
        assert.deepEqual([state, slot, fence, takenSlots, permits], ["shared", 0, undefined, 2, 0]);

        const order: string[] = [];
        const writer = locks.acquire(NAMESPACE, "s", { wait: PATIENT });
        void writer.then(() => order.push("writer"));
        await waiting(locks, "s", 1);
        // A slot is free, but a later reader waits behind the writer.
        assert.equal(await code(other.acquire(NAMESPACE, "s", { shared: true })), "LOCK_HELD");
        const later = other.acquire(NAMESPACE, "s", { wait: PATIENT, shared: true });
        void later.then(() => order.push("reader"));
        await waiting(locks, "s", 2);
        await readers[0]!.release();
        const half = await locks.get(NAMESPACE, "s");
        assert.deepEqual([half.waiting, half.takenSlots, order], [2, 1, []]);
        await readers[1]!.release();
        const alone = await writer;
        assert.deepEqual([alone.slot, (await locks.get(NAMESPACE, "s")).state, order], [0, "held", ["writer"]]);
        await alone.release();
        const reader = await later;
        assert.deepEqual([reader.slot, reader.fence > alone.fence], [1, true]);
    });
});

describe("a permit", BOUND, () => {
    it("K13: is held by one process at a time, under fences of its own", async (test) => {
        const sides = [server.connect(test, LONG), server.connect(test, LONG)];
        const atWork = new Set<number>();
        const grants = new Map<number, bigint[]>();
        const work = async (locks: Locks): Promise<void> => {
            for (let round = 0; round < 10; round += 1) {
                await locks.lock(NAMESPACE, "p", { permits: 2, wait: PATIENT }, async ({ slot, fence }) => {
                    assert.ok(!atWork.has(slot), `two hold permit ${slot}`);
                    atWork.add(slot);
                    grants.set(slot, [...(grants.get(slot) ?? []), fence]);
                    await locks.get(NAMESPACE, "p");
                    atWork.delete(slot);
                });
            }
        };
        await Promise.all([...sides, ...sides, ...sides].map(work));
        assert.deepEqual([...grants.keys()].sort(), [1, 2]);
        for (const fences of grants.values()) {
            assert.ok(fences.every((fence, at) => at === 0 || fence > fences[at - 1]!), String(fences));
        }
        assert.equal([...grants.values()].flat().length, 60);
        const { state, takenSlots, waiting } = await sides[0]!.get(NAMESPACE, "p");
        assert.deepEqual([state, takenSlots, waiting], ["free", 0, 0]);
    });

    it("K13: waits for those who share the lock in another way", async (test) => {
        const locks = server.connect(test, LONG);
        await locks.lock(NAMESPACE, "n", { permits: 3 }, async ({ slot }) => {
            const { takenSlots, permits } = await locks.get(NAMESPACE, "n");
            assert.deepEqual([slot, takenSlots, permits], [1, 1, 3]);
            for (const options of [{ permits: 2 }, { shared: true }, {}]) {
                assert.equal(await code(locks.acquire(NAMESPACE, "n", options)), "LOCK_HELD");
            }
        });
    });

    it("K13 K16: is listed after its lock, which keeps the last end", async (test) => {
        const locks = server.connect(test, LONG);
        const held = [await locks.acquire("listed", "p", { permits: 2 }), await locks.acquire("listed", "p", { permits: 2 })];
        const found: Pick<LockStatus, "slot" | "state" | "fence">[] = [];
        for await (const { slot, state, fence } of locks.list("listed")) found.push({ slot, state, fence });
        const slots = held.map(({ slot, fence }) => ({ slot, state: "held", fence }));
        assert.deepEqual(found, [{ slot: 0, state: "shared", fence: undefined }, ...slots]);
        await held[0]!.release({ outcome: "failed", value: "half" });
        const { last } = await locks.get("listed", "p");
        assert.deepEqual([last?.fence, last?.end, new TextDecoder().decode(last?.value)], [held[0]!.fence, "failed", "half"]);
    });

    it("K20: is taken alone by an operator, and only its holder is told", async (test) => {
        const [locks, other] = [server.connect(test, LONG), server.connect(test, LONG)];
        const held = await locks.acquire(NAMESPACE, "f", { permits: 2 });
        const [kept, kin] = [await other.acquire(NAMESPACE, "f", { permits: 2 }), await locks.acquire(NAMESPACE, "kin", { permits: 2 })];
        assert.equal(await code(other.force(NAMESPACE, "f", held.fence)), "FENCE_PASSED");
        await other.force(NAMESPACE, "f", held.fence, { slot: held.slot });
        assert.equal((await loss(held)).code, "LOCK_LOST");
        assert.deepEqual([held.isHeld, kept.isHeld, kin.isHeld, kept.signal.aborted], [false, true, true, false]);
        assert.equal(await code(held.release()), "LOCK_LOST");
        const { slot, state, fence } = await other.get(NAMESPACE, "f", { slot: held.slot });
        assert.deepEqual([slot, state, fence], [held.slot, "withheld", held.fence]);
        assert.equal(await kept.release(), true);
        await other.force(NAMESPACE, "f", held.fence, { slot: held.slot, atOnce: true });
        assert.equal((await other.get(NAMESPACE, "f")).state, "free");
    });

    it("K09 K13: passes on when its holder's session is closed, and the others live on", async (test) => {
        const [other, dying] = [server.connect(test, LONG), server.connect(test, LONG)];
        const lost = await dying.acquire(NAMESPACE, "d", { permits: 2 });
        const kept = await other.acquire(NAMESPACE, "d", { permits: 2 });
        const later = other.acquire(NAMESPACE, "d", { permits: 2, wait: PATIENT });
        await waiting(other, "d", 1);
        await dying.close();
        const next = await later;
        assert.deepEqual([next.slot, next.fence > lost.fence, kept.isHeld], [lost.slot, true, true]);
        assert.equal((await other.get(NAMESPACE, "d", { slot: kept.slot })).fence, kept.fence);
    });

    it("K13 K17: is cleaned up under its number after its holder's death", async (test) => {
        const locks = server.connect(test, LONG);
        await locks.acquire("reaped", "p", { permits: 2 });
        const die = async (): Promise<HeldLock> => {
            const dying = server.connect(test, LONG);
            const held = await dying.acquire("reaped", "p", { permits: 2 });
            await dying.close();
            return held;
        };
        const first = await die();
        assert.equal((await locks.get("reaped", "p", { slot: first.slot })).state, "orphaned");
        const seen = await locks.reap("reaped", { wait: PATIENT }, ({ slot, formerFence }) => [slot, formerFence]);
        assert.deepEqual(seen, [first.slot, first.fence]);
        const second = await die();
        assert.equal(await code(locks.resolveOrphan("reaped", "p", second.fence, "cleaned")), "FENCE_PASSED");
        await locks.resolveOrphan("reaped", "p", second.fence, "cleaned", { slot: second.slot });
        assert.equal((await locks.get("reaped", "p")).takenSlots, 1);
    });

    it("K21 K24: is refused in a wrong number, without the key", async (test) => {
        const locks = server.connect(test, LONG);
        for (const wrong of [{ shared: true, permits: 2 }, { permits: 0 }, { permits: -1 }, { permits: 1.5 }, { permits: 2 ** 32 }]) {
            const { code, message } = await rejection(locks.acquire(NAMESPACE, "secret", wrong));
            assert.deepEqual([code, message.includes("secret"), /permits`/u.test(message)], ["INVALID_ARGUMENT", false, true]);
        }
        const { code: refused, message } = await rejection(locks.acquire(NAMESPACE, "secret", { permits: 257 }));
        assert.deepEqual([refused, message.includes("secret")], ["LIMIT_EXCEEDED", false]);
        assert.equal(await code(locks.force(NAMESPACE, "k", 1n, { slot: 257 })), "LIMIT_EXCEEDED");
        assert.equal(await code(locks.force(NAMESPACE, "k", 1n, { slot: -1 })), "INVALID_ARGUMENT");
        assert.equal((await locks.acquire(NAMESPACE, "most", { permits: 256 })).slot, 1);
    });
});

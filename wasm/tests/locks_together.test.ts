// Several locks that are acquired together, on the real server.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, describe, it } from "node:test";

import { type HeldLock, LeaseholdError, type Locks, type WantedLock } from "leasehold/locks";

import { ClaimsServer } from "./support/claims_server.js";

const NAMESPACE = "user.update";
/** Terms that never pass in a test. */
const LONG = { sessionDurationSeconds: 3600, sessionGraceSeconds: 60 };
/** A wait that no test reaches. */
const PATIENT = 60;
/** The longest time of the tests of one `describe`, and of a wait within one of them. */
const BOUND = { timeout: 600_000 };

const server = new ClaimsServer();
before(() => server.start());
after(() => server.end());

function named(...keys: string[]): WantedLock[] {
    return keys.map((key) => ({ namespace: NAMESPACE, key }));
}

async function rejection(call: Promise<unknown>): Promise<LeaseholdError> {
    const error: unknown = await call.then(() => assert.fail("the call did not fail"), (error: unknown) => error);
    assert.ok(error instanceof LeaseholdError, String(error));
    return error;
}

async function code(call: Promise<unknown>): Promise<string> {
    return (await rejection(call)).code;
}

/** Returns the state of each lock, the number of asks that wait for it, and its last end. */
async function states(locks: Locks, ...keys: string[]): Promise<unknown[]> {
    const found = await Promise.all(keys.map((key) => locks.get(NAMESPACE, key)));
    return found.map(({ state, waiting, last }) => [state, waiting, last?.end]);
}

/** Reads a lock until a number of asks wait. The time limit of the test ends it. */
async function waiting(locks: Locks, key: string, count: number): Promise<void> {
    while ((await locks.get(NAMESPACE, key)).waiting !== count);
}

async function aborted({ signal }: HeldLock): Promise<void> {
    if (!signal.aborted) await once(signal, "abort", { signal: AbortSignal.timeout(BOUND.timeout) });
}

/** Takes a lock from its holder for good, so that a later test finds it free. */
async function takeAtOnce(locks: Locks, key: string): Promise<void> {
    await locks.force(NAMESPACE, key, (await locks.get(NAMESPACE, key)).fence!, { atOnce: true });
}

describe("several locks", BOUND, () => {
    it("K14: are granted all or none", async (test) => {
        const [locks, other] = [server.connect(test, LONG), server.connect(test, LONG)];
        const held = await locks.acquire(NAMESPACE, "b");
        const isCalled = (): never => assert.fail("the function was called");
        // Without a wait, or when the wait is over, nothing is held.
        for (const wait of [0, 0.05]) {
            assert.equal(await code(other.lockAll(named("a", "b", "c"), { wait }, isCalled)), "LOCK_HELD");
            const found = (await states(locks, "a", "b", "c")) as unknown[][];
            assert.deepEqual(found.map(([state, waiting]) => [state, waiting]), [["free", 0], ["held", 0], ["free", 0]]);
        }
        const later = other.lockAll(named("c", "b", "a"), { wait: PATIENT }, async (all) => {
            const fences = await Promise.all(all.map(async ({ key }) => (await locks.get(NAMESPACE, key)).fence));
            assert.deepEqual(all.map(({ fence }) => fence), fences);
            return all.map(({ key, isHeld }) => [key, isHeld]);
        });
        await waiting(locks, "b", 1);
        // The locks that came first are kept for the caller.
        assert.equal(await code(locks.acquire(NAMESPACE, "a")), "LOCK_HELD");
        await held.release();
        assert.deepEqual(await later, [["c", true], ["b", true], ["a", true]]);
        assert.deepEqual(await states(locks, "a", "b", "c"), Array(3).fill(["free", 0, "succeeded"]));
    });

    it("K13 K14: are shared each in its own way", async (test) => {
        const locks = server.connect(test, LONG);
        const permit = await locks.acquire(NAMESPACE, "p", { permits: 3 });
        const wanted = [...named("e"), { namespace: NAMESPACE, key: "s", shared: true }, { namespace: NAMESPACE, key: "p", permits: 3 }];
        const all = await locks.acquireAll(wanted);
        assert.deepEqual(all.map(({ slot }) => slot), [0, 1, 2]);
        assert.deepEqual((await locks.get(NAMESPACE, "p")).takenSlots, 2);
        for (const lock of all) assert.equal(await lock.release(), true);
        assert.deepEqual([permit.isHeld, (await locks.get(NAMESPACE, "p")).takenSlots], [true, 1]);
    });

    it("K14: are granted to callers that name them in opposite orders", async (test) => {
        const sides = [server.connect(test, LONG), server.connect(test, LONG)];
        const orders = ["abc", "cba", "bca", "acb"].map((order) => named(...order));
        const atWork = new Set<bigint>();
        const work = async (wanted: WantedLock[], at: number): Promise<void> => {
            for (let round = 0; round < 10; round += 1) {
                await sides[at % 2]!.lockAll(wanted, { wait: PATIENT }, async (all) => {
                    assert.equal(atWork.size, 0);
                    for (const { fence } of all) atWork.add(fence);
                    await sides[0]!.get(NAMESPACE, "a");
                    atWork.clear();
                });
            }
        };
        await Promise.all(orders.map(work));
        const found = (await states(sides[0]!, "a", "b", "c")) as unknown[][];
        assert.deepEqual(found.map(([state, waiting]) => [state, waiting]), Array(3).fill(["free", 0]));
    });

    it("K03: are all released as failed if the function throws", async (test) => {
        const locks = server.connect(test, LONG);
        const mine = new RangeError("mine");
        const wanted = [{ namespace: NAMESPACE, key: "x" }, { namespace: NAMESPACE, key: "y" }] as const;
        const thrown = locks.lockAll(wanted, {}, async ([x, y]) => {
            await x.release({ value: "x is done" });
            assert.ok(y.isHeld);
            throw mine;
        });
        await assert.rejects(thrown, mine);
        // The release within the function stays the first one of its lock.
        assert.deepEqual(await states(locks, "x", "y"), [["free", 0, "succeeded"], ["free", 0, "failed"]]);
    });

    it("K09 K10: are left when the wait is aborted", async (test) => {
        const locks = server.connect(test, LONG);
        const held = await locks.acquire(NAMESPACE, "n");
        const abort = new AbortController();
        const late = locks.acquireAll(named("m", "n", "o"), { wait: PATIENT, signal: abort.signal });
        await waiting(locks, "n", 1);
        abort.abort("mine");
        assert.equal(await late.catch((reason: unknown) => reason), "mine");
        assert.deepEqual(await states(locks, "m", "n", "o"), [["free", 0, "left"], ["held", 0, undefined], ["free", 0, "left"]]);
        await assert.rejects(locks.acquireAll(named("m"), { signal: AbortSignal.abort() }), { name: "AbortError" });
        await held.release();
    });

    it("K20: tell the loss of one of them, and the others are released", async (test) => {
        const locks = server.connect(test, LONG);
        for (const at of [0, 1, 2]) {
            const kept = named("f", "g", "h").filter((_, position) => position !== at);
            const lossy = locks.lockAll(named("f", "g", "h"), {}, async (all) => {
                const lost = all[at]!;
                await locks.force(NAMESPACE, lost.key, lost.fence);
                await aborted(lost);
                assert.throws(() => lost.check(), { code: "LOCK_LOST" });
                assert.deepEqual(all.map(({ isHeld }) => isHeld), all.map((lock) => lock !== lost));
            });
            assert.equal(await code(lossy), "LOCK_LOST");
            const found = (await states(locks, ...kept.map(({ key }) => key))) as unknown[][];
            assert.deepEqual(found, Array(2).fill(["free", 0, "succeeded"]));
            await takeAtOnce(locks, ["f", "g", "h"][at]!);
        }
    });

    it("K20: are waited for no longer when one that was kept is taken", async (test) => {
        const [locks, other] = [server.connect(test, LONG), server.connect(test, LONG)];
        const held = await locks.acquire(NAMESPACE, "j");
        const late = code(other.acquireAll(named("i", "j"), { wait: PATIENT }));
        await waiting(locks, "j", 1);
        await takeAtOnce(locks, "i");
        assert.equal(await late, "LOCK_HELD");
        assert.deepEqual(await states(locks, "i", "j"), [["free", 0, "forced"], ["held", 0, undefined]]);
        await held.release();
    });

    it("K21 K24: are refused in a wrong number or form, without a key", async (test) => {
        const locks = server.connect(test, LONG);
        const wanted: [WantedLock[], string][] = [
            [[], "INVALID_UPDATE"],
            [named("secret", "secret"), "INVALID_UPDATE"],
            [named(...Array.from({ length: 17 }, (_, number) => `secret${number}`)), "LIMIT_EXCEEDED"],
            [[{ namespace: NAMESPACE, key: "secret", permits: 257 }], "LIMIT_EXCEEDED"],
            [[{ namespace: NAMESPACE, key: "secret", permits: 2, shared: true }], "INVALID_ARGUMENT"],
        ];
        for (const [each, expected] of wanted) {
            const { code, message } = await rejection(locks.acquireAll(each, { wait: 1 }));
            assert.deepEqual([code, message.includes("secret")], [expected, false]);
        }
        // @ts-expect-error: the types refuse it too.
        await assert.rejects(locks.acquireAll("secret"), { name: "LeaseholdError", code: "INVALID_ARGUMENT", message: /^(?!.*secret)/u });
        // @ts-expect-error: the types refuse it too.
        await assert.rejects(locks.acquireAll([undefined]), { code: "INVALID_ARGUMENT", message: "`wanted[0]` is missing: pass an object with `namespace`, `key`, `shared`, `permits`" });
    });
});

// A module of the package itself, which `exports` does not name.
const { Calls }: { Calls: { prototype: { stream: (...given: unknown[]) => unknown; run: (...given: unknown[]) => unknown } } } =
    await import(new URL("../../js/client/calls.js", import.meta.url).href);

describe("the wait for several locks", BOUND, () => {
    it("K14: begins with new asks if some of the former ones have left", async (test) => {
        const locks = server.connect(test, LONG);
        const { stream } = Calls.prototype;
        const asked: string[][] = [];
        const listen = test.mock.method(Calls.prototype, "stream", async function (this: typeof Calls.prototype, ...given: unknown[]) {
            const { sessionId, asks } = given[1] as { sessionId: Buffer; asks: { askId: Buffer }[] };
            asked.push(asks.map(({ askId }) => askId.toString("hex")));
            // The server knows the first ask only, as after a break during which the second one has left.
            if (asked.length === 1) await this.run("TryAcquireLock", { sessionId, ...asks[0] }, { millis: BOUND.timeout });
            return await stream.apply(this, given);
        });
        const all = await locks.acquireAll(named("r", "t"));
        listen.mock.restore();
        assert.deepEqual([asked.length, asked[0]!.some((id) => asked[1]!.includes(id))], [2, false]);
        assert.deepEqual(await states(locks, "r", "t"), [["held", 0, "left"], ["held", 0, undefined]]);
        for (const lock of all) await lock.release();
    });

    it("K22: goes on after a restart of the server", async (test) => {
        const own = await ClaimsServer.start(test);
        const [locks, other] = [own.connect(test, LONG), own.connect(test, LONG)];
        const held = await locks.acquire(NAMESPACE, "b");
        const later = other.acquireAll(named("a", "b"), { wait: PATIENT });
        await waiting(locks, "b", 1);
        const { fence } = await locks.get(NAMESPACE, "a");
        await own.kill();
        await own.start();
        await held.release();
        assert.equal((await later)[0]!.fence, fence);
    });
});

// Locks whose holders have died, and their cleanup, on the real server.
import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, it, type TestContext } from "node:test";

import { LeaseholdError, type Locks, type LocksSettings, type LockStatus } from "leasehold/locks";

import { ClaimsServer } from "./support/claims_server.js";
import { evict } from "./support/eviction.js";
import { Program } from "./support/programs.js";
import { TcpProxy } from "./support/tcp_proxy.js";

const NAMESPACE = "reaped.runner";
const SETTINGS = '[[locks.reaped]]\nnamespaces = ["reaped"]\nattempts = 2\n';
/** Terms that never pass in a test. */
const LONG = { sessionDurationSeconds: 3600, sessionGraceSeconds: 60 };
/** A wait that no test reaches. */
const PATIENT = { wait: 60 };
const BOUND = { timeout: 600_000 };

async function start(test: TestContext, settings: LocksSettings = LONG): Promise<{ server: ClaimsServer; locks: Locks }> {
    const server = await ClaimsServer.start(test, undefined, SETTINGS);
    return { server, locks: server.connect(test, settings) };
}

/** Lets a session end while it holds a lock. Returns the fence of its grant. */
async function dieHolding(test: TestContext, server: ClaimsServer, key: string): Promise<bigint> {
    const holder = server.connect(test, LONG);
    const { fence } = await holder.acquire(NAMESPACE, key);
    await holder.close();
    return fence;
}

async function rejection(call: Promise<unknown>): Promise<LeaseholdError> {
    const error: unknown = await call.then(() => assert.fail("the call did not fail"), (error: unknown) => error);
    assert.ok(error instanceof LeaseholdError, String(error));
    return error;
}

/** Reads a lock until a condition holds. The time limit of the test ends it. */
async function until(locks: Locks, condition: (lock: LockStatus) => boolean): Promise<void> {
    while (!condition(await locks.get(NAMESPACE, "7")));
}

/** Fails in a cleanup. Returns its former fence and its number. */
async function cleanBadly(locks: Locks): Promise<[bigint, number]> {
    const seen: [bigint, number][] = [];
    const mine = new RangeError("mine");
    const failed = locks.reap("reaped", PATIENT, ({ formerFence, attempt }) => {
        seen.push([formerFence, attempt]);
        throw mine;
    });
    await assert.rejects(failed, mine);
    return seen[0]!;
}

describe("a reaped lock", BOUND, () => {
    it("K17: passes on after its cleanup has succeeded", async (test) => {
        const { server, locks } = await start(test);
        const fence = await dieHolding(test, server, "7");
        const orphaned = await locks.get(NAMESPACE, "7");
        assert.deepEqual([orphaned.state, orphaned.fence], ["orphaned", undefined]);
        const { endedAt, ...obituary } = orphaned.obituary!;
        assert.deepEqual(obituary, { fence, end: "closed", attempts: 0, mostAttempts: 2 });
        assert.ok(endedAt instanceof Date);
        const listed = [];
        for await (const { key, state } of locks.list("reaped")) listed.push([key, state]);
        assert.deepEqual(listed, [["7", "orphaned"]]);

        const later = server.connect(test, LONG).acquire(NAMESPACE, "7", PATIENT);
        await until(locks, ({ waiting }) => waiting === 1);
        const own = await locks.reap("reaped", PATIENT, async (orphan) => {
            assert.deepEqual([orphan.namespace, orphan.key, orphan.name], [NAMESPACE, "7", `${NAMESPACE}/7`]);
            assert.deepEqual([orphan.formerFence, orphan.attempt, orphan.mostAttempts], [fence, 1, 2]);
            assert.ok(orphan.fence > fence && orphan.isHeld && orphan.remainingSeconds > 0 && !orphan.signal.aborted);
            orphan.check();
            const { state, fence: held, waiting } = await locks.get(NAMESPACE, "7");
            assert.deepEqual([state, held, waiting], ["held", orphan.fence, 1]);
            return orphan.fence;
        });
        const next = await later;
        assert.ok(own !== undefined && next.fence > own);
        // A release needs no cleanup, even after work that has failed.
        await next.release({ outcome: "failed" });
        const free = await locks.get(NAMESPACE, "7");
        assert.deepEqual([free.state, free.obituary], ["free", undefined]);
    });

    it("K17: comes again after a failure, until it is set aside for an operator", async (test) => {
        const { server, locks } = await start(test);
        const fence = await dieHolding(test, server, "7");
        assert.deepEqual(await cleanBadly(locks), [fence, 1]);
        assert.equal((await locks.get(NAMESPACE, "7")).state, "orphaned");
        assert.deepEqual(await cleanBadly(locks), [fence, 2]);
        assert.equal((await locks.get(NAMESPACE, "7")).state, "set-aside");

        assert.equal((await rejection(locks.resolveOrphan(NAMESPACE, "7", fence + 100n, "retry"))).code, "FENCE_PASSED");
        const wrong = "secret" as "retry";
        const unclear = await rejection(locks.resolveOrphan(NAMESPACE, "7", fence, wrong));
        assert.deepEqual([unclear.code, unclear.message.includes("secret")], ["INVALID_ARGUMENT", false]);
        await locks.resolveOrphan(NAMESPACE, "7", fence, "retry");
        assert.deepEqual(await cleanBadly(locks), [fence, 1]);
        await locks.resolveOrphan(NAMESPACE, "7", fence, "cleaned");
        assert.equal((await locks.get(NAMESPACE, "7")).state, "free");
    });

    it("K17: comes again after its cleaner was killed", async (test) => {
        const { server, locks } = await start(test);
        const fence = await dieHolding(test, server, "7");
        const cleaner = new Program(
            test,
            `await connect(SHORT).reap("reaped", {}, async ({ formerFence, attempt }) => {
                say(formerFence, attempt);
                await new Promise((done) => hear(done));
            });`,
            server.url,
        );
        assert.equal(await cleaner.line(), `${fence} 1`);
        cleaner.signal("SIGKILL");
        const seen = await locks.reap("reaped", PATIENT, ({ formerFence, attempt }) => [formerFence, attempt]);
        assert.deepEqual(seen, [fence, 2]);
        assert.equal((await locks.get(NAMESPACE, "7")).state, "free");
    });
});

describe("a wait for an orphaned lock", BOUND, () => {
    it("K17: takes nothing when it is over or aborted", async (test) => {
        const { server, locks } = await start(test);
        const never = (): never => assert.fail("no lock waits for a cleanup");
        assert.equal(await locks.reap("reaped", { wait: 0 }, never), undefined);
        const abort = new AbortController();
        const aborted = locks.reap("reaped", { signal: abort.signal }, never);
        // The call was sent when a later call of the same connection is answered.
        await locks.get(NAMESPACE, "7");
        abort.abort("mine");
        assert.equal(await aborted.catch((reason: unknown) => reason), "mine");
        await assert.rejects(locks.reap("reaped", { signal: AbortSignal.abort() }, never), { name: "AbortError" });
        await dieHolding(test, server, "7");
        assert.equal(await server.connect(test, LONG).reap("reaped", PATIENT, ({ attempt }) => attempt), 1);
    });

    it("K17: gives back a lock that raced with its abort", async (test) => {
        const { server, locks } = await start(test);
        const next = server.connect(test, LONG);
        for (let round = 0; round < 10; round += 1) {
            const abort = new AbortController();
            const raced = locks.reap("reaped", { signal: abort.signal }, () => "reaped");
            await locks.get(NAMESPACE, "7");
            const died = dieHolding(test, server, "7");
            if (round % 2) await until(next, ({ fence }) => fence !== undefined);
            abort.abort();
            const seen = await raced.catch((reason: Error) => reason.name);
            await died;
            if (seen === "AbortError") assert.equal(await next.reap("reaped", PATIENT, ({ attempt }) => attempt), 1);
            else assert.equal(seen, "reaped");
        }
    });

    for (const end of ["stop", "kill"] as const) {
        it(`K17 K22: goes on after the ${end} of the server`, async (test) => {
            const { server, locks } = await start(test);
            const later = locks.reap("reaped", PATIENT, ({ key, attempt }) => [key, attempt]);
            await locks.get(NAMESPACE, "7");
            await server[end]();
            await server.start();
            await dieHolding(test, server, "7");
            assert.deepEqual(await later, ["7", 1]);
        });
    }

    it("K05 K17: gets the same lock if the answer was lost", async (test) => {
        const { server } = await start(test);
        const proxy = await TcpProxy.start(test, server.port);
        const locks = server.connect(test, { ...LONG, address: proxy.url });
        await (await locks.acquire("other", "session")).release();
        const fence = await dieHolding(test, server, "7");
        void proxy.cutNextAnswer().then(() => proxy.open());
        const seen = await locks.reap("reaped", PATIENT, ({ formerFence, attempt }) => [formerFence, attempt]);
        assert.deepEqual(seen, [fence, 1]);
    });

    it("K11 K17: goes on under another session, or ends as lost, when an operator evicts the session", async (test) => {
        const { server, locks } = await start(test);
        await locks.acquire("other", "session");
        const { sessionId } = await locks.get("other", "session");
        const later = locks.reap("reaped", PATIENT, ({ key }) => key);
        await locks.get(NAMESPACE, "7");
        await evict(server.url, sessionId!);
        await dieHolding(test, server, "7");
        // The server tells the end to the call, or before to the session's worker: then the wait ends.
        const seen = await later.catch((error: LeaseholdError) => {
            assert.equal(error.code, "LOCK_LOST");
            return locks.reap("reaped", PATIENT, ({ key }) => key);
        });
        assert.equal(seen, "7");
    });

    it("K11 K20: tells a cleanup that an operator took its lock", async (test) => {
        const { server, locks } = await start(test);
        const fence = await dieHolding(test, server, "7");
        const cleaned = locks.reap("reaped", PATIENT, async (orphan) => {
            const lost = once(orphan.signal, "abort");
            await server.connect(test, LONG).force(NAMESPACE, "7", orphan.fence);
            await lost;
            orphan.check();
        });
        assert.equal((await rejection(cleaned)).code, "LOCK_LOST");
        const { state, obituary } = await locks.get(NAMESPACE, "7");
        assert.deepEqual([state, obituary?.fence, obituary?.attempts], ["withheld", fence, 1]);
    });

    it("K16 K24: refuses malformed arguments without their text", async (test) => {
        const { locks } = await start(test);
        const run = (): void => {};
        for (const namespace of ["", "secret..b", "secret\n", "secret\ud800"]) {
            const { code, message } = await rejection(locks.reap(namespace, {}, run));
            assert.deepEqual([code, message.includes("secret")], ["INVALID_UPDATE", false]);
        }
        for (const wait of [-1, Number.NaN]) {
            assert.equal((await rejection(locks.reap("reaped", { wait }, run))).code, "INVALID_ARGUMENT");
        }
        await assert.rejects(locks.reap(7 as unknown as string, {}, run), { name: "LeaseholdError", code: "INVALID_ARGUMENT" });
    });
});

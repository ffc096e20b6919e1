// Locks on the real server. The names of the promises stand in `docs/src/reference/promises.md`.
import assert from "node:assert/strict";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { after, before, describe, it, type TestContext } from "node:test";
import { setTimeout as timer } from "node:timers/promises";

import { connect, type HeldLock, LeaseholdError, type Locks, type LocksSettings, type LockStatus, type Standing } from "leasehold/locks";

import { Authority } from "./support/certificates.js";
import { ClaimsServer } from "./support/claims_server.js";
import { evict } from "./support/eviction.js";
import { TcpProxy } from "./support/tcp_proxy.js";

const NAMESPACE = "user.update";
/** The shortest terms of a session, for one that may be lost at any moment. */
const SHORT = { sessionDurationSeconds: 1, sessionGraceSeconds: 1 };
/** Terms that pass in a test, but not during a pause of some seconds, which a busy machine may make at any moment. */
const STEADY = { sessionDurationSeconds: 1, sessionGraceSeconds: 9 };
/** Terms that never pass in a test. */
const LONG = { sessionDurationSeconds: 3600, sessionGraceSeconds: 60 };
/** A wait that no test reaches. */
const PATIENT = 60;
/** The longest time of all tests of one `describe`, and of a wait within one of them. */
const BOUND = { timeout: 600_000 };

/** The server of all tests that neither stop it nor need other settings. */
const shared = new ClaimsServer();
before(() => shared.start());
after(() => shared.end());

/** Starts a server that the test may kill, and returns it with locks of it. */
async function start(test: TestContext, settings: LocksSettings = LONG): Promise<{ server: ClaimsServer; locks: Locks }> {
    const server = await ClaimsServer.start(test);
    return { server, locks: server.connect(test, settings) };
}

async function rejection(call: Promise<unknown>): Promise<LeaseholdError> {
    const error: unknown = await call.then(() => assert.fail("the call did not fail"), (error: unknown) => error);
    assert.ok(error instanceof LeaseholdError, String(error));
    return error;
}

async function code(call: Promise<unknown>): Promise<string> {
    return (await rejection(call)).code;
}

/** Reads a lock until a condition holds. The time limit of the test ends it. */
async function until(locks: Locks, key: string, condition: (lock: LockStatus) => boolean): Promise<void> {
    while (!condition(await locks.get(NAMESPACE, key)));
}

const waiting = (locks: Locks, key: string, count: number): Promise<void> => until(locks, key, (lock) => lock.waiting === count);

async function lastEnd(locks: Locks, key: string): Promise<[string | undefined, string]> {
    const { last } = await locks.get(NAMESPACE, key);
    return [last?.end, new TextDecoder().decode(last?.value)];
}

/** Waits for an event for a bounded time. A session alone does not keep this process alive. */
async function bounded<T>(event: Promise<T>): Promise<T> {
    const bound = new AbortController();
    const late = timer(BOUND.timeout, undefined, { signal: bound.signal }).then(() => assert.fail("the event did not come"));
    try {
        return await Promise.race([event, late]);
    } finally {
        late.catch(() => {});
        bound.abort();
    }
}

async function loss(lock: HeldLock): Promise<LeaseholdError> {
    if (!lock.signal.aborted) await bounded(once(lock.signal, "abort"));
    return lock.signal.reason;
}

/** Collects the standings that a session is told, for tests that wait for one of them. */
class Standings {
    readonly told: Standing[] = [];
    #wake = (): void => {};

    readonly onStanding = (standing: Standing): void => {
        this.told.push(standing);
        this.#wake();
    };

    async until(standing: Standing): Promise<void> {
        while (this.told.at(-1) !== standing) {
            await bounded(new Promise<void>((resolve) => (this.#wake = resolve)));
        }
    }
}

describe("a lock", BOUND, () => {
    it("K01 K05: is held, refused meanwhile, released, and granted again under a larger fence", async (test) => {
        const locks = shared.connect(test, LONG);
        const held = await locks.acquire(NAMESPACE, "first");
        assert.deepEqual([held.isHeld, held.standing, held.name], [true, "safe", "user.update/first"]);
        assert.ok(held.remainingSeconds > 3000 && held.remainingSeconds < 3660);
        held.check();
        assert.equal(await code(locks.acquire(NAMESPACE, "first")), "LOCK_HELD");
        assert.equal(await code(shared.connect(test).acquire(NAMESPACE, "first", { wait: 0.05 })), "LOCK_HELD");
        const seen = await locks.get(NAMESPACE, "first");
        assert.deepEqual([seen.state, seen.fence, seen.waiting, seen.last], ["held", held.fence, 0, undefined]);
        assert.equal(await held.release({ value: "done" }), true);
        assert.deepEqual([held.isHeld, held.standing, held.remainingSeconds], [false, "lost", 0]);
        assert.throws(() => held.check(), { code: "LOCK_LOST" });
        assert.equal(held.signal.aborted, false);
        assert.deepEqual(await lastEnd(locks, "first"), ["succeeded", "done"]);
        assert.ok((await locks.acquire(NAMESPACE, "first")).fence > held.fence);
    });

    it("K03: is released as succeeded or failed, when the function's promise is settled", async (test) => {
        const locks = shared.connect(test, LONG);
        const held = await locks.lock(NAMESPACE, "q", {}, async (lock) => {
            await locks.get(NAMESPACE, "q");
            assert.ok(lock.isHeld);
            return lock;
        });
        assert.equal(held.isHeld, false);
        assert.deepEqual(await lastEnd(locks, "q"), ["succeeded", ""]);
        const mine = new RangeError("mine");
        await assert.rejects(locks.lock(NAMESPACE, "q", {}, () => Promise.reject(mine)), mine);
        assert.deepEqual(await lastEnd(locks, "q"), ["failed", ""]);
        await locks.lock(NAMESPACE, "q", {}, (lock) => lock.release({ outcome: "failed", value: new Uint8Array([104, 105]) }));
        assert.deepEqual(await lastEnd(locks, "q"), ["failed", "hi"]);
    });

    it("K19: is released once, however often the holder does so", async (test) => {
        const locks = shared.connect(test, LONG);
        const held = await locks.acquire(NAMESPACE, "q");
        assert.deepEqual(await Promise.all([held.release({ value: "one" }), held.release({ value: "two" })]), [true, true]);
        assert.equal(await held.release({ outcome: "failed" }), true);
        assert.deepEqual(await lastEnd(locks, "q"), ["succeeded", "one"]);
    });

    it("K21: is still held after a release with a value that is too long", async (test) => {
        const locks = shared.connect(test, LONG);
        const held = await locks.acquire(NAMESPACE, "q");
        assert.equal(await code(held.release({ value: "v".repeat(2049) })), "LIMIT_EXCEEDED");
        assert.ok(held.isHeld);
        assert.equal(await held.release({ value: "v".repeat(2048) }), true);
    });

    it("K16: is listed with those of its namespace and of the namespaces in it, in pages", async (test) => {
        const locks = shared.connect(test, LONG);
        const other = shared.connect(test, LONG);
        const keys = Array.from({ length: 1001 }, (_, number) => String(number).padStart(4, "0"));
        await Promise.all(keys.map((key, number) => (number % 2 ? locks : other).acquire("user", key)));
        for (const namespace of ["user.update", "user-2"]) await locks.acquire(namespace, "k");
        await (await locks.acquire("user", "free")).release();
        const found = [];
        for await (const { namespace, key } of locks.list("user")) found.push(`${namespace}/${key}`);
        assert.deepEqual(found, [...keys.map((key) => `user/${key}`), "user.update/k"]);
    });
});

describe("a wait", BOUND, () => {
    it("K01 K08: is told its place, and served in the order of arrival", async (test) => {
        const locks = shared.connect(test, LONG);
        const held = await locks.acquire(NAMESPACE, "q");
        const [places, served]: [number[], number[]] = [[], []];
        const works = [];
        for (const number of [0, 1, 2]) {
            const options = { wait: PATIENT, onPlace: (place: number) => (places[number] ??= place) };
            works.push(locks.lock(NAMESPACE, "q", options, () => served.push(number)));
            await waiting(locks, "q", number + 1);
        }
        await held.release();
        await Promise.all(works);
        assert.deepEqual([places, served], [[0, 1, 2], [0, 1, 2]]);
    });

    it("K09 K10: leaves the queue when it is aborted or over", async (test) => {
        const locks = shared.connect(test, LONG);
        await locks.acquire(NAMESPACE, "q");
        const abort = new AbortController();
        const aborted = locks.acquire(NAMESPACE, "q", { wait: PATIENT, signal: abort.signal });
        await waiting(locks, "q", 1);
        abort.abort("mine");
        assert.equal(await aborted.catch((reason: unknown) => reason), "mine");
        assert.equal((await locks.get(NAMESPACE, "q")).waiting, 0);
        assert.equal(await code(locks.acquire(NAMESPACE, "q", { wait: 0.05 })), "LOCK_HELD");
        assert.equal((await locks.get(NAMESPACE, "q")).waiting, 0);
        await assert.rejects(locks.acquire(NAMESPACE, "r", { signal: AbortSignal.abort() }), { name: "AbortError" });
    });

    it("K10: gives back a grant that raced with its abort", async (test) => {
        const locks = shared.connect(test, LONG);
        for (let round = 0; round < 20; round += 1) {
            const held = await locks.acquire(NAMESPACE, "q");
            const abort = new AbortController();
            const aborted = locks.acquire(NAMESPACE, "q", { wait: PATIENT, signal: abort.signal });
            await waiting(locks, "q", 1);
            const released = held.release();
            if (round % 2) await until(locks, "q", ({ fence }) => fence !== held.fence);
            abort.abort();
            await aborted.then((next) => next.release(), () => {});
            await released;
            assert.equal((await locks.get(NAMESPACE, "q")).state, "free");
        }
    });

    it("leaves the queue, and throws the error of `onPlace`", async (test) => {
        const locks = shared.connect(test, LONG);
        await locks.acquire(NAMESPACE, "q");
        const mine = new RangeError("mine");
        const onPlace = (): never => {
            throw mine;
        };
        await assert.rejects(locks.acquire(NAMESPACE, "q", { wait: PATIENT, onPlace }), mine);
        assert.equal((await locks.get(NAMESPACE, "q")).waiting, 0);
    });

    it("fails when it is over, although the server does not answer", async (test) => {
        const { server, locks } = await start(test);
        await locks.acquire(NAMESPACE, "q");
        const later = locks.acquire(NAMESPACE, "q", { wait: 10 });
        await waiting(locks, "q", 1);
        const killed = performance.now();
        await server.kill();
        assert.equal(await code(later), "UNAVAILABLE");
        // A longer wait would go on for half a minute after the end of the server.
        assert.ok(performance.now() - killed < 28_000);
    });

    it("K22: goes on after a restart of the server", async (test) => {
        const { server, locks } = await start(test);
        const held = await locks.acquire(NAMESPACE, "q");
        const later = locks.acquire(NAMESPACE, "q", { wait: PATIENT });
        await waiting(locks, "q", 1);
        await server.stop();
        await server.start();
        await waiting(locks, "q", 1);
        await held.release();
        assert.ok((await later).fence > held.fence);
    });
});

describe("a lost answer", BOUND, () => {
    it("K05: of an acquire is no lost grant", async (test) => {
                const { server } = await start(test);
        const proxy = await TcpProxy.start(test, server.port);
        const locks = server.connect(test, { ...LONG, address: proxy.url });
        await locks.acquire(NAMESPACE, "first");
        void proxy.cutNextAnswer().then(() => proxy.open());
        const held = await locks.acquire(NAMESPACE, "q");
        assert.equal((await locks.get(NAMESPACE, "q")).fence, held.fence);
    });

    it("K19: of a release is asked for again, even if the next holder has ended meanwhile", async (test) => {
        const { server, locks: direct } = await start(test);
        for (const next of [async () => {}, async () => (await direct.acquire(NAMESPACE, "q", { wait: PATIENT })).release()]) {
            const proxy = await TcpProxy.start(test, server.port);
            const locks = server.connect(test, { ...LONG, address: proxy.url });
            const held = await locks.acquire(NAMESPACE, "q");
            const cut = proxy.cutNextAnswer();
            const released = held.release({ value: "mine" });
            await cut;
            assert.deepEqual(await lastEnd(direct, "q"), ["succeeded", "mine"]);
            await next();
            proxy.open();
            assert.equal(await released, true);
        }
    });

    it("K19: of a release is asked for in the background once the time of a call has passed", async (test) => {
        const { server, locks: direct } = await start(test);
        const locks = server.connect(test, { ...LONG, timeoutSeconds: 10 });
        const held = await locks.acquire(NAMESPACE, "q");
        await server.kill();
        assert.equal(await held.release({ value: "late" }), false);
        await server.start();
        await until(direct, "q", ({ state }) => state === "free");
        assert.deepEqual(await lastEnd(direct, "q"), ["succeeded", "late"]);
    });
});

describe("a session", BOUND, () => {
    it("K11 K12: is renewed while synchronous code blocks the main thread for longer than its terms", async (test) => {
        const locks = shared.connect(test, STEADY);
        const held = await locks.acquire(NAMESPACE, "q");
        const end = performance.now() + 12_000;
        while (performance.now() < end);
        assert.ok(held.isHeld);
        assert.equal((await locks.get(NAMESPACE, "q")).fence, held.fence);
        assert.equal(await held.release(), true);
    });

    it("K07 K11: is in jeopardy while the server is down, and safe after its restart", async (test) => {
        const standings = new Standings();
        const { server, locks } = await start(test, { ...SHORT, sessionGraceSeconds: 60, onStanding: standings.onStanding });
        const held = await locks.acquire(NAMESPACE, "q");
        await server.kill();
        await standings.until("jeopardy");
        assert.deepEqual([held.isHeld, held.standing, held.signal.aborted], [true, "jeopardy", false]);
        await server.start();
        await standings.until("safe");
        assert.equal((await locks.get(NAMESPACE, "q")).fence, held.fence);
        assert.equal(await held.release(), true);
    });

    it("K06 K11: knows its loss without the server, and the next acquire opens another one", async (test) => {
        const standings = new Standings();
        const { server, locks } = await start(test, { ...SHORT, onStanding: standings.onStanding });
        const lost = locks.lock(NAMESPACE, "q", {}, async (lock) => {
            await server.kill();
            assert.equal((await loss(lock)).code, "LOCK_LOST");
            assert.deepEqual([lock.isHeld, lock.remainingSeconds], [false, 0]);
            assert.throws(() => lock.check(), lock.signal.reason);
        });
        assert.equal(await code(lost), "LOCK_LOST");
        assert.equal(standings.told.at(-1), "lost");
        await server.start();
        // The server counts the whole silence of the former session again.
        assert.ok((await locks.acquire(NAMESPACE, "q", { wait: PATIENT })).isHeld);
        assert.equal((await lastEnd(locks, "q"))[0], "expired");
    });

    it("K11: tells its loss at the first look, although no event was handled since", async (test) => {
        const { server, locks } = await start(test, SHORT);
        const lock = await locks.acquire(NAMESPACE, "q");
        const { signal } = lock;
        await server.kill();
        const end = performance.now() + 2500;
        while (performance.now() < end);
        assert.deepEqual([lock.signal.aborted, signal.aborted], [true, true]);
    });

    it("K11: ends the waits under it with its loss", async (test) => {
        const { server, locks } = await start(test, STEADY);
        await locks.acquire(NAMESPACE, "q");
        const later = locks.acquire(NAMESPACE, "q", { wait: PATIENT });
        await waiting(locks, "q", 1);
        await server.kill();
        assert.equal(await code(later), "LOCK_LOST");
    });

    it("is closed with its locks, once", async (test) => {
        const locks = shared.connect(test, LONG);
        const standings = new Standings();
        const closing = shared.connect(test, { ...LONG, onStanding: standings.onStanding });
        const [held] = await Promise.all([closing.acquire(NAMESPACE, "q"), closing.acquire(NAMESPACE, "r")]);
        await Promise.all([closing.close(), closing.close()]);
        assert.deepEqual(await lastEnd(locks, "q"), ["closed", ""]);
        assert.deepEqual([held.isHeld, held.signal.reason.code], [false, "LOCK_LOST"]);
        assert.equal(await code(held.release()), "LOCK_LOST");
        assert.equal(await code(closing.acquire(NAMESPACE, "q")), "CLOSED");
        assert.equal(await code(closing.get(NAMESPACE, "q")), "CLOSED");
        assert.deepEqual(standings.told, []);
    });

    it("K21: is refused terms beyond their bounds", async (test) => {
                const refused = (sessionDurationSeconds: number, sessionGraceSeconds: number): Promise<string> =>
            code(shared.connect(test, { sessionDurationSeconds, sessionGraceSeconds }).acquire(NAMESPACE, "q"));
        assert.equal(await refused(0, 1), "INVALID_UPDATE");
        assert.equal(await refused(365 * 86_400, 1), "LIMIT_EXCEEDED");
        assert.equal(await refused(1, 1e30), "LIMIT_EXCEEDED");
        for (const seconds of [-1, Number.NaN, Number.POSITIVE_INFINITY]) {
            assert.throws(() => connect({ sessionDurationSeconds: seconds }), { code: "MISCONFIGURED" });
        }
    });
});

describe("an operator", BOUND, () => {
    it("K20: takes a lock from its holder, who is told, and leaves it its other locks", async (test) => {
        const locks = shared.connect(test, LONG);
        const kept = await locks.acquire(NAMESPACE, "kept");
        const told = locks.lock(NAMESPACE, "taken", {}, async (lock) => {
            assert.equal(await code(locks.force(NAMESPACE, "taken", lock.fence + 1n)), "FENCE_PASSED");
            await locks.force(NAMESPACE, "taken", lock.fence);
            const reason = await loss(lock);
            assert.match(reason.message, /an operator took the lock/u);
            assert.deepEqual([lock.isHeld, lock.remainingSeconds], [false, 0]);
            throw reason;
        });
        assert.equal(await code(told), "LOCK_LOST");
        const taken = await locks.get(NAMESPACE, "taken");
        assert.deepEqual([taken.state, taken.sessionId], ["withheld", undefined]);
        assert.equal(await code(locks.acquire(NAMESPACE, "taken")), "LOCK_HELD");
        assert.ok(kept.isHeld);
        await locks.force(NAMESPACE, "kept", kept.fence, { atOnce: true });
        assert.equal((await locks.get(NAMESPACE, "kept")).state, "free");
        assert.equal(await code(kept.release()), "LOCK_LOST");
    });

    it("K20: takes a lock before the late answer with its grant comes", async (test) => {
        // Modules of the package itself, which `exports` does not name.
        const parts = ["client/calls", "client/error", "client/session", "client/settings", "client/values", "locks/held_lock", "locks/messages"];
        const modules = await Promise.all(parts.map((name) => import(new URL(`../../js/${name}.js`, import.meta.url).href)));
        const { Calls, HeldLock: Held, LOCK, lockPath, randomId, Session, settingsOf } = Object.assign({}, ...modules);
        const [settings, path] = [settingsOf({ address: shared.url, ...LONG }), lockPath(NAMESPACE, "late")];
        const { endpoint, millis } = settings;
        const calls = new Calls(endpoint);
        const session = await Session.open(calls, { ...settings, kind: LOCK });
        test.after(async () => {
            await session.close();
            calls.close();
        });
        const askId = randomId();
        const granted = await calls.run("TryAcquireLock", { sessionId: session.id, askId, lock: path }, { millis });
        const fence = BigInt(granted.fence);
        const early = new Held(session, path, { fence, askId });
        await shared.connect(test).force(NAMESPACE, "late", fence);
        assert.match((await loss(early)).message, /an operator took the lock/u);
        const late = new Held(session, path, { fence, askId });
        assert.ok(!late.isHeld);
        assert.match((await loss(late)).message, /an operator took the lock/u);
    });
});

describe("an eviction", BOUND, () => {
    it("K11 K20: is told to the holder, and the next acquire opens another session", async (test) => {
        const locks = shared.connect(test, LONG);
        for (let round = 0; round < 10; round += 1) {
            const held = await locks.acquire(NAMESPACE, `evicted ${round}`);
            const { sessionId } = await locks.get(NAMESPACE, held.key);
            await evict(shared.url, sessionId!);
            // The news of the end may come later than this acquire.
            assert.ok((await locks.acquire(NAMESPACE, `next ${round}`)).isHeld);
            assert.equal((await loss(held)).code, "LOCK_LOST");
            assert.equal(await code(held.release()), "LOCK_LOST");
        }
    });
});

describe("the settings", BOUND, () => {
    it("have TLS with a client's certificate, in both threads, and rights by namespace", async (test) => {
        const authority = new Authority(test);
        const access = '[[locks.access]]\ncaller = "service/billing"\nnamespaces = ["bill"]\n';
        const server = await ClaimsServer.start(test, authority.server(), access);
        const locks = server.connect(test, { ...SHORT, sessionGraceSeconds: 60, tls: authority.service("billing") });
        const held = await locks.acquire("bill.month", "7");
        // A renewal, which the worker sends, makes the remaining time longer.
        for (let [before, after] = [Infinity, Infinity]; after <= before; [before, after] = [after, held.remainingSeconds]) {
            await locks.get("bill.month", "7");
            held.check();
        }
        assert.equal(await code(locks.acquire("user", "7")), "RULE_DENIED");
        assert.equal(await code(locks.force("bill.month", "7", held.fence)), "RULE_DENIED");
        const seen = [];
        for await (const lock of server.connect(test, { tls: authority.admin() }).list()) seen.push(lock.fence);
        assert.deepEqual(seen, [held.fence]);
        const stranger = new Authority(test).service("billing");
        assert.equal(await code(server.connect(test, { tls: stranger }).get("bill", "7")), "TLS_REFUSED");
        const { ca } = authority.admin();
        assert.equal(await code(server.connect(test, { tls: { ...stranger, ca } }).get("bill", "7")), "TLS_REFUSED");
    });

    it("are refused at once if they cannot work", (test) => {
        const authority = new Authority(test);
        const [server, admin] = [authority.server(), authority.admin()];
        const tls = { ...admin };
        const refused = (settings: LocksSettings, message: RegExp): void =>
            assert.throws(() => connect(settings), { name: "LeaseholdError", code: "MISCONFIGURED", message });
        for (const address of ["", "localhost:7171", "ftp://localhost", "http://a/path", "http://user@a"]) {
            refused({ address }, /is not a server address/u);
        }
        refused({ address: "http://claims.example.com" }, /would be plaintext/u);
        refused({ address: "http://127.0.0.1", tls }, /is plaintext, but `tls` is set/u);
        refused({ address: "https://localhost" }, /needs certificates/u);
        refused({ address: "https://localhost", tls: { ...tls, ca: admin.key } }, /`tls.ca` is not a PEM certificate/u);
        refused({ address: "https://localhost", tls: { ...tls, key: server.key } }, /`tls.key` is not the private key/u);
        refused({ storeId: "nonsense" }, /`storeId`/u);
        rmSync(admin.key);
        refused({ address: "https://localhost", tls }, /`tls.key` cannot be read \(ENOENT\)/u);
    });

    it("name the store that the server must have", async (test) => {
                const storeId = "01A1FEFB-0383-7360-95C3-3B4E0D5DFAB0";
        assert.equal(await code(shared.connect(test, { storeId }).acquire(NAMESPACE, "q")), "OTHER_STORE");
    });
});

describe("arguments", BOUND, () => {
    it("K16 K21 K24: with malformed names are refused without their text", async (test) => {
        const locks = shared.connect(test, LONG);
        const long = "k".repeat(2048);
        const cases = [
            ["", "k", "INVALID_UPDATE"],
            ["a..b", "k", "INVALID_UPDATE"],
            ["a", "", "INVALID_UPDATE"],
            ["a", "secret\n", "INVALID_UPDATE"],
            ["a", "secret\ud800", "INVALID_UPDATE"],
            ["a", long, "LIMIT_EXCEEDED"],
            [long, "k", "LIMIT_EXCEEDED"],
        ] as const;
        for (const [namespace, key, expected] of cases) {
            for (const wait of [0, 1]) {
                const refused = await rejection(locks.acquire(namespace, key, { wait }));
                assert.equal(refused.code, expected);
                assert.doesNotMatch(`${refused.message}${refused.stack}`, /secret|kkk/u);
            }
        }
        for (const wait of [86_401, 1e13, 1e30]) assert.equal(await code(locks.acquire("a", "k", { wait })), "LIMIT_EXCEEDED");
        for (const wait of [-1, Number.NaN]) assert.equal(await code(locks.acquire("a", "k", { wait })), "INVALID_ARGUMENT");
        assert.equal((await locks.get("a", "k")).state, "free");
    });

    it("K24: of wrong types are named without their value", async (test) => {
        const locks = shared.connect(test, LONG);
        const wrong = { toString: () => "secret" } as never;
        const held = await locks.acquire("a", "k");
        const calls = {
            namespace: () => locks.list(wrong).next(),
            key: () => locks.get("a", wrong),
            "options.value": () => held.release({ value: wrong }),
            "options.outcome": () => held.release({ outcome: wrong }),
            fence: () => locks.force("a", "k", wrong),
            "options.wait": () => locks.acquire("a", "k", { wait: wrong }),
        };
        for (const [name, call] of Object.entries(calls)) {
            await assert.rejects(call, (error: Error) => error.message.startsWith(`\`${name}\` is`) && !error.message.includes("secret"));
        }
        assert.ok(held.isHeld);
    });
});

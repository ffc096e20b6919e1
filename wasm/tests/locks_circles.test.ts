// Acquires that wait for each other in a circle, on the real server.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";

import { LeaseholdError, type Locks } from "leasehold/locks";

import { ClaimsServer } from "./support/claims_server.js";

const NAMESPACE = "user.update";
/** Terms that never pass in a test. */
const LONG = { sessionDurationSeconds: 3600, sessionGraceSeconds: 60 };
/** A wait that no test reaches. */
const PATIENT = { wait: 60 };
/** A wait that ends after the server's first search for a circle. */
const SEARCHED = { wait: 0.6 };
/** The longest time of the tests of one `describe`, and of a wait within one of them. */
const BOUND = { timeout: 600_000 };

const server = new ClaimsServer(undefined, '[[locks.reaped]]\nnamespaces = ["reaped"]\n');
before(() => server.start());
after(() => server.end());

/** Returns the code with which a call is refused; `served` if it is not. */
async function code(call: Promise<unknown>): Promise<string> {
    try {
        await call;
        return "served";
    } catch (error) {
        assert.ok(error instanceof LeaseholdError, String(error));
        return error.code;
    }
}

/** Reads a lock until a number of asks wait. The time limit of the test ends it. */
async function waiting(locks: Locks, key: string, count: number): Promise<void> {
    while ((await locks.get(NAMESPACE, key)).waiting !== count);
}

/** Returns a function that returns a promise. It is fulfilled once the function was called this often. */
function barrier(count: number): () => Promise<void> {
    let open: () => void;
    const opened = new Promise<void>((resolve) => (open = resolve));
    let arrived = 0;
    return async () => {
        arrived += 1;
        if (arrived === count) open();
        await opened;
    };
}

type Ask = (locks: Locks, key: string) => Promise<unknown>;
const ask: Ask = (locks, key) => locks.lock(NAMESPACE, key, PATIENT, () => undefined);
const askForAll: Ask = (locks, key) => locks.lockAll([{ namespace: NAMESPACE, key }], PATIENT, () => undefined);

/** Two functions that each hold a lock, and ask for that of the other one. Returns how they end. */
async function cross(one: Locks, other: Locks, inside: Ask): Promise<string[]> {
    const bothHold = barrier(2);
    const crossing = async (locks: Locks, own: string, wanted: string): Promise<unknown> =>
        await locks.lock(NAMESPACE, own, {}, async () => {
            await bothHold();
            await inside(locks, wanted);
        });
    return (await Promise.all([code(crossing(one, "a", "b")), code(crossing(other, "b", "a"))])).sort();
}

describe("acquires in a circle", BOUND, () => {
    it("K15: are refused once, and the other one is served", async (test) => {
        const [locks, other] = [server.connect(test, LONG), server.connect(test, LONG)];
        for (const inside of [ask, askForAll]) {
            for (const second of [locks, other]) {
                assert.deepEqual(await cross(locks, second, inside), ["LOCK_CIRCLE", "served"]);
                assert.equal(await code(locks.lockAll([{ namespace: NAMESPACE, key: "a" }], {}, () => undefined)), "served");
            }
        }
    });

    it("K15: are those for a lock within its own function", async (test) => {
        const locks = server.connect(test, LONG);
        await locks.lock(NAMESPACE, "a", {}, async () => {
            const wanted = [{ namespace: NAMESPACE, key: "b" }, { namespace: NAMESPACE, key: "c" }];
            await locks.lockAll(wanted, {}, async () => {
                for (const key of ["a", "b", "c"]) assert.equal(await code(ask(locks, key)), "LOCK_CIRCLE");
                assert.equal(await code(locks.acquire(NAMESPACE, "a", PATIENT)), "LOCK_CIRCLE");
            });
            // Without a wait, the lock is only not free.
            assert.equal(await code(locks.acquire(NAMESPACE, "a")), "LOCK_HELD");
            // A function that has ended holds its locks no more.
            assert.equal(await code(ask(locks, "b")), "served");
        });
    });

    it("K15: count the locks around a branch, and none of another branch", async (test) => {
        const locks = server.connect(test, LONG);
        await locks.lock(NAMESPACE, "a", {}, async () => {
            assert.deepEqual(await Promise.all([code(ask(locks, "a")), code(ask(locks, "b"))]), ["LOCK_CIRCLE", "served"]);
            // The function holds `c` in one branch. The other branch waits for the end of that branch.
            const held = barrier(2);
            const holds = locks.lock(NAMESPACE, "c", {}, async () => {
                await held();
                await waiting(locks, "c", 1);
                assert.equal(await code(ask(locks, "c")), "LOCK_CIRCLE");
            });
            const waits = held().then(() => ask(locks, "c"));
            assert.deepEqual(await Promise.all([code(holds), code(waits)]), ["served", "served"]);
        });
        // Two branches that wait for each other are a circle, as two processes are.
        await locks.lock(NAMESPACE, "d", {}, async () => {
            assert.deepEqual(await cross(locks, locks, ask), ["LOCK_CIRCLE", "served"]);
        });
    });

    it("K15: do not count locks without a function, nor those that a function has released", async (test) => {
        const [locks, other] = [server.connect(test, LONG), server.connect(test, LONG)];
        await locks.lock(NAMESPACE, "a", {}, async (lock) => {
            await lock.release();
            const later = await other.acquire(NAMESPACE, "a");
            assert.equal(await code(locks.acquire(NAMESPACE, "a", SEARCHED)), "LOCK_HELD");
            assert.equal(await code(other.acquire(NAMESPACE, "a", SEARCHED)), "LOCK_HELD");
            await later.release();
        });
    });

    it("K15: do not count a lock for code that was started before its function", async (test) => {
        const locks = server.connect(test, LONG);
        const started = barrier(2);
        const later = started().then(() => ask(locks, "a"));
        await locks.lock(NAMESPACE, "a", {}, async () => {
            await started();
            await waiting(locks, "a", 1);
            assert.equal(await code(ask(locks, "a")), "LOCK_CIRCLE");
        });
        assert.equal(await code(later), "served");
    });

    it("K15 K17: count the lock of a cleanup", async (test) => {
        const [locks, dead] = [server.connect(test, LONG), server.connect(test, LONG)];
        await dead.acquire("reaped", "7");
        await dead.close();
        const refused = locks.reap("reaped", PATIENT, () => code(locks.acquire("reaped", "7", PATIENT)));
        assert.equal(await refused, "LOCK_CIRCLE");
    });

    it("K15 K21: name the innermost 64 locks", async (test) => {
        const locks = server.connect(test, LONG);
        const nest = async (number: number): Promise<void> => {
            if (number < 65) return await locks.lock(NAMESPACE, String(number), {}, () => nest(number + 1));
            for (const key of ["1", "64"]) assert.equal(await code(locks.acquire(NAMESPACE, key, PATIENT)), "LOCK_CIRCLE");
            assert.equal(await code(locks.acquire(NAMESPACE, "0", SEARCHED)), "LOCK_HELD");
        };
        await nest(0);
    });
});

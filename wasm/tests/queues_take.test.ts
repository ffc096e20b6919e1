// Workers that take batches of a queue in a loop, on the real server.
import assert from "node:assert/strict";
import { after, before, describe, it, type TestContext } from "node:test";
import { inspect } from "node:util";

import { type Batch, type LeaseholdError, type NewRequest, type Queues, type QueuesSettings, type TakeOptions } from "leasehold/queues";

import { Authority } from "./support/certificates.js";
import { ClaimsServer } from "./support/claims_server.js";
import { evict } from "./support/eviction.js";
import { abortOf, all, code } from "./support/outcomes.js";
import { TcpProxy } from "./support/tcp_proxy.js";

/** The shortest terms of a session, for one that is lost in the test. */
const SHORT = { sessionDurationSeconds: 1, sessionGraceSeconds: 1 };
/** Terms that never pass in a test. */
const LONG = { sessionDurationSeconds: 3600, sessionGraceSeconds: 60 };
/** The longest time of all tests of one `describe`. */
const BOUND = { timeout: 600_000 };

const shared = new ClaimsServer();
before(() => shared.start());
after(() => shared.end());

const bodies = (batch: Batch): string[] => batch.requests.map(({ body }) => new TextDecoder().decode(body));
const attempts = (batch: Batch): number[] => batch.requests.map(({ attempt }) => attempt);

/** A worker that takes batches one by one. At the end of the test it gives back what it has. */
class Worker {
    readonly #batches: AsyncIterator<Batch>;

    constructor(queues: Queues, queue: string, options: TakeOptions = {}) {
        this.#batches = queues.take(queue, { stopSeconds: 0, ...options });
    }

    async next(): Promise<Batch> {
        const { value, done } = await this.#batches.next();
        return done ? assert.fail("the loop has ended") : value;
    }

    async end(): Promise<void> {
        assert.deepEqual(await this.#batches.next(), { value: undefined, done: true });
    }

    async leave(): Promise<void> {
        await this.#batches.return?.();
    }
}

/** Returns queues of the shared server, and a worker of one of them. */
function start(test: TestContext, queue: string, options: TakeOptions = {}): { queues: Queues; worker: Worker } {
    const queues = shared.queues(test, LONG);
    return { queues, worker: new Worker(queues, queue, options) };
}

/** Submits a request for each of several bodies. */
async function submit(queues: Queues, queue: string, key: string, ...texts: string[]): Promise<string[]> {
    const requests: NewRequest[] = texts.map((body) => ({ key, body }));
    return (await queues.submitAll(queue, requests)).map(({ id }) => id);
}

const state = async (queues: Queues, id: string): Promise<string | undefined> => (await queues.getRequest(id))?.state;

describe("a worker", BOUND, () => {
    it("Q01: takes what was submitted, and completes it", async (test) => {
        const { queues, worker } = start(test, "circle");
        const [id] = await submit(queues, "circle", "7", "first");
        const batch = await worker.next();
        assert.deepEqual([batch.queue, batch.key, batch.kind, batch.progress], ["circle", "7", "update", undefined]);
        assert.deepEqual([batch.requests.map((request) => request.id), attempts(batch), bodies(batch)], [[id], [1], ["first"]]);
        assert.ok(batch.fence > 0n && batch.remainingSeconds > 3000 && batch.isHeld && batch.standing === "safe");
        batch.check();
        assert.equal(await state(queues, id!), "in-progress");
        await batch.complete();
        assert.deepEqual([await state(queues, id!), batch.isHeld, batch.standing, batch.remainingSeconds], ["complete", false, "lost", 0]);
        assert.equal(batch.signal.aborted, false);
        const [settled] = await all(queues.listRequests("circle", "settled"));
        assert.equal(settled?.id, id);
    });

    it("Q02: gets the create of a resource alone, and then its updates as one", async (test) => {
        const { queues, worker } = start(test, "created", { credit: 2 });
        await queues.submit("created", { key: "7", kind: "create", body: "create" });
        await submit(queues, "created", "7", "one", "two");
        const create = await worker.next();
        assert.deepEqual([create.kind, bodies(create)], ["create", ["create"]]);
        await submit(queues, "created", "8", "other");
        const other = await worker.next();
        assert.deepEqual([other.key, bodies(other)], ["8", ["other"]]);
        await create.complete();
        const updates = await worker.next();
        assert.deepEqual([updates.kind, bodies(updates)], ["update", ["one", "two"]]);
    });

    it("Q02: gets no more requests as one than it asks for", async (test) => {
        const { queues, worker } = start(test, "bounded", { maxRequests: 2 });
        await submit(queues, "bounded", "7", "one", "two", "three");
        const first = await worker.next();
        await first.complete();
        assert.deepEqual([bodies(first), bodies(await worker.next())], [["one", "two"], ["three"]]);
    });

    it("Q07: works the requests of one key in order, while another key goes on", async (test) => {
        const { queues, worker } = start(test, "ordered", { credit: 2, maxRequests: 1 });
        await submit(queues, "ordered", "stuck", "one", "two");
        const stuck = await worker.next();
        await submit(queues, "ordered", "other", "one", "two", "three");
        for (const body of ["one", "two", "three"]) {
            const batch = await worker.next();
            assert.deepEqual([batch.key, bodies(batch)], ["other", [body]]);
            await batch.complete();
        }
        assert.deepEqual(bodies(stuck), ["one"]);
        await stuck.complete();
        const next = await worker.next();
        assert.deepEqual([next.key, bodies(next)], ["stuck", ["two"]]);
    });

    it("Q08: gets what was submitted while it worked in the next batch", async (test) => {
        const { queues, worker } = start(test, "meanwhile");
        await submit(queues, "meanwhile", "7", "one");
        const first = await worker.next();
        await submit(queues, "meanwhile", "7", "two", "three");
        await first.complete();
        assert.deepEqual([bodies(first), bodies(await worker.next())], [["one"], ["two", "three"]]);
    });

    it("Q11: gives a batch back, and the attempt does not count", async (test) => {
        const { queues, worker } = start(test, "back");
        await submit(queues, "back", "7", "one");
        const first = await worker.next();
        await first.giveBack();
        const again = await worker.next();
        assert.deepEqual([attempts(first), attempts(again)], [[1], [1]]);
        assert.ok(again.fence > first.fence);
    });

    it("Q12: gets what is due, the more urgent first", async (test) => {
        const { queues, worker } = start(test, "urgent");
        await queues.pause("urgent");
        await submit(queues, "urgent", "usual", "");
        await queues.submit("urgent", { key: "urgent", priority: 9 });
        const begun = performance.now();
        await queues.submit("urgent", { key: "later", priority: 9, delay: 1 });
        await queues.resume("urgent");
        for (const key of ["urgent", "usual", "later"]) {
            const batch = await worker.next();
            assert.equal(batch.key, key);
            await batch.complete();
        }
        // The clocks of both processes may be adjusted meanwhile.
        assert.ok(performance.now() - begun > 900);
    });

    it("Q13: fails a batch, until its last attempt ends in error, from where it is submitted again", async (test) => {
        const { queues, worker } = start(test, "failing");
        const { id } = await queues.submit("failing", { key: "7", maxAttempts: 2 });
        for (const attempt of [1, 2]) {
            const batch = await worker.next();
            assert.deepEqual(attempts(batch), [attempt]);
            await batch.fail({ retryAfter: 0.01 });
        }
        assert.equal(await state(queues, id), "error");
        assert.equal(await queues.resubmit(id), "error");
        const batch = await worker.next();
        assert.deepEqual([batch.requests[0]?.id, attempts(batch)], [id, [1]]);
        await batch.complete();
        assert.equal(await queues.resubmit(id), "complete");
    });

    it("Q13: is told the next attempt after the time that it asks for", async (test) => {
        const { queues, worker } = start(test, "failing.later");
        const [id] = await submit(queues, "failing.later", "7", "");
        const batch = await worker.next();
        assert.equal(await code(batch.fail({ retryAfter: 366 * 86_400 })), "LIMIT_EXCEEDED");
        assert.ok(batch.isHeld, "a refused settle leaves the batch held");
        await batch.fail({ retryAfter: 3600 });
        const { notBefore, updatedAt } = (await queues.getRequest(id!))!;
        assert.equal(notBefore.getTime() - updatedAt.getTime(), 3_600_000);
    });

    it("Q13: waits a second for the attempt after the first, if it asks for no time", async (test) => {
        const { queues, worker } = start(test, "failing.usual");
        const [id] = await submit(queues, "failing.usual", "7", "");
        await (await worker.next()).fail();
        const { notBefore, updatedAt } = (await queues.getRequest(id!))!;
        assert.equal(notBefore.getTime() - updatedAt.getTime(), 1_000);
    });

    it("Q19: gets no lane that is paused, and gets it after the resume", async (test) => {
        const { queues, worker } = start(test, "paused");
        await queues.pause("paused", { key: "1" });
        for (const key of ["1", "2"]) await submit(queues, "paused", key, "");
        const other = await worker.next();
        assert.equal(other.key, "2");
        await other.complete();
        await queues.resume("paused", { key: "1" });
        assert.equal((await worker.next()).key, "1");
    });

    it("Q20: hands the progress that it noted to the next one", async (test) => {
        const { queues, worker } = start(test, "progress");
        await submit(queues, "progress", "7", "");
        const batch = await worker.next();
        await batch.noteProgress("half");
        assert.equal(await code(batch.noteProgress("x".repeat(2049))), "LIMIT_EXCEEDED");
        await batch.noteProgress(new TextEncoder().encode("most"));
        await batch.fail({ retryAfter: 0 });
        assert.equal(new TextDecoder().decode((await worker.next()).progress), "most");
        assert.equal(await code(batch.noteProgress("late")), "BATCH_LOST");
    });

    it("Q22: shows neither key nor body nor progress in the text of a batch or of an error", async (test) => {
        const { queues, worker } = start(test, "secret");
        await submit(queues, "secret", "private", "private", "private");
        const first = await worker.next();
        await first.noteProgress("private");
        await first.fail({ retryAfter: 0 });
        const batch = await worker.next();
        assert.equal(batch.progress?.length, 7);
        assert.doesNotMatch(inspect(batch, { depth: 9, getters: false }) + JSON.stringify(batch), /private|112/u);
        assert.doesNotMatch(inspect(batch.requests, { depth: 9 }) + JSON.stringify(batch.requests), /private|112/u);
        await batch.complete();
        await assert.rejects(batch.fail(), (error: LeaseholdError) => !/private/u.test(inspect(error)));
    });

    it("is refused what cannot work", async (test) => {
        const queues = shared.queues(test, LONG);
        const refused = (queue: string, options: TakeOptions): Promise<string> => code(new Worker(queues, queue, options).next());
        assert.equal(await refused("a..b", {}), "INVALID_UPDATE");
        assert.equal(await refused("a", { credit: 0 }), "INVALID_ARGUMENT");
        assert.equal(await refused("a", { credit: 257 }), "LIMIT_EXCEEDED");
        assert.equal(await refused("a", { maxRequests: 0.5 }), "INVALID_ARGUMENT");
        assert.equal(await refused("a", { stopSeconds: -1 }), "INVALID_ARGUMENT");
        const authority = new Authority(test);
        const access = '[[locks.access]]\ncaller = "service/billing"\nnamespaces = ["bill"]\n';
        const server = await ClaimsServer.start(test, authority.server(), access);
        const billing = server.queues(test, { ...LONG, tls: authority.service("billing") });
        await submit(billing, "bill.month", "7", "mine");
        assert.deepEqual(bodies(await new Worker(billing, "bill.month").next()), ["mine"]);
        assert.equal(await code(new Worker(billing, "user").next()), "RULE_DENIED");
    });
});

describe("a settle", BOUND, () => {
    it("Q10: is sent once, and no other outcome counts after it", async (test) => {
        const { queues, worker } = start(test, "settled");
        const [id] = await submit(queues, "settled", "7", "");
        const batch = await worker.next();
        await Promise.all([batch.complete(), batch.complete()]);
        await batch.complete();
        for (const other of [batch.fail(), batch.giveBack()]) assert.equal(await code(other), "BATCH_LOST");
        assert.throws(() => batch.check(), { code: "BATCH_LOST" });
        assert.equal(await state(queues, id!), "complete");
    });

    it("Q10: whose answer was lost is repeated, even if the lane's next batch has ended meanwhile", async (test) => {
        const server = await ClaimsServer.start(test);
        const direct = server.queues(test, LONG);
        const worker = new Worker(direct, "lost");
        // Modules of the package itself, which `exports` does not name.
        const parts = ["client/calls", "client/error", "client/session", "client/settings", "client/values", "queues/batch"];
        const modules = await Promise.all(parts.map((name) => import(new URL(`../../js/${name}.js`, import.meta.url).href)));
        const { BATCH, Batch: Held, Calls, randomId, Session, settingsOf } = Object.assign({}, ...modules);
        for (const next of [async () => {}, async () => (await worker.next()).complete()]) {
            const [id] = await submit(direct, "lost", "7", "");
            const proxy = await TcpProxy.start(test, server.port);
            const settings = { ...settingsOf({ address: proxy.url, ...LONG }), kind: BATCH };
            const calls = new Calls(settings.endpoint);
            const session = await Session.open(calls, settings);
            test.after(async () => {
                await session.close();
                calls.close();
            });
            const { batch } = await calls.run("TakeNow", { sessionId: session.id, queue: "lost", takeId: randomId() }, settings);
            const held: Batch = new Held(session, "lost", batch);
            const later = await submit(direct, "lost", "7", "later");
            const cut = proxy.cutNextAnswer();
            const settled = held.complete();
            await cut;
            assert.equal(await state(direct, id!), "complete");
            await next();
            proxy.open();
            await settled;
            for (const request of later) await direct.withdraw(request);
        }
    });

    it("Q10 Q11: after the end of the session is a loss, and the worker goes on under another session", async (test) => {
        const queues = shared.queues(test, SHORT);
        const worker = new Worker(queues, "evicted");
        await submit(queues, "evicted", "7", "");
        const batch = await worker.next();
        const [lane] = await all(queues.listLanes("evicted", "taken"));
        assert.deepEqual([lane?.key, lane?.fence, lane?.takenAt instanceof Date], ["7", batch.fence, true]);
        await evict(shared.url, lane!.sessionId!);
        assert.equal(await code(batch.complete()), "BATCH_LOST");
        assert.deepEqual([batch.signal.aborted, batch.signal.reason.code], [true, "BATCH_LOST"]);
        const again = await worker.next();
        assert.deepEqual(attempts(again), [2]);
        await again.complete();
    });

    it("Q10: is a loss without the server, once the session's silence is over", async (test) => {
        const server = await ClaimsServer.start(test);
        const queues = server.queues(test, SHORT);
        const reconnects: string[] = [];
        const worker = new Worker(queues, "silent", { onReconnect: (error) => reconnects.push(error.code) });
        await submit(queues, "silent", "7", "");
        const batch = await worker.next();
        await server.kill();
        assert.equal(await code(batch.complete()), "BATCH_LOST");
        assert.deepEqual([batch.isHeld, batch.signal.aborted], [false, true]);
        await server.start();
        // The settle may have reached nobody, so the work runs twice.
        assert.deepEqual(attempts(await worker.next()), [2]);
        assert.ok(reconnects.includes("UNAVAILABLE"), reconnects.join());
    });
});

describe("the end of a loop", BOUND, () => {
    it("Q11: by its signal gives back what the loop has not got, and waits for what it has", async (test) => {
        const stop = new AbortController();
        const { queues, worker } = start(test, "stopped", { credit: 3, signal: stop.signal, stopSeconds: 3600 });
        for (const key of ["1", "2", "3"]) await submit(queues, "stopped", key, "");
        const batch = await worker.next();
        const taken = async (): Promise<string[]> => (await all(queues.listLanes("stopped", "taken"))).map(({ key }) => key);
        while ((await taken()).length < 3);
        stop.abort();
        const ended = worker.end();
        while ((await taken()).length > 1);
        assert.deepEqual([await taken(), batch.isHeld], [["1"], true]);
        await batch.complete();
        await ended;
        const others = new Worker(queues, "stopped", { credit: 2 });
        for (const key of ["2", "3"]) {
            const other = await others.next();
            assert.deepEqual([other.key, attempts(other)], [key, [1]]);
        }
    });

    it("Q11: gives back what is unfinished after a while, and tells the holder", async (test) => {
        const stop = new AbortController();
        const { queues, worker } = start(test, "unfinished", { signal: stop.signal, stopSeconds: 0 });
        await submit(queues, "unfinished", "7", "");
        const batch = await worker.next();
        stop.abort();
        assert.match(String(await abortOf(batch.signal)), /the worker has stopped/u);
        assert.equal(await code(batch.complete()), "BATCH_LOST");
        await worker.end();
        assert.deepEqual(attempts(await new Worker(queues, "unfinished").next()), [1]);
    });

    it("Q11 Q13: by the program fails what the loop has got, and gives back the rest", async (test) => {
        const { queues, worker } = start(test, "left", { credit: 2 });
        for (const key of ["1", "2"]) await submit(queues, "left", key, "");
        assert.equal((await worker.next()).key, "1");
        while ((await all(queues.listLanes("left", "taken"))).length < 2);
        await worker.leave();
        const other = new Worker(queues, "left", { credit: 2 });
        const found = [await other.next(), await other.next()].map((batch) => [batch.key, ...attempts(batch)].join());
        assert.deepEqual(found.sort(), ["1,2", "2,1"]);
    });

    it("Q11: counts no attempt of what the server takes at that moment", async (test) => {
        const queues = shared.queues(test, LONG);
        const ids = new Set<string>();
        const work = async (signal: AbortSignal): Promise<void> => {
            for await (const batch of queues.take("raced", { signal, credit: 100, stopSeconds: 0 })) await abortOf(batch.signal);
        };
        for (let round = 0; round < 30; round += 1) {
            const stop = new AbortController();
            const ended = work(stop.signal);
            const submitted = submit(queues, "raced", String(round), "").then(([id]) => ids.add(id!));
            // Each round stops a little later: before, during or after the take.
            for (let step = 0; step < round; step += 1) await queues.getQueue("raced");
            if (round % 2) await submitted;
            stop.abort();
            await Promise.all([ended, submitted]);
        }
        while ((await all(queues.listLanes("raced", "taken"))).length > 0);
        for (const id of ids) {
            const { state, attempts } = (await queues.getRequest(id))!;
            assert.deepEqual([state, attempts], ["new", 0]);
        }
    });

    it("Q11: comes although the server does not answer", async (test) => {
        const server = await ClaimsServer.start(test);
        const stop = new AbortController();
        const queues = server.queues(test, { ...LONG, timeoutSeconds: 1 });
        const worker = new Worker(queues, "down", { signal: stop.signal });
        await submit(queues, "down", "7", "");
        const batch = await worker.next();
        await server.kill();
        const completed = code(batch.complete());
        stop.abort();
        await worker.end();
        assert.equal(await completed, "BATCH_LOST");
        assert.ok(batch.signal.aborted);
    });

    it("is that of the queues", async (test) => {
        const { queues, worker } = start(test, "closing");
        await submit(queues, "closing", "7", "");
        const batch = await worker.next();
        await queues.close();
        assert.equal(await code(batch.complete()), "BATCH_LOST");
        await worker.end();
        assert.equal(await code(new Worker(queues, "closing").next()), "CLOSED");
        assert.deepEqual(attempts(await new Worker(shared.queues(test, LONG), "closing").next()), [1]);
    });
});

describe("a stream", BOUND, () => {
    it("waits for a server that does not answer yet", async (test) => {
        const server = await ClaimsServer.start(test);
        const queues = server.queues(test, { ...LONG, timeoutSeconds: 1 });
        await submit(queues, "early", "7", "");
        await server.kill();
        let wake = (): void => {};
        const failed = new Promise<void>((resolve) => (wake = resolve));
        const next = new Worker(queues, "early", { onReconnect: wake }).next();
        await failed;
        await server.start();
        assert.deepEqual(attempts(await next), [1]);
    });

    for (const signal of ["SIGTERM", "SIGKILL"] as const) {
        it(`Q11: goes on after a ${signal} of the server, and no batch is lost or doubled`, async (test) => {
            const server = await ClaimsServer.start(test);
            const queues = server.queues(test, { ...LONG, timeoutSeconds: 60 } satisfies QueuesSettings);
            const worker = new Worker(queues, "restarted", { credit: 3 });
            const names = Array.from({ length: 12 }, (_, number) => `key ${number}`);
            await queues.submitAll("restarted", names.map((key) => ({ key })));
            const held = [await worker.next(), await worker.next()];
            const seen: string[] = [];
            for (let batch; seen.length < names.length; batch = await worker.next()) {
                if (batch) held.push(batch);
                if (seen.length % 4 === 0) {
                    await server.kill(signal);
                    await server.start();
                }
                const done = held.shift()!;
                assert.deepEqual(attempts(done), [1]);
                await done.complete();
                seen.push(done.key);
                if (seen.length + held.length === names.length) break;
            }
            for (const batch of held) {
                await batch.complete();
                seen.push(batch.key);
            }
            assert.deepEqual(seen.sort(), names.sort());
            assert.deepEqual(await all(queues.listLanes("restarted", "taken")), []);
            assert.equal((await all(queues.listRequests("restarted", "settled"))).length, names.length);
        });
    }
});

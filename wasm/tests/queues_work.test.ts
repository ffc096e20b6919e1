// Workers that call a function with each batch of a queue, on the real server.
import assert from "node:assert/strict";
import { after, before, describe, it, type TestContext } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { type Batch, type LeaseholdError, type Queues, type WorkOptions } from "leasehold/queues";

import { ClaimsServer } from "./support/claims_server.js";
import { evict } from "./support/eviction.js";
import { abortOf, all, code } from "./support/outcomes.js";

/** Terms that never pass in a test. */
const LONG = { sessionDurationSeconds: 3600, sessionGraceSeconds: 60 };
/** The longest time of all tests of one `describe`. */
const BOUND = { timeout: 600_000 };

const shared = new ClaimsServer();
before(() => shared.start());
after(() => shared.end());

/** A worker of a queue that runs until `stop`, and fails the test if it ends by an error. */
class Worker {
    readonly #stop = new AbortController();
    readonly #ended: Promise<void>;

    constructor(test: TestContext, queues: Queues, queue: string, options: WorkOptions, run: (batch: Batch) => unknown) {
        this.#ended = queues.work(queue, { signal: this.#stop.signal, ...options }, run);
        this.#ended.catch(() => {});
        test.after(() => this.stop());
    }

    get signal(): AbortSignal {
        return this.#stop.signal;
    }

    async stop(): Promise<void> {
        this.#stop.abort();
        await this.#ended.catch(() => {});
    }
}

async function submit(queues: Queues, queue: string, ...keys: string[]): Promise<string[]> {
    return (await queues.submitAll(queue, keys.map((key) => ({ key })))).map(({ id }) => id);
}

/** Reads a request until a condition holds. The time limit of the test ends it. */
async function until(queues: Queues, id: string, state: string, attempts: number): Promise<void> {
    for (let found; !(found?.state === state && found.attempts === attempts); found = await queues.getRequest(id)) await turn();
}

describe("work", BOUND, () => {
    it("Q01 Q07: calls its function with up to `credit` batches at a time, each once, and completes them", async (test) => {
        const queues = shared.queues(test, LONG);
        const [seen, most]: [string[], number[]] = [[], []];
        let running = 0;
        let finish = (): void => {};
        const three = new Promise<void>((resolve) => (finish = resolve));
        const worker = new Worker(test, queues, "credit", { credit: 3, stopSeconds: 3600 }, async (batch) => {
            most.push((running += 1));
            if (running === 3) finish();
            await three;
            seen.push(batch.key);
            await turn();
            running -= 1;
        });
        const names = Array.from({ length: 20 }, (_, number) => String(number));
        const ids = await submit(queues, "credit", ...names);
        for (const id of ids) await until(queues, id, "complete", 1);
        await worker.stop();
        assert.deepEqual([seen.sort(), Math.max(...most)], [names.sort(), 3]);
    });

    it("Q13: fails the batch of a function that throws, tells the error, and goes on", async (test) => {
        const queues = shared.queues(test, LONG);
        const mine = new RangeError("mine");
        const told: unknown[] = [];
        const run = (batch: Batch): void => {
            if (batch.requests[0]?.attempt === 1) throw mine;
        };
        const onError = (error: unknown, { key, isHeld }: Batch): unknown => told.push([error, key, isHeld]);
        new Worker(test, queues, "throws", { onError: onError as NonNullable<WorkOptions["onError"]> }, run);
        const [id] = await submit(queues, "throws", "7");
        await until(queues, id!, "complete", 2);
        assert.deepEqual(told, [[mine, "7", false]]);
    });

    it("Q11 Q13: leaves a batch as its function has settled it", async (test) => {
        const queues = shared.queues(test, LONG);
        const attempts: number[] = [];
        const worker = new Worker(test, queues, "settles", {}, async (batch) => {
            attempts.push(batch.requests[0]!.attempt);
            if (attempts.length === 1) await batch.giveBack();
            else if (attempts.length === 2) await batch.fail({ retryAfter: 0 });
            else await batch.complete();
        });
        const [id] = await submit(queues, "settles", "7");
        await until(queues, id!, "complete", 2);
        await worker.stop();
        assert.deepEqual(attempts, [1, 1, 2]);
    });

    it("Q11: ends what it works on after its signal, and takes nothing more", async (test) => {
        const queues = shared.queues(test, LONG);
        let begin = (): void => {};
        const begun = new Promise<void>((resolve) => (begin = resolve));
        let finish = (): void => {};
        const finished = new Promise<void>((resolve) => (finish = resolve));
        const worker = new Worker(test, queues, "stops", { stopSeconds: 3600 }, async () => {
            begin();
            await finished;
        });
        const [first, second] = await submit(queues, "stops", "1", "2");
        await begun;
        const stopped = worker.stop();
        finish();
        await stopped;
        const states = await Promise.all([first, second].map(async (id) => (await queues.getRequest(id!))?.state));
        assert.deepEqual(states, ["complete", "new"]);
    });

    it("Q11: gives back what its signal has cancelled, and what is unfinished after a while", async (test) => {
        const queues = shared.queues(test, LONG);
        const reasons: unknown[] = [];
        const onError = (error: unknown): unknown => reasons.push(error);
        const options = { credit: 2, stopSeconds: 3600, onError: onError as NonNullable<WorkOptions["onError"]> };
        for (const [stopSeconds, hears] of [[3600, "worker"], [0, "batch"]] as const) {
            const begun: Batch[] = [];
            const worker: Worker = new Worker(test, queues, `cancels.${hears}`, { ...options, stopSeconds }, async (batch) => {
                begun.push(batch);
                throw await abortOf(hears === "worker" ? worker.signal : batch.signal);
            });
            const ids = await submit(queues, `cancels.${hears}`, "1", "2");
            while (begun.length < 2) await turn();
            await worker.stop();
            for (const id of ids) {
                const { state, attempts } = (await queues.getRequest(id))!;
                assert.deepEqual([hears, state, attempts], [hears, "new", 0]);
            }
        }
        assert.deepEqual(reasons, []);
    });

    it("Q11: waits for no function that does not end", async (test) => {
        const queues = shared.queues(test, LONG);
        let begun: Batch | undefined;
        const worker = new Worker(test, queues, "endless", { stopSeconds: 0 }, async (batch) => {
            begun = batch;
            await new Promise(() => {});
        });
        const [id] = await submit(queues, "endless", "7");
        while (begun === undefined) await turn();
        await worker.stop();
        await until(queues, id!, "new", 0);
        assert.equal(begun.signal.reason.code, "BATCH_LOST");
    });

    it("Q10: tells the loss of a batch, and goes on under another session", async (test) => {
        const queues = shared.queues(test, { sessionDurationSeconds: 1, sessionGraceSeconds: 1 });
        const told: unknown[] = [];
        const onError = (error: unknown): unknown => told.push((error as LeaseholdError).code);
        new Worker(test, queues, "loses", { onError: onError as NonNullable<WorkOptions["onError"]> }, async (batch) => {
            if (batch.requests[0]?.attempt !== 1) return;
            const [lane] = await all(queues.listLanes("loses", "taken"));
            await evict(shared.url, lane!.sessionId!);
            await abortOf(batch.signal);
        });
        const [id] = await submit(queues, "loses", "7");
        await until(queues, id!, "complete", 2);
        assert.deepEqual(told, ["BATCH_LOST"]);
    });

    it("ends by the error of `onError`, and by a refusal", async (test) => {
        const queues = shared.queues(test, LONG);
        const mine = new RangeError("mine");
        const run = (): never => {
            throw mine;
        };
        const onError = (error: unknown): void => {
            throw error;
        };
        const [id] = await submit(queues, "ends", "7");
        await assert.rejects(queues.work("ends", { onError }, run), mine);
        assert.deepEqual([(await queues.getRequest(id!))?.state, (await queues.getRequest(id!))?.attempts], ["new", 1]);
        assert.equal(await code(queues.work("a..b", {}, run)), "INVALID_UPDATE");
        const closed = shared.queues(test, LONG);
        await closed.close();
        assert.equal(await code(closed.work("ends", {}, run)), "CLOSED");
    });

    it("Q03 Q07: of several workers calls a function with each request once, in the order of its key", async (test) => {
        const server = await ClaimsServer.start(test);
        const seen = new Map<string, number[]>();
        const workers = [1, 2, 3].map(() => {
            const queues = server.queues(test, { ...LONG, timeoutSeconds: 60 });
            return new Worker(test, queues, "many", { credit: 4, maxRequests: 3, stopSeconds: 3600 }, async ({ key, requests }) => {
                await turn();
                seen.set(key, [...(seen.get(key) ?? []), ...requests.map(({ body }) => body[0]!)]);
            });
        });
        const queues = server.queues(test, { ...LONG, timeoutSeconds: 60 });
        const names = Array.from({ length: 10 }, (_, number) => `key ${number}`);
        const ids: string[] = [];
        for (let number = 0; number < 20; number += 1) {
            const requests = names.map((key) => ({ key, body: Uint8Array.of(number) }));
            ids.push(...(await queues.submitAll("many", requests)).map(({ id }) => id));
            if (number % 8 !== 7) continue;
            await server.kill(number === 7 ? "SIGKILL" : "SIGTERM");
            await server.start();
        }
        for (const id of ids) await until(queues, id, "complete", 1);
        const order = Array.from({ length: 20 }, (_, number) => number);
        assert.deepEqual(seen, new Map([...seen.keys()].map((key) => [key, order])));
        assert.equal(seen.size, 10);
        await Promise.all(workers.map((worker) => worker.stop()));
    });
});

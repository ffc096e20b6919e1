// pg-boss: each client sends a job, takes one and completes it, in a loop. In each process, takes that are due together are
// one fetch, which is faster than a fetch for each. Each job is completed by a call of its own. Its maintenance and its
// schedules are off, and PostgreSQL has prepared its statements: pg-boss lets a program run them in its own way. The queue has
// a table of its own, which has fewer indexes. Takes of 16, 32 or 100 jobs ahead, and three processes, were not faster.

import { fileURLToPath } from "node:url";

import pg from "pg";
import { PgBoss } from "pg-boss";

import { BODY, main } from "./harness.mjs";

const QUEUE = "bench";

/** Runs the statements of pg-boss. Each connection prepares each statement once. */
class Prepared {
    #names = new Map();

    constructor(url, connections) {
        this.pool = new pg.Pool({ connectionString: url, max: connections });
    }

    executeSql(text, values) {
        if (!this.#names.has(text)) {
            this.#names.set(text, `statement-${this.#names.size}`);
        }
        return this.pool.query({ name: this.#names.get(text), text, values });
    }
}

/** Fetches jobs for all clients of a process that wait for one. */
class Fetcher {
    #waiting = [];
    #isFetching = false;

    constructor(boss) {
        this.boss = boss;
    }

    /** Returns the next job. */
    next() {
        const job = new Promise((resolve) => this.#waiting.push(resolve));
        if (!this.#isFetching) {
            // A fetch that fails ends the process.
            void this.#fetch();
        }
        return job;
    }

    async #fetch() {
        this.#isFetching = true;
        while (this.#waiting.length > 0) {
            const jobs = await this.boss.fetch(QUEUE, { batchSize: this.#waiting.length });
            for (const job of jobs) {
                this.#waiting.shift()(job);
            }
        }
        this.#isFetching = false;
    }
}

async function prepare(url, waiting) {
    const boss = new PgBoss({ connectionString: url });
    await boss.start();
    await boss.createQueue(QUEUE, { partition: true });
    await boss.insert(
        QUEUE,
        Array.from({ length: waiting }, () => ({ data: BODY })),
    );
    await boss.stop();
}

async function work(url, clients, counter) {
    const boss = new PgBoss({ db: new Prepared(url, clients), supervise: false, schedule: false, migrate: false });
    await boss.start();
    const fetcher = new Fetcher(boss);
    const client = async () => {
        while (!counter.isOver) {
            await boss.send(QUEUE, BODY);
            const { id } = await fetcher.next();
            await boss.complete(QUEUE, id);
            counter.add();
        }
    };
    await Promise.all(Array.from({ length: clients }, client));
}

await main(fileURLToPath(import.meta.url), prepare, work);

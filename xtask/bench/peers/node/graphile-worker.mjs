// graphile-worker: a pool of workers in each process. Each job adds the next one as its work, so that each worker submits,
// takes and completes one job after the other. Jobs are taken in batches of 100 by its local queue, and each is completed by
// a statement of its own. Completed jobs are deleted. The inserts limit it: each fires a NOTIFY, and PostgreSQL holds a lock
// of the whole cluster from there to the end of the COMMIT. Batches of 300, one process, four processes and a prepared
// statement for the inserts were not faster.

import { EventEmitter } from "node:events";
import { fileURLToPath } from "node:url";

import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

import { BODY, main } from "./harness.mjs";

/** The jobs of a take. */
const LOCAL_QUEUE = 100;

const errorsOnly = new Logger(() => (level, message) => {
    if (level === "error") {
        console.error(message);
    }
});

async function prepare(url, waiting) {
    const utils = await makeWorkerUtils({ connectionString: url, logger: errorsOnly });
    await utils.migrate();
    await utils.addJobs(Array.from({ length: waiting }, () => ({ identifier: "bench", payload: BODY })));
    await utils.release();
}

async function work(url, clients, counter) {
    const pgPool = new pg.Pool({ connectionString: url, max: clients });
    for (const event of ["error", "connect"]) {
        // The peer warns of a pool without these.
        pgPool.on(event, () => {});
    }
    const events = new EventEmitter();
    events.on("job:success", () => counter.add());
    const runner = await run({
        pgPool,
        events,
        logger: errorsOnly,
        noHandleSignals: true,
        taskList: { bench: async (_, helpers) => void (await helpers.addJob("bench", BODY)) },
        preset: { worker: { concurrentJobs: clients, pollInterval: 100, localQueue: { size: LOCAL_QUEUE } } },
    });
    await runner.promise;
}

await main(fileURLToPath(import.meta.url), prepare, work);

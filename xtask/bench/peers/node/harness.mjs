// Measures a peer: starts processes of workers together, lets them warm up, and counts the jobs that they complete.

import { fork } from "node:child_process";
import { parseArgs } from "node:util";

/** The body of a job has as many bytes as that of Leasehold's requests. */
export const BODY = { body: "7".repeat(89) };
/** The time that the processes have to connect, before the warm-up. */
const STARTUP_MS = 3_000;
/** The jobs that wait for each worker. A worker of an empty queue would wait for a poll. */
const WAITING_PER_CLIENT = 16;

/** Counts the jobs that are completed within the measurement. */
class Counter {
    count = 0;

    constructor(start, end) {
        this.start = start;
        this.end = end;
    }

    /** Counts a job that is completed now. */
    add() {
        const now = Date.now();
        if (this.start <= now && now < this.end) {
            this.count += 1;
        }
    }

    /** True once the measurement is over. */
    get isOver() {
        return Date.now() >= this.end;
    }
}

/** Runs the workers of this process, and sends the number of jobs that they completed to the parent. */
function beChild(work) {
    process.once("message", async ({ url, clients, start, end }) => {
        const counter = new Counter(start, end);
        // A timer can fire a millisecond before `Date.now()` is at the end. So the end is not read from the clock again.
        const over = new Promise((resolve) => setTimeout(resolve, end - Date.now(), true));
        const ended = work(url, clients, counter).then(() => counter.isOver);
        if (!(await Promise.race([over, ended]))) {
            throw new Error("the workers have ended early");
        }
        // The workers are not stopped: a graceful end takes the peers seconds, and their database is dropped anyway.
        process.send(counter.count, () => process.exit());
    });
    process.send("running");
}

/** Starts a process of workers, and returns it once it has loaded its packages. */
function startChild(script) {
    return new Promise((resolve, reject) => {
        // graphile-worker writes no line of log for each job then.
        const started = fork(script, { env: { ...process.env, NO_LOG_SUCCESS: "1" } });
        started.once("message", () => resolve(started));
        started.once("exit", (code) => reject(new Error(`a process has not started: ${code}`)));
    });
}

/** Runs the workers of a process, and returns the number of jobs that they completed. */
function countOf(started, settings) {
    return new Promise((resolve, reject) => {
        started.once("message", resolve);
        started.once("exit", (code) => reject(new Error(`a process has ended early: ${code}`)));
        started.send(settings);
    });
}

async function beParent(script, prepare) {
    const names = ["url", "clients", "processes", "warm-up-seconds", "seconds"];
    const options = Object.fromEntries(names.map((name) => [name, { type: "string" }]));
    const { values } = parseArgs({ options });
    const [clients, processes, seconds] = [values.clients, values.processes, values.seconds].map(Number);
    await prepare(values.url, clients * WAITING_PER_CLIENT);
    // On a busy machine, a process needs seconds until it has loaded its packages. They are not measured.
    const children = await Promise.all(Array.from({ length: processes }, () => startChild(script)));
    const start = Date.now() + STARTUP_MS + Number(values["warm-up-seconds"]) * 1000;
    const end = start + seconds * 1000;
    const share = (index) => Math.floor((clients + index) / processes);
    const counts = await Promise.all(
        children.map((started, index) => countOf(started, { url: values.url, clients: share(index), start, end })),
    );
    const total = counts.reduce((sum, count) => sum + count, 0);
    console.log(JSON.stringify({ rate: total / seconds }));
    process.exit();
}

/**
 * Measures a peer with the command line's arguments, and prints its jobs in a second as JSON.
 *
 * `prepare(url, waiting)` installs the peer's tables, and submits this number of jobs. `work(url, clients, counter)` runs
 * this number of workers in a process, each of which submits, takes and completes one job after the other.
 */
export async function main(script, prepare, work) {
    if (process.send) {
        beChild(work);
    } else {
        await beParent(script, prepare);
    }
}

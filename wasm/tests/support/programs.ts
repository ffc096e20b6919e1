// Programs that hold locks or take batches in processes of their own.
import assert from "node:assert/strict";
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";

/**
 * The head of each program: it can say lines, call a function for the next line that it hears, and
 * wait until a lock's session was renewed.
 */
const HEAD = `
import { setImmediate as turn } from "node:timers/promises";

import { connect } from "leasehold/locks";
import { connect as connectQueues } from "leasehold/queues";

const [, address, ...words] = process.argv;
const say = (...words) => console.log(words.join(" "));
const hear = (then) => process.stdin.once("data", then);
const renewed = async (lock) => {
    for (let [before, after] = [Infinity, Infinity]; after <= before; [before, after] = [after, lock.remainingSeconds]) {
        await turn();
        lock.check();
    }
};
const SHORT = { address, sessionDurationSeconds: 1, sessionGraceSeconds: 1 };
// The program may pause for some seconds at any moment, and still has its session.
const STEADY = { address, sessionDurationSeconds: 1, sessionGraceSeconds: 9 };
`;

/** The directory of the package, in which programs find the package by its name. */
const PACKAGE = fileURLToPath(new URL("../../../", import.meta.url));

/** A running program. It is killed at the end of the test. */
export class Program {
    readonly #process: ChildProcessByStdio<Writable, Readable, Readable>;
    readonly #lines: AsyncIterator<string>;
    readonly #errors: Promise<string>;
    readonly #exit: Promise<unknown[]>;

    constructor(test: TestContext, body: string, ...words: string[]) {
        const command = ["--input-type=module", "--eval", HEAD + body, ...words];
        this.#process = spawn(process.execPath, command, { cwd: PACKAGE, stdio: ["pipe", "pipe", "pipe"] });
        this.#lines = createInterface({ input: this.#process.stdout })[Symbol.asyncIterator]();
        this.#errors = text(this.#process.stderr);
        this.#exit = once(this.#process, "exit");
        test.after(() => this.#process.kill("SIGKILL"));
    }

    /** Returns the next line that the program says. */
    async line(): Promise<string> {
        const { value, done } = await this.#lines.next();
        if (done) assert.fail(`the program ended: ${await this.#errors}`);
        return value;
    }

    tell(): void {
        this.#process.stdin.write("on\n");
    }

    signal(signal: NodeJS.Signals): void {
        this.#process.kill(signal);
    }

    /** True if the program is stopped by a signal (proc(5), the third field of `stat`). */
    get isStopped(): boolean {
        return readFileSync(`/proc/${this.#process.pid}/stat`, "utf8").split(") ")[1]?.startsWith("T") === true;
    }

    /** Waits for the end of the program, and fails if it has failed. */
    async end(): Promise<void> {
        const [code] = await this.#exit;
        assert.deepEqual([code, await this.#errors], [0, ""]);
    }
}

// Locks that several processes want: processes that fight, are stopped, or end.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { ClaimsServer } from "./support/claims_server.js";
import { Program } from "./support/programs.js";

const BOUND = { timeout: 600_000 };

/** Each round reads the file, gives the others time to read it too, and writes it. */
const FIGHT = `
import { readFileSync, writeFileSync } from "node:fs";

const [path] = words;
const locks = connect({ address });
for (let round = 0; round < 20; round += 1) {
    await locks.lock("fight", "file", { wait: 60 }, async ({ fence }) => {
        const seen = readFileSync(path, "utf8");
        await turn();
        writeFileSync(path, seen + fence + " ");
    });
}
await locks.close();
`;

/** The first thing that the program does after it was stopped is to look at its lock. */
const STOPPED = `
const locks = connect(STEADY);
const lock = await locks.acquire("work", "q");
const { signal } = lock;
await renewed(lock);
signal.addEventListener("abort", () => say("told", signal.reason.code));
hear(async () => {
    say(lock.isHeld, lock.remainingSeconds, lock.standing, lock.signal.aborted);
    await lock.release().catch((error) => say(error.code));
    await locks.close();
    process.exit();
});
say(lock.fence);
`;

/** The lock's signal is told without a look at the lock. */
const TOLD = `
const locks = connect(STEADY);
const lock = await locks.acquire("work", "q");
const { fence, signal } = lock;
await renewed(lock);
signal.addEventListener("abort", () => {
    say("told", signal.reason.code);
    process.exit();
});
hear(() => {});
say(fence);
`;

/** Neither an open session nor its thread keeps the process alive. */
const ENDS = `
const lock = await connect(STEADY).acquire("work", "q");
await renewed(lock);
say(lock.fence);
`;

/** Starts a program that holds the lock, and stops it until the lock has passed on. */
async function stopped(test: TestContext, body: string): Promise<Program> {
    const server = await ClaimsServer.start(test);
    const locks = server.connect(test);
    const program = new Program(test, body, server.url);
    const fence = BigInt(await program.line());
    program.signal("SIGSTOP");
    while (!program.isStopped) await turn();
    program.tell();
    assert.ok((await locks.acquire("work", "q", { wait: 60 })).fence > fence);
    assert.equal((await locks.get("work", "q")).last?.end, "expired");
    program.signal("SIGCONT");
    return program;
}

describe("processes", BOUND, () => {
    it("K01 K05: that fight for a lock never hold it together", async (test) => {
        const server = await ClaimsServer.start(test);
        const directory = mkdtempSync(join(tmpdir(), "leasehold-fight-"));
        test.after(() => rmSync(directory, { recursive: true }));
        const path = join(directory, "file");
        writeFileSync(path, "");
        const fighters = [1, 2, 3].map(() => new Program(test, FIGHT, server.url, path));
        await Promise.all(fighters.map((fighter) => fighter.end()));
        const fences = readFileSync(path, "utf8").trim().split(" ").map(Number);
        assert.equal(fences.length, 60);
        assert.deepEqual(fences, [...new Set(fences)].sort((one, other) => one - other));
    });

    it("K02 K06 K11: that were stopped past their terms know the loss at their first look", async (test) => {
        const program = await stopped(test, STOPPED);
        // The signal is told by the look, or by an event that comes before it.
        const said = [await program.line(), await program.line()].sort();
        assert.deepEqual(said, ["false 0 lost true", "told LOCK_LOST"]);
        assert.equal(await program.line(), "LOCK_LOST");
        await program.end();
    });

    it("K11: that were stopped past their terms are told by the lock's signal", async (test) => {
        const program = await stopped(test, TOLD);
        assert.equal(await program.line(), "told LOCK_LOST");
        await program.end();
    });

    it("end, although they hold a lock", async (test) => {
        const server = await ClaimsServer.start(test);
        const program = new Program(test, ENDS, server.url);
        assert.ok(BigInt(await program.line()) > 0n);
        await program.end();
    });
});

// Workers in processes of their own, which are killed or asked to stop.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";

import { type Batch, type Queues } from "leasehold/queues";

import { ClaimsServer } from "./support/claims_server.js";
import { Program } from "./support/programs.js";

const BOUND = { timeout: 600_000 };
/** Terms that never pass in a test. */
const LONG = { sessionDurationSeconds: 3600, sessionGraceSeconds: 60 };

/** Works on what it gets until the process is killed. */
const KILLED = `
const queues = connectQueues(SHORT);
await queues.work("sheets", {}, async (batch) => {
    await batch.noteProgress("half");
    say(batch.key, batch.requests[0].attempt);
    await new Promise(() => {});
});
`;

/** Stops at SIGTERM. The function ends once the program hears a line, if the stop leaves it the time. */
const STOPPED = `
const stop = new AbortController();
process.once("SIGTERM", () => {
    stop.abort();
    say("stopping");
});
const heard = new Promise((resolve) => hear(resolve));
const queues = connectQueues({ address, sessionDurationSeconds: 3600 });
await queues.work("sheets", { signal: stop.signal, stopSeconds: Number(words[0]) }, async (batch) => {
    say(batch.key, batch.requests[0].attempt);
    await heard;
});
await queues.close();
say("ended");
process.stdin.destroy();
`;

async function start(test: TestContext, body: string, ...words: string[]): Promise<{ queues: Queues; id: string; program: Program }> {
    const server = await ClaimsServer.start(test);
    const queues = server.queues(test, LONG);
    const { id } = await queues.submit("sheets", { key: "7" });
    return { queues, id, program: new Program(test, body, server.url, ...words) };
}

/** Takes the next batch as another worker, which gives it back at the end of the test. */
async function next(queues: Queues): Promise<Batch> {
    const { value, done } = await queues.take("sheets", { stopSeconds: 0 }).next();
    return done ? assert.fail("the loop has ended") : value;
}

describe("a process", BOUND, () => {
    it("Q03 Q20: that is killed loses its requests to another worker, which gets its progress", async (test) => {
        const { queues, program } = await start(test, KILLED);
        assert.equal(await program.line(), "7 1");
        program.signal("SIGKILL");
        const batch = await next(queues);
        assert.equal(batch.requests[0]?.attempt, 2);
        assert.equal(new TextDecoder().decode(batch.progress), "half");
        await batch.complete();
    });

    it("Q11: that is asked to stop gives back what it does not end in time", async (test) => {
        const { queues, program } = await start(test, STOPPED, "0");
        assert.equal(await program.line(), "7 1");
        program.signal("SIGTERM");
        assert.deepEqual([await program.line(), await program.line()], ["stopping", "ended"]);
        await program.end();
        assert.equal((await next(queues)).requests[0]?.attempt, 1);
    });

    it("Q11: that is asked to stop ends what it works on, and takes nothing more", async (test) => {
        const { queues, id, program } = await start(test, STOPPED, "3600");
        assert.equal(await program.line(), "7 1");
        const other = await queues.submit("sheets", { key: "8" });
        program.signal("SIGTERM");
        assert.equal(await program.line(), "stopping");
        program.tell();
        assert.equal(await program.line(), "ended");
        await program.end();
        const states = await Promise.all([id, other.id].map(async (request) => (await queues.getRequest(request))?.state));
        assert.deepEqual(states, ["complete", "new"]);
    });
});

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";

import { Reconciliation, Verification } from "leasehold";
import { Explorer, ruleWorld, Simulation } from "leasehold/simulation";

import { thrownBy } from "./support.js";

const PACKAGE = fileURLToPath(new URL("../../", import.meta.url));

/** Calls a function while `JSON.parse` throws, which the simulation calls in the middle of its code. */
function withoutJson(call: () => unknown): unknown {
    const { parse } = JSON;
    JSON.parse = () => {
        throw new RangeError("no JSON");
    };
    try {
        return call();
    } finally {
        JSON.parse = parse;
    }
}

/** Returns a simulation in which a call was stopped in its middle. */
function brokenRun(): Simulation {
    const run = new Simulation({ cells: 1 });
    assert.equal(thrownBy(() => withoutJson(() => run.view())).code, "PANIC");
    return run;
}

/**
 * Plays 200,000 events in a process whose wasm file may have so many megabytes. Returns the results of
 * this call and of the next one, and a word for the end of the object.
 */
function playedWith(megabytes: number): string {
    const program = `
        import { LeaseholdError, Simulation } from "leasehold/simulation";
        const run = new Simulation({ cells: 1, seed: 7 });
        const results = [() => run.play(200_000), () => run.step()].map((call) => {
            try { return call(); } catch (error) { return error instanceof LeaseholdError ? error.code : error; }
        });
        run.free();
        console.log(...results, "freed");`;
    const options = [`--wasm-max-mem-pages=${megabytes * 16}`, "--input-type=module", "--eval", program];
    return execFileSync(process.execPath, options, { cwd: PACKAGE, encoding: "utf8" }).trim();
}

it("a long run does not need memory for a world of each 64 events", () => {
    assert.equal(playedWith(200), "200000 false freed");
});

describe("an object that is freed", () => {
    it("says so for each member, and may be freed again", () => {
        const run = new Simulation();
        run.free();
        run.free();
        const calls = [() => run.play(1), () => run.position, () => run.view(), () => run.apply("forget"), () => run.trace()];
        for (const call of calls) {
            const { code, message } = thrownBy(call);
            assert.deepEqual([code, message], ["CLOSED", "this `Simulation` is freed: create another one"]);
        }
    });

    it("is freed at the end of its block by `using`", () => {
        const explorer = new Explorer(ruleWorld("grace"));
        explorer[Symbol.dispose]();
        assert.equal(thrownBy(() => explorer.explore(1)).code, "CLOSED");
    });
});

describe("an object whose call was stopped in its middle", () => {
    it("says so for each later call, and can be freed", () => {
        const run = brokenRun();
        for (const call of [() => run.view(), () => run.step(), () => run.length, () => run.apply("forget")]) {
            const { code, message } = thrownBy(call);
            assert.equal(code, "PANIC");
            assert.match(message, /this `Simulation` can't be used any longer.*: free it and create another one/u);
        }
        run.free();
        run[Symbol.dispose]();
    });

    it("leaves other objects as they were", () => {
        const other = new Simulation({ cells: 1, seed: 7 });
        const trace = other.trace();
        brokenRun().free();
        assert.equal(other.trace(), trace);
        assert.equal(other.play(100), 100);
    });

    it("throws the cause of the stop with it", () => {
        const run = new Simulation();
        const error = thrownBy(() => withoutJson(() => run.marks()));
        assert.ok(error.cause instanceof RangeError);
        assert.match(error.message, /stopped in the middle of a call/u);
    });

    it("says so if memory ran out", () => {
        assert.equal(playedWith(32), "PANIC PANIC freed");
    });
});

describe("a method", () => {
    it("that is called without its object says so", () => {
        const { step, feed } = new Reconciliation({ stale_after_micros: 1n, rows_per_page: 1 });
        const { message, code } = thrownBy(() => step.call(undefined as never));
        assert.deepEqual([code, message], ["INVALID_ARGUMENT", "`step` is called without its `Reconciliation`: call it as a method of one"]);
        assert.equal(thrownBy(() => feed.call(new Simulation() as never, { event: "deleted" })).code, "INVALID_ARGUMENT");
    });

    it("of construction says that `new` is missing", () => {
        for (const Class of [Simulation, Explorer, Reconciliation, Verification]) {
            const { message, code } = thrownBy(() => Reflect.apply(Class, undefined, [{}]));
            assert.deepEqual([code, message], ["INVALID_ARGUMENT", `\`${Class.name}\` is called without \`new\`: write \`new ${Class.name}(…)\``]);
        }
        class Derived extends Simulation {}
        assert.ok(new Derived() instanceof Simulation);
        assert.equal(new Derived().play(1), 1);
    });

    it("and its class have their names", () => {
        assert.deepEqual([Reconciliation.name, Reconciliation.prototype.feed.name, Simulation.load.name], ["Reconciliation", "feed", "load"]);
        assert.ok(Simulation.load(new Simulation().trace()) instanceof Simulation);
    });
});

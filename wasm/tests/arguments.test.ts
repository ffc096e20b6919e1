import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";

import * as leasehold from "leasehold";
import { canonicalForm, checkBatch, encodeSourceId, Reconciliation, Verification, type VerificationSettings } from "leasehold";
import * as simulation from "leasehold/simulation";
import { Explorer, type Plan, ruleWorld, type Settings, Simulation } from "leasehold/simulation";

import { NOW, sourceId, thrownBy, USER, USERNAMES, username, USERS } from "./support.js";
import { callAwkwardly, type GoodCall } from "./support/awkward.js";

/** The exports of the wasm files, without the checks of their arguments. */
const [wasmEngine, wasmSimulation] = (await Promise.all(
    ["leasehold", "simulation"].map((name) => import(new URL(`../../pkg/${name}.js`, import.meta.url).href)),
)) as [object, object];

type Call = (...values: unknown[]) => unknown;

/** Returns the call of a method. `make` returns an object in the state that the method needs. */
function method<T extends object>(make: () => T, name: keyof T, ...good: unknown[]): GoodCall {
    return { call: (...values) => ((object: T) => (object[name] as Call).apply(object, values))(make()), good };
}

const VERIFICATION: VerificationSettings = {
    source_type: USERS, bucket_types: [USERNAMES], recent_within_micros: 1n, rows_per_page: 10, dry_run: false, max_destroy_share: 1, hash_seed: 0n,
};
const ROWS = {
    keys: BigInt64Array.of(1n), updated_at: BigInt64Array.of(1n),
    claims: [{ bucket_type: USERNAMES, values: ["alice"], subject_type: USER, subject_ids: BigInt64Array.of(1n) }],
};
const RECORDS = {
    source_ids: [sourceId(1n)], bucket_types: Int32Array.of(USERNAMES), values: ["alice"], subject_types: Int32Array.of(USER),
    subject_ids: BigInt64Array.of(1n), updated_at: BigInt64Array.of(1n), held: [false],
};
const LEASE = "01a1fefb-0383-7360-95c3-3b4e0d5dfab0";

const reconciliation = (): Reconciliation => new Reconciliation({ stale_after_micros: 1n, rows_per_page: 10 });
const verification = (): Verification => new Verification(VERIFICATION);

function bound(): Verification {
    const run = verification();
    run.bound();
    return run;
}

function withRecords(): Verification {
    const run = bound();
    run.records({ ...RECORDS }, false, NOW);
    return run;
}

function withUpdate(): Verification {
    const run = withRecords();
    run.rows({ ...ROWS, claims: [{ ...ROWS.claims[0]!, values: ["bob"] }] }, NOW);
    return run;
}

/** Returns a verification run that waits for the result of an update of its. */
function beginning(): Verification {
    const run = withUpdate();
    run.rows({ ...ROWS, claims: [{ ...ROWS.claims[0]!, values: ["bob"] }] }, NOW);
    assert.equal(run.step().step, "begin");
    return run;
}

const ENGINE: Record<string, GoodCall> = {
    canonicalForm: { call: canonicalForm as Call, good: [USERNAMES, "alice"] },
    checkBatch: { call: checkBatch as Call, good: [[username("alice")], [username("bob")]], mayLack: /^\d\.(subject|source)$/u },
    encodeSourceId: { call: encodeSourceId as Call, good: [7n], mayBe: "string" },
    "new Reconciliation": { call: (...values) => Reflect.construct(Reconciliation, values), good: [{ stale_after_micros: 1n, rows_per_page: 10 }] },
    "Reconciliation.step": method(reconciliation, "step"),
    "Reconciliation.feed": {
        ...method(reconciliation, "feed", { event: "leases", leases: [{ created_at: 1n, lease: LEASE }], now: NOW, cursor: "next" }),
        mayLack: /^cursor$/u,
    },
    "Reconciliation.summary": method(reconciliation, "summary"),
    "new Verification": { call: (...values) => Reflect.construct(Verification, values), good: [VERIFICATION], mayLack: /^max_destroy_share$/u },
    "Verification.step": method(verification, "step"),
    "Verification.bound": { ...method(verification, "bound", sourceId(7n)), mayLack: /^$/u },
    "Verification.records": method(bound, "records", RECORDS, false, NOW),
    "Verification.rows": { ...method(withRecords, "rows", ROWS, NOW), mayLack: /^(updated_at|claims\.0\.values\.0)$/u, mayBe: "[object BigInt64Array]" },
    "Verification.unchanged": method(verification, "unchanged"),
    "Verification.begun": method(verification, "begun"),
    "Verification.settled": method(verification, "settled"),
    "Verification.refused": method(beginning, "refused", [{ list: "creates", position: 0, code: "CLAIM_BUSY" }]),
    "Verification.failed": method(verification, "failed"),
    "Verification.proceed": method(verification, "proceed"),
    "Verification.stop": method(verification, "stop"),
    "Verification.checkpoint": method(verification, "checkpoint"),
    "Verification.report": method(verification, "report"),
    "Verification.takeFindings": method(verification, "takeFindings"),
};

const world = new Simulation({ cells: 1, seed: 7 });
world.play(20);
const inWorld = (name: keyof Simulation, ...good: unknown[]): GoodCall => method(() => world, name, ...good);
const plan = { ...ruleWorld("replay_keys"), before: ["forget"], works: [], starts: ["forget"], drifts: [[1, { insert: 0 }]] };

const SIMULATION: Record<string, GoodCall> = {
    rules: { call: simulation.rules, good: [] },
    scenarios: { call: simulation.scenarios, good: [] },
    transitionTables: { call: simulation.transitionTables, good: [] },
    ruleWorld: { call: ruleWorld as Call, good: ["grace"] },
    "new Explorer": {
        call: (...values) => new Explorer(...(values as [Plan])).explore(50),
        good: [plan],
        mayLack: /^(before|works|starts|drifts|allowance\.\w+|settings\.\w+|settings\.locks\.\w+)$/u,
    },
    "Explorer.explore": method(() => new Explorer(ruleWorld("replay_keys")), "explore", 1),
    "Explorer.progress": method(() => new Explorer(ruleWorld("replay_keys")), "progress"),
    "Explorer.found": method(() => new Explorer(ruleWorld("replay_keys")), "found"),
    "new Simulation": {
        call: (...values) => new Simulation(...(values as [Partial<Settings>])).play(50),
        good: [{ ...world.settings(), locks: { count: 2, duration_seconds: 4, grace_seconds: 2, tick_millis: 1000 } }],
        mayLack: /^(\w*|locks\.\w+)$/u,
    },
    "Simulation.load": { call: Simulation.load as Call, good: [world.trace()] },
    "Simulation.settings": inWorld("settings"),
    "Simulation.trace": inWorld("trace"),
    "Simulation.step": inWorld("step"),
    "Simulation.back": inWorld("back"),
    "Simulation.seek": inWorld("seek", 3),
    "Simulation.apply": method(() => new Simulation({ cells: 1 }), "apply", { save: { cell: 1, worker: 0, change: { create_two: [0, 1] } } }),
    "Simulation.play": inWorld("play", 1),
    "Simulation.quiesce": inWorld("quiesce"),
    "Simulation.possible": inWorld("possible"),
    "Simulation.nextCalm": { ...inWorld("nextCalm", 3), mayLack: /^$/u },
    "Simulation.describe": inWorld("describe", { drift: { cell: 1, drift: { rename: { row: 1, name: 0 } } } }),
    "Simulation.view": inWorld("view"),
    "Simulation.entries": inWorld("entries", 0, 4),
    "Simulation.arrows": inWorld("arrows", 0, 4),
    "Simulation.marks": inWorld("marks"),
    "Simulation.minimise": inWorld("minimise"),
};

/** Returns the names of a wasm file's functions and classes with their methods, as the tables above have them. */
function callsOf(wasm: object, exported: object): string[] {
    const isOwn = ([name]: [string, unknown]): boolean => name in exported;
    return Object.entries(wasm as Record<string, Call>).filter(isOwn).flatMap(([name, value]) => {
        if (!Object.hasOwn(value, "prototype") || !("free" in (value.prototype as object))) return [name];
        const members = Object.entries({ ...Object.getOwnPropertyDescriptors(value.prototype), ...Object.getOwnPropertyDescriptors(value) });
        const methods = members.filter(([member, { value }]) => typeof value === "function" && !/^(constructor|free|__.*)$/u.test(member));
        return [`new ${name}`, ...methods.map(([member]) => `${name}.${member}`)];
    });
}

for (const [title, calls, wasm, exported] of [
    ["leasehold", ENGINE, wasmEngine, leasehold],
    ["leasehold/simulation", SIMULATION, wasmSimulation, simulation],
] as const) {
    describe(`each call of ${title} refuses what it can't take`, () => {
        it("the calls below are all calls of the wasm file", () => {
            assert.deepEqual(Object.keys(calls).sort(), callsOf(wasm, exported).sort());
        });

        for (const [name, call] of Object.entries(calls)) {
            it(name, (context) => {
                context.diagnostic(`${callAwkwardly(name, call)} calls`);
            });
        }
    });
}

describe("the message of a refused argument", () => {
    const wrong = (call: unknown, ...values: unknown[]): string => {
        const { code, message } = thrownBy(() => (call as Call)(...values));
        assert.equal(code, "INVALID_ARGUMENT");
        return message;
    };

    it("names a list of claims as the caller does", () => {
        const invalid = { ...username("alice"), bucket_value: "" };
        const { message } = thrownBy(() => checkBatch([invalid], []));
        assert.match(message, /creates\[0\]/u);
        assert.doesNotMatch(message, /_records/u);
    });

    it("says of an event what is wrong with it, and of a number its true bounds", () => {
        const world = new Simulation();
        const apply = (event: unknown): string => wrong(() => world.apply(event as never));
        assert.match(apply({}), /^`event` is an empty object: pass one whose only member is one of `/u);
        assert.match(apply({ nonsense: 1 }), /^`event` is an object with the member `nonsense`: pass one whose/u);
        assert.match(apply({ wait: { seconds: 1 }, tick: {} }), /^`event` is an object with 2 members: pass one whose/u);
        for (const cells of [-1, 0, 9]) assert.equal(wrong(() => new Simulation({ cells })), `\`settings.cells\` is ${cells}: pass an integer from 1 to 8`);
        world.free();
    });

    it("names the argument, what was given and what to pass", () => {
        assert.equal(wrong(canonicalForm, 4.7, "Alice"), "`bucket_type` is 4.7: pass an integer from -2147483648 to 2147483647");
        assert.equal(wrong(canonicalForm, 2 ** 32 + 4, "Alice"), "`bucket_type` is 4294967300: pass an integer from -2147483648 to 2147483647");
        assert.equal(wrong(canonicalForm, "4", "Alice"), "`bucket_type` is a string: pass an integer from -2147483648 to 2147483647");
        assert.equal(wrong(canonicalForm, 4, 5), "`value` is a number: pass a string");
        assert.equal(wrong(canonicalForm, 4), "`value` is missing: pass a string");
        assert.equal(wrong(canonicalForm, 4, null), "`value` is null: pass a string");
        assert.equal(wrong(canonicalForm, 4, new Date(0)), "`value` is a Date: pass a string");
        assert.equal(wrong(Simulation.load, 4), "`trace` is a number: pass a string");
        assert.equal(wrong((run: Simulation) => run.play(-1), world), "`events` is -1: pass an integer from 0 to 1000000");
    });

    it("has the path of a wrong part", () => {
        const claim = { ...username("alice"), subject: { subject_type: 4, id: 7 } };
        assert.equal(wrong(checkBatch, [username("bob"), claim], []), "`creates[1].subject.id` is 7: pass a bigint from -9223372036854775808 to 9223372036854775807");
        assert.equal(wrong(() => world.apply({ wait: { seconds: -1 } })), "`event.wait.seconds` is -1: pass an integer from 0 to 4294967295");
        assert.equal(wrong(() => world.apply({ wait: { hours: 1 } } as never)), "`event.wait` has the unknown member `hours`: pass only `seconds`");
        assert.equal(wrong(() => world.apply("wait" as never)), "`event.wait` is missing: pass an object with `seconds`");
        assert.equal(wrong(() => Reflect.construct(Reconciliation, [])), "`settings` is missing: pass an object with `stale_after_micros`, `rows_per_page`");
    });

    it("says that a page has rows", () => {
        const message = "`settings.rows_per_page` is 0: pass an integer from 1 to 4294967295";
        assert.equal(wrong(() => new Verification({ ...VERIFICATION, rows_per_page: 0 })), message);
        assert.equal(wrong(() => new Reconciliation({ stale_after_micros: 1n, rows_per_page: 0 })), message);
    });

    it("names the array for a column of integers", () => {
        const rowsWith = (part: object): string => thrownBy(() => withRecords().rows({ ...ROWS, ...part }, NOW)).message;
        const wanted = "or the whole column of integers as a `BigInt64Array`";
        assert.equal(rowsWith({ keys: [7n, 8n] }), `\`rows.keys[0]\` is 7n: pass a string, \`{ text: "…" }\` or a \`Uint8Array\`, ${wanted}`);
        assert.equal(rowsWith({ claims: [{ ...ROWS.claims[0], values: [7n] }] }), `\`rows.claims[0].values[0]\` is a bigint: pass a string, ${wanted}`);
    });

    it("does not let two texts with halves of pairs be one name", () => {
        const messages = ["\ud83dbob", "\udc4dbob"].map((name) => wrong(canonicalForm, 4, name));
        assert.deepEqual(new Set(messages), new Set(["`value` has half of a surrogate pair: pass valid Unicode"]));
        assert.equal(canonicalForm(USERNAMES, "𝒷ob"), "bob");
    });

    it("tells the wrong member of a trace", () => {
        const trace = JSON.parse(world.trace()) as { events: unknown[] };
        const errorOf = (text: string): [string, string] => (({ code, message }) => [code, message] as [string, string])(thrownBy(() => Simulation.load(text)));
        trace.events[3] = { wait: { seconds: "1" } };
        assert.deepEqual(errorOf(JSON.stringify(trace)), ["NO_TRACE", "the text is not a trace: `trace.events[3].wait.seconds` is a string: pass an integer from 0 to 4294967295"]);
        assert.deepEqual(errorOf("{}"), ["NO_TRACE", "the text is not a trace: `trace.version` is missing: pass an integer from 0 to 4294967295"]);
        const [code, message] = errorOf(JSON.stringify({ ...trace, version: 99, events: [{ later: 1 }] }));
        assert.equal(code, "INVALID_TRACE");
        assert.match(message, /^the trace has version 99, but this program reads version /u);
        assert.match(errorOf("no trace")[1], /it is no JSON: pass what `trace` of a `Simulation` has returned/u);
    });
});

describe("the tables of arguments", () => {
    it("know all events, rules, settings and allowances of the simulation", () => {
        const types = readFileSync(new URL("../../src/simulation/types.d.ts", import.meta.url), "utf8");
        const namesIn = (type: string): string[] => {
            const body = new RegExp(`^export type ${type} =(.*?);$`, "msu").exec(types)?.[1] ?? "";
            return [...body.matchAll(/^ {4}\| (?:\{ )?"?(\w+)/gmu)].map(([, name = ""]) => name).sort();
        };
        const listedBy = (call: () => unknown): string[] => [...thrownBy(call).message.matchAll(/`([\w.]+)`/gu)].slice(1).map(([, name = ""]) => name).sort();
        assert.ok(namesIn("Event").length > 30);
        assert.deepEqual(listedBy(() => world.apply("" as never)), namesIn("Event"));
        assert.deepEqual(listedBy(() => world.apply({ save: { cell: 1, worker: 0, change: "" as never } })).length, namesIn("Change").length);
        assert.deepEqual(listedBy(() => ruleWorld("" as never)), simulation.rules().map(({ rule }) => rule).sort());
        const members = (call: () => unknown): string[] => listedBy(call).filter((name) => name !== "other");
        const settings = { ...world.settings(), locks: undefined };
        assert.deepEqual(members(() => new Simulation({ other: 1 } as never)), Object.keys(settings).sort());
        for (const part of ["rates", "thresholds"] as const) {
            assert.deepEqual(members(() => new Simulation({ [part]: { other: 1 } } as never)), Object.keys(settings[part]).sort());
        }
        assert.deepEqual(members(() => new Explorer({ ...plan, allowance: { other: 1 } } as never)), Object.keys(plan.allowance).sort());
    });
});

describe("a key that came as a text of digits", () => {
    const message = "`key` is a string of digits, which may be an integer: pass `BigInt(…)` of it, or `{ text: \"…\" }` if the column is a text";

    it("is refused until the caller says what it is", () => {
        for (const key of ["7", "0", "-7", "9223372036854775808"]) assert.equal(thrownBy(() => encodeSourceId(key)).message, message);
        assert.deepEqual(encodeSourceId(BigInt("7")), sourceId(7n));
        assert.deepEqual(encodeSourceId({ text: "7" }), Uint8Array.of(0x37));
        assert.deepEqual(["007", "7a", "+7", " 7"].map((key) => encodeSourceId(key).length), [3, 2, 2, 2]);
    });

    it("is refused in a column, too", () => {
        const rowsWith = (key: string | { text: string } | Uint8Array): void => withRecords().rows({ ...ROWS, keys: [key] }, NOW);
        const { code, message } = thrownBy(() => rowsWith("7"));
        assert.equal(code, "INVALID_ROWS");
        assert.match(message, /`rows\.keys\[0\]` is a string of digits.*: pass a `BigInt64Array`/u);
        rowsWith({ text: "7" });
        rowsWith(encodeSourceId({ text: "7" }));
    });
});

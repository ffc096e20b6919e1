// Plays every event of every scenario, and of random runs, and holds each sentence of the page
// against the state of the world before and after the event.
import { type Rule, scenarios, Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { explain } from "../../src/model/explanations";
import { explainLock } from "../../src/model/lock_texts";
import { momentAt } from "../../src/model/moment";
import type { Settings } from "../../src/model/protocol";
import { rulesOf } from "../../src/model/world_form";
import { replay } from "../../src/session/loading";
import { EVENTS, EXPLANATIONS, GENERAL_EVENTS, GENERAL_EXPLANATIONS } from "./claims";
import { GENERAL_LOCK_EXPLANATIONS, LOCK_EVENTS, LOCK_EXPLANATIONS } from "./locks";
import { GENERAL_LOCK_REASONS, GENERAL_REASONS, LOCK_REASONS, REASONS } from "./reasons";
import { complaintsAbout, type Evidence } from "./sentences";

const CLAIMS = scenarios().filter(({ trace }) => trace.settings.locks === undefined);
const LOCKS = scenarios().filter(({ trace }) => trace.settings.locks !== undefined);
const CLAIM_RULES: Rule[] = rulesOf("claims").map(({ rule }) => rule);
const LOCK_RULES: Rule[] = [...rulesOf("locks"), ...rulesOf("queues")].map(({ rule }) => rule);
/** The time that a test of thousands of events may take, in milliseconds. */
const LONG = 60_000;

/** Returns each event of a run with the states around it. */
function* evidenceOf(simulation: Simulation): Generator<Evidence> {
    const provenLeases = new Set<string>();
    for (let index = 0; index < simulation.length; index += 1) {
        const moment = momentAt(simulation, index);
        if (moment === undefined) throw new Error(`the run has no event ${index + 1}`);
        for (const { lease_rows } of moment.after.cells) for (const { lease } of lease_rows) provenLeases.add(lease);
        yield { ...moment, provenLeases };
    }
}

/** Returns the complaints about the explanation and the sentence of an event of a world of claims. */
function aboutClaims(evidence: Evidence): string[] {
    const { says } = evidence.entry;
    const explained = complaintsAbout(explain(evidence)?.text ?? "", evidence, [...EXPLANATIONS, ...REASONS], ["", ...GENERAL_EXPLANATIONS, ...GENERAL_REASONS]);
    return [...explained, ...complaintsAbout(says, evidence, EVENTS, GENERAL_EVENTS.test(says) ? [says] : [])];
}

/** Returns the complaints about the explanation and the sentence of an event of a world of locks. */
function aboutLocks(evidence: Evidence): string[] {
    const explained = complaintsAbout(explainLock(evidence)?.text ?? "", evidence, [...LOCK_EXPLANATIONS, ...LOCK_REASONS], ["", ...GENERAL_LOCK_EXPLANATIONS, ...GENERAL_LOCK_REASONS]);
    return [...explained, ...complaintsAbout(evidence.entry.says, evidence, LOCK_EVENTS, [])];
}

/** Returns the complaints about all sentences of a run, each with the number of its event. */
function complaints(simulation: Simulation): string[] {
    const about = simulation.settings().locks ? aboutLocks : aboutClaims;
    const found: string[] = [];
    for (const evidence of evidenceOf(simulation)) {
        const { position, says } = evidence.entry;
        found.push(...about(evidence).map((text) => `event ${position + 1} (${says}): ${text}`));
    }
    return found;
}

function played(settings: Partial<Settings>, events: number): Simulation {
    const simulation = new Simulation(settings);
    simulation.play(events);
    return simulation;
}

describe("each sentence about claims holds in the world", () => {
    test.each(CLAIMS.map(({ id, trace }) => [id, trace] as const))("at every event of scenario %s", (_, trace) => {
        const simulation = Simulation.load(JSON.stringify(trace));
        expect(complaints(simulation)).toEqual([]);
        simulation.free();
    });

    test.each(CLAIM_RULES)("at every event of every scenario without the rule %s", (rule) => {
        for (const { trace } of CLAIMS) {
            const { simulation } = replay(new Simulation({ ...trace.settings, rules_off: [rule] }), trace.events);
            expect(complaints(simulation)).toEqual([]);
            simulation.free();
        }
    });

    test.each([1, 2, 3, 4])(
        "at every event of random run %i",
        (seed) => {
            const simulation = played({ seed, cells: 2, modes: ["before_commit", "lease_first"] }, 2000);
            expect(complaints(simulation)).toEqual([]);
            simulation.free();
        },
        LONG,
    );
});

describe("each sentence about locks and queues holds in the world", () => {
    test.each(LOCKS.map(({ id, trace }) => [id, trace] as const))("at every event of scenario %s", (_, trace) => {
        const simulation = Simulation.load(JSON.stringify(trace));
        expect(complaints(simulation)).toEqual([]);
        simulation.free();
    });

    test.each(LOCK_RULES)("at every event of every scenario without the rule %s", (rule) => {
        for (const { trace } of LOCKS) {
            const { simulation } = replay(new Simulation({ ...trace.settings, rules_off: [rule] }), trace.events);
            expect(complaints(simulation)).toEqual([]);
            simulation.free();
        }
    });

    test.each([
        ["locks", { count: 1 }],
        ["queues", { count: 0, lanes: 2 }],
    ])(
        "at every event of a random world of %s",
        (_, shape) => {
            const locks = { duration_seconds: 4, grace_seconds: 2, tick_millis: 1000, ...shape };
            const simulation = played({ seed: 5, cells: 3, workers: 1, reconcilers: 0, names: 1, locks }, 600);
            expect(complaints(simulation)).toEqual([]);
            simulation.free();
        },
        LONG,
    );
});

describe("each event of each scenario has its reason", () => {
    test.each([...CLAIMS, ...LOCKS].map(({ id, trace }) => [id, trace] as const))("in scenario %s", (_, trace) => {
        const simulation = Simulation.load(JSON.stringify(trace));
        const explainIn = trace.settings.locks ? explainLock : explain;
        const silent = [...evidenceOf(simulation)].filter((evidence) => !explainIn(evidence)?.text);
        expect(silent.map(({ entry }) => `event ${entry.position + 1}: ${entry.says}`)).toEqual([]);
        simulation.free();
    });

    test("in sentences of at most 25 words", () => {
        const all = [...GENERAL_REASONS, ...GENERAL_LOCK_REASONS];
        expect(all.filter((sentence) => sentence.split(/\s+/u).length > 25)).toEqual([]);
    });
});

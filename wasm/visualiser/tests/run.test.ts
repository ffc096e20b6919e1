import { rules, ruleWorld, scenarios, Simulation, transitionTables } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { laneActions, messageActions } from "../src/model/actions";
import { Autopilot, MAX_EVENTS_TO_REST } from "../src/model/autopilot";
import { layOut } from "../src/model/diagram";
import { partsOf, variantName } from "../src/model/events";
import { layOutLanes } from "../src/model/lanes";
import type { WorldEvent, MessageView, Phase } from "../src/model/protocol";
import { envelopeHint, saveToRepeat } from "../src/model/hints";
import { explain } from "../src/model/explanations";
import { momentAt } from "../src/model/moment";
import { formatDuration, leaseLabel, NEEDED_WHEN, phaseText, readableText, RULE_NAMES, stateName, wholeNumber, WHY_RULE, WITHOUT_RULE } from "../src/model/texts";

function open(id: string): Simulation {
    const scenario = scenarios().find((other) => other.id === id);
    if (!scenario) throw new Error(`there is no scenario ${id}`);
    return Simulation.load(JSON.stringify(scenario.trace));
}

/** Steps through the run until a message with this text is in flight. Returns the message. */
function until(simulation: Simulation, text: string): MessageView {
    do {
        const message = simulation.view().messages.find((message) => message.says === text);
        if (message) return message;
    } while (simulation.step());
    throw new Error(`no message says \`${text}\``);
}

/** Returns the explanation of the event at this position, counted from 0. */
function explained(simulation: Simulation, position = 0) {
    const moment = momentAt(simulation, position);
    return moment && explain(moment);
}

/** Applies the autopilot's events until the run is at rest. Returns the events. */
function playToRest(simulation: Simulation): WorldEvent[] {
    const autopilot = new Autopilot();
    const events: WorldEvent[] = [];
    while (events.length < MAX_EVENTS_TO_REST) {
        const event = autopilot.next(simulation);
        if (event === undefined) return events;
        simulation.apply(event);
        events.push(event);
    }
    throw new Error("the run does not come to rest");
}

describe("the autopilot", () => {
    test.each(scenarios().map(({ id }) => id))("brings scenario %s to rest from every position", (id) => {
        const simulation = open(id);
        const length = simulation.length;
        for (let position = 0; position <= length; position += 1) {
            const again = open(id);
            again.seek(position);
            playToRest(again);
            const { leases, cells, messages, violation } = again.view();
            expect(violation).toBeUndefined();
            expect(messages).toEqual([]);
            expect(leases.filter(({ status }) => status === "Outstanding")).toEqual([]);
            expect(cells.flatMap((cell) => [cell.lease_rows, cell.transactions]).flat()).toEqual([]);
            again.free();
        }
        simulation.free();
    });

    test("lets a commit be retried after its answer was dropped, and the service answers from memory", () => {
        const simulation = open("happy-path");
        simulation.apply({ drop: until(simulation, "done").id });
        expect(playToRest(simulation).map(variantName).slice(0, 3)).toEqual(["time_out", "step", "deliver"]);
        const entries = simulation.entries(0, simulation.length);
        const again = entries.find((entry) => entry.arrived !== undefined && entry.fired.length === 0 && entry.says.includes("commit of lease"));
        expect(explained(simulation, again?.position)).toMatchObject({ rule: "settled_lease_memory" });
    });

    test.each([
        ["3a", 26, "has left no row"],
        ["2b-twice", 17, "has left no row"],
        ["staleness-race", 23, "has left no row"],
        ["3a", 13, "proved that the local transaction was committed"],
        ["4a", 19, "proved that the local transaction was committed"],
    ])("an answer is explained by its request: scenario %s, event %i", (id, event, words) => {
        const simulation = open(id);
        expect(explained(simulation, event - 1)?.text).toContain(words);
        simulation.free();
    });

    test.each<[string, WorldEvent, string]>([
        ["commit", { crash: { cell: 1, process: "verifier" } }, "by reconciliation if the verifier dies"],
        ["write_lease", { wait: { seconds: 400 } }, "the database itself refuses"],
        ["read_again", { drift: { cell: 1, drift: { delete: 1 } } }, "some no longer called for their corrections"],
    ])("a verifier's step under a lease is explained: %s", (step, meanwhile, words) => {
        const simulation = new Simulation({ cells: 1, workers: 1 });
        simulation.apply({ drift: { cell: 1, drift: { insert: 0 } } });
        simulation.apply({ wait: { seconds: 3700 } });
        simulation.apply({ step: { cell: 1, process: "verifier" } });
        while (simulation.view().cells[0]?.verifier.step !== step) simulation.apply(simulation.nextCalm() ?? "stop_service");
        simulation.apply(meanwhile);
        playToRest(simulation);
        const notes = simulation.entries(0, simulation.length).map(({ position }) => explained(simulation, position)?.text);
        expect(notes.join("\n")).toContain(words);
        simulation.free();
    });

    test("brings a world of random faults to rest", () => {
        const simulation = new Simulation({ seed: 11, cells: 3 });
        simulation.play(2000);
        playToRest(simulation);
        expect(simulation.view().messages).toEqual([]);
        expect(simulation.view().violation).toBeUndefined();
    });

    test("delivers another message, or times out, if one message must wait", () => {
        const simulation = open("happy-path");
        const message = until(simulation, "commit");
        const event = new Autopilot().next(simulation, message.id);
        expect(event && partsOf(event)).toMatchObject({ kind: "time_out", cell: 1 });
    });
});

describe("hints", () => {
    test.each([
        ["3b", true],
        ["2b-twice", true],
        // In these scenarios no save can be repeated: the failed one succeeded after all, or another
        // cell has taken the name.
        ["4a", false],
        ["2a", false],
        ["happy-path", false],
    ])("at the end of %s a failed save can be repeated: %s", (id, isOffered) => {
        const simulation = open(id);
        simulation.seek(simulation.length);
        const { events } = scenarios().find((other) => other.id === id)?.trace ?? { events: [] };
        const save = saveToRepeat(events, simulation.view());
        expect(save !== undefined).toBe(isOffered);
        if (save === undefined) return;
        simulation.apply(save);
        playToRest(simulation);
        const { claims, violation } = simulation.view();
        expect([claims.map(({ name, status }) => [name, status]), violation]).toEqual([[["alice", "Active"]], undefined]);
    });

    test("name a message in flight while it can arrive", () => {
        const simulation = open("happy-path");
        expect(envelopeHint(simulation.view().messages)).toBeUndefined();
        until(simulation, "commit");
        expect(envelopeHint(simulation.view().messages)).toContain("“commit” is in flight");
        simulation.apply({ partition: { cell: 1 } });
        expect(envelopeHint(simulation.view().messages)).toBeUndefined();
    });
});

describe("menus", () => {
    test("offer the events of a message, and give the reason for an impossible one", () => {
        const simulation = open("happy-path");
        const message = until(simulation, "commit");
        const available = messageActions(message, simulation.view(), simulation.possible());
        expect(available.every(({ reason }) => reason === undefined)).toBe(true);
        simulation.apply({ partition: { cell: 1 } });
        const [deliver] = messageActions(message, simulation.view(), simulation.possible());
        expect(deliver?.reason).toContain("cut off");
    });

    test("offer to cancel the call of a begin without a key, then to roll its lease back (B25)", () => {
        for (const rules_off of [[], ["replay_keys" as const]]) {
            const simulation = new Simulation({ rules_off });
            simulation.apply({ save: { cell: 1, worker: 0, change: { create: 0 } } });
            while (!simulation.view().messages.some(({ is_answer }) => is_answer)) simulation.apply(simulation.nextCalm() ?? "stop_service");
            const answer = until(simulation, "begun, fence 1");
            const cancel = messageActions(answer, simulation.view(), simulation.possible()).find(({ label }) => label === "Cancel its call");
            if (rules_off.length === 0) {
                expect(cancel?.reason).toContain("idempotency key");
                continue;
            }
            expect(cancel).toBeDefined();
            expect(cancel).not.toHaveProperty("reason");
            simulation.apply({ cancel_call: answer.id });
            const { lanes } = layOutLanes({ cells: [1, 2], workers: 1, reconcilers: 1, hasVerifier: true }, 900);
            const service = lanes.filter(({ kind }) => kind === "service").flatMap((lane) => laneActions(lane, simulation.view(), simulation.possible()));
            const takeBack = service.flatMap(({ actions }) => actions).filter(({ event, reason }) => event === "take_back" && reason === undefined);
            expect(takeBack).toHaveLength(1);
            simulation.apply("take_back");
            for (const entry of simulation.entries(simulation.length - 2, simulation.length)) {
                expect(explained(simulation, entry.position)?.text, entry.says).toContain("idempotency key");
            }
        }
    });

    test("give a reason for a choice if and only if its event is impossible", () => {
        const simulation = open("concurrent-creation");
        const { lanes } = layOutLanes({ cells: [1, 2], workers: 1, reconcilers: 1, hasVerifier: true }, 900);
        const trace = simulation.trace();
        do {
            for (const lane of lanes) {
                for (const action of laneActions(lane, simulation.view(), simulation.possible()).flatMap(({ actions }) => actions)) {
                    const again = Simulation.load(trace);
                    again.seek(simulation.position);
                    const apply = () => again.apply(action.event);
                    if (action.reason === undefined) expect(apply, JSON.stringify(action)).not.toThrow();
                    else expect(apply, JSON.stringify(action)).toThrow();
                    again.free();
                }
            }
        } while (simulation.step());
    });
});

describe("texts", () => {
    test("exist for every rule, and every rule has a small world", () => {
        for (const { rule } of rules()) {
            expect(RULE_NAMES[rule]).toBeTruthy();
            expect(WITHOUT_RULE[rule]).toBeTruthy();
            expect(WHY_RULE[rule]).toBeTruthy();
            expect(NEEDED_WHEN[rule]).toBeTruthy();
            expect(ruleWorld(rule).depth).toBeGreaterThan(0);
        }
    });

    test("of a worker's phases fit into a sentence", () => {
        const phases = new Set<Phase>();
        for (const scenario of scenarios()) {
            const simulation = open(scenario.id);
            do {
                for (const { phase } of simulation.view().cells.flatMap(({ workers }) => workers)) if (phase) phases.add(phase);
            } while (simulation.step());
            simulation.free();
        }
        expect([...phases]).toContain("await_commit");
        expect([...phases].map(phaseText).filter((text) => /[.:?!]/.test(text))).toEqual([]);
    });

    test("wholeNumber accepts whole numbers within the bounds only", () => {
        expect(["1", "8", " 3 ", "1e0"].map((text) => wholeNumber(text, 1, 8))).toEqual([1, 8, 3, 1]);
        expect(["", " ", "0", "9", "1.5", "-1", "many", "9007199254740993"].map((text) => wholeNumber(text, 1, 8))).toEqual(Array(8).fill(undefined));
    });

    test("shorten spans of time, states and leases", () => {
        expect([0, 250, 12_000, 1_500_000, 660_000_000, 90_061_000_000].map(formatDuration)).toEqual(["0 µs", "250 µs", "12 ms", "1.5 s", "11 min", "1 d 1 h"]);
        expect(stateName("RolledBack")).toBe("rolled back");
        expect(leaseLabel("01a20000-0000-7000-8000-00000000001f")).toBe("#31");
        expect(readableText("lease 01a20000-0000-7000-8000-000000000001 of `alice` is gone")).toBe("lease #1 of “alice” is gone");
        expect(readableText("NotFound can't happen")).toBe("not found can't happen");
        expect(leaseLabel("01a201d4-6a45-7766-bf26-534f6f48c188")).toBe("…48c188");
    });
});

describe("layOut", () => {
    test.each(Object.entries(transitionTables()))("places every state and edge of a %s once", (_, edges) => {
        const diagram = layOut(edges);
        const names = diagram.states.map(({ name }) => name);
        expect(new Set(names).size).toBe(names.length);
        expect(diagram.edges.map(({ edge }) => edge)).toEqual(edges);
        expect(new Set(diagram.edges.map(({ path }) => path)).size).toBe(edges.length);
        const places = diagram.edges.map(({ labelX, labelY }) => `${Math.round(labelX / 20)},${Math.round(labelY / 9)}`);
        expect(new Set(places).size).toBe(edges.length);
        for (const { x, y } of diagram.states) {
            expect(x).toBeLessThan(diagram.width);
            expect(y).toBeLessThan(diagram.height);
        }
    });
});

import { rules, ruleWorld, scenarios, Simulation, transitionTables } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { laneActions, messageActions } from "../src/model/actions";
import { Autopilot, PATIENCE } from "../src/model/autopilot";
import { layOut } from "../src/model/diagram";
import { about, kindOf } from "../src/model/happening";
import { placeLanes } from "../src/model/lanes";
import type { Happening, MessageView, Phase } from "../src/model/protocol";
import { aboutEnvelope, askedInVain } from "../src/model/tries";
import { explain, requestOf } from "../src/model/why";
import { duration, leaseNumber, NEEDED_WHEN, phaseInWords, readable, RULE_NAMES, stateName, wholeNumber, WHY_RULE, WITHOUT_RULE } from "../src/model/words";

function open(id: string): Simulation {
    const scenario = scenarios().find((one) => one.id === id);
    if (!scenario) throw new Error(`there is no scenario ${id}`);
    return Simulation.load(JSON.stringify(scenario.trace));
}

/** Goes on until a message that says this is under way. */
function until(simulation: Simulation, says: string): MessageView {
    do {
        const message = simulation.view().messages.find((one) => one.says === says);
        if (message) return message;
    } while (simulation.step());
    throw new Error(`nobody says ${says}`);
}

function goOn(simulation: Simulation): Happening[] {
    const autopilot = new Autopilot();
    const events: Happening[] = [];
    while (events.length < PATIENCE) {
        const event = autopilot.next(simulation);
        if (event === undefined) return events;
        simulation.apply(event);
        events.push(event);
    }
    throw new Error("it does not come to rest");
}

describe("when nothing more goes wrong", () => {
    test.each(scenarios().map(({ id }) => id))("scenario %s comes to rest from every place of it", (id) => {
        const simulation = open(id);
        const length = simulation.length;
        for (let position = 0; position <= length; position += 1) {
            const again = open(id);
            again.seek(position);
            goOn(again);
            const { leases, cells, messages, violation } = again.view();
            expect(violation).toBeUndefined();
            expect(messages).toEqual([]);
            expect(leases.filter(({ status }) => status === "Outstanding")).toEqual([]);
            expect(cells.flatMap((cell) => [cell.lease_rows, cell.transactions]).flat()).toEqual([]);
            again.free();
        }
        simulation.free();
    });

    test("a commit whose answer is dropped is asked for again, and answered from memory", () => {
        const simulation = open("happy-path");
        simulation.apply({ drop: until(simulation, "done").id });
        expect(goOn(simulation).map(kindOf).slice(0, 3)).toEqual(["time_out", "step", "deliver"]);
        const entries = simulation.entries(0, simulation.length);
        const again = entries.find((entry) => entry.arrived !== undefined && entry.fired.length === 0 && entry.says.includes("commit of lease"));
        const arrow = simulation.arrows(again?.position ?? 0, (again?.position ?? 0) + 1).find(({ id }) => id === again?.arrived);
        expect(again && explain(again, arrow)).toMatchObject({ rule: "settled_lease_memory" });
    });

    test.each([
        ["3a", 26, "has left no row"],
        ["2b-twice", 17, "has left no row"],
        ["staleness-race", 23, "has left no row"],
        ["3a", 13, "to prove that the local transaction was committed"],
        ["4a", 19, "to prove that the local transaction was committed"],
    ])("what an answer means depends on what was asked: scenario %s, event %i", (id, event, words) => {
        const simulation = open(id);
        const [entry] = simulation.entries(event - 1, event);
        const answer = simulation.arrows(event - 1, event).find((arrow) => arrow.id === entry?.arrived);
        expect(entry && answer && explain(entry, answer, requestOf(answer, simulation)?.says)?.text).toContain(words);
        simulation.free();
    });

    test.each<[string, Happening, string]>([
        ["commit", { crash: { cell: 1, process: "verifier" } }, "by reconciliation if the verifier dies"],
        ["write_lease", { wait: { seconds: 400 } }, "the database itself refuses"],
        ["read_again", { drift: { cell: 1, drift: { delete: 1 } } }, "some no longer called for what was begun"],
    ])("what a verifier does under a lease is explained: at %s", (step, meanwhile, words) => {
        const simulation = new Simulation({ cells: 1, workers: 1 });
        simulation.apply({ drift: { cell: 1, drift: { insert: 0 } } });
        simulation.apply({ wait: { seconds: 3700 } });
        simulation.apply({ step: { cell: 1, process: "verifier" } });
        while (simulation.view().cells[0]?.verifier.step !== step) simulation.apply(simulation.nextCalm() ?? "stop_service");
        simulation.apply(meanwhile);
        goOn(simulation);
        const notes = simulation.entries(0, simulation.length).map((entry) => {
            const arrow = simulation.arrows(entry.position, entry.position + 1).find(({ id }) => id === entry.arrived);
            return explain(entry, arrow, arrow && requestOf(arrow, simulation)?.says)?.text;
        });
        expect(notes.join("\n")).toContain(words);
        simulation.free();
    });

    test("a world of random trouble comes to rest", () => {
        const simulation = new Simulation({ seed: 11, cells: 3 });
        simulation.play(2000);
        goOn(simulation);
        expect(simulation.view().messages).toEqual([]);
        expect(simulation.view().violation).toBeUndefined();
    });

    test("a message that is to wait does, while others go on", () => {
        const simulation = open("happy-path");
        const message = until(simulation, "commit");
        const event = new Autopilot().next(simulation, message.id);
        expect(event && about(event)).toMatchObject({ kind: "time_out", cell: 1 });
    });
});

describe("what to try next", () => {
    test.each([
        ["3b", true],
        ["2b-twice", true],
        // Saved after all, and taken by another cell.
        ["4a", false],
        ["2a", false],
        ["happy-path", false],
    ])("at the end of %s: to ask again, %s", (id, isOffered) => {
        const simulation = open(id);
        simulation.seek(simulation.length);
        const { events } = scenarios().find((one) => one.id === id)?.trace ?? { events: [] };
        const save = askedInVain(events, simulation.view());
        expect(save !== undefined).toBe(isOffered);
        if (save === undefined) return;
        simulation.apply(save);
        goOn(simulation);
        const { claims, violation } = simulation.view();
        expect([claims.map(({ name, status }) => [name, status]), violation]).toEqual([[["alice", "Active"]], undefined]);
    });

    test("an envelope is spoken of while it can arrive", () => {
        const simulation = open("happy-path");
        expect(aboutEnvelope(simulation.view().messages)).toBeUndefined();
        until(simulation, "commit");
        expect(aboutEnvelope(simulation.view().messages)).toContain("“commit” is under way");
        simulation.apply({ partition: { cell: 1 } });
        expect(aboutEnvelope(simulation.view().messages)).toBeUndefined();
    });
});

describe("menus", () => {
    test("offer what can happen to a message, and say why not where it can't", () => {
        const simulation = open("happy-path");
        const message = until(simulation, "commit");
        const open_ = messageActions(message, simulation.view(), simulation.possible());
        expect(open_.every(({ reason }) => reason === undefined)).toBe(true);
        simulation.apply({ partition: { cell: 1 } });
        const [deliver] = messageActions(message, simulation.view(), simulation.possible());
        expect(deliver?.reason).toContain("cut off");
    });

    test("every choice without a reason is possible, and every choice with one is not", () => {
        const simulation = open("concurrent-creation");
        const { lanes } = placeLanes({ cells: [1, 2], workers: 1, reconcilers: 1, hasVerifier: true }, 900);
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

describe("words", () => {
    test("are there for every rule, and every rule has a small world", () => {
        for (const { rule } of rules()) {
            expect(RULE_NAMES[rule]).toBeTruthy();
            expect(WITHOUT_RULE[rule]).toBeTruthy();
            expect(WHY_RULE[rule]).toBeTruthy();
            expect(NEEDED_WHEN[rule]).toBeTruthy();
            expect(ruleWorld(rule).depth).toBeGreaterThan(0);
        }
    });

    test("for what a worker does go on within a sentence", () => {
        const phases = new Set<Phase>();
        for (const scenario of scenarios()) {
            const simulation = open(scenario.id);
            do {
                for (const { phase } of simulation.view().cells.flatMap(({ workers }) => workers)) if (phase) phases.add(phase);
            } while (simulation.step());
            simulation.free();
        }
        expect([...phases]).toContain("await_commit");
        expect([...phases].map(phaseInWords).filter((words) => /[.:?!]/.test(words))).toEqual([]);
    });

    test("are numbers where they say a whole one within the bounds", () => {
        expect(["1", "8", " 3 ", "1e0"].map((text) => wholeNumber(text, 1, 8))).toEqual([1, 8, 3, 1]);
        expect(["", " ", "0", "9", "1.5", "-1", "many", "9007199254740993"].map((text) => wholeNumber(text, 1, 8))).toEqual(Array(8).fill(undefined));
    });

    test("are short for spans of time, states and leases", () => {
        expect([0, 250, 12_000, 1_500_000, 660_000_000, 90_061_000_000].map(duration)).toEqual(["0 µs", "250 µs", "12 ms", "1.5 s", "11 min", "1 d 1 h"]);
        expect(stateName("RolledBack")).toBe("rolled back");
        expect(leaseNumber("01a20000-0000-7000-8000-00000000001f")).toBe("#31");
        expect(readable("lease 01a20000-0000-7000-8000-000000000001 of `alice` is gone")).toBe("lease #1 of “alice” is gone");
        expect(readable("NotFound can't happen")).toBe("not found can't happen");
        expect(leaseNumber("01a201d4-6a45-7766-bf26-534f6f48c188")).toBe("…48c188");
    });
});

describe("diagrams", () => {
    test.each(Object.entries(transitionTables()))("of a %s have every state once and every edge", (_, edges) => {
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

// Holds the short lines of events against their sentences and the state of the world.
import { scenarios, Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { eventLine } from "../../src/model/event_lines";
import { viewAt } from "../../src/model/moment";
import type { Entry, Settings } from "../../src/model/protocol";
import { leaseLabel } from "../../src/model/texts";

function linesOf(simulation: Simulation): { entry: Entry; line: string }[] {
    const arrows = simulation.arrows(0, simulation.length);
    return simulation.entries(0, simulation.length).map((entry) => ({ entry, line: eventLine(entry, arrows, simulation.settings()) }));
}

function played(settings: Partial<Settings>, events: number): Simulation {
    const simulation = new Simulation(settings);
    simulation.play(events);
    return simulation;
}

const RUNS: [string, () => Simulation][] = [
    ...scenarios().map(({ id, trace }): [string, () => Simulation] => [id, () => Simulation.load(JSON.stringify(trace))]),
    ["random claims", () => played({ seed: 3, cells: 2, modes: ["before_commit", "lease_first"] }, 1000)],
    ["random locks", () => played({ seed: 5, cells: 3, workers: 1, reconcilers: 0, names: 1, locks: { count: 1, duration_seconds: 4, grace_seconds: 2, tick_millis: 1000 } }, 400)],
];

const names = (text: string) => text.match(/\b(?:alice|bob|carol|backup|blue|green)\b/gu) ?? [];
/** Returns the numbers of a text without those that only tell processes and cells apart. */
const facts = (text: string) => text.replace(/\b(?:worker|reconciler|cell) \d+/giu, "").match(/\d+/gu) ?? [];
const fences = (text: string) => text.match(/fence \d+/gu) ?? [];

describe("the line of an event", () => {
    test("names the actor, the act and the result", () => {
        const trace = scenarios().find(({ id }) => id === "happy-path")?.trace;
        expect(linesOf(Simulation.load(JSON.stringify(trace))).map(({ line }) => line)).toEqual([
            "User → worker: create “alice”",
            "Worker validates its change",
            "Worker → database: begins a transaction",
            "Worker → database: writes its rows",
            "Worker → service: begin “alice”",
            "Service ← worker: begin “alice” → lease #1, fence 1",
            "Worker ← service: lease #1, fence 1",
            "Worker → database: writes its lease row",
            "Worker → database: COMMIT",
            "Database: the worker's transaction is committed",
            "Worker → service: commit lease #1",
            "Service ← worker: commit lease #1 → done",
            "Worker ← service: done",
            "Worker → database: deletes its lease row → user: “saved”",
        ]);
    });

    test.each(RUNS)("keeps the names, the fences and the results of its sentence in %s", (_, open) => {
        const simulation = open();
        for (const { entry, line } of linesOf(simulation)) {
            expect(names(line), line).toEqual(names(entry.says));
            expect(fences(line), line).toEqual(fences(entry.says));
            expect(line.replace(/[“”]/gu, "").length, line).toBeLessThanOrEqual(entry.says.length + " → database:".length);
            expect(line).not.toMatch(/undefined|\$|bucket|:.*: .*:.*→.*:/u);
            if (!line.includes("lease #")) expect(facts(line), line).toEqual(facts(entry.says));
            const told = /the user is told: (.*)$/u.exec(entry.says)?.[1];
            if (told !== undefined && !/bucket|claim/u.test(told)) expect(line).toContain(`→ user: “${told}”`);
        }
        simulation.free();
    });

    test.each(RUNS)("names the lease that the state has in %s", (_, open) => {
        const simulation = open();
        for (const { entry, line } of linesOf(simulation)) {
            const [, label, fence] = /lease (#\d+), fence (\d+)/u.exec(line) ?? [];
            if (label === undefined) continue;
            const known = viewAt(simulation, entry.position + 1).leases.find(({ lease }) => leaseLabel(lease) === label);
            if (known) expect(`${known.fence}`, line).toBe(fence);
            if (line.startsWith("Service ← ")) expect(known?.status, line).toBeDefined();
        }
        simulation.free();
    });

    test("names no cell in a world of one cell, and each cell in a world of two", () => {
        const settings = scenarios().map(({ trace }) => trace);
        for (const trace of settings) {
            const simulation = Simulation.load(JSON.stringify(trace));
            const isAlone = trace.settings.cells === 1;
            for (const { entry, line } of linesOf(simulation)) {
                const cells = entry.says.match(/cell \d+/gu) ?? [];
                expect(line.match(/cell \d+/giu)?.map((cell) => cell.toLowerCase()) ?? [], line).toEqual(isAlone ? [] : cells);
            }
            simulation.free();
        }
    });
});

import { scenarios, Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { joinedLines } from "../src/model/event_lines";
import { partsOf } from "../src/model/events";
import type { Entry } from "../src/model/protocol";
import { mergedRows, RowScale } from "../src/model/row_scale";

const HEIGHT = 40;
const RUNS: [string, Entry[]][] = scenarios().map(({ id, trace }) => {
    const run = Simulation.load(JSON.stringify(trace));
    return [id, run.entries(0, run.length)];
});

/** Returns the entries of each row. */
function rowsOf(entries: Entry[]): Entry[][] {
    const scale = new RowScale(HEIGHT, entries.length, mergedRows(entries));
    return Array.from({ length: scale.count }, (_, row) => entries.slice(scale.firstOf(row), scale.firstOf(row + 1)));
}

describe("a row for each event", () => {
    const scale = new RowScale(HEIGHT, 10);

    test("has the height of a row", () => {
        expect([scale.count, scale.rowOf(7), scale.firstOf(7), scale.isShared(7)]).toEqual([10, 7, 7, false]);
        expect([scale.top(0), scale.top(7), scale.middle(7), scale.top(10)]).toEqual([0, 280, 300, 400]);
    });

    test("goes on behind the end, where messages are in flight", () => {
        expect([scale.rowOf(10), scale.middle(10), scale.firstOf(12)]).toEqual([10, 420, 10]);
    });
});

describe("rows of local steps", () => {
    const shared = new RowScale(HEIGHT, 8, [0, 1, 4, 6]);

    test("share their height equally", () => {
        expect([0, 1, 2, 3, 4, 5, 6, 7, 8].map((event) => Math.round(shared.top(event)))).toEqual([0, 40, 53, 67, 80, 100, 120, 140, 160]);
        expect([shared.rowOf(3), shared.firstOf(1), shared.firstOf(4), shared.count]).toEqual([1, 1, 8, 4]);
        expect([shared.isShared(0), shared.isShared(2), shared.middle(4)]).toEqual([false, true, 90]);
    });

    test.each(RUNS)("contain each event of %s once and in order, and no message, fault or refusal", (_, entries) => {
        const rows = rowsOf(entries);
        expect(rows.flat()).toEqual(entries);
        for (const row of rows.filter(({ length }) => length > 1)) {
            const loud = row.filter(({ sent, arrived, lost, fault, refused, violation }) => sent.length > 0 || arrived !== undefined || lost.length > 0 || fault || refused || violation);
            expect(loud).toEqual([]);
            expect(new Set(row.map(({ event }) => partsOf(event).cell)).size).toBe(1);
        }
    });

    test.each(RUNS)("leave no step of %s alone that could join its neighbour", (_, entries) => {
        const isQuiet = ([entry, ...more]: Entry[]) => more.length > 0 || (entry !== undefined && entry.sent.length === 0 && entry.arrived === undefined && entry.lost.length === 0 && !entry.fault && !entry.refused && entry.violation === undefined && partsOf(entry.event).cell !== undefined);
        const cellOf = ([entry]: Entry[]) => entry && partsOf(entry.event).cell;
        const rows = rowsOf(entries);
        const apart = rows.filter((row, index) => {
            const next = rows[index + 1];
            return next && isQuiet(row) && isQuiet(next) && cellOf(row) === cellOf(next) && row.length < 6;
        });
        expect(apart).toEqual([]);
    });

    test("save a third of the happy path's rows", () => {
        const entries = RUNS.find(([id]) => id === "happy-path")?.[1] ?? [];
        expect(rowsOf(entries).length).toBeLessThanOrEqual((entries.length * 2) / 3);
    });
});

test("one line for several events names the actor once", () => {
    const lines = ["Worker → database: begins a transaction", "Worker → database: COMMIT", "Database: the transaction commits"];
    expect(joinedLines(lines)).toEqual(["Worker → database: begins a transaction", "COMMIT", "Database: the transaction commits"]);
    expect(joinedLines(["Worker waits"])).toEqual(["Worker waits"]);
});

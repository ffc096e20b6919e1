import { describe, expect, test } from "vitest";

import { isUnderWay, lineOf, pointAt, rowsInSight, scrollAcross, scrollTo, stretchOf, withBlocksAround } from "../src/model/geometry";
import { cellOf, laneKey, NARROWEST_LANE, placeLanes, type World } from "../src/model/lanes";
import type { Arrow, Entry, Lane } from "../src/model/protocol";

const WORLD: World = { cells: [1, 2], workers: 2, reconcilers: 1, hasVerifier: true };
const worker: Lane = { process: [2, { worker: 1 }] };

describe("lanes", () => {
    test("stand side by side, cell by cell, the service rightmost", () => {
        const { lanes, spans, width } = placeLanes(WORLD, 900);
        const places = lanes.map(({ x }) => x);
        expect(places).toEqual([...places].sort((one, other) => one - other));
        expect(lanes.map(({ key }) => key).slice(0, 6)).toEqual([
            "user:1", "worker:1:0", "worker:1:1", "database:1", "reconciler:1:0", "verifier:1:0",
        ]);
        expect(lanes.at(-1)?.key).toBe("service");
        expect(spans.map(({ cell }) => cell)).toEqual([1, 2]);
        expect(width).toBeLessThanOrEqual(900.001);
    });

    test("are never narrower than can be clicked, and go beyond the width then", () => {
        const { lanes, width } = placeLanes({ ...WORLD, cells: [1, 2, 3, 4, 5, 6, 7, 8], workers: 8 }, 600);
        expect((lanes[1]?.x ?? 0) - (lanes[0]?.x ?? 0)).toBe(NARROWEST_LANE);
        expect(width).toBeGreaterThan(600);
    });

    test("that are hidden have their place in the middle of their cell", () => {
        const { x, lanes, spans } = placeLanes(WORLD, 900, new Set(["user:2", "database:2"]));
        expect(lanes.map(({ key }) => key)).toEqual(["user:2", "database:2", "service"]);
        const span = spans[0];
        expect(x(worker)).toBe(((span?.left ?? 0) + (span?.right ?? 0)) / 2);
    });

    test("are told apart by whom they are of", () => {
        expect(laneKey(worker)).toBe("worker:2:1");
        expect(laneKey({ process: [1, "verifier"] })).toBe("verifier:1:0");
        expect([worker, { database: 3 }, { user: 4 }, "service" as const].map(cellOf)).toEqual([2, 3, 4, 0]);
    });
});

describe("rows", () => {
    test("are in sight as far as any of them is", () => {
        expect(rowsInSight(40 * 500, 600, 40, 10_000)).toEqual({ from: 500, to: 515 });
        expect(rowsInSight(40 * 500 + 1, 600, 40, 10_000)).toEqual({ from: 500, to: 516 });
        expect(rowsInSight(40 * 500, 600, 40, 5)).toEqual({ from: 5, to: 5 });
    });

    test("are drawn in blocks: scrolling by some rows changes nothing", () => {
        const drawn = (row: number) => withBlocksAround(rowsInSight(40 * row, 600, 40, 10_000), 10_000);
        const before = drawn(500);
        expect(before.from % 4).toBe(0);
        expect(before.from).toBeLessThanOrEqual(500 - 4);
        expect(before.to).toBeGreaterThanOrEqual(515 + 4);
        expect(before.to - before.from).toBeLessThanOrEqual(28);
        expect(new Set([496, 497, 498, 499].map((row) => drawn(row).from)).size).toBe(1);
    });

    test("end with the run", () => {
        expect(withBlocksAround(rowsInSight(0, 600, 40, 5), 5)).toEqual({ from: 0, to: 5 });
    });

    test("are scrolled to only where they are out of sight", () => {
        expect(scrollTo(20, 600, 600, 40)).toBe(600);
        expect(scrollTo(0, 600, 600, 40)).toBe(0);
        const down = scrollTo(100, 600, 600, 40);
        expect(down).toBeGreaterThan(100 * 40 - 600);
        expect(down).toBeLessThan(100 * 40);
    });
});

describe("lanes that are wider than the window", () => {
    test.each([
        ["stay as they are where all of it is in sight", { at: 900, far: 600 }, 500, 500],
        ["bring a message into sight with both its ends", { at: 700, far: 300 }, 500, 264],
        ["bring it into sight on the other side", { at: 900, far: 1100 }, 500, 636],
        ["bring what has no message into sight", { at: 2000, far: 2000 }, 0, 1536],
        ["end where a message arrived that does not fit, coming from the left", { at: 1200, far: 100 }, 300, 736],
        ["begin where one arrived, coming from the right", { at: 100, far: 1200 }, 300, 64],
        ["never go beyond their beginning", { at: 20, far: 100 }, 300, 0],
    ])("%s", (_, stretch, scrollLeft, expected) => {
        expect(scrollAcross(stretch, scrollLeft, 500)).toBe(expected);
    });

    test("of a window that is narrower than the room beside what is in sight still show it", () => {
        const left = scrollAcross({ at: 500, far: 500 }, 0, 40);
        expect([left < 500, left + 40 > 500]).toEqual([true, true]);
    });
});

describe("what is to be in sight of an event", () => {
    const place = placeLanes(WORLD, 900);
    const [caller, service] = [place.x(worker), place.x("service")];
    const arrow: Arrow = { id: 1, from: worker, to: "service", says: "commit", sent: 3, ended: 6, how: "arrived" };
    const nothing: Entry = { position: 6, event: "forget", at_micros: 0, says: "", lane: "service", sent: [], lost: [], fired: [], fault: false };
    const answer: Arrow = { ...arrow, id: 2, from: "service", to: { user: 1 }, sent: 6, ended: 9 };
    const lost: Arrow = { ...arrow, how: "lost" };
    const tellings: [string, Partial<Entry>, Arrow[], ReturnType<typeof stretchOf>][] = [
        ["a message that arrived, where it did, though another is sent", { event: { deliver: 1 }, arrived: 1, sent: [answer] }, [answer, arrow], { at: service, far: caller }],
        ["a message that is sent, where it is", { event: { step: { cell: 2, process: { worker: 1 } } }, position: 3, lane: worker, sent: [arrow] }, [arrow], { at: caller, far: service }],
        ["one that is lost, where its line ends", { event: { drop: 1 }, lost: [1] }, [lost], { at: lineOf(lost, place, 1, 9).x2, far: caller }],
        ["what has no message, its lane", {}, [arrow], { at: service, far: service }],
        ["no lane where time passes", { event: { wait: { seconds: 60 } } }, [arrow], undefined],
    ];
    test.each(tellings)("is %s", (_, entry, arrows, expected) => {
        expect(stretchOf({ ...nothing, ...entry }, arrows, place, 9)).toEqual(expected);
    });
});

describe("a message's line", () => {
    const place = placeLanes(WORLD, 900);
    const arrow: Arrow = { id: 1, from: worker, to: "service", says: "commit", sent: 3, ended: 6, how: "arrived" };

    test("goes from where it was sent to where it arrived", () => {
        const line = lineOf(arrow, place, 40, 100);
        expect(line).toEqual({ x1: place.x(worker), y1: 140, x2: place.x("service"), y2: 260 });
        expect(pointAt(line, 200)).toEqual({ x: (line.x1 + line.x2) / 2, y: 200 });
        expect(pointAt(line, 999).y).toBe(260);
    });

    test("ends short of the receiver where it was lost, or is under way at the end", () => {
        const { ended: _, how: __, ...flying } = arrow;
        for (const short of [lineOf({ ...arrow, how: "lost" }, place, 40, 100), lineOf(flying, place, 40, 5)]) {
            expect(short.x2).toBeGreaterThan(place.x(worker));
            expect(short.x2).toBeLessThan(place.x("service"));
        }
    });

    test("is under way after it was sent and before it ended", () => {
        expect([3, 4, 6, 7].map((position) => isUnderWay(arrow, position))).toEqual([false, true, true, false]);
    });
});

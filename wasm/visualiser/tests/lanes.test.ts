import { describe, expect, test } from "vitest";

import { isInFlight, messageLine, pointAt, visibleRows, scrollLeftFor, scrollTopFor, extentOf, rowsToRender } from "../src/model/geometry";
import { cellOf, laneKey, MIN_LANE_WIDTH, layOutLanes, type Participants } from "../src/model/lanes";
import type { Arrow, Entry, Lane } from "../src/model/protocol";
import { RowScale } from "../src/model/row_scale";

const PARTICIPANTS: Participants = { cells: [1, 2], workers: 2, reconcilers: 1, hasVerifier: true };
const worker: Lane = { process: [2, { worker: 1 }] };

describe("lanes", () => {
    test("are ordered by cell, with the service last", () => {
        const { lanes, spans, width } = layOutLanes(PARTICIPANTS, 900);
        const places = lanes.map(({ x }) => x);
        expect(places).toEqual([...places].sort((left, right) => left - right));
        expect(lanes.map(({ key }) => key).slice(0, 6)).toEqual([
            "user:1", "worker:1:0", "worker:1:1", "database:1", "reconciler:1:0", "verifier:1:0",
        ]);
        expect(lanes.at(-1)?.key).toBe("service");
        expect(spans.map(({ cell }) => cell)).toEqual([1, 2]);
        expect(width).toBeLessThanOrEqual(900.001);
    });

    test("exceed the window rather than become too narrow to click", () => {
        const { lanes, width } = layOutLanes({ ...PARTICIPANTS, cells: [1, 2, 3, 4, 5, 6, 7, 8], workers: 8 }, 600);
        expect((lanes[1]?.x ?? 0) - (lanes[0]?.x ?? 0)).toBe(MIN_LANE_WIDTH);
        expect(width).toBeGreaterThan(600);
    });

    test("that are hidden have the middle of their cell as their position", () => {
        const { x, lanes, spans } = layOutLanes(PARTICIPANTS, 900, new Set(["user:2", "database:2"]));
        expect(lanes.map(({ key }) => key)).toEqual(["user:2", "database:2", "service"]);
        const span = spans[0];
        expect(x(worker)).toBe(((span?.left ?? 0) + (span?.right ?? 0)) / 2);
    });

    test("have a key and a cell", () => {
        expect(laneKey(worker)).toBe("worker:2:1");
        expect(laneKey({ process: [1, "verifier"] })).toBe("verifier:1:0");
        expect([worker, { database: 3 }, { user: 4 }, "service" as const].map(cellOf)).toEqual([2, 3, 4, 0]);
    });
});

describe("rendered rows", () => {
    const LONG = new RowScale(40, 10_000);

    test("visibleRows includes rows that are partly visible", () => {
        expect(visibleRows(40 * 500, 600, LONG)).toEqual({ from: 500, to: 515 });
        expect(visibleRows(40 * 500 + 1, 600, LONG)).toEqual({ from: 500, to: 516 });
        expect(visibleRows(40 * 500, 600, new RowScale(40, 5))).toEqual({ from: 5, to: 5 });
    });

    test("visibleRows is in the run while a browser bounces, and before the first layout", () => {
        expect(visibleRows(-50, 600, LONG)).toEqual({ from: 0, to: 14 });
        expect(visibleRows(0, -60, LONG)).toEqual({ from: 0, to: 0 });
    });

    test("rowsToRender returns whole blocks, the same for each row of a block", () => {
        const rendered = (row: number) => rowsToRender(visibleRows(40 * row, 600, LONG), 10_000);
        const before = rendered(500);
        expect(before.from % 4).toBe(0);
        expect(before.from).toBeLessThanOrEqual(500 - 4);
        expect(before.to).toBeGreaterThanOrEqual(515 + 4);
        expect(before.to - before.from).toBeLessThanOrEqual(28);
        expect(new Set([496, 497, 498, 499].map((row) => rendered(row).from)).size).toBe(1);
    });

    test("rowsToRender ends with the run", () => {
        expect(rowsToRender(visibleRows(0, 600, new RowScale(40, 5)), 5)).toEqual({ from: 0, to: 5 });
    });

    test("scrollTopFor keeps the offset of a visible row", () => {
        expect(scrollTopFor(20, 600, 600, 40)).toBe(600);
        expect(scrollTopFor(0, 600, 600, 40)).toBe(0);
        const down = scrollTopFor(100, 600, 600, 40);
        expect(down).toBeGreaterThan(100 * 40 - 600);
        expect(down).toBeLessThan(100 * 40);
    });

    test.each([52, 60, 90, 156, 400])("scrollTopFor shows a whole row in a window of %i pixels, from wherever it comes", (height) => {
        for (const from of [0, 1, 5200, 5230, 20_000]) {
            const top = scrollTopFor(100, from, height, 52);
            expect([top <= 100 * 52, top + height >= 101 * 52]).toEqual([true, true]);
            expect(scrollTopFor(100, top, height, 52)).toBe(top);
        }
    });
});

describe("scrollLeftFor", () => {
    test.each([
        ["keeps the offset of a visible extent", { x: 900, farX: 600 }, 500, 500],
        ["shows both ends of a message to the left", { x: 700, farX: 300 }, 500, 264],
        ["shows both ends of a message to the right", { x: 900, farX: 1100 }, 500, 636],
        ["shows an event without a message", { x: 2000, farX: 2000 }, 0, 1536],
        ["shows the event if its message from the left is too long", { x: 1200, farX: 100 }, 300, 736],
        ["shows the event if its message from the right is too long", { x: 100, farX: 1200 }, 300, 64],
        ["never returns a negative offset", { x: 20, farX: 100 }, 300, 0],
    ])("%s", (_, extent, scrollLeft, expected) => {
        expect(scrollLeftFor(extent, scrollLeft, 500)).toBe(expected);
    });

    test("shows the event in a window narrower than the margins", () => {
        const left = scrollLeftFor({ x: 500, farX: 500 }, 0, 40);
        expect([left < 500, left + 40 > 500]).toEqual([true, true]);
    });
});

describe("extentOf", () => {
    const layout = layOutLanes(PARTICIPANTS, 900);
    const [caller, service] = [layout.x(worker), layout.x("service")];
    const arrow: Arrow = { id: 1, from: worker, to: "service", says: "commit", sent: 3, ended: 6, how: "arrived" };
    const nothing: Entry = { position: 6, event: "forget", at_micros: 0, says: "", lane: "service", sent: [], lost: [], fired: [], fault: false };
    const answer: Arrow = { ...arrow, id: 2, from: "service", to: { user: 1 }, sent: 6, ended: 9 };
    const lost: Arrow = { ...arrow, how: "lost" };
    const cases: [string, Partial<Entry>, Arrow[], ReturnType<typeof extentOf>][] = [
        ["the way of the message that arrived, although another is sent", { event: { deliver: 1 }, arrived: 1, sent: [answer] }, [answer, arrow], { x: service, farX: caller }],
        ["the way of the message that is sent", { event: { step: { cell: 2, process: { worker: 1 } } }, position: 3, lane: worker, sent: [arrow] }, [arrow], { x: caller, farX: service }],
        ["the end of the line of a lost message", { event: { drop: 1 }, lost: [1] }, [lost], { x: messageLine(lost, layout, new RowScale(40, 9)).x2, farX: caller }],
        ["the lane of an event without a message", {}, [arrow], { x: service, farX: service }],
        ["undefined for a wait", { event: { wait: { seconds: 60 } } }, [arrow], undefined],
    ];
    test.each(cases)("returns %s", (_, entry, arrows, expected) => {
        expect(extentOf({ ...nothing, ...entry }, arrows, layout)).toEqual(expected);
    });
});

describe("messageLine", () => {
    const layout = layOutLanes(PARTICIPANTS, 900);
    const arrow: Arrow = { id: 1, from: worker, to: "service", says: "commit", sent: 3, ended: 6, how: "arrived" };

    test("runs from sender to receiver", () => {
        const line = messageLine(arrow, layout, new RowScale(40, 100));
        expect(line).toEqual({ x1: layout.x(worker), y1: 140, x2: layout.x("service"), y2: 260 });
        expect(pointAt(line, 200)).toEqual({ x: (line.x1 + line.x2) / 2, y: 200 });
        expect(pointAt(line, 999).y).toBe(260);
    });

    test("ends before the receiver if the message is lost or in flight", () => {
        const { ended: _, how: __, ...inFlight } = arrow;
        for (const short of [messageLine({ ...arrow, how: "lost" }, layout, new RowScale(40, 100)), messageLine(inFlight, layout, new RowScale(40, 5))]) {
            expect(short.x2).toBeGreaterThan(layout.x(worker));
            expect(short.x2).toBeLessThan(layout.x("service"));
        }
    });

    test("isInFlight is true after the sending and up to the end", () => {
        expect([3, 4, 6, 7].map((position) => isInFlight(arrow, position))).toEqual([false, true, true, false]);
    });
});

import { scenarios, Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { layOutLanes } from "../src/model/lanes";
import type { Arrow, Lane } from "../src/model/protocol";
import { mergedRows, RowScale } from "../src/model/row_scale";
import { eventPaths, labelWidth, localPaths, messagePaths, type DrawingScale } from "../src/model/svg_paths";

const world = { cells: [1, 2], workers: 2, reconcilers: 1, hasVerifier: true };
const scale: DrawingScale = { layout: layOutLanes(world, 400, undefined), rows: new RowScale(40, 20), firstRow: 0, hasLabels: true };

const worker: Lane = { process: [1, { worker: 0 }] };
const arrow = (id: number, more: Partial<Arrow>): Arrow => ({ id, from: worker, to: "service", sent: 2, says: "list claims", is_answer: false, ...more }) as Arrow;

/** Returns the end points of the commands `M` and `L` in SVG path data. */
function points(data: string): [number, number][] {
    return [...data.matchAll(/[ML](-?[\d.]+) (-?[\d.]+)/g)].map(([, x, y]) => [Number(x), Number(y)]);
}

describe("messagePaths", () => {
    test("draws each message from lane to lane, grouped by its fate", () => {
        const arrows = [arrow(1, { ended: 4, how: "arrived" }), arrow(2, { ended: 5, how: "lost" }), arrow(3, {}), arrow(4, { ended: 6, how: "ignored" }), arrow(5, { ended: 7, how: "arrived" })];
        const { lines, tips, crosses } = messagePaths(arrows, scale);
        const [from, to] = [scale.layout.x(worker), scale.layout.x("service")];
        expect([...lines.keys()].sort()).toEqual(["arrived", "ignored", "in-flight", "lost"]);
        expect(points(lines.get("arrived") ?? "").map(([, y]) => y)).toEqual([100, 180, 100, 300]);
        expect(points(lines.get("arrived") ?? "").map(([x]) => x)).toEqual([from, to, from, to].map((x) => expect.closeTo(x, 1)));
        expect(points(lines.get("lost") ?? "")[1]?.[0]).toBeLessThan(to);
        expect(tips.match(/z/g)).toHaveLength(4);
        expect(points(crosses)).toHaveLength(2);
    });

    test("draws tips in the direction of the message", () => {
        const { lines, tips } = messagePaths([arrow(1, { ended: 9, how: "arrived" })], scale);
        const [[x1, y1] = [0, 0], [x2, y2] = [0, 0]] = points(lines.get("arrived") ?? "");
        const [[x, y] = [0, 0], ...corners] = points(tips);
        const along = (px: number, py: number) => ((px - x1) * (x2 - x1) + (py - y1) * (y2 - y1)) / Math.hypot(x2 - x1, y2 - y1);
        expect(Math.hypot(x - x2, y - y2)).toBeLessThan(2);
        expect(along(x, y)).toBeGreaterThan(along(x2, y2));
        expect(corners).toHaveLength(2);
        for (const [cx, cy] of corners) expect(along(cx, cy)).toBeLessThan(along(x2, y2));
    });

    test("draws a refusal with a line and an end of its own, and no tip", () => {
        const refusal = arrow(1, { from: "service", to: worker, ended: 4, how: "arrived", refused: true });
        const { lines, tips, bars } = messagePaths([refusal, arrow(2, { ended: 4, how: "arrived" })], scale);
        expect([...lines.keys()].sort()).toEqual(["arrived", "refused"]);
        expect(tips.match(/z/g)).toHaveLength(1);
        const [[x1, y1] = [0, 0], [x2, y2] = [0, 0]] = points(bars);
        expect([(x1 + x2) / 2, (y1 + y2) / 2]).toEqual([scale.layout.x(worker), 180].map((one) => expect.closeTo(one, 0)));
    });

    test("places each label in the row of its sending, where no envelope lies", () => {
        const arrows = [arrow(1, { ended: 3, how: "arrived" }), arrow(2, { sent: 5 }), arrow(3, { sent: 7, ended: 19, how: "arrived" })];
        const { labels } = messagePaths(arrows, scale);
        // An envelope is 14 pixels high, and lies between two rows. A label is 11 pixels high.
        const distances = labels.map(({ y }, index) => Math.abs(y - 4 - ((arrows[index]?.sent ?? 0) + 0.5) * 40));
        expect(Math.max(...distances)).toBeLessThan(40 / 2 - 7 - 11 / 2);
    });

    test("labels lines that are long enough, and shortens long labels", () => {
        const long = arrow(1, { ended: 4, how: "arrived", says: "create a name that is much too long for the room between two lanes of a narrow page" });
        const near = arrow(2, { to: { process: [1, { worker: 1 }] } as Lane, ended: 4, how: "arrived" });
        expect(messagePaths([long, near], scale).labels.map(({ text }) => text)).toEqual([expect.stringMatching(/^create a name.*…$/)]);
        expect(messagePaths([long], { ...scale, hasLabels: false })).toMatchObject({ labels: [], labelBackgrounds: "" });
    });

    test("cuts no number: a part of a fence would be another fence", () => {
        const small = { cells: [1], workers: 1, reconcilers: 0, hasVerifier: false };
        const texts = Array.from({ length: 60 }, (_, more) => {
            const begun = arrow(1, { ended: 4, how: "arrived", says: "begun, fence 170 and more" });
            return messagePaths([begun], { ...scale, layout: layOutLanes(small, 120 + more * 10, undefined) }).labels[0]?.text ?? "";
        });
        expect(new Set(texts).size).toBeGreaterThan(3);
        expect(texts.filter((text) => /\d/u.test(text) && !text.includes("170"))).toEqual([]);
    });
});

describe("labels", () => {
    /** The measures of the style sheet's font: the average width of a letter, and the height of one. */
    const [LETTER, HEIGHT] = [5.6, 9];

    test.each(scenarios().map(({ id, trace }) => [id, trace] as const))("of %s do not cover each other, in narrow and wide lanes", (_, trace) => {
        const run = Simulation.load(JSON.stringify(trace));
        const entries = run.entries(0, run.length);
        const { cells, workers, reconcilers, locks } = run.settings();
        const crowd = { cells: Array.from({ length: cells }, (_, index) => index + 1), workers, reconcilers, hasVerifier: true, hasClients: locks !== undefined, hasFronts: locks?.lanes !== undefined };
        const scales = [undefined, mergedRows(entries)].map((firsts) => new RowScale(40, run.length, firsts));
        for (const [width, rows] of [400, 520, 640, 800, 1000].flatMap((width) => scales.map((rows) => [width, rows] as const))) {
            const drawing = { ...scale, layout: layOutLanes(crowd, width), rows };
            const labels = [...messagePaths(run.arrows(0, run.length), drawing).labels, ...localPaths(entries, drawing).labels];
            const covered = labels.flatMap((one, index) =>
                labels.slice(index + 1).filter((other) => Math.abs(one.y - other.y) < HEIGHT && Math.abs(one.x - other.x) < ((one.text.length + other.text.length) / 2) * LETTER).map((other) => `${width}: ${one.text} | ${other.text} at ${one.y}`),
            );
            expect(covered).toEqual([]);
        }
    });
});

describe("localPaths", () => {
    const trace = scenarios().find(({ id }) => id === "happy-path")?.trace;
    const entries = Simulation.load(JSON.stringify(trace)).entries(0, 14);
    const wide = { ...scale, layout: layOutLanes({ ...world, cells: [1], workers: 1 }, 600, undefined) };

    test("draws statements to the database and words to and from the user, each level in its row", () => {
        const { statements, speech, tips, speechTips, labels } = localPaths(entries, wide);
        const rows = (data: string) => points(data).map(([, y]) => (y - 20) / 40 + 1);
        expect([rows(statements), rows(speech)]).toEqual([[3, 4, 8, 9, 14], [1, 14]]);
        expect([tips.match(/z/g)?.length, speechTips.match(/z/g)?.length]).toEqual([5, 2]);
        const [user, from, to] = [{ user: 1 }, worker, { database: 1 }].map((lane) => Math.round(wide.layout.x(lane as Lane) * 10) / 10);
        const ends = (data: string) => [...data.matchAll(/M([\d.]+) [\d.]+H([\d.]+)/g)].map(([, x1, x2]) => [Number(x1), Number(x2)]);
        expect(ends(statements)).toEqual(Array.from({ length: 5 }, () => [from, to]));
        expect(ends(speech)).toEqual([[user, from], [from, user]]);
        expect(labels.map(({ text, isSpeech }) => `${text}${isSpeech ? " (speech)" : ""}`)).toEqual(["“create alice” (speech)", "BEGIN", "rows", "lease", "COMMIT", "delete", "“saved” (speech)"]);
    });

    test.each([300, 400, 600, 1000])("draws no label beyond its arrow in lanes of %i pixels", (width) => {
        const narrow = { ...wide, layout: layOutLanes({ ...world, cells: [1], workers: 1 }, width, undefined) };
        const step = narrow.layout.x({ database: 1 }) - narrow.layout.x(worker);
        expect(localPaths(entries, narrow).labels.filter(({ text }) => text.length * 6.2 > step)).toEqual([]);
    });

    test("keeps the last statement of arrows that share a label, and leaves room for the marks", () => {
        const narrow = { ...wide, layout: layOutLanes({ ...world, cells: [1], workers: 1 }, 570, undefined), rows: new RowScale(40, 14, mergedRows(entries)) };
        const [from, to] = [narrow.layout.x(worker), narrow.layout.x({ database: 1 })];
        const label = localPaths(entries, narrow).labels.find(({ text }) => text.includes("COMMIT"));
        expect(label?.text).toBe("…, COMMIT");
        const [left, right] = [-1, 1].map((side) => (label?.x ?? 0) + (side * labelWidth(label?.text ?? "")) / 2);
        expect([(left ?? 0) - from >= 5, to - (right ?? 0) >= 2]).toEqual([true, true]);
    });

    test("keeps labels where no envelope lies", () => {
        const { labels } = localPaths(entries, wide);
        // An envelope is 14 pixels high, and lies between two rows. A letter is 9 pixels high.
        const tops = labels.map(({ y }) => (y - 9) % 40);
        expect(labels.length).toBeGreaterThan(5);
        expect(Math.min(...tops)).toBeGreaterThanOrEqual(7);
        expect(localPaths(entries, { ...wide, hasLabels: false }).labels).toEqual([]);
    });
});

describe("eventPaths", () => {
    test("draws a refusal as a mark of its own, and a COMMIT as a success only if it took place", () => {
        const refused = [["staleness-race", 20], ["3a", 22], ["2a", 20]] as const;
        for (const [id, event] of refused) {
            const trace = scenarios().find((scenario) => scenario.id === id)?.trace;
            const paths = eventPaths(Simulation.load(JSON.stringify(trace)).entries(event - 1, event), { ...scale, firstRow: event - 1 });
            const marks = Object.entries(paths).filter(([, data]) => data !== "");
            expect(marks.map(([kind]) => kind)).toEqual(["refused"]);
            const [[x] = [0]] = points(paths.refused);
            expect(x).toBeCloseTo(scale.layout.x(id === "2a" ? "service" : { database: 1 }), 1);
        }
    });

    test("draws every mark with a size, at whatever row", () => {
        const simulation = new Simulation({ seed: 3, cells: 2 });
        simulation.play(100);
        const entries = simulation.entries(0, 100).map((entry) => ({ ...entry, position: entry.position + 1_000_000 }));
        const paths = eventPaths(entries, { ...scale, firstRow: 1_000_000 });
        const far = Object.values(paths).join(" ");
        expect(far).not.toMatch(/a[\d.]+ [\d.]+ 0 1 1 0 \.01/);
        // Browsers store a coordinate as a 32-bit float, which has 24 bits.
        const coordinates = [...far.matchAll(/-?\d+(?:\.\d+)?/g)].map(([text]) => Number(text));
        expect(Math.max(...coordinates.map((one) => Math.abs(one - Math.fround(one))))).toBeLessThan(0.001);
    });

    test("draws one mark for each event except drops", () => {
        const simulation = new Simulation({ seed: 3, cells: 2 });
        simulation.play(400);
        const entries = simulation.entries(0, simulation.length);
        const paths = eventPaths(entries, scale);
        const count = Object.values(paths).reduce((all, data) => all + (data.match(/M/g)?.length ?? 0), 0);
        // A cross consists of two lines, so it has two commands `M`.
        const crosses = (paths.cross.match(/M/g)?.length ?? 0) / 2;
        const drops = entries.filter(({ event }) => typeof event === "object" && "drop" in event).length;
        expect(drops).toBeGreaterThan(0);
        expect(crosses).toBeGreaterThan(0);
        expect(count - crosses).toBe(entries.length - drops);
        expect(JSON.stringify(paths)).not.toMatch(/NaN|undefined/);
    });
});

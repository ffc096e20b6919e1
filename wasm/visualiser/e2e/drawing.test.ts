// Tests what people see in the lanes: that nothing covers a text, that each event has its mark, and
// that refusals look like refusals.
import { scenarios, Simulation } from "leasehold/simulation";
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { DEFAULT_VIEW, encodeLink } from "../src/model/link";
import { coveredTexts, keepPicture, PHONE, quietStage, reach } from "./page";

const stage = quietStage();

test.each(scenarios().map(({ id, trace }) => [id, trace.events.length] as const))("no envelope lies on a label at any event of %s", async (id, length) => {
    const page = await stage.page(`#scenario=${id}`);
    const covered: string[] = [];
    for (let at = 1; at <= length; at += 1) {
        await page.keyboard.press("ArrowRight");
        covered.push(...(await coveredTexts(page)).map((text) => `${at}: ${text}`));
    }
    expect(covered).toEqual([]);
    await page.context().close();
});

/** Returns the shares of marks that are really drawn, and the number of marks. */
function drawnMarks(page: Page): Promise<{ marks: number; drawn: number }> {
    return page.evaluate(() => {
        const paths = [...document.querySelectorAll<SVGPathElement>("path.happened")].filter((path) => path.getAttribute("d") !== "");
        const marks = paths.flatMap((path) => (path.getAttribute("d") ?? "").split("M").slice(1).map((data) => ({ path, data })));
        const isDrawn = ({ path, data }: (typeof marks)[number]) => {
            const one = path.cloneNode() as SVGPathElement;
            one.setAttribute("d", `M${data}`);
            path.after(one);
            const { width, height } = one.getBBox();
            one.remove();
            return width > 5 && height > 5;
        };
        return { marks: marks.length, drawn: marks.filter(isDrawn).length };
    });
}

test.each([7000, 40_000])("events are drawn at event %i of a long run, too", async (events) => {
    const settings = new Simulation({ seed: 7, cells: 1 }).settings();
    const page = await stage.page(`#${await encodeLink({ origin: { kind: "free", settings, randomEvents: events }, rulesOff: [], position: events, view: DEFAULT_VIEW })}`);
    await reach(page, events);
    const { marks, drawn } = await drawnMarks(page);
    expect(marks).toBeGreaterThan(5);
    expect(drawn).toBe(marks);
    await page.context().close();
});

/** The WCAG contrast of two colours in the form `rgb(…)` (WCAG 2.2, 1.4.3). */
function contrast(one: string, other: string): number {
    const luminance = (colour: string) => {
        const [r = 0, g = 0, b = 0] = (colour.match(/\d+(?:\.\d+)?/gu) ?? []).map((part) => {
            const share = Number(part) / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const [light = 0, dark = 0] = [luminance(one), luminance(other)].sort((left, right) => right - left);
    return (light + 0.05) / (dark + 0.05);
}

describe.each(["light", "dark"] as const)("in %s colours", (colorScheme) => {
    test.each([
        ["2a", 20],
        ["3a", 22],
        ["staleness-race", 20],
    ])("the refusal of %s at event %i has a mark and a colour of its own", async (id, at) => {
        const page = await stage.page(`#scenario=${id}&at=${at}`, { colorScheme });
        await reach(page, at);
        const mark = page.locator("path.refused:not(.message)");
        expect(await mark.getAttribute("d")).not.toBe("");
        const colours = await mark.evaluate((path) => {
            const others = [".message.arrived", ".message.lost", "path.happened.commit"].map((one) => document.querySelector(one));
            return {
                own: getComputedStyle(path).stroke,
                ground: getComputedStyle(document.querySelector(".ground") ?? path).fill,
                others: others.flatMap((other) => (other ? [getComputedStyle(other).stroke, getComputedStyle(other).fill] : [])),
            };
        });
        expect(contrast(colours.own, colours.ground)).toBeGreaterThanOrEqual(4.5);
        expect(colours.others).not.toContain(colours.own);
        expect(await page.locator(".row.current.refused").count()).toBe(1);
        await keepPicture(page, `refusal-${id}-${colorScheme}`);
        await page.context().close();
    });
});

test.each(["light", "dark"] as const)("coming events are readable in %s colours", async (colorScheme) => {
    const page = await stage.page("#scenario=2b&at=4", { colorScheme });
    const seen = await page.evaluate(() => {
        const [rows, overlay, lanes] = [".rows", ".overlay", ".lanes"].map((one) => getComputedStyle(document.querySelector(one) ?? document.body));
        const colours = [...document.querySelectorAll(".row.coming .sentence")].map((one) => getComputedStyle(one).color);
        return { isAbove: Number(rows?.zIndex) > (Number(overlay?.zIndex) || 0), ground: lanes?.backgroundColor ?? "", colours };
    });
    expect(seen.isAbove).toBe(true);
    expect(seen.colours.length).toBeGreaterThan(5);
    for (const colour of seen.colours) expect(contrast(colour, seen.ground)).toBeGreaterThanOrEqual(4.5);
    await page.context().close();
});

test.each([
    ["laptop", {}],
    ["phone", { viewport: PHONE, hasTouch: true }],
] as const)("a violation covers no other row at a %s", async (_, options) => {
    const page = await stage.page("#scenario=5a&off=settled_lease_memory", options);
    const { violation = -1 } = (() => {
        const { trace } = scenarios().find(({ id }) => id === "5a") ?? { trace: undefined };
        const run = new Simulation({ ...trace?.settings, rules_off: ["settled_lease_memory"] });
        for (const event of trace?.events ?? []) run.apply(event);
        return run.marks();
    })();
    for (let at = 0; at <= violation; at += 1) await page.keyboard.press("ArrowRight");
    await reach(page, violation + 1);
    const boxes = await page.locator(".row.violated").evaluate((row) => [row, row.querySelector(".row-violation"), row.querySelector(".sentence")].map((one) => one?.getBoundingClientRect().toJSON() as DOMRect));
    const [row, banner, sentence] = boxes;
    expect(banner?.top).toBeGreaterThanOrEqual((sentence?.bottom ?? Number.NaN) - 1);
    const isLast = (await page.locator(".row.violated + .row").count()) === 0;
    if (!isLast) expect(banner?.bottom).toBeLessThanOrEqual((row?.bottom ?? Number.NaN) + 1);
    await page.context().close();
});

test("an address with an unknown parameter is not ignored in silence, and its message has no backticks", async () => {
    const page = await stage.page("#seed=7");
    const text = await page.locator(".notice").innerText();
    expect(text).toContain("“seed=7”");
    expect(text).not.toContain("`");
    await page.context().close();
});

test("at ten events a second the panel shows the event of the lanes", async () => {
    const settings = new Simulation({ seed: 7 }).settings();
    const page = await stage.page(`#${await encodeLink({ origin: { kind: "free", settings, randomEvents: 1 }, rulesOff: [], position: 1, view: { ...DEFAULT_VIEW, speed: 10 } })}`);
    await page.getByRole("button", { name: "Play", exact: true }).click();
    const samples = await page.evaluate(async () => {
        const seen: [string, string][] = [];
        for (let frame = 0; frame < 180; frame += 1) {
            await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
            const [lanes, panel] = [".row.current .number", ".current-event h2"].map((one) => document.querySelector(one)?.textContent ?? "");
            seen.push([`Event ${lanes}`, panel ?? ""]);
        }
        return seen;
    });
    expect(new Set(samples.map(([lanes]) => lanes)).size).toBeGreaterThan(5);
    const behind = samples.filter(([lanes, panel]) => lanes !== panel);
    // One frame may lie between the two drawings.
    expect(behind.length).toBeLessThan(samples.length / 20);
    await page.context().close();
});

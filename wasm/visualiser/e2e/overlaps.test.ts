// Tests that no text of the page lies on another one: in the tables, and in the lanes.
import { scenarios, Simulation } from "leasehold/simulation";
import type { Page } from "playwright-core";
import { afterAll, describe, expect, test } from "vitest";

import { DEFAULT_VIEW, encodeLink } from "../src/model/link";
import { keepPicture, quietStage, reach } from "./page";

const stage = quietStage();

/** The widths of the window: a tablet, laptops, and large screens. */
const WIDTHS = [768, 1280, 2560];
/** The number of looks at a scenario. */
const LOOKS = 4;

/**
 * Returns the texts that lie on another text, that leave the cell of their table, or that lie under
 * the tip of an arrow. Runs in the page.
 */
function overlapsInPage(): string[] {
    interface Box {
        text: string;
        left: number;
        right: number;
        top: number;
        bottom: number;
    }
    const meet = (one: Box, other: Box) => one.left < other.right - 0.7 && other.left < one.right - 0.7 && one.top < other.bottom - 1 && other.top < one.bottom - 1;
    /** Returns the boxes of a text's lines. Each is as high as its letters, without the space between lines. */
    const linesOf = (node: Text): Box[] => {
        const range = document.createRange();
        range.selectNodeContents(node);
        const text = node.data.trim();
        return [...range.getClientRects()].filter(({ width }) => width > 1).map(({ left, right, top, bottom }) => ({ text, left, right, top: top + 2, bottom: bottom - 2 }));
    };
    const textsIn = (root: Element): Text[] => {
        const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
        const found: Text[] = [];
        while (walker.nextNode()) if ((walker.currentNode as Text).data.trim()) found.push(walker.currentNode as Text);
        return found.filter(({ parentElement }) => parentElement !== null && getComputedStyle(parentElement).visibility === "visible");
    };
    const all = (selector: string) => [...document.querySelectorAll(selector)];
    const overlapping = (boxes: Box[]) => boxes.flatMap((one, index) => boxes.slice(index + 1).filter((other) => meet(one, other)).map((other) => `“${one.text}” lies on “${other.text}”`));
    const panel = all(".state h3, .state table, .workers, .machine figcaption").flatMap(textsIn).flatMap(linesOf);
    const cells = all(".state th, .state td").flatMap((cell) => {
        const { left, right } = cell.getBoundingClientRect();
        return textsIn(cell).flatMap(linesOf).filter((line) => line.left < left - 0.7 || line.right > right + 0.7).map(({ text }) => `“${text}” leaves its cell`);
    });
    const labels = all(".lines .label").map((label) => {
        const { left, right, top, bottom } = label.getBoundingClientRect();
        return { text: label.textContent ?? "", left, right, top: top + 2, bottom: bottom - 3 };
    });
    const heads = all(".cell-head, .head span").flatMap(textsIn).flatMap(linesOf);
    const sentences = all(".sentence").map((one) => ({ ...one.getBoundingClientRect().toJSON(), text: one.textContent ?? "" }) as Box);
    const apart = labels.flatMap((label) => sentences.filter((one) => meet(label, one)).map(({ text }) => `“${label.text}” lies on the sentence “${text}”`));
    return [panel, labels, heads].flatMap(overlapping).concat(cells, apart, labelsOnTips(labels));

    /** Returns the labels on which the tip of an arrow lies. A path of tips has a triangle for each arrow. */
    function labelsOnTips(labels: Box[]): string[] {
        const { left: x = 0, top: y = 0 } = document.querySelector("svg.lines")?.getBoundingClientRect() ?? {};
        const data = all(".tips, .local-tips").map((one) => one.getAttribute("d") ?? "").join("");
        const tips = data.split("M").slice(1).map((triangle) => {
            const numbers = (triangle.match(/-?\d+(?:\.\d+)?/gu) ?? []).map(Number);
            const [xs, ys] = [0, 1].map((odd) => numbers.filter((_, index) => index % 2 === odd)) as [number[], number[]];
            return { text: "", left: x + Math.min(...xs), right: x + Math.max(...xs), top: y + Math.min(...ys), bottom: y + Math.max(...ys) };
        });
        return labels.filter((label) => tips.some((tip) => meet(label, tip))).map(({ text }) => `an arrow's tip lies on “${text}”`);
    }
}

/** Returns each overlap once, with the width of the window and the event at which it was seen first. */
async function overlapsAt(page: Page, positions: readonly number[], seen: Map<string, string>): Promise<void> {
    for (const at of positions) {
        await page.getByLabel("Position in the run").fill(String(at));
        await reach(page, at);
        for (const width of WIDTHS) {
            await page.setViewportSize({ width, height: 900 });
            await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
            for (const overlap of await page.evaluate(overlapsInPage)) if (!seen.has(overlap)) seen.set(overlap, `${width} px, event ${at}`);
        }
    }
}

const opened: Page[] = [];
afterAll(() => Promise.all(opened.map((page) => page.context().close())));

async function overlapsOf(hash: string, positions: readonly number[], name: string): Promise<string[]> {
    const page = await stage.page(hash, { viewport: { width: 1280, height: 900 } });
    opened.push(page);
    const seen = new Map<string, string>();
    await overlapsAt(page, positions, seen);
    if (seen.size > 0) await keepPicture(page, `overlap-${name}`);
    return [...seen].map(([overlap, where]) => `${where}: ${overlap}`);
}

const runs = scenarios().map(({ id, trace }) => [id, trace.events.length] as const);

describe.each([
    ["each event in a row of its own", ""],
    ["local steps in one row", "&steps=merged"],
])("with %s", (_, options) => {
    test.each(runs)("no text lies on another one in %s", { timeout: 120_000 }, async (id, length) => {
        const positions = Array.from({ length: LOOKS }, (_, index) => Math.round((length * (index + 1)) / LOOKS));
        expect(await overlapsOf(`#scenario=${id}${options}`, positions, id)).toEqual([]);
    });
});

test.each([
    ["claims", 1],
    ["locks", 1],
    ["queues", 1],
] as const)("no text lies on another one in a long run of free play: %s, seed %i", { timeout: 120_000 }, async (kind, seed) => {
    const { settingsOf, formOf } = await import("../src/model/world_form");
    const settings = settingsOf({ ...formOf(new Simulation({ seed }).settings()), kind }, []);
    const origin = { kind: "free", settings, randomEvents: 3000 } as const;
    const link = await encodeLink({ origin, rulesOff: [], position: 3000, view: DEFAULT_VIEW });
    expect(await overlapsOf(`#${link}`, [40, 400, 1700, 3000], `free-${kind}`)).toEqual([]);
});

test.each(runs)("the tables stay in their place at each event of %s", { timeout: 120_000 }, async (id, length) => {
    const page = await stage.page(`#scenario=${id}`, { viewport: { width: 1280, height: 800 } });
    opened.push(page);
    const tops = new Set<number>();
    const cut: number[] = [];
    for (let at = 0; at <= length; at += 1) {
        await reach(page, at);
        tops.add(await page.locator(".state").evaluate((one) => one.getBoundingClientRect().top));
        if (await page.locator(".current-event").evaluate((one) => one.scrollHeight > one.clientHeight + 1)) cut.push(at);
        await page.keyboard.press("ArrowRight");
    }
    expect([[...tops].length, cut]).toEqual([1, []]);
});

test("a phone of 320 pixels shows the whole header", async () => {
    const page = await stage.page("", { viewport: { width: 320, height: 640 }, hasTouch: true });
    opened.push(page);
    const { right } = await page.getByRole("button", { name: "Help" }).evaluate((one) => one.getBoundingClientRect());
    expect(right).toBeLessThanOrEqual(320);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320);
});

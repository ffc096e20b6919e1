// Tests of worlds that are wider than the window: the page scrolls sideways to each event, unless a
// person has scrolled sideways.
import { Simulation } from "leasehold/simulation";
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { partsOf } from "../src/model/events";
import { laneKey } from "../src/model/lanes";
import { DEFAULT_VIEW, encodeLink } from "../src/model/link";
import type { Lane } from "../src/model/protocol";
import { keepPicture, PHONE, position, quietStage, reach } from "./page";

const stage = quietStage();

const EVENTS = 400;
const world = new Simulation({ seed: 5, cells: 8 });
world.play(EVENTS);

async function linkTo(at: number, speed = DEFAULT_VIEW.speed): Promise<string> {
    const origin = { kind: "free", settings: world.settings(), randomEvents: EVENTS } as const;
    return `#${await encodeLink({ origin, rulesOff: [], position: at, view: { ...DEFAULT_VIEW, speed } })}`;
}

/**
 * Returns the lane of the event before position `at`, and the lane at the other end of its message.
 * Returns no lane for a wait or a drop, and one lane for a message that has not arrived.
 */
function lanesOf(at: number): Lane[] {
    const [entry] = world.entries(at - 1, at);
    if (entry === undefined || ["wait", "drop"].includes(partsOf(entry.event).kind)) return [];
    const id = entry.arrived ?? entry.sent[0]?.id;
    const arrow = world.arrows(at - 1, at).find((message) => message.id === id);
    const other = arrow && (laneKey(arrow.from) === laneKey(entry.lane) ? arrow.to : arrow.from);
    const hasArrived = arrow !== undefined && arrow.ended !== undefined && arrow.how !== "lost";
    return other && hasArrived ? [entry.lane, other] : [entry.lane];
}

interface HeadPositions {
    /**
     * The left and right edge of each lane's head, in pixels from the left edge of the visible
     * part.
     */
    heads: { left: number; right: number }[];
    width: number;
}

async function headPositions(page: Page, lanes: Lane[]): Promise<HeadPositions> {
    return page.evaluate((keys) => {
        const box = document.querySelector<HTMLElement>(".lanes");
        if (!box) throw new Error("the page has no lanes");
        const start = box.getBoundingClientRect().left;
        const heads = keys.map((key) => {
            const { left, right } = document.querySelector(`.head[data-lane="${key}"]`)?.getBoundingClientRect() ?? { left: Number.NaN, right: Number.NaN };
            return { left: left - start, right: right - start };
        });
        return { heads, width: box.clientWidth };
    }, lanes.map(laneKey));
}

/**
 * Expects that the lane of the event is visible. The other end of its message must be visible too,
 * if both fit into the window.
 */
async function expectVisible(page: Page, at: number): Promise<void> {
    await expect.poll(async () => hiddenHeads(await headPositions(page, lanesOf(at))), { message: `event ${at}` }).toEqual([]);
}

function hiddenHeads({ heads, width }: HeadPositions): HeadPositions["heads"] {
    const span = Math.max(...heads.map(({ right }) => right)) - Math.min(...heads.map(({ left }) => left));
    const wanted = span + 2 * SIDE_MARGIN <= width ? heads : heads.slice(0, 1);
    return wanted.filter(({ left, right }) => !(left >= 0 && right <= width));
}

/** The margin that the page keeps between an event and the window's edges, in pixels. */
const SIDE_MARGIN = 40;

async function scrolledTo(page: Page): Promise<number> {
    return page.locator(".lanes").evaluate((box) => box.scrollLeft);
}

/** Scrolls the lanes sideways with the mouse wheel until they stop. Returns their scroll offset. */
async function scrollByWheel(page: Page, direction: "left" | "right"): Promise<number> {
    await page.locator(".lanes").hover();
    const end = await page.locator(".lanes").evaluate((box, to) => (to === "right" ? box.scrollWidth - box.clientWidth : 0), direction);
    const distanceToEnd = async (): Promise<number> => {
        // An event that is being played may still scroll the lanes back until the page has noticed
        // the wheel. So turn the wheel until the lanes are at their end.
        await page.mouse.wheel(direction === "right" ? 10_000 : -10_000, 0);
        return Math.abs((await scrolledTo(page)) - end);
    };
    await expect.poll(distanceToEnd).toBeLessThan(1);
    return scrolledTo(page);
}

/**
 * Changes the height of the window, like a phone's browser when its bars disappear. Waits until the
 * page has adapted.
 */
async function resize(page: Page, height: number): Promise<void> {
    await page.setViewportSize({ width: 1280, height });
    await page.waitForFunction(() => {
        const [overlay, box] = [document.querySelector<HTMLElement>(".overlay"), document.querySelector(".lanes")];
        return overlay !== null && box !== null && overlay.style.height === `${box.clientHeight * 2}px`;
    });
}

describe.each([
    ["laptop", {}],
    ["phone", { viewport: PHONE, hasTouch: true }],
] as const)("in a world of eight cells, at a %s", (name, options) => {
    test("each event that is stepped or scrubbed to is visible", async () => {
        const page = await stage.page(await linkTo(300), options);
        await reach(page, 300);
        await expectVisible(page, 300);
        const offsets = new Set<number>();
        for (let at = 301; at <= 340; at += 1) {
            await page.getByRole("button", { name: "Step", exact: true }).click();
            await reach(page, at);
            await expectVisible(page, at);
            offsets.add(await scrolledTo(page));
        }
        expect(offsets.size).toBeGreaterThan(5);
        for (const at of [17, 390, 122, 251]) {
            await page.getByLabel("Position in the run").fill(String(at));
            await reach(page, at);
            await expectVisible(page, at);
            await keepPicture(page, `wide-${name}-${at}`);
        }
        await page.context().close();
    });
});

test("on a phone lanes reach as far as their heads, and the sentences stay in the window", async () => {
    const page = await stage.page(await linkTo(300), { viewport: PHONE, hasTouch: true });
    await page.locator(".lanes").evaluate((box) => (box.scrollLeft = box.scrollWidth));
    const boxes = () =>
        page.evaluate(() => {
            const rightOf = (what: string) => document.querySelector(what)?.getBoundingClientRect().right ?? Number.NaN;
            const { left, right } = document.querySelector(".row.current .sentence")?.getBoundingClientRect() ?? { left: Number.NaN, right: Number.NaN };
            return { beyond: rightOf(".track") - rightOf(".heads-lanes"), left, right };
        });
    // The heads follow the lanes in the frame after.
    await expect.poll(async () => (await boxes()).beyond).toBeGreaterThanOrEqual(0);
    const { left, right } = await boxes();
    expect([left >= 0, right <= PHONE.width]).toEqual([true, true]);
    await page.context().close();
});

describe("a person who scrolls sideways", () => {
    const START = 300;

    test("keeps the offset while paused, until the next step", async () => {
        const page = await stage.page(await linkTo(START));
        await reach(page, START);
        for (const direction of ["left", "right"] as const) {
            const offset = await scrollByWheel(page, direction);
            await resize(page, direction === "left" ? 760 : 700);
            expect(await scrolledTo(page)).toBe(offset);
        }
        await page.getByRole("button", { name: "Step", exact: true }).click();
        await reach(page, START + 1);
        await expectVisible(page, START + 1);
        await page.context().close();
    });

    test("keeps the offset during playback, and follows steps again afterwards", async () => {
        const page = await stage.page(await linkTo(START, 10));
        await reach(page, START);
        await page.getByRole("button", { name: "Play", exact: true }).click();
        const offset = await scrollByWheel(page, "right");
        const { at } = await position(page);
        await expect.poll(async () => (await position(page)).at, { timeout: 20_000 }).toBeGreaterThan(at + 20);
        expect(await scrolledTo(page)).toBe(offset);
        await page.getByRole("button", { name: "Pause" }).click();
        const rest = (await position(page)).at;
        expect(await scrolledTo(page)).toBe(offset);
        for (let step = 1; step <= 5; step += 1) {
            await page.keyboard.press("ArrowRight");
            await reach(page, rest + step);
            await expectVisible(page, rest + step);
        }
        await page.context().close();
    });
});

// Worlds that are wider than the window: whatever happens is in sight, and who scrolls by hand is left alone.
import { Simulation } from "leasehold/simulation";
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { about } from "../src/model/happening";
import { laneKey } from "../src/model/lanes";
import { DEFAULT_VIEW, encodeLink } from "../src/model/link";
import type { Lane } from "../src/model/protocol";
import { keepPicture, PHONE, position, quietStage, reach } from "./page";

const stage = quietStage();

const EVENTS = 400;
const world = new Simulation({ seed: 5, cells: 8 });
world.play(EVENTS);

async function linkTo(at: number, speed = DEFAULT_VIEW.speed): Promise<string> {
    const origin = { kind: "free", settings: world.settings(), chance: EVENTS } as const;
    return `#${await encodeLink({ origin, rulesOff: [], position: at, view: { ...DEFAULT_VIEW, speed } })}`;
}

/** Where an event happened, and the other end of the message that arrived or was sent; nothing of what has no lane, or ends on its way. */
function lanesOf(at: number): Lane[] {
    const [entry] = world.entries(at - 1, at);
    if (entry === undefined || ["wait", "drop"].includes(about(entry.event).kind)) return [];
    const id = entry.arrived ?? entry.sent[0]?.id;
    const arrow = world.arrows(at - 1, at).find((one) => one.id === id);
    const other = arrow && (laneKey(arrow.from) === laneKey(entry.lane) ? arrow.to : arrow.from);
    const hasFlown = arrow !== undefined && arrow.ended !== undefined && arrow.how !== "lost";
    return other && hasFlown ? [entry.lane, other] : [entry.lane];
}

interface Seen {
    /** How far the lanes' heads are from the beginning of what is in sight. */
    heads: { left: number; right: number }[];
    width: number;
}

async function see(page: Page, lanes: Lane[]): Promise<Seen> {
    return page.evaluate((keys) => {
        const box = document.querySelector<HTMLElement>(".lanes");
        if (!box) throw new Error("there are no lanes");
        const start = box.getBoundingClientRect().left;
        const heads = keys.map((key) => {
            const { left, right } = document.querySelector(`.head[data-lane="${key}"]`)?.getBoundingClientRect() ?? { left: Number.NaN, right: Number.NaN };
            return { left: left - start, right: right - start };
        });
        return { heads, width: box.clientWidth };
    }, lanes.map(laneKey));
}

/** Both ends of the event's message are in sight where they fit, and always where the event is. */
async function expectInSight(page: Page, at: number): Promise<void> {
    await expect.poll(async () => outOfSight(await see(page, lanesOf(at))), { message: `event ${at}` }).toEqual([]);
}

function outOfSight({ heads, width }: Seen): Seen["heads"] {
    const span = Math.max(...heads.map(({ right }) => right)) - Math.min(...heads.map(({ left }) => left));
    const wanted = span + 2 * BESIDE <= width ? heads : heads.slice(0, 1);
    return wanted.filter(({ left, right }) => !(left >= 0 && right <= width));
}

/** Room that is kept on either side. */
const BESIDE = 40;

async function scrolledTo(page: Page): Promise<number> {
    return page.locator(".lanes").evaluate((box) => box.scrollLeft);
}

/** Turns the wheel over the lanes, sideways, and waits until they stand at their end. */
async function scrollByHand(page: Page, direction: "left" | "right"): Promise<number> {
    await page.locator(".lanes").hover();
    await page.mouse.wheel(direction === "right" ? 10_000 : -10_000, 0);
    const end = await page.locator(".lanes").evaluate((box, to) => (to === "right" ? box.scrollWidth - box.clientWidth : 0), direction);
    await expect.poll(async () => Math.abs((await scrolledTo(page)) - end)).toBeLessThan(1);
    return scrolledTo(page);
}

/** Makes the window as high, as a phone's browser does whose bars go, and waits until the page knows. */
async function resize(page: Page, height: number): Promise<void> {
    await page.setViewportSize({ width: 1280, height });
    await page.waitForFunction(() => {
        const [veil, box] = [document.querySelector<HTMLElement>(".veil"), document.querySelector(".lanes")];
        return veil !== null && box !== null && veil.style.height === `${box.clientHeight * 2}px`;
    });
}

describe.each([
    ["laptop", {}],
    ["phone", { viewport: PHONE, hasTouch: true }],
] as const)("in a world of eight cells, at a %s", (name, options) => {
    test("every event is in sight that is stepped or scrubbed to, and what it says", async () => {
        const page = await stage.page(await linkTo(300), options);
        await reach(page, 300);
        await expectInSight(page, 300);
        const been = new Set<number>();
        for (let at = 301; at <= 340; at += 1) {
            await page.getByRole("button", { name: "Step", exact: true }).click();
            await reach(page, at);
            await expectInSight(page, at);
            been.add(await scrolledTo(page));
        }
        expect(been.size).toBeGreaterThan(5);
        for (const at of [17, 390, 122, 251]) {
            await page.getByLabel("Position in the run").fill(String(at));
            await reach(page, at);
            await expectInSight(page, at);
            await keepPicture(page, `wide-${name}-${at}`);
        }
        await page.context().close();
    });
});

test("on a phone lanes are drawn as far as their heads go, and words stay in the window", async () => {
    const page = await stage.page(await linkTo(300), { viewport: PHONE, hasTouch: true });
    await page.locator(".lanes").evaluate((box) => (box.scrollLeft = box.scrollWidth));
    const [drawn, heads, words] = await Promise.all(
        [".track", ".heads-lanes", ".row.current .words"].map((what) => page.locator(what).evaluate((one) => one.getBoundingClientRect().toJSON() as DOMRect)),
    );
    expect(drawn?.right).toBeGreaterThanOrEqual(heads?.right ?? Number.NaN);
    expect([(words?.left ?? -1) >= 0, (words?.right ?? Number.NaN) <= PHONE.width]).toEqual([true, true]);
    await page.context().close();
});

describe("who scrolls sideways by hand", () => {
    const START = 300;

    test("stays there at rest, until the next step", async () => {
        const page = await stage.page(await linkTo(START));
        await reach(page, START);
        for (const direction of ["left", "right"] as const) {
            const there = await scrollByHand(page, direction);
            await resize(page, direction === "left" ? 760 : 700);
            expect(await scrolledTo(page)).toBe(there);
        }
        await page.getByRole("button", { name: "Step", exact: true }).click();
        await reach(page, START + 1);
        await expectInSight(page, START + 1);
        await page.context().close();
    });

    test("stays there while the run is played, and is followed again after it", async () => {
        const page = await stage.page(await linkTo(START, 10));
        await reach(page, START);
        await page.getByRole("button", { name: "Play", exact: true }).click();
        const there = await scrollByHand(page, "right");
        const { at } = await position(page);
        await expect.poll(async () => (await position(page)).at, { timeout: 20_000 }).toBeGreaterThan(at + 20);
        expect(await scrolledTo(page)).toBe(there);
        await page.getByRole("button", { name: "Pause" }).click();
        const rest = (await position(page)).at;
        expect(await scrolledTo(page)).toBe(there);
        for (let step = 1; step <= 5; step += 1) {
            await page.keyboard.press("ArrowRight");
            await reach(page, rest + step);
            await expectInSight(page, rest + step);
        }
        await page.context().close();
    });
});

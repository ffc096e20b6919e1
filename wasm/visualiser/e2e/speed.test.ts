import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { position, Stage } from "./page";

let stage: Stage;
beforeAll(async () => {
    stage = await Stage.open();
});
afterAll(() => stage.close());

const FRAMES = 180;
const ROUNDS = 8;
/** Sixty pictures a second. */
const SMOOTH_MS = 17;
const INTERACTIVE_MS = 1000;

/** How long frames take, in milliseconds, while something is done before each. */
async function frames(page: Page, what: "nothing" | "scroll" | "scrub" | "play"): Promise<{ median: number; slowest: number }> {
    return page.evaluate(
        async ({ what, count }) => {
            const frame = () => new Promise<number>((done) => requestAnimationFrame(done));
            const lanes = document.querySelector<HTMLElement>(".lanes");
            const scrubber = document.querySelector<HTMLInputElement>(".scrubber input");
            if (!lanes || !scrubber) throw new Error("there are no lanes");
            if (what === "play") document.querySelector<HTMLElement>(".main-button[aria-label=Play]")?.click();
            const far = lanes.scrollHeight - lanes.clientHeight;
            const spans: number[] = [];
            let last = await frame();
            for (let at = 0; at < count; at += 1) {
                if (what === "scroll") lanes.scrollTop = (far * at) / count;
                if (what === "scrub") {
                    scrubber.value = String(Math.round((Number(scrubber.max) * at) / count));
                    scrubber.dispatchEvent(new Event("input", { bubbles: true }));
                }
                const now = await frame();
                spans.push(now - last);
                last = now;
            }
            spans.sort((one, other) => one - other);
            return { median: spans[Math.floor(count / 2)] ?? Number.NaN, slowest: spans[Math.floor(count * 0.95)] ?? Number.NaN };
        },
        { what, count: FRAMES },
    );
}

/** The best of some rounds: what other programs take from the machine is not the page's. */
async function best(page: Page, what: "nothing" | "scroll" | "scrub" | "play"): Promise<{ median: number; slowest: number }> {
    let found = await frames(page, what);
    for (let round = 1; round < ROUNDS && found.median > SMOOTH_MS; round += 1) {
        const again = await frames(page, what);
        if (again.median < found.median) found = again;
    }
    return found;
}

test("ten thousand events scroll, scrub and play at the idle page's frame rate", async () => {
    const page = await stage.page();
    const idle = await best(page, "nothing");
    await page.getByRole("tab", { name: "Free play" }).click();
    await page.getByRole("button", { name: "10,000 events at once" }).click();
    await expect.poll(async () => (await position(page)).at).toBe(10_000);
    const scrolled = await best(page, "scroll");
    const scrubbed = await best(page, "scrub");
    await page.keyboard.press("Home");
    await page.getByLabel("Speed, in events a second").selectOption("200");
    const played = await best(page, "play");
    console.log(JSON.stringify({ idle, scrolled, scrubbed, played }));
    // A machine that does not give an idle page 60 pictures a second is asked for no more than it gives.
    const limit = Math.max(SMOOTH_MS, idle.median * 1.1);
    expect([scrolled, scrubbed, played].map(({ median }) => median <= limit)).toEqual([true, true, true]);
});

test("the page is there within a second", async () => {
    const spans: number[] = [];
    while (spans.length < ROUNDS && !spans.some((span) => span < INTERACTIVE_MS)) {
        const page = await stage.page();
        spans.push((await page.evaluate(() => performance.getEntriesByName("interactive")[0]?.startTime)) ?? Number.NaN);
        await page.context().close();
    }
    console.log(JSON.stringify({ interactive_ms: spans }));
    expect(Math.min(...spans)).toBeLessThan(INTERACTIVE_MS);
});

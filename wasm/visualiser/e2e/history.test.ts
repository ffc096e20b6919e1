// Tests that Back, Forward and a reload of the browser restore the run that was open.
import { fileURLToPath } from "node:url";

import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { setUpOf } from "../src/model/scenarios";
import { position, quietStage, reach, shown } from "./page";

const stage = quietStage();

const LOG = fileURLToPath(new URL("../tests/audit.jsonl", import.meta.url));

/** Drops the first message in flight. Returns the contents of the page after that. */
async function dropFirst(page: Page): ReturnType<typeof shown> {
    await page.locator(".envelope").first().click();
    await page.getByRole("menuitem", { name: "Drop it" }).click();
    return shown(page);
}

async function openScenario(page: Page, title: string): Promise<void> {
    await page.getByRole("button", { name: title, exact: true }).click();
    await page.getByRole("heading", { name: title }).waitFor();
}

const SCENARIO = "Alice's worker dies after its COMMIT";

describe("the browser's Back", () => {
    test("restores an edited run after another scenario was opened, and Forward that scenario", async () => {
        const page = await stage.page("#scenario=3b&at=21");
        const before = await dropFirst(page);
        await openScenario(page, SCENARIO);
        await page.keyboard.press("ArrowRight");
        await page.keyboard.press("ArrowRight");
        await page.goBack();
        await reach(page, before.position.at);
        expect(await shown(page)).toEqual(before);
        await page.goForward();
        await page.getByRole("heading", { name: SCENARIO }).waitFor();
        await reach(page, setUpOf("4a") + 2);
        await page.context().close();
    });

    test("restores an edited run after a reload, too", async () => {
        const page = await stage.page("#scenario=3b&at=21");
        const before = await dropFirst(page);
        await openScenario(page, SCENARIO);
        await page.reload();
        await page.getByRole("heading", { name: SCENARIO }).waitFor();
        await page.goBack();
        await reach(page, before.position.at);
        expect(await shown(page)).toEqual(before);
        await page.context().close();
    });

    test("restores the run that was open before free play or before a log", async () => {
        const page = await stage.page("#scenario=happy-path&at=3");
        await page.getByRole("tab", { name: "Free play" }).click();
        await page.getByRole("button", { name: "10,000 events at once" }).click();
        await reach(page, 10_000);
        await page.getByLabel("Open a saved run, or a live server's log").setInputFiles(LOG);
        await page.getByRole("heading", { name: "A live server's log" }).waitFor();
        await page.goBack();
        await reach(page, 10_000);
        await page.goBack();
        await page.getByRole("heading", { name: "Alice signs up" }).waitFor();
        await reach(page, 3);
        await page.goForward();
        await reach(page, 10_000);
        await page.goForward();
        await page.getByRole("heading", { name: "A live server's log" }).waitFor();
        await page.context().close();
    });

    test("restores the run before a rule was switched, and Forward the run after it", async () => {
        const page = await stage.page("#scenario=2b&at=12");
        await page.getByRole("tab", { name: "Rules" }).click();
        const rule = page.locator('[data-rule="replay_keys"]');
        const before = await shown(page);
        await rule.click();
        await page.getByRole("heading", { name: ", changed" }).waitFor();
        const without = await shown(page);
        expect(without).not.toEqual(before);
        await page.goBack();
        await expect.poll(() => rule.isChecked()).toBe(true);
        expect(await shown(page)).toEqual(before);
        expect(await page.evaluate(() => location.hash)).not.toContain("off=");
        await page.goForward();
        await expect.poll(() => rule.isChecked()).toBe(false);
        expect(await shown(page)).toEqual(without);
        await page.context().close();
    });

    test("gets no new entry from changes within a run", async () => {
        const page = await stage.page("#scenario=3b&at=21");
        const entries = await page.evaluate(() => history.length);
        await dropFirst(page);
        await page.keyboard.press("Home");
        await page.keyboard.press("End");
        await expect.poll(() => page.evaluate(() => location.hash)).toContain("kept=");
        expect(await page.evaluate(() => history.length)).toBe(entries);
        await page.context().close();
    });
});

describe("the address", () => {
    test("follows the position during playback", async () => {
        const page = await stage.page("#scenario=3b&at=0&speed=5");
        await page.getByRole("button", { name: "Play", exact: true }).click();
        const whilePlaying = () => page.evaluate(() => (document.querySelector(".main-button[aria-label=Pause]") ? location.hash : "paused"));
        await expect.poll(whilePlaying, { interval: 50, timeout: 4000 }).toMatch(/at=[1-9]/);
        await page.context().close();
    });

    test("contains a dropped message at once, without a timer", async () => {
        const page = await stage.page("#scenario=3b&at=21");
        await page.evaluate(() => {
            const start = window.setTimeout.bind(window);
            const withoutLongTimers = (handler: TimerHandler, ms?: number) => (ms !== undefined && ms > 100 ? 0 : start(handler, ms));
            window.setTimeout = withoutLongTimers as typeof setTimeout;
        });
        await page.locator(".envelope").first().click();
        await page.getByRole("menuitem", { name: "Drop it" }).click();
        await expect.poll(() => page.evaluate(() => location.hash)).toContain("kept=21");
        await page.context().close();
    });
});

describe("a page that is reloaded at once", () => {
    test.each([
        ["after a move to the end", (page: Page) => page.keyboard.press("End")],
        ["after a message was dropped", dropFirst],
    ])("%s shows the same position", async (_, act) => {
        const page = await stage.page("#scenario=3b&at=21");
        await reach(page, 21);
        await act(page);
        await page.reload();
        const [at, of] = [await position(page), await page.locator(".headline h2").innerText()];
        expect([at, of.includes("changed")]).toEqual(act === dropFirst ? [{ at: 22, of: 22 }, true] : [{ at: 25, of: 25 }, false]);
        await page.context().close();
    });
});

describe("a damaged link", () => {
    test.each([
        ["to an unknown scenario", "#scenario=9z&at=3", "“9z”"],
        ["with a truncated payload", "#scenario=3b&kept=25&at=30&z=q1YqLU4tUrJSSs5ILErO", "damaged or was cut short"],
    ])("%s opens the first scenario with a notice", async (_, hash, words) => {
        const page = await stage.page(hash);
        const notice = await page.getByRole("alert").innerText();
        expect(notice).toContain(words);
        expect(notice).toContain("The page shows “Alice signs up” instead");
        await page.keyboard.press("End");
        await reach(page, 14);
        await page.context().close();
    });

    test("in the address bar leaves the open run as it is", async () => {
        const page = await stage.page("#scenario=4a&at=7");
        await page.evaluate(() => (location.hash = "scenario=9z"));
        expect(await page.getByRole("alert").innerText()).toContain("The open run stays");
        expect(await position(page)).toEqual({ at: 7, of: 22 });
        await expect.poll(() => page.evaluate(() => location.hash)).toBe("#scenario=4a&at=7");
        await page.context().close();
    });
});

// Tests how the page tells a story: the scenarios behind their set-up, the explained terms, the
// tables and the current event in their places, and short transitions.
import { scenarios, Simulation } from "leasehold/simulation";
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { scenarioById, setUpOf, STORY_GROUPS } from "../src/model/scenarios";
import { TERMS } from "../src/model/terms";
import { axeViolations, coveredTexts, keepPicture, position, quietStage, reach } from "./page";

const stage = quietStage();

const SMALL_PHONE = { width: 375, height: 812 };

const boxOf = (page: Page, selector: string) => page.locator(selector).first().evaluate((one) => one.getBoundingClientRect().toJSON() as DOMRect);

describe("a story", () => {
    test("is in a group, begins behind its set-up, and shows the way to its start", async () => {
        const page = await stage.page();
        const groups = await page.locator(".stories h2").allInnerTexts();
        expect(groups).toEqual(STORY_GROUPS.map(({ title }) => title));
        await page.getByRole("button", { name: "Somebody else has alice already", exact: true }).click();
        await reach(page, setUpOf("2a"));
        await page.getByText(`Events 1 to ${setUpOf("2a")} have set the scene.`).filter({ visible: true }).waitFor();
        await page.getByRole("button", { name: "Go to the start" }).filter({ visible: true }).click();
        await reach(page, 0);
        await page.context().close();
    });

    test.each([
        ["#scenario=2a&at=3", 3],
        ["#scenario=2a", 0],
        ["#scenario=2a&at=14", 14],
    ])("is at the position that its former link %s names", async (hash, at) => {
        const page = await stage.page(hash);
        expect(await position(page)).toEqual({ at, of: scenarioById("2a")?.trace.events.length });
        await page.context().close();
    });

    test("merges the local steps of a cell on demand, and steps through them", async () => {
        const page = await stage.page("#scenario=happy-path&at=2", { bypassCSP: true });
        const events = scenarioById("happy-path")?.trace.events.length ?? Number.NaN;
        const rows = page.locator(".row");
        expect(await rows.count()).toBe(events);
        await page.getByRole("button", { name: "Merge local steps" }).click();
        expect(await rows.count()).toBeLessThanOrEqual((events * 2) / 3);
        await expect.poll(() => page.url()).toContain("steps=merged");
        const heights = new Set<number>();
        for (let at = 3; at <= events; at += 1) {
            await page.keyboard.press("ArrowRight");
            await reach(page, at);
            expect(await page.locator(".row.current").count()).toBe(1);
            const [line, sentence] = [await boxOf(page, ".playhead"), await boxOf(page, ".row.current .sentence")];
            heights.add(line.top);
            expect(line.top > sentence.bottom - 2 || line.right <= sentence.left, `the line strikes no sentence through at ${at}`).toBe(true);
        }
        expect(heights.size).toBe(events - 2);
        const shared = page.locator(".row.shared").first();
        const [first, last] = (await shared.locator(".number").innerText()).split("–").map(Number);
        await shared.locator(".sentence").click();
        await reach(page, last ?? Number.NaN);
        expect(last).toBeGreaterThan(first ?? Number.NaN);
        await keepPicture(page, "story-merged");
        expect(await axeViolations(page)).toEqual([]);
        await page.reload();
        await page.getByRole("button", { name: "Show each local step" }).click();
        await expect.poll(() => rows.count()).toBe(events);
        await page.context().close();
    });

    test.each(["3a", "4b", "queue", "lock-restart"])("%s has no label or envelope on another text while its steps are merged", async (id) => {
        const page = await stage.page(`#scenario=${id}&steps=merged&at=0`);
        const covered: string[] = [];
        for (let at = 1; at <= (scenarioById(id)?.trace.events.length ?? 0); at += 1) {
            await page.keyboard.press("ArrowRight");
            covered.push(...(await coveredTexts(page)).map((text) => `${at}: ${text}`));
        }
        expect(covered).toEqual([]);
        await page.context().close();
    });

    test("shows the columns that it uses, and all on demand", async () => {
        const page = await stage.page("#scenario=happy-path&at=6");
        const heads = page.locator(".head");
        expect(await heads.evaluateAll((all) => all.map((one) => one.getAttribute("data-lane")))).toEqual(["user:1", "worker:1:0", "database:1", "service"]);
        await page.getByRole("button", { name: "Show all columns" }).click();
        expect(await heads.count()).toBe(6);
        await page.getByRole("button", { name: "Hide unused columns" }).click();
        expect(await heads.count()).toBe(4);
        await page.context().close();
    });
});

describe("the terms of the current event", () => {
    test("are explained to the keyboard and to the mouse", async () => {
        const page = await stage.page("#scenario=happy-path&at=6", { bypassCSP: true });
        const term = page.locator(".current-event dfn").first();
        const tip = page.locator(".current-event [role=tooltip]").first();
        expect(await tip.isVisible()).toBe(false);
        await page.getByRole("button", { name: "Help" }).focus();
        for (let tabs = 0; tabs < 60 && !(await term.evaluate((one) => one === document.activeElement)); tabs += 1) await page.keyboard.press("Tab");
        expect(await tip.isVisible()).toBe(true);
        expect(await tip.innerText()).toBe(TERMS["lease"]);
        expect(await term.getAttribute("aria-describedby")).toBe(await tip.getAttribute("id"));
        expect(await axeViolations(page)).toEqual([]);
        await keepPicture(page, "story-term");
        await page.keyboard.press("Tab");
        expect(await tip.isVisible()).toBe(false);
        await term.hover();
        expect(await tip.isVisible()).toBe(true);
        const row = page.locator(".row.current .term").first();
        await row.hover();
        expect(await row.getAttribute("title")).toBe(TERMS["lease"]);
        await page.context().close();
    });
});

describe("the panel", () => {
    test.each([
        [1280, 800],
        [1101, 800],
        [1024, 768],
    ])("has the service's tables beside the cell's, in a window of %i × %i, and at the same place at each event", async (width, height) => {
        const page = await stage.page("#scenario=happy-path&at=0", { viewport: { width, height } });
        const tops = new Set<number>();
        for (let at = 1; at <= 14; at += 1) {
            await page.keyboard.press("ArrowRight");
            await reach(page, at);
            const [service, cell] = [await boxOf(page, '[aria-label="The service\'s tables"]'), await boxOf(page, '[aria-label="Cell 1\'s tables"]')];
            expect(cell.left).toBeGreaterThanOrEqual(service.right);
            expect(cell.top).toBe(service.top);
            expect(service.bottom).toBeLessThanOrEqual(height);
            tops.add(service.top);
        }
        expect([...tops]).toHaveLength(1);
        await page.context().close();
    });

    test("lights the present states", async () => {
        const page = await stage.page("#scenario=happy-path&at=8");
        const lit = () => page.locator(".node.present text").allTextContents();
        expect(await lit()).toEqual(["creating", "outstanding"]);
        await page.keyboard.press("End");
        await expect.poll(lit).toEqual(["active", "committed"]);
        await page.context().close();
    });
});

test("a phone has the options of the lanes in the pane of choices", async () => {
    const page = await stage.page("#scenario=happy-path&at=6", { viewport: SMALL_PHONE, hasTouch: true });
    for (const option of ["Show all columns", "Merge local steps"]) {
        const button = page.getByRole("button", { name: option });
        expect(await button.filter({ visible: true }).count()).toBe(0);
        await page.getByRole("button", { name: "Choose", exact: true }).click();
        expect((await button.filter({ visible: true }).boundingBox())?.height).toBeGreaterThanOrEqual(44);
        await button.filter({ visible: true }).click();
        await page.locator(".lanes").waitFor();
    }
    expect(await page.locator(".head").count()).toBe(6);
    expect(await page.locator(".row.shared").count()).toBeGreaterThan(0);
    await keepPicture(page, "story-phone-merged");
    await page.context().close();
});

test("a phone shows the current event above the lanes, which stay in their place", async () => {
    const page = await stage.page("#scenario=3b&at=8", { viewport: SMALL_PHONE, hasTouch: true });
    const tops = new Set<number>();
    for (let at = 9; at <= 14; at += 1) {
        await page.keyboard.press("ArrowRight");
        await reach(page, at);
        const [sentence, lanes] = [await boxOf(page, ".phone-advice .says"), await boxOf(page, ".lanes")];
        expect(sentence.bottom).toBeLessThanOrEqual(lanes.top);
        expect(sentence.top).toBeGreaterThan(0);
        tops.add(lanes.top);
    }
    expect([...tops]).toHaveLength(1);
    await keepPicture(page, "story-phone");
    await page.context().close();
});

test("a phone shows at which edges the current event's text goes on", async () => {
    const page = await stage.page("#scenario=5a&at=21", { viewport: SMALL_PHONE, hasTouch: true });
    const advice = page.locator(".phone-advice");
    await page.locator(".phone-advice *").evaluateAll((all) => all.forEach((one) => ((one as HTMLElement).style.visibility = "hidden")));
    const box = await boxOf(page, ".phone-advice");
    const edge = async (top: number) => (await page.screenshot({ clip: { x: box.left, y: top, width: box.right - box.left, height: 9 } })).toString("base64");
    const edges = async () => [await edge(box.top), await edge(box.bottom - 10)];
    const [topAtStart, bottomAtStart] = await edges();
    expect(await advice.evaluate((element) => element.scrollHeight - element.clientHeight)).toBeGreaterThan(9);
    await advice.evaluate((element) => element.scrollTo(0, element.scrollHeight));
    const [topAtEnd, bottomAtEnd] = await edges();
    expect(topAtEnd).not.toBe(topAtStart);
    expect(bottomAtEnd).not.toBe(bottomAtStart);
    await page.context().close();
});

test("the help begins with its title", async () => {
    const page = await stage.page("", { viewport: { width: 1280, height: 620 } });
    await page.keyboard.press("?");
    const help = page.getByRole("dialog");
    expect(await help.getByRole("heading", { name: "About this page" }).evaluate((one) => one === document.activeElement)).toBe(true);
    expect(await help.evaluate((one) => [one.scrollTop, one.scrollHeight > one.clientHeight])).toEqual([0, true]);
    await page.context().close();
});

test.each(scenarios().map(({ id, trace }) => [id, trace.events.length] as const))("at the end of %s the panel is not cut off, and tells of envelopes if there are messages", async (id, length) => {
    const page = await stage.page(`#scenario=${id}&at=${length}`, { viewport: { width: 1280, height: 720 } });
    await reach(page, length);
    const parts = page.locator(".side, .side .state, .side section");
    expect(await parts.evaluateAll((all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.getAttribute("aria-label") ?? one.className))).toEqual([]);
    const run = Simulation.load(JSON.stringify(scenarios().find((scenario) => scenario.id === id)?.trace));
    const hint = await page.locator(".current-event .hint").getByText("The scenario ends here.").innerText();
    expect(hint.includes("envelope")).toBe(run.arrows(0, length).length > 0);
    await page.context().close();
});

describe("transitions", () => {
    const durations = (page: Page) =>
        page.locator(".envelope, .row.current, .tag, .node rect").evaluateAll((all) => [...new Set(all.map((one) => Number.parseFloat(getComputedStyle(one).transitionDuration) * 1000))]);

    test("take 150 to 250 milliseconds, and none under reduced motion", async () => {
        const [page, still] = [await stage.page("#scenario=happy-path&at=6", { reducedMotion: "no-preference" }), await stage.page("#scenario=happy-path&at=6")];
        const [all, none] = [await durations(page), await durations(still)];
        expect(all.length).toBeGreaterThan(0);
        for (const duration of all) expect(duration >= 150 && duration <= 250, String(duration)).toBe(true);
        expect(none).toEqual([0]);
        await Promise.all([page.context().close(), still.context().close()]);
    });

    test("are off where they would lag behind the events", async () => {
        const page = await stage.page("#scenario=4a&at=0", { reducedMotion: "no-preference" });
        await page.getByLabel("Speed, in events a second").selectOption("5");
        await page.getByRole("button", { name: "Play", exact: true }).click();
        await page.locator(".app:not(.calm)").waitFor();
        expect(await durations(page)).toEqual([0]);
        await page.locator(".app.calm").waitFor({ timeout: 20_000 });
        await page.context().close();
    });
});

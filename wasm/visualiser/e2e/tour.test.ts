// Tests the guided tour as new visitors take it: with the mouse, with the keyboard, at a laptop and
// at a small phone.
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { textOf, TOUR } from "../src/model/tour";
import { axeViolations, keepPicture, position, quietStage, reach, smallTargets, table } from "./page";

const stage = quietStage();

const SMALL_PHONE = { width: 375, height: 667 };
const SIZES = [
    ["laptop", {}],
    ["dark laptop", { colorScheme: "dark" }],
    ["small phone", { viewport: SMALL_PHONE, hasTouch: true }],
] as const;

const card = (page: Page) => page.getByRole("region", { name: "Guided tour" });
const hashOf = (page: Page) => page.evaluate(() => location.hash);

/** Waits until the card shows this step, and the tables its last event. */
async function expectStep(page: Page, number: number): Promise<void> {
    await card(page).getByText(`${number} of ${TOUR.length}`, { exact: true }).waitFor();
    const step = TOUR[number - 1];
    await card(page).getByRole("heading", { name: step?.title ?? "", exact: true }).waitFor();
    await expect.poll(() => card(page).locator(".tour-text").innerText()).toBe(step && textOf(step));
    await page.locator('.side[aria-busy="false"]').waitFor({ state: "attached" });
}

/** Goes to the next step with the main button, and returns its label. */
async function pressNext(page: Page): Promise<string> {
    const button = card(page).locator(".primary");
    const label = await button.innerText();
    await button.click();
    return label;
}

/** Returns the parts of the page that a step points at and that are outside the window. */
function hiddenPlaces(page: Page): Promise<string[]> {
    return page.locator(".lit").evaluateAll((all) =>
        all.flatMap((one) => {
            const { top, bottom, left, right } = one.getBoundingClientRect();
            const isInside = right > left && bottom > top && top >= 0 && left >= 0 && right <= innerWidth && bottom <= innerHeight;
            return isInside ? [] : [`${one.textContent ?? ""} ${top} to ${bottom}, ${left} to ${right}`];
        }),
    );
}

/** Returns true if the sentence of the current event is in the visible part of the lanes. */
function isSentenceVisible(page: Page): Promise<boolean> {
    return page.evaluate(() => {
        const boxes = [".heads", ".row.current .sentence", ".lanes"].map((selector) => document.querySelector(selector)?.getBoundingClientRect());
        const [heads, sentence, lanes] = boxes;
        return heads !== undefined && sentence !== undefined && lanes !== undefined && sentence.top >= heads.bottom - 1 && sentence.bottom <= lanes.bottom;
    });
}

/** Returns true if a text is drawn in the lanes without a cut: no part of it is outside of its element, or of the lanes. */
function isWholeTextVisible(page: Page, selector: string): Promise<boolean> {
    return page.locator(selector).evaluate((one) => {
        const [box, lanes] = [one.getBoundingClientRect(), one.closest(".lanes")?.getBoundingClientRect()];
        return one.scrollWidth <= one.clientWidth && one.scrollHeight <= one.clientHeight + 1 && lanes !== undefined && box.top >= lanes.top && box.bottom <= lanes.bottom + 1;
    });
}

describe.each(SIZES)("the tour at a %s", (name, options) => {
    test("starts by itself, explains each step, and breaks a rule", async () => {
        const page = await stage.newVisitor("", { ...options, bypassCSP: true });
        const labels: string[] = [];
        for (let number = 1; number <= TOUR.length; number += 1) {
            await expectStep(page, number);
            await keepPicture(page, `tour-${name.replace(" ", "-")}-${number}`);
            expect(await page.locator(".lit").count()).toBe(TOUR[number - 1]?.places.length);
            expect(await hiddenPlaces(page)).toEqual([]);
            expect(await isSentenceVisible(page)).toBe(true);
            expect(await axeViolations(page)).toEqual([]);
            expect(await smallTargets(page)).toEqual([]);
            expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
            await expect.poll(() => hashOf(page)).toBe(`#tour=${number}`);
            if (number === TOUR.length) {
                expect(await page.locator(".row.violated .sentence").innerText()).toContain("committed");
                expect(await isWholeTextVisible(page, ".row.violated .row-violation")).toBe(true);
            }
            labels.push(await pressNext(page));
        }
        expect(labels).toEqual(TOUR.map(({ next }, index) => next ?? (index === TOUR.length - 1 ? "Explore the page" : "Next")));
        await page.locator(".transport").waitFor();
        const rightOf = (selector: string) => page.locator(selector).last().evaluate((one) => one.getBoundingClientRect().right - innerWidth);
        expect(await rightOf(".tools button")).toBeLessThanOrEqual(0);
        expect(await page.getByRole("tab", { name: "Rules", includeHidden: true }).getAttribute("aria-selected")).toBe("true");
        await page.context().close();
    });
});

describe("a new visitor", () => {
    test("sees why the lease row lies in the cell's database", async () => {
        const page = await stage.newVisitor("#tour=3");
        await expectStep(page, 3);
        expect(await table(page, "Cell 1's tables", "Rows")).toEqual([["1", "alice", "6 ms ago"]]);
        expect(await table(page, "Cell 1's tables", "Lease rows")).toEqual([["#1", "5 ms ago"]]);
        await card(page).getByText("That is why it lies in the cell's own database").waitFor();
        await page.context().close();
    });

    test("takes the tour with the keyboard, and neither a key nor a click leaves the events of the step", async () => {
        const page = await stage.newVisitor();
        await expectStep(page, 1);
        await page.keyboard.press("ArrowRight");
        await expectStep(page, 2);
        await page.keyboard.press("ArrowLeft");
        await expectStep(page, 1);
        await page.keyboard.press("End");
        await page.locator(".row .sentence").first().click();
        expect(await page.locator(".row.current").getAttribute("aria-posinset")).toBe(String(TOUR[0]?.to));
        await card(page).getByRole("button", { name: "Next", exact: true }).focus();
        for (let number = 2; number <= TOUR.length; number += 1) {
            await page.keyboard.press("Enter");
            await expectStep(page, number);
        }
        await page.keyboard.press("Enter");
        await page.locator(".main-button:focus").waitFor();
        await page.context().close();
    });

    test("skips the tour, and does not see it again, but finds it in the list and in the help", async () => {
        const page = await stage.newVisitor();
        await card(page).getByRole("button", { name: "Skip" }).click();
        await page.locator(".transport").waitFor();
        expect(await card(page).count()).toBe(0);
        await page.goto(stage.address);
        // A page that is reloaded before it has started restores the run of the page before.
        await page.locator(".transport").waitFor();
        await page.reload();
        await page.getByText("A name may exist only once in all cells").filter({ visible: true }).waitFor();
        await page.getByRole("button", { name: "Guided tour", exact: true }).click();
        await expectStep(page, 1);
        await card(page).getByRole("button", { name: "Skip" }).click();
        await page.getByRole("button", { name: "Help" }).click();
        await page.getByRole("dialog").getByRole("button", { name: "Guided tour" }).click();
        await expectStep(page, 1);
        await page.context().close();
    });

    test("resumes the tour after a reload, after another visit, and after a change of the run", async () => {
        const page = await stage.newVisitor();
        await pressNext(page);
        await pressNext(page);
        await expectStep(page, 3);
        await page.reload();
        await expectStep(page, 3);
        await page.goto("about:blank");
        await page.goto(stage.address);
        await expectStep(page, 3);
        await page.locator('.head[data-lane="service"]').click();
        await page.getByRole("menuitem", { name: "Stop" }).first().click();
        await page.getByText("so the tour pauses").waitFor();
        await page.getByRole("button", { name: `Continue the tour: 3 of ${TOUR.length}` }).click();
        await expectStep(page, 3);
        await page.context().close();
    });

    test("who opens a link to a run sees that run, not the tour", async () => {
        const page = await stage.newVisitor("#scenario=3b&at=12");
        await reach(page, 12);
        expect(await card(page).count()).toBe(0);
        await page.context().close();
    });

    test("who opens an unknown step is told so", async () => {
        const page = await stage.newVisitor("#tour=99");
        expect(await page.getByRole("alert").innerText()).toContain("the tour has no step");
        await page.context().close();
    });
});

describe("the tour and the rest of the page", () => {
    test("Back restores the run that was open before the tour", async () => {
        const page = await stage.page("#scenario=4a&at=7");
        await reach(page, 7);
        await page.getByRole("button", { name: "Guided tour", exact: true }).click();
        await expectStep(page, 1);
        await page.goBack();
        await reach(page, 7);
        expect(await hashOf(page)).toBe("#scenario=4a&at=7");
        await page.goForward();
        await expectStep(page, 1);
        await page.context().close();
    });

    test("plays the events of a step, and shows its end at once under reduced motion", async () => {
        const still = await stage.newVisitor();
        await pressNext(still);
        expect(await still.locator(".row.current .sentence").innerText()).toContain("lease #1, fence 1");
        const page = await stage.newVisitor("", { reducedMotion: "no-preference" });
        await pressNext(page);
        const sentence = page.locator(".row.current .sentence");
        expect(await sentence.innerText()).not.toContain("lease #1, fence 1");
        await keepPicture(page, "tour-playing");
        await expect.poll(() => sentence.innerText(), { timeout: 20_000 }).toContain("Cell 1's worker ← service: lease #1, fence 1");
        await card(page).getByRole("button", { name: "Skip" }).click();
        await page.locator(".transport").waitFor();
        expect((await position(page)).at).toBe(TOUR[1]?.to);
        await Promise.all([still.context().close(), page.context().close()]);
    });
});

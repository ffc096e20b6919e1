// Tests a world of sessions and locks that a person makes in free play and plays by hand.
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { CLIPBOARD, copiedLink, keepPicture, lockWorldHash, PHONE, playToEnd, position, quietStage, reach, shown, smallTargets, table } from "./page";

const stage = quietStage();

/** Fills the form of free play for a world of locks. */
async function chooseLocks(page: Page, isPhone = false): Promise<void> {
    if (isPhone) await page.getByRole("button", { name: "Choose", exact: true }).click();
    await page.getByRole("tab", { name: "Free play" }).click();
    await page.getByRole("radio", { name: "sessions and locks" }).check();
}

/** Applies an event by the menu of a participant. */
async function apply(page: Page, lane: string, choice: string): Promise<void> {
    await page.locator(`.head[data-lane="${lane}"]`).click();
    await page.getByRole("menuitem", { name: choice }).click();
}

/** Steps until the head of the participant tells this state. */
async function stepUntil(page: Page, lane: string, state: string): Promise<void> {
    const head = page.locator(`.head[data-lane="${lane}"]`);
    for (let { at } = await position(page); !(await head.getAttribute("title"))?.endsWith(state); at += 1) {
        await page.getByRole("button", { name: "Step", exact: true }).click();
        await reach(page, at + 1);
    }
}

/** Lets client 1 hold the lock up to its write, pauses it, and lets client 2 wait for the lock. */
async function pauseHolder(page: Page): Promise<void> {
    await apply(page, "user:1", "Work under the lock backup");
    await stepUntil(page, "client:1:0", "writes to the resource");
    await apply(page, "client:1:0", "Pause the process");
    await apply(page, "user:2", "Work under the lock backup");
    await stepUntil(page, "client:2:0", "waits for the lock");
}

/** Returns the table of locks or of resources of the page. */
async function serviceTable(page: Page, caption: string, isPhone: boolean): Promise<string[][]> {
    if (isPhone) await page.getByRole("button", { name: "State", exact: true }).click();
    const rows = await table(page, "The service's tables", caption);
    if (isPhone) await page.getByRole("button", { name: "Run", exact: true }).click();
    return rows;
}

describe.each([
    ["laptop", {}],
    ["phone", { viewport: PHONE, hasTouch: true, colorScheme: "dark" }],
] as const)("a visitor at a %s", (name, options) => {
    const isPhone = name === "phone";

    test("makes a world, pauses a holder until its session expires, and sees its late write refused (K05, K06, K18)", async () => {
        const page = await stage.page("", { ...options, ...CLIPBOARD });
        await chooseLocks(page, isPhone);
        await page.getByLabel("duration, seconds").fill("3");
        await page.getByLabel("grace, seconds").fill("1");
        await page.getByText("Here that takes 5 ticks").waitFor();
        await keepPicture(page, `locks-${name}-form`);
        await page.getByRole("button", { name: "Start by hand" }).click();
        await page.getByText("Click the head of a column, such as the program of a cell").filter({ visible: true }).waitFor();
        await keepPicture(page, `locks-${name}-start`);
        await pauseHolder(page);
        await page.getByLabel("Speed, in events a second").selectOption("50");
        await apply(page, "client:1:0", "Let its session expire");
        await page.getByText("The service was awake for duration and grace, and saw no renewal").filter({ visible: true }).waitFor();
        await page.getByRole("button", { name: "Play", exact: true }).waitFor();
        await keepPicture(page, `locks-${name}-expired`);
        expect(await serviceTable(page, "Locks", isPhone)).toEqual([["backup", "held", "cell 2", "2", "–"]]);
        await playToEnd(page);
        await page.getByText("Every process is idle. Click the head of a column").filter({ visible: true }).waitFor();
        await page.locator(".row .sentence").getByText("has seen a newer fence and refuses").waitFor();
        expect(await serviceTable(page, "Resources", isPhone)).toEqual([["backup", "2", "2", "1"]]);
        await keepPicture(page, `locks-${name}-fenced`);

        const other = await stage.page(new URL(await copiedLink(page)).hash, options);
        expect(await shown(other)).toEqual(await shown(page));
        if (isPhone) await other.getByRole("button", { name: "Choose", exact: true }).click();
        expect(await other.getByLabel("duration, seconds").inputValue()).toBe("3");
        expect(await other.getByRole("radio", { name: "sessions and locks" }).isChecked()).toBe(true);
        await Promise.all([page.context().close(), other.context().close()]);
    });
});

describe("a world of locks", () => {
    test("is broken by a late write if the rule about fences is off (K18)", async () => {
        const page = await stage.page();
        await chooseLocks(page);
        await page.getByRole("button", { name: "Start by hand" }).click();
        await page.getByRole("tab", { name: "Rules" }).click();
        const rule = page.locator('[data-rule="fence_check"]');
        expect(await page.locator("[data-rule]").first().getAttribute("data-rule")).toBe("observed_silence");
        await rule.click();
        await expect.poll(() => rule.isChecked()).toBe(false);
        await pauseHolder(page);
        await page.getByLabel("Speed, in events a second").selectOption("50");
        await apply(page, "client:1:0", "Let its session expire");
        await page.getByRole("button", { name: "Play", exact: true }).waitFor();
        await playToEnd(page);
        await page.getByRole("heading", { name: "An invariant is violated" }).waitFor();
        await page.getByText("Only the resource can refuse the late write, by its fence.").filter({ visible: true }).waitFor();
        await page.context().close();
    });

    test("plays random events, which are the same in another page", async () => {
        const page = await stage.page();
        await chooseLocks(page);
        await page.getByLabel("seed").fill("42");
        await page.getByRole("button", { name: "10,000 events at once" }).click();
        await reach(page, 10_000);
        await page.getByRole("heading", { name: "Free play of sessions and locks, seed 42" }).waitFor();
        await page.keyboard.press("PageUp");
        await expect.poll(() => page.evaluate(() => location.hash)).toContain("free=10000&at=9990");
        const other = await stage.page(await page.evaluate(() => location.hash));
        expect(await shown(other)).toEqual(await shown(page));
        await keepPicture(page, "locks-random");
        await Promise.all([page.context().close(), other.context().close()]);
    });

    test.each([
        ["locks", "5", "1 to 4"],
        ["duration, seconds", "0", "1 to 3600"],
        ["grace, seconds", "3601", "1 to 3600"],
        ["tick, milliseconds", "99", "100 to 10000"],
    ])("tells the bounds of its field “%s”, and refuses %s", async (label, text, range) => {
        const page = await stage.page("#scenario=3b&at=4");
        await chooseLocks(page);
        const field = page.getByLabel(label, { exact: true });
        const note = () => field.evaluate((one) => document.getElementById(one.getAttribute("aria-describedby") ?? "")?.textContent?.replaceAll(",", ""));
        expect(await note()).toBe(range);
        await field.fill(text);
        await page.getByRole("alert").getByText(`enter a whole number from ${range}`).waitFor();
        expect(await note()).toBe(`enter a whole number from ${range}`);
        await page.getByRole("button", { name: "Start by hand" }).click();
        expect(await field.evaluate((one) => one === document.activeElement)).toBe(true);
        expect(await position(page)).toEqual({ at: 4, of: 25 });
        await page.context().close();
    });

    test("is made and played by the keyboard alone, and each event is announced", async () => {
        const page = await stage.page();
        await page.getByRole("tab", { name: "Scenarios" }).focus();
        await page.keyboard.press("ArrowRight");
        await page.keyboard.press("Tab");
        await page.keyboard.press("ArrowDown");
        expect(await page.getByRole("radio", { name: "sessions and locks" }).isChecked()).toBe(true);
        await tabTo(page, "Start by hand, without random events");
        await page.keyboard.press("Enter");
        await page.getByRole("heading", { name: "A world of sessions and locks, by hand" }).waitFor();
        await tabTo(page, "program: cell 1's program. Open its menu");
        await page.keyboard.press("Enter");
        await page.getByRole("menuitem", { name: "Work under the lock backup" }).waitFor();
        await page.keyboard.press("Enter");
        await reach(page, 1);
        expect(await page.getByTestId("live").textContent()).toMatch(/^1 of 1: cell 1's program asks for work under the lock backup/);
        await page.keyboard.press("ArrowRight");
        await reach(page, 2);
        expect(await page.getByTestId("live").textContent()).toContain("cell 1's client sends open session");
        await page.context().close();
    });

    test("has targets that are large enough on a phone", async () => {
        const page = await stage.page(lockWorldHash(), { viewport: PHONE, hasTouch: true });
        expect(await smallTargets(page)).toEqual([]);
        for (const tab of ["Free play", "Rules"]) {
            await page.getByRole("button", { name: "Choose", exact: true }).click();
            await page.getByRole("tab", { name: tab }).click();
            expect(await smallTargets(page)).toEqual([]);
            expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
        }
        await page.context().close();
    });
});

/** Presses the tab key until the focused element has this name. */
async function tabTo(page: Page, name: string): Promise<void> {
    const focused = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent?.trim());
    for (let tabs = 0; tabs < 80; tabs += 1) {
        if ((await focused()) === name) return;
        await page.keyboard.press("Tab");
    }
    expect(await focused()).toBe(name);
}

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { Simulation } from "leasehold/simulation";
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { keepPicture, PHONE, playToEnd, position, quietStage, reach, shown, smallTargets, table } from "./page";

const stage = quietStage();

const LOG = fileURLToPath(new URL("../tests/audit.jsonl", import.meta.url));

async function hashSays(page: Page, words: string): Promise<string> {
    await expect.poll(() => page.evaluate(() => location.hash)).toContain(words);
    return page.evaluate(() => location.hash);
}

/** Presses the page's button “Save”. Returns the path of the saved file. */
async function saved(page: Page, name: string): Promise<string> {
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Save", exact: true }).click()]);
    expect(download.suggestedFilename()).toBe(name);
    return download.path();
}

describe("a newcomer", () => {
    test("drops the answer to a commit, and learns why settled leases are remembered", async () => {
        const page = await stage.page("#scenario=happy-path");
        const done = page.locator('.envelope[data-message="done"]');
        while (!(await done.isVisible())) await page.getByRole("button", { name: "Step", exact: true }).click();
        await done.click();
        await page.getByRole("menuitem", { name: "Drop it" }).click();
        await page.locator(".current-event .note").getByText("that is why settled leases are remembered").waitFor();
        await keepPicture(page, "dropped");
        const { of } = await position(page);
        await playToEnd(page);
        expect((await position(page)).of).toBeGreaterThan(of);
        const told = await page.locator(".row .sentence").allInnerTexts();
        expect(told.filter((says) => says.includes("commit lease #1 → done"))).toHaveLength(2);
        expect(await table(page, "The service's tables", "Claims")).toEqual([["alice", "1", "1", "active", "–"]]);
        await page.context().close();
    });

    test("switches the memory off in the explanation, and sees the violation", async () => {
        const page = await stage.page("#scenario=happy-path");
        const done = page.locator('.envelope[data-message="done"]');
        while (!(await done.isVisible())) await page.getByRole("button", { name: "Step", exact: true }).click();
        await done.click();
        await page.getByRole("menuitem", { name: "Drop it" }).click();
        await page.locator(".current-event .note").getByRole("button").click();
        await playToEnd(page, "50");
        await page.getByRole("heading", { name: "An invariant is violated" }).waitFor();
        expect(await page.locator(".row.violated .sentence").innerText()).toContain("no such lease");
        await keepPicture(page, "forgotten");
        await page.context().close();
    });

    test("edits 3B and sends the link, which shows the same in a new page", async () => {
        const page = await stage.page("#scenario=3b");
        const answer = page.locator('.envelope[data-message="done"]');
        while (!(await answer.isVisible())) await page.keyboard.press("ArrowRight");
        await answer.click();
        await page.getByRole("menuitem", { name: "Drop it" }).click();
        await playToEnd(page, "50");
        const { at } = await position(page);
        // During playback the address has changed several times, so wait until it contains the last
        // position.
        await hashSays(page, `&at=${at}&`);
        await page.keyboard.press("ArrowLeft");
        const hash = await hashSays(page, `&at=${at - 1}&`);
        expect(hash).toContain("kept=");
        const before = await shown(page);
        const other = await stage.page(hash);
        expect(await shown(other)).toEqual(before);
        await other.keyboard.press("End");
        await page.keyboard.press("End");
        expect(await shown(other)).toEqual(await shown(page));
        await Promise.all([page.context().close(), other.context().close()]);
    });
});

describe("a person who applies events", () => {
    test("crashes a worker in its transaction, and reconciliation frees the name", async () => {
        const page = await stage.page("#scenario=happy-path&at=8");
        await page.locator('.head[data-lane="worker:1:0"]').click();
        await page.getByRole("menuitem", { name: "crash" }).click();
        await playToEnd(page);
        expect(await table(page, "The service's tables", "Claims")).toEqual([]);
        expect((await table(page, "The service's tables", "Leases"))[0]?.[3]).toBe("rolled back");
        await page.context().close();
    });

    test("sees the reason for an impossible choice", async () => {
        const page = await stage.page("#scenario=happy-path&at=1");
        await page.locator('.head[data-lane="service"]').click();
        const start = page.getByRole("menuitem", { name: "Start it" });
        expect(await start.getAttribute("aria-disabled")).toBe("true");
        expect(await start.innerText()).toContain("the service is up");
        await keepPicture(page, "menu");
        await page.keyboard.press("Escape");
        expect(await page.evaluate(() => document.activeElement?.getAttribute("data-lane"))).toBe("service");
        await page.context().close();
    });

    test("stops the service, and ends all faults", async () => {
        const page = await stage.page("#scenario=happy-path&at=5");
        await page.locator('.head[data-lane="service"]').click();
        await page.getByRole("menuitem", { name: "Stop it" }).click();
        await page.getByLabel("Speed, in events a second").selectOption("200");
        await page.getByRole("button", { name: "End all faults" }).click();
        await page.getByRole("button", { name: "Play", exact: true }).waitFor();
        const { at, of } = await position(page);
        expect([at, of > 6]).toEqual([of, true]);
        expect(await page.locator(".envelope").count()).toBe(0);
        await page.context().close();
    });
});

describe("rules", () => {
    test("a search finds the violation without a rule, and none with the rule on", async () => {
        const page = await stage.page();
        await page.getByRole("tab", { name: "Rules" }).click();
        await page.locator('[data-search="commit_guard"]').click();
        await page.locator('[data-search-state="found"]').waitFor({ timeout: 60_000 });
        expect((await position(page)).of).toBeGreaterThan(5);
        await playToEnd(page);
        await page.getByRole("heading", { name: "An invariant is violated" }).waitFor();
        await page.locator(".row.violated .row-violation").waitFor();
        await keepPicture(page, "violation");
        await page.getByRole("button", { name: "Search the same world with the rule on" }).click();
        const none = page.locator('[data-search-state="none"]');
        await none.waitFor({ timeout: 60_000 });
        expect(await none.innerText()).toMatch(/^No violation with the rule: .* [\d,]+ states and [\d,]+ events\./);
        const other = await stage.page(await hashSays(page, "searched=commit_guard.on."));
        expect(await other.locator('[data-search-state="none"]').innerText()).toBe(`The link says: ${await none.innerText()}`);
        await keepPicture(other, "searched");
        await other.getByRole("button", { name: "Search again" }).click();
        await expect.poll(() => other.locator(".search").innerText()).toBe(await none.innerText());
        await Promise.all([page.context().close(), other.context().close()]);
    });

    test("a found run contains no unnecessary event, and cannot be shortened", async () => {
        const page = await stage.page();
        await page.getByRole("tab", { name: "Rules" }).click();
        await page.locator('[data-search="skip_recent_claims"]').click();
        await page.locator('[data-search-state="found"]').waitFor({ timeout: 60_000 });
        const path = await saved(page, "leasehold-run.json");
        const found = Simulation.load(readFileSync(path, "utf8"));
        const shortest = Simulation.load(found.minimise() ?? "");
        expect((await position(page)).of).toBe(shortest.length);
        await playToEnd(page);
        await page.getByRole("heading", { name: "An invariant is violated" }).waitFor();
        expect(await page.getByRole("button", { name: "Shorten the run" }).count()).toBe(0);
        await page.context().close();
    });

    test("a scenario is replayed without a rule, also from a link", async () => {
        const page = await stage.page("#scenario=2b&at=8");
        await page.getByRole("tab", { name: "Rules" }).click();
        await page.locator('[data-rule="replay_keys"]').click();
        await playToEnd(page);
        await page.getByRole("heading", { name: "An invariant is violated" }).waitFor();
        const { at, of } = await position(page);
        const hash = await hashSays(page, `&at=${at}&`);
        expect(hash).toContain("off=replay_keys");
        const other = await stage.page(hash);
        expect(await shown(other)).toEqual(await shown(page));
        await other.getByRole("button", { name: "Shorten the run" }).click();
        await other.getByRole("heading", { name: "The same violation, shortened" }).waitFor();
        expect((await position(other)).of).toBeLessThanOrEqual(of);
        await other.getByRole("heading", { name: "An invariant is violated" }).waitFor();
        await other.getByRole("button", { name: "Shorten the run" }).waitFor({ state: "detached" });
        expect(await other.getByRole("button", { name: "Go to the violation" }).count()).toBe(0);
        await Promise.all([page.context().close(), other.context().close()]);
    });
});

describe("files and links", () => {
    test("a saved run and a live server's log are opened", async () => {
        const page = await stage.page("#scenario=4b");
        const path = await saved(page, "leasehold-4b.json");
        const { events } = JSON.parse(readFileSync(path, "utf8")) as { events: unknown[] };
        const open = page.getByLabel("Open a saved run, or a live server's log");
        await open.setInputFiles(path);
        await reach(page, 0);
        expect((await position(page)).of).toBe(events.length);
        await open.setInputFiles(LOG);
        await page.getByRole("heading", { name: "A live server's log" }).waitFor();
        await page.keyboard.press("End");
        expect((await position(page)).at).toBe(8);
        expect((await table(page, "The service's leases", "Leases")).map((lease) => lease[3])).toEqual(["committed", "rolled back", "committed", "outstanding"]);
        await keepPicture(page, "recording");
        await page.context().close();
    });

    test("a live server's log is saved and opened again, and has no link", async () => {
        const page = await stage.page();
        await page.getByLabel("Open a saved run, or a live server's log").setInputFiles(LOG);
        await page.getByRole("heading", { name: "A live server's log" }).waitFor();
        await page.getByRole("button", { name: "Copy link", exact: true }).click();
        await page.getByRole("alert").getByText("save the log, and send the file").waitFor();
        const path = await saved(page, "leasehold-leases.jsonl");
        await page.keyboard.press("End");
        await reach(page, 8);
        const before = await table(page, "The service's leases", "Leases");
        const other = await stage.page();
        await other.getByLabel("Open a saved run, or a live server's log").setInputFiles(path);
        await other.getByRole("heading", { name: "A live server's log" }).waitFor();
        await other.keyboard.press("End");
        await reach(other, 8);
        expect(await table(other, "The service's leases", "Leases")).toEqual(before);
        await Promise.all([page.context().close(), other.context().close()]);
    });

    test("a file or link that is not a trace is refused with a notice", async () => {
        const page = await stage.page();
        const file = { name: "holiday.json", mimeType: "application/json", buffer: Buffer.from('{"version":99}') };
        await page.getByLabel("Open a saved run, or a live server's log").setInputFiles(file);
        expect(await page.getByRole("alert").innerText()).toContain("version 99");
        const damaged = await stage.page("#trace=1&z=AAAA");
        expect(await damaged.getByRole("alert").innerText()).toContain("damaged");
        await Promise.all([page.context().close(), damaged.context().close()]);
    });

    test("free play with a seed is the same in another page", async () => {
        const page = await stage.page();
        await page.getByRole("tab", { name: "Free play" }).click();
        await page.getByLabel("seed").fill("42");
        await page.getByRole("button", { name: "10,000 events at once" }).click();
        await expect.poll(async () => (await position(page)).at).toBe(10_000);
        await page.keyboard.press("PageUp");
        const hash = await hashSays(page, "free=10000&at=9990");
        const other = await stage.page(hash);
        expect(await shown(other)).toEqual(await shown(page));
        await keepPicture(page, "free");
        await Promise.all([page.context().close(), other.context().close()]);
    });
});

describe("a field with an invalid number", () => {
    test.each([
        ["seed", "", "from 0 to 9007199254740991"],
        ["seed", "-1", "from 0 to 9007199254740991"],
        ["cells", "99", "from 1 to 8"],
        ["names to claim", "1.5", "from 1 to 32"],
    ])("%s “%s” is marked, and the open run stays", async (label, text, words) => {
        const page = await stage.page("#scenario=3b&at=4");
        await page.getByRole("tab", { name: "Free play" }).click();
        const field = page.getByLabel(label, { exact: true });
        await field.fill(text);
        await page.getByRole("alert").getByText(`enter a whole number ${words}`).waitFor();
        for (const name of ["Play this world", "10,000 events at once"]) {
            await page.getByRole("button", { name }).click();
            expect(await field.evaluate((one) => [one === document.activeElement, one.getAttribute("aria-invalid")])).toEqual([true, "true"]);
            expect(await position(page)).toEqual({ at: 4, of: 25 });
        }
        await field.fill("2");
        await page.getByRole("alert").waitFor({ state: "detached" });
        await page.getByRole("button", { name: "10,000 events at once" }).click();
        await reach(page, 10_000);
        await page.context().close();
    });
});

describe("a page from a static host", () => {
    test("requests the leases only when asked, and then explains that there are none", async () => {
        const requests: string[] = [];
        const page = await stage.page();
        page.on("request", (request) => requests.push(new URL(request.url()).pathname));
        await page.reload();
        await page.locator(".transport").waitFor();
        expect(requests.filter((path) => path.endsWith("/audit"))).toEqual([]);
        await page.getByRole("button", { name: "Open…", exact: true }).click();
        await page.getByRole("menuitem", { name: "This server's leases" }).click();
        await page.getByRole("alert").getByText("this page does not come from a claims server").waitFor();
        expect(requests.filter((path) => path.endsWith("/audit"))).toHaveLength(1);
        await page.context().close();
    });
});

describe("touch", () => {
    test.each([["Run"], ["State"], ["Choose"], ["Free play"], ["Rules"]])("every target on a phone is large enough: %s", async (where) => {
        const page = await stage.page("#scenario=3b&at=21", { viewport: PHONE, hasTouch: true });
        const isPane = ["Run", "State", "Choose"].includes(where);
        await page.getByRole("button", { name: isPane ? where : "Choose", exact: true }).click();
        if (!isPane) await page.getByRole("tab", { name: where }).click();
        expect(await smallTargets(page)).toEqual([]);
        const heights = await page.locator(".transport button, .transport input, .transport select, .tools button").evaluateAll((all) => all.map((one) => one.getBoundingClientRect().height));
        expect(Math.min(...heights)).toBeGreaterThanOrEqual(44);
        await page.context().close();
    });

    test("a message's menu covers neither the advice nor the playback controls", async () => {
        const page = await stage.page("#scenario=3b&at=21", { viewport: PHONE, hasTouch: true });
        await page.locator('.envelope[data-message="roll back"]').click();
        const menu = await page.getByRole("menu").boundingBox();
        for (const other of [".phone-advice", ".transport", '.envelope[data-message="roll back"]']) {
            const box = await page.locator(other).boundingBox();
            const isApart = menu && box && (menu.y + menu.height <= box.y || box.y + box.height <= menu.y);
            expect([other, isApart]).toEqual([other, true]);
        }
        await keepPicture(page, "phone-menu");
        await page.context().close();
    });
});

describe("keyboard", () => {
    test.each([
        ["Drop it", "lanes"],
        ["Duplicate it", "envelope"],
        ["Deliver it", "envelope answer"],
    ])("the focus moves to the successor of a message: %s", async (choice, where) => {
        const page = await stage.page("#scenario=3b&at=21");
        await page.locator(".envelope").focus();
        await page.keyboard.press("Enter");
        while ((await page.evaluate(() => document.activeElement?.textContent))?.startsWith(choice) === false) await page.keyboard.press("ArrowDown");
        await page.keyboard.press("Enter");
        await reach(page, 22);
        const focused = () => page.evaluate(() => document.activeElement?.className ?? "");
        await expect.poll(focused).toBe(where);
        await page.context().close();
    });

    test("the focus moves to the play button if a button of the advice disappears", async () => {
        const page = await stage.page("#scenario=2b&off=replay_keys&at=2");
        await page.getByRole("button", { name: "Go there, and see why" }).focus();
        await page.keyboard.press("Enter");
        await reach(page, 11);
        await expect.poll(() => page.evaluate(() => document.activeElement?.getAttribute("aria-label"))).toBe("Play");
        await page.context().close();
    });

    test("a slider of a rate uses the keys itself", async () => {
        const page = await stage.page("#scenario=happy-path&at=5");
        await reach(page, 5);
        await page.getByRole("tab", { name: "Free play" }).click();
        await page.getByText("Rates of random events").click();
        const slider = page.getByLabel("messages are lost");
        const before = Number(await slider.inputValue());
        await slider.press("ArrowRight");
        expect(Number(await slider.inputValue())).toBe(before + 1);
        await slider.press("End");
        expect(await slider.inputValue()).toBe("100");
        expect((await position(page)).at).toBe(5);
        await page.context().close();
    });

    test("every action has a key, and each step is announced", async () => {
        const page = await stage.page("#scenario=happy-path");
        await page.keyboard.press("ArrowRight");
        await page.keyboard.press("ArrowDown");
        await reach(page, 2);
        expect(await page.getByTestId("live").textContent()).toMatch(/^2 of 14: cell 1's worker 0 validates/);
        await page.keyboard.press("End");
        await reach(page, 14);
        await page.keyboard.press("Home");
        await reach(page, 0);
        await page.keyboard.press("Space");
        await page.getByRole("button", { name: "Pause" }).waitFor();
        await page.keyboard.press("Space");
        await page.getByRole("button", { name: "Play", exact: true }).waitFor();
        await page.keyboard.press("?");
        await page.getByRole("dialog").waitFor();
        await page.keyboard.press("Escape");
        await page.getByRole("dialog").waitFor({ state: "detached" });
        await page.keyboard.press("Home");
        for (let step = 0; step < 5; step += 1) await page.keyboard.press("ArrowRight");
        const envelope = page.locator(".envelope");
        for (let tabs = 0; tabs < 80 && !(await envelope.evaluate((one) => one === document.activeElement)); tabs += 1) await page.keyboard.press("Tab");
        await page.keyboard.press("Enter");
        await page.keyboard.press("ArrowDown");
        await page.keyboard.press("Enter");
        await reach(page, 6);
        expect(await page.getByTestId("live").textContent()).toContain("the network loses a message");
        await page.context().close();
    });
});

describe("layout", () => {
    test.each([
        ["laptop-light", {}],
        ["laptop-dark", { colorScheme: "dark" }],
        ["phone-light", { viewport: PHONE }],
        ["phone-dark", { viewport: PHONE, colorScheme: "dark" }],
    ] as const)("%s: no part is wider than the window", async (name, options) => {
        const page = await stage.page("#scenario=concurrent-creation&at=12", options);
        await keepPicture(page, name);
        const [width, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
        expect(width).toBeLessThanOrEqual(window ?? 0);
        if (name.startsWith("phone")) {
            for (const pane of ["State", "Choose"]) {
                await page.getByRole("button", { name: pane, exact: true }).click();
                await keepPicture(page, `${name}-${pane.toLowerCase()}`);
            }
            expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
        }
        await page.context().close();
    });
});

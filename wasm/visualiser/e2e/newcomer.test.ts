// Tests the page in the hands of a person who has read no documentation: each step follows a hint
// or button that the page has just shown.
import type { Locator, Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { CLIPBOARD, copiedLink, keepPicture, PHONE, playToEnd, position, quietStage, shown, table } from "./page";

const stage = quietStage();

const SCENARIO = "Alice's worker dies before its COMMIT";

/** Waits for the introduction of a freshly opened page, then plays scenario 3B to its end. */
async function play3b(page: Page, isPhone: boolean): Promise<void> {
    await page.getByText("A name may exist only once in all cells").filter({ visible: true }).waitFor();
    if (isPhone) await page.getByRole("button", { name: "Choose", exact: true }).click();
    await page.getByRole("button", { name: SCENARIO, exact: true }).click();
    await playToEnd(page, "50");
}

/**
 * Lets the user of scenario 3B ask again. The page plays up to the commit request, and this
 * function drops the request.
 */
async function dropCommit(page: Page): Promise<void> {
    await page.getByRole("button", { name: "The user asks again: play up to the commit" }).click();
    await page.getByRole("button", { name: "Play", exact: true }).waitFor();
    await page.getByText("“commit” is in flight: click its envelope").filter({ visible: true }).waitFor();
    await page.locator('.envelope[data-message="commit"]').click();
    await page.getByRole("menuitem", { name: "Drop it" }).click();
    await page.getByText("The request never reaches the service").filter({ visible: true }).waitFor();
}

describe.each([
    ["laptop", {}],
    ["phone", { viewport: PHONE, hasTouch: true, colorScheme: "dark" }],
] as const)("a newcomer at a %s", (name, options) => {
    test("plays 3B, drops a commit, learns why settled leases are remembered, and sends the link", async () => {
        const page = await stage.page("", { ...options, ...CLIPBOARD });
        await play3b(page, name === "phone");
        await dropCommit(page);
        await keepPicture(page, `newcomer-${name}-dropped`);

        await page.getByRole("button", { name: "Lose the answer instead, and see the difference" }).click();
        await page.getByText("that is why settled leases are remembered").filter({ visible: true }).waitFor();
        await page.getByRole("button", { name: "Without it a cell that retries is told that its lease does not exist: switch it off" }).click();
        await playToEnd(page, "50");
        await page.getByText("An answer can be lost after its lease was settled.").filter({ visible: true }).waitFor();
        expect(await page.locator(".row.violated .sentence").innerText()).toContain("commit lease #2 → no such lease");
        await keepPicture(page, `newcomer-${name}-broken`);

        const link = await copiedLink(page);
        const other = await stage.page(new URL(link).hash, options);
        expect(await shown(other)).toEqual(await shown(page));
        await other.getByText("An answer can be lost after its lease was settled.").filter({ visible: true }).waitFor();
        expect(await other.locator(".row.violated .sentence").innerText()).toContain("no such lease");

        await other.getByRole("button", { name: "Switch it on again" }).click();
        await playToEnd(other, "50");
        await other.getByText("Every process is idle").filter({ visible: true }).waitFor();
        if (name === "phone") await other.getByRole("button", { name: "State", exact: true }).click();
        expect(await table(other, "The service's tables", "Claims")).toEqual([["alice", "1", "2", "active", "–"]]);
        await Promise.all([page.context().close(), other.context().close()]);
    });
});

describe("a newcomer who takes another way", () => {
    test("switches the rule off in a run without a violation, and is offered a run with one", async () => {
        const page = await stage.page();
        await play3b(page, false);
        await dropCommit(page);
        await page.getByRole("tab", { name: "Rules" }).click();
        await page.getByRole("switch", { name: "Settled leases are remembered" }).click();
        await playToEnd(page, "50");
        await page.getByText("No invariant is violated in this run without the rule “settled leases are remembered”.").filter({ visible: true }).waitFor();
        await page.getByText("lost at event 37, before it reached the service").waitFor();
        await page.getByText("after a lost answer, not after a lost request").waitFor();
        await page.getByRole("button", { name: "Find a run that violates an invariant without" }).click();
        await page.getByRole("heading", { name: "Without the rule “settled leases are remembered”" }).waitFor({ timeout: 60_000 });
        await playToEnd(page, "50");
        await page.getByRole("heading", { name: "An invariant is violated" }).waitFor();
        await page.getByText("An answer can be lost after its lease was settled.").filter({ visible: true }).waitFor();
        await page.context().close();
    });

    test("drops the reconciler's rollback, then its answer instead, and the service answers from memory", async () => {
        const page = await stage.page("#scenario=3b&at=21");
        await page.locator('.envelope[data-message="roll back"]').click();
        await page.getByRole("menuitem", { name: "Drop it" }).click();
        await page.getByRole("button", { name: "Lose the answer instead, and see the difference" }).click();
        expect(await position(page)).toEqual({ at: 23, of: 23 });
        await playToEnd(page, "50");
        await page.getByText("Every process is idle").filter({ visible: true }).waitFor();
        expect(await table(page, "The service's tables", "Claims")).toEqual([]);
        await page.context().close();
    });
});

/** Tests the page that the receiver of a link sees, before the receiver does anything. */
describe.each([
    ["laptop", {}],
    ["phone", { viewport: PHONE, hasTouch: true }],
] as const)("a colleague at a %s", (name, options) => {
    test("sees the violation at any position of the link, and goes there", async () => {
        const page = await stage.page("#scenario=2b&off=replay_keys&at=2", options);
        await keepPicture(page, `colleague-${name}-broken`);
        await expectVisible(page.locator(".verdict").getByText("An invariant is violated at event 11: a save is refused because of the lease that its own first attempt has begun"));
        await page.getByText("Played without the rule “retried calls are recognised”").waitFor();
        if (name === "laptop") expect(await page.locator('[data-rule="replay_keys"]').isChecked()).toBe(false);
        await page.getByRole("button", { name: "Go there, and see why" }).click();
        expect(await position(page)).toEqual({ at: 11, of: 12 });
        await page.getByText("The service must recognise the retry").filter({ visible: true }).waitFor();
        await page.context().close();
    });

    test("is told at an event after the violation why the service answers as it does", async () => {
        const page = await stage.page("#scenario=concurrent-creation&off=lease_exclusivity&at=20", options);
        await expectVisible(page.getByText("The service's tables contradict each other, so it decides nothing.").filter({ visible: true }));
        await page.context().close();
    });

    test("sees why a dropped commit violated nothing", async () => {
        const sender = await stage.page("", { ...options, ...CLIPBOARD });
        await play3b(sender, name === "phone");
        await dropCommit(sender);
        await playToEnd(sender, "50");
        const page = await stage.page(new URL(await copiedLink(sender)).hash, options);
        await keepPicture(page, `colleague-${name}-held`);
        await expectVisible(page.locator(".verdict").getByText("No invariant is violated. The commit of lease #2 was lost at event 37"));
        await page.getByText("The run continues after the scenario's 25 events: a user of cell 1 asks worker 0 to create alice; at event 37 the network loses").waitFor();
        await page.getByRole("button", { name: "Lose the answer in place of the request, and see the difference" }).filter({ visible: true }).click();
        await page.getByText("that is why settled leases are remembered").filter({ visible: true }).waitFor();
        await Promise.all([sender.context().close(), page.context().close()]);
    });
});

/** Expects that an element is inside the window and that no other element covers it. */
async function expectVisible(what: Locator): Promise<void> {
    await what.waitFor();
    const isOnTop = await what.evaluate((element) => {
        const { left, top, width, height } = element.getBoundingClientRect();
        const found = document.elementFromPoint(left + width / 2, top + height / 2);
        return found !== null && (element.contains(found) || found.contains(element));
    });
    expect(isOnTop).toBe(true);
}

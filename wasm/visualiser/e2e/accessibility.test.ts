import { afterAll, beforeAll, expect, test } from "vitest";

import { axeViolations, lockWorldHash, PHONE, Stage } from "./page";

let stage: Stage;
beforeAll(async () => {
    stage = await Stage.open();
});
afterAll(() => stage.close());

const STATES: [string, string, object, string?][] = [
    ["free play", "#scenario=1", {}, "Free play"],
    ["the rules", "#scenario=1", { colorScheme: "dark" }, "Rules"],
    ["a scenario", "#scenario=concurrent-creation&at=12", {}],
    ["a scenario in the dark", "#scenario=2b&at=7", { colorScheme: "dark" }],
    ["a violation", "#scenario=2b&off=replay_keys&at=10", {}],
    ["a verdict without a violation", "#scenario=3b&off=ownership&at=3", { colorScheme: "dark" }],
    ["a link to an unknown scenario", "#scenario=9z", { viewport: PHONE }],
    ["a world of locks", lockWorldHash(), {}, "Free play"],
    ["the rules of a world of locks", lockWorldHash(40), { colorScheme: "dark" }, "Rules"],
    ["a world of locks on a phone", lockWorldHash(40), { viewport: PHONE }],
    ["a phone", "#scenario=3b&at=12", { viewport: PHONE }],
];

test.each(STATES)("axe reports no violation for %s", async (_, hash, options, tab) => {
    // The page's content security policy forbids scripts of others, so it would block axe.
    const page = await stage.page(hash, { ...options, bypassCSP: true });
    if (tab !== undefined) await page.getByRole("tab", { name: tab }).click();
    expect(await axeViolations(page)).toEqual([]);
    await page.context().close();
});

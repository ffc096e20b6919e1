import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { workResultText } from "../src/model/lock_texts";
import type { Scenario } from "../src/model/protocol";
import { SCENARIOS, setUpOf } from "../src/model/scenarios";
import { saveResultText, stateName } from "../src/model/texts";
import { kindOf } from "../src/model/world_form";
import { keepPicture, playToEnd, position, quietStage, table } from "./page";

const stage = quietStage();

const NAMES = ["alice", "bob", "carol"];

/**
 * Returns the end state that the page's tables show: the claims, the committed rows, and the
 * numbers of outstanding leases and of lease rows.
 */
async function endState(page: Page, cells: number) {
    const claims = await table(page, "The service's tables", "Claims");
    const rows: [number, number, string][] = [];
    const leases: string[][] = [];
    for (let cell = 1; cell <= cells; cell += 1) {
        const section = `Cell ${cell}'s tables`;
        const shown = await table(page, section, "Rows");
        rows.push(...shown.map(([row, name]): [number, number, string] => [cell, Number(row), (name ?? "").split(" ")[0] ?? ""]));
        leases.push(...(await table(page, section, "Lease rows")));
    }
    const outstanding = (await table(page, "The service's tables", "Leases")).filter((lease) => lease[3] === "outstanding");
    return {
        claims: claims.map(([name, cell, row, state]) => [name, Number(cell), Number(row), state]),
        rows,
        leaseRows: leases.length,
        outstanding: outstanding.length,
    };
}

/** Opens a scenario by a click, behind its set-up, and plays it to its end. */
async function played(scenario: Scenario): Promise<Page> {
    const page = await stage.page();
    await page.getByRole("button", { name: scenario.title, exact: true }).click();
    await page.getByText(scenario.watch, { exact: true }).waitFor();
    expect(await position(page)).toEqual({ at: setUpOf(scenario.id), of: scenario.trace.events.length });
    await playToEnd(page);
    expect((await position(page)).at).toBe(scenario.trace.events.length);
    return page;
}

const kindOfScenario = ({ trace }: Scenario) => kindOf(trace.settings);

/** Expects the writes to the resources and the results of the clients that the scenario declares. */
async function expectWork(page: Page, { end }: Scenario): Promise<void> {
    const resources = await table(page, "The service's tables", "Resources");
    const writes = resources.map(([, , accepted, refused]) => [Number(accepted), Number(refused)]);
    expect(writes).toEqual(end.writes?.map(([, accepted, refused]) => [accepted, refused]));
    for (const [cell, result] of end.worked ?? []) {
        const line = page.getByRole("region", { name: `Cell ${cell}'s client` }).locator(".workers li").first();
        expect(await line.innerText()).toContain(workResultText(result));
    }
}

describe("a click opens each scenario of locks, which plays to its expected end", () => {
    test.each(SCENARIOS.filter((scenario) => kindOfScenario(scenario) === "locks"))("$title", async (scenario) => {
        const page = await played(scenario);
        await expectWork(page, scenario);
        const locks = await table(page, "The service's tables", "Locks");
        expect(locks.map((lock) => lock[1])).toEqual(["free"]);
        await page.context().close();
    });
});

describe("a click opens each scenario of a queue, which plays to its expected end", () => {
    test.each(SCENARIOS.filter((scenario) => kindOfScenario(scenario) === "queues"))("$title", async (scenario) => {
        const page = await played(scenario);
        await expectWork(page, scenario);
        const requests = await table(page, "The service's tables", "Requests");
        expect(requests.map(([number, , , state]) => [Number(number), state])).toEqual(scenario.end.requests?.map(([number, state]) => [number, stateName(state)]));
        const lanes = await table(page, "The service's tables", "Lanes");
        expect(lanes.map(([, state, worker]) => [state, worker])).toEqual(lanes.map(() => ["idle", "–"]));
        await keepPicture(page, scenario.id);
        await page.context().close();
    });
});

describe("a click opens each scenario, which plays to its expected end", () => {
    test.each(SCENARIOS.filter((scenario) => kindOfScenario(scenario) === "claims"))("$title", async (scenario) => {
        const page = await played(scenario);
        const { end } = scenario;
        const shown = await endState(page, scenario.trace.settings.cells);
        expect(shown.claims).toEqual(end.claims.map(([name, cell, row]) => [NAMES[name], cell, row, "active"]));
        expect(shown.rows).toEqual(end.rows.map(([cell, row, name]) => [cell, row, NAMES[name]]));
        expect([shown.leaseRows, shown.outstanding]).toEqual([end.lease_rows, end.outstanding]);
        for (const [cell, worker, result] of end.told) {
            const line = page.getByRole("region", { name: `Cell ${cell}'s tables` }).locator(".workers li").nth(worker);
            expect(await line.innerText()).toContain(saveResultText(result));
        }
        await page.context().close();
    });
});

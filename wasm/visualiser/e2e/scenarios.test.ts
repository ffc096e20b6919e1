import { scenarios } from "leasehold/simulation";
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { saveResultText } from "../src/model/texts";
import { playToEnd, position, quietStage, table } from "./page";

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

describe("a click opens each scenario, which plays to its expected end", () => {
    test.each(scenarios())("$title", async (scenario) => {
        const page = await stage.page();
        await page.getByRole("button", { name: scenario.title, exact: true }).click();
        await page.getByText(scenario.watch, { exact: true }).waitFor();
        expect(await position(page)).toEqual({ at: 0, of: scenario.trace.events.length });
        await playToEnd(page);
        expect((await position(page)).at).toBe(scenario.trace.events.length);
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

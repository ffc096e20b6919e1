// Tests the sharing of runs: files that are dropped on the page, and links on the clipboard.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { Simulation } from "leasehold/simulation";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { eventLine } from "../src/model/event_lines";
import { CLIPBOARD, copiedLink, position, quietStage, reach, shown } from "./page";

const stage = quietStage();
let folder: string;
beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "leasehold-page-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const LOG = fileURLToPath(new URL("../tests/audit.jsonl", import.meta.url));

/**
 * Drags a file from outside the browser onto the page's lanes and drops it there. The browser
 * delivers the drop only if the page has accepted the drag.
 */
async function dragOnto(page: Page, path: string): Promise<void> {
    const input = await page.context().newCDPSession(page);
    const data = { items: [], files: [path], dragOperationsMask: 1 };
    for (const type of ["dragEnter", "dragOver", "drop"] as const) {
        await input.send("Input.dispatchDragEvent", { type, x: 500, y: 400, data });
    }
}

/** Denies the page access to the clipboard, like a person who does so in the browser's settings. */
async function denyClipboard(page: Page): Promise<void> {
    const tab = await page.context().newCDPSession(page);
    const { targetInfo } = await tab.send("Target.getTargetInfo");
    const browser = await stage.browser.newBrowserCDPSession();
    await browser.send("Browser.setPermission", {
        permission: { name: "clipboard-write", allowWithoutSanitization: false },
        setting: "denied",
        ...(targetInfo.browserContextId === undefined ? {} : { browserContextId: targetInfo.browserContextId }),
    });
}

describe("a file that is dropped on the page", () => {
    test("is opened at its start if it is a trace", async () => {
        const simulation = new Simulation({ seed: 5 });
        simulation.play(60);
        const path = join(folder, "tuesday.json");
        writeFileSync(path, simulation.trace());
        const page = await stage.page();
        await dragOnto(page, path);
        await page.getByRole("heading", { name: "tuesday.json" }).waitFor();
        await reach(page, 0);
        expect((await position(page)).of).toBe(simulation.length);
        await page.keyboard.press("End");
        await reach(page, simulation.length);
        const [last] = simulation.entries(simulation.length - 1, simulation.length);
        const line = last && eventLine(last, simulation.arrows(last.position, simulation.length), simulation.settings());
        expect(await page.locator(".rows li").last().innerText()).toContain(line);
        await page.context().close();
    });

    test("is opened if it is a live server's log", async () => {
        const page = await stage.page();
        await dragOnto(page, LOG);
        await page.getByRole("heading", { name: "A live server's log" }).waitFor();
        await page.context().close();
    });

    test("is refused with a notice if it contains no run, and the open run stays", async () => {
        const path = join(folder, "holiday.json");
        writeFileSync(path, "sun and sea");
        const page = await stage.page("#scenario=3b&at=4");
        await dragOnto(page, path);
        await page.getByRole("alert").waitFor();
        expect(await position(page)).toEqual({ at: 4, of: 25 });
        await page.context().close();
    });
});

describe("the link on the clipboard", () => {
    test("contains the present state, even before the address does", async () => {
        const page = await stage.page("#scenario=4a", CLIPBOARD);
        await page.keyboard.press("ArrowRight");
        await page.keyboard.press("ArrowRight");
        const link = await copiedLink(page);
        expect(new URL(link).hash).toBe("#scenario=4a&at=2");
        const other = await stage.page();
        await other.goto(link);
        await reach(other, 2);
        expect(await shown(other)).toEqual(await shown(page));
        await Promise.all([page.context().close(), other.context().close()]);
    });

    test("is replaced by a notice about the address bar if the browser denies access", async () => {
        const page = await stage.page("#scenario=4a");
        await denyClipboard(page);
        await page.getByRole("button", { name: "Copy link", exact: true }).click();
        expect(await page.getByRole("alert").innerText()).toContain("copy the address from the address bar");
        await page.context().close();
    });
});

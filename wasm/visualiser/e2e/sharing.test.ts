// Runs that come and go: a file that is dropped on the page, and the link on the clipboard.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { Simulation } from "leasehold/simulation";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { CLIPBOARD, copiedLink, position, quietStage, reach, shown } from "./page";

const stage = quietStage();
let folder: string;
beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "leasehold-page-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const LOG = fileURLToPath(new URL("../tests/audit.jsonl", import.meta.url));

/** Drags a file from outside the browser onto the lanes, and lets go: the browser itself decides whether the page takes it. */
async function dragOnto(page: Page, path: string): Promise<void> {
    const input = await page.context().newCDPSession(page);
    const data = { items: [], files: [path], dragOperationsMask: 1 };
    for (const type of ["dragEnter", "dragOver", "drop"] as const) {
        await input.send("Input.dispatchDragEvent", { type, x: 500, y: 400, data });
    }
}

/** What a person's settings do. */
async function forbidCopying(page: Page): Promise<void> {
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
    test("is opened: a trace at its start, with all its events", async () => {
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
        expect(await page.locator(".rows li").last().innerText()).toContain(simulation.entries(simulation.length - 1, simulation.length)[0]?.says);
        await page.context().close();
    });

    test("is opened: a live server's log", async () => {
        const page = await stage.page();
        await dragOnto(page, LOG);
        await page.getByRole("heading", { name: "A live server's log" }).waitFor();
        await page.context().close();
    });

    test("that is no run is refused in words, and what is open stays", async () => {
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
    test("is to what is shown at this moment, before the address has followed", async () => {
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

    test("is not there where the browser forbids it: then it says where the link is", async () => {
        const page = await stage.page("#scenario=4a");
        await forbidCopying(page);
        await page.getByRole("button", { name: "Copy link", exact: true }).click();
        expect(await page.getByRole("alert").innerText()).toContain("copy the address from the address bar");
        await page.context().close();
    });
});

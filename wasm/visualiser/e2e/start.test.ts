// Tests the error that the page shows if it cannot start.
import type { Route } from "playwright-core";
import { describe, expect, test } from "vitest";

import { keepPicture, quietStage } from "./page";

const stage = quietStage();

describe("a page that cannot start", () => {
    test.each([
        ["is missing", (route: Route) => route.abort()],
        ["is damaged", (route: Route) => route.fulfill({ contentType: "application/wasm", body: "garbage" })],
    ])("shows an error if its wasm file %s", async (fault, answer) => {
        const page = await stage.browser.newPage();
        await page.route(/\.wasm/, answer);
        await page.goto(stage.address);
        const alert = page.getByRole("alert");
        await alert.waitFor();
        expect(await alert.innerText()).toMatch(/^This page could not start: .+ Load it again/);
        await keepPicture(page, `start-${fault.replaceAll(" ", "-")}`);
        await page.close();
    });
});

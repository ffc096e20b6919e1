// What a person sees where the page can't start.
import type { Route } from "playwright-core";
import { describe, expect, test } from "vitest";

import { keepPicture, quietStage } from "./page";

const stage = quietStage();

describe("a page that can't start", () => {
    test.each([
        ["does not come", (route: Route) => route.abort()],
        ["is damaged", (route: Route) => route.fulfill({ contentType: "application/wasm", body: "garbage" })],
    ])("says so where its wasm file %s", async (how, answer) => {
        const page = await stage.browser.newPage();
        await page.route(/\.wasm/, answer);
        await page.goto(stage.address);
        const told = page.getByRole("alert");
        await told.waitFor();
        expect(await told.innerText()).toMatch(/^This page could not start: .+ Load it again/);
        await keepPicture(page, `start-${how.replaceAll(" ", "-")}`);
        await page.close();
    });
});

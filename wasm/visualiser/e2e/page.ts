// Helpers that open the built page in Debian's Chromium, for all browser tests.
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

import axe from "axe-core";
import { Simulation } from "leasehold/simulation";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { preview, type PreviewServer } from "vite";
import { afterAll, beforeAll, expect } from "vitest";

import { DEFAULT_VIEW, LinkWriter } from "../src/model/link";
import { formOf, settingsOf } from "../src/model/world_form";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const ARTEFACTS = `${ROOT}artefacts`;
// `--no-sandbox`: the tests may run as root, and Chromium refuses to run its sandbox as root. The
// other flags stop requests that Chromium makes on its own.
export const FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];
export const CHROMIUM = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
const LAPTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };

/** Returns the storage of a browser in which the tour of the page at this address has ended. */
export function afterTour(address: string): Exclude<BrowserContextOptions["storageState"], string | undefined> {
    return { cookies: [], origins: [{ origin: new URL(address).origin, localStorage: [{ name: "leasehold-tour", value: "ended" }] }] };
}

/** A Chromium browser, and a server of the built page, for the tests of one file. */
export class Stage {
    /** The errors and warnings that any page has logged so far. */
    readonly complaints: string[] = [];

    private constructor(
        readonly browser: Browser,
        private readonly server: PreviewServer,
        readonly address: string,
    ) {}

    static async open(): Promise<Stage> {
        mkdirSync(ARTEFACTS, { recursive: true });
        const server = await preview({ root: ROOT, logLevel: "warn", preview: { host: "127.0.0.1", port: 0, strictPort: false } });
        const address = server.resolvedUrls?.local[0];
        if (address === undefined) throw new Error("the preview server has no local address");
        const browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
        return new Stage(browser, server, address);
    }

    /**
     * Opens the page in a new browser context, for a visitor who has ended the tour. `hash` is the
     * fragment of the address.
     */
    async page(hash = "", options: BrowserContextOptions = {}): Promise<Page> {
        const page = await this.newVisitor(hash, { storageState: afterTour(this.address), ...options });
        await page.locator(".transport").waitFor();
        return page;
    }

    /**
     * Opens the page like `page`, for a visitor who has not seen the tour.
     */
    async newVisitor(hash = "", options: BrowserContextOptions = {}): Promise<Page> {
        const context = await this.browser.newContext({ viewport: LAPTOP, reducedMotion: "reduce", ...options });
        const page = await context.newPage();
        page.on("pageerror", (error) => this.complaints.push(error.message));
        page.on("console", (message) => {
            if (message.type() === "error" || message.type() === "warning") this.complaints.push(message.text());
        });
        await page.goto(this.address + hash);
        await page.locator(".header").waitFor();
        return page;
    }

    async close(): Promise<void> {
        await this.browser.close();
        await this.server.close();
    }
}

/**
 * Returns a stage that all tests of a file share. At the end, it fails if a page has logged an
 * error or a warning.
 */
export function quietStage(): Pick<Stage, "page" | "newVisitor" | "browser" | "address"> {
    let stage: Stage;
    beforeAll(async () => {
        stage = await Stage.open();
    });
    afterAll(async () => {
        await stage.close();
        expect(stage.complaints).toEqual([]);
    });
    return {
        page: (hash, options) => stage.page(hash, options),
        newVisitor: (hash, options) => stage.newVisitor(hash, options),
        get browser() {
            return stage.browser;
        },
        get address() {
            return stage.address;
        },
    };
}

/**
 * Returns the link of a world of locks, with this number of random events. It is written
 * synchronously, so that a list of test cases can contain it.
 */
export function lockWorldHash(randomEvents = 0): string {
    const settings = settingsOf({ ...formOf(new Simulation({ seed: 3 }).settings()), kind: "locks" }, []);
    return `#${new LinkWriter().writeNow({ origin: { kind: "free", settings, randomEvents }, rulesOff: [], position: randomEvents, view: DEFAULT_VIEW })}`;
}

/**
 * Returns the controls that are too small to touch: WCAG 2.2, 2.5.8 asks for 24 pixels. A click on
 * a control's label also activates the control, so the label counts if there is one.
 */
export function smallTargets(page: Page): Promise<string[]> {
    return page.locator("button, select, summary, input:not([hidden])").evaluateAll((all) =>
        all.flatMap((one) => {
            const { width, height } = (one.closest("label") ?? one).getBoundingClientRect();
            return width > 0 && (width < 24 || height < 24) ? [`${one.outerHTML.slice(0, 90)} ${width}×${height}`] : [];
        }),
    );
}

/**
 * Returns the violations that the test library axe reports. The page's context must bypass the
 * content security policy (`bypassCSP`), which forbids scripts of others.
 */
export async function axeViolations(page: Page): Promise<string[]> {
    await page.addScriptTag({ content: axe.source });
    return page.evaluate(async () => {
        const { axe } = window as unknown as { axe: typeof import("axe-core") };
        const { violations } = await axe.run(document, { resultTypes: ["violations"] });
        return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary ?? ""}`).join(" | ").slice(0, 700)}`);
    });
}

/** Returns the texts of the lanes that an envelope covers. */
export function coveredTexts(page: Page): Promise<string[]> {
    return page.evaluate(() => {
        const envelopes = [...document.querySelectorAll(".envelope svg")].map((one) => one.getBoundingClientRect());
        return [...document.querySelectorAll(".lines .label")].flatMap((label) => {
            const box = label.getBoundingClientRect();
            // The glyphs are lower than the box of the text, which includes the space above them.
            const [top, bottom] = [box.top + 3, box.bottom - 3];
            const isCovered = envelopes.some((one) => one.left < box.right && one.right > box.left && one.top < bottom && one.bottom > top);
            return isCovered ? [label.textContent ?? ""] : [];
        });
    });
}

/** Saves a screenshot of the page under this name, for people to look at. */
export async function keepPicture(page: Page, name: string): Promise<void> {
    await page.screenshot({ path: `${ARTEFACTS}/${name}.png` });
}

/** Returns the position and the length of the run, as the page displays them. */
export async function position(page: Page): Promise<{ at: number; of: number }> {
    const text = await page.getByTestId("position").innerText();
    const [at, of] = text.split("/").map(Number);
    return { at: at ?? Number.NaN, of: of ?? Number.NaN };
}

/** Waits until the page's texts and tables show the same position as its lanes. */
export async function waitForTexts(page: Page): Promise<void> {
    await page.locator('.side[aria-busy="false"]').waitFor({ state: "attached" });
}

/** Waits until the page displays this position. */
export async function reach(page: Page, at: number): Promise<void> {
    await expect.poll(async () => (await position(page)).at, { timeout: 20_000 }).toBe(at);
    await waitForTexts(page);
}

/** Plays the run at this speed (events per second) until playback stops. */
export async function playToEnd(page: Page, speed = "200"): Promise<void> {
    await page.getByLabel("Speed, in events a second").selectOption(speed);
    await page.getByRole("button", { name: "Play", exact: true }).click();
    await page.getByRole("button", { name: "Play", exact: true }).waitFor({ timeout: 30_000 });
    await waitForTexts(page);
}

/** Returns the texts in the cells of one table of the page, row by row. */
export async function table(page: Page, section: string, caption: string): Promise<string[][]> {
    await waitForTexts(page);
    const rows = page.getByRole("region", { name: section }).getByRole("table", { name: new RegExp(`^${caption}`, "u") }).locator("tbody tr");
    return rows.evaluateAll((list) =>
        list.map((row) => [...row.children].filter((cell) => !cell.classList.contains("empty")).map((cell) => cell.textContent?.trim() ?? "")).filter((cells) => cells.length > 0),
    );
}

/**
 * Returns the displayed contents of the page: the tables, the last event, the headline and the
 * position.
 */
export async function shown(page: Page) {
    await waitForTexts(page);
    const texts = [".state", ".current-event", ".headline"].map((selector) => page.locator(selector).innerText());
    return { texts: await Promise.all(texts), position: await position(page) };
}

/** Options of a browser context that permit the page to read and write the clipboard. */
export const CLIPBOARD: BrowserContextOptions = { permissions: ["clipboard-read", "clipboard-write"] };

/** Presses the page's button “Copy link”. Returns the text that is then on the clipboard. */
export async function copiedLink(page: Page): Promise<string> {
    await page.getByRole("button", { name: "Copy link", exact: true }).click();
    await page.getByText("the link is copied", { exact: false }).waitFor();
    return page.evaluate(() => navigator.clipboard.readText());
}

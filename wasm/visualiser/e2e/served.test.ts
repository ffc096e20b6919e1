// Tests the page as `leasehold serve` serves it, including the leases of that server.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

import { type Browser, chromium } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { afterTour, FLAGS, CHROMIUM, keepPicture, playToEnd, position, table } from "./page";

const BANNER_SECONDS = 20;

let server: ChildProcess;
let browser: Browser;
let data: string;
let address: string;

/** Returns the path of the server binary: `LEASEHOLD_BINARY`, or the debug build of cargo. */
function binary(): string {
    const built = resolve("../..", process.env["CARGO_TARGET_DIR"] ?? "target", "debug/leasehold");
    const path = process.env["LEASEHOLD_BINARY"] ?? built;
    if (!existsSync(path)) {
        throw new Error(`\`${path}\` does not exist: build this page, then run \`cargo build --workspace --bins --features leasehold-server/page\``);
    }
    return path;
}

/** Starts a Leasehold server. Returns the address of the page, as the server's banner shows it. */
async function serve(): Promise<string> {
    data = mkdtempSync(join(tmpdir(), "leasehold-page-"));
    server = spawn(binary(), ["serve", "--create", "--listen", "127.0.0.1:0", "--data", join(data, "data")], { stdio: ["ignore", "pipe", "ignore"] });
    const stdout = server.stdout;
    if (stdout === null) throw new Error("the server has no output");
    const timer = setTimeout(() => server.kill(), BANNER_SECONDS * 1000);
    const banner: string[] = [];
    for await (const line of createInterface({ input: stdout })) {
        banner.push(line);
        const found = /^\s*page\s+(http\S+)/.exec(line)?.[1];
        if (found === undefined && !line.startsWith("try:")) continue;
        clearTimeout(timer);
        if (found === undefined) break;
        stdout.resume();
        return found;
    }
    throw new Error(`the server's banner has no line \`page\`: build the page, then the server with \`--features page\`. The banner is:\n${banner.join("\n")}`);
}

function leasehold(...words: string[]): { leaseUuid?: { value: string } } {
    const text = execFileSync(binary(), [...words, "--server", address, "--json"], { encoding: "utf8" });
    return JSON.parse(text) as { leaseUuid?: { value: string } };
}

function begin(cell: number, name: string): string {
    const begun = leasehold("begin", "--cell", String(cell), "--create", `USERNAMES:${name}`, "--subject", "USER:7", "--source", "USERS:7");
    const lease = begun.leaseUuid?.value;
    if (lease === undefined) throw new Error("the answer to `begin` has no lease");
    return lease;
}

beforeAll(async () => {
    address = await serve();
    browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
});

afterAll(async () => {
    await browser?.close();
    server?.kill();
    if (data !== undefined) rmSync(data, { recursive: true, force: true });
});

test("the served page shows the server's leases, and plays a scenario under its content security policy", async () => {
    leasehold("commit", "--cell", "1", begin(1, "alice"));
    leasehold("rollback", "--cell", "2", begin(2, "bob"));
    const left = begin(1, "carol");

    const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", storageState: afterTour(address) });
    const complaints: string[] = [];
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("console", (message) => {
        if (message.type() === "error" || message.type() === "warning") complaints.push(message.text());
    });
    await page.goto(address);
    await page.getByRole("button", { name: "Alice signs up", exact: true }).click();
    await playToEnd(page);
    expect(await table(page, "The service's tables", "Claims")).toEqual([["alice", "1", "1", "active", "–"]]);

    await page.getByRole("button", { name: "Open…", exact: true }).click();
    await page.getByRole("menuitem", { name: "This server's leases" }).click();
    await page.getByRole("heading", { name: "This server's leases" }).waitFor();
    expect(await position(page)).toEqual({ at: 5, of: 5 });
    const states = async () => (await table(page, "The service's leases", "Leases")).map((lease) => lease[3]);
    expect(await states()).toEqual(["committed", "rolled back", "outstanding"]);
    expect(await page.locator(".row .sentence").allInnerTexts()).toContain(`Cell 1 begins lease …${left.slice(-6)}: 1 claim, fence 3`);
    await keepPicture(page, "served");

    leasehold("commit", "--cell", "1", left);
    await page.getByRole("button", { name: "Refresh" }).click();
    await expect.poll(states).toEqual(["committed", "rolled back", "committed"]);
    expect(complaints).toEqual([]);
});

// Pages of built programs in Debian's Chromium.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join } from "node:path";

import { type Browser as Chromium, chromium, type Page } from "playwright-core";

import { ANSWER, environment, type Project } from "./project.js";

const TYPES: Record<string, string> = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".wasm": "application/wasm",
};

/** The policy that the README names. */
export const POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; img-src data:";

/** The time in which a page answers. */
const ANSWER_MILLIS = 30_000;

/** The longest start of a development server. */
const START_MILLIS = 60_000;

/** A browser, started once for the tests of a file. */
export class Browser {
    #chromium: Promise<Chromium> | undefined;

    /** Opens an address, and returns what the page and its worker write. Fails at the first error of the page. */
    async answers(address: string): Promise<object> {
        return await this.open(address, async (page) => {
            const body = page.locator("body[data-page][data-worker]");
            const read = async (name: string): Promise<string | null> => await body.getAttribute(`data-${name}`, { timeout: ANSWER_MILLIS });
            return { page: await read("page"), worker: await read("worker") };
        });
    }

    /** Checks that the page and its worker call the package. */
    async check(address: string): Promise<void> {
        assert.deepEqual(await this.answers(address), { page: ANSWER, worker: ANSWER });
    }

    /** Opens an address for a function, which fails at the first error of the page. */
    async open<T>(address: string, use: (page: Page) => Promise<T>): Promise<T> {
        // `--no-sandbox`: Chromium refuses to run its sandbox as root.
        this.#chromium ??= chromium.launch({ executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
        const page = await (await this.#chromium).newPage();
        const failed = new Promise<never>((_, reject) => {
            page.on("pageerror", reject);
            page.on("console", (message) => message.type() === "error" && reject(new Error(message.text())));
        });
        try {
            const used = page.goto(address).then(async () => await use(page));
            return await Promise.race([used, failed]);
        } finally {
            await page.close();
        }
    }

    async close(): Promise<void> {
        await (await this.#chromium)?.close();
    }
}

/** Serves a directory of a project to a function, with a content security policy. */
export async function served<T>(project: Project, directory: string, use: (address: string) => Promise<T>, policy = POLICY): Promise<T> {
    const server: Server = createServer(async ({ url = "/" }, response) => {
        const path = new URL(url, "http://localhost").pathname;
        const file = join(project.path(directory), path.endsWith("/") ? `${path}index.html` : path);
        try {
            const content = await readFile(file);
            response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream", "content-security-policy": policy }).end(content);
        } catch {
            response.writeHead(404).end();
        }
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    try {
        return await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    } finally {
        server.close();
        server.closeAllConnections();
    }
}

/** Runs a development server for a function, which gets the address that the server prints. */
export async function developed<T>(project: Project, program: string, parameters: readonly string[], use: (address: string) => Promise<T>): Promise<T> {
    const server = spawn(program, parameters, { cwd: project.directory, env: environment(), stdio: ["ignore", "pipe", "pipe"] });
    try {
        return await use(await printedAddress(server));
    } finally {
        const ended = once(server, "exit");
        if (server.kill()) await ended;
    }
}

async function printedAddress(server: ChildProcess): Promise<string> {
    let output = "";
    return await new Promise((resolve, reject) => {
        const hear = (chunk: Buffer): void => {
            output += chunk.toString();
            const [address] = /http:\/\/(?:127\.0\.0\.1|localhost):\d+\/?/u.exec(output) ?? [];
            if (address !== undefined) resolve(address);
        };
        server.stdout?.on("data", hear);
        server.stderr?.on("data", hear);
        const fail = (why: string): void => reject(new Error(`the development server ${why}:\n${output}`));
        server.once("exit", () => fail("has ended"));
        server.once("error", reject);
        setTimeout(() => fail("prints no address"), START_MILLIS).unref();
    });
}

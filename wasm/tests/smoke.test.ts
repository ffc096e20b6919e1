// New programs with the packed package: in Node, and with the newest Vite and esbuild. `npm run bundlers` has
// more versions and bundlers.
import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { fileURLToPath } from "node:url";

import { Browser, developed, POLICY, served } from "./bundlers/browser.js";
import { ANSWER, Project } from "./bundlers/project.js";

const tool = (name: string): string => fileURLToPath(new URL(`../../node_modules/.bin/${name}`, import.meta.url));
const project = new Project();
const browser = new Browser();
after(async () => {
    await browser.close();
    project.remove();
});

describe("Node", () => {
    it("imports the package, and requires it", () => {
        assert.equal(project.run("node", ["node.js"]).trim(), ANSWER);
        assert.equal(project.run("node", ["--no-warnings", "required.cjs"]).trim(), ANSWER);
    });
});

describe("esbuild", () => {
    const bundle = (file: string, ...options: string[]): string => project.run(tool("esbuild"), [file, "--bundle", "--log-limit=0", ...options]);

    for (const format of ["esm", "cjs"]) {
        it(`bundles a program for Node as ${format}`, () => {
            const out = `bundled/${format}/node.${format === "cjs" ? "cjs" : "mjs"}`;
            bundle("node.js", "--platform=node", `--format=${format}`, `--outfile=${out}`);
            assert.equal(project.run("node", [out]).trim(), ANSWER);
        });
    }

    for (const [format, ...options] of [["cjs"], ["esm"], ["esm", "--banner:js=import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);"]]) {
        it(`says that locks do not work inside of a bundle, as ${format}${options.length === 0 ? "" : " with a `require`"}`, () => {
            project.write("locks.js", 'import { connect } from "leasehold/locks"; connect();');
            const peers = ["@grpc/grpc-js", "@grpc/proto-loader"].map((name) => `--alias:${name}=${fileURLToPath(new URL(`../../node_modules/${name}`, import.meta.url))}`);
            const out = `bundled/locks.${format === "cjs" ? "cjs" : "mjs"}`;
            bundle("locks.js", "--platform=node", `--format=${format}`, `--outfile=${out}`, ...peers, ...options);
            assert.throws(() => project.run("node", [out]), /leave the package out, as with `esbuild --external:leasehold`/u);
        });
    }

    it("bundles a page and its worker, also for a classic script", async () => {
        bundle("page.js", "--format=esm", "--outfile=bundled/page/page.js");
        bundle("worker.js", "--format=iife", "--outfile=bundled/page/worker.js");
        project.write("bundled/page/index.html", project.read("index.html"));
        await served(project, "bundled/page", (address) => browser.check(address));
    });
});

describe("Vite", () => {
    it("serves a program while it is developed", async () => {
        await developed(project, tool("vite"), ["--host", "127.0.0.1"], (address) => browser.check(address));
    });

    it("builds a program and its worker, without a setting", async () => {
        project.run(tool("vite"), ["build"]);
        assert.deepEqual(project.files("dist").filter((file) => file.endsWith(".wasm")), [], "the wasm file is built twice");
        await served(project, "dist", (address) => browser.check(address));
    });

    it("builds a program that fetches the wasm files, which are then the only copies", async () => {
        project.run(tool("vite"), ["build", "slim"]);
        const files = project.files("slim/dist");
        const wasm = files.filter((file) => file.endsWith(".wasm"));
        assert.equal(wasm.length, 2, String(files));
        const scripts = files.filter((file) => file.endsWith(".js")).map((file) => project.read(`slim/dist/${file}`));
        assert.ok(scripts.join("").length < 60_000, "a script contains a wasm file");
        await served(project, "slim/dist", (address) => browser.check(address));
    });

    it("says what the content security policy of a page must allow", async () => {
        const strict = POLICY.replace(" 'wasm-unsafe-eval'", "");
        project.run(tool("vite"), ["build"]);
        const opened = served(project, "dist", (address) => browser.answers(address), strict);
        await assert.rejects(opened, /the wasm file `leasehold.wasm` cannot be loaded: .*; allow `'wasm-unsafe-eval'` in `script-src`/su);
    });
});

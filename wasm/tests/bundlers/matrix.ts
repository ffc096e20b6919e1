// `npm run bundlers`: new programs with the packed package, for each bundler, version and runtime that the
// package's README names. Every one is installed from npm.
import assert from "node:assert/strict";

import { Browser, developed, POLICY, served } from "./browser.js";
import { ANSWER, Project } from "./project.js";

/** A program that is installed with these packages, and tested. */
interface Case {
    readonly name: string;
    readonly packages: readonly string[];
    test(project: Project): Promise<void> | void;
}

const browser = new Browser();
const tool = (project: Project, name: string): string => project.path(`node_modules/.bin/${name}`);

/** Checks a page in a directory whose script is `page.js`. */
async function checkPage(project: Project, directory: string, script = 'type="module"'): Promise<void> {
    project.write(`${directory}/index.html`, project.read("index.html").replace('type="module"', script));
    await served(project, directory, (address) => browser.check(address));
}

/** Checks a page as `checkPage` does, which calls the engine alone. */
async function checkSlimPage(project: Project, directory: string, script = 'type="module"'): Promise<void> {
    project.write(`${directory}/index.html`, project.read("index.html").replace('type="module"', script));
    const answers = await served(project, directory, (address) => browser.answers(address));
    assert.deepEqual(answers, { page: "alice", worker: "alice" });
}

function vite(version: number): Case {
    return {
        name: `Vite ${version}`,
        packages: [`vite@${version}`],
        async test(project) {
            await developed(project, tool(project, "vite"), ["--host", "127.0.0.1"], (address) => browser.check(address));
            project.run(tool(project, "vite"), ["build"]);
            await served(project, "dist", (address) => browser.check(address));
            await developed(project, tool(project, "vite"), ["slim", "--host", "127.0.0.1"], (address) => browser.check(address));
            project.run(tool(project, "vite"), ["build", "slim"]);
            await served(project, "slim/dist", (address) => browser.check(address));
        },
    };
}

const WEBPACK: Case = {
    name: "webpack 5",
    packages: ["webpack@5", "webpack-cli@6"],
    async test(project) {
        const build = (entry: string, out: string): string =>
            project.run(tool(project, "webpack"), ["--entry", entry, "--mode", "production", "-o", out, "--output-filename", "page.js"]);
        build("./page.js", "bundled");
        // webpack finds the folder of its files by a classic script.
        await checkPage(project, "bundled", "defer");
        build("./slim/standard.js", "bundled-slim");
        await checkSlimPage(project, "bundled-slim", "defer");
    },
};

const ROLLUP: Case = {
    name: "Rollup 4",
    packages: ["rollup@4", "@rollup/plugin-node-resolve@16"],
    async test(project) {
        project.run(tool(project, "rollup"), ["page.js", "worker.js", "-p", "@rollup/plugin-node-resolve", "-d", "bundled"]);
        await checkPage(project, "bundled");
        project.run(tool(project, "rollup"), ["node.js", "-p", "@rollup/plugin-node-resolve", "-o", "bundled/node.mjs"]);
        assert.equal(project.run("node", ["bundled/node.mjs"]).trim(), ANSWER);
    },
};

const PARCEL: Case = {
    name: "Parcel 2",
    packages: ["parcel@2"],
    async test(project) {
        const manifest = JSON.parse(project.read("package.json"));
        project.write("package.json", JSON.stringify({ ...manifest, "@parcel/resolver-default": { packageExports: true } }));
        const imported = project.read("slim/imported.js").replace('"leasehold/leasehold.wasm"', '"url:leasehold/leasehold.wasm"');
        project.write("slim/page.js", imported);
        const build = (page: string, out: string): string =>
            project.run(tool(project, "parcel"), ["build", page, "--dist-dir", out, "--no-cache", "--no-source-maps"]);
        // Parcel writes the list of its files into the page.
        const policy = POLICY.replace("script-src", "script-src 'unsafe-inline'");
        build("index.html", "bundled");
        await served(project, "bundled", (address) => browser.check(address), policy);
        build("slim/index.html", "bundled-slim");
        const answers = await served(project, "bundled-slim", (address) => browser.answers(address), policy);
        assert.deepEqual(answers, { page: "alice", worker: "alice" });
    },
};

const ESBUILD: Case = {
    name: "esbuild, with the wasm file as a file",
    packages: ["esbuild"],
    async test(project) {
        const options = ["--bundle", "--format=esm", "--loader:.wasm=file", "--outfile=bundled/page.js"];
        project.run(tool(project, "esbuild"), ["slim/imported.js", ...options]);
        await checkSlimPage(project, "bundled");
    },
};

const BUN: Case = {
    name: "Bun 1",
    packages: ["bun@1"],
    test(project) {
        assert.equal(project.run(tool(project, "bun"), ["run", "node.js"]).trim(), ANSWER);
        project.run(tool(project, "bun"), ["build", "node.js", "--target=node", "--outfile=bundled/node.mjs"]);
        assert.equal(project.run("node", ["bundled/node.mjs"]).trim(), ANSWER);
    },
};

const JEST: Case = {
    name: "Jest 30",
    packages: ["jest@30"],
    test(project) {
        project.run("node", ["--experimental-vm-modules", "node_modules/jest/bin/jest.js", "answer.test.js"]);
    },
};

function node(version: number): Case {
    return {
        name: `Node ${version}`,
        packages: [`node@${version}`, "@grpc/grpc-js@1.14", "@grpc/proto-loader@0.8"],
        test(project) {
            const program = project.path("node_modules/node/bin/node");
            assert.match(project.run(program, ["--version"]), new RegExp(`^v${version}\\.`, "u"));
            assert.equal(project.run(program, ["node.js"]).trim(), ANSWER);
            assert.equal(project.run(program, ["--no-warnings", "required.cjs"]).trim(), ANSWER);
            const script = 'import { connect } from "leasehold/locks"; await connect().close(); console.log("closed");';
            assert.equal(project.run(program, ["--input-type=module", "-e", script]).trim(), "closed");
        },
    };
}

function typescript(version: string): Case {
    return {
        name: `TypeScript ${version}`,
        packages: [`typescript@${version}`, "@types/node@20"],
        test(project) {
            for (const types of [["--types", "node"], ["--typeRoots", "none"]]) {
                const options = ["--strict", "--noEmit", "--skipLibCheck", "false", "--module", "nodenext", "--target", "es2022", "--lib", "es2022"];
                project.run(tool(project, "tsc"), [...options, ...types, "types.ts"]);
            }
        },
    };
}

const CASES: readonly Case[] = [
    ...[5, 6, 7, 8].map(vite),
    WEBPACK,
    ROLLUP,
    PARCEL,
    ESBUILD,
    BUN,
    JEST,
    ...[20, 22, 24].map(node),
    ...["5.4", "5.9", "7"].map(typescript),
];

/** Returns true if the program of a case works, and prints the reason if not. */
async function works({ name, packages, test }: Case): Promise<boolean> {
    let project: Project | undefined;
    try {
        project = new Project(packages);
        await test(project);
        console.log(`${name}: ok`);
        return true;
    } catch (error) {
        console.log(`${name}: FAILED\n${error instanceof Error ? error.stack : String(error)}`);
        return false;
    } finally {
        project?.remove();
    }
}

let passed = 0;
const wanted = CASES.filter(({ name }) => process.argv.slice(2).every((part) => name.includes(part)));
for (const found of wanted) passed += Number(await works(found));
await browser.close();
console.log(`counts: ${JSON.stringify({ programs: passed })}`);
if (passed < wanted.length || wanted.length === 0) process.exitCode = 1;

// The entries `slim`, which load a wasm file when the program says so.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, it, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";

import { canonicalForm, LeaseholdError } from "leasehold";
import * as slim from "leasehold/slim";
import * as slimSimulation from "leasehold/simulation/slim";

type Source = Parameters<typeof slim.init>[0];

const bytes = readFileSync(fileURLToPath(import.meta.resolve("leasehold/leasehold.wasm")));
const own = (file: string): string => new URL(`../../${file}`, import.meta.url).href;
let instances = 0;

/** Returns an engine that is not loaded, with functions as those of `leasehold/slim`. */
async function newEngine(): Promise<{ engine: typeof slim; init: typeof slim.init; initSync: typeof slim.initSync }> {
    const { WasmFile } = await import(own("js/wasm_file.js"));
    // A module with another query is another instance of it.
    const engine = await import(`${own("pkg/leasehold.js")}?${(instances += 1)}`);
    const file = new WasmFile("leasehold", engine);
    return { engine, init: (source) => file.load(source), initSync: (source) => file.loadSync(source) };
}

/** Serves these bytes for a test, and returns their URL. */
async function url(test: TestContext, status: number, type: string, content: Uint8Array | string): Promise<URL> {
    const server = createServer((_, response) => response.writeHead(status, { "content-type": type }).end(content));
    await once(server.listen(0, "127.0.0.1"), "listening");
    test.after(() => server.close());
    return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/leasehold.wasm`);
}

async function refusal(loading: Promise<void>): Promise<LeaseholdError> {
    const error: unknown = await loading.then(() => assert.fail("it was loaded"), (reason: unknown) => reason);
    assert.ok(error instanceof LeaseholdError, String(error));
    return error;
}

describe("init", () => {
    it("loads the file from bytes, a compiled module or a URL, whatever type the server names", async (test) => {
        const sources: Source[] = [
            bytes,
            Uint8Array.from(bytes).buffer,
            await WebAssembly.compile(bytes),
            await url(test, 200, "application/wasm", bytes),
            (await url(test, 200, "application/octet-stream", bytes)).href,
        ];
        for (const source of sources) {
            const { engine, init } = await newEngine();
            await Promise.all([init(source), init(source)]);
            await init(source);
            assert.equal(engine.canonicalForm(4, "Alice"), "alice");
        }
    });

    it("loads it within the call from bytes or a module", async () => {
        for (const source of [bytes, await WebAssembly.compile(bytes)]) {
            const { engine, initSync } = await newEngine();
            initSync(source);
            initSync(source);
            assert.equal(engine.canonicalForm(4, "Alice"), "alice");
        }
    });

    it("comes first: without it each call says so", async () => {
        const { engine } = await newEngine();
        const settings = { stale_after_micros: 1n, rows_per_page: 1 };
        for (const call of [() => engine.canonicalForm(4, "a"), () => engine.checkBatch([], []), () => new engine.Reconciliation(settings)]) {
            assert.throws(call, { name: "LeaseholdError", code: "NOT_LOADED", message: /await `init`/u });
        }
    });

    it("tells why a file cannot be loaded, and may be called again", async (test) => {
        const { engine, init } = await newEngine();
        const missing = await refusal(init(await url(test, 404, "text/plain", "no such file")));
        assert.match(missing.message, /`leasehold.wasm` cannot be loaded: `http:.*` answers with the status 404/u);
        const page = await refusal(init(await url(test, 200, "text/html", "<!doctype html>")));
        assert.match(page.message, /cannot be loaded: .*magic/u);
        const other = await refusal(init(readFileSync(fileURLToPath(import.meta.resolve("leasehold/simulation.wasm")))));
        // The least file: the magic number and the version.
        const empty = await refusal(init(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0)));
        for (const { message } of [other, empty]) assert.match(message, /cannot be loaded: it is not the file of this version/u);
        assert.deepEqual([missing, page, other, empty].map(({ code }) => code), ["NOT_LOADED", "NOT_LOADED", "NOT_LOADED", "NOT_LOADED"]);
        assert.throws(() => engine.canonicalForm(4, "Alice"), { code: "NOT_LOADED" });
        assert.ok(page.cause instanceof WebAssembly.CompileError);
        await init(bytes);
        assert.equal(engine.canonicalForm(4, "Alice"), "alice");
    });

    it("loads the file of a later call if an earlier one fails meanwhile", async () => {
        const { engine, init } = await newEngine();
        const [wrong, ...right] = await Promise.allSettled([init(Uint8Array.of(1)), init(bytes), init(bytes)]);
        assert.deepEqual([wrong.status, ...right.map(({ status }) => status)], ["rejected", "fulfilled", "fulfilled"]);
        assert.equal(engine.canonicalForm(4, "Alice"), "alice");
    });

    it("refuses what is no source", async () => {
        const { init, initSync } = await newEngine();
        for (const source of [undefined, null, 7, {}, []] as unknown as Uint8Array[]) {
            assert.equal((await refusal(init(source))).code, "INVALID_ARGUMENT");
            assert.throws(() => initSync(source), { name: "LeaseholdError", code: "INVALID_ARGUMENT" });
        }
    });
});

it("both entries have one engine, and the same functions beside `init`", async () => {
    assert.equal(slim.canonicalForm, canonicalForm);
    await slim.init(bytes);
    await slimSimulation.init(new URL(import.meta.resolve("leasehold/simulation.wasm")));
    assert.equal(slim.canonicalForm(4, "Alice"), "alice");
});

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { brotliCompressSync, gzipSync } from "node:zlib";

import * as leasehold from "leasehold";
import * as locks from "leasehold/locks";
import * as queues from "leasehold/queues";
import * as simulation from "leasehold/simulation";

const read = (path: string): Uint8Array<ArrayBuffer> => Uint8Array.from(readFileSync(new URL(`../../${path}`, import.meta.url)));

/** Returns the full names of wasm-bindgen's own helper functions, given their short names. */
const glue = (names: string): string[] => names.split(" ").map((name) => `__wbindgen_${name}`);

/**
 * The functions that the engine's wasm file imports: constructors, readers and type tests of
 * JavaScript values, and the getters of columns.
 */
const ENGINE_IMPORTS = [
    ..."Error Number String call done entries from get get_unchecked get_with_ref_key isArray isSafeInteger".split(" "),
    ..."iterator keys length new next prototypesetcall set value values".split(" "),
    ..."ArrayBuffer BigInt64Array Int32Array Map Uint8Array".split(" ").map((type) => `instanceof_${type}`),
    ..."bucket_type bucket_types claims held source_ids subject_ids subject_type subject_types updated_at".split(" "),
    ...glue("bigint_get_as_i64 boolean_get debug_string generic in init_externref_table is_bigint is_falsy is_function"),
    ...glue("is_null is_object is_string is_undefined jsval_eq jsval_loose_eq number_get rethrow string_get throw"),
];

/**
 * The functions that the simulation's wasm file imports: JSON, and the constructor of
 * `LeaseholdError`.
 */
const SIMULATION_IMPORTS = ["new", "parse", "stringify", ...glue("init_externref_table rethrow throw")];

/**
 * The package's wasm files. Each has limits of its size in bytes, raw and compressed with brotli,
 * and the list of the functions that it may import.
 */
const FILES = [
    { name: "leasehold", maxBytes: 400_000, maxBrotliBytes: 150_000, imports: ENGINE_IMPORTS },
    // The simulation's file contains the simulated world and the engine, without the Unicode
    // tables. Only a page that shows the protocol loads it.
    { name: "simulation", maxBytes: 640_000, maxBrotliBytes: 230_000, imports: SIMULATION_IMPORTS },
];

for (const { name, maxBytes, maxBrotliBytes, imports } of FILES) {
    describe(`${name}_bg.wasm`, () => {
        const wasm = read(`pkg/${name}_bg.wasm`);

        it(`has at most ${maxBytes / 1000} KB, and ${maxBrotliBytes / 1000} KB as brotli`, (context) => {
            const sizes = { raw: wasm.length, gzip: gzipSync(wasm, { level: 9 }).length, brotli: brotliCompressSync(wasm).length };
            context.diagnostic(`bytes: ${JSON.stringify(sizes)}`);
            assert.ok(sizes.raw <= maxBytes, `${sizes.raw} bytes`);
            assert.ok(sizes.brotli <= maxBrotliBytes, `${sizes.brotli} bytes as brotli`);
        });

        it("imports only the listed functions: no clock, no randomness, no I/O", async () => {
            const imported = WebAssembly.Module.imports(await WebAssembly.compile(wasm));
            const modules = new Set(imported.map(({ module, kind }) => `${kind} of ${module}`));
            assert.deepEqual([...modules], [`function of ./${name}_bg.js`]);
            // wasm-bindgen appends a hash of the types to each imported name, because one
            // JavaScript function may be imported with several types. Remove the hash.
            const names = imported.map(({ name }) => name.replace(/^__wbg_/u, "").replace(/_[0-9a-f]{16}$/u, ""));
            assert.deepEqual([...new Set(names)].sort(), [...imports].sort());
        });

        it("is referenced as `new URL(…, import.meta.url)`, which browsers and bundlers resolve", () => {
            const script = new TextDecoder().decode(read(`pkg/${name}.js`));
            assert.ok(script.includes(`new URL('${name}_bg.wasm', import.meta.url)`));
        });
    });
}

describe("the package", () => {
    const apis = [
        ["js/api.d.ts", leasehold],
        ["js/simulation/api.d.ts", simulation],
        ["js/locks/api.d.ts", locks],
        ["js/queues/api.d.ts", queues],
    ] as const;
    for (const [types, exported] of apis) {
        it(`exports exactly the values that ${types} declares`, () => {
            const values = new TextDecoder().decode(read(types)).replaceAll(/export type \{.*?\}/gsu, "");
            const declared = [...values.matchAll(/export \{(.*?)\}/gsu)].flatMap(([, names = ""]) => names.split(","));
            assert.deepEqual(Object.keys(exported).sort(), declared.map((name) => name.trim()).sort());
        });
    }

    it("has the wire contract of the server", () => {
        for (const service of ["locks/v1/lock", "queues/v1/queue", "sessions/v1/session"]) {
            const file = `leasehold/${service}_service.proto`;
            assert.deepEqual(read(`pkg/proto/${file}`), read(`../proto/proto/${file}`), `${file}: run \`cargo xtask web\``);
        }
    });
});

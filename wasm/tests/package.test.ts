import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { brotliCompressSync, gzipSync } from "node:zlib";

import * as leasehold from "leasehold";
import * as simulation from "leasehold/simulation";

const read = (path: string): Uint8Array<ArrayBuffer> => Uint8Array.from(readFileSync(new URL(`../../${path}`, import.meta.url)));

/** The wasm files, with the bytes that each may have, as it is and as brotli. */
const FILES = [
    { name: "leasehold", most: 400_000, mostAsBrotli: 150_000 },
    // It has all of the engine but Unicode's tables, and a world around it.
    { name: "simulation", most: 400_000, mostAsBrotli: 150_000 },
];

for (const { name, most, mostAsBrotli } of FILES) {
    describe(`${name}_bg.wasm`, () => {
        const wasm = read(`pkg/${name}_bg.wasm`);

        it(`is small: ${most / 1000} KB at most, ${mostAsBrotli / 1000} KB as brotli`, (context) => {
            const sizes = { raw: wasm.length, gzip: gzipSync(wasm, { level: 9 }).length, brotli: brotliCompressSync(wasm).length };
            context.diagnostic(`bytes: ${JSON.stringify(sizes)}`);
            assert.ok(sizes.raw <= most, `${sizes.raw} bytes`);
            assert.ok(sizes.brotli <= mostAsBrotli, `${sizes.brotli} bytes as brotli`);
        });

        it("imports nothing but wasm-bindgen's glue: no clock, no randomness, no I/O", async () => {
            const imports = WebAssembly.Module.imports(await WebAssembly.compile(wasm));
            const modules = new Set(imports.map(({ module, kind }) => `${kind} of ${module}`));
            assert.deepEqual([...modules], [`function of ./${name}_bg.js`]);
            const names = imports.map(({ name }) => name.replace(/^__wbg_/u, "").replace(/_[0-9a-f]{16}$/u, ""));
            assert.deepEqual(names.filter((name) => !ALLOWED.has(name)), []);
        });

        it("is found by browsers and bundlers beside its JavaScript", () => {
            const script = new TextDecoder().decode(read(`pkg/${name}.js`));
            assert.ok(script.includes(`new URL('${name}_bg.wasm', import.meta.url)`));
        });
    });
}

/** What makes, reads and tells apart JavaScript's values, and the members of columns. */
const ALLOWED = new Set([
    ..."Error Number String call done entries from get get_unchecked get_with_ref_key isArray isSafeInteger".split(" "),
    ..."iterator keys length new next parse prototypesetcall set stringify value values".split(" "),
    ..."ArrayBuffer BigInt64Array Int32Array Map Uint8Array".split(" ").map((type) => `instanceof_${type}`),
    ..."bigint falsy function null object string undefined".split(" ").map((type) => `__wbindgen_is_${type}`),
    ..."bigint_get_as_i64 boolean_get debug_string generic in init_externref_table jsval_eq jsval_loose_eq".split(" ")
        .map((name) => `__wbindgen_${name}`),
    ..."number_get rethrow string_get throw".split(" ").map((name) => `__wbindgen_${name}`),
    ..."bucket_type bucket_types claims held source_ids subject_ids subject_type subject_types updated_at".split(" "),
]);

describe("the package", () => {
    for (const [types, offered] of [["js/api.d.ts", leasehold], ["js/simulation/api.d.ts", simulation]] as const) {
        it(`offers what ${types} says`, () => {
            const values = new TextDecoder().decode(read(types)).replaceAll(/export type \{.*?\}/gsu, "");
            const declared = [...values.matchAll(/export \{(.*?)\}/gsu)].flatMap(([, names = ""]) => names.split(","));
            assert.deepEqual(Object.keys(offered).sort(), declared.map((name) => name.trim()).sort());
        });
    }
});

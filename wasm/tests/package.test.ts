import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { brotliCompressSync, gzipSync } from "node:zlib";

import * as leasehold from "leasehold";
import * as simulation from "leasehold/simulation";

const read = (path: string): Uint8Array<ArrayBuffer> => Uint8Array.from(readFileSync(new URL(`../../${path}`, import.meta.url)));

/** Wasm-bindgen's own glue. */
const glue = (names: string): string[] => names.split(" ").map((name) => `__wbindgen_${name}`);

/** What makes, reads and tells apart JavaScript's values, and the members of columns. */
const ENGINE_IMPORTS = [
    ..."Error Number String call done entries from get get_unchecked get_with_ref_key isArray isSafeInteger".split(" "),
    ..."iterator keys length new next prototypesetcall set value values".split(" "),
    ..."ArrayBuffer BigInt64Array Int32Array Map Uint8Array".split(" ").map((type) => `instanceof_${type}`),
    ..."bucket_type bucket_types claims held source_ids subject_ids subject_type subject_types updated_at".split(" "),
    ...glue("bigint_get_as_i64 boolean_get debug_string generic in init_externref_table is_bigint is_falsy is_function"),
    ...glue("is_null is_object is_string is_undefined jsval_eq jsval_loose_eq number_get rethrow string_get throw"),
];

/** JSON, and what throws an error. */
const SIMULATION_IMPORTS = ["new", "parse", "stringify", ...glue("init_externref_table rethrow throw")];

/** The wasm files, with the bytes that each may have, as it is and as brotli, and all that each imports. */
const FILES = [
    { name: "leasehold", most: 400_000, mostAsBrotli: 150_000, imports: ENGINE_IMPORTS },
    // It has all of the engine but Unicode's tables, and a world around it.
    { name: "simulation", most: 400_000, mostAsBrotli: 150_000, imports: SIMULATION_IMPORTS },
];

for (const { name, most, mostAsBrotli, imports } of FILES) {
    describe(`${name}_bg.wasm`, () => {
        const wasm = read(`pkg/${name}_bg.wasm`);

        it(`is small: ${most / 1000} KB at most, ${mostAsBrotli / 1000} KB as brotli`, (context) => {
            const sizes = { raw: wasm.length, gzip: gzipSync(wasm, { level: 9 }).length, brotli: brotliCompressSync(wasm).length };
            context.diagnostic(`bytes: ${JSON.stringify(sizes)}`);
            assert.ok(sizes.raw <= most, `${sizes.raw} bytes`);
            assert.ok(sizes.brotli <= mostAsBrotli, `${sizes.brotli} bytes as brotli`);
        });

        it("imports what it is known to, and nothing else: no clock, no randomness, no I/O", async () => {
            const imported = WebAssembly.Module.imports(await WebAssembly.compile(wasm));
            const modules = new Set(imported.map(({ module, kind }) => `${kind} of ${module}`));
            assert.deepEqual([...modules], [`function of ./${name}_bg.js`]);
            // The same name with other types is another import, told apart by a hash.
            const names = imported.map(({ name }) => name.replace(/^__wbg_/u, "").replace(/_[0-9a-f]{16}$/u, ""));
            assert.deepEqual([...new Set(names)].sort(), [...imports].sort());
        });

        it("is found by browsers and bundlers beside its JavaScript", () => {
            const script = new TextDecoder().decode(read(`pkg/${name}.js`));
            assert.ok(script.includes(`new URL('${name}_bg.wasm', import.meta.url)`));
        });
    });
}

describe("the package", () => {
    for (const [types, offered] of [["js/api.d.ts", leasehold], ["js/simulation/api.d.ts", simulation]] as const) {
        it(`offers what ${types} says`, () => {
            const values = new TextDecoder().decode(read(types)).replaceAll(/export type \{.*?\}/gsu, "");
            const declared = [...values.matchAll(/export \{(.*?)\}/gsu)].flatMap(([, names = ""]) => names.split(","));
            assert.deepEqual(Object.keys(offered).sort(), declared.map((name) => name.trim()).sort());
        });
    }
});

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { brotliCompressSync, gzipSync } from "node:zlib";

import * as leasehold from "leasehold";

const read = (path: string): Uint8Array<ArrayBuffer> => Uint8Array.from(readFileSync(new URL(`../../${path}`, import.meta.url)));
const wasm = read("pkg/leasehold_bg.wasm");

describe("the wasm file", () => {
    it("is small: 400 KB at most, 150 KB as brotli", (context) => {
        const sizes = { raw: wasm.length, gzip: gzipSync(wasm, { level: 9 }).length, brotli: brotliCompressSync(wasm).length };
        context.diagnostic(`bytes: ${JSON.stringify(sizes)}`);
        assert.ok(sizes.raw <= 400_000, `${sizes.raw} bytes`);
        assert.ok(sizes.brotli <= 150_000, `${sizes.brotli} bytes as brotli`);
    });

    it("imports nothing but wasm-bindgen's glue: no clock, no randomness, no I/O", async () => {
        const imports = WebAssembly.Module.imports(await WebAssembly.compile(wasm));
        assert.deepEqual([...new Set(imports.map(({ module, kind }) => `${kind} of ${module}`))], ["function of ./leasehold_bg.js"]);
        const names = imports.map(({ name }) => name.replace(/^__wbg_/u, "").replace(/_[0-9a-f]{16}$/u, ""));
        assert.deepEqual(names.filter((name) => !ALLOWED.has(name)), []);
    });
});

/** What makes, reads and tells apart JavaScript's values, and the members of columns. */
const ALLOWED = new Set([
    ..."Error Number String call done entries from get get_unchecked get_with_ref_key isArray isSafeInteger".split(" "),
    ..."iterator keys length new next prototypesetcall set value values".split(" "),
    ..."ArrayBuffer BigInt64Array Int32Array Map Uint8Array".split(" ").map((type) => `instanceof_${type}`),
    ..."bigint falsy function null object string undefined".split(" ").map((type) => `__wbindgen_is_${type}`),
    ..."bigint_get_as_i64 boolean_get debug_string generic in init_externref_table jsval_eq jsval_loose_eq".split(" ")
        .map((name) => `__wbindgen_${name}`),
    ..."number_get rethrow string_get throw".split(" ").map((name) => `__wbindgen_${name}`),
    ..."bucket_type bucket_types claims held source_ids subject_ids subject_type subject_types updated_at".split(" "),
]);

describe("the package", () => {
    it("offers what its types say", () => {
        const types = new TextDecoder().decode(read("js/api.d.ts")).replaceAll(/export type \{.*?\}/gsu, "");
        const declared = [...types.matchAll(/export \{(.*?)\}/gsu)].flatMap(([, names = ""]) => names.split(","));
        assert.deepEqual(Object.keys(leasehold).sort(), declared.map((name) => name.trim()).sort());
    });
});

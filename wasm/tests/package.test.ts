import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, gzipSync } from "node:zlib";

import { fromJSON, loadSync, type PackageDefinition } from "@grpc/proto-loader";
import * as leasehold from "leasehold";
import * as locks from "leasehold/locks";
import * as queues from "leasehold/queues";
import * as simulation from "leasehold/simulation";
import * as slimSimulation from "leasehold/simulation/slim";
import * as slim from "leasehold/slim";

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
        const wasm = Buffer.from(read(`pkg/${name}_bg.wasm`));

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

        it("is in the script of the entry that needs no other file", async () => {
            const { default: base64 } = await import(new URL(`../../pkg/${name}_inlined.js`, import.meta.url).href);
            assert.ok(wasm.equals(Buffer.from(base64, "base64")), "run `cargo xtask web`");
        });

        it("is a file of the package that a bundler finds", () => {
            assert.ok(wasm.equals(readFileSync(fileURLToPath(import.meta.resolve(`leasehold/${name}.wasm`)))));
        });
    });
}

/** The entries with the files that declare their values. */
const ENTRIES = [
    [leasehold, ["js/api.d.ts", "js/index.d.ts"]],
    [slim, ["js/api.d.ts", "js/index.d.ts", "js/slim.d.ts"]],
    [simulation, ["js/simulation/api.d.ts"]],
    [slimSimulation, ["js/simulation/api.d.ts", "js/simulation/slim.d.ts"]],
    [locks, ["js/locks/api.d.ts"]],
    [queues, ["js/queues/api.d.ts"]],
] as const;

/** Returns the names of the values that a file with types exports. */
function declaredIn(types: string): string[] {
    const values = new TextDecoder().decode(read(types)).replaceAll(/export type \{.*?\}/gsu, "");
    const lists = [...values.matchAll(/export \{(.*?)\}/gsu)].flatMap(([, names = ""]) => names.split(","));
    const functions = [...values.matchAll(/export function (\w+)/gu)].map(([, name = ""]) => name);
    return [...lists.map((name) => name.trim()), ...functions];
}

describe("the package", () => {
    for (const [exported, files] of ENTRIES) {
        it(`exports exactly the values that ${files.join(" and ")} declare`, () => {
            assert.deepEqual(Object.keys(exported).sort(), files.flatMap(declaredIn).sort());
        });
    }

    it("has the numbers of the wire contract", () => {
        const record = new TextDecoder().decode(read("../proto/proto/gitlab/cells/topology_service/claims/v1/record.proto"));
        const enumerations = { Bucket: leasehold.BucketType, Subject: leasehold.SubjectType, Source: leasehold.SourceType };
        for (const [message, members] of Object.entries(enumerations)) {
            const [, body = ""] = new RegExp(`^message ${message} \\{\n  enum Type \\{(.*?)^  \\}`, "msu").exec(record) ?? [];
            const listed = [...body.matchAll(/^    (?:RAILS_TABLE_)?(\w+) = (\d+);/gmu)].map(([, name, number]) => [name, Number(number)]);
            assert.deepEqual([["UNSPECIFIED", 0], ...Object.entries(members)], listed, "run `cargo xtask web`");
            assert.ok(Object.isFrozen(members));
        }
    });

    it("has the wire contract of the clients", async () => {
        const { default: description } = await import(new URL("../../pkg/contract.js", import.meta.url).href);
        const includeDirs = ["../proto/proto", "js/client"].map((path) => fileURLToPath(new URL(`../../${path}`, import.meta.url)));
        const files = ["sessions/v1/session", "locks/v1/lock", "queues/v1/queue"].map((path) => `leasehold/${path}_service.proto`);
        assert.deepEqual(shapes(fromJSON(description)), shapes(loadSync([...files, "status.proto"], { includeDirs })), "run `cargo xtask web`");
    });

    it("has the project's licence", () => {
        assert.deepEqual(read("LICENSE"), read("../LICENSE"));
    });
});

/** Returns the types and the paths of the rpcs of a contract, without its functions. */
function shapes(contract: PackageDefinition): unknown {
    return JSON.parse(JSON.stringify(contract));
}

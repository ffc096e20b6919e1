// The package's types in programs whose compiler has few types of the platform, and checks all that it reads.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, symlinkSync } from "node:fs";
import { after, describe, it } from "node:test";
import { fileURLToPath } from "node:url";

import ts from "typescript";

import { Project } from "./bundlers/project.js";

const own = (path: string): string => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const project = new Project();
after(() => project.remove());
symlinkSync(own("node_modules/@types"), project.path("node_modules/@types"));

/** The options of `tsc --strict` with its own default, by which it checks each file that it reads. */
const STRICT: ts.CompilerOptions = {
    strict: true,
    skipLibCheck: false,
    exactOptionalPropertyTypes: true,
    noEmit: true,
    target: ts.ScriptTarget.ES2022,
    types: [],
};
const NODE = { module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext };
const BUNDLER = { module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler };

const parsed = new Map<string, ts.SourceFile | undefined>();

/** Returns the errors of the compiler for files of the project. */
function errors(files: string[], options: ts.CompilerOptions, libraries: string[]): string[] {
    const all = { ...STRICT, ...options, lib: libraries.map((library) => `lib.${library}.d.ts`) };
    const host = ts.createCompilerHost(all);
    host.getCurrentDirectory = () => project.directory;
    const parse = host.getSourceFile;
    // Most files are the same for all programs of one kind of modules.
    host.getSourceFile = (file, ...rest) => {
        const key = `${options.module} ${file}`;
        if (!parsed.has(key)) parsed.set(key, parse(file, ...rest));
        return parsed.get(key);
    };
    const program = ts.createProgram({ rootNames: files.map((file) => project.path(file)), options: all, host });
    return ts.getPreEmitDiagnostics(program).map((found) => `${found.file?.fileName}: ${ts.flattenDiagnosticMessageText(found.messageText, "\n")}`);
}

describe("the types", () => {
    for (const edition of ["es2020", "es2021", "es2022", "es2023", "es2024"]) {
        for (const types of [[], ["node"]]) {
            it(`need no more than ${[edition, ...types].join(" and ")}, with and without DOM`, () => {
                for (const dom of [[], ["dom"]]) assert.deepEqual(errors(["types.ts"], { ...NODE, types }, [edition, ...dom]), []);
            });
        }
    }

    it("are found by the rules of bundlers, too", () => {
        assert.deepEqual(errors(["types.ts"], { ...BUNDLER }, ["es2022", "dom"]), []);
    });

    it("fit the documents' examples in a program for Node", () => {
        const examples = readdirSync(own("tests/examples"));
        for (const file of examples) project.write(file, readFileSync(own(`tests/examples/${file}`), "utf8").replace(/^import "\.\.\/support.*$/mu, ""));
        assert.ok(examples.length > 5, String(examples));
        assert.deepEqual(errors(examples, { ...NODE, types: ["node"] }, ["es2022"]), []);
    });

    it("give objects `[Symbol.dispose]` where the compiler has that symbol, and signals and URLs where it has those", () => {
        project.write("disposal.ts", `
            import { Verification } from "leasehold";
            import type { AcquireOptions, TlsFiles } from "leasehold/locks";
            export function use(settings: ConstructorParameters<typeof Verification>[0]): void {
                using run = new Verification(settings);
                run.report();
            }
            export const { signal }: AcquireOptions = { signal: new AbortController().signal };
            export const tls = (ca: URL): TlsFiles => ({ ca, certificate: ca, key: ca });
            // @ts-expect-error A signal is no text.
            export const wrong: AcquireOptions = { signal: "stop" };
        `);
        for (const [libraries, types] of [[["es2022", "esnext.disposable", "dom"], []], [["es2022"], ["node"]]] as const) {
            assert.deepEqual(errors(["disposal.ts"], { ...NODE, types: [...types] }, [...libraries]), []);
        }
    });
});

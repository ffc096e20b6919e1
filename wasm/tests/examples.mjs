// Makes a test of each example in the README, so that it is compiled and run like the others.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const root = new URL("../", import.meta.url);
const examples = [...readFileSync(new URL("README.md", root), "utf8").matchAll(/^```ts\n(.*?)^```/gms)];
if (examples.length === 0) throw new Error("the README has no example");

// What came of files that are gone would still be run.
for (const directory of ["build/", "tests/examples/"]) rmSync(new URL(directory, root), { recursive: true, force: true });
mkdirSync(new URL("tests/examples/", root));
for (const [at, [, text]] of examples.entries()) {
    writeFileSync(new URL(`tests/examples/example_${at + 1}.test.ts`, root), text);
}

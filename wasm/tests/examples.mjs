// Writes each TypeScript example of the README into a test file of its own, so that `npm test`
// compiles and runs it.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const root = new URL("../", import.meta.url);
const examples = [...readFileSync(new URL("README.md", root), "utf8").matchAll(/^```ts\n(.*?)^```/gms)];
if (examples.length === 0) throw new Error("README.md has no example in a `ts` block: the pattern above no longer fits");

// The test runner runs every compiled file, so the output of examples and tests that no longer
// exist must go.
for (const directory of ["build/", "tests/examples/"]) rmSync(new URL(directory, root), { recursive: true, force: true });
mkdirSync(new URL("tests/examples/", root));
for (const [index, [, text]] of examples.entries()) {
    writeFileSync(new URL(`tests/examples/example_${index + 1}.test.ts`, root), text);
}

// Writes each TypeScript example of the package's README and of the JavaScript guide into a test
// file, so that `npm test` compiles and runs it. An example with locks or queues finds its server
// in the variable `LEASEHOLD_SERVER`.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const root = new URL("../", import.meta.url);
const examples = ["README.md", "../docs/src/guides/javascript.md"].flatMap((document) => {
    const found = [...readFileSync(new URL(document, root), "utf8").matchAll(/^```ts\n(.*?)^```/gms)];
    if (found.length === 0) throw new Error(`${document} has no example in a \`ts\` block: the pattern above no longer fits`);
    return found;
});

// Remove the output of examples and tests that no longer exist: the test runner runs every compiled
// file.
for (const directory of ["build/", "tests/examples/"]) rmSync(new URL(directory, root), { recursive: true, force: true });
mkdirSync(new URL("tests/examples/", root));
for (const [index, [, text]] of examples.entries()) {
    // The server starts before the example: modules run in the order of their imports.
    const server = /"leasehold\/(locks|queues)"/u.test(text) ? 'import "../support/example_server.js";\n' : "";
    writeFileSync(new URL(`tests/examples/example_${index + 1}.test.ts`, root), server + text);
}

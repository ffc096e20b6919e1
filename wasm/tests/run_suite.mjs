// Runs a Rust test suite that was compiled to WebAssembly: `node run_suite.mjs FILE`.
//
// The module imports no functions, so its tests cannot print. A failed test ends in a trap. Its
// panic message is then found in the module's memory, because libtest captures the output of tests
// there.
import { readFileSync } from "node:fs";

const [, , file] = process.argv;
const module = await WebAssembly.compile(readFileSync(file));
const imports = WebAssembly.Module.imports(module);
if (imports.length > 0) {
    throw new Error(`the suite imports ${JSON.stringify(imports)}: remove the use of clock, randomness or I/O`);
}
const { exports } = await WebAssembly.instantiate(module);

try {
    const status = exports.main(0, 0);
    if (status !== 0) throw new Error(`the suite ended with status ${status}`);
} catch (error) {
    const memory = Buffer.from(exports.memory.buffer).toString("latin1");
    const panics = [...memory.matchAll(/panicked at [\w./-]+:\d+:\d+:\n[^\0]{0,2000}/gu)].map(([text]) => text);
    // A growing buffer leaves fragments of one message in memory. The longest match is the whole
    // message.
    panics.sort((left, right) => right.length - left.length);
    console.error(panics[0] === undefined ? error.stack : Buffer.from(panics[0], "latin1").toString());
    process.exitCode = 1;
}

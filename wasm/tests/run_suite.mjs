// Runs a suite that was compiled to WebAssembly. It has no output there, and a test that fails traps: what it had to say is
// still in its memory, where the harness has caught it.
import { readFileSync } from "node:fs";

const [, , file] = process.argv;
const module = await WebAssembly.compile(readFileSync(file));
const imports = WebAssembly.Module.imports(module);
if (imports.length > 0) {
    throw new Error(`it imports ${JSON.stringify(imports)}: there is no clock, no randomness and no I/O to be had`);
}
const { exports } = await WebAssembly.instantiate(module);

try {
    const status = exports.main(0, 0);
    if (status !== 0) throw new Error(`it ended with ${status}`);
} catch (error) {
    const memory = Buffer.from(exports.memory.buffer).toString("latin1");
    const panics = [...memory.matchAll(/panicked at [\w./-]+:\d+:\d+:\n[^\0]{0,2000}/gu)].map(([text]) => text);
    // There are pieces of it as well.
    panics.sort((one, other) => other.length - one.length);
    console.error(panics[0] === undefined ? error.stack : Buffer.from(panics[0], "latin1").toString());
    process.exitCode = 1;
}

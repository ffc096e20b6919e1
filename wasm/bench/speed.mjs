// How many events a second the simulation plays through the wasm file, as a page plays them: each is checked, put into
// words and kept. The line that it prints is one JSON object, for `cargo xtask bench`.
import { readFileSync } from "node:fs";

import { Simulation } from "../js/simulation/node.js";

const EVENTS = 10_000; // as many as a long trace has
const WORLDS = Number(process.argv[2] ?? 100);

const { settings } = JSON.parse(readFileSync(new URL("../../simulation/tests/golden.json", import.meta.url), "utf8"));
const started = performance.now();
let events = 0;
for (let seed = 0; seed < WORLDS; seed += 1) {
    const run = new Simulation({ ...settings, seed });
    events += run.play(EVENTS);
    run.free();
}
if (events !== WORLDS * EVENTS) throw new Error(`${events} events: a world broke, or came to its end`);
console.log(JSON.stringify({ events_per_second: Math.round((events / (performance.now() - started)) * 1000) }));

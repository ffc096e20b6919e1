// Measures how many events per second the simulation plays in the wasm file. Like the page, it
// checks each event, describes it in words and keeps it. Prints one JSON object for `cargo xtask
// bench`.
import { readFileSync } from "node:fs";

import { Simulation } from "../js/simulation/index.js";

const EVENTS = 10_000; // the number of events in each run
const WORLDS = Number(process.argv[2] ?? 100);

const { settings } = JSON.parse(readFileSync(new URL("../../simulation/tests/golden.json", import.meta.url), "utf8"));
const started = performance.now();
let events = 0;
for (let seed = 0; seed < WORLDS; seed += 1) {
    const run = new Simulation({ ...settings, seed });
    events += run.play(EVENTS);
    run.free();
}
if (events !== WORLDS * EVENTS) {
    throw new Error(`${events} of ${WORLDS * EVENTS} events were played: a world violated an invariant or could not go on`);
}
console.log(JSON.stringify({ events_per_second: Math.round((events / (performance.now() - started)) * 1000) }));

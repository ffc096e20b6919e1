// Takes the place of `leasehold/simulation` in the built page (`vite.config.ts`). The page's policy allows
// a fetch, and a wasm file of its own is smaller than a script that contains it.
import wasmUrl from "leasehold/simulation.wasm?url";
import { init } from "leasehold/simulation/slim";

// Modules of the page call the simulation as soon as they are imported, so they wait for this one.
await init(wasmUrl);

export * from "leasehold/simulation/slim";

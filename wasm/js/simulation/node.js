// Entry of `leasehold/simulation` for Node: reads the wasm file from disk, because Node 18 cannot
// `fetch` a `file:` URL.
import { readFileSync } from "node:fs";

import { initSync } from "../../pkg/simulation.js";

initSync({ module: readFileSync(new URL("../../pkg/simulation_bg.wasm", import.meta.url)) });

export * from "./api.js";

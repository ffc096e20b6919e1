// Entry of the package for Node: reads the wasm file from disk, because Node 18 cannot `fetch` a
// `file:` URL.
import { readFileSync } from "node:fs";

import { initSync } from "../pkg/leasehold.js";

initSync({ module: readFileSync(new URL("../pkg/leasehold_bg.wasm", import.meta.url)) });

export * from "./api.js";

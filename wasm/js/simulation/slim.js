// Entry `leasehold/simulation/slim`, without the wasm file. `slim.d.ts` declares the types.
import { file } from "./file.js";

export const init = (source) => file.load(source);
export const initSync = (source) => file.loadSync(source);

export * from "./api.js";

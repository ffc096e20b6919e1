// Entry of `leasehold/simulation` for browsers: fetches the wasm file. Bundlers find that file by
// the pattern `new URL("…", import.meta.url)`, which wasm-bindgen writes into `pkg/simulation.js`.
import init from "../../pkg/simulation.js";

// Wait for the wasm file before this module's imports are usable, because every export calls into
// it.
await init();

export * from "./api.js";

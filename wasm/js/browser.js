// Entry of the package for browsers: fetches the wasm file. Bundlers find that file by the pattern
// `new URL("…", import.meta.url)`, which wasm-bindgen writes into `pkg/leasehold.js`.
import init from "../pkg/leasehold.js";

// Wait for the wasm file before this module's imports are usable, because every export calls into
// it.
await init();

export * from "./api.js";

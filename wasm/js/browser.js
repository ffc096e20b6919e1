// Entry of the package for browsers: fetches the wasm file. Bundlers find that file by the pattern
// `new URL("…", import.meta.url)`, which wasm-bindgen writes into `pkg/leasehold.js`.
import init from "../pkg/leasehold.js";

// Every export calls into the wasm file, so modules that import this one must wait until the file
// is loaded.
await init();

export * from "./api.js";

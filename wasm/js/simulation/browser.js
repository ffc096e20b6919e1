// Entry for browsers: fetches the wasm file. Bundlers find the file by the pattern `new URL("…",
// import.meta.url)`, which wasm-bindgen writes into `pkg/simulation.js`.
import init from "../../pkg/simulation.js";

// Every export calls into the wasm file, so importers must wait until it is there.
await init();

export * from "./api.js";

// Browsers fetch the wasm file; bundlers find it by its URL, which stands in the module that is imported here.
import init from "../../pkg/simulation.js";

await init();

export * from "./api.js";

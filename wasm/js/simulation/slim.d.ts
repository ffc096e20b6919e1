import type { WasmBytes, WasmModule, WebAddress } from "../globals.js";

export * from "./api.js";

/**
 * Loads the wasm file `leasehold/simulation.wasm`, from its bytes, its URL or a compiled module.
 * Every other export throws `NOT_LOADED` before. A file that is loaded already stays.
 *
 * Throws `NOT_LOADED` if the file cannot be loaded, with the reason as `cause`.
 */
export function init(source: WasmBytes | WebAddress | string | WasmModule): Promise<void>;

/**
 * Loads the file within this call. Browsers compile such a file on the main thread too; Chrome does
 * since version 115.
 */
export function initSync(source: WasmBytes | WasmModule): void;

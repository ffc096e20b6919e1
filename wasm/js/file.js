// The engine's wasm file, which the entries `leasehold` and `leasehold/slim` load. A program may import both.
import * as bindings from "../pkg/leasehold.js";
import { WasmFile } from "./wasm_file.js";

export const file = new WasmFile("leasehold", bindings);

// The simulation's wasm file, which the entries `leasehold/simulation` and `leasehold/simulation/slim` load.
import * as bindings from "../../pkg/simulation.js";
import { WasmFile } from "../wasm_file.js";

export const file = new WasmFile("simulation", bindings);

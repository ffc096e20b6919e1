// Entry `leasehold/simulation`. It contains the wasm file, as the entry `leasehold` does.
import base64 from "../../pkg/simulation_inlined.js";
import { decodeBase64 } from "../base64.js";
import { file } from "./file.js";

file.loadSync(decodeBase64(base64));

export * from "./api.js";

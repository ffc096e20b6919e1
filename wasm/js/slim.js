// Entry `leasehold/slim`, without the wasm file: the program says where it is. `slim.d.ts` declares the types.
import { file } from "./file.js";

export const init = (source) => file.load(source);
export const initSync = (source) => file.loadSync(source);

export { BucketType, SourceType, SubjectType } from "../pkg/enumerations.js";
export * from "./api.js";

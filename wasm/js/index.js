// Entry `leasehold`. It contains the wasm file and compiles it when it is imported, without an `await`: so
// it works in Node, in browsers, in workers and through every bundler, and none needs a setting for it.
import base64 from "../pkg/leasehold_inlined.js";
import { decodeBase64 } from "./base64.js";
import { file } from "./file.js";

file.loadSync(decodeBase64(base64));

export { BucketType, SourceType, SubjectType } from "../pkg/enumerations.js";
export * from "./api.js";

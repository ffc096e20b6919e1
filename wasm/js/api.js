// The exports of the npm package `leasehold`. They are the same in Node and in browsers.
import * as engine from "../pkg/leasehold.js";
import { guardClass, guardFunction } from "./guard.js";
import * as signatures from "./signatures.js";

export const canonicalForm = /* @__PURE__ */ guardFunction("canonicalForm", engine.canonicalForm, signatures.canonicalForm);
export const checkBatch = /* @__PURE__ */ guardFunction("checkBatch", engine.checkBatch, signatures.checkBatch);
export const encodeSourceId = /* @__PURE__ */ guardFunction("encodeSourceId", engine.encodeSourceId, signatures.encodeSourceId);
export const Reconciliation = /* @__PURE__ */ guardClass("Reconciliation", engine.Reconciliation, signatures.Reconciliation);
export const Verification = /* @__PURE__ */ guardClass("Verification", engine.Verification, signatures.Verification);

export { LeaseholdError } from "./error.js";

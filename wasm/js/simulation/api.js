// The exports of the npm package `leasehold/simulation`. They are the same in Node and in browsers.
import * as simulation from "../../pkg/simulation.js";
import { guardClass, guardFunction } from "../guard.js";
import * as signatures from "./signatures.js";

export const Explorer = /* @__PURE__ */ guardClass("Explorer", simulation.Explorer, signatures.Explorer);
export const rules = /* @__PURE__ */ guardFunction("rules", simulation.rules, {});
export const ruleWorld = /* @__PURE__ */ guardFunction("ruleWorld", simulation.ruleWorld, signatures.ruleWorld);
export const scenarios = /* @__PURE__ */ guardFunction("scenarios", simulation.scenarios, {});
export const Simulation = /* @__PURE__ */ guardClass("Simulation", simulation.Simulation, signatures.Simulation);
export const transitionTables = /* @__PURE__ */ guardFunction("transitionTables", simulation.transitionTables, {});

export { LeaseholdError } from "../error.js";

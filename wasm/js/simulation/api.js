// The exports of the package `leasehold/simulation`, the same in Node and in browsers.
export { Explorer, rules, ruleWorld, scenarios, Simulation, transitionTables } from "../../pkg/simulation.js";
export { LeaseholdError } from "../error.js";

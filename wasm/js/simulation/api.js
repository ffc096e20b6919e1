// The exports of the npm package `leasehold/simulation`. They are the same in Node and in browsers.
export { Explorer, rules, ruleWorld, scenarios, Simulation, transitionTables } from "../../pkg/simulation.js";
export { LeaseholdError } from "../error.js";

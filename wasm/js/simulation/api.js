// What the simulation offers, wherever it runs.
export { Explorer, rules, ruleWorld, scenarios, Simulation, transitionTables } from "../../pkg/simulation.js";
export { LeaseholdError } from "../error.js";

// The scenarios of the simulation.
import { scenarios } from "leasehold/simulation";

import type { Scenario } from "./protocol";

export const SCENARIOS: readonly Scenario[] = scenarios();

/** The id of the scenario that the page opens without a link. */
export const FIRST_SCENARIO_ID = "happy-path";

/** Returns the scenario with an id, or `undefined` if the id is unknown. */
export function scenarioById(id: string): Scenario | undefined {
    return SCENARIOS.find((scenario) => scenario.id === id);
}

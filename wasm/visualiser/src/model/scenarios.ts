// Finds the recorded scenarios of the simulation by their ids.
import { scenarios } from "leasehold/simulation";

import type { Scenario } from "./protocol";

export const SCENARIOS: readonly Scenario[] = scenarios();

/** The id of the scenario that the page shows if its address contains no link. */
export const FIRST_SCENARIO_ID = "happy-path";

/** Returns the scenario with this id, or `undefined` if there is none. */
export function scenarioById(id: string): Scenario | undefined {
    return SCENARIOS.find((scenario) => scenario.id === id);
}

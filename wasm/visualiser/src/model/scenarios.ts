// The schedules that are worth watching.
import { scenarios } from "leasehold/simulation";

import type { Scenario } from "./protocol";

export const SCENARIOS: readonly Scenario[] = scenarios();

/** What is shown where nothing else is asked for. */
export const FIRST = "happy-path";

/** A scenario by the name that links have for it. */
export function scenarioOf(id: string): Scenario | undefined {
    return SCENARIOS.find((one) => one.id === id);
}

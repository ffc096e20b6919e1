import { signal } from "@preact/signals";

import type { Session } from "../session/session";

/** The parts of the page. A phone shows one of them at a time. */
export type Pane = "run" | "state" | "choose";
export const pane = signal<Pane>("run");

/** The tabs of the choices. */
export type Tab = "scenarios" | "free" | "rules";
export const tab = signal<Tab>("scenarios");

/**
 * Selects the tab on which the open run was chosen, so that the opener of a link sees the rules or
 * the search.
 */
export function selectTabForRun(session: Session): void {
    if (session.rulesOff.peek().length > 0 || session.search.result.peek()) tab.value = "rules";
    else if (session.origin.peek().kind === "free") tab.value = "free";
}

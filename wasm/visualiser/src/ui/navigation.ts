import { signal } from "@preact/signals";

import type { Session } from "../session/session";

/** The panes of the page. A phone shows one of them at a time. */
export type Pane = "run" | "state" | "choose";
export const pane = signal<Pane>("run");

/** The tabs of the pane in which a person chooses a run. */
export type Tab = "scenarios" | "free" | "rules";
export const tab = signal<Tab>("scenarios");

/**
 * Selects the tab on which the open run can be chosen. The person who opens a link then sees the
 * rules or the search that belong to it.
 */
export function selectTabForRun(session: Session): void {
    if (session.rulesOff.peek().length > 0 || session.search.result.peek()) tab.value = "rules";
    else if (session.origin.peek().kind === "free") tab.value = "free";
}

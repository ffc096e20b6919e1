import { signal } from "@preact/signals";

import type { Session } from "../session/session";

/** On a phone one of these is in sight at a time. */
export type Pane = "run" | "state" | "choose";
export const pane = signal<Pane>("run");

/** What the choices show. */
export type Tab = "scenarios" | "free" | "rules";
export const tab = signal<Tab>("scenarios");

/** Shows the choices that a run was made by: whoever opens a link sees which rule is off, and what was searched. */
export function showTab(session: Session): void {
    if (session.rulesOff.peek().length > 0 || session.search.searched.peek()) tab.value = "rules";
    else if (session.origin.peek().kind === "free") tab.value = "free";
}

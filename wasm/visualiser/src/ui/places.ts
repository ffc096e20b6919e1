import { signal } from "@preact/signals";

/** On a phone one of these is in sight at a time. */
export type Pane = "run" | "state" | "choose";
export const pane = signal<Pane>("run");

/** What the choices show. */
export type Tab = "scenarios" | "free" | "rules";
export const tab = signal<Tab>("scenarios");

// The worlds that a person can describe in the form of free play: their kinds, the defaults, and the
// bounds of each number.
import { rules, Simulation } from "leasehold/simulation";

import type { LockSettings, Mode, Rule, Settings } from "./protocol";

/** The kind of a world: cells that claim names, or clients that work under locks. */
export type WorldKind = "claims" | "locks";

/** The contents of the form. They keep the settings of both kinds, of which a world has one. */
export interface WorldForm {
    kind: WorldKind;
    settings: Settings;
    locks: LockSettings;
}

/** A number field of the form: the setting, its label, and its bounds. */
export interface NumberField<Name> {
    name: Name;
    label: string;
    min: number;
    max: number;
}

export const DEFAULTS: Settings = new Simulation().settings();

/** The locks of a new world. With these terms a session expires at its seventh silent tick. */
const DEFAULT_LOCKS: LockSettings = { count: 1, duration_seconds: 4, grace_seconds: 2, tick_millis: 1000 };

export const CELLS_FIELD: NumberField<"cells"> = { name: "cells", label: "cells", min: 1, max: 8 };

export const CLAIM_FIELDS: NumberField<"workers" | "reconcilers" | "names">[] = [
    { name: "workers", label: "workers in a cell", min: 1, max: 8 },
    { name: "reconcilers", label: "reconcilers in a cell", min: 0, max: 4 },
    { name: "names", label: "names to claim", min: 1, max: 32 },
];

export const LOCK_FIELDS: NumberField<keyof LockSettings>[] = [
    { name: "count", label: "locks", min: 1, max: 4 },
    { name: "duration_seconds", label: "duration, seconds", min: 1, max: 3600 },
    { name: "grace_seconds", label: "grace, seconds", min: 1, max: 3600 },
    { name: "tick_millis", label: "tick, milliseconds", min: 100, max: 10_000 },
];

export const MODES: [string, string, Mode[]][] = [
    ["before", "immediately before COMMIT", ["before_commit"]],
    ["first", "before the transaction", ["lease_first"]],
    ["both", "cells alternate between both", ["before_commit", "lease_first"]],
];

const RULES = rules();

/** The rules that concern sessions and locks; all others concern claims and leases. */
const LOCK_RULES: readonly Rule[] = ["observed_silence", "grace", "whole_duration", "fence_check"];

/** Returns the rules that matter in a world of this kind, in the order of the simulation. */
export function rulesOf(kind: WorldKind) {
    return RULES.filter(({ rule }) => LOCK_RULES.includes(rule) === (kind === "locks"));
}

/** Returns the kind of the world that has these settings. */
export function kindOf(settings: Settings | undefined): WorldKind {
    return settings?.locks ? "locks" : "claims";
}

/** Returns the form that describes the world with these settings. */
export function formOf(settings: Settings): WorldForm {
    const { locks, ...others } = settings;
    return { kind: kindOf(settings), settings: locks ? { ...DEFAULTS, seed: others.seed, cells: others.cells } : others, locks: locks ?? DEFAULT_LOCKS };
}

/** Returns the settings of the world that a form describes. Rules of the other kind stay on. */
export function settingsOf({ kind, settings, locks }: WorldForm, rulesOff: readonly Rule[]): Settings {
    const matters = rulesOf(kind).map(({ rule }) => rule);
    const rules_off = rulesOff.filter((rule) => matters.includes(rule));
    return kind === "claims" ? { ...settings, rules_off } : { ...settings, rules_off, workers: 1, reconcilers: 0, names: 1, locks };
}

/** Returns the number of ticks without a renewal after which a session with these terms expires. */
export function ticksToExpire({ duration_seconds, grace_seconds, tick_millis }: LockSettings): number {
    // The first tick after a renewal does not count, since it may come at once.
    return Math.ceil(((duration_seconds + grace_seconds) * 1000) / tick_millis) + 1;
}

// The worlds that a person can describe in the form of free play: their kinds, the defaults, and the
// bounds of each number.
import { rules, Simulation } from "leasehold/simulation";

import type { LockSettings, Mode, Rule, Settings } from "./protocol";

/** The kind of a world: cells that claim names, clients that work under locks, or on a queue. */
export type WorldKind = "claims" | "locks" | "queues";

/** The contents of the form. They keep the settings of all kinds, of which a world has one. */
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

/** The number of lanes of a new world with a queue. */
const DEFAULT_LANES = 2;

export const CELLS_FIELD: NumberField<"cells"> = { name: "cells", label: "cells", min: 1, max: 8 };

export const CLAIM_FIELDS: NumberField<"workers" | "reconcilers" | "names">[] = [
    { name: "workers", label: "workers in a cell", min: 1, max: 8 },
    { name: "reconcilers", label: "reconcilers in a cell", min: 0, max: 4 },
    { name: "names", label: "names to claim", min: 1, max: 32 },
];

export const LANES_FIELD: NumberField<"lanes"> = { name: "lanes", label: "sheets", min: 1, max: 3 };

export const LOCK_FIELDS: NumberField<Exclude<keyof LockSettings, "lanes">>[] = [
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

/** The rules that concern queues alone. The sessions of workers have the rules of locks, too. */
const QUEUE_RULES: readonly Rule[] = ["one_worker", "shared_lane", "early_count", "settle_fence", "settle_memory", "request_ids"];

function groupOf(rule: Rule): WorldKind {
    if (QUEUE_RULES.includes(rule)) return "queues";
    return LOCK_RULES.includes(rule) ? "locks" : "claims";
}

/** Returns the rules of a kind of world, in the order of the simulation. */
export function rulesOf(kind: WorldKind) {
    return RULES.filter(({ rule }) => groupOf(rule) === kind);
}

/** Returns the groups of rules that matter in a world of this kind: a worker of a queue has a session. */
export function groupsOf(kind: WorldKind): WorldKind[] {
    return kind === "queues" ? ["queues", "locks"] : [kind];
}

/** Returns the kind of the world that has these settings. */
export function kindOf(settings: Settings | undefined): WorldKind {
    if (settings?.locks === undefined) return "claims";
    return settings.locks.lanes ? "queues" : "locks";
}

/** Returns the form that describes the world with these settings. */
export function formOf(settings: Settings): WorldForm {
    const { locks, ...others } = settings;
    return { kind: kindOf(settings), settings: locks ? { ...DEFAULTS, seed: others.seed, cells: others.cells } : others, locks: formLocks(locks) };
}

/** Returns the locks of the form: they keep a number of locks and of lanes, of which a world has one. */
function formLocks(locks: LockSettings = DEFAULT_LOCKS): LockSettings {
    return { ...locks, count: locks.count || DEFAULT_LOCKS.count, lanes: locks.lanes ?? DEFAULT_LANES };
}

/** Returns the locks of a world of this kind. */
function worldLocks(kind: WorldKind, { count, lanes = DEFAULT_LANES, ...terms }: LockSettings): LockSettings {
    return kind === "queues" ? { count: 0, lanes, ...terms } : { count, ...terms };
}

/** Returns the settings of the world that a form describes. Rules of the other kind stay on. */
export function settingsOf({ kind, settings, locks }: WorldForm, rulesOff: readonly Rule[]): Settings {
    const matters = groupsOf(kind).flatMap(rulesOf).map(({ rule }) => rule);
    const rules_off = rulesOff.filter((rule) => matters.includes(rule));
    return kind === "claims" ? { ...settings, rules_off } : { ...settings, rules_off, workers: 1, reconcilers: 0, names: 1, locks: worldLocks(kind, locks) };
}

/** Returns the number of ticks without a renewal after which a session with these terms expires. */
export function ticksToExpire({ duration_seconds, grace_seconds, tick_millis }: LockSettings): number {
    // The first tick after a renewal does not count, since it may come at once.
    return Math.ceil(((duration_seconds + grace_seconds) * 1000) / tick_millis) + 1;
}

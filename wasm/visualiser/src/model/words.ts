// Words for people.
import { processOf } from "./happening";
import type { LaneKind, PlacedLane } from "./lanes";
import type { Change, Phase, Process, Rates, Rule, Told } from "./protocol";

/** A span of time, as short as it can be said. */
export function duration(micros: number): string {
    const sign = micros < 0 ? "−" : "";
    const size = Math.abs(micros);
    if (size < 1000) return `${sign}${size} µs`;
    if (size < 1_000_000) return `${sign}${round(size / 1000)} ms`;
    const seconds = size / 1_000_000;
    if (seconds < 60) return `${sign}${round(seconds)} s`;
    const parts: [number, string][] = [
        [Math.floor(seconds / 86_400), "d"],
        [Math.floor(seconds / 3600) % 24, "h"],
        [Math.floor(seconds / 60) % 60, "min"],
        [Math.floor(seconds) % 60, "s"],
    ];
    const said = parts.filter(([count]) => count > 0).slice(0, 2);
    return sign + said.map(([count, unit]) => `${count} ${unit}`).join(" ");
}

function round(value: number): string {
    return String(Number(value.toFixed(value < 10 ? 1 : 0)));
}

/** The whole number that a person has typed; undefined where it is none within the bounds. */
export function wholeNumber(text: string, min: number, max: number): number | undefined {
    const number = Number(text);
    return text.trim() !== "" && Number.isSafeInteger(number) && number >= min && number <= max ? number : undefined;
}

/** A process, within its cell. */
export function processName(process: Process): string {
    const { kind, number } = processOf(process);
    return kind === "verifier" ? "verifier" : `${kind} ${number}`;
}

const LANE_NAMES: Record<LaneKind, string> = {
    user: "user",
    worker: "worker",
    reconciler: "reconciler",
    verifier: "verifier",
    database: "database",
    service: "service",
};

/** What a lane is called. */
export function laneName(lane: PlacedLane): string {
    if (lane.kind === "service") return "the service";
    const name = LANE_NAMES[lane.kind];
    const isNumbered = lane.kind === "worker" || lane.kind === "reconciler";
    return `cell ${lane.cell}'s ${name}${isNumbered ? ` ${lane.number}` : ""}`;
}

/** What each participant is there for. */
export const PARTS: Record<LaneKind, string> = {
    user: "People who create, rename and delete things in this cell.",
    worker: "An application process: it saves for one user at a time, and may die between any two steps.",
    reconciler: "Finds leases that nobody finished, and settles them as the cell's own database says.",
    verifier: "Compares the cell's rows with its claims, and corrects what differs.",
    database: "The cell's own database. Its COMMIT decides whether a save happened.",
    service: "Leasehold: knows for every name which cell has claimed it.",
};

const PHASES: Record<Phase, string> = {
    validate: "looks whether the change is valid",
    open: "opens a local transaction",
    write: "writes its rows",
    begin: "begins a lease",
    await_begin: "waits to hear whether the lease is begun",
    write_lease: "writes the lease's row",
    commit: "sends COMMIT to its database",
    await_database: "waits for its database",
    commit_lease: "commits the lease",
    await_commit: "waits to hear whether the lease is committed",
    delete_row: "deletes the lease's row",
    abort: "rolls its local transaction back",
    find_lease: "asks which lease its lost call began",
    await_found: "waits to hear which lease it was",
    roll_back_lease: "rolls the lease back",
    await_rollback: "waits to hear whether the lease is rolled back",
};

/** What a worker does next. */
export function phaseInWords(phase: Phase): string {
    return PHASES[phase];
}

/** What a user was told. */
export function toldInWords(told: Told): string {
    if (typeof told === "object") return `refused: ${told.refused.toLowerCase().replaceAll("_", " ")}`;
    const words: Record<Exclude<Told, object>, string> = {
        saved: "saved",
        invalid: "not valid",
        conflict: "the database refused the rows",
        too_late: "too late, try again",
        unavailable: "service did not answer, try again",
        unknown: "unknown: connection lost",
    };
    return words[told];
}

/** What a user wants to be saved. */
export function changeInWords(change: Change, names: readonly string[]): string {
    const name = (number: number) => names[number] ?? `name ${number}`;
    if (change === "invalid") return "save something that is not valid";
    if ("create" in change) return `create ${name(change.create)}`;
    if ("create_two" in change) return `create ${change.create_two.map(name).join(" and ")}`;
    if ("rename" in change) return `rename row ${change.rename.row} to ${name(change.rename.name)}`;
    if ("delete" in change) return `delete row ${change.delete}`;
    if ("swap" in change) return `let rows ${change.swap.join(" and ")} trade names`;
    return `delete row ${change.transfer.from}, and give its name to row ${change.transfer.to}`;
}

/** What the engine's states are called on the page. */
export function stateName(state: string): string {
    return state.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
}

/** The rules' names. */
export const RULE_NAMES: Record<Rule, string> = {
    lease_exclusivity: "Leases exclude each other",
    ownership: "Cells touch only what is theirs",
    settled_lease_memory: "Settled leases are remembered",
    replay_keys: "Repeated calls are recognised",
    local_fence: "Late commits are refused",
    skip_recent_rows: "Verification skips fresh rows",
    skip_recent_claims: "Verification skips fresh claims",
};

/** What goes wrong without a rule, for people who wonder whether to switch it off. */
export const WITHOUT_RULE: Record<Rule, string> = {
    lease_exclusivity: "two cells can hold the same name at once",
    ownership: "one cell can free a name that another cell's row still uses",
    settled_lease_memory: "a cell that asks again is told that its lease never was",
    replay_keys: "a save collides with its own first try",
    local_fence: "a row can be committed under a lease that was given up",
    skip_recent_rows: "verification takes claims from rows that are being changed",
    skip_recent_claims: "verification corrects by a copy that is out of date",
};

/** Why a rule is there, for people who have just seen what breaks without it. */
export const WHY_RULE: Record<Rule, string> = {
    lease_exclusivity: "Until a lease is settled nobody knows how its save ends. Could another save begin with the same name meanwhile, both might be committed.",
    ownership: "Only the cell that has claimed a name knows whether its row is still there. Any other would free a name that is in use.",
    settled_lease_memory:
        "An answer can be lost after its lease was settled. Whoever asks again must hear how it ended: without the memory, a lease that was committed or rolled back looks like one that never was.",
    replay_keys: "The answer to a begin can be lost. The second try must be known as the same call, or it is refused because of the lease that the first one got.",
    local_fence: "Reconciliation gives up a lease that nobody finished. A COMMIT that comes after that would leave a row without its claim, so the database refuses it.",
    skip_recent_rows: "A row that has just been changed may still be under a lease. Whoever corrects its claim now corrects what is not finished.",
    skip_recent_claims: "Verification may read a copy that lags behind. A claim that was just made has its row, though the copy does not show it yet.",
};

/** When a rule is needed, for people who have seen nothing break without it. */
export const NEEDED_WHEN: Record<Rule, string> = {
    lease_exclusivity: "The rule is needed when two saves want one name at the same time.",
    ownership: "The rule is needed when a cell asks to free a name that another cell owns.",
    settled_lease_memory: "The memory is needed when somebody asks about a lease that is settled already: after a lost answer, not after a lost request.",
    replay_keys: "The rule is needed when the answer to a begin is lost, and the begin is tried again.",
    local_fence: "The rule is needed when a COMMIT comes after reconciliation has given its lease up.",
    skip_recent_rows: "The rule is needed when verification meets a row that is just being changed.",
    skip_recent_claims: "The rule is needed when verification reads a copy that lags behind the claims.",
};

/** The fault rates, in words. */
export const RATE_NAMES: Record<keyof Rates, string> = {
    save: "users ask for saves",
    step: "processes go on",
    deliver: "messages arrive",
    drop: "messages are lost",
    duplicate: "messages are doubled",
    time_out: "waiting is given up",
    crash: "processes die",
    disconnect: "database connections break",
    partition: "cells are cut off",
    restart: "the service restarts",
    wait: "time passes",
    drift: "rows change past the claims",
};

/** A lease by its number; one of a live server by the end of its id, since their beginnings are alike. */
export function leaseNumber(lease: string): string {
    const number = Number.parseInt(lease.slice(-8), 16);
    return lease.startsWith("01a20000-0000-7000-8000-") ? `#${number}` : `…${lease.slice(-6)}`;
}

const LEASE_ID = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

/** The engine's words as the page shows them: leases by their numbers, names in quotes, no state in its code's spelling. */
export function readable(text: string): string {
    return text
        .replace(LEASE_ID, leaseNumber)
        .replace(/`([^`]*)`/g, "“$1”")
        .replace(/\b[A-Z][a-z]+[A-Z][A-Za-z]*\b/g, stateName);
}

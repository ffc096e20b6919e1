// The page's texts for people: names of participants, rules and phases, and forms of times and
// lease ids.
import { processParts } from "./events";
import type { LaneKind, PlacedLane } from "./lanes";
import type { Change, Phase, Process, Rates, Rule, Told } from "./protocol";

/** Returns a duration as text, in its one or two largest units. */
export function formatDuration(micros: number): string {
    const sign = micros < 0 ? "−" : "";
    const size = Math.abs(micros);
    if (size < 1000) return `${sign}${size} µs`;
    if (size < 1_000_000) return `${sign}${roundedText(size / 1000)} ms`;
    const seconds = size / 1_000_000;
    if (seconds < 60) return `${sign}${roundedText(seconds)} s`;
    const parts: [number, string][] = [
        [Math.floor(seconds / 86_400), "d"],
        [Math.floor(seconds / 3600) % 24, "h"],
        [Math.floor(seconds / 60) % 60, "min"],
        [Math.floor(seconds) % 60, "s"],
    ];
    const largest = parts.filter(([count]) => count > 0).slice(0, 2);
    return sign + largest.map(([count, unit]) => `${count} ${unit}`).join(" ");
}

function roundedText(value: number): string {
    return String(Number(value.toFixed(value < 10 ? 1 : 0)));
}

/**
 * Returns the whole number that a text contains, or `undefined` if it is not a whole number from
 * `min` to `max`.
 */
export function wholeNumber(text: string, min: number, max: number): number | undefined {
    const number = Number(text);
    return text.trim() !== "" && Number.isSafeInteger(number) && number >= min && number <= max ? number : undefined;
}

/** Returns the name of a process within its cell, such as `worker 0`. */
export function processName(process: Process): string {
    const { kind, number } = processParts(process);
    return kind === "worker" || kind === "reconciler" ? `${kind} ${number}` : kind;
}

/** Returns the full name of the participant to which a lane belongs. */
export function laneName(lane: PlacedLane): string {
    if (lane.kind === "service") return "the service";
    const isNumbered = lane.kind === "worker" || lane.kind === "reconciler";
    return `cell ${lane.cell}'s ${lane.kind}${isNumbered ? ` ${lane.number}` : ""}`;
}

/** The purpose of each kind of participant, as the page explains it. */
export const LANE_PURPOSES: Record<LaneKind, string> = {
    user: "People who create, rename and delete things in this cell.",
    program: "The program of this cell. It has its client work under a lock.",
    worker: "An application process. It saves for one user at a time, and may die between any two steps.",
    reconciler: "Finds outstanding leases, and settles them by the rows in the cell's own database.",
    verifier: "Compares the cell's rows with its claims, and corrects the differences.",
    client: "A process that works under locks, or on the requests of a queue, one after the other. It may be paused or die between any two steps.",
    front: "A process that submits requests to the queue. It repeats a submit that is not answered.",
    keepalive: "A thread of the client that renews its session.",
    database: "The cell's own database. Its COMMIT decides a save.",
    service: "Leasehold. It knows the owner of each name, the holder of each lock, and the requests of each queue.",
};

/** Returns the purpose of a participant in a world of locks, or of a queue. */
export function lanePurpose(kind: LaneKind, isQueue: boolean): string {
    return isQueue && kind === "program" ? "The program of this cell. It has its client work on the queue, or its front submit a request." : LANE_PURPOSES[kind];
}

const PHASES: Record<Phase, string> = {
    validate: "validates its change",
    open: "begins its local transaction",
    write: "writes its rows",
    begin: "begins a lease",
    await_begin: "waits for the answer to its begin",
    write_lease: "writes its lease row",
    commit: "sends COMMIT to its database",
    await_database: "waits for its database",
    commit_lease: "commits the lease",
    await_commit: "waits for the answer to its commit",
    delete_row: "deletes its lease row",
    abort: "gives its save up",
    find_lease: "asks for the lease of its unanswered begin",
    await_found: "waits for the lease of its unanswered begin",
    roll_back_lease: "rolls the lease back",
    await_rollback: "waits for the answer to its rollback",
};

/** Returns the next step of a worker in a phase of a save, as a verb phrase without a subject. */
export function phaseText(phase: Phase): string {
    return PHASES[phase];
}

/** The refusals of a save that users see most, in words. */
const REFUSALS: Partial<Record<string, string>> = { CLAIM_TAKEN: "the name is taken", CLAIM_BUSY: "another lease holds the name" };

/** Returns the result of a save as a text for people. */
export function saveResultText(told: Told): string {
    if (typeof told === "object") return `refused: ${REFUSALS[told.refused] ?? told.refused.toLowerCase().replaceAll("_", " ")}`;
    const texts: Record<Exclude<Told, object>, string> = {
        saved: "saved",
        invalid: "invalid",
        conflict: "the database refused the rows",
        too_late: "too late, try again",
        unavailable: "no answer, try again",
        unknown: "outcome unknown, check whether the row exists",
    };
    return texts[told];
}

/** Returns a change that a user asks for as a text, in the infinitive. */
export function changeText(change: Change, names: readonly string[]): string {
    const name = (number: number) => names[number] ?? `name ${number}`;
    if (change === "invalid") return "save an invalid change";
    if ("create" in change) return `create ${name(change.create)}`;
    if ("create_two" in change) return `create ${change.create_two.map(name).join(" and ")}`;
    if ("rename" in change) return `rename row ${change.rename.row} to ${name(change.rename.name)}`;
    if ("delete" in change) return `delete row ${change.delete}`;
    if ("swap" in change) return `swap the names of rows ${change.swap.join(" and ")}`;
    return `delete row ${change.transfer.from} and give its name to row ${change.transfer.to}`;
}

/** Returns the sentences that apply as one text. */
export function sentences(...parts: readonly (string | false | undefined)[]): string {
    return parts.filter(Boolean).join(" ");
}

/** Returns the name of an engine's state or event in words: `RolledBack` is “rolled back”. */
export function stateName(state: string): string {
    return state.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
}

/** The name of each rule that can be switched off, as the page shows it. */
export const RULE_NAMES: Record<Rule, string> = {
    lease_exclusivity: "Leases exclude each other",
    ownership: "Cells change only their own claims",
    settled_lease_memory: "Settled leases are remembered",
    replay_keys: "Retried calls are recognised",
    commit_guard: "Late commits are refused",
    skip_recent_rows: "Verification skips recent rows",
    skip_recent_claims: "Verification skips recent claims",
    observed_silence: "Sessions end by observed silence",
    grace: "Expiry waits for the grace",
    whole_duration: "A restart gives sessions their whole duration",
    fence_check: "The resource checks fences",
    one_worker: "A lane has one worker",
    shared_lane: "A resource has one lane",
    early_count: "Attempts count when taken",
    settle_fence: "A settle needs the current fence",
    settle_memory: "Lanes remember the last settle",
    request_ids: "Repeated submits have one id",
};

/** Returns the name of a rule in quotes, for the middle of a sentence. */
export function quotedRule(rule: Rule): string {
    return `“${RULE_NAMES[rule].toLowerCase()}”`;
}

/** The danger without each rule, for people who think of switching the rule off. */
export const WITHOUT_RULE: Record<Rule, string> = {
    lease_exclusivity: "two cells can hold the same name at once",
    ownership: "one cell can free a name that another cell's row still uses",
    settled_lease_memory: "a cell that retries is told that its lease does not exist",
    replay_keys: "a save collides with its own first attempt",
    commit_guard: "a row can be committed under a lease that was rolled back",
    skip_recent_rows: "verification takes claims from rows that are being changed",
    skip_recent_claims: "verification corrects claims by an outdated copy",
    observed_silence: "a jump of the clock passes a lock on under its holder",
    grace: "a lock passes on while its holder may still work",
    whole_duration: "a restart passes locks on although their holders have renewed",
    fence_check: "a holder that was paused overwrites the work of the next one",
    one_worker: "two workers work on one sheet at once",
    shared_lane: "an update is worked on before its sheet exists",
    early_count: "a request that ends its workers is tried for ever",
    settle_fence: "a late worker settles requests that it has never seen",
    settle_memory: "a worker that retries is told that another has its lane",
    request_ids: "a submit whose answer is lost makes two requests",
};

/** The reason for each rule, for people who have just seen a violation without the rule. */
export const WHY_RULE: Record<Rule, string> = {
    lease_exclusivity: "Until a lease is settled, nobody knows the outcome of its save. If another save could begin with the same name meanwhile, both might be committed.",
    ownership: "Only the cell that has claimed a name knows if its row still exists. Any other cell would free a name that is in use.",
    settled_lease_memory:
        "An answer can be lost after its lease was settled. The caller that retries must learn the outcome. Without the memory, a settled lease looks like one that never existed.",
    replay_keys: "The answer to a begin can be lost. The service must recognise the retry, or it refuses the retry because of the lease that the first attempt got.",
    commit_guard: "Reconciliation rolls back a lease that nobody settled. A later COMMIT would leave a row without its claim, so the database refuses it.",
    skip_recent_rows: "A row that has just changed may still be under a lease. Its claim must not be corrected before the save has finished.",
    skip_recent_claims: "Verification may read a replica that lags behind. A claim that was just created has its row, although the replica does not show the row yet.",
    observed_silence: "A wall clock can jump. Ticks are counted while the service is awake, so a jump, a pause or a restart expires nobody.",
    grace: "Between its deadline and the server's, a holder whose renewal got no answer can still finish its work. Without the grace its lock passes on meanwhile.",
    whole_duration: "Renewals are in memory only. After a restart the service knows nothing of them, so it must count each session's silence from the start.",
    fence_check: "A process can be paused between its look at the clock and its write. Only the resource can refuse the late write, by its fence.",
    one_worker: "The requests of one sheet depend on each other. While a worker has the lane, others take other lanes, so the order is kept.",
    shared_lane: "A lane is worked in order, so an update waits for the create before it. In two lanes, two workers would have both at once.",
    early_count: "A worker that dies settles nothing. Only an attempt that counts at the take stops a request that ends each of its workers.",
    settle_fence: "A worker that was paused may settle after another one has taken the lane, with more requests. Its old fence tells the two apart.",
    settle_memory: "An answer can be lost after its settle took effect. The worker that retries must learn that its own settle succeeded.",
    request_ids: "A front that gets no answer does not know if its request arrived. It submits again, and the id shows that both are one.",
};

/** The situation in which each rule is needed, for people who have seen no violation without it. */
export const NEEDED_WHEN: Record<Rule, string> = {
    lease_exclusivity: "The rule is needed when two saves want one name at the same time.",
    ownership: "The rule is needed when a cell asks to free a name that another cell owns.",
    settled_lease_memory: "The memory is needed when a caller asks about a settled lease: after a lost answer, not after a lost request.",
    replay_keys: "The rule is needed when the answer to a begin is lost, and the begin is retried.",
    commit_guard: "The rule is needed when a COMMIT comes after reconciliation has rolled its lease back.",
    skip_recent_rows: "The rule is needed when verification meets a row that is being changed.",
    skip_recent_claims: "The rule is needed when verification reads a replica that lags behind the claims.",
    observed_silence: "The rule is needed when the service's wall clock jumps while a session is live.",
    grace: "The rule is needed when the renewals of a holder get no answer.",
    whole_duration: "The rule is needed when the service restarts after a renewal that it kept in memory only.",
    fence_check: "The rule is needed when a holder is paused before a write, for longer than its session lives.",
    one_worker: "The rule is needed when two workers look for work while one lane has several requests.",
    shared_lane: "The rule is needed when two workers look for work while a create and its update wait.",
    early_count: "The rule is needed when a request ends each worker that works on it.",
    settle_fence: "The rule is needed when a worker settles after its session has expired and another has taken the lane.",
    settle_memory: "The memory is needed when the answer to a settle is lost, and the settle is retried.",
    request_ids: "The rule is needed when the answer to a submit is lost, and the submit is retried.",
};

/** The name of each random event, as labels in the form of a world's rates. */
export const RATE_NAMES: Record<keyof Rates, string> = {
    save: "users ask for saves",
    step: "processes take a step",
    deliver: "messages arrive",
    drop: "messages are lost",
    duplicate: "messages are duplicated",
    time_out: "calls time out",
    crash: "processes crash",
    disconnect: "database connections break",
    partition: "cells are cut off",
    restart: "the service restarts",
    wait: "time passes",
    drift: "plain SQL changes rows",
};

/**
 * The beginning of each lease id in a simulated world. The id ends in the number of the lease
 * (`LEASE` in `simulation/src/names.rs`).
 */
const SIMULATED_LEASE = "01a20000-0000-7000-8000-";

/**
 * Returns a short name for a lease: its number in a simulated world, otherwise the end of its id.
 * The ids of a server's leases begin with a time, so their beginnings are much alike.
 */
export function leaseLabel(lease: string): string {
    const number = Number.parseInt(lease.slice(-8), 16);
    return lease.startsWith(SIMULATED_LEASE) ? `#${number}` : `…${lease.slice(-6)}`;
}

const LEASE_ID = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

/** Returns a text with curly quotes in the place of backticks. */
export function quotedText(text: string): string {
    return text.replace(/`([^`]*)`/g, "“$1”");
}

/**
 * Returns a text of the engine in the page's style: with short names for leases, curly quotes, and
 * states as words.
 */
export function readableText(text: string): string {
    return quotedText(text)
        .replace(LEASE_ID, leaseLabel)
        .replace(/\b[A-Z][a-z]+[A-Z][A-Za-z]*\b/g, stateName);
}

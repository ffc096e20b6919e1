// The short line of each event: who acts, on whom, and with which result, such as
// `Service ← worker: begin “alice” → lease #1`. The lines are made from the sentences of the
// simulation, of which they keep each fact. `tests/truth/event_lines.test.ts` holds them against
// the state.
import { localArrows } from "./local_arrows";
import { plainText } from "./message_texts";
import type { Arrow, Entry, Settings } from "./protocol";
import { leaseLabel } from "./texts";

/** The participants of a world, as far as their names depend on them. */
export type Crowd = Pick<Settings, "cells" | "workers" | "reconcilers">;

const ACTOR = "cell \\d+'s (?:worker \\d+|reconciler \\d+|verifier|client|keepalive|front|program|database)";

/** The forms of sentences, each with its line. Groups are parts of the sentence. */
const FORMS: readonly [RegExp, string][] = [
    [new RegExp(`^the service receives from (${ACTOR}): (.*?),? and answers: (.*)$`, "u"), "service ← $1: $2 → $3"],
    [new RegExp(`^the service receives from (${ACTOR}): (.*)$`, "u"), "service ← $1: $2"],
    [new RegExp(`^the service is down, and receives nothing from (${ACTOR}): (.*); the caller learns: (.*)$`, "u"), "service, down ← $1: $2 → $3"],
    [new RegExp(`^(${ACTOR}) receives the answer: (.*)$`, "u"), "$1 ← service: $2"],
    [/^a user of (cell \d+) asks (worker \d+) to (.*)$/u, "user of $1 → $2: $3"],
    [new RegExp(`^the network loses a message to (the service|${ACTOR}): (.*)$`, "u"), "network loses the message to $1: $2"],
    [new RegExp(`^the network duplicates a message to (the service|${ACTOR}): (.*)$`, "u"), "network duplicates the message to $1: $2"],
    [/^in (cell \d+'s database) (.*)$/u, "$1: $2"],
    [/^the (service.*)$/u, "$1"],
];

/** Returns the line of an event. `arrows` has the message that arrives in it, if one does. */
export function eventLine(entry: Entry, arrows: readonly Arrow[], crowd: Crowd): string {
    const message = entry.sent[0] ?? arrows.find(({ id }) => id === entry.arrived || entry.lost.includes(id));
    const line = shortened(withTold(lineOf(entry)));
    return capitalised(named(messages(line, message?.lease), crowd));
}

/** Returns the lines of several events as the parts of one line, which names an actor once for all of its steps. */
export function joinedLines(lines: readonly string[]): string[] {
    const actors = lines.map((line) => /^[^:]* → [^:]*: /u.exec(line)?.[0]);
    return lines.map((line, index) => (index > 0 && actors[index] === actors[index - 1] ? line.slice(actors[index]?.length ?? 0) : line));
}

function lineOf(entry: Entry): string {
    for (const [form, line] of FORMS) if (form.test(entry.says)) return entry.says.replace(form, line);
    const [, actor, act] = new RegExp(`^(${ACTOR}) (.*)$`, "u").exec(entry.says) ?? [];
    if (actor === undefined || act === undefined) return entry.says;
    const receiver = receiverOf(entry);
    return receiver === undefined ? `${actor} ${act}` : `${actor} → ${receiver}: ${act.replace(/^sends /u, "")}`;
}

/** Returns the receiver of what an event sends; `undefined` if it sends nothing. */
function receiverOf(entry: Entry): string | undefined {
    if (entry.sent.some(({ to }) => to === "service")) return "service";
    return localArrows(entry).some(({ isSpeech }) => !isSpeech) ? "database" : undefined;
}

/** Writes the words that a user is told as speech. */
function withTold(line: string): string {
    return line.replace(/; the user is told: (.*)$/u, " → user: “$1”");
}

/** Leaves out what the line says by its arrow. */
function shortened(line: string): string {
    return line
        .replace("COMMIT to its database", "COMMIT")
        .replace("rolls its local transaction back", "rolls back")
        .replace("begins its local transaction", "begins a transaction")
        .replace("which its database refuses", "which are refused")
        .replace("the deadline of its session has not passed", "its deadline has not passed")
        .replace(", which accepts the write", ": accepted");
}

/** Writes requests and answers in their short forms. */
function messages(line: string, lease: string | undefined): string {
    return plainText(line)
        .replace(/begin: create ([^;,→]*?)(?= →|$)/u, "begin “$1”")
        .replace(/begin: (.*?)(?= →|$)/u, (_, changes: string) => `begin: ${changes.replace(/(?<=(?:create|destroy|replace|, ) ?)\b(?!create|destroy|replace)(\w+)/gu, "“$1”")}`)
        .replace(/\b(?:commit|rollback) of lease (\d+)/u, (request, number: string) => `${request.startsWith("commit") ? "commit" : "roll back"} lease #${number}`)
        .replace(/\blease (\d+)/gu, "lease #$1")
        .replace(/\bbegun(?=, fence)/u, lease === undefined ? "begun" : `lease ${leaseLabel(lease)}`)
        .replace(/(?<=: create )(\w+)(?: and (\w+))?$/u, (_, one: string, two?: string) => (two === undefined ? `“${one}”` : `“${one}” and “${two}”`));
}

/** Leaves the numbers of cells and processes out where the world has only one. */
function named(line: string, { cells, workers, reconcilers }: Crowd): string {
    return line
        .replace(/ of cell \d+(?= →)/u, (cell) => (cells > 1 ? cell : ""))
        .replace(/\bcell \d+'s /gu, (cell) => (cells > 1 ? cell : ""))
        .replace(/\b(worker|reconciler) \d+/gu, (process, kind: string) => ((kind === "worker" ? workers : reconcilers) > 1 ? process : kind))
        .replace("transaction of worker is", "worker's transaction is")
        .replace(/(?<=the message to )(?=worker|reconciler|verifier)/u, "the ");
}

function capitalised(line: string): string {
    return line.charAt(0).toUpperCase() + line.slice(1);
}

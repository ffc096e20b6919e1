// The arrows within a cell: the statements of a process to its database, and the words between a
// user and a worker. The simulation lists only messages between a cell and the service.
// `tests/truth/local_arrows.test.ts` holds each arrow against the state of the world.
import { partsOf } from "./events";
import type { Entry, Lane } from "./protocol";

/** An arrow from one participant of a cell to another, within one event. */
export interface LocalArrow {
    from: Lane;
    to: Lane;
    /** A short text. Of the words to a user it has only the first part: the sentence has the advice. */
    says: string;
    /** True if a user and a worker speak. Otherwise a process sends a statement to its database. */
    isSpeech: boolean;
    /** True if a user is told that the change was not saved. */
    isRefusal: boolean;
}

/** The statements that the sentences of steps tell about, each with its short text. */
const STATEMENTS: readonly [RegExp, string][] = [
    [/ worker \d+ begins its local transaction$/u, "BEGIN"],
    [/ worker \d+ writes its rows/u, "rows"],
    [/ worker \d+ writes its lease row$/u, "lease"],
    [/ worker \d+ sends COMMIT to its database$/u, "COMMIT"],
    [/ worker \d+ rolls its local transaction back/u, "ROLLBACK"],
    [/ deletes (?:its lease row|the row of lease)/u, "delete"],
    [/ looks (?:up its rows of these leases|for stale lease rows)$/u, "read"],
    [/ reads a page of rows$/u, "read"],
];

/** Returns the arrows of an event within its cell, in the order of the event. */
export function localArrows(entry: Entry): LocalArrow[] {
    const { kind, cell, process } = partsOf(entry.event);
    const actor: Lane | undefined = cell === undefined || process === undefined ? undefined : { process: [cell, process] };
    const asked = kind === "save" ? / asks worker \d+ to (.*)$/u.exec(entry.says)?.[1] : undefined;
    if (asked !== undefined && actor && cell !== undefined) return [{ from: { user: cell }, to: actor, says: `“${asked}”`, isSpeech: true, isRefusal: false }];
    return [...statement(entry, actor, cell), ...answerToUser(entry, actor ?? entry.lane)];
}

function statement({ event, says }: Entry, actor: Lane | undefined, cell: number | undefined): LocalArrow[] {
    const text = partsOf(event).kind === "step" ? STATEMENTS.find(([pattern]) => pattern.test(withoutAnswer(says)))?.[1] : undefined;
    return text === undefined || actor === undefined || cell === undefined ? [] : [{ from: actor, to: { database: cell }, says: text, isSpeech: false, isRefusal: false }];
}

const ANSWER = /; the user is told: ([^,]*).*$/u;

function withoutAnswer(says: string): string {
    return says.replace(ANSWER, "");
}

function answerToUser({ says }: Entry, from: Lane): LocalArrow[] {
    const answer = ANSWER.exec(says)?.[1];
    if (answer === undefined || from === "service" || !("process" in from)) return [];
    return [{ from, to: { user: from.process[0] }, says: `“${answer}”`, isSpeech: true, isRefusal: answer !== "saved" }];
}

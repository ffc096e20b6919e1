// The line of an event, in which the terms of the protocol are explained.
import { eventLine } from "../model/event_lines";
import type { Entry } from "../model/protocol";
import { segments, TERMS } from "../model/terms";
import { session } from "../session/app";

/** The crowd of a server's log, whose lines keep all numbers. */
const LOGGED = { cells: 2, workers: 2, reconcilers: 2 };

/** The lines of entries. The rows of a run keep their entries, so each line is made once. */
const LINES = new WeakMap<Entry, string>();

/** Returns the line of an event of the open run or log. */
export function lineOf(entry: Entry): string {
    const known = LINES.get(entry);
    if (known !== undefined) return known;
    const isMessage = entry.arrived !== undefined || entry.lost.length > 0;
    const arrows = isMessage ? session.timeline.peek()?.arrows(entry.position, entry.position + 1) : undefined;
    const line = eventLine(entry, arrows ?? [], session.settings.peek() ?? LOGGED);
    LINES.set(entry, line);
    return line;
}

/** Shows a line whose terms tell their explanations to the mouse. */
export function HoverLine({ line }: { line: string }) {
    return (
        <>
            {segments(line).map(({ text, term }) => (term === undefined ? text : <span class="term">{text}</span>))}
        </>
    );
}

/** Sets the explanation of a term as its tooltip. */
export function explainTerm(term: HTMLElement): void {
    term.title = TERMS[term.textContent?.toLowerCase() ?? ""] ?? "";
}

/**
 * Shows a line whose terms tell their explanations to the mouse, and to the keyboard, which reaches
 * each of them. `id` distinguishes the line from others on the page.
 */
export function FocusLine({ line, id }: { line: string; id: string }) {
    return (
        <>
            {segments(line).map(({ text, term }, index) =>
                term === undefined ? (
                    text
                ) : (
                    <span class="explained" key={index}>
                        <dfn class="term" tabIndex={0} aria-describedby={`${id}-${index}`}>
                            {text}
                        </dfn>
                        <span class="tip" role="tooltip" id={`${id}-${index}`}>
                            {TERMS[term]}
                        </span>
                    </span>
                ),
            )}
        </>
    );
}

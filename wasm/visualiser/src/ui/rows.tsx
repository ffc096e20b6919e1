import { memo } from "preact/compat";

import { joinedLines } from "../model/event_lines";
import { partsOf } from "../model/events";
import type { RowRange } from "../model/geometry";
import type { Entry } from "../model/protocol";
import { readableText } from "../model/texts";
import { session } from "../session/app";
import { explainTerm, HoverLine, lineOf } from "./event_line";
import { isJumping, rows, textLeft } from "./lane_layout";

/** Shows the sentences of the events in each row. A click on a sentence moves to its last event. */
export function Rows({ range: { from, to }, entries }: { range: RowRange; entries: Entry[] }) {
    const [{ height }, left] = [rows.value, textLeft.value];
    const current = session.position.value - 1;
    const length = session.length.value;
    const style = { paddingTop: `${from * height}px`, "--row-height": `${height}px`, "--text-left": `${left}px` };
    return (
        <ol class="rows" aria-label="Events" style={style} onClick={seekToRow} onPointerOver={showWholeText}>
            {Array.from({ length: Math.max(0, to - from) }, (_, index) => {
                const [first, end] = [rows.value.firstOf(from + index), rows.value.firstOf(from + index + 1)];
                const [entry, ...more] = entries.slice(first - rows.value.firstOf(from), end - rows.value.firstOf(from));
                if (!entry) return null;
                const place = { isCurrent: first <= current && current < end, isComing: first > current, length };
                if (more.length > 0) return <SharedRow key={`shared ${first}`} entries={[entry, ...more]} current={current} {...place} />;
                return <Row key={isJumping.value ? index : first % KEY_COUNT} entry={entry} {...place} />;
            })}
        </ol>
    );
}

/**
 * The number of different keys of rows. Fewer rows are rendered at a time, so keys are unique.
 * Scrolling reuses the elements of rows that are no longer rendered, which is faster than creating
 * new ones.
 */
const KEY_COUNT = 128;

/**
 * Moves to the event of the row that was clicked. One listener serves all rows; keyboard users have
 * the page's keys. In the tour, the text of the step holds only at the end of its events.
 */
function seekToRow(event: Event): void {
    if (session.tourStep.peek() !== undefined) return;
    const position = sentenceOf(event)?.closest("li")?.ariaPosInSet;
    if (position) session.seek(Number(position));
}

/** Sets the whole sentence as the tooltip of a row, because the row cuts long sentences. A term has its explanation instead. */
function showWholeText(event: Event): void {
    if (event.target instanceof HTMLElement && event.target.matches(".term")) return explainTerm(event.target);
    const sentence = sentenceOf(event);
    if (sentence) sentence.title = sentence.textContent ?? "";
}

function sentenceOf(event: Event): HTMLElement | undefined {
    const sentence = event.target instanceof Element ? event.target.closest(".sentence") : null;
    return sentence instanceof HTMLElement ? sentence : undefined;
}

interface RowPlace {
    isCurrent: boolean;
    /** True if all events of the row come after the position. */
    isComing: boolean;
    length: number;
}

/** Shows several local steps of a cell. `current` is the last event that has happened. */
function SharedRow({ entries, current, isCurrent, isComing, length }: RowPlace & { entries: Entry[]; current: number }) {
    const [first, last] = [(entries[0]?.position ?? 0) + 1, (entries.at(-1)?.position ?? 0) + 1];
    const classes = ["row", "shared", isComing && "coming", isCurrent && "current"].filter(Boolean);
    return (
        <li class={classes.join(" ")} aria-current={isCurrent ? "step" : undefined} aria-posinset={last} aria-setsize={length}>
            <span class="number">
                {first}–{last}
            </span>
            <div class="sentence">
                <span>
                    {joinedLines(entries.map(lineOf)).map((line, index) => (
                        <span key={index} class={isCurrent && first + index - 1 > current ? "not-yet" : undefined}>
                            {index > 0 && "; "}
                            <HoverLine line={line} />
                        </span>
                    ))}
                </span>
            </div>
        </li>
    );
}

const Row = memo(function Row({ entry, isCurrent, isComing, length }: RowPlace & { entry: Entry }) {
    const { position, fault, refused, violation } = entry;
    const kind = partsOf(entry.event).kind;
    const isReached = violation !== undefined && !isComing;
    const classes = ["row", fault && "fault", refused && "refused", isReached && "reached", isComing && "coming", isCurrent && "current", violation && "violated", kind === "wait" && "time"].filter(Boolean);
    return (
        <li
            class={classes.join(" ")}
            aria-current={isCurrent ? "step" : undefined}
            aria-posinset={position + 1}
            aria-setsize={length}
        >
            <span class="number">{position + 1}</span>
            <div class="sentence">
                <span>
                    <HoverLine line={lineOf(entry)} />
                </span>
            </div>
            {isReached && (
                <div class="row-violation" title={readableText(violation)}>
                    <b>An invariant is violated here:</b> {readableText(violation)}
                </div>
            )}
        </li>
    );
});

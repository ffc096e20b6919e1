import { memo } from "preact/compat";

import { about } from "../model/happening";
import type { Entry } from "../model/protocol";
import { readable } from "../model/words";
import { session } from "../session/app";
import { rowHeight, wordsLeft } from "./lanes";

/** What happened, in words, row by row. A row that is clicked is gone to. */
export function Rows({ entries }: { entries: Entry[] }) {
    const [height, left] = [rowHeight.value, wordsLeft.value];
    const current = session.position.value - 1;
    const length = session.length.value;
    return (
        <ol class="rows" aria-label="Events" onClick={goTo} onPointerOver={tellAll}>
            {entries.map((entry) => (
                <Row key={entry.position % POOL} entry={entry} height={height} left={left} isCurrent={entry.position === current} isReached={entry.violation !== undefined && entry.position <= current} length={length} />
            ))}
        </ol>
    );
}

/** More rows than are ever drawn at once. Elements are used again for other rows: to make new ones takes longer. */
const POOL = 128;

/** One listener for all rows; whoever has no mouse goes there by keys. */
function goTo(event: Event): void {
    const position = wordsOf(event)?.dataset["position"];
    if (position !== undefined) session.seek(Number(position) + 1);
}

/** Words that are cut off are told in full beside the mouse. */
function tellAll(event: Event): void {
    const words = wordsOf(event);
    if (words) words.title = words.textContent ?? "";
}

function wordsOf(event: Event): HTMLElement | undefined {
    const words = event.target instanceof Element ? event.target.closest(".words") : null;
    return words instanceof HTMLElement ? words : undefined;
}

interface RowProps {
    entry: Entry;
    height: number;
    left: number;
    isCurrent: boolean;
    /** Of a row that breaks a promise: whether it has happened. */
    isReached: boolean;
    length: number;
}

const Row = memo(function Row({ entry, height, left, isCurrent, isReached, length }: RowProps) {
    const { position, says, fault, violation } = entry;
    const kind = about(entry.event).kind;
    const classes = ["row", fault && "fault", isCurrent && "current", violation && "violated", kind === "wait" && "time"].filter(Boolean);
    return (
        <li
            class={classes.join(" ")}
            style={{ top: `${position * height}px`, height: `${height}px` }}
            aria-current={isCurrent ? "step" : undefined}
            aria-posinset={position + 1}
            aria-setsize={length}
        >
            <span class="number">{position + 1}</span>
            <div class="words" style={{ left: `${left}px` }} data-position={position}>
                {says}
            </div>
            {violation && isReached && (
                <div class="broken-promise">
                    <b>A promise is broken here:</b> {readable(violation)}
                </div>
            )}
        </li>
    );
});

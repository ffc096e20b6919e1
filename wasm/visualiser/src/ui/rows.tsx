import { memo } from "preact/compat";

import { about } from "../model/happening";
import type { Entry } from "../model/protocol";
import { readable } from "../model/words";
import { session } from "../session/app";
import { isLeaping, rowHeight, wordsLeft } from "./lanes";

/** What happened, in words, row by row. A row that is clicked is gone to. */
export function Rows({ from, entries }: { from: number; entries: Entry[] }) {
    const [height, left] = [rowHeight.value, wordsLeft.value];
    const current = session.position.value - 1;
    const length = session.length.value;
    const place = { paddingTop: `${from * height}px`, "--row-height": `${height}px`, "--words-left": `${left}px` };
    return (
        <ol class="rows" aria-label="Events" style={place} onClick={goTo} onPointerOver={tellAll}>
            {entries.map((entry, at) => (
                <Row key={isLeaping.value ? at : entry.position % POOL} entry={entry} isCurrent={entry.position === current} isReached={entry.violation !== undefined && entry.position <= current} length={length} />
            ))}
        </ol>
    );
}

/** More rows than are ever drawn at once. Elements are used again for other rows: to make new ones takes longer. */
const POOL = 128;

/** One listener for all rows; whoever has no mouse goes there by keys. */
function goTo(event: Event): void {
    const place = wordsOf(event)?.closest("li")?.ariaPosInSet;
    if (place) session.seek(Number(place));
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
    isCurrent: boolean;
    /** Of a row that breaks a promise: whether it has happened. */
    isReached: boolean;
    length: number;
}

const Row = memo(function Row({ entry, isCurrent, isReached, length }: RowProps) {
    const { position, says, fault, violation } = entry;
    const kind = about(entry.event).kind;
    const classes = ["row", fault && "fault", isCurrent && "current", violation && "violated", kind === "wait" && "time"].filter(Boolean);
    return (
        <li
            class={classes.join(" ")}
            aria-current={isCurrent ? "step" : undefined}
            aria-posinset={position + 1}
            aria-setsize={length}
        >
            <span class="number">{position + 1}</span>
            <div class="words">{says}</div>
            {violation && isReached && (
                <div class="broken-promise">
                    <b>A promise is broken here:</b> {readable(violation)}
                </div>
            )}
        </li>
    );
});

import { memo } from "preact/compat";

import { about } from "../model/happening";
import type { Entry } from "../model/protocol";
import { session } from "../session/app";
import { rowHeight, wordsLeft } from "./lanes";

/** What happened, in words, row by row. A row that is clicked is gone to. */
export function Rows({ entries }: { entries: Entry[] }) {
    const [height, left] = [rowHeight.value, wordsLeft.value];
    const current = session.position.value - 1;
    const length = session.length.value;
    return (
        <ol class="rows" aria-label="Events">
            {entries.map((entry) => (
                <Row key={entry.position} entry={entry} height={height} left={left} isCurrent={entry.position === current} length={length} />
            ))}
        </ol>
    );
}

interface RowProps {
    entry: Entry;
    height: number;
    left: number;
    isCurrent: boolean;
    length: number;
}

const Row = memo(function Row({ entry, height, left, isCurrent, length }: RowProps) {
    const { position, says, fault, violation } = entry;
    const kind = about(entry.event).kind;
    const classes = ["row", fault && "fault", isCurrent && "current", violation && "broken", kind === "wait" && "time"].filter(Boolean);
    return (
        <li
            class={classes.join(" ")}
            style={{ transform: `translateY(${position * height}px)`, height: `${height}px` }}
            aria-current={isCurrent ? "step" : undefined}
            aria-posinset={position + 1}
            aria-setsize={length}
        >
            <span class="number">{position + 1}</span>
            <button type="button" class="words" style={{ left: `${left}px` }} tabIndex={-1} title={says} onClick={() => session.seek(position + 1)}>
                <span>{says}</span>
            </button>
            {violation && (
                <div class="broken-promise">
                    <b>A promise is broken here:</b> {violation}
                </div>
            )}
        </li>
    );
});

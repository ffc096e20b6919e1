import { memo } from "preact/compat";

import { type Line, lineOf, pointAt, type Range, rowMiddle } from "../model/geometry";
import type { LaneLayout } from "../model/lanes";
import { about } from "../model/happening";
import type { Arrow, Entry } from "../model/protocol";
import { session } from "../session/app";
import { isNarrow, lanesLeft, layout, rowHeight } from "./lanes";

/** See the rows: elements are used again. */
const POOL = 128;

interface Props {
    range: Range;
    entries: Entry[];
    arrows: Arrow[];
}

/** Lanes, messages and what happened, as far as in sight. */
export function Lines({ range, entries, arrows }: Props) {
    const height = rowHeight.value;
    const place = layout.value;
    const [top, bottom] = [range.from * height, (range.to + 1) * height];
    return (
        <svg
            class="lines"
            aria-hidden="true"
            style={{ left: `${lanesLeft.value}px` }}
            width={place.width}
            height={1}
        >
            <defs>
                <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
                    <path d="M0 0L8 4L0 8z" />
                </marker>
            </defs>
            <Grounds place={place} top={top} bottom={bottom} />
            {arrows.map((arrow, at) => (
                <Message key={at} arrow={arrow} line={lineOf(arrow, place, height, session.length.value)} />
            ))}
            {entries.map((entry) => (
                <Happened key={entry.position % POOL} entry={entry} y={rowMiddle(entry.position, height)} place={place} />
            ))}
        </svg>
    );
}

const Grounds = memo(function Grounds({ place, top, bottom }: { place: LaneLayout; top: number; bottom: number }) {
    return (
        <>
            {place.spans.map(({ cell, left, right }) => (
                <rect key={cell} class="ground" x={left} y={top} width={right - left} height={bottom - top} />
            ))}
            {place.lanes.map((lane) => (
                <line key={lane.key} class={`lane ${lane.kind}`} x1={lane.x} y1={top} x2={lane.x} y2={bottom} />
            ))}
        </>
    );
});

const LABEL_ROOM = 44;

/** A message's arrow. One that arrives long after, as most do not, is labelled where it was sent. */
const Message = memo(
    function Message({ arrow, line }: { arrow: Arrow; line: Line }) {
        const how = arrow.ended === undefined ? "flying" : (arrow.how ?? "arrived");
        const height = line.y2 - line.y1;
        const label = pointAt(line, line.y1 + Math.min(height / 2, rowHeight.peek() / 2));
        const hasRoom = Math.abs(line.x2 - line.x1) > LABEL_ROOM && !isNarrow.peek();
        return (
            <g class={`message ${how}`}>
                <line x1={line.x1} y1={line.y1} x2={line.x2} y2={line.y2} marker-end={how === "lost" ? undefined : "url(#tip)"} />
                {how === "lost" && <path class="cross" d={cross(line.x2, line.y2, 6)} />}
                {hasRoom && (
                    <text x={label.x} y={label.y - 5} class="label">
                        {shorten(arrow.says, Math.abs(line.x2 - line.x1))}
                    </text>
                )}
            </g>
        );
    },
    (before, after) => before.arrow === after.arrow && before.line.y2 === after.line.y2 && before.line.x2 === after.line.x2 && before.line.x1 === after.line.x1 && before.line.y1 === after.line.y1,
);

const LETTER = 6.2;

function shorten(text: string, room: number): string {
    const letters = Math.max(8, Math.floor(room / LETTER) - 2);
    return text.length <= letters ? text : `${text.slice(0, letters - 1).trimEnd()}…`;
}

const Happened = memo(
    function Happened({ entry, y, place }: { entry: Entry; y: number; place: LaneLayout }) {
        const { kind } = about(entry.event);
        if (kind === "wait") return <line class="passing" x1={0} x2={place.width} y1={y} y2={y} />;
        const x = place.x(entry.lane);
        // The message's own line ends in a cross.
        if (kind === "drop") return null;
        if (entry.violation) return <path class="violated" d={`M${x} ${y - 9}l10 17h-20z`} />;
        if (entry.fault) return <path class="cross" d={cross(x, y, 6)} />;
        if (kind === "finish_commit") return <rect class="happened commit" x={x - 5} y={y - 5} width="10" height="10" rx="2" />;
        return <circle class={entry.fired.length > 0 ? "happened fired" : "happened"} cx={x} cy={y} r={entry.fired.length > 0 ? 5 : 3.5} />;
    },
    (before, after) => before.entry === after.entry && before.y === after.y && before.place === after.place,
);

function cross(x: number, y: number, size: number): string {
    return `M${x - size} ${y - size}l${size * 2} ${size * 2}M${x + size} ${y - size}l${-size * 2} ${size * 2}`;
}

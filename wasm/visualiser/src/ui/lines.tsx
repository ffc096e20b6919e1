import { memo } from "preact/compat";

import type { Range } from "../model/geometry";
import type { LaneLayout } from "../model/lanes";
import type { Arrow, Entry } from "../model/protocol";
import { eventPaths, messagePaths, type Scale } from "../model/strokes";
import { session } from "../session/app";
import { isNarrow, lanesLeft, layout, rowHeight } from "./lanes";

interface Props {
    range: Range;
    entries: Entry[];
    arrows: Arrow[];
}

/** Lanes, messages and what happened, as far as in sight. */
export function Lines({ range, entries, arrows }: Props) {
    const height = rowHeight.value;
    const place = layout.value;
    const scale: Scale = { place, rowHeight: height, length: session.length.value, hasLabels: !isNarrow.value };
    return (
        <svg class="lines" aria-hidden="true" style={{ left: `${lanesLeft.value}px` }} width={place.width} height={1}>
            <Grounds place={place} top={range.from * height} bottom={(range.to + 1) * height} />
            <Messages arrows={arrows} scale={scale} />
            {Object.entries(eventPaths(entries, scale)).map(([kind, data]) => (
                <path key={kind} class={kind} d={data} />
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

const FATES = ["arrived", "ignored", "flying", "lost"] as const;

function Messages({ arrows, scale }: { arrows: Arrow[]; scale: Scale }) {
    const { lines, tips, crosses, grounds, labels } = messagePaths(arrows, scale);
    return (
        <>
            {FATES.map((fate) => (
                <path key={fate} class={`message ${fate}`} d={lines.get(fate) ?? ""} />
            ))}
            <path class="tips" d={tips} />
            <path class="cross" d={crosses} />
            <path class="label-ground" d={grounds} />
            {labels.map(({ x, y, text }, at) => (
                <text key={at} x={x} y={y} class="label">
                    {text}
                </text>
            ))}
        </>
    );
}

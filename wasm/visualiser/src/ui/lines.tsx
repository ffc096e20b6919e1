import { memo } from "preact/compat";

import type { RowRange } from "../model/geometry";
import type { LaneLayout } from "../model/lanes";
import type { Arrow, Entry } from "../model/protocol";
import { eventPaths, localPaths, messagePaths, type DrawingScale } from "../model/svg_paths";
import { isNarrow, lanesLeft, layout, rows } from "./lane_layout";

interface LinesProps {
    range: RowRange;
    entries: Entry[];
    arrows: Arrow[];
}

/** Draws the rendered rows: the lanes, the messages and the events. */
export function Lines({ range, entries, arrows }: LinesProps) {
    const { height } = rows.value;
    const scale: DrawingScale = { layout: layout.value, rows: rows.value, firstRow: range.from, hasLabels: !isNarrow.value };
    return (
        <svg class="lines" aria-hidden="true" style={{ left: `${lanesLeft.value}px`, top: `${range.from * height}px` }} width={scale.layout.width} height={1}>
            <LaneLines layout={scale.layout} height={(range.to + 1 - range.from) * height} />
            <LocalArrows entries={entries} scale={scale} />
            <Messages arrows={arrows} scale={scale} />
            {Object.entries(eventPaths(entries, scale)).map(([kind, data]) => (
                <path key={kind} class={kind} d={data} />
            ))}
        </svg>
    );
}

const LaneLines = memo(function LaneLines({ layout, height }: { layout: LaneLayout; height: number }) {
    return (
        <>
            {layout.spans.map(({ cell, left, right }) => (
                <rect key={cell} class="ground" x={left} y={0} width={right - left} height={height} />
            ))}
            {layout.lanes.map((lane) => (
                <line key={lane.key} class={`lane ${lane.kind}`} x1={lane.x} y1={0} x2={lane.x} y2={height} />
            ))}
        </>
    );
});

function LocalArrows({ entries, scale }: { entries: Entry[]; scale: DrawingScale }) {
    const { statements, speech, refusals, tips, speechTips, refusalTips, labels, labelBackgrounds } = localPaths(entries, scale);
    return (
        <>
            <path class="local" d={statements} />
            <path class="local speech" d={speech} />
            <path class="local refusal" d={refusals} />
            <path class="local-tips" d={tips} />
            <path class="local-tips speech" d={speechTips} />
            <path class="local-tips refusal" d={refusalTips} />
            <path class="label-ground" d={labelBackgrounds} />
            {labels.map(({ x, y, text, isSpeech, isRefusal }, index) => (
                <text key={index} x={x} y={y} class={isRefusal ? "label refusal" : isSpeech ? "label speech" : "label"}>
                    {text}
                </text>
            ))}
        </>
    );
}

/** The fates of messages in the order in which they are drawn: lost messages are on top. */
const FATES = ["arrived", "ignored", "in-flight", "refused-in-flight", "refused", "lost"] as const;

function Messages({ arrows, scale }: { arrows: Arrow[]; scale: DrawingScale }) {
    const { lines, tips, bars, crosses, labelBackgrounds, labels } = messagePaths(arrows, scale);
    return (
        <>
            {FATES.map((fate) => (
                <path key={fate} class={`message ${fate}`} d={lines.get(fate) ?? ""} />
            ))}
            <path class="tips" d={tips} />
            <path class="bars" d={bars} />
            <path class="cross" d={crosses} />
            <path class="label-ground" d={labelBackgrounds} />
            {labels.map(({ x, y, text }, index) => (
                <text key={index} x={x} y={y} class="label">
                    {text}
                </text>
            ))}
        </>
    );
}

// Rows, the window of them that is drawn, and the lines of messages through them.
import { about } from "./happening";
import type { LaneLayout } from "./lanes";
import type { Arrow, Entry } from "./protocol";

/** Rows are drawn in blocks, so that scrolling within one changes nothing. */
export const BLOCK = 4;

/** A range of rows, the end excluded. */
export interface Range {
    from: number;
    to: number;
}

/** The rows of which anything is in sight at a place that is scrolled to. */
export function rowsInSight(scrollTop: number, height: number, rowHeight: number, length: number): Range {
    return { from: Math.min(length, Math.floor(scrollTop / rowHeight)), to: Math.min(length, Math.ceil((scrollTop + height) / rowHeight)) };
}

/** What to draw so that scrolling finds it there: the blocks of rows that are in sight, and one more on either side. */
export function withBlocksAround({ from, to }: Range, length: number): Range {
    const first = Math.floor(from / BLOCK) - 1;
    const last = Math.ceil(to / BLOCK) + 1;
    return { from: Math.max(0, first * BLOCK), to: Math.min(length, last * BLOCK) };
}

/** Where to scroll so that a row is well within sight; as it was where it is already. */
export function scrollTo(row: number, scrollTop: number, height: number, rowHeight: number): number {
    const top = row * rowHeight;
    const margin = Math.min(height / 3, rowHeight * 4);
    if (top < scrollTop + margin) return Math.max(0, top - margin);
    if (top + rowHeight > scrollTop + height - margin) return top + rowHeight - height + margin;
    return scrollTop;
}

/** Room beside what is scrolled to sideways: half a head, and half an envelope. */
const BESIDE = 36;

/** What is to be in sight of an event: where it happens, and the far end of its message; the same place without one. */
export interface Stretch {
    at: number;
    far: number;
}

/** Where to scroll sideways so that a stretch is in sight, or as much of it as fits from where the event is; as it was where all of it is already. */
export function scrollAcross({ at, far }: Stretch, scrollLeft: number, width: number): number {
    const beside = Math.min(BESIDE, width / 4);
    const [left, right] = [Math.min(at, far) - beside, Math.max(at, far) + beside];
    const isWhole = right - left <= width;
    if (isWhole ? left < scrollLeft : at <= far) return Math.max(0, left);
    return !isWhole || right > scrollLeft + width ? Math.max(0, right - width) : scrollLeft;
}

/** An event's stretch, among the messages of its row. None where time passes: that happens everywhere. */
export function stretchOf(entry: Entry, arrows: readonly Arrow[], layout: LaneLayout, length: number): Stretch | undefined {
    const { kind } = about(entry.event);
    if (kind === "wait") return undefined;
    const lost = kind === "drop" ? entry.lost[0] : undefined;
    const id = entry.arrived ?? lost ?? entry.sent[0]?.id;
    const arrow = arrows.find((one) => one.id === id);
    const here = layout.x(entry.lane);
    if (arrow === undefined) return { at: here, far: here };
    const { x1, x2 } = lineOf(arrow, layout, 1, length);
    const at = lost === undefined ? here : x2;
    return { at, far: Math.abs(x1 - at) > Math.abs(x2 - at) ? x1 : x2 };
}

/** A message's line on the screen. */
export interface Line {
    x1: number;
    y1: number;
    x2: number;
    y2: number;
}

/** The middle of a row. */
export function rowMiddle(row: number, rowHeight: number): number {
    return (row + 0.5) * rowHeight;
}

/** A message's line from where it was sent to where it ended, or to the end of the run while it is under way. */
export function lineOf(arrow: Arrow, layout: LaneLayout, rowHeight: number, length: number): Line {
    const end = arrow.ended ?? Math.max(length, arrow.sent + 1);
    const [x1, x2] = [layout.x(arrow.from), layout.x(arrow.to)];
    const line = { x1, y1: rowMiddle(arrow.sent, rowHeight), x2, y2: rowMiddle(end, rowHeight) };
    // One that was lost, or is still under way, has not got there.
    return arrow.how === "lost" || arrow.ended === undefined ? { ...line, x2: x1 + (x2 - x1) * 0.72 } : line;
}

/** The point of a line at a height, as near as the line has one. */
export function pointAt(line: Line, y: number): { x: number; y: number } {
    const share = line.y2 === line.y1 ? 0.5 : (y - line.y1) / (line.y2 - line.y1);
    const within = Math.min(1, Math.max(0, share));
    return { x: line.x1 + (line.x2 - line.x1) * within, y: line.y1 + (line.y2 - line.y1) * within };
}

/** Whether a message is under way once so many events have happened. */
export function isUnderWay(arrow: Arrow, position: number): boolean {
    return arrow.sent < position && (arrow.ended === undefined || arrow.ended >= position);
}

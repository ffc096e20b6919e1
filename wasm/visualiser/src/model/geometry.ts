// Computes the geometry of the lanes: the rows to render, the scroll offsets that show an event,
// and the lines of messages.
import { partsOf } from "./events";
import type { LaneLayout } from "./lanes";
import type { Arrow, Entry } from "./protocol";
import type { RowScale } from "./row_scale";

/**
 * The number of rows in a block. Rows are rendered in whole blocks, so scrolling within a block
 * renders nothing new.
 */
export const BLOCK_ROWS = 4;

/** A range of rows: from row `from` up to, not including, row `to`. */
export interface RowRange {
    from: number;
    to: number;
}

/** Returns the rows that are at least partly visible at a vertical scroll offset. */
export function visibleRows(scrollTop: number, height: number, rows: RowScale): RowRange {
    // A scroll offset is negative while a browser bounces, and a height before the first layout.
    const inRun = (row: number): number => Math.max(0, Math.min(rows.count, row));
    return { from: inRun(Math.floor(scrollTop / rows.height)), to: inRun(Math.ceil((scrollTop + height) / rows.height)) };
}

/**
 * Returns the rows to render if `from` to `to` are visible: whole blocks, and one more block on
 * each side for fast scrolling.
 */
export function rowsToRender({ from, to }: RowRange, count: number): RowRange {
    const first = Math.floor(from / BLOCK_ROWS) - 1;
    const last = Math.ceil(to / BLOCK_ROWS) + 1;
    return { from: Math.max(0, first * BLOCK_ROWS), to: Math.min(count, last * BLOCK_ROWS) };
}

/**
 * Returns the vertical scroll offset that shows a row with a margin. If the row is visible already,
 * returns the present offset.
 */
export function scrollTopFor(row: number, scrollTop: number, height: number, rowHeight: number): number {
    const top = row * rowHeight;
    // In a low window the margin must leave room for the row itself.
    const margin = Math.max(0, Math.min(height / 3, rowHeight * 4, (height - rowHeight) / 2));
    if (top < scrollTop + margin) return Math.max(0, top - margin);
    if (top + rowHeight > scrollTop + height - margin) return top + rowHeight - height + margin;
    return scrollTop;
}

/** The margin beside a visible event, in pixels: half of a lane's head, and half of an envelope. */
const SIDE_MARGIN = 36;

/**
 * The horizontal positions of an event: that of its own lane, and that of the other end of its
 * message. Both are equal if the event has no message.
 */
export interface EventExtent {
    x: number;
    farX: number;
}

/**
 * Returns the horizontal scroll offset that shows an event. If the event's two ends do not fit into
 * the window, the offset shows the event's own lane. If both ends are visible already, returns the
 * present offset.
 */
export function scrollLeftFor({ x, farX }: EventExtent, scrollLeft: number, width: number): number {
    const margin = Math.min(SIDE_MARGIN, width / 4);
    const [left, right] = [Math.min(x, farX) - margin, Math.max(x, farX) + margin];
    const fits = right - left <= width;
    if (fits ? left < scrollLeft : x <= farX) return Math.max(0, left);
    return !fits || right > scrollLeft + width ? Math.max(0, right - width) : scrollLeft;
}

/**
 * Returns the horizontal positions of an event, given the messages that its row shows. Returns
 * `undefined` for a wait, which belongs to no lane.
 */
export function extentOf(entry: Entry, arrows: readonly Arrow[], layout: LaneLayout): EventExtent | undefined {
    const { kind } = partsOf(entry.event);
    if (kind === "wait") return undefined;
    const lost = kind === "drop" ? entry.lost[0] : undefined;
    const id = entry.arrived ?? lost ?? entry.sent[0]?.id;
    const arrow = arrows.find((other) => other.id === id);
    const laneX = layout.x(entry.lane);
    if (arrow === undefined) return { x: laneX, farX: laneX };
    const { x1, x2 } = lineEnds(arrow, layout);
    const x = lost === undefined ? laneX : x2;
    return { x, farX: Math.abs(x1 - x) > Math.abs(x2 - x) ? x1 : x2 };
}

/** The two ends of a message's line, in pixels. */
export interface MessageLine {
    x1: number;
    y1: number;
    x2: number;
    y2: number;
}

/**
 * The share of the way to the receiver at which the line of a message ends if the message was lost,
 * or is still in flight at the end of the run.
 */
const UNFINISHED_SHARE = 0.72;

/**
 * Returns the line of a message from its sending to its arrival or loss. A message in flight at the
 * end of the run has a line to that end.
 */
export function messageLine(arrow: Arrow, layout: LaneLayout, rows: RowScale): MessageLine {
    const end = arrow.ended ?? Math.max(rows.length, arrow.sent + 1);
    return { ...lineEnds(arrow, layout), y1: rows.middle(arrow.sent), y2: rows.middle(end) };
}

function lineEnds(arrow: Arrow, layout: LaneLayout): Pick<MessageLine, "x1" | "x2"> {
    const [x1, x2] = [layout.x(arrow.from), layout.x(arrow.to)];
    const hasArrived = arrow.how !== "lost" && arrow.ended !== undefined;
    return { x1, x2: hasArrived ? x2 : x1 + (x2 - x1) * UNFINISHED_SHARE };
}

/**
 * Returns the point of a line at the height `y`, or the nearer end of the line if it does not reach
 * that height.
 */
export function pointAt(line: MessageLine, y: number): { x: number; y: number } {
    const share = line.y2 === line.y1 ? 0.5 : (y - line.y1) / (line.y2 - line.y1);
    const bounded = Math.min(1, Math.max(0, share));
    return { x: line.x1 + (line.x2 - line.x1) * bounded, y: line.y1 + (line.y2 - line.y1) * bounded };
}

/** Returns true if a message is in flight when the run is at this position. */
export function isInFlight(arrow: Arrow, position: number): boolean {
    return arrow.sent < position && (arrow.ended === undefined || arrow.ended >= position);
}

// Computes the SVG paths of messages and events in the lanes. All lines of messages with
// the same fate (arrived, lost, in flight …) share one path, and so do all events that are drawn
// alike, because a browser spends time on each SVG element in every frame.
import { partsOf } from "./events";
import { type MessageLine, messageLine, pointAt, rowMiddle } from "./geometry";
import type { LaneLayout } from "./lanes";
import type { Arrow, Entry } from "./protocol";

/**
 * The fate of a message. It is also the CSS class that decides the style of the message's line
 * (`styles/lanes.css`).
 */
export type Fate = "in-flight" | NonNullable<Arrow["how"]>;

/** The text label of a message, with its position beside the message's line. */
export interface Label {
    x: number;
    y: number;
    text: string;
}

/** The SVG path data of all messages, and their labels. */
export interface MessagePaths {
    lines: ReadonlyMap<Fate, string>;
    tips: string;
    crosses: string;
    labels: Label[];
    labelBackgrounds: string;
}

/**
 * The measures of a drawing: the layout of the lanes, the height of a row in pixels, and the length
 * of the run in events.
 */
export interface DrawingScale {
    layout: LaneLayout;
    rowHeight: number;
    length: number;
    hasLabels: boolean;
}

const CROSS_SIZE = 6;

/**
 * Returns the SVG paths of messages. The line of a lost message ends in a cross, every other line
 * in an arrow tip.
 */
export function messagePaths(arrows: readonly Arrow[], scale: DrawingScale): MessagePaths {
    const lines = new Map<Fate, string>();
    const paths = { tips: "", crosses: "", labelBackgrounds: "", labels: [] as Label[] };
    for (const arrow of arrows) {
        const fate = arrow.ended === undefined ? "in-flight" : (arrow.how ?? "arrived");
        const line = messageLine(arrow, scale.layout, scale.rowHeight, scale.length);
        lines.set(fate, `${lines.get(fate) ?? ""}M${round(line.x1)} ${round(line.y1)}L${round(line.x2)} ${round(line.y2)}`);
        if (fate === "lost") paths.crosses += cross(line.x2, line.y2);
        else paths.tips += tip(line);
        const label = scale.hasLabels ? labelFor(arrow, line, scale.rowHeight) : undefined;
        if (label === undefined) continue;
        paths.labels.push(label);
        paths.labelBackgrounds += labelBackground(label);
    }
    return { lines, ...paths };
}

/**
 * The measures of an arrow's tip in pixels: its length, the part of it beyond the end of the line,
 * and half of its width.
 */
const [TIP_LENGTH, TIP_BEYOND, TIP_HALF_WIDTH] = [10.4, 1.5, 5.9];

function tip({ x1, y1, x2, y2 }: MessageLine): string {
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [x, y] = [(x2 - x1) / length, (y2 - y1) / length];
    const corner = (along: number, aside: number) => `${round(x2 + x * along - y * aside)} ${round(y2 + y * along + x * aside)}`;
    return `M${corner(TIP_BEYOND, 0)}L${corner(-TIP_LENGTH, TIP_HALF_WIDTH)}L${corner(-TIP_LENGTH, -TIP_HALF_WIDTH)}z`;
}

/**
 * The length of a message's line from which it gets a label, in pixels. A shorter one has no room.
 */
const MIN_LABELLED_LENGTH = 44;
/**
 * The average width of a letter and the height of a label, in pixels, for the style sheet's font.
 */
const [LETTER_WIDTH, LABEL_HEIGHT] = [6.2, 11];

/**
 * Returns the label of a message, or `undefined` if its line is too short. The label is near the
 * start of the line: most messages arrive soon, and people look for a late one where it was sent.
 */
function labelFor(arrow: Arrow, line: MessageLine, rowHeight: number): Label | undefined {
    const room = Math.abs(line.x2 - line.x1);
    if (room <= MIN_LABELLED_LENGTH) return undefined;
    const { x, y } = pointAt(line, line.y1 + Math.min((line.y2 - line.y1) / 2, rowHeight / 2));
    return { x: round(x), y: round(y - 5), text: shorten(arrow.says, room) };
}

function shorten(text: string, room: number): string {
    const letters = Math.max(8, Math.floor(room / LETTER_WIDTH) - 2);
    return text.length <= letters ? text : `${text.slice(0, letters - 1).trimEnd()}…`;
}

function labelBackground({ x, y, text }: Label): string {
    const width = text.length * LETTER_WIDTH * 0.9;
    return `M${round(x - width / 2)} ${round(y - LABEL_HEIGHT + 2)}h${round(width)}v${LABEL_HEIGHT}h${round(-width)}z`;
}

/** The SVG path data of events, by the CSS class of each kind (`styles/lanes.css`). */
export type EventPaths = Record<"passing" | "violated" | "cross" | "happened commit" | "happened fired" | "happened", string>;

/** Returns the SVG paths of events. Each event is a mark on its lane. */
export function eventPaths(entries: readonly Entry[], { layout, rowHeight }: DrawingScale): EventPaths {
    const paths: EventPaths = { passing: "", violated: "", cross: "", "happened commit": "", "happened fired": "", happened: "" };
    for (const entry of entries) {
        const { kind } = partsOf(entry.event);
        const y = rowMiddle(entry.position, rowHeight);
        if (kind === "wait") paths.passing += `M0 ${y}H${round(layout.width)}`;
        // The drop of a message gets no mark, because the line of the lost message ends in a cross.
        // A wait has no lane.
        if (kind === "wait" || kind === "drop") continue;
        const x = round(layout.x(entry.lane));
        if (entry.violation) paths.violated += `M${x} ${y - 9}l10 17h-20z`;
        else if (entry.fault) paths.cross += cross(x, y);
        else if (kind === "finish_commit") paths["happened commit"] += `M${x - 5} ${y - 5}h10v10h-10z`;
        else if (entry.fired.length > 0) paths["happened fired"] += circle(x, y, 5);
        else paths.happened += circle(x, y, 3.5);
    }
    return paths;
}

function cross(x: number, y: number): string {
    const [left, top, size] = [round(x - CROSS_SIZE), round(y - CROSS_SIZE), CROSS_SIZE * 2];
    return `M${left} ${top}l${size} ${size}M${round(x + CROSS_SIZE)} ${top}l${-size} ${size}`;
}

function circle(x: number, y: number, radius: number): string {
    return `M${round(x - radius)} ${y}a${radius} ${radius} 0 1 1 0 .01z`;
}

/**
 * Returns a length rounded to a tenth of a pixel. Smaller differences are invisible, and would make
 * the path data longer.
 */
function round(pixels: number): number {
    return Math.round(pixels * 10) / 10;
}

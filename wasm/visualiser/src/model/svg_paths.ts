// Computes the SVG paths of messages and events in the lanes. All lines of messages with
// the same fate (arrived, lost, in flight …) share one path, and so do all events that are drawn
// alike, because a browser spends time on each SVG element in every frame.
import { partsOf, processParts } from "./events";
import { type MessageLine, messageLine } from "./geometry";
import { laneKey, type LaneLayout } from "./lanes";
import { type LocalArrow, localArrows } from "./local_arrows";
import { plainText } from "./message_texts";
import type { Arrow, Entry, Lane } from "./protocol";
import type { RowScale } from "./row_scale";

/**
 * The fate of a message. It is also the CSS class that decides the style of the message's line
 * (`styles/lanes.css`).
 */
export type Fate = "in-flight" | "refused" | "refused-in-flight" | NonNullable<Arrow["how"]>;

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
    /** The ends of refusals. */
    bars: string;
    crosses: string;
    labels: Label[];
    labelBackgrounds: string;
}

/** The measures of a drawing: the layout of the lanes, and the rows of the run. */
export interface DrawingScale {
    layout: LaneLayout;
    rows: RowScale;
    /**
     * The row at whose upper edge the drawing begins. Browsers store a coordinate as a 32-bit float,
     * so marks would lose their shapes far below a fixed beginning.
     */
    firstRow: number;
    hasLabels: boolean;
}

const CROSS_SIZE = 6;

/**
 * Returns the SVG paths of messages. The line of a lost message ends in a cross, that of a refusal in
 * a bar, and every other line in an arrow tip.
 */
export function messagePaths(arrows: readonly Arrow[], scale: DrawingScale): MessagePaths {
    const lines = new Map<Fate, string>();
    const paths = { tips: "", bars: "", crosses: "", labelBackgrounds: "", labels: [] as Label[] };
    for (const arrow of arrows) {
        const fate = fateOf(arrow);
        const line = raised(messageLine(arrow, scale.layout, scale.rows), scale);
        lines.set(fate, `${lines.get(fate) ?? ""}M${round(line.x1)} ${round(line.y1)}L${round(line.x2)} ${round(line.y2)}`);
        if (fate === "lost") paths.crosses += cross(line.x2, line.y2);
        else if (arrow.refused) paths.bars += bar(line);
        else paths.tips += tip(line);
        const label = scale.hasLabels ? labelFor(arrow, line) : undefined;
        if (label !== undefined) addApart(paths.labels, label);
    }
    paths.labelBackgrounds = paths.labels.map(labelBackground).join("");
    return { lines, ...paths };
}

function overlap(one: Label, other: Label): boolean {
    return Math.abs(one.y - other.y) < LABEL_HEIGHT && Math.abs(one.x - other.x) < (labelWidth(one.text) + labelWidth(other.text)) / 2;
}

/** The distance between the baselines of two labels in one row, in pixels. */
const LINE_HEIGHT = 12;

/**
 * Adds a label. An event that sends several messages has their labels in its row: where two would
 * cover each other, one is above the other, and a third is left out.
 */
function addApart(labels: Label[], label: Label): void {
    const covered = labels.filter((other) => overlap(other, label));
    if (covered.length === 0) return void labels.push(label);
    if (covered.length > 1 || covered[0]?.y !== label.y) return;
    labels.push({ ...label, y: label.y + LINE_HEIGHT });
}

function fateOf({ ended, how = "arrived", refused }: Arrow): Fate {
    if (ended === undefined) return refused ? "refused-in-flight" : "in-flight";
    return refused && how === "arrived" ? "refused" : how;
}

/** Returns a line with its heights counted from the first row of the drawing. */
function raised(line: MessageLine, scale: DrawingScale): MessageLine {
    const top = topOf(scale);
    return { ...line, y1: line.y1 - top, y2: line.y2 - top };
}

/** Returns the height at which a drawing begins. */
function topOf({ firstRow, rows }: DrawingScale): number {
    return firstRow * rows.height;
}

/** Half of the length of the bar at the end of a refusal, in pixels. */
const BAR_HALF = 7;

/** Returns the bar across the end of a refusal's line. */
function bar({ x1, y1, x2, y2 }: MessageLine): string {
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [x, y] = [((x2 - x1) / length) * BAR_HALF, ((y2 - y1) / length) * BAR_HALF];
    return `M${round(x2 - y)} ${round(y2 + x)}L${round(x2 + y)} ${round(y2 - x)}`;
}

/** The part of an arrow's tip beyond the end of the line, in pixels. */
const TIP_BEYOND = 1.5;
/** The length of a tip and half of its width, in pixels: of a message, and of an arrow within a cell. */
const MESSAGE_TIP = { length: 10.4, half: 5.9 };
const LOCAL_TIP = { length: 8, half: 4 };

function tip({ x1, y1, x2, y2 }: MessageLine, { length: long, half } = MESSAGE_TIP): string {
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [x, y] = [(x2 - x1) / length, (y2 - y1) / length];
    const corner = (along: number, aside: number) => `${round(x2 + x * along - y * aside)} ${round(y2 + y * along + x * aside)}`;
    return `M${corner(TIP_BEYOND, 0)}L${corner(-long, half)}L${corner(-long, -half)}z`;
}

/**
 * The length of a message's line from which it gets a label, in pixels. A shorter one has no room.
 */
const MIN_LABELLED_LENGTH = 44;
/** The height of a label in pixels, for the style sheet's font. */
const LABEL_HEIGHT = 11;
/** The distance of a label's baseline above the middle of its row, in pixels. */
const LABEL_RISE = 3;
/**
 * The distance of a label from the lane of the sender, in pixels. The tip of an arrow that ends there
 * is shorter, so it never lies on the label.
 */
const LABEL_DISTANCE = 14;
/** The part of a message's line, in pixels, that its label leaves free at the end. */
const LABEL_END = 4;

/**
 * Returns the label of a message, or `undefined` if its line is too short. The label is above the
 * beginning of the line, in the row in which the message was sent: people look for a late message
 * there, and the line falls from there on. Envelopes lie between two rows, so they never lie on a label.
 */
function labelFor(arrow: Arrow, line: MessageLine): Label | undefined {
    const room = Math.abs(line.x2 - line.x1);
    if (room <= MIN_LABELLED_LENGTH) return undefined;
    const text = shorten(plainText(arrow.says), room - LABEL_DISTANCE - LABEL_END);
    if (text === undefined) return undefined;
    const fromSender = LABEL_DISTANCE + labelWidth(text) / 2;
    return { x: round(line.x1 + Math.sign(line.x2 - line.x1) * fromSender), y: round(line.y1 - LABEL_RISE), text };
}

/** The least number of letters to which a label is shortened. With fewer, it would say nothing. */
const MIN_SHORTENED_LETTERS = 6;

/**
 * Returns a text with at most this width in pixels, or `undefined` if too few letters have room. No
 * number is cut: a part of it would be another number.
 */
function shorten(text: string, room: number): string | undefined {
    if (labelWidth(text) <= room) return text;
    let letters = text.length - 1;
    const head = () => (/^\d/u.test(text.slice(letters)) ? text.slice(0, letters).replace(/\d+$/u, "") : text.slice(0, letters));
    const shortened = () => `${head().replace(/[\s,:]+$/u, "")}…`;
    while (letters > 0 && labelWidth(shortened()) > room) letters -= 1;
    return shortened().length < MIN_SHORTENED_LETTERS ? undefined : shortened();
}

/** The widths of letters in pixels, for the style sheet's widest font; all other letters have `OTHER_WIDTH`. */
const LETTER_WIDTHS: readonly [RegExp, number][] = [
    [/[ijl'|]/u, 3.3],
    [/[ .,:;I]/u, 3.8],
    [/[frt()]/u, 4.8],
    [/[cs“”]/u, 6.4],
    [/[mMwW…]/u, 11],
    [/[A-Z]/u, 8.2],
];
const OTHER_WIDTH = 7.2;

/** Returns the width of a label in pixels, which is never less than the drawn width. */
export function labelWidth(text: string): number {
    return [...text].reduce((sum, letter) => sum + (LETTER_WIDTHS.find(([letters]) => letters.test(letter))?.[1] ?? OTHER_WIDTH), 0);
}

function labelBackground(label: Label): string {
    const { x, y } = label;
    const width = labelWidth(label.text);
    return `M${round(x - width / 2)} ${round(y - LABEL_HEIGHT + 2)}h${round(width)}v${LABEL_HEIGHT}h${round(-width)}z`;
}

/** Half of the height of an envelope, the height of a letter above its baseline, and below it, in pixels. */
const [ENVELOPE_HALF, LETTER_HEIGHT, LABEL_DESCENT] = [7, 9, 3];
/** The distance of the baseline of a local arrow's label above its line, in pixels. */
const LOCAL_LABEL_RISE = 4;
/** The parts of a local arrow, in pixels, over which its label never lies: the mark at its beginning, and the lane at its end. */
const [LOCAL_START, LOCAL_END] = [6, 3];

/** The SVG path data of the arrows within cells, and their labels. */
export interface LocalPaths {
    statements: string;
    speech: string;
    refusals: string;
    tips: string;
    speechTips: string;
    refusalTips: string;
    labels: (Label & Pick<LocalArrow, "isSpeech" | "isRefusal">)[];
    labelBackgrounds: string;
}

/** The arrows of one row from one participant to another, which have one label. */
interface ArrowGroup {
    arrow: LocalArrow;
    says: string[];
    heights: number[];
    /** The upper edge of the row. */
    top: number;
    /** True if the row has further events. */
    isShared: boolean;
}

/**
 * Returns the SVG paths of the arrows within cells. Each is level, because its event has no
 * duration, and its label is above it. The arrows of steps that share a row have one label.
 */
export function localPaths(entries: readonly Entry[], scale: DrawingScale): LocalPaths {
    const paths: LocalPaths = { statements: "", speech: "", refusals: "", tips: "", speechTips: "", refusalTips: "", labels: [], labelBackgrounds: "" };
    const groups = new Map<string, ArrowGroup>();
    for (const entry of entries) {
        const y = round(scale.rows.middle(entry.position) - topOf(scale));
        const row = scale.rows.rowOf(entry.position);
        for (const arrow of localArrows(entry)) {
            addLocalArrow(paths, arrow, y, scale.layout);
            const key = `${row} ${laneKey(arrow.from)} ${laneKey(arrow.to)}`;
            const group = groups.get(key) ?? { arrow, says: [], heights: [], top: row * scale.rows.height - topOf(scale), isShared: scale.rows.isShared(entry.position) };
            groups.set(key, { ...group, says: [...group.says, arrow.says], heights: [...group.heights, y] });
        }
    }
    if (scale.hasLabels) for (const group of groups.values()) addLocalLabel(paths, group, scale);
    return paths;
}

function addLocalArrow(paths: LocalPaths, { from, to, isSpeech, isRefusal }: LocalArrow, y: number, layout: LaneLayout): void {
    const line = { x1: layout.x(from), y1: y, x2: layout.x(to), y2: y };
    paths[isRefusal ? "refusals" : isSpeech ? "speech" : "statements"] += `M${round(line.x1)} ${y}H${round(line.x2)}`;
    paths[isRefusal ? "refusalTips" : isSpeech ? "speechTips" : "tips"] += tip(line, LOCAL_TIP);
}

function addLocalLabel(paths: LocalPaths, group: ArrowGroup, { layout, rows }: DrawingScale): void {
    const { arrow, says } = group;
    const [x1, x2] = [layout.x(arrow.from), layout.x(arrow.to)];
    // A row can have an arrow on both sides of a worker, so a label must not be wider than its arrow. In
    // a row of several events it is not above its arrow, but between arrows.
    const room = Math.abs(x2 - x1) - LOCAL_START - (group.isShared ? LOCAL_TIP.length + 1 : LOCAL_END);
    const text = shortenGroup(says, room);
    if (text === undefined) return;
    // A short label keeps away from the tip, too.
    const free = room - labelWidth(text) - (group.isShared ? 0 : LOCAL_TIP.length);
    const fromStart = LOCAL_START + Math.max(0, free) / 2 + labelWidth(text) / 2;
    const x = round(x1 + Math.sign(x2 - x1) * fromStart);
    const label = { x, y: round(baselineOf(group, rows.height)), text, isSpeech: arrow.isSpeech, isRefusal: arrow.isRefusal };
    // Two arrows of a shared row may run between the same lanes.
    if (paths.labels.some((other) => overlap(other, label))) return;
    paths.labels.push(label);
    paths.labelBackgrounds += labelBackground(label);
}

/**
 * Returns the label of the arrows that share one, with at most this width in pixels. The last
 * statements are kept, because a COMMIT is the last one. Returns `undefined` if nothing can be read.
 */
function shortenGroup(says: readonly string[], room: number): string | undefined {
    const choices = says.map((_, first) => `${first > 0 ? "…, " : ""}${says.slice(first).join(", ")}`);
    const whole = choices.find((text) => labelWidth(text) <= room);
    return whole ?? shorten(says.at(-1) ?? "", room);
}

/** Returns the height of the baseline of a label: between the envelopes at both edges of the row, and on no arrow if there is room. */
function baselineOf({ heights, top }: ArrowGroup, rowHeight: number): number {
    const [highest, lowest] = [top + ENVELOPE_HALF + LETTER_HEIGHT, top + rowHeight - ENVELOPE_HALF - LABEL_DESCENT];
    const choices = heights.map((height) => Math.min(lowest, Math.max(highest, height - LOCAL_LABEL_RISE)));
    const isFree = (baseline: number) => heights.every((height) => height <= baseline - LETTER_HEIGHT || height > baseline + 1);
    return choices.find(isFree) ?? choices[0] ?? highest;
}

/** The SVG path data of events, by the CSS class of each kind (`styles/lanes.css`). */
export type EventPaths = Record<"passing" | "violated" | "cross" | "refused" | "happened commit" | "happened fired" | "happened", string>;

/** Returns the SVG paths of events. Each event is a mark on its lane. */
export function eventPaths(entries: readonly Entry[], scale: DrawingScale): EventPaths {
    const { layout, rows } = scale;
    const paths: EventPaths = { passing: "", violated: "", cross: "", refused: "", "happened commit": "", "happened fired": "", happened: "" };
    for (const entry of entries) {
        const { kind } = partsOf(entry.event);
        const y = round(rows.middle(entry.position) - topOf(scale));
        if (kind === "wait") paths.passing += `M0 ${y}H${round(layout.width)}`;
        // The drop of a message gets no mark, because the line of the lost message ends in a cross.
        // A wait has no lane.
        if (kind === "wait" || kind === "drop") continue;
        const x = round(layout.x(laneOfMark(entry)));
        if (entry.violation) paths.violated += `M${x} ${y - 9}l10 17h-20z`;
        else if (entry.fault) paths.cross += cross(x, y);
        else if (entry.refused) paths.refused += refusal(x, y);
        else if (kind === "finish_commit") paths["happened commit"] += `M${x - 5} ${y - 5}h10v10h-10z`;
        else if (entry.fired.length > 0) paths["happened fired"] += circle(x, y, 5);
        else paths.happened += circle(x, y, 3.5);
    }
    return paths;
}

/**
 * Returns the lane of an event's mark: that of the database if it refused the step of a worker or of
 * the verifier, otherwise that of the event.
 */
function laneOfMark({ event, lane, refused }: Entry): Lane {
    const { kind, cell, process } = partsOf(event);
    if (!refused || kind !== "step" || cell === undefined || process === undefined) return lane;
    return ["worker", "verifier"].includes(processParts(process).kind) ? { database: cell } : lane;
}

function cross(x: number, y: number): string {
    const [left, top, size] = [round(x - CROSS_SIZE), round(y - CROSS_SIZE), CROSS_SIZE * 2];
    return `M${left} ${top}l${size} ${size}M${round(x + CROSS_SIZE)} ${top}l${-size} ${size}`;
}

/** Half of the width of the mark of a refusal, and half of that of the bar in it, in pixels. */
const [REFUSAL_HALF, REFUSAL_BAR_HALF] = [8, 3.5];

/** Returns the mark of a refusal: a diamond with a bar, as on a sign that forbids the entry. */
function refusal(x: number, y: number): string {
    const [size, half] = [REFUSAL_HALF, REFUSAL_BAR_HALF];
    return `M${x} ${y - size}l${size} ${size}l${-size} ${size}l${-size} ${-size}zm${-half} ${size}h${half * 2}`;
}

/** Returns a circle as two half circles. An arc that ends where it begins is not drawn. */
function circle(x: number, y: number, radius: number): string {
    const half = `a${radius} ${radius} 0 0 1`;
    return `M${round(x - radius)} ${y}${half} ${radius * 2} 0${half} ${-radius * 2} 0z`;
}

/**
 * Returns a length rounded to a tenth of a pixel. Smaller differences are invisible, and would make
 * the path data longer.
 */
function round(pixels: number): number {
    return Math.round(pixels * 10) / 10;
}

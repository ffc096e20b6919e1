// What the lanes show of messages and events, as few long paths: one element a kind, since each costs a picture of its own time.
import { about } from "./happening";
import { type Line, lineOf, pointAt, rowMiddle } from "./geometry";
import type { LaneLayout } from "./lanes";
import type { Arrow, Entry } from "./protocol";

/** What became of a message, as its line is drawn. */
export type Fate = "flying" | NonNullable<Arrow["how"]>;

/** A message's words, beside its line. */
export interface Label {
    x: number;
    y: number;
    text: string;
}

/** Messages: the data of their paths, by kind, and their words. */
export interface MessagePaths {
    lines: ReadonlyMap<Fate, string>;
    tips: string;
    crosses: string;
    labels: Label[];
    /** What is behind the words. */
    grounds: string;
}

/** Where messages are drawn: heights in pixels, the length of the run in events. */
export interface Scale {
    place: LaneLayout;
    rowHeight: number;
    length: number;
    hasLabels: boolean;
}

const CROSS = 6;

/** The lines of messages, each with its tip where it has arrived, or its cross where it was lost. */
export function messagePaths(arrows: readonly Arrow[], scale: Scale): MessagePaths {
    const lines = new Map<Fate, string>();
    const found = { tips: "", crosses: "", grounds: "", labels: [] as Label[] };
    for (const arrow of arrows) {
        const fate = arrow.ended === undefined ? "flying" : (arrow.how ?? "arrived");
        const line = lineOf(arrow, scale.place, scale.rowHeight, scale.length);
        lines.set(fate, `${lines.get(fate) ?? ""}M${round(line.x1)} ${round(line.y1)}L${round(line.x2)} ${round(line.y2)}`);
        if (fate === "lost") found.crosses += cross(line.x2, line.y2);
        else found.tips += tip(line);
        const label = scale.hasLabels ? labelOf(arrow, line, scale.rowHeight) : undefined;
        if (label === undefined) continue;
        found.labels.push(label);
        found.grounds += ground(label);
    }
    return { lines, ...found };
}

/** How long an arrow's tip is, how far it goes beyond its line's end, and half its width. */
const [TIP, BEYOND, HALF] = [10.4, 1.5, 5.9];

function tip({ x1, y1, x2, y2 }: Line): string {
    const far = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [x, y] = [(x2 - x1) / far, (y2 - y1) / far];
    const corner = (along: number, aside: number) => `${round(x2 + x * along - y * aside)} ${round(y2 + y * along + x * aside)}`;
    return `M${corner(BEYOND, 0)}L${corner(-TIP, HALF)}L${corner(-TIP, -HALF)}z`;
}

const LABEL_ROOM = 44;
/** How wide a letter is, on average, and how high a line of words. */
const [LETTER, LINE] = [6.2, 11];

/** A message's words. One that arrives long after, as most do not, is labelled where it was sent. */
function labelOf(arrow: Arrow, line: Line, rowHeight: number): Label | undefined {
    const room = Math.abs(line.x2 - line.x1);
    if (room <= LABEL_ROOM) return undefined;
    const { x, y } = pointAt(line, line.y1 + Math.min((line.y2 - line.y1) / 2, rowHeight / 2));
    return { x: round(x), y: round(y - 5), text: shorten(arrow.says, room) };
}

function shorten(text: string, room: number): string {
    const letters = Math.max(8, Math.floor(room / LETTER) - 2);
    return text.length <= letters ? text : `${text.slice(0, letters - 1).trimEnd()}…`;
}

function ground({ x, y, text }: Label): string {
    const width = text.length * LETTER * 0.9;
    return `M${round(x - width / 2)} ${round(y - LINE + 2)}h${round(width)}v${LINE}h${round(-width)}z`;
}

/** Events: the data of their paths, by kind. */
export type EventPaths = Record<"passing" | "violated" | "cross" | "happened commit" | "happened fired" | "happened", string>;

/** What happened, each event on its lane. */
export function eventPaths(entries: readonly Entry[], { place, rowHeight }: Scale): EventPaths {
    const paths: EventPaths = { passing: "", violated: "", cross: "", "happened commit": "", "happened fired": "", happened: "" };
    for (const entry of entries) {
        const { kind } = about(entry.event);
        const y = rowMiddle(entry.position, rowHeight);
        if (kind === "wait") paths.passing += `M0 ${y}H${round(place.width)}`;
        // The message's own line ends in a cross.
        if (kind === "wait" || kind === "drop") continue;
        const x = round(place.x(entry.lane));
        if (entry.violation) paths.violated += `M${x} ${y - 9}l10 17h-20z`;
        else if (entry.fault) paths.cross += cross(x, y);
        else if (kind === "finish_commit") paths["happened commit"] += `M${x - 5} ${y - 5}h10v10h-10z`;
        else if (entry.fired.length > 0) paths["happened fired"] += circle(x, y, 5);
        else paths.happened += circle(x, y, 3.5);
    }
    return paths;
}

function cross(x: number, y: number): string {
    const [left, top, far] = [round(x - CROSS), round(y - CROSS), CROSS * 2];
    return `M${left} ${top}l${far} ${far}M${round(x + CROSS)} ${top}l${-far} ${far}`;
}

function circle(x: number, y: number, radius: number): string {
    return `M${round(x - radius)} ${y}a${radius} ${radius} 0 1 1 0 .01z`;
}

/** A tenth of a pixel is nothing that anybody sees. */
function round(pixels: number): number {
    return Math.round(pixels * 10) / 10;
}

// The page's whole state as the part of a URL after the `#`: readable where it is short, compressed where it is long.
import type { Happening, Rule, Settings } from "./protocol";
import type { Bends, Origin } from "./run";
import { RULE_NAMES } from "./words";

/** What the page shows besides the run. */
export interface ViewOptions {
    /** Events a second. */
    speed: number;
    /** Whether lanes are shown in which nothing happens. */
    allLanes: boolean;
}

/** A search for a violation that found nothing: of which small world, and how much of it was looked at, which was all. */
export interface Searched {
    rule: Rule;
    /** Whether the world was without the rule. */
    isOff: boolean;
    states: number;
    events: number;
}

/** All that a link says. */
export interface LinkState {
    origin: Origin;
    /** Rules that are off although the scenario has them on. */
    rulesOff: Rule[];
    bends?: Bends;
    position: number;
    view: ViewOptions;
    searched?: Searched;
}

/** What is said of a link that cannot be read. */
export const DAMAGED = "the link is damaged or was cut short: ask whoever sent it for it once more";

/** A link that cannot be read, in words. */
export class LinkError extends Error {
    override name = "LinkError";
}

export const DEFAULT_VIEW: ViewOptions = { speed: 2, allLanes: false };

/** A link longer than this is refused by some programs that people send links with. */
export const LONG_LINK = 8000;

interface Packed {
    settings?: Settings;
    title?: string;
    events?: Happening[];
}

/** The part of the URL after the `#`. */
export async function encodeLink(state: LinkState): Promise<string> {
    const packed = packedOf(state);
    return linkWords(state, packed && (await compress(packed)));
}

/** Writes links one after the other, at once where there is no time to compress. */
export class LinkWriter {
    private packed: string | undefined;
    private z: string | undefined;

    /** The same as `encodeLink`; what it compresses is remembered. */
    async write(state: LinkState): Promise<string> {
        const packed = packedOf(state);
        const z = packed === this.packed ? this.z : packed && (await compress(packed));
        [this.packed, this.z] = [packed, z];
        return linkWords(state, z);
    }

    /** The same without waiting: longer where what is to be packed is not what was packed last. */
    writeNow(state: LinkState): string {
        const packed = packedOf(state);
        return linkWords(state, packed === this.packed ? this.z : packed && toUrl(stored(new TextEncoder().encode(packed))));
    }
}

function linkWords(state: LinkState, z: string | undefined): string {
    const { origin, bends, view, searched } = state;
    const words = new URLSearchParams();
    words.set(origin.kind, origin.kind === "scenario" ? origin.id : origin.kind === "free" ? String(origin.chance) : "1");
    if (state.rulesOff.length > 0 && origin.kind === "scenario") words.set("off", state.rulesOff.join("."));
    if (bends) words.set("kept", String(bends.kept));
    words.set("at", String(state.position));
    if (view.speed !== DEFAULT_VIEW.speed) words.set("speed", String(view.speed));
    if (view.allLanes) words.set("lanes", "all");
    if (searched) words.set("searched", [searched.rule, searched.isOff ? "off" : "on", searched.states, searched.events].join("."));
    if (z !== undefined) words.set("z", z);
    return words.toString();
}

/** What a link says that is too long for words, as JSON. */
function packedOf({ origin, bends }: LinkState): string | undefined {
    const packed: Packed = {
        ...(origin.kind === "scenario" ? {} : { settings: origin.settings }),
        ...(origin.kind === "trace" ? { title: origin.title } : {}),
        ...(bends && bends.events.length > 0 ? { events: bends.events } : {}),
    };
    return Object.keys(packed).length > 0 ? JSON.stringify(packed) : undefined;
}

const KINDS = ["scenario", "free", "trace"] as const;
/** What no link says without saying of which run. */
const DETAILS = ["at", "kept", "off", "searched", "z"];

/** Reads the part of a URL after the `#`; undefined where there is none. */
export async function decodeLink(hash: string): Promise<LinkState | undefined> {
    const words = new URLSearchParams(hash.replace(/^#/, ""));
    const kind = kindOf(words);
    if (kind === undefined) return undefined;
    const z = words.get("z");
    const packed = z === null ? {} : parsePacked(await decompress(z));
    const kept = words.get("kept");
    const speed = words.get("speed");
    const searched = words.get("searched");
    const from = origin(kind, words, packed);
    const events = packed.events ?? [];
    const isWhole = kind === "trace" || (kind === "free" && packed.events !== undefined);
    return {
        origin: from,
        rulesOff: rules(words.get("off")),
        ...(kept === null && !isWhole ? {} : { bends: { kept: count(kept ?? "0", "kept"), events } }),
        position: count(words.get("at") ?? "0", "at"),
        view: { speed: speed === null ? DEFAULT_VIEW.speed : Number(speed), allLanes: words.get("lanes") === "all" },
        ...(searched === null ? {} : { searched: searchedOf(searched) }),
    };
}

function searchedOf(text: string): Searched {
    const [rule, how, states, events, ...rest] = text.split(".");
    const [known] = rules(rule ?? "");
    if (known === undefined || (how !== "on" && how !== "off") || rest.length > 0) throw new LinkError(DAMAGED);
    return { rule: known, isOff: how === "off", states: count(states ?? "", "searched"), events: count(events ?? "", "searched") };
}

function kindOf(words: URLSearchParams): Origin["kind"] | undefined {
    const [kind, other] = KINDS.filter((one) => words.has(one));
    if (kind === undefined && !DETAILS.some((key) => words.has(key))) return undefined;
    const twice = [...words.keys()].find((key) => words.getAll(key).length > 1);
    if (twice !== undefined) throw new LinkError(`the link says \`${twice}\` twice: ask whoever sent it for it once more`);
    if (kind === undefined || other !== undefined) throw new LinkError(DAMAGED);
    return kind;
}

function rules(text: string | null): Rule[] {
    const named = text === null ? [] : text.split(".");
    const unknown = named.find((rule) => !Object.hasOwn(RULE_NAMES, rule));
    if (unknown !== undefined) throw new LinkError(`the link names a rule that this page does not have, \`${unknown}\`: ask whoever sent it for it once more`);
    return named as Rule[];
}

function origin(kind: Origin["kind"], words: URLSearchParams, packed: Packed): Origin {
    if (kind === "scenario") return { kind, id: words.get(kind) ?? "" };
    if (packed.settings === undefined) throw new LinkError(DAMAGED);
    if (kind === "free") return { kind, settings: packed.settings, chance: count(words.get(kind) ?? "", kind) };
    return { kind, settings: packed.settings, title: packed.title ?? "a shared run" };
}

function parsePacked(json: string): Packed {
    let value: unknown;
    try {
        value = JSON.parse(json);
    } catch {
        throw new LinkError(DAMAGED);
    }
    if (!isPacked(value)) throw new LinkError(DAMAGED);
    return value;
}

function isPacked(value: unknown): value is Packed {
    if (typeof value !== "object" || value === null) return false;
    const { settings, title, events } = value as Record<string, unknown>;
    const isObject = settings === undefined || (typeof settings === "object" && settings !== null);
    return isObject && (title === undefined || typeof title === "string") && (events === undefined || Array.isArray(events));
}

function count(text: string, what: string): number {
    const number = Number(text);
    if (text.trim() === "" || !Number.isSafeInteger(number) || number < 0) {
        throw new LinkError(`the link says \`${what}=${text}\`, which is no number of events: ask whoever sent it for it once more`);
    }
    return number;
}

/** The most that a link unpacks to: more than any run that fits into a link. */
const MOST_BYTES = 64_000_000;

async function compress(text: string): Promise<string> {
    const packed = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
    return toUrl(new Uint8Array(await new Response(packed).arrayBuffer()));
}

/** Base64, as URLs take it. */
function toUrl(bytes: Uint8Array): string {
    let binary = "";
    for (const byte of bytes) binary += String.fromCharCode(byte);
    return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The most bytes of a block of deflate that is not compressed. */
const MOST_STORED = 0xffff;

/** Deflate's form without its compression: RFC 1951, 3.2.4. */
function stored(bytes: Uint8Array): Uint8Array {
    const blocks: number[] = [];
    for (let from = 0; from < bytes.length; from += MOST_STORED) {
        const block = bytes.subarray(from, from + MOST_STORED);
        const isLast = from + MOST_STORED >= bytes.length;
        const [low, high] = [block.length & 0xff, block.length >> 8];
        blocks.push(isLast ? 1 : 0, low, high, ~low & 0xff, ~high & 0xff);
        for (const byte of block) blocks.push(byte);
    }
    return Uint8Array.from(blocks);
}

async function decompress(text: string): Promise<string> {
    try {
        const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
        const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
        const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
        const parts: Uint8Array[] = [];
        let size = 0;
        for (let part = await reader.read(); !part.done; part = await reader.read()) {
            const chunk: Uint8Array = part.value;
            size += chunk.length;
            if (size > MOST_BYTES) throw new Error("too long");
            parts.push(chunk);
        }
        return await new Blob(parts as BlobPart[]).text();
    } catch {
        throw new LinkError(DAMAGED);
    }
}

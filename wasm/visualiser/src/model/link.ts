// The page's whole state as the part of a URL after the `#`: readable where it is short, compressed where it is long.
import type { Happening, Rule, Settings } from "./protocol";
import type { Bends, Origin } from "./run";

/** What the page shows besides the run. */
export interface ViewOptions {
    /** Events a second. */
    speed: number;
    /** Whether lanes are shown in which nothing happens. */
    allLanes: boolean;
}

/** All that a link says. */
export interface LinkState {
    origin: Origin;
    /** Rules that are off although the scenario has them on. */
    rulesOff: Rule[];
    bends?: Bends;
    position: number;
    view: ViewOptions;
}

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
    const { origin, bends, view } = state;
    const words = new URLSearchParams();
    words.set(origin.kind, origin.kind === "scenario" ? origin.id : origin.kind === "free" ? String(origin.chance) : "1");
    if (state.rulesOff.length > 0 && origin.kind === "scenario") words.set("off", state.rulesOff.join("."));
    if (bends) words.set("kept", String(bends.kept));
    words.set("at", String(state.position));
    if (view.speed !== DEFAULT_VIEW.speed) words.set("speed", String(view.speed));
    if (view.allLanes) words.set("lanes", "all");
    const packed: Packed = {
        ...(origin.kind === "scenario" ? {} : { settings: origin.settings }),
        ...(origin.kind === "trace" ? { title: origin.title } : {}),
        ...(bends && bends.events.length > 0 ? { events: bends.events } : {}),
    };
    if (Object.keys(packed).length > 0) words.set("z", await compress(JSON.stringify(packed)));
    return words.toString();
}

/** Reads the part of a URL after the `#`; undefined where there is none. */
export async function decodeLink(hash: string): Promise<LinkState | undefined> {
    const words = new URLSearchParams(hash.replace(/^#/, ""));
    const kinds = (["scenario", "free", "trace"] as const).filter((kind) => words.has(kind));
    const kind = kinds[0];
    if (kind === undefined) return undefined;
    const z = words.get("z");
    const packed = z === null ? {} : parsePacked(await decompress(z));
    const kept = words.get("kept");
    const rules = words.get("off")?.split(".") ?? [];
    return {
        origin: origin(kind, words, packed),
        rulesOff: rules as Rule[],
        ...(kept === null ? {} : { bends: { kept: count(kept, "kept"), events: packed.events ?? [] } }),
        position: count(words.get("at") ?? "0", "at"),
        view: {
            speed: Number(words.get("speed")) || DEFAULT_VIEW.speed,
            allLanes: words.get("lanes") === "all",
        },
    };
}

function origin(kind: Origin["kind"], words: URLSearchParams, packed: Packed): Origin {
    if (kind === "scenario") return { kind, id: words.get(kind) ?? "" };
    if (packed.settings === undefined) throw new LinkError("the link is cut short: ask for it once more");
    if (kind === "free") return { kind, settings: packed.settings, chance: count(words.get(kind) ?? "", kind) };
    return { kind, settings: packed.settings, title: packed.title ?? "a shared run" };
}

function parsePacked(json: string): Packed {
    const value: unknown = JSON.parse(json);
    if (typeof value !== "object" || value === null) throw new LinkError("the link holds no run: ask for it once more");
    const packed = value as Packed;
    if (packed.events !== undefined && !Array.isArray(packed.events)) {
        throw new LinkError("the link holds no list of events: ask for it once more");
    }
    return packed;
}

function count(text: string, what: string): number {
    const number = Number(text);
    if (text === "" || !Number.isSafeInteger(number) || number < 0) {
        throw new LinkError(`the link says \`${what}=${text}\`, which is no number of events: ask for it once more`);
    }
    return number;
}

/** The most that a link unpacks to: more than any run that fits into a link. */
const MOST_BYTES = 64_000_000;

async function compress(text: string): Promise<string> {
    const packed = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
    const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
    let binary = "";
    for (const byte of bytes) binary += String.fromCharCode(byte);
    return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
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
        throw new LinkError("the link is damaged or cut short: ask for it once more");
    }
}

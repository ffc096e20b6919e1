// Encodes the state of the page in the fragment of a URL. A short state is written as plain
// parameters; a long run is compressed into the parameter `z`.
import type { Divergence, Origin } from "./origin";
import type { Rule, Settings, WorldEvent } from "./protocol";
import { RULE_NAMES } from "./texts";
import { TOUR, tourStep } from "./tour";

/** The display options of the page that a link contains. */
export interface ViewOptions {
    /** The playback speed, in events per second. */
    speed: number;
    /** True if the page also shows lanes that have no event. */
    allLanes: boolean;
    /** True if consecutive local steps of a cell share a row. */
    mergedSteps: boolean;
}

/** The result of a search that explored a rule's whole small world and found no violation. */
export interface SearchResult {
    rule: Rule;
    /** True if the rule was switched off in the searched world. */
    isOff: boolean;
    states: number;
    events: number;
}

/** The state of the page that a link contains. */
export interface LinkState {
    origin: Origin;
    /**
     * The rules that are switched off, if the run's origin is a scenario. Other origins have this
     * list in their settings.
     */
    rulesOff: Rule[];
    divergence?: Divergence;
    position: number;
    view: ViewOptions;
    searchResult?: SearchResult;
    /** The number of the guided tour's step that the page shows; absent outside the tour. */
    tour?: number;
    /** The parameters of a decoded link that this page does not know; absent if there is none. */
    unknown?: string[];
}

/** The error text for a link that cannot be decoded. */
export const DAMAGED_LINK = "the link is damaged or was cut short: ask its sender for a new copy";

/** The error for a link that cannot be decoded. Its message tells the person what to do. */
export class LinkError extends Error {
    override name = "LinkError";
}

export const DEFAULT_VIEW: ViewOptions = { speed: 2, allLanes: false, mergedSteps: false };

/** The length up to which links are safe. Some mail and chat programs cut longer ones. */
export const SAFE_LINK_LENGTH = 8000;

/** The parts of a link's state that are too long for plain parameters. */
interface LinkPayload {
    settings?: Settings;
    title?: string;
    events?: WorldEvent[];
}

/** Returns the fragment of a URL that contains the state, without the `#`. */
export async function encodeLink(state: LinkState): Promise<string> {
    const payload = payloadOf(state);
    return fragment(state, payload && (await compress(payload)));
}

/**
 * Encodes links one after the other. It reuses the compressed payload as long as the payload does
 * not change.
 */
export class LinkWriter {
    private payload: string | undefined;
    private z: string | undefined;

    /** Returns the same fragment of a URL as `encodeLink`. */
    async write(state: LinkState): Promise<string> {
        const payload = payloadOf(state);
        const z = payload === this.payload ? this.z : payload && (await compress(payload));
        [this.payload, this.z] = [payload, z];
        return fragment(state, z);
    }

    /**
     * Returns a fragment for the same state without waiting. Compression is asynchronous in
     * browsers. A payload that has changed since the last `write` is therefore stored uncompressed,
     * which makes the fragment longer.
     */
    writeNow(state: LinkState): string {
        const payload = payloadOf(state);
        return fragment(state, payload === this.payload ? this.z : payload && toBase64Url(deflateStored(new TextEncoder().encode(payload))));
    }
}

function fragment(state: LinkState, z: string | undefined): string {
    const { origin, divergence, view, searchResult, tour } = state;
    // A step fixes the whole state, so its address is short.
    if (tour !== undefined) return `tour=${tour}`;
    const params = new URLSearchParams();
    params.set(origin.kind, originParam(origin));
    if (state.rulesOff.length > 0 && origin.kind === "scenario") params.set("off", state.rulesOff.join("."));
    if (origin.kind === "free" && origin.isByHand) params.set("hand", "1");
    if (divergence) params.set("kept", String(divergence.kept));
    params.set("at", String(state.position));
    if (view.speed !== DEFAULT_VIEW.speed) params.set("speed", String(view.speed));
    if (view.allLanes) params.set("lanes", "all");
    if (view.mergedSteps) params.set("steps", "merged");
    if (searchResult) params.set("searched", searchParam(searchResult));
    if (z !== undefined) params.set("z", z);
    return params.toString();
}

function originParam(origin: Origin): string {
    if (origin.kind === "scenario") return origin.id;
    return origin.kind === "free" ? String(origin.randomEvents) : "1";
}

function searchParam({ rule, isOff, states, events }: SearchResult): string {
    return [rule, isOff ? "off" : "on", states, events].join(".");
}

/**
 * Returns the parts of a state that need the parameter `z`, as JSON, or `undefined` if there are
 * none.
 */
function payloadOf({ origin, divergence }: LinkState): string | undefined {
    const payload: LinkPayload = {
        ...(origin.kind === "scenario" ? {} : { settings: origin.settings }),
        ...(origin.kind === "trace" ? { title: origin.title } : {}),
        ...(divergence && divergence.events.length > 0 ? { events: divergence.events } : {}),
    };
    return Object.keys(payload).length > 0 ? JSON.stringify(payload) : undefined;
}

const ORIGIN_KINDS = ["scenario", "free", "trace"] as const;
/** The parameters that are valid only if the link also has one of the parameters `ORIGIN_KINDS`. */
const DETAIL_PARAMS = ["at", "hand", "kept", "off", "searched", "z"];
/** The parameters about how the page shows a run. */
const VIEW_PARAMS = ["speed", "lanes", "steps"];
const KNOWN_PARAMS: readonly string[] = [...ORIGIN_KINDS, ...DETAIL_PARAMS, ...VIEW_PARAMS, "tour"];

/**
 * Decodes the fragment of a URL. Returns `undefined` if the fragment is not a link of the page.
 * Throws `LinkError` if the link is damaged.
 */
export async function decodeLink(hash: string): Promise<LinkState | undefined> {
    const params = new URLSearchParams(hash.replace(/^#/, ""));
    if (params.has("tour")) return parseTour(params);
    const kind = originKind(params);
    if (kind === undefined) return undefined;
    const z = params.get("z");
    const payload = z === null ? {} : parsePayload(await decompress(z));
    const kept = params.get("kept");
    const speed = params.get("speed");
    const searched = params.get("searched");
    const origin = parseOrigin(kind, params, payload);
    const events = payload.events ?? [];
    const unknown = [...params.keys()].filter((key) => !KNOWN_PARAMS.includes(key));
    const hasAllEvents = kind === "trace" || (kind === "free" && payload.events !== undefined);
    return {
        origin,
        rulesOff: parseRules(params.get("off")),
        ...(kept === null && !hasAllEvents ? {} : { divergence: { kept: parseCount(kept ?? "0", "kept"), events } }),
        position: parsePosition(params.get("at") ?? "0"),
        view: { speed: speed === null ? DEFAULT_VIEW.speed : Number(speed), allLanes: params.get("lanes") === "all", mergedSteps: params.get("steps") === "merged" },
        ...(searched === null ? {} : { searchResult: parseSearchResult(searched) }),
        ...(unknown.length === 0 ? {} : { unknown }),
    };
}

/** Returns the state of an address of the tour. Without a number, it is the first step. */
function parseTour(params: URLSearchParams): LinkState {
    if ([...params.keys()].length > 1) throw new LinkError(DAMAGED_LINK);
    const text = params.get("tour") || "1";
    return tourLink(Number(text), text);
}

/** Returns the state of the page at the end of a step of the tour. `text` is its number as a person wrote it. */
export function tourLink(number: number, text = String(number)): LinkState {
    const step = tourStep(number);
    if (step === undefined) throw new LinkError(`the tour has no step \`${text}\`: choose one from 1 to ${TOUR.length}`);
    return { origin: { kind: "scenario", id: step.scenario }, rulesOff: step.rulesOff ?? [], position: step.to, view: DEFAULT_VIEW, tour: number };
}

function parseSearchResult(text: string): SearchResult {
    const [rule, state, states, events, ...rest] = text.split(".");
    const [known] = parseRules(rule ?? "");
    if (known === undefined || (state !== "on" && state !== "off") || rest.length > 0) throw new LinkError(DAMAGED_LINK);
    return { rule: known, isOff: state === "off", states: parseCount(states ?? "", "searched"), events: parseCount(events ?? "", "searched") };
}

function originKind(params: URLSearchParams): Origin["kind"] | undefined {
    const [kind, other] = ORIGIN_KINDS.filter((candidate) => params.has(candidate));
    if (kind === undefined && ![...DETAIL_PARAMS, ...VIEW_PARAMS].some((key) => params.has(key))) {
        refuseUnknown(params);
        return undefined;
    }
    const repeated = [...params.keys()].find((key) => params.getAll(key).length > 1);
    if (repeated !== undefined) throw new LinkError(`the link has \`${repeated}\` twice: ask its sender for a new copy`);
    if (kind === undefined) refuseUnknown(params);
    if (kind === undefined || other !== undefined) throw new LinkError(DAMAGED_LINK);
    return kind;
}

/**
 * Throws `LinkError` if the address sets a parameter that is none of the page's. A name without a
 * value is a place on a page of others, and no mistake.
 */
function refuseUnknown(params: URLSearchParams): void {
    const [unknown] = [...params].filter(([key, value]) => value !== "" && !KNOWN_PARAMS.includes(key));
    if (unknown === undefined) return;
    throw new LinkError(`the address says \`${unknown.join("=")}\`, which this page does not know: choose a run in the list, or a seed under “Free play”`);
}

function parseRules(text: string | null): Rule[] {
    const named = text === null ? [] : text.split(".");
    const unknown = named.find((rule) => !Object.hasOwn(RULE_NAMES, rule));
    if (unknown !== undefined) throw new LinkError(`the link names the rule \`${unknown}\`, which this page does not have: ask its sender for a new copy`);
    return named as Rule[];
}

function parseOrigin(kind: Origin["kind"], params: URLSearchParams, payload: LinkPayload): Origin {
    if (kind === "scenario") return { kind, id: params.get(kind) ?? "" };
    if (payload.settings === undefined) throw new LinkError(DAMAGED_LINK);
    const byHand = params.has("hand") ? { isByHand: true as const } : {};
    if (kind === "free") return { kind, settings: payload.settings, randomEvents: parseCount(params.get(kind) ?? "", kind), ...byHand };
    return { kind, settings: payload.settings, title: payload.title ?? "a shared run" };
}

function parsePayload(json: string): LinkPayload {
    let value: unknown;
    try {
        value = JSON.parse(json);
    } catch {
        throw new LinkError(DAMAGED_LINK);
    }
    if (!isPayload(value)) throw new LinkError(DAMAGED_LINK);
    return value;
}

function isPayload(value: unknown): value is LinkPayload {
    if (typeof value !== "object" || value === null) return false;
    const { settings, title, events } = value as Record<string, unknown>;
    const hasSettings = settings === undefined || (typeof settings === "object" && settings !== null);
    return hasSettings && (title === undefined || typeof title === "string") && (events === undefined || Array.isArray(events));
}

/** Returns the whole position that is nearest to a number, which a person may have edited. It may lie outside of the run. */
function parsePosition(text: string): number {
    const number = Number(text);
    return text.trim() !== "" && Number.isFinite(number) ? Math.round(number) : parseCount(text, "at");
}

function parseCount(text: string, param: string): number {
    const number = Number(text);
    if (text.trim() === "" || !Number.isSafeInteger(number) || number < 0) {
        throw new LinkError(`the link says \`${param}=${text}\`, which is not a number of events: ask its sender for a new copy`);
    }
    return number;
}

/**
 * The largest size of an unpacked payload, in bytes. Anybody can write a link, and a short one can
 * unpack to gigabytes.
 */
const MAX_PAYLOAD_BYTES = 64_000_000;

async function compress(text: string): Promise<string> {
    const compressed = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
    return toBase64Url(new Uint8Array(await new Response(compressed).arrayBuffer()));
}

/** Returns bytes as base64url text without padding (RFC 4648, 5). */
function toBase64Url(bytes: Uint8Array): string {
    let binary = "";
    for (const byte of bytes) binary += String.fromCharCode(byte);
    return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/**
 * The largest size of a stored block in a deflate stream: its length field has 16 bits (RFC 1951,
 * 3.2.4).
 */
const MAX_STORED_BYTES = 0xffff;

/** Returns a deflate stream of the bytes in stored, uncompressed blocks (RFC 1951, 3.2.4). */
function deflateStored(bytes: Uint8Array): Uint8Array {
    const stream: number[] = [];
    for (let from = 0; from < bytes.length; from += MAX_STORED_BYTES) {
        const block = bytes.subarray(from, from + MAX_STORED_BYTES);
        const isLast = from + MAX_STORED_BYTES >= bytes.length;
        const [low, high] = [block.length & 0xff, block.length >> 8];
        stream.push(isLast ? 1 : 0, low, high, ~low & 0xff, ~high & 0xff);
        for (const byte of block) stream.push(byte);
    }
    return Uint8Array.from(stream);
}

async function decompress(text: string): Promise<string> {
    try {
        const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
        const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
        const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
        const chunks: Uint8Array[] = [];
        let size = 0;
        for (let part = await reader.read(); !part.done; part = await reader.read()) {
            const chunk: Uint8Array = part.value;
            size += chunk.length;
            if (size > MAX_PAYLOAD_BYTES) throw new Error("the payload exceeds the limit");
            chunks.push(chunk);
        }
        return await new Blob(chunks as BlobPart[]).text();
    } catch {
        throw new LinkError(DAMAGED_LINK);
    }
}

// The page's address says what it shows, and the browser's history what was open before.
import { effect } from "@preact/signals";

import { DAMAGED, decodeLink, DEFAULT_VIEW, encodeLink, LinkError, type LinkState, LinkWriter } from "../model/link";
import { FIRST } from "../model/scenarios";
import type { Kept, Session } from "./session";

/** Browsers allow only so many changes of the address a second. */
const PAUSE_MS = 350;
/** While a run is played it does not pause: then the address is at most so old. */
const OLDEST_MS = 900;
/** Playing a long run, whose link takes a while, gives no more than this part of its time to the address. */
const SHARE = 0.05;
/** A link longer than this is not written in a hurry: what was written last stays. */
const LONGEST_NOW = 500_000;

/** What an entry of the browser's history remembers. */
interface Mark {
    /** Its name. */
    entry: string;
    /** Whether a log is shown, which no address says. */
    isLog: boolean;
}

/** Where the browser keeps the last address of a page that is loaded again, until it is. */
const STASH = "leasehold-address";

/** A page that is loaded again is at the address that it had last: the browser has looked at it before the page could write it. */
export function takeUpAddress(): void {
    const [navigation] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
    const last = unstash();
    if (navigation?.type === "reload" && last?.from === location.hash) history.replaceState(history.state, "", addressOf(last.to));
}

/** The last address, and the one that the browser knew before it. */
interface Stash {
    from: string;
    to: string;
}

function stash(last: Stash): void {
    try {
        sessionStorage.setItem(STASH, JSON.stringify(last));
    } catch {
        // A person may forbid pages to store anything: then the address may be a moment old.
    }
}

function unstash(): Stash | undefined {
    try {
        const text = sessionStorage.getItem(STASH);
        sessionStorage.removeItem(STASH);
        return text === null ? undefined : (JSON.parse(text) as Stash);
    } catch {
        return undefined;
    }
}

/** The first scenario, as a link says it. */
const BEGINNING: LinkState = { origin: { kind: "scenario", id: FIRST }, rulesOff: [], position: 0, view: DEFAULT_VIEW };

/** Opens what the address says; what is open stays where that can't be read, or else it is the first scenario. */
export async function openAddress(session: Session, isWanted = () => true): Promise<void> {
    try {
        const link = (await decodeLink(location.hash)) ?? BEGINNING;
        if (isWanted()) session.openLink(link);
    } catch (error) {
        if (!isWanted()) return;
        const isFirst = session.timeline.peek() === undefined;
        if (isFirst) session.openLink(BEGINNING);
        const why = error instanceof LinkError ? error.message : DAMAGED;
        session.tell(`${why}. ${isFirst ? "this is the happy path instead" : "what was open stays"}`, true);
    }
}

/** The link to what is shown now. */
export async function presentLink(session: Session): Promise<string | undefined> {
    const state = session.linkState();
    if (state === undefined) return undefined;
    const url = new URL(location.href);
    url.hash = await encodeLink(state);
    return url.href;
}

/** Keeps the address up to date, and follows it when a person changes it or goes back. */
export function keepAddress(session: Session): void {
    const address = new Address(session);
    effect(() => {
        session.revision.value;
        session.position.value;
        session.speed.value;
        session.allLanes.value;
        session.isBent.value;
        session.search.searched.value;
        address.writeSoon();
    });
    session.replaced = (before) => address.leave(before);
    session.meddled = () => address.writeAtOnce();
    addEventListener("popstate", () => void address.follow());
    addEventListener("pagehide", () => address.writeNow());
    addEventListener("beforeunload", () => address.writeNow());
    addEventListener("visibilitychange", () => address.writeNow());
}

/** The entry of the history that is shown, and the way to others. */
class Address {
    private readonly writer = new LinkWriter();
    /** What was open, by the names of its entries: more than an address can say, for as long as the page lives. */
    private readonly kept = new Map<string, Kept>();
    private entry = marked()?.entry ?? newEntry();
    private written = location.hash;
    private timer: ReturnType<typeof setTimeout> | undefined;
    /** When the first change was that the address does not say. */
    private staleSince: number | undefined;
    /** How long the last writing took, in milliseconds. */
    private took = 0;
    /** How many writings have begun: a later one is not undone by an earlier that took longer. */
    private writings = 0;

    constructor(private readonly session: Session) {
        this.missLog();
        this.put(location.hash);
    }

    /** An entry of a log that was open before the page was loaded again. */
    private missLog(): void {
        if (marked()?.isLog) this.session.tell("a live server's log is gone when the page is loaded again: open it once more", false);
    }

    writeSoon(): void {
        const now = performance.now();
        this.staleSince ??= now;
        const latest = this.staleSince + Math.max(OLDEST_MS, this.took / SHARE);
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.writeAtOnce(), Math.min(PAUSE_MS, latest - now));
    }

    /** What a person has done is in the address before anything else is. */
    writeAtOnce(): void {
        clearTimeout(this.timer);
        this.staleSince = undefined;
        void this.write();
    }

    private async write(): Promise<void> {
        const writing = ++this.writings;
        const began = performance.now();
        const state = this.session.linkState();
        const hash = state ? `#${await this.writer.write(state)}` : "";
        this.took = performance.now() - began;
        if (writing === this.writings && hash !== this.written) this.put(hash);
    }

    /** Before the page goes, which waits for nothing. */
    writeNow(): void {
        this.stopWriting();
        const hash = this.hashNow(this.session.keep());
        if (hash === undefined || hash === this.written) return;
        stash({ from: this.written, to: hash });
        this.put(hash);
    }

    private stopWriting(): void {
        clearTimeout(this.timer);
        this.staleSince = undefined;
        this.writings += 1;
    }

    /** What to write in a hurry; undefined where it would be too long. */
    private hashNow(kept: Kept | undefined): string | undefined {
        if (kept === undefined || !("link" in kept)) return "";
        const hash = `#${this.writer.writeNow(kept.link)}`;
        return hash.length > LONGEST_NOW ? undefined : hash;
    }

    /** Another run has taken the place of what was open: that becomes an entry to go back to. */
    leave(before: Kept): void {
        const now = this.session.keep();
        const [old, next] = [this.hashNow(before), this.hashNow(now)];
        if (isAsBefore(before, now, old === next && old !== undefined)) return;
        this.stopWriting();
        if (old !== undefined && old !== this.written) this.put(old, "recording" in before);
        this.kept.set(this.entry, before);
        this.entry = newEntry();
        this.written = next ?? "";
        history.pushState(this.mark(), "", addressOf(this.written));
        this.writeSoon();
    }

    /** Opens what the entry says that a person has gone to. */
    async follow(): Promise<void> {
        const entry = marked()?.entry;
        if (entry === this.entry && location.hash === this.written) return;
        this.stopWriting();
        const before = this.session.keep();
        if (before) this.kept.set(this.entry, before);
        this.entry = entry ?? newEntry();
        this.written = location.hash;
        const kept = this.kept.get(this.entry);
        if (kept) this.session.bringBack(kept);
        else await this.open(this.entry);
    }

    private async open(entry: string): Promise<void> {
        await openAddress(this.session, () => entry === this.entry);
        if (entry !== this.entry) return;
        this.missLog();
        this.put(this.written);
        this.writeSoon();
    }

    private put(hash: string, isLog?: boolean): void {
        this.written = hash;
        history.replaceState(this.mark(isLog), "", addressOf(hash));
    }

    private mark(isLog = this.session.recording.peek() !== undefined): Mark {
        return { entry: this.entry, isLog };
    }
}

/** Whether going back would change nothing: the same run, or the server's log once more. */
function isAsBefore(before: Kept, now: Kept | undefined, isSameHash: boolean): boolean {
    if (now === undefined || "link" in before || "link" in now) return isSameHash && now !== undefined && "link" in before === "link" in now;
    return before.isOfServer && now.isOfServer;
}

function addressOf(hash: string): string {
    return hash === "" ? location.pathname + location.search : hash;
}

/** No other entry has it, not even one from before the page was loaded again. */
function newEntry(): string {
    return `${performance.timeOrigin}.${Math.random()}`;
}

function marked(): Mark | undefined {
    const state: unknown = history.state;
    return typeof state === "object" && state !== null && "entry" in state ? (state as Mark) : undefined;
}

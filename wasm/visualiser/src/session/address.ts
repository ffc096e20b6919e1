// Keeps the page's address equal to its state, and an entry of the browser's history for each run
// that was open.
import { effect } from "@preact/signals";

import { DAMAGED_LINK, decodeLink, DEFAULT_VIEW, encodeLink, LinkError, type LinkState, LinkWriter } from "../model/link";
import { FIRST_SCENARIO_ID } from "../model/scenarios";
import type { Session, Snapshot } from "./session";

/**
 * The pause after a change before the address is written. Safari throws after 100 changes in 30
 * seconds.
 */
const WRITE_DELAY_MS = 350;
/** The greatest age of the address during playback, which never pauses. */
const MAX_AGE_MS = 900;
/**
 * The largest share of time spent on writing the address while a long run plays, whose link takes
 * long to encode.
 */
const MAX_TIME_SHARE = 0.05;
/** A longer link is not written synchronously; the address stays as it was. */
const MAX_SYNC_LENGTH = 500_000;

/** The state that the browser keeps for an entry of its history. */
interface HistoryState {
    /** The unique name of the entry. */
    entry: string;
    /** True if the entry shows a log, which no address contains. */
    isLog: boolean;
}

/** The key in the session storage under which an unloading page leaves its last address. */
const PENDING_KEY = "leasehold-address";

/**
 * Restores the address that the page had just before a reload. A page that unloads may still change
 * its address, but the browser has decided by then which address to load.
 */
export function restorePendingAddress(): void {
    const [navigation] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
    const pending = takePending();
    if (navigation?.type === "reload" && pending?.from === location.hash) history.replaceState(history.state, "", addressOf(pending.to));
}

/**
 * The last address of an unloaded page: the fragment that the browser knew, and the one written at
 * the unload.
 */
interface PendingAddress {
    from: string;
    to: string;
}

function storePending(pending: PendingAddress): void {
    try {
        sessionStorage.setItem(PENDING_KEY, JSON.stringify(pending));
    } catch {
        // A browser may forbid storage. A reload then shows an address that is at most `MAX_AGE_MS`
        // old.
    }
}

function takePending(): PendingAddress | undefined {
    try {
        const text = sessionStorage.getItem(PENDING_KEY);
        sessionStorage.removeItem(PENDING_KEY);
        return text === null ? undefined : (JSON.parse(text) as PendingAddress);
    } catch {
        return undefined;
    }
}

/** The link to the start of the first scenario. */
const DEFAULT_LINK: LinkState = { origin: { kind: "scenario", id: FIRST_SCENARIO_ID }, rulesOff: [], position: 0, view: DEFAULT_VIEW };

/**
 * Opens the run of the address. If the address is damaged, the open run stays, or the first
 * scenario is opened. `isCurrent` returns false once a later navigation has made this one obsolete.
 */
export async function openAddress(session: Session, isCurrent = () => true): Promise<void> {
    try {
        const link = (await decodeLink(location.hash)) ?? DEFAULT_LINK;
        if (isCurrent()) session.openLink(link);
    } catch (error) {
        if (!isCurrent()) return;
        const isFirst = session.timeline.peek() === undefined;
        if (isFirst) session.openLink(DEFAULT_LINK);
        const reason = error instanceof LinkError ? error.message : DAMAGED_LINK;
        session.notify(`${reason}. ${isFirst ? "the page shows the happy path instead" : "the open run stays"}`, true);
    }
}

/** Returns the link to the present state, or `undefined` if a log is open. */
export async function presentLink(session: Session): Promise<string | undefined> {
    const state = session.linkState();
    if (state === undefined) return undefined;
    const url = new URL(location.href);
    url.hash = await encodeLink(state);
    return url.href;
}

/**
 * Writes the address whenever the session changes, and opens it whenever a person changes it or
 * goes back.
 */
export function synchroniseAddress(session: Session): void {
    const address = new AddressSync(session);
    effect(() => {
        session.revision.value;
        session.position.value;
        session.speed.value;
        session.allLanes.value;
        session.isEdited.value;
        session.search.result.value;
        address.writeSoon();
    });
    session.onReplace = (before) => address.pushEntry(before);
    session.onEdit = () => address.writeAtOnce();
    addEventListener("popstate", () => void address.openEntry());
    // Browsers fire different ones of these events, depending on the reason for the unload.
    addEventListener("pagehide", () => address.writeBeforeUnload());
    addEventListener("beforeunload", () => address.writeBeforeUnload());
    addEventListener("visibilitychange", () => address.writeBeforeUnload());
}

/** The synchronisation of the session with the current entry of the browser's history. */
class AddressSync {
    private readonly writer = new LinkWriter();
    /**
     * The states of other entries, by name. Until a reload they restore logs too, which no address
     * contains.
     */
    private readonly snapshots = new Map<string, Snapshot>();
    private entry = historyState()?.entry ?? newEntryName();
    private written = location.hash;
    private timer: ReturnType<typeof setTimeout> | undefined;
    /** The time of the first change since the address was written. */
    private staleSince: number | undefined;
    /** The duration of the last write, in milliseconds. */
    private writeMs = 0;
    /**
     * The number of writes begun. A write that takes long must not overwrite the result of a later
     * one.
     */
    private writes = 0;

    constructor(private readonly session: Session) {
        this.notifyLostLog();
        this.replaceEntry(location.hash);
    }

    /** Notifies the person if the entry showed a log before the page was loaded again. */
    private notifyLostLog(): void {
        if (historyState()?.isLog) this.session.notify("a reload loses a live server's log: open the log again", false);
    }

    /** Writes the address after a pause in the changes, or when it becomes too old. */
    writeSoon(): void {
        const now = performance.now();
        this.staleSince ??= now;
        const latest = this.staleSince + Math.max(MAX_AGE_MS, this.writeMs / MAX_TIME_SHARE);
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.writeAtOnce(), Math.min(WRITE_DELAY_MS, latest - now));
    }

    /** Writes the address without a pause. An edit must not be lost if the page is closed next. */
    writeAtOnce(): void {
        clearTimeout(this.timer);
        this.staleSince = undefined;
        void this.write();
    }

    private async write(): Promise<void> {
        const number = ++this.writes;
        const start = performance.now();
        const state = this.session.linkState();
        const hash = state ? `#${await this.writer.write(state)}` : "";
        this.writeMs = performance.now() - start;
        if (number === this.writes && hash !== this.written) this.replaceEntry(hash);
    }

    /** Writes the address synchronously: an unloading page runs no asynchronous code. */
    writeBeforeUnload(): void {
        this.cancelWrites();
        const hash = this.synchronousHash(this.session.snapshot());
        if (hash === undefined || hash === this.written) return;
        storePending({ from: this.written, to: hash });
        this.replaceEntry(hash);
    }

    private cancelWrites(): void {
        clearTimeout(this.timer);
        this.staleSince = undefined;
        this.writes += 1;
    }

    /**
     * Returns the fragment of a snapshot, or `undefined` if it would be too long. A log has an
     * empty fragment.
     */
    private synchronousHash(snapshot: Snapshot | undefined): string | undefined {
        if (snapshot === undefined || !("link" in snapshot)) return "";
        const hash = `#${this.writer.writeNow(snapshot.link)}`;
        return hash.length > MAX_SYNC_LENGTH ? undefined : hash;
    }

    /** Adds an entry for the run that has replaced `before`, so that Back restores `before`. */
    pushEntry(before: Snapshot): void {
        const now = this.session.snapshot();
        const [oldHash, newHash] = [this.synchronousHash(before), this.synchronousHash(now)];
        if (isUnchanged(before, now, oldHash === newHash && oldHash !== undefined)) return;
        this.cancelWrites();
        if (oldHash !== undefined && oldHash !== this.written) this.replaceEntry(oldHash, "recording" in before);
        this.snapshots.set(this.entry, before);
        this.entry = newEntryName();
        this.written = newHash ?? "";
        history.pushState(this.historyState(), "", addressOf(this.written));
        this.writeSoon();
    }

    /** Opens the run of the entry to which a person has gone. */
    async openEntry(): Promise<void> {
        const entry = historyState()?.entry;
        if (entry === this.entry && location.hash === this.written) return;
        this.cancelWrites();
        const before = this.session.snapshot();
        if (before) this.snapshots.set(this.entry, before);
        this.entry = entry ?? newEntryName();
        this.written = location.hash;
        const snapshot = this.snapshots.get(this.entry);
        if (snapshot) this.session.restore(snapshot);
        else await this.openHash(this.entry);
    }

    private async openHash(entry: string): Promise<void> {
        await openAddress(this.session, () => entry === this.entry);
        if (entry !== this.entry) return;
        this.notifyLostLog();
        this.replaceEntry(this.written);
        this.writeSoon();
    }

    private replaceEntry(hash: string, isLog?: boolean): void {
        this.written = hash;
        history.replaceState(this.historyState(isLog), "", addressOf(hash));
    }

    private historyState(isLog = this.session.recording.peek() !== undefined): HistoryState {
        return { entry: this.entry, isLog };
    }
}

/**
 * Returns true if Back would change nothing: the same run, or the same server's log fetched again.
 */
function isUnchanged(before: Snapshot, now: Snapshot | undefined, isSameHash: boolean): boolean {
    if (now === undefined || "link" in before || "link" in now) return isSameHash && now !== undefined && "link" in before === "link" in now;
    return before.isFromServer && now.isFromServer;
}

function addressOf(hash: string): string {
    return hash === "" ? location.pathname + location.search : hash;
}

/**
 * Returns a name that no other entry has, not even one from before a reload: history states survive
 * reloads.
 */
function newEntryName(): string {
    return `${performance.timeOrigin}.${Math.random()}`;
}

function historyState(): HistoryState | undefined {
    const state: unknown = history.state;
    return typeof state === "object" && state !== null && "entry" in state ? (state as HistoryState) : undefined;
}

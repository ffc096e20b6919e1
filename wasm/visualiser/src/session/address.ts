// Keeps the page's address equal to the page's state. Each run that was open has an entry in the
// browser's history.
import { effect } from "@preact/signals";

import { DAMAGED_LINK, decodeLink, DEFAULT_VIEW, encodeLink, LinkError, type LinkState, LinkWriter, tourLink } from "../model/link";
import { FIRST_SCENARIO_ID, scenarioById } from "../model/scenarios";
import type { Session, Snapshot } from "./session";
import { stepToResume } from "./tour";

/**
 * The pause after a change before the page writes its address. Safari throws an error after 100
 * address changes in 30 seconds.
 */
const WRITE_DELAY_MS = 350;
/**
 * The time after which the address is written although changes continue, as they do during
 * playback.
 */
const MAX_AGE_MS = 900;
/**
 * The largest share of time that writing the address may take. The link of a long run takes long to
 * encode, also during playback.
 */
const MAX_TIME_SHARE = 0.05;
/**
 * The length up to which the address is written synchronously. With a longer link, the old address
 * stays.
 */
const MAX_SYNC_LENGTH = 500_000;

/** The data that the browser stores with an entry of its history. */
interface HistoryState {
    /** The unique name of the history entry. */
    entry: string;
    /** True if the entry shows the log of a server. An address cannot contain a log. */
    isLog: boolean;
}

/**
 * The key in the session storage under which the page stores its last address when it is unloaded.
 */
const PENDING_KEY = "leasehold-address";

/**
 * Restores the address that the page had just before a reload. A page may change its address while
 * it is unloaded, but by then the browser has already decided which address to load.
 */
export function restorePendingAddress(): void {
    const [navigation] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
    const pending = takePending();
    if (navigation?.type === "reload" && pending?.from === location.hash) history.replaceState(history.state, "", addressOf(pending.to));
}

/**
 * The last address of a page that was unloaded: the fragment that the browser knew, and the
 * fragment that the page wrote during the unload.
 */
interface PendingAddress {
    from: string;
    to: string;
}

function storePending(pending: PendingAddress): void {
    try {
        sessionStorage.setItem(PENDING_KEY, JSON.stringify(pending));
    } catch {
        // A browser may forbid storage, which is no error here. After a reload the address is then
        // up to `MAX_AGE_MS` old.
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

/** The link that opens the start of the first scenario. */
const DEFAULT_LINK: LinkState = { origin: { kind: "scenario", id: FIRST_SCENARIO_ID }, rulesOff: [], position: 0, view: DEFAULT_VIEW };

const INSTEAD = `The page shows “${scenarioById(FIRST_SCENARIO_ID)?.title ?? FIRST_SCENARIO_ID}” instead.`;

/** Returns the link of a page without one in its address: the tour, until it has been seen. */
function firstLink(): LinkState {
    const step = stepToResume();
    return step === undefined ? DEFAULT_LINK : tourLink(step);
}

/**
 * Opens the run of the page's address. If the address is damaged, the open run stays, or the first
 * scenario is opened. `isCurrent` returns false if a later navigation has replaced this one.
 */
export async function openAddress(session: Session, isCurrent = () => true): Promise<void> {
    try {
        const link = (await decodeLink(location.hash)) ?? firstLink();
        if (isCurrent()) session.openLink(link);
    } catch (error) {
        if (!isCurrent()) return;
        const isFirst = session.timeline.peek() === undefined;
        if (isFirst) session.openLink(DEFAULT_LINK);
        const reason = error instanceof LinkError ? error.message : DAMAGED_LINK;
        session.notify(`${reason}. ${isFirst ? INSTEAD : "The open run stays."}`, true);
    }
}

/** Returns the URL that reproduces the present state, or `undefined` if a server's log is open. */
export async function presentLink(session: Session): Promise<string | undefined> {
    const state = session.linkState();
    if (state === undefined) return undefined;
    const url = new URL(location.href);
    url.hash = await encodeLink(state);
    return url.href;
}

/**
 * Writes the page's address whenever the session changes. Opens the address whenever a person edits
 * it, or goes back or forward.
 */
export function synchroniseAddress(session: Session): void {
    const address = new AddressSync(session);
    effect(() => {
        session.revision.value;
        session.position.value;
        session.speed.value;
        session.allLanes.value;
        session.mergedSteps.value;
        session.isEdited.value;
        session.tourStep.value;
        session.search.result.value;
        address.writeSoon();
    });
    session.onReplace = (before) => address.pushEntry(before);
    session.onEdit = () => address.writeAtOnce();
    addEventListener("popstate", () => void address.openEntry());
    // Depending on the reason for which a page is unloaded, browsers fire only some of these
    // events.
    addEventListener("pagehide", () => address.writeBeforeUnload());
    addEventListener("beforeunload", () => address.writeBeforeUnload());
    addEventListener("visibilitychange", () => address.writeBeforeUnload());
}

/** Keeps the session and the current entry of the browser's history equal. */
class AddressSync {
    private readonly writer = new LinkWriter();
    /**
     * The states of the other history entries, by the entries' names. They can also restore logs,
     * which no address contains, until the page is reloaded.
     */
    private readonly snapshots = new Map<string, Snapshot>();
    private entry = historyState()?.entry ?? newEntryName();
    private written = location.hash;
    private timer: ReturnType<typeof setTimeout> | undefined;
    /** The time of the first change since the address was last written. */
    private staleSince: number | undefined;
    /** The time that the last write of the address took, in milliseconds. */
    private writeMs = 0;
    /**
     * The number of writes of the address that were started. A slow write must not overwrite the
     * result of a later one.
     */
    private writes = 0;

    constructor(private readonly session: Session) {
        this.notifyLostLog();
        this.replaceEntry(location.hash);
    }

    /**
     * Tells the person that a log is lost, if the history entry showed a log before the page was
     * reloaded.
     */
    private notifyLostLog(): void {
        if (historyState()?.isLog) this.session.notify("a reload loses a live server's log: open the log again", false);
    }

    /** Writes the address when changes pause, or when the written address becomes too old. */
    writeSoon(): void {
        const now = performance.now();
        this.staleSince ??= now;
        const latest = this.staleSince + Math.max(MAX_AGE_MS, this.writeMs / MAX_TIME_SHARE);
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.writeAtOnce(), Math.min(WRITE_DELAY_MS, latest - now));
    }

    /**
     * Writes the address at once, so that an edit is not lost if the person closes the page next.
     */
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

    /**
     * Writes the address synchronously, because a page that is unloaded runs no asynchronous code.
     */
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
     * Returns the address fragment of a snapshot, or `undefined` if it would be too long. The
     * fragment of a log is empty.
     */
    private synchronousHash(snapshot: Snapshot | undefined): string | undefined {
        if (snapshot === undefined || !("link" in snapshot)) return "";
        const hash = `#${this.writer.writeNow(snapshot.link)}`;
        return hash.length > MAX_SYNC_LENGTH ? undefined : hash;
    }

    /**
     * Adds a history entry for the run that has replaced the run `before`, so that Back restores
     * `before`.
     */
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

    /** Opens the run of the history entry to which a person has gone. */
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
 * Returns true if Back would change nothing: both snapshots are the same run, or both are the log
 * of the page's own server.
 */
function isUnchanged(before: Snapshot, now: Snapshot | undefined, isSameHash: boolean): boolean {
    if (now === undefined || "link" in before || "link" in now) return isSameHash && now !== undefined && "link" in before === "link" in now;
    return before.isFromServer && now.isFromServer;
}

function addressOf(hash: string): string {
    return hash === "" ? location.pathname + location.search : hash;
}

/**
 * Returns a name that no other history entry has. It also differs from names before a reload,
 * because history entries survive a reload.
 */
function newEntryName(): string {
    return `${performance.timeOrigin}.${Math.random()}`;
}

function historyState(): HistoryState | undefined {
    const state: unknown = history.state;
    return typeof state === "object" && state !== null && "entry" in state ? (state as HistoryState) : undefined;
}

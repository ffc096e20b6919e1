import type { ClientSettings, Standing, TlsFiles } from "../client/api.js";
import { LeaseholdError } from "../error.js";
import type { Signal } from "../globals.js";

/** The settings of `connect`. */
export interface LocksSettings extends ClientSettings {
    /** Called after each change of the session's standing, except by `close`. */
    readonly onStanding?: (standing: Standing) => void;
}

/** The options of an acquire. */
export interface AcquireOptions {
    /** The most seconds to wait for the lock; 0, the default, means now or never. */
    readonly wait?: number;
    /** Ends the wait. The acquire then leaves the queue, and throws the signal's reason. */
    readonly signal?: Signal;
    /** Called with the most asks that are served before this one, while it waits. */
    readonly onPlace?: (place: number) => void;
    /**
     * True to hold the lock together with all others who share it, as readers do. Who wants the lock
     * alone waits for them, and later ones wait behind.
     */
    readonly shared?: boolean;
    /**
     * The number of permits of the lock, at most 256, of which this acquire wants one. All who use the
     * lock must name the same number: an acquire with another one waits until no permit is held.
     * Throws `INVALID_ARGUMENT` if `shared` is true too.
     */
    readonly permits?: number;
}

/** One lock of several that are acquired together. */
export interface WantedLock {
    readonly namespace: string;
    readonly key: string;
    /** True to hold this lock together with all others who share it: see `AcquireOptions`. */
    readonly shared?: boolean;
    /** The number of permits of this lock, of which one is wanted: see `AcquireOptions`. */
    readonly permits?: number;
}

/** The options of an acquire of several locks. */
export interface AcquireAllOptions {
    /** The most seconds to wait for all locks; 0, the default, means now or never. */
    readonly wait?: number;
    /** Ends the wait. The acquire then leaves all queues, and throws the signal's reason. */
    readonly signal?: Signal;
}

/** The held locks of several that were wanted, in the same order. */
export type HeldLocks<W extends readonly WantedLock[]> = { readonly [Position in keyof W]: HeldLock };

/** The slot of a lock that several processes hold. */
export interface SlotOptions {
    /** The number of the slot, from 1 on; 0, the default, stands for the lock itself. */
    readonly slot?: number;
}

/** The options of a reap. */
export interface ReapOptions {
    /** The most seconds to wait for an orphaned lock, at least one; without it the wait has no end. */
    readonly wait?: number;
    /** Ends the wait. The reap then takes no lock, and throws the signal's reason. */
    readonly signal?: Signal;
}

/** The end of the work under a lock, for the lock's readers. */
export interface ReleaseOptions {
    /** `succeeded` by default. */
    readonly outcome?: "succeeded" | "failed";
    /** At most 2,048 bytes. */
    readonly value?: string | Uint8Array;
}

/** A lock that this process holds, until its release or its loss. */
export interface HeldLock {
    readonly namespace: string;
    readonly key: string;
    /** The namespace and the key with a slash between them, for the guard of a database. */
    readonly name: string;
    /**
     * The number of the slot, from 1 on, if the lock is shared: each permit has another one. 0 if this
     * process holds the lock alone.
     */
    readonly slot: number;
    /** The fence of the grant, larger than the fence of every grant before it. */
    readonly fence: bigint;
    /** The standing of the lock; `lost` too if the lock was released. */
    readonly standing: Standing;
    /** False once the lock is lost or released. */
    readonly isHeld: boolean;
    /** The seconds until the lock is lost if no renewal succeeds from now on; 0 once it is not held. */
    readonly remainingSeconds: number;
    /**
     * Aborted when the lock is lost: its session is lost, or an operator took it. The reason is the
     * error that `check` throws.
     */
    readonly signal: Signal;
    /** Throws `LOCK_LOST` if the work under the lock must stop. */
    check(): void;
    /**
     * Releases the lock. A repeated release returns the result of the first.
     *
     * Returns true if the server has answered. Otherwise the release is repeated in the background.
     * Throws `LOCK_LOST` if the lock has passed on. If the server refuses the value, the lock is
     * still held.
     */
    release(options?: ReleaseOptions): Promise<boolean>;
}

/** An orphaned lock that this process holds while it cleans up after the holder that has died. */
export interface Orphan extends HeldLock {
    /**
     * The fence of the grant whose holder has died. The cleanup of one grant may come more than
     * once: a row with this number, written in the cleanup's own transaction, makes it happen once.
     */
    readonly formerFence: bigint;
    /** The number of this cleanup, from 1. */
    readonly attempt: number;
    /** The most cleanups that are begun. After the last one has failed, the lock is set aside. */
    readonly mostAttempts: number;
}

/** A grant that has ended. */
export interface EndedGrant {
    readonly fence: bigint;
    /**
     * The way in which the grant ended: its holder released it after work that `succeeded` or
     * `failed`; its ask `left`; its session was `closed`, has `expired` or was `evicted`; an
     * operator `forced` it.
     */
    readonly end: "succeeded" | "failed" | "left" | "closed" | "expired" | "evicted" | "forced";
    /** The value of the release. */
    readonly value: Uint8Array;
    readonly endedAt: Date;
}

/** A grant whose holder has died, and whose cleanup has not succeeded yet. */
export interface Obituary {
    readonly fence: bigint;
    readonly end: EndedGrant["end"];
    readonly endedAt: Date;
    /** The number of cleanups that were begun. */
    readonly attempts: number;
    /** The most cleanups that are begun before the lock is set aside. */
    readonly mostAttempts: number;
}

/** A lock as the server stores it. */
export interface LockStatus {
    readonly namespace: string;
    readonly key: string;
    /** The number of the slot, from 1 on, if this is one of a lock that is shared; 0 for the lock itself. */
    readonly slot: number;
    /**
     * `withheld`: an operator took the lock, and the time of its holder is not over. `orphaned`: its
     * holder has died, and the lock waits for a cleanup. `set-aside`: the cleanup has failed too
     * often, and the lock waits for an operator. `shared`: each holder has a slot of the lock.
     */
    readonly state: "free" | "held" | "withheld" | "orphaned" | "set-aside" | "shared";
    /** The fence of the grant, or of the grant that was taken away; undefined if there is none. */
    readonly fence: bigint | undefined;
    /** The session that holds the lock. */
    readonly sessionId: string | undefined;
    readonly updatedAt: Date | undefined;
    /** The number of asks that wait. */
    readonly waiting: number;
    /** The grant that ended last. */
    readonly last: EndedGrant | undefined;
    /** The grant whose cleanup is due. */
    readonly obituary: Obituary | undefined;
    /** The number of slots that are taken: held, withheld or waiting for a cleanup. */
    readonly takenSlots: number;
    /** The number of permits while slots are taken; 0 if the lock is shared as readers do. */
    readonly permits: number;
}

/**
 * The locks of a server. All that a process acquires here are held under one session, which the
 * first acquire opens, and which a worker thread renews.
 *
 * A call that fails throws a `LeaseholdError`; a wrong argument has the code `INVALID_ARGUMENT`. No
 * error contains a key or a value.
 */
export interface Locks {
    /**
     * Calls a function while this process holds a lock, and returns its result. Releases the lock
     * when the function's promise is settled: as failed if the function throws.
     *
     * An acquire within the function, or within a branch that it starts, tells the server that the
     * function's lock is held meanwhile. So let the function await all that it starts. The locks of
     * one branch do not count for another one, nor does a lock without a function.
     *
     * Throws `LOCK_HELD` if the lock did not become free in time; the function is not called then.
     * Throws `LOCK_CIRCLE` if the wait would never end, because the holder of the lock waits for a lock
     * that is held around this call: end the outer functions, and begin again.
     * Throws `LOCK_LOST` if the lock was lost before the function had ended.
     */
    lock<T>(
        namespace: string,
        key: string,
        options: AcquireOptions,
        run: (lock: HeldLock) => T | PromiseLike<T>,
    ): Promise<T>;
    /** Acquires a lock, which the caller releases. Throws as `lock` does. */
    acquire(namespace: string, key: string, options?: AcquireOptions): Promise<HeldLock>;
    /**
     * Calls a function while this process holds several locks, at most 16, and returns its result.
     * Gets all of them or none. Releases all when the function's promise is settled: as failed if
     * the function throws.
     *
     * While the call waits for one lock, those that it has already are kept for it. Callers that name
     * the same locks never wait for each other in a circle, in whatever order they name them.
     *
     * Throws `LOCK_HELD` if one or more did not become free in time; the function is not called then.
     * Throws `LOCK_CIRCLE` as `lock` does.
     * Throws `LOCK_LOST` if a lock was lost before the function had ended.
     */
    lockAll<W extends readonly WantedLock[] | [], T>(
        wanted: W,
        options: AcquireAllOptions,
        run: (locks: HeldLocks<W>) => T | PromiseLike<T>,
    ): Promise<T>;
    /** Acquires several locks together, each of which the caller releases. Throws as `lockAll` does. */
    acquireAll<W extends readonly WantedLock[] | []>(wanted: W, options?: AcquireAllOptions): Promise<HeldLocks<W>>;
    /**
     * Waits for an orphaned lock of a namespace that is reaped, or of the namespaces in it, and calls
     * a function while this process holds the lock. Returns the function's result, and undefined if
     * no lock came in time. When the function's promise is settled, the lock passes on. If the
     * function throws, the lock is orphaned again, and the cleanup is offered again after a pause.
     *
     * Throws `LOCK_LOST` if the lock was lost before the function had ended.
     */
    reap<T>(
        namespace: string,
        options: ReapOptions,
        run: (orphan: Orphan) => T | PromiseLike<T>,
    ): Promise<T | undefined>;
    /** Reads a lock, or a slot of it. A lock that nobody has held is free. */
    get(namespace: string, key: string, options?: SlotOptions): Promise<LockStatus>;
    /**
     * Lists the locks of a namespace and of those in it that are not free, in the order of
     * namespace and key. The slots that are taken follow their lock. Without a namespace it lists all locks, which is for administrators.
     */
    list(namespace?: string): AsyncIterableIterator<LockStatus>;
    /**
     * Takes a lock from its holder, and tells it so; for administrators. The lock passes on when the
     * time of the holder is over. With `atOnce` it passes on now: only fences refuse the former
     * holder's writes. If several processes hold the lock, `slot` names the one that loses it. Throws
     * `FENCE_PASSED` if the lock is not held under this fence.
     */
    force(
        namespace: string,
        key: string,
        fence: bigint,
        options?: SlotOptions & { readonly atOnce?: boolean },
    ): Promise<void>;
    /**
     * Ends the wait of an orphaned lock for a cleanup; for administrators. `fence` is that of its
     * obituary. `retry` begins the cleanup again, and counts its attempts from 0. `cleaned` lets the
     * lock pass on. Throws `FENCE_PASSED` if no cleanup after this grant is due.
     */
    resolveOrphan(
        namespace: string,
        key: string,
        fence: bigint,
        resolution: "retry" | "cleaned",
        options?: SlotOptions,
    ): Promise<void>;
    /** Closes the session. Its locks pass on at once, so nothing may work under them any more. */
    close(): Promise<void>;
}

/** Returns the locks of a server. Throws `MISCONFIGURED` if a setting is invalid. Sends no call. */
declare function connect(settings?: LocksSettings): Locks;

export type { Standing, TlsFiles };
export { connect, LeaseholdError };

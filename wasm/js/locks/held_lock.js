import { hasEnded, lost } from "./error.js";
import { whileHolding } from "./held_locks.js";
import { ending } from "./messages.js";

/** A lock that this process holds, until its release or its loss. `api.d.ts` declares its types. */
export class HeldLock {
    /** The id of the ask under which this process holds the lock. */
    askId;
    #session;
    #path;
    #fence;
    #lost = new AbortController();
    #release;

    constructor(session, path, { fence, askId }) {
        this.#session = session;
        this.#path = path;
        this.#fence = fence;
        this.askId = askId;
        session.hold(this);
    }

    get namespace() {
        return this.#path.namespace;
    }

    get key() {
        return this.#path.key;
    }

    get name() {
        return `${this.namespace}/${this.key}`;
    }

    get slot() {
        return this.#path.slot;
    }

    get fence() {
        return this.#fence;
    }

    get standing() {
        return this.signal.aborted || this.#release ? "lost" : this.#session.judge();
    }

    get isHeld() {
        return this.standing !== "lost";
    }

    get remainingSeconds() {
        return this.isHeld ? this.#session.remainingMillis / 1e3 : 0;
    }

    get signal() {
        // A loss is told here, even if no event of this thread was handled since.
        this.#session.judge();
        return this.#lost.signal;
    }

    check() {
        this.signal.throwIfAborted();
        if (this.#release) throw lost("the lock was released");
    }

    async release(options = {}) {
        const end = ending(options);
        // A repeated release returns the result of the first one.
        this.#release ??= this.#send(end);
        return await this.#release;
    }

    /** Tells the holder of the loss. */
    lose(reason) {
        this.#session.drop(this);
        this.#lost.abort(reason);
    }

    async #send(end) {
        this.signal.throwIfAborted();
        try {
            const isAnswered = await this.#finish(end);
            this.#session.drop(this);
            return isAnswered;
        } catch (error) {
            if (!hasPassed(error)) {
                // The lock is still held, because the value is too long, for example.
                this.#release = undefined;
                throw error;
            }
            if (hasEnded(error)) this.#session.lose(error);
            this.lose(lost("the lock has passed on"));
            throw this.#lost.signal.reason;
        }
    }

    async #finish(end) {
        const grant = { sessionId: this.#session.id, lock: this.#path, fence: String(this.#fence) };
        try {
            return await this.#session.finish("ReleaseLock", { ...grant, ...end });
        } catch (error) {
            // The answer to an earlier attempt was lost, and a later grant has ended since (K19).
            const isRepeated = error.code === "FENCE_PASSED" && error.followsUnanswered;
            if (isRepeated && !(await this.#session.isTaken(this.#fence))) return true;
            throw error;
        }
    }
}

function hasPassed(error) {
    return hasEnded(error) || error.code === "FENCE_PASSED";
}

/** Calls a function with a held lock, and releases the lock when the function's promise is settled. */
export async function work(lock, run) {
    return await workTogether([lock], () => run(lock));
}

/**
 * Calls a function with held locks, and releases all of them when the function's promise is settled.
 * If a release fails, the others are released all the same.
 */
export async function workTogether(locks, run) {
    let result;
    try {
        result = await whileHolding(locks, () => run(locks));
    } catch (error) {
        // The caller learns of this error. A lock that is lost needs no release.
        await Promise.allSettled(locks.map((lock) => lock.release({ outcome: "failed" })));
        throw error;
    }
    const releases = await Promise.allSettled(locks.map((lock) => lock.release()));
    for (const { status, reason } of releases) if (status === "rejected") throw reason;
    return result;
}

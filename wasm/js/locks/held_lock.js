import { checked } from "../arguments.js";
import { Hold } from "../client/hold.js";
import { whileHolding } from "./held_locks.js";
import { ending } from "./messages.js";
import { RELEASE } from "./signatures.js";

/** A lock that this process holds, until its release or its loss. `api.d.ts` declares its types. */
export class HeldLock extends Hold {
    /** The id of the ask under which this process holds the lock. */
    askId;
    #path;

    constructor(session, path, { fence, askId }) {
        super(session, fence);
        this.#path = path;
        this.askId = askId;
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

    async release(...values) {
        const end = ending(...checked(RELEASE, values));
        return await this.end((session, hold) => this.#finish(session, { ...hold, lock: this.#path, ...end }));
    }

    async #finish(session, request) {
        try {
            return await session.finish("ReleaseLock", request);
        } catch (error) {
            // The answer to an earlier attempt was lost, and a later grant has ended since (K19).
            const isRepeated = error.code === "FENCE_PASSED" && error.followsUnanswered;
            if (isRepeated && !(await session.isTaken(this.fence))) return true;
            throw error;
        }
    }
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

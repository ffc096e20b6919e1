import { setTimeout as sleep } from "node:timers/promises";

import { CallError } from "../client/error.js";
import { randomId } from "../client/values.js";
import { heldAskIds } from "./held_locks.js";

/** The pause before a stream is opened again, after it has ended without a result. */
const RESUME_PAUSE_MILLIS = 100;
/** The time within which an ask that nobody waits for any more tries to leave. */
const LEAVE_MILLIS = 3_000;

/** The time for which a call that waits and gets no answer is repeated, before it fails. */
export const RESUME_MILLIS = 30_000;
/** A day, the longest wait that a server allows. Node's timers end after 25 days. */
export const MAX_WAIT_MILLIS = 86_400_000;

/**
 * One ask for a lock, or several that are decided together. All calls carry the ids of the asks, so
 * that a repeated call gets the same grants (K05).
 */
export class Ask {
    /** The id of each ask. */
    askIds;
    /** The asks that the caller holds while it waits. */
    heldAskIds = heldAskIds();
    #session;
    #signals;

    /** `signal` is the caller's, and may be undefined. `count` is the number of asks. */
    constructor(session, signal, count = 1) {
        this.askIds = Array.from({ length: count }, () => randomId());
        this.#session = session;
        this.#signals = [session.signal, signal].filter((given) => given !== undefined);
    }

    /** Calls a function that gets a grant. If it throws, nothing is left of the ask. */
    async decide(run) {
        try {
            return await run();
        } catch (error) {
            if (!isRefusal(error)) await this.leave();
            throw error;
        }
    }

    /** Sends a call that does not wait. */
    async call(name, request) {
        const options = { millis: this.#session.millis, signals: this.#signals };
        return await this.#session.calls.run(name, this.#of(request), options);
    }

    /** Sends a call that does not wait, once. */
    async attempt(name, request) {
        return await this.#session.calls.attempt(name, this.#of(request), { signals: this.#signals });
    }

    /** Reads one stream, and returns its result; undefined if it ended without a result or a refusal. */
    async stream(name, request, { millis, hear, hearEnd }) {
        const options = { millis, signals: this.#signals, hearEnd };
        return await this.#session.calls.stream(name, this.#of(request), options, hear);
    }

    /**
     * Reads streams until one has a result, and returns that. A stream that breaks or moves is
     * opened again under the same ask. Throws its error if `isLate` returns true.
     */
    async resume(read, isLate) {
        for (let pause = RESUME_PAUSE_MILLIS; ; await sleep(pause)) {
            try {
                const found = await read();
                if (found !== undefined) return found;
            } catch (error) {
                if (!(error instanceof CallError) || !error.isRepeatable || isLate()) throw error;
                pause = Math.max(RESUME_PAUSE_MILLIS, error.retryAfterMillis);
            }
        }
    }

    /** Leaves. A grant that nobody learnt of passes on (K10). */
    async leave() {
        if (this.#session.judge() === "lost") return;
        const leave = (askId) => this.#session.finish("LeaveLock", this.#of({ askId }), LEAVE_MILLIS);
        await Promise.allSettled(this.askIds.map(leave));
    }

    #of(request) {
        return { sessionId: this.#session.id, ...request };
    }
}

/** Returns true if the server has decided that the ask neither waits nor holds. */
function isRefusal(error) {
    return error instanceof CallError && !error.isRepeatable && !error.isUnanswered;
}

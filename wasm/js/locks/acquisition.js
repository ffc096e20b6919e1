// One acquire of a lock, under one ask. All its calls carry the id of the ask, so that a repeated
// call gets the same grant or keeps its place (K05).
import { setTimeout as sleep } from "node:timers/promises";

import { CallError } from "./error.js";
import { micros, randomId } from "./messages.js";

/** The pause before an acquire is repeated, after its stream has ended without a grant. */
const RESUME_PAUSE_MILLIS = 100;
/** The time for which a waiting acquire that gets no answer is repeated, before it fails. */
const RESUME_MILLIS = 30_000;
/** The time after its wait for which a stream is kept open: the server's answer needs some. */
const ANSWER_MILLIS = 10_000;
/** The time within which an acquire that nobody waits for any more tries to leave the queue. */
const LEAVE_MILLIS = 3_000;
/** A day, the longest wait that a server allows. Node's timers end after 25 days. */
const MAX_WAIT_MILLIS = 86_400_000;

/** An acquire, which is run once. */
export class Acquisition {
    #session;
    #ask;
    #wait;
    #signals;
    #onPlace;

    constructor(session, path, { wait = 0, signal, onPlace }) {
        this.#session = session;
        this.#ask = { sessionId: session.id, askId: randomId(), lock: path };
        this.#wait = Number(micros("wait", wait)) / 1e3;
        this.#signals = [session.signal, signal].filter((given) => given !== undefined);
        this.#onPlace = onPlace;
    }

    /** Returns the fence of the grant. Throws if there is none; nothing is then left of the ask. */
    async run() {
        try {
            return BigInt(await (this.#wait === 0 ? this.#tryAcquire() : this.#waitFor()));
        } catch (error) {
            if (!isRefusal(error) && this.#session.judge() !== "lost") await this.#leave();
            throw error;
        }
    }

    async #tryAcquire() {
        const { fence } = await this.#session.calls.run("TryAcquireLock", this.#ask, {
            millis: this.#session.millis,
            signals: this.#signals,
        });
        return fence;
    }

    /** Waits for the lock. A stream that breaks or moves is opened again, and the ask keeps its place. */
    async #waitFor() {
        const endsAt = performance.now() + this.#wait;
        let heardAt = performance.now();
        const hear = (message) => {
            heardAt = performance.now();
            if (message.news === "waiting") this.#onPlace?.(message.waiting);
            return message.fence;
        };
        for (let pause = RESUME_PAUSE_MILLIS; ; await sleep(pause)) {
            try {
                const fence = await this.#read(Math.max(endsAt - performance.now(), 0), hear);
                if (fence !== undefined) return fence;
            } catch (error) {
                const isLate = performance.now() > Math.min(endsAt, heardAt + RESUME_MILLIS);
                if (!(error instanceof CallError) || !error.isRepeatable || isLate) throw error;
                pause = Math.max(RESUME_PAUSE_MILLIS, error.retryAfterMillis);
            }
        }
    }

    /** Reads one stream. Returns undefined if it ended without a grant or a refusal. */
    async #read(left, hear) {
        // The server refuses a wait of zero, but this ask may have its grant already.
        const request = { ...this.#ask, waitMicros: String(Math.max(Math.round(left * 1e3), 1)) };
        const millis = Math.min(left, MAX_WAIT_MILLIS) + ANSWER_MILLIS;
        return await this.#session.calls.stream("AcquireLock", request, { millis, signals: this.#signals }, hear);
    }

    /** Leaves the queue. A grant that nobody learnt of passes on (K10). */
    async #leave() {
        const { sessionId, askId } = this.#ask;
        await this.#session.finish("LeaveLock", { sessionId, askId }, LEAVE_MILLIS).catch(() => {});
    }
}

/** Returns true if the server has decided that the ask neither waits nor holds. */
function isRefusal(error) {
    return error instanceof CallError && !error.isRepeatable && !error.isUnanswered;
}

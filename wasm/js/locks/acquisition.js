// One acquire of a lock. Its ask keeps its place in the queue while a call is repeated.
import { CallError } from "../client/error.js";
import { micros } from "../client/values.js";
import { Ask, MAX_WAIT_MILLIS, RESUME_MILLIS } from "./ask.js";
import { waitMicros } from "./messages.js";

/** The time after its wait for which a stream is kept open: the server's answer needs some. */
export const ANSWER_MILLIS = 10_000;

/** An acquire, which is run once. */
export class Acquisition {
    #ask;
    #wanted;
    #wait;
    #onPlace;

    /** `wanted` is the part of each request that names the lock, and says how the ask shares it. */
    constructor(session, wanted, { wait = 0, signal, onPlace }) {
        this.#ask = new Ask(session, signal);
        this.#wanted = { askId: this.#ask.askIds[0], ...wanted };
        this.#wait = Number(micros("wait", wait)) / 1e3;
        this.#onPlace = onPlace;
    }

    /**
     * Returns the fence and the slot of the grant, and the id of its ask. Throws if there is none;
     * nothing is then left of the ask.
     */
    async run() {
        const { fence, slot } = await this.#ask.decide(() => (this.#wait === 0 ? this.#tryAcquire() : this.#waitFor()));
        return { fence: BigInt(fence), slot, askId: this.#ask.askIds[0] };
    }

    async #tryAcquire() {
        return await this.#ask.call("TryAcquireLock", this.#wanted);
    }

    // Returns the grant; undefined if another ask holds the lock, or if no answer came: the same ask
    // then gets the grant that this call may have made.
    async #tryFirst() {
        try {
            return await this.#ask.attempt("TryAcquireLock", this.#wanted);
        } catch (error) {
            if (error instanceof CallError && (error.isRepeatable || error.code === "LOCK_HELD")) return undefined;
            throw error;
        }
    }

    async #waitFor() {
        const endsAt = performance.now() + this.#wait;
        // Most locks are free, and a call with one answer costs less than a stream. So the first call
        // does not wait. The server refuses a longer wait, which the first call does not name (K21).
        const granted = this.#wait <= MAX_WAIT_MILLIS ? await this.#tryFirst() : undefined;
        if (granted !== undefined) return granted;
        let heardAt = performance.now();
        const hear = (message) => {
            heardAt = performance.now();
            if (message.news === "waiting") this.#onPlace?.(message.waiting);
            return message.news === "fence" ? message : undefined;
        };
        // A stream may be silent for long, so the silence counts from its end.
        const hearEnd = () => (heardAt = performance.now());
        const isLate = () => performance.now() > Math.min(endsAt, heardAt + RESUME_MILLIS);
        const read = () => this.#read(Math.max(endsAt - performance.now(), 0), { hear, hearEnd });
        return await this.#ask.resume(read, isLate);
    }

    async #read(left, listeners) {
        // The server refuses a wait of zero, but this ask may have its grant already.
        const request = { ...this.#wanted, waitMicros: waitMicros(left, 1), heldAskIds: this.#ask.heldAskIds };
        const millis = Math.min(left, MAX_WAIT_MILLIS) + ANSWER_MILLIS;
        return await this.#ask.stream("AcquireLock", request, { millis, ...listeners });
    }
}

// One acquire of a lock. Its ask keeps its place in the queue while a call is repeated.
import { Ask, MAX_WAIT_MILLIS, RESUME_MILLIS } from "./ask.js";
import { micros } from "./messages.js";

/** The time after its wait for which a stream is kept open: the server's answer needs some. */
const ANSWER_MILLIS = 10_000;

/** An acquire, which is run once. */
export class Acquisition {
    #ask;
    #lock;
    #wait;
    #onPlace;

    constructor(session, path, { wait = 0, signal, onPlace }) {
        this.#ask = new Ask(session, signal);
        this.#lock = path;
        this.#wait = Number(micros("wait", wait)) / 1e3;
        this.#onPlace = onPlace;
    }

    /** Returns the fence of the grant. Throws if there is none; nothing is then left of the ask. */
    async run() {
        return BigInt(await this.#ask.decide(() => (this.#wait === 0 ? this.#tryAcquire() : this.#waitFor())));
    }

    async #tryAcquire() {
        return (await this.#ask.call("TryAcquireLock", { lock: this.#lock })).fence;
    }

    async #waitFor() {
        const endsAt = performance.now() + this.#wait;
        let heardAt = performance.now();
        const hear = (message) => {
            heardAt = performance.now();
            if (message.news === "waiting") this.#onPlace?.(message.waiting);
            return message.fence;
        };
        // A stream may be silent for long, so the silence counts from its end.
        const hearEnd = () => (heardAt = performance.now());
        const isLate = () => performance.now() > Math.min(endsAt, heardAt + RESUME_MILLIS);
        const read = () => this.#read(Math.max(endsAt - performance.now(), 0), { hear, hearEnd });
        return await this.#ask.resume(read, isLate);
    }

    async #read(left, listeners) {
        // The server refuses a wait of zero, but this ask may have its grant already.
        const request = { lock: this.#lock, waitMicros: String(Math.max(Math.round(left * 1e3), 1)) };
        const millis = Math.min(left, MAX_WAIT_MILLIS) + ANSWER_MILLIS;
        return await this.#ask.stream("AcquireLock", request, { millis, ...listeners });
    }
}

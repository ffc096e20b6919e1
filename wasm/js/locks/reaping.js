// One wait for an orphaned lock (K17).
import { micros } from "../client/values.js";
import { Ask, MAX_WAIT_MILLIS, RESUME_MILLIS } from "./ask.js";

/** The shortest wait. The server answers only when it has an orphaned lock, and needs time to look. */
const SHORTEST_WAIT_MILLIS = 1_000;

/** A wait for an orphaned lock, which is run once. */
export class Reaping {
    #ask;
    #namespace;
    #wait = Infinity;
    #heardAt;

    constructor(session, namespace, { wait, signal }) {
        this.#ask = new Ask(session, signal);
        this.#namespace = namespace;
        if (wait !== undefined) this.#wait = Math.max(Number(micros("wait", wait)) / 1e3, SHORTEST_WAIT_MILLIS);
    }

    /**
     * Returns the message of an orphaned lock, which the session then holds, and the id of its ask;
     * undefined if none came in time. Throws as an acquire does; nothing is then left of the ask.
     */
    async run() {
        const found = await this.#ask.decide(() => this.#waitFor());
        if (found !== null) return { ...found, askId: this.#ask.askIds[0] };
        // A lock may have come at the moment at which the wait was over.
        await this.#ask.leave();
        return undefined;
    }

    async #waitFor() {
        const endsAt = performance.now() + this.#wait;
        this.#heardAt = performance.now();
        const isLate = () => performance.now() > Math.min(endsAt, this.#heardAt + RESUME_MILLIS);
        return await this.#ask.resume(() => this.#read(endsAt), isLate);
    }

    /** Reads one stream. Returns null if the wait is over. */
    async #read(endsAt) {
        const isOver = () => performance.now() >= endsAt;
        const millis = Math.min(Math.max(endsAt - performance.now(), 0), MAX_WAIT_MILLIS);
        const hear = (message) => message.orphan ?? undefined;
        // A stream may be silent for long, so the silence counts from its end.
        const hearEnd = () => (this.#heardAt = performance.now());
        try {
            const request = { askId: this.#ask.askIds[0], namespace: this.#namespace };
            const found = await this.#ask.stream("ReapLock", request, { millis, hear, hearEnd });
            return found ?? (isOver() ? null : undefined);
        } catch (error) {
            if (error.code !== "DEADLINE_EXCEEDED") throw error;
            // gRPC counts in whole milliseconds, so its deadline may come a little early.
            return isOver() ? null : undefined;
        }
    }
}

/** The longest pause before the second attempt. It doubles with each attempt. */
const PAUSE_MILLIS = 100;
const MAX_PAUSE_MILLIS = 2_000;

/** The pauses between the attempts of a call. They are random, so that clients of one server spread. */
export class Backoff {
    #longest = PAUSE_MILLIS;

    /** Returns the next pause, which is at least as long as the server asks for. */
    pauseMillis(shortest = 0) {
        const pause = this.#longest * (0.5 + Math.random() / 2);
        this.#longest = Math.min(2 * this.#longest, MAX_PAUSE_MILLIS);
        return Math.max(pause, shortest);
    }

    /** Begins with short pauses again, after an attempt that succeeded. */
    reset() {
        this.#longest = PAUSE_MILLIS;
    }
}

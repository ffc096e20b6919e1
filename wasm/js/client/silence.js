// The package's own entry loads the engine's file.
import "../index.js";

import { SessionDeadlines } from "../../pkg/leasehold.js";
import { microsBetween, now } from "./clock.js";

/**
 * The time since a session's last renewal was sent, and what follows from it (K11). The engine has
 * the rule, so that it is the same in every language.
 *
 * Each answer is computed from the clock. So it is true even if the process was stopped.
 */
export class Silence {
    #deadlines;
    #sentAt;
    #isEnded = false;

    /** `sentAt` is the moment at which the call was sent that opened the session. */
    constructor({ durationMicros, graceMicros }, sentAt) {
        this.#deadlines = new SessionDeadlines(durationMicros, graceMicros);
        this.#sentAt = sentAt;
    }

    /** Notes a renewal that the server answered before the session was lost. */
    renewed(sentAt) {
        this.#sentAt = sentAt;
    }

    /** Ends the session for good. */
    end() {
        this.#isEnded = true;
    }

    /** The standing. Once it was `lost` it stays so: the caller may have begun to clean up (K02). */
    get standing() {
        const standing = this.#isEnded ? "lost" : this.#deadlines.standing(this.#micros);
        this.#isEnded ||= standing === "lost";
        return standing;
    }

    /** The time until the session is lost if no renewal succeeds from now on. */
    get remainingMillis() {
        return this.standing === "lost" ? 0 : this.#millisUntil(this.#deadlines.heldMicros);
    }

    /** The time until the next renewal is due. */
    get renewalInMillis() {
        return this.#millisUntil(this.#deadlines.renewalMicros);
    }

    /** The time from a renewal to the next one. */
    get renewalMillis() {
        return Number(this.#deadlines.renewalMicros) / 1e3;
    }

    /** The time until the standing changes if no renewal succeeds from now on. */
    get changeInMillis() {
        return this.standing === "safe" ? this.#millisUntil(this.#deadlines.safeMicros) : this.remainingMillis;
    }

    get #micros() {
        return microsBetween(this.#sentAt, now());
    }

    #millisUntil(deadlineMicros) {
        return Math.max(Number(deadlineMicros - this.#micros) / 1e3, 0);
    }
}

import { HeldLock } from "./held_lock.js";
import { obituaryOf } from "./messages.js";

/** An orphaned lock that this process holds while it cleans up. `api.d.ts` declares its types. */
export class Orphan extends HeldLock {
    #obituary;

    constructor(session, { lock, fence, obituary, askId }) {
        super(session, lock, { fence: BigInt(fence), askId });
        this.#obituary = obituaryOf(obituary);
    }

    get formerFence() {
        return this.#obituary.fence;
    }

    get attempt() {
        return this.#obituary.attempts;
    }

    get mostAttempts() {
        return this.#obituary.mostAttempts;
    }
}

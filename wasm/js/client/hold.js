import { hasEnded, lost } from "./error.js";

/** What a session holds until the holder ends it, or until it is lost: a lock, for example. */
export class Hold {
    #session;
    #fence;
    #lost = new AbortController();
    #end;

    constructor(session, fence) {
        this.#session = session;
        this.#fence = fence;
        session.hold(this);
    }

    get fence() {
        return this.#fence;
    }

    get standing() {
        return this.signal.aborted || this.#end ? "lost" : this.#session.judge();
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
        if (this.#end) throw this.#loss("was ended by its holder");
    }

    /** Tells the holder of the loss. */
    lose(reason) {
        this.#session.drop(this);
        this.#lost.abort(reason);
    }

    /**
     * Ends the hold by a call, once: a repeated end returns the result of the first. `send` gets the
     * session and the members of the request that say which hold is meant.
     */
    async end(send) {
        this.#end ??= this.#send(send);
        return await this.#end;
    }

    /** Returns the result of a call for the hold. A refusal that says that the hold has passed on is its loss. */
    async call(send) {
        this.signal.throwIfAborted();
        try {
            return await send(this.#session, { sessionId: this.#session.id, fence: String(this.#fence) });
        } catch (error) {
            if (hasEnded(error)) this.#session.lose(error);
            else if (error.code !== "FENCE_PASSED") throw error;
            this.lose(this.#loss("has passed on"));
            throw this.#lost.signal.reason;
        }
    }

    #loss(event) {
        const { kind } = this.#session;
        return lost(kind, `the ${kind.noun} ${event}`);
    }

    async #send(send) {
        try {
            const result = await this.call(send);
            this.#session.drop(this);
            return result;
        } catch (error) {
            // The hold goes on if the value of a release is too long, for example.
            if (!this.#lost.signal.aborted) this.#end = undefined;
            throw error;
        }
    }
}

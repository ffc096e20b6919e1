import { checked } from "../arguments.js";
import { BATCH, lost } from "../client/error.js";
import { Hold } from "../client/hold.js";
import { micros, uuid, word } from "../client/values.js";
import { FAIL, NOTE_PROGRESS } from "./signatures.js";

/** A request of a batch. `api.d.ts` declares its types. */
class TakenRequest {
    id;
    attempt;
    // No text of the object shows the body (Q22).
    #body;

    constructor({ requestId, attempt, body }) {
        this.id = uuid(requestId);
        this.attempt = attempt;
        this.#body = Uint8Array.from(body);
    }

    get body() {
        return this.#body;
    }
}

/** Requests of one key that this process works on as one. `api.d.ts` declares its types. */
export class Batch extends Hold {
    #lane;
    #kind;
    #requests;
    #progress;
    #outcome;

    constructor(session, queue, { key, fence, kind, requests, progress }) {
        super(session, BigInt(fence));
        this.#lane = { queue, key };
        this.#kind = word(kind);
        this.#requests = requests.map((request) => new TakenRequest(request));
        this.#progress = progress ? Uint8Array.from(progress) : undefined;
    }

    get queue() {
        return this.#lane.queue;
    }

    get key() {
        return this.#lane.key;
    }

    get kind() {
        return this.#kind;
    }

    get requests() {
        return this.#requests;
    }

    get progress() {
        return this.#progress;
    }

    /** True once the holder has said how the work ended. */
    get isSettled() {
        return this.#outcome !== undefined;
    }

    async complete() {
        await this.#settle({ outcome: "COMPLETED" });
    }

    async fail(...values) {
        const [{ retryAfter }] = checked(FAIL, values);
        const retryMicros = retryAfter === undefined ? undefined : String(micros("retryAfter", retryAfter));
        await this.#settle({ outcome: "FAILED", retryMicros });
    }

    async giveBack() {
        await this.#settle({ outcome: "GIVEN_BACK" });
    }

    async noteProgress(...values) {
        const [progress] = checked(NOTE_PROGRESS, values);
        const note = { ...this.#lane, progress: Buffer.from(progress) };
        await this.call(async ({ calls, millis, signal }, hold) => {
            await calls.run("NoteProgress", { ...hold, ...note }, { millis, signals: [signal] });
        });
    }

    /** Gives the batch back although its holder may still be at work, and tells the holder so. */
    async withdraw() {
        const given = this.giveBack();
        this.lose(lost(BATCH, "the worker has stopped"));
        await given;
    }

    async #settle(end) {
        // The holder must not believe that another outcome counts than the first one.
        if (this.#outcome !== undefined && this.#outcome !== end.outcome) this.check();
        this.#outcome = end.outcome;
        try {
            await this.end((session, hold) => this.#send(session, { ...hold, ...this.#lane, ...end }));
        } catch (error) {
            if (!this.signal.aborted) this.#outcome = undefined;
            throw error;
        }
    }

    async #send(session, request) {
        try {
            await session.insist("Settle", request);
        } catch (error) {
            // Only a settle or the end of the session ends a hold. So it was an earlier attempt, whose
            // answer was lost, and the lane's next batch has ended since (Q10).
            if (error.code !== "FENCE_PASSED" || !error.followsUnanswered) throw error;
        }
    }
}

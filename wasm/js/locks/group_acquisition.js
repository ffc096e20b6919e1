// One acquire of several locks, which are granted together (K14).
import { CallError } from "../client/error.js";
import { micros } from "../client/values.js";
import { ANSWER_MILLIS } from "./acquisition.js";
import { Ask, MAX_WAIT_MILLIS, RESUME_MILLIS } from "./ask.js";
import { waitMicros } from "./messages.js";

/** An acquire of several locks, which is run once. */
export class GroupAcquisition {
    #session;
    #signal;
    #wanted;
    #wait;

    /** `wanted` has an object for each ask, which names its lock, and says how the ask shares it. */
    constructor(session, wanted, { wait = 0, signal }) {
        this.#session = session;
        this.#signal = signal;
        this.#wanted = wanted;
        this.#wait = Number(micros("wait", wait)) / 1e3;
    }

    /**
     * Returns the fence and the slot of each grant with the id of its ask, in the order of the asks.
     * Throws if one has none; nothing is then left of any ask.
     */
    async run() {
        const endsAt = performance.now() + this.#wait;
        for (;;) {
            const ask = new Ask(this.#session, this.#signal, this.#wanted.length);
            try {
                const grants = await ask.decide(() => this.#waitFor(ask, endsAt));
                return grants.map(({ fence, slot }, position) => ({ fence: BigInt(fence), slot, askId: ask.askIds[position] }));
            } catch (error) {
                if (!(error instanceof CallError) || error.code !== "ASK_REUSED") throw error;
                // The stream was broken for so long that asks have left. The others leave, and all ask anew.
                await ask.leave();
            }
        }
    }

    async #waitFor(ask, endsAt) {
        const asks = this.#wanted.map((wanted, position) => ({ askId: ask.askIds[position], ...wanted }));
        let heardAt = performance.now();
        const hear = (message) => {
            heardAt = performance.now();
            return message.granted?.locks;
        };
        // A stream may be silent for long, so the silence counts from its end.
        const hearEnd = () => (heardAt = performance.now());
        // Also an acquire that does not wait is repeated for as long as other calls are.
        const repeatedUntil = heardAt + this.#session.millis;
        const isLate = () => performance.now() > Math.max(repeatedUntil, Math.min(endsAt, heardAt + RESUME_MILLIS));
        // The server refuses a wait of zero, but asks of an earlier stream may have their grants already.
        let shortest = 0;
        const read = async () => {
            const left = Math.max(endsAt - performance.now(), 0);
            const request = { asks, waitMicros: waitMicros(left, shortest), heldAskIds: ask.heldAskIds };
            shortest = 1;
            const millis = Math.min(left, MAX_WAIT_MILLIS) + ANSWER_MILLIS;
            return await ask.stream("AcquireLocks", request, { millis, hear, hearEnd });
        };
        return await ask.resume(read, isLate);
    }
}

import { setTimeout as sleep } from "node:timers/promises";

import { Backoff } from "../client/backoff.js";
import { CallError, hasEnded } from "../client/error.js";
import { Session } from "../client/session.js";
import { micros } from "../client/values.js";
import { Batch } from "./batch.js";

/** More lanes than a session can hold of one queue. */
const PAGE = 1_000;
/** A key for the place before a session's first lane. The order of the list is by session, fence and key. */
const ANY_KEY = "0";
/** The fewest and the most looks for batches that came after the end of the stream. */
const [MIN_LOOKS, MAX_LOOKS] = [2, 20];
/** The longest time of a timer of Node. */
const MAX_TIMER_MILLIS = 2 ** 31 - 1;

/** The batches that one worker takes from a queue, under a session of its own. */
export class Taking {
    #calls;
    #settings;
    #request;
    #stopMillis;
    #onReconnect;
    #session;
    // The batches for which the worker has not asked yet.
    #offered = [];
    #wake = () => {};
    #stopping = new AbortController();
    #failure;
    #ended;

    constructor(calls, settings, queue, { credit = 1, maxRequests = 0, stopSeconds = 20, onReconnect }) {
        this.#calls = calls;
        this.#settings = settings;
        this.#request = { queue, credit, maxRequests };
        this.#stopMillis = Number(micros("stopSeconds", stopSeconds)) / 1e3;
        this.#onReconnect = onReconnect;
    }

    /** Begins to take. Returns the promise of `ended`. */
    begin() {
        this.#ended = this.#run();
        return this.#ended;
    }

    /** A promise that waits for the end, and never fails. */
    get ended() {
        return this.#ended;
    }

    /** Returns the next batch; undefined after a stop. Throws the error that has ended the taking. */
    async next() {
        while (!this.#stopping.signal.aborted) {
            const batch = this.#offered.shift();
            // A batch may be lost while it waits for the worker.
            if (batch?.isHeld) return batch;
            if (!batch) await new Promise((resolve) => (this.#wake = resolve));
        }
        await this.#ended;
        if (this.#failure) throw this.#failure.cause;
        return undefined;
    }

    /** Takes nothing more. The worker may end its batches for a while, then they are given back (Q11). */
    stop() {
        this.#stopping.abort();
        this.#wake();
    }

    /** Stops because of an error, which `next` throws. */
    fail(cause) {
        this.#failure ??= { cause };
        this.stop();
    }

    /** Stops, and fails the batches that the worker has got and not settled. Returns at the end. */
    async leave() {
        this.stop();
        const got = this.#session?.holds.filter((batch) => !this.#offered.includes(batch)) ?? [];
        await Promise.allSettled(got.filter((batch) => !batch.isSettled).map((batch) => batch.fail()));
        await this.#ended;
    }

    async #run() {
        try {
            await this.#take();
        } catch (error) {
            this.fail(error);
        }
        await this.#end();
    }

    /** Takes batches until the stop. Opens a stream again that breaks or moves, and a session that is lost. */
    async #take() {
        const { signal } = this.#stopping;
        const backoff = new Backoff();
        while (!signal.aborted) {
            let wait;
            try {
                await this.#read(backoff);
            } catch (error) {
                if (signal.aborted) return;
                this.#checkPasses(error);
                this.#onReconnect?.(error);
                wait = error.retryAfterMillis;
            }
            await sleep(backoff.pauseMillis(wait), undefined, { signal }).catch(() => {});
        }
    }

    async #read(backoff) {
        const session = await this.#liveSession();
        const heldFences = session.holds.map(({ fence }) => String(fence));
        const request = { ...this.#request, sessionId: session.id, heldFences };
        const signals = [session.signal, this.#stopping.signal];
        await this.#calls.stream("Take", request, { signals }, ({ news, batch }) => {
            if (news === "moving") return true;
            // gRPC may give messages that came before the end of the stream. The end looks for their batches.
            if (this.#stopping.signal.aborted || batch === undefined) return undefined;
            backoff.reset();
            this.#offered.push(new Batch(session, this.#request.queue, batch));
            this.#wake();
            return undefined;
        });
    }

    async #liveSession() {
        if (this.#session?.judge() === "lost") this.#session = undefined;
        this.#session ??= await Session.open(this.#calls, this.#settings, [this.#stopping.signal]);
        return this.#session;
    }

    /** Throws an error after which no later stream can succeed. */
    #checkPasses(error) {
        if (error === this.#session?.signal.reason) return;
        if (hasEnded(error)) return this.#session?.lose(error);
        // A batch may be lost between its take and its message.
        const isLost = error.code === "FENCE_PASSED";
        if (!(error instanceof CallError) || !(error.isRepeatable || error.isUnanswered || isLost)) throw error;
    }

    async #end() {
        const session = this.#session;
        if (session === undefined || session.judge() === "lost") return;
        const given = this.#offered.splice(0).map((batch) => batch.giveBack());
        given.push(this.#giveBackUnseen(session));
        await within(this.#stopMillis, [...given, session.emptied()]);
        const unsettled = session.holds.filter((batch) => !batch.isSettled);
        given.push(...unsettled.map((batch) => batch.withdraw()));
        await within(this.#settings.millis, [...given, session.emptied()]);
        await session.close();
    }

    /**
     * Gives back the batches that the server took for the last stream while that was ended. Without it
     * their attempts would count.
     */
    async #giveBackUnseen(session) {
        const options = { millis: this.#settings.millis };
        const lane = { sessionId: session.id, queue: this.#request.queue };
        const settle = (key, fence) => session.insist("Settle", { ...lane, key, fence, outcome: "GIVEN_BACK" });
        const page = { queue: lane.queue, list: "TAKEN", limit: PAGE, after: { ...lane, key: ANY_KEY, fence: "0" } };
        // The server hears a little later that nobody reads the stream, so one look is too few.
        for (let look = 1, unseen; look <= MIN_LOOKS || (unseen.length > 0 && look <= MAX_LOOKS); look += 1) {
            // The refusal of this settle comes after the takes that the server decides before it.
            await settle(ANY_KEY, "0").catch(() => {});
            const { lanes } = await this.#calls.run("ListLanes", page, options);
            const seen = session.holds.map(({ fence }) => String(fence));
            unseen = lanes.filter(({ sessionId, fence }) => session.id.equals(sessionId) && !seen.includes(fence));
            await Promise.allSettled(unseen.map(({ key, fence }) => settle(key, fence)));
        }
    }
}

/** Waits for promises, whatever becomes of them, for at most this time. */
async function within(millis, promises) {
    const bound = new AbortController();
    const late = sleep(Math.min(millis, MAX_TIMER_MILLIS), undefined, { signal: bound.signal }).catch(() => {});
    await Promise.race([late, Promise.allSettled(promises)]);
    bound.abort();
}

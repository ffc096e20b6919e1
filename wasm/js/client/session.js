import { setMaxListeners } from "node:events";
import { MessageChannel, receiveMessageOnPort, Worker } from "node:worker_threads";

import { now } from "./clock.js";
import { CallError, LOCK, lost } from "./error.js";
import { Silence } from "./silence.js";
import { randomId } from "./values.js";

/** The longest time until the standing is judged again. Timers stand still while the machine sleeps. */
const MAX_PAUSE_MILLIS = 5_000;

/** Returns the error of a lock that an operator has taken. */
function takenByOperator() {
    return lost(LOCK, "an operator took the lock");
}

/** The keepalive of all that a process holds or waits for under it. */
export class Session {
    id = randomId();
    calls;
    /** The kind of what the session holds. */
    kind;
    #settings;
    #onStanding;
    #silence;
    #standing = "safe";
    #holds = new Set();
    #emptied = () => {};
    /** The fences of all locks that an operator took, as far as this process was told. */
    #taken = new Set();
    #lost = new AbortController();
    #port;
    #worker;
    #timer;

    /**
     * Opens a session, and starts the thread that renews it. Throws a `CallError`, or the reason of the
     * signal that was aborted.
     */
    static async open(calls, settings, signals = []) {
        const session = new Session(calls, settings);
        await session.#open(signals);
        return session;
    }

    constructor(calls, settings) {
        this.calls = calls;
        this.kind = settings.kind;
        this.#settings = settings;
        this.#onStanding = settings.onStanding;
        // One listener for each acquire that waits.
        setMaxListeners(0, this.#lost.signal);
    }

    /** Aborted when the session is lost. */
    get signal() {
        return this.#lost.signal;
    }

    /** The longest time of a call, with its repeats. */
    get millis() {
        return this.#settings.millis;
    }

    /** The time until the session is lost if no renewal succeeds from now on. */
    get remainingMillis() {
        return this.judge() === "lost" ? 0 : this.#silence.remainingMillis;
    }

    /**
     * Returns the standing, by the news that the worker has sent and by the clock. So it is true
     * even if no event of this thread was handled for a while. A loss is told before the return.
     */
    judge() {
        // All news first: the clock must not judge an old renewal while a newer one waits.
        for (let news; this.#standing !== "lost" && (news = receiveMessageOnPort(this.#port)); ) this.#hear(news.message);
        this.#change(this.#silence.standing);
        return this.#standing;
    }

    /** Adds a hold, which is told of its loss. */
    hold(hold) {
        this.#holds.add(hold);
        // The session may have ended after the grant.
        if (this.signal.aborted) hold.lose(this.signal.reason);
        // The word that an operator took the lock may have come before the late answer with its grant (K20).
        if (this.#taken.has(hold.fence)) hold.lose(takenByOperator());
    }

    /** Forgets a hold that has ended. */
    drop(hold) {
        this.#holds.delete(hold);
        if (this.#holds.size === 0) this.#emptied();
    }

    /** What is held, in the order in which it was granted. */
    get holds() {
        return [...this.#holds];
    }

    /** Waits until nothing is held. */
    async emptied() {
        if (this.#holds.size > 0) await new Promise((resolve) => (this.#emptied = resolve));
    }

    /** Ends the session for this process, because it has ended at the server or nothing renews it. */
    lose(cause) {
        this.#silence.end();
        this.#change("lost", cause);
    }

    /**
     * Sends a release or a leave. Repeats it without the caller if no answer has come in time:
     * otherwise a lock that nobody uses would be held for as long as this process lives.
     *
     * Returns true if the server has answered. Throws a `CallError` if it refuses.
     */
    async finish(name, request, millis = this.millis) {
        try {
            await this.calls.run(name, request, { millis });
            return true;
        } catch (error) {
            if (!error.isRepeatable) throw error;
            // A refusal says that the lock has passed on.
            this.insist(name, request).catch(() => {});
            return false;
        }
    }

    /**
     * Sends a call until the server answers. Throws a `CallError` if it refuses, and the reason of the
     * loss if the session is lost before.
     */
    async insist(name, request) {
        for (let followsUnanswered = false; ; ) {
            // A loss ends the calls, also if its timer was late.
            this.judge();
            try {
                return await this.calls.run(name, request, { millis: this.millis, signals: [this.signal] });
            } catch (error) {
                if (!(error instanceof CallError)) throw error;
                error.followsUnanswered ||= followsUnanswered;
                if (!error.isRepeatable) throw error;
                followsUnanswered = error.followsUnanswered || error.isUnanswered;
            }
        }
    }

    /** Returns true if an operator has taken the lock of this fence. The server is asked (K20). */
    async isTaken(fence) {
        const { forcedFences } = await this.calls.run("RenewSession", { sessionId: this.id }, { millis: this.millis });
        return forcedFences.includes(String(fence));
    }

    /** Ends the renewals, then the session. Without an answer it ends by its silence. */
    async close() {
        const isLive = this.judge() !== "lost";
        // The end is the caller's own wish.
        this.#onStanding = undefined;
        this.lose();
        // No renewal may follow the close.
        await this.#worker.terminate();
        if (isLive) await this.calls.attempt("CloseSession", { sessionId: this.id }).catch(() => {});
    }

    async #open(signals) {
        const { terms, millis } = this.#settings;
        // The server counts from the arrival of the call, so this process counts from before it.
        const openedAt = now();
        this.#silence = new Silence(terms, openedAt);
        const { durationMicros, graceMicros } = terms;
        const request = { sessionId: this.id, durationMicros: String(durationMicros), graceMicros: String(graceMicros) };
        await this.calls.run("OpenSession", request, { millis, signals });
        this.#startKeepalive(openedAt);
        this.#watchClock();
    }

    #startKeepalive(openedAt) {
        const { endpoint, terms } = this.#settings;
        const { port1, port2 } = new MessageChannel();
        this.#port = port1.on("message", (news) => {
            this.#hear(news);
            this.judge();
        });
        this.#worker = new Worker(new URL("./keepalive.js", import.meta.url), {
            name: "leasehold-keepalive",
            workerData: { port: port2, endpoint, sessionId: this.id, terms, openedAt },
            transferList: [port2],
            // The program's own flags, such as `--input-type`, may not fit a worker with a file.
            execArgv: [],
        });
        // A defect of the worker, such as a package that it can't load.
        this.#worker.on("error", (cause) => this.lose(cause));
        // Neither keeps the process alive.
        this.#port.unref();
        this.#worker.unref();
    }

    #watchClock() {
        if (this.judge() === "lost") return;
        const millis = Math.min(Math.ceil(this.#silence.changeInMillis), MAX_PAUSE_MILLIS);
        this.#timer = setTimeout(() => this.#watchClock(), millis).unref();
    }

    #hear({ sentAt, forced, isLost = false }) {
        if (isLost) return this.lose();
        // The renewal comes first: the listener of a lock may look at another one, which takes newer news.
        this.#silence.renewed(sentAt);
        for (const fence of forced) this.#taken.add(fence);
        const taken = [...this.#holds].filter((lock) => forced.includes(lock.fence));
        for (const lock of taken) lock.lose(takenByOperator());
    }

    #change(standing, cause) {
        if (standing === this.#standing) return;
        this.#standing = standing;
        if (standing === "lost") this.#end(lost(this.kind, `the session of the ${this.kind.noun} is lost`, cause));
        // An exception of the caller's function must not reach the reader of a standing.
        queueMicrotask(() => this.#onStanding?.(standing));
    }

    #end(reason) {
        clearTimeout(this.#timer);
        this.#port.close();
        void this.#worker.terminate();
        this.#lost.abort(reason);
        for (const hold of this.#holds) hold.lose(reason);
    }
}

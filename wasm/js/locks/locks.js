import { checked } from "../arguments.js";
import { Calls } from "../client/calls.js";
import { hasEnded, LOCK, misconfigured } from "../client/error.js";
import { Session } from "../client/session.js";
import { settingsOf } from "../client/settings.js";
import { Acquisition } from "./acquisition.js";
import { GroupAcquisition } from "./group_acquisition.js";
import { HeldLock, work, workTogether } from "./held_lock.js";
import { lockPath, lockStatus, wantedLock } from "./messages.js";
import { Orphan } from "./orphan.js";
import { Reaping } from "./reaping.js";
import { CONNECT, METHODS } from "./signatures.js";

const PAGE = 1_000;

/** Returns the locks of a server. `api.d.ts` declares the settings. */
export function connect(settings) {
    return new Locks(...checked(CONNECT, [settings]));
}

class Locks {
    #settings;
    #calls;
    #opening;
    #session;
    #closing;

    constructor({ onStanding, ...settings }) {
        this.#settings = { ...settingsOf(settings), kind: LOCK, onStanding };
        this.#calls = new Calls(this.#settings.endpoint);
    }

    async lock(...values) {
        const [namespace, key, options, run] = checked(METHODS.lock, values);
        return await work(await this.acquire(namespace, key, options), run);
    }

    async acquire(...values) {
        const [namespace, key, options] = checked(METHODS.acquire, values);
        options.signal?.throwIfAborted();
        const wanted = wantedLock({ ...options, namespace, key });
        return await this.#underSession(async (session) => {
            const { slot, ...grant } = await new Acquisition(session, wanted, options).run();
            return new HeldLock(session, { ...wanted.lock, slot }, grant);
        });
    }

    async lockAll(...values) {
        const [wanted, options, run] = checked(METHODS.lockAll, values);
        return await workTogether(await this.acquireAll(wanted, options), run);
    }

    async acquireAll(...values) {
        const [wanted, options] = checked(METHODS.acquireAll, values);
        options.signal?.throwIfAborted();
        // The server checks their number.
        const asks = wanted.map(wantedLock);
        return await this.#underSession(async (session) => {
            const grants = await new GroupAcquisition(session, asks, options).run();
            return grants.map(({ slot, ...grant }, position) => new HeldLock(session, { ...asks[position].lock, slot }, grant));
        });
    }

    async reap(...values) {
        const [namespace, options, run] = checked(METHODS.reap, values);
        options.signal?.throwIfAborted();
        const orphan = await this.#underSession(async (session) => {
            const found = await new Reaping(session, namespace, options).run();
            return found && new Orphan(session, found);
        });
        return orphan && (await work(orphan, run));
    }

    async get(...values) {
        const [namespace, key, { slot }] = checked(METHODS.get, values);
        return lockStatus((await this.#run("GetLock", { lock: lockPath(namespace, key, slot) })).lock);
    }

    async *list(...values) {
        const [namespace = ""] = checked(METHODS.list, values);
        for (let page = { truncated: true }, after; page.truncated; after = page.locks.at(-1)?.path) {
            page = await this.#run("ListLocks", { namespace, limit: PAGE, after });
            yield* page.locks.map(lockStatus);
        }
    }

    async force(...values) {
        const [namespace, key, fence, { atOnce = false, slot }] = checked(METHODS.force, values);
        await this.#run("ForceLock", { lock: lockPath(namespace, key, slot), fence: String(fence), atOnce });
    }

    async resolveOrphan(...values) {
        const [namespace, key, fence, resolution, { slot }] = checked(METHODS.resolveOrphan, values);
        const lock = lockPath(namespace, key, slot);
        await this.#run("ResolveOrphan", { lock, fence: String(fence), resolution: resolution.toUpperCase() });
    }

    async close() {
        this.#closing ??= this.#end();
        await this.#closing;
    }

    async #end() {
        // A session that could not be opened needs no close.
        await this.#opening?.catch(() => {});
        await this.#session?.close();
        this.#calls.close();
    }

    async #run(name, request) {
        this.#checkOpen();
        return await this.#calls.run(name, request, { millis: this.#settings.millis });
    }

    #checkOpen() {
        if (this.#closing) throw misconfigured("the locks are closed: call `connect` again", "CLOSED");
    }

    /** Calls a function with the live session, and again with a new one if the session has ended. */
    async #underSession(run) {
        const session = await this.#liveSession();
        try {
            return await run(session);
        } catch (error) {
            if (!hasEnded(error)) throw error;
            // The session ended without the knowledge of this process: an operator evicted it, for example.
            session.lose(error);
            return await run(await this.#liveSession());
        }
    }

    /** Returns the session, and opens one if there is none. Acquires that come meanwhile share it. */
    async #liveSession() {
        this.#checkOpen();
        if (this.#session?.judge() === "lost") this.#opening = this.#session = undefined;
        this.#opening ??= this.#openSession();
        return await this.#opening;
    }

    async #openSession() {
        try {
            return (this.#session = await Session.open(this.#calls, this.#settings));
        } catch (error) {
            this.#opening = undefined;
            throw error;
        }
    }
}

import { Calls } from "../client/calls.js";
import { BATCH, misconfigured } from "../client/error.js";
import { settingsOf } from "../client/settings.js";
import { idBytes, member, text, whole } from "../client/values.js";
import { lanePath, laneStatus, newRequest, newRequests } from "./messages.js";
import { requestStatus, stateOf, submitted, withBody } from "./messages.js";
import { Taking } from "./taking.js";
import { work } from "./work.js";

const PAGE = 1_000;
const REQUEST_LISTS = ["waiting", "taken", "settled"];
const LANE_LISTS = ["ready", "delayed", "taken", "paused"];

/** Returns the queues of a server. `api.d.ts` declares the settings. */
export function connect(settings = {}) {
    return new Queues(settings);
}

class Queues {
    #settings;
    #calls;
    #takings = new Set();
    #closing;

    constructor(settings) {
        this.#settings = { ...settingsOf(settings), kind: BATCH };
        this.#calls = new Calls(this.#settings.endpoint);
    }

    async submit(queue, request) {
        return (await this.#submit(queue, [newRequest({ ...request })]))[0];
    }

    async submitAll(queue, requests) {
        return await this.#submit(queue, newRequests(requests));
    }

    async *take(queue, options = {}) {
        const taking = this.#begin(queue, options);
        try {
            for (let batch; (batch = await taking.next()); ) yield batch;
        } finally {
            await taking.leave();
        }
    }

    async work(queue, options, run) {
        await work(this.#begin(queue, options), options, run);
    }

    async getRequest(id, options = {}) {
        const call = { requestId: idBytes("id", id), withBody: options.withBody ?? false };
        const { request, body } = await this.#run("GetRequest", call);
        if (!request) return undefined;
        return call.withBody ? withBody(requestStatus(request), body) : requestStatus(request);
    }

    async *listRequests(queue, list, { key } = {}) {
        const request = { ...lanePath(queue, key), list: member("list", list, REQUEST_LISTS) };
        for await (const { requests } of this.#pages("ListRequests", request)) yield* requests.map(requestStatus);
    }

    async *listLanes(queue, list) {
        const request = { queue: text("queue", queue), list: member("list", list, LANE_LISTS) };
        for await (const { lanes } of this.#pages("ListLanes", request)) yield* lanes.map(laneStatus);
    }

    async getQueue(queue) {
        const { isPaused, limit, taken } = await this.#run("GetQueue", { queue: text("queue", queue) });
        return { isPaused, limit: limit || undefined, taken };
    }

    async pause(queue, { key } = {}) {
        await this.#run("Pause", { ...lanePath(queue, key), resume: false });
    }

    async resume(queue, { key } = {}) {
        await this.#run("Pause", { ...lanePath(queue, key), resume: true });
    }

    async setLimit(queue, limit) {
        const most = limit === undefined ? 0 : whole("limit", limit, 1);
        await this.#run("SetLimit", { queue: text("queue", queue), limit: most });
    }

    async withdraw(id) {
        return stateOf((await this.#run("Withdraw", { requestId: idBytes("id", id) })).found);
    }

    async resubmit(id) {
        return stateOf((await this.#run("Resubmit", { requestId: idBytes("id", id) })).found);
    }

    async close() {
        this.#closing ??= this.#end();
        await this.#closing;
    }

    async #end() {
        for (const taking of this.#takings) taking.stop();
        await Promise.all([...this.#takings].map((taking) => taking.ended));
        this.#calls.close();
    }

    #begin(queue, { signal, ...options }) {
        this.#checkOpen();
        const taking = new Taking(this.#calls, this.#settings, queue, options);
        const stop = () => taking.stop();
        if (signal?.aborted) stop();
        signal?.addEventListener("abort", stop);
        this.#takings.add(taking);
        void taking.begin().then(() => {
            signal?.removeEventListener("abort", stop);
            this.#takings.delete(taking);
        });
        return taking;
    }

    async #submit(queue, requests) {
        const answer = await this.#run("Submit", { queue: text("queue", queue), requests });
        return answer.requests.map(submitted);
    }

    async *#pages(name, request) {
        let after;
        do {
            const page = await this.#run(name, { ...request, limit: PAGE, after });
            yield page;
            after = page.next;
        } while (after);
    }

    async #run(name, request) {
        this.#checkOpen();
        return await this.#calls.run(name, request, { millis: this.#settings.millis });
    }

    #checkOpen() {
        if (this.#closing) throw misconfigured("the queues are closed: call `connect` again", "CLOSED");
    }
}

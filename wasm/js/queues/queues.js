import { Calls } from "../client/calls.js";
import { misconfigured } from "../client/error.js";
import { settingsOf } from "../client/settings.js";
import { idBytes, member, text, whole } from "../client/values.js";
import { lanePath, laneStatus, newRequest, newRequests, requestStatus, stateOf, submitted, withBody } from "./messages.js";

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
    #closing;

    constructor(settings) {
        this.#settings = settingsOf(settings);
        this.#calls = new Calls(this.#settings.endpoint);
    }

    async submit(queue, request) {
        return (await this.#submit(queue, [newRequest({ ...request })]))[0];
    }

    async submitAll(queue, requests) {
        return await this.#submit(queue, newRequests(requests));
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
        this.#calls.close();
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

import { checked } from "../arguments.js";
import { Calls } from "../client/calls.js";
import { BATCH, misconfigured } from "../client/error.js";
import { settingsOf } from "../client/settings.js";
import { idBytes } from "../client/values.js";
import { lanePath, laneStatus, newRequest } from "./messages.js";
import { requestStatus, stateOf, submitted, withBody } from "./messages.js";
import { CONNECT, METHODS } from "./signatures.js";
import { Taking } from "./taking.js";
import { work } from "./work.js";

const PAGE = 1_000;

/** Returns the queues of a server. `api.d.ts` declares the settings. */
export function connect(settings) {
    return new Queues(...checked(CONNECT, [settings]));
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

    async submit(...values) {
        const [queue, request] = checked(METHODS.submit, values);
        return (await this.#submit(queue, [request]))[0];
    }

    async submitAll(...values) {
        return await this.#submit(...checked(METHODS.submitAll, values));
    }

    async *take(...values) {
        const [queue, options] = checked(METHODS.take, values);
        const taking = this.#begin(queue, options);
        try {
            for (let batch; (batch = await taking.next()); ) yield batch;
        } finally {
            await taking.leave();
        }
    }

    async work(...values) {
        const [queue, options, run] = checked(METHODS.work, values);
        await work(this.#begin(queue, options), options, run);
    }

    async getRequest(...values) {
        const [id, options] = checked(METHODS.getRequest, values);
        const call = { requestId: idBytes(id), withBody: options.withBody ?? false };
        const { request, body } = await this.#run("GetRequest", call);
        if (!request) return undefined;
        return call.withBody ? withBody(requestStatus(request), body) : requestStatus(request);
    }

    async *listRequests(...values) {
        const [queue, list, { key }] = checked(METHODS.listRequests, values);
        const request = { ...lanePath(queue, key), list: list.toUpperCase() };
        for await (const { requests } of this.#pages("ListRequests", request)) yield* requests.map(requestStatus);
    }

    async *listLanes(...values) {
        const [queue, list] = checked(METHODS.listLanes, values);
        const request = { queue, list: list.toUpperCase() };
        for await (const { lanes } of this.#pages("ListLanes", request)) yield* lanes.map(laneStatus);
    }

    async getQueue(...values) {
        const [queue] = checked(METHODS.getQueue, values);
        const { isPaused, limit, taken } = await this.#run("GetQueue", { queue });
        return { isPaused, limit: limit || undefined, taken };
    }

    async pause(...values) {
        const [queue, { key }] = checked(METHODS.pause, values);
        await this.#run("Pause", { ...lanePath(queue, key), resume: false });
    }

    async resume(...values) {
        const [queue, { key }] = checked(METHODS.resume, values);
        await this.#run("Pause", { ...lanePath(queue, key), resume: true });
    }

    async setLimit(...values) {
        const [queue, limit = 0] = checked(METHODS.setLimit, values);
        await this.#run("SetLimit", { queue, limit });
    }

    async withdraw(...values) {
        const [id] = checked(METHODS.withdraw, values);
        return stateOf((await this.#run("Withdraw", { requestId: idBytes(id) })).found);
    }

    async resubmit(...values) {
        const [id] = checked(METHODS.resubmit, values);
        return stateOf((await this.#run("Resubmit", { requestId: idBytes(id) })).found);
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
        // The server checks their number.
        const answer = await this.#run("Submit", { queue, requests: requests.map(newRequest) });
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

// The calls of sessions, locks and queues, over a channel of the thread that makes them.
import { setTimeout as sleep } from "node:timers/promises";

import { Client, credentials, Metadata } from "@grpc/grpc-js";

import { Backoff } from "./backoff.js";
import { RPCS } from "./contract.js";
import { CallError } from "./error.js";

/** The longest time of one attempt. */
const ATTEMPT_MILLIS = 3_000;

/**
 * The options of the channel. Its pings notice a connection whose peer is gone silently, and short
 * pauses find a restarted server within one call. No proxy of the environment may see the calls.
 */
const CHANNEL = {
    "grpc.primary_user_agent": "leasehold-node",
    "grpc.keepalive_time_ms": 30_000,
    "grpc.keepalive_timeout_ms": 10_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 500,
    "grpc.enable_http_proxy": 0,
    // `run` counts the attempts.
    "grpc.enable_retries": 0,
};

function channelCredentials(pems) {
    if (!pems) return credentials.createInsecure();
    return credentials.createSsl(...[pems.ca, pems.key, pems.certificate].map((pem) => Buffer.from(pem)));
}

/** The calls over one channel. */
export class Calls {
    #client;
    #metadata = new Metadata();

    /** `endpoint` is the result of `endpointOf`. */
    constructor({ target, pems, storeId }) {
        this.#client = new Client(target, channelCredentials(pems), CHANNEL);
        if (storeId !== undefined) this.#metadata.set("leasehold-store-id", storeId.toLowerCase());
    }

    /** Sends a call, again if no answer came, for at most this time in all. Throws a `CallError`. */
    async run(name, request, { millis, signals = [] }) {
        const endsAt = performance.now() + millis;
        const backoff = new Backoff();
        let followsUnanswered = false;
        for (;;) {
            const left = endsAt - performance.now();
            try {
                return await this.attempt(name, request, { millis: Math.min(ATTEMPT_MILLIS, left), signals });
            } catch (error) {
                if (!(error instanceof CallError)) throw error;
                error.followsUnanswered = followsUnanswered;
                followsUnanswered ||= error.isUnanswered;
                const pause = backoff.pauseMillis(error.retryAfterMillis);
                if (!error.isRepeatable || performance.now() + pause > endsAt) throw error;
                await sleep(pause);
            }
        }
    }

    /** Sends a call once. Throws a `CallError`, or the reason of the signal that was aborted. */
    attempt(name, request, { millis = ATTEMPT_MILLIS, signals = [] } = {}) {
        return this.#answer(signals, (answer) =>
            this.#client.makeUnaryRequest(...this.#arguments(name, request, millis), (status, response) =>
                answer(status && new CallError(status), response),
            ),
        );
    }

    /**
     * Opens a stream, and gives each message to `hear`. Returns the first value that `hear` returns,
     * and ends the stream; undefined if it ends without one. Calls `hearEnd` at the end of a stream
     * that the server had accepted. Throws as `attempt` does.
     */
    stream(name, request, { millis, signals = [], hearEnd }, hear) {
        return this.#answer(signals, (answer) => {
            const call = this.#client.makeServerStreamRequest(...this.#arguments(name, request, millis));
            let isAccepted = false;
            // The server sends its metadata when it has accepted the call.
            call.on("metadata", () => (isAccepted = true));
            const end = (error) => {
                if (isAccepted) hearEnd?.();
                answer(error);
            };
            call.on("error", (status) => end(new CallError(status)));
            call.on("end", () => end());
            call.on("data", (message) => {
                try {
                    const heard = hear(message);
                    if (heard !== undefined) answer(undefined, heard);
                } catch (error) {
                    answer(error);
                }
            });
            return call;
        });
    }

    close() {
        this.#client.close();
    }

    /** Returns the arguments of a call to gRPC. Without a time the call has no deadline. */
    #arguments(name, request, millis) {
        const { path, requestSerialize, responseDeserialize } = RPCS[name];
        const options = millis === undefined ? {} : { deadline: Date.now() + millis };
        return [path, requestSerialize, responseDeserialize, request, this.#metadata, options];
    }

    /** Starts a call, waits for its answer or for an aborted signal, and cancels what is left of it. */
    async #answer(signals, start) {
        for (const signal of signals) signal.throwIfAborted();
        let call;
        const aborts = [];
        try {
            return await new Promise((resolve, reject) => {
                for (const signal of signals) {
                    const abort = () => reject(signal.reason);
                    signal.addEventListener("abort", abort);
                    aborts.push(() => signal.removeEventListener("abort", abort));
                }
                call = start((error, value) => (error ? reject(error) : resolve(value)));
            });
        } finally {
            for (const forget of aborts) forget();
            call?.cancel();
        }
    }
}

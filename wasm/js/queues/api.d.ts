import type { ClientSettings, Standing, TlsFiles } from "../client/api.js";
import { LeaseholdError } from "../error.js";
import type { Signal } from "../globals.js";

/** The settings of `connect`. */
export interface QueuesSettings extends ClientSettings {}

/** The kind of a request: it creates the resource of its key, or updates it. */
export type RequestKind = "create" | "update";

/** The state of a request: it waits, a worker has taken it, its work has succeeded, or its last attempt has failed. */
export type RequestState = "new" | "in-progress" | "complete" | "error";

/** A request to submit. */
export interface NewRequest {
    /** The key of the resource that the request is about. The requests of one key are worked in order. */
    readonly key: string;
    /** At most 65,536 bytes; those of a string are UTF-8. Empty by default. */
    readonly body?: string | Uint8Array;
    /** `update` by default. A create is taken alone, and a resource has one at most. */
    readonly kind?: RequestKind;
    /** 0, the default, to 9. Each step moves the request one minute ahead of others. */
    readonly priority?: number;
    /** The seconds for which the request is not taken; 0 by default. */
    readonly delay?: number;
    /** The most attempts, 1 to 1,000; 25 by default. The last one that fails ends the request in error. */
    readonly maxAttempts?: number;
    /**
     * A UUID, by default a new UUIDv7 for each call. A submit that the program itself repeats, also
     * after a restart, makes the request once if it passes the same id.
     */
    readonly id?: string;
}

/** The reply to one request of a submit. */
export interface SubmittedRequest {
    /** The id of the request, or that of the first create of the same resource. */
    readonly id: string;
    /** True if this call made the request. */
    readonly isNew: boolean;
}

/** The options of a worker. */
export interface TakeOptions {
    /** The most batches that the worker holds at a time, 1 to 256; 1 by default. */
    readonly credit?: number;
    /** The most requests of a batch, 1 to 100; 100 by default. */
    readonly maxRequests?: number;
    /**
     * Stops the worker. It takes nothing more, and may end the batches that it has for `stopSeconds`.
     * What is not settled then is given back, and the attempt does not count.
     */
    readonly signal?: Signal;
    /** 20 by default. */
    readonly stopSeconds?: number;
    /** Called with the error after which the worker calls the server again, while it restarts for example. */
    readonly onReconnect?: (error: LeaseholdError) => void;
}

/** The options of `work`. */
export interface WorkOptions extends TakeOptions {
    /**
     * Called with the error of a function, after its batch has failed, and with the loss of a batch.
     * `console.error` by default. An error that it throws stops the worker.
     */
    readonly onError?: (error: unknown, batch: Batch) => void | PromiseLike<void>;
}

/** A request that a worker has taken. */
export interface TakenRequest {
    readonly id: string;
    /** The number of the attempt, 1 for the first. */
    readonly attempt: number;
    readonly body: Uint8Array;
}

/** Requests of one key that a worker has taken as one: a create alone, or updates. No text of it shows the key or a body. */
export interface Batch {
    readonly queue: string;
    readonly key: string;
    /** The kind of all requests. */
    readonly kind: RequestKind;
    /** The requests in the order of their lane. */
    readonly requests: readonly TakenRequest[];
    /** The progress that a former worker noted; undefined if there is none. */
    readonly progress: Uint8Array | undefined;
    /** The fence under which the worker has the batch, larger than every fence before it. */
    readonly fence: bigint;
    /** The standing of the batch; `lost` too once it is settled. */
    readonly standing: Standing;
    /** False once the batch is lost or settled. */
    readonly isHeld: boolean;
    /** The seconds until the batch is lost if no renewal succeeds from now on; 0 once it is not held. */
    readonly remainingSeconds: number;
    /**
     * Aborted when the batch is lost: its session is lost, or the worker has stopped and has given the
     * batch back. The reason is the error that `check` throws.
     */
    readonly signal: Signal;
    /** Throws `BATCH_LOST` if the work must stop. */
    check(): void;
    /**
     * Settles the batch: the work has succeeded. The call is repeated until the session is lost. A
     * repeated `complete` returns the result of the first.
     *
     * Throws `BATCH_LOST` if the requests are somebody else's by now, so that the work may run twice, or
     * if the batch was settled otherwise.
     */
    complete(): Promise<void>;
    /**
     * Settles the batch as `complete` does: the work has failed. Each request is tried again, or ends in
     * error after its last attempt. `retryAfter` is the seconds until then; the server takes a second for
     * the first attempt, and up to 300 for later ones, by default.
     */
    fail(options?: { readonly retryAfter?: number }): Promise<void>;
    /** Settles the batch as `complete` does: another worker may take it, and the attempt does not count. */
    giveBack(): Promise<void>;
    /** Notes the progress, at most 2,048 bytes, for the next worker should this one fail. Throws as `complete` does. */
    noteProgress(progress: string | Uint8Array): Promise<void>;
}

/** The lane that a call is about. */
export interface LaneOptions {
    /** The key of the lane; without it the call is about all lanes of the queue. */
    readonly key?: string;
}

/** A request as the server stores it. */
export interface RequestStatus {
    readonly id: string;
    readonly queue: string;
    readonly key: string;
    /** The place of the request in its lane. */
    readonly number: bigint;
    readonly kind: RequestKind;
    readonly priority: number;
    readonly state: RequestState;
    /** The time before which the request is not taken. */
    readonly notBefore: Date;
    /** The number of attempts so far. */
    readonly attempts: number;
    readonly maxAttempts: number;
    readonly bodyBytes: number;
    readonly submittedAt: Date;
    /** The time of the last change of the state. */
    readonly updatedAt: Date;
    /** The body, if the call asked for it. It is not enumerable, so that no log of the object shows it. */
    readonly body?: Uint8Array;
}

/** A lane, the requests of one key of a queue, as the server stores it. */
export interface LaneStatus {
    readonly queue: string;
    readonly key: string;
    readonly isPaused: boolean;
    /** The number of requests that wait. */
    readonly waiting: number;
    /** The time before which the first request is not taken; undefined if none waits, or the lane is taken. */
    readonly notBefore: Date | undefined;
    /** The session of the worker that has the lane. */
    readonly sessionId: string | undefined;
    /** The fence under which the worker has the lane. */
    readonly fence: bigint | undefined;
    readonly takenAt: Date | undefined;
    readonly updatedAt: Date;
}

/** A queue as the server stores it. */
export interface QueueStatus {
    readonly isPaused: boolean;
    /** The most lanes that are taken at a time; undefined for any number. */
    readonly limit: number | undefined;
    /** The number of lanes that were taken since the queue has a limit, and are not settled. */
    readonly taken: number;
}

/**
 * The queues of a server.
 *
 * A call that fails throws a `LeaseholdError`; a wrong argument has the code `INVALID_ARGUMENT`. No
 * error contains a key or a body.
 */
export interface Queues {
    /** Submits a request to the end of its lane. */
    submit(queue: string, request: NewRequest): Promise<SubmittedRequest>;
    /**
     * Submits requests, at most 1,000 with bodies of 4 MiB together: all of them, or none. Returns the
     * replies in their order.
     */
    submitAll(queue: string, requests: readonly NewRequest[]): Promise<SubmittedRequest[]>;
    /**
     * Takes batches in a loop, each of which the loop settles: the next one comes once fewer than
     * `credit` are not settled. Each loop has a session of its own, and goes on with another one if the
     * session is lost.
     *
     * The loop ends after `signal` is aborted. If the program leaves the loop itself, also by an error,
     * the batches that it has got and not settled fail.
     */
    take(queue: string, options?: TakeOptions): AsyncIterableIterator<Batch>;
    /**
     * Takes batches, and calls a function with each: with up to `credit` at the same time. A batch that the
     * function has not settled is complete when the function's promise is settled, and fails if the
     * function throws. If the function throws because `signal` was aborted, the batch is given back.
     *
     * Returns after `signal` is aborted, or the queues are closed.
     */
    work(queue: string, options: WorkOptions, run: (batch: Batch) => unknown): Promise<void>;
    /** Reads a request; undefined if it was withdrawn or forgotten, or never was. */
    getRequest(id: string, options?: { readonly withBody?: boolean }): Promise<RequestStatus | undefined>;
    /**
     * Lists requests: those of a lane that wait, or that a worker has taken, in the order of the lane; or
     * the settled ones of a lane or queue, the oldest first. With an empty name as queue it lists the
     * settled requests of all queues, which is for administrators.
     */
    listRequests(
        queue: string,
        list: "waiting" | "taken" | "settled",
        options?: LaneOptions,
    ): AsyncIterableIterator<RequestStatus>;
    /**
     * Lists lanes of a queue: those that can be taken, in the order in which workers get them; those
     * that are due later, by time; those that workers have, by session; or those that are paused, by key.
     */
    listLanes(queue: string, list: "ready" | "delayed" | "taken" | "paused"): AsyncIterableIterator<LaneStatus>;
    /** Reads a queue. */
    getQueue(queue: string): Promise<QueueStatus>;
    /** Pauses a queue or a lane; for administrators. What is taken already goes on. */
    pause(queue: string, options?: LaneOptions): Promise<void>;
    /** Resumes a queue or a lane; for administrators. */
    resume(queue: string, options?: LaneOptions): Promise<void>;
    /** Sets the most lanes of a queue that are taken at a time; undefined for any number. For administrators. */
    setLimit(queue: string, limit: number | undefined): Promise<void>;
    /**
     * Withdraws a request that is `new`; for administrators. Returns the state in which the call found the
     * request, and leaves it as it is in any other; undefined if there is none.
     */
    withdraw(id: string): Promise<RequestState | undefined>;
    /**
     * Submits a request that is in `error` again, at the end of its lane; for administrators. Returns the
     * state in which the call found the request, and leaves it as it is in any other; undefined if there
     * is none.
     */
    resubmit(id: string): Promise<RequestState | undefined>;
    /** Stops all workers, as their `signal` does, and closes the connection. */
    close(): Promise<void>;
}

/** Returns the queues of a server. Throws `MISCONFIGURED` if a setting is invalid. Sends no call. */
declare function connect(settings?: QueuesSettings): Queues;

export type { Standing, TlsFiles };
export { connect, LeaseholdError };

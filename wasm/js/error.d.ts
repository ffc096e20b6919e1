import type { Detail } from "../pkg/leasehold.js";

/** The error that every function and method of the package throws on failure. */
export class LeaseholdError extends Error {
    private constructor();

    readonly name: "LeaseholdError";

    /**
     * The reason code. A rejection has the server's own code, the same as on the wire. Other codes:
     * - `INVALID_ARGUMENT`, `INVALID_ROWS`: an argument, or the columns of rows, do not have the
     *   form of their type.
     * - `NOT_LOADED`: the wasm file is not loaded yet, or cannot be loaded: see `init` of an entry `slim`.
     * - `INVALID_CHECKPOINT`: the text is not a checkpoint of a verification.
     * - `OUT_OF_TURN`: the answer does not belong to the run's current step.
     * - `NO_TRACE`: the text is not a trace of the simulation.
     * - `INVALID_TRACE`: the trace is of another version, or can't be replayed.
     * - `IMPOSSIBLE`: the event cannot happen in the present state of the simulated world.
     * - `LOCK_LOST`: the session of a lock is lost, or an operator took the lock.
     * - `BATCH_LOST`: the session of a batch is lost, the worker has stopped, or the batch was settled
     *   otherwise.
     * - `CLOSED`: the object is freed, or the client is closed.
     * - `MISCONFIGURED`, `TLS_REFUSED`: a setting of a client for locks or queues cannot work, or
     *   client and server refuse each other's certificates.
     * - the name of a status of gRPC, such as `UNAVAILABLE`: the server gave no reason, or no answer.
     * - `PANIC`: a call was stopped in its middle, because memory ran out or the engine has a defect.
     *   Report a defect. The called object can't be used any longer: free it.
     */
    readonly code: string;

    /** The rejected claims of the update; empty if the error does not concern single claims. */
    readonly details: readonly Detail[];
}

/**
 * Calls a function with each batch of a taking, at the same time with as many as the taking has credit
 * for. Returns after a stop, and throws the error that has ended the taking.
 */
export async function work(taking, { signal, onError = console.error }, run) {
    const running = new Set();
    try {
        for (let batch; (batch = await taking.next()); ) {
            const settled = workOn(batch, run, signal, onError).catch((error) => taking.fail(error));
            // A function that goes on after the loss of its batch delays no stop.
            const ended = Promise.race([settled, lossOf(batch)]).finally(() => running.delete(ended));
            running.add(ended);
        }
    } finally {
        await Promise.all(running);
    }
}

/** Calls a function with a batch, and settles the batch unless the function has. */
async function workOn(batch, run, signal, onError) {
    try {
        await run(batch);
        if (!batch.isSettled) await batch.complete();
    } catch (error) {
        const isStopped = signal?.aborted && isAbort(error, [signal, batch.signal]);
        // The session's loss settles the batch, too.
        if (!batch.isSettled) await (isStopped ? batch.giveBack() : batch.fail()).catch(() => {});
        if (!isStopped) await onError(error, batch);
    }
}

/** Waits for the loss of a batch. */
function lossOf({ signal }) {
    return new Promise((resolve) => {
        if (signal.aborted) resolve();
        signal.addEventListener("abort", () => resolve());
    });
}

/** Returns true for an error that a function throws because one of these signals was aborted. */
function isAbort(error, signals) {
    return error?.name === "AbortError" || signals.some((signal) => signal.aborted && error === signal.reason);
}

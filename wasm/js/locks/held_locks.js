// The locks that the functions around the running code hold (K15). An acquire names their asks, so that
// the server can refuse a wait that would never end.
import { AsyncLocalStorage } from "node:async_hooks";

/** The most asks that an acquire may name. */
const MAX_ASKS = 64;

// Each branch that a function starts sees the locks around the function, because these are held until
// the function has awaited its branches. No branch sees the locks of another one.
const storage = new AsyncLocalStorage();

/** Calls a function while these locks are held, and returns its result. */
export function whileHolding(locks, run) {
    return storage.run([...heldLocks(), ...locks], run);
}

/** Returns the ids of the asks of the innermost locks that are held around the running code. */
export function heldAskIds() {
    return heldLocks()
        .slice(-MAX_ASKS)
        .map(({ askId }) => askId);
}

// A function may have released or lost its lock already, or have ended before a branch of it.
function heldLocks() {
    return (storage.getStore() ?? []).filter(({ isHeld }) => isHeld);
}

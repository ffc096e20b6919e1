// The arguments of each function and method of `leasehold/locks`: the names that the types have, in their
// order, with their kinds.
import { UINT32, UINT64, flag, invalidArgument, list, object, optional, word } from "../arguments.js";
import { CALLBACK, CONTENT, COUNT, NAME, SECONDS, SIGNAL, options, settings } from "../client/kinds.js";

const LOCK = { namespace: NAME, key: NAME };
const SHARE = { shared: flag, permits: COUNT };
const WAIT = { wait: SECONDS, signal: SIGNAL };
const SLOT = { slot: UINT32 };

/** Returns a kind that refuses objects which share a lock in both ways (K13). */
function sharedOnce(kind) {
    return (value, path) => {
        const given = kind(value, path);
        if (!given.shared || given.permits === undefined) return given;
        throw invalidArgument(`\`${path}\` has both \`shared\` and \`permits\`: pass one of them`);
    };
}

const ACQUIRE = sharedOnce(options({ ...WAIT, onPlace: CALLBACK, ...SHARE }));
const WANTED = list(sharedOnce(object({ ...LOCK, shared: optional(flag), permits: optional(COUNT) })));

export const CONNECT = { settings: settings({ onStanding: CALLBACK }) };
export const RELEASE = { options: options({ outcome: word("succeeded", "failed"), value: CONTENT }) };
export const METHODS = {
    lock: { ...LOCK, options: ACQUIRE, run: CALLBACK },
    acquire: { ...LOCK, options: ACQUIRE },
    lockAll: { wanted: WANTED, options: options(WAIT), run: CALLBACK },
    acquireAll: { wanted: WANTED, options: options(WAIT) },
    reap: { namespace: NAME, options: options(WAIT), run: CALLBACK },
    get: { ...LOCK, options: options(SLOT) },
    list: { namespace: optional(NAME) },
    force: { ...LOCK, fence: UINT64, options: options({ ...SLOT, atOnce: flag }) },
    resolveOrphan: { ...LOCK, fence: UINT64, resolution: word("retry", "cleaned"), options: options(SLOT) },
};

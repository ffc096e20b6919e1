// The kinds of arguments that the clients have in addition to those of the engine (`../arguments.js`).
import { LeaseholdError } from "../error.js";
import { BYTES, byType, integer, object, optional, refuse, textOr, withCode } from "../arguments.js";
import { UUID } from "./values.js";

/** Half of a surrogate pair, which Protobuf cannot carry. */
const HALF_PAIR = /\p{Surrogate}/u;

const STRING = textOr("a string", () => true);

/** A name or a key. Half of a surrogate pair has the code that the server has for other characters that no name may have. */
export function NAME(value, path) {
    if (!HALF_PAIR.test(STRING(value, path))) return value;
    throw new LeaseholdError("INVALID_UPDATE", `\`${path}\` has half of a surrogate pair: pass valid Unicode`);
}

/** A UUID as the clients return it. */
export function ID(value, path) {
    if (typeof value === "string" && UUID.test(value)) return value;
    return refuse(path, value, "a UUID as a string", typeof value === "string" ? "not a UUID" : undefined);
}

/** A duration in seconds. The server checks its bounds. */
export function SECONDS(value, path) {
    if (Number.isFinite(value) && value >= 0) return value;
    return refuse(path, value, "a finite number of seconds that is not negative");
}

/** A number of things that the contract can carry. The server has limits of its own. */
export const COUNT = integer(1, 2 ** 32 - 1);

const TEXT_CONTENT = textOr("a string or a `Uint8Array`", () => true);

/** Bytes, or a text whose bytes are UTF-8. */
export function CONTENT(value, path) {
    return value instanceof Uint8Array ? BYTES(value, path) : TEXT_CONTENT(value, path);
}

export const CALLBACK = byType({ function: (value) => value }, "a function");

/** An abort signal, also that of another library. */
export function SIGNAL(value, path) {
    const isSignal = typeof value?.aborted === "boolean" && ["addEventListener", "throwIfAborted"].every((name) => typeof value[name] === "function");
    if (isSignal) return value;
    return refuse(path, value, "an `AbortSignal`");
}

/** Returns the kind of an object of options, which may be absent. */
export function options(members) {
    const optionals = Object.entries(members).map(([name, kind]) => [name, optional(kind)]);
    const kind = object(Object.fromEntries(optionals));
    return (value, path) => (value === undefined || value === null ? {} : kind(value, path));
}

function asIs(value) {
    return value;
}

/** A path or an address: a text, or a `URL`. */
function LOCATION(value, path) {
    return value instanceof URL ? value : STRING(value, path);
}

const TLS = object({ ca: LOCATION, certificate: LOCATION, key: LOCATION });

/** Returns the kind of the settings of `connect`. `more` has the kinds of the settings of one client. */
export function settings(more = {}) {
    const times = { sessionDurationSeconds: asIs, sessionGraceSeconds: asIs, timeoutSeconds: asIs };
    const allowPlaintext = byType({ boolean: asIs }, "true or false");
    return withCode("MISCONFIGURED", options({ address: LOCATION, tls: TLS, allowPlaintext, storeId: STRING, ...times, ...more }));
}

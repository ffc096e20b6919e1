// Calls with awkward values in the place of each part of their arguments.
import assert from "node:assert/strict";

import { LeaseholdError } from "leasehold";

const circular: Record<string, unknown> = {};
circular["self"] = circular;

const { proxy: revoked, revoke } = Proxy.revocable([], {});
revoke();

/** Returns a typed array whose buffer was transferred, as to a worker. */
function transferred<Numbers extends Uint8Array | BigInt64Array>(numbers: Numbers): Numbers {
    structuredClone(numbers, { transfer: [numbers.buffer as ArrayBuffer] });
    return numbers;
}

/** Values that a caller may pass by mistake. Those of a good type may be right in some places. */
export const AWKWARD: Record<string, unknown> = {
    undefined, null: null, true: true, false: false, zero: 0, "minus one": -1, fraction: 4.7, NaN, Infinity,
    "2^31": 2 ** 31, "2^32 + 4": 2 ** 32 + 4, "2^53": 2 ** 53, "0n": 0n, "minus 1n": -1n, "2^63": 2n ** 63n, "2^64": 2n ** 64n,
    "an empty text": "", "a number as text": "4", "a name": "alice", "half a pair": "\ud83dbob", "another half": "bob\udc4d",
    "a symbol": Symbol("leasehold"), "a function": () => 4, "a date": new Date(0), "a boxed number": Object(4), "a boxed text": Object("alice"),
    "an empty object": {}, "an empty array": [], "a nested array": [[1]], "a sparse array": Array(2), "a map": new Map([["cells", 1]]),
    "an object without prototype": Object.create(null), "a circular object": circular, "a revoked proxy": revoked,
    "a proxy of bytes": new Proxy(new Uint8Array(8), {}), "a throwing getter": { get cell() { throw new TypeError("no cell"); } },
    "a throwing toJSON": { toJSON() { throw new TypeError("no JSON"); } }, bytes: new Uint8Array(3), floats: new Float64Array(2),
    "bigint array": new BigInt64Array(1), "transferred bytes": transferred(new Uint8Array(3)),
    "transferred bigints": transferred(new BigInt64Array(1)), "a promise": Promise.resolve(4), "an error": new Error("wrong"),
};

/** A place in an argument: the keys that lead to it. The first one is the position of the argument. */
type Place = readonly (string | number)[];

/**
 * A call with good arguments. The paths of parts that may be absent match `mayLack`. The type `mayBe`
 * is good in every place.
 */
export interface GoodCall {
    call: (...values: unknown[]) => unknown;
    good: readonly unknown[];
    mayLack?: RegExp;
    mayBe?: string;
}

/** Returns each place of a value: the value itself, and all parts of its objects and arrays. */
function placesIn(value: unknown, place: Place = []): Place[] {
    const isContainer = typeof value === "object" && value !== null && !ArrayBuffer.isView(value);
    const parts = isContainer ? Object.entries(value).flatMap(([key, part]) => placesIn(part, [...place, key])) : [];
    return place.length > 0 ? [place, ...parts] : parts;
}

function partAt(value: unknown, place: Place): unknown {
    return place.reduce((part, key) => (part as Record<string | number, unknown>)[key], value);
}

/** Returns a copy of a value with another part at a place. */
function replaced(value: unknown, [key, ...rest]: Place, part: unknown): unknown {
    if (key === undefined) return part;
    const copy = Array.isArray(value) ? [...(value as unknown[])] : { ...(value as object) };
    (copy as Record<string | number, unknown>)[key] = replaced((value as Record<string | number, unknown>)[key], rest, part);
    return copy;
}

/** Returns a value's type in the declarations: JavaScript's own, the class of a built-in object, or `none`. */
function typeOf(value: unknown): string {
    if (value === undefined || value === null) return "none";
    return typeof value === "object" ? Object.prototype.toString.call(value) : typeof value;
}

/** Words of the serializers and of wasm-bindgen, which say nothing to a caller. */
const INSIDES = /invalid type|unit value|expected struct|invalid length|variant|line \d+ column|null pointer|memory access|unreachable|recursive use/iu;

/** The codes of the rules. A value of the right type may break a rule, and have one of these. */
const RULES = ["INVALID_UPDATE", "LIMIT_EXCEEDED", "VALUE_NOT_ALLOWED", "OUT_OF_TURN", "INVALID_CHECKPOINT", "INVALID_TRACE", "NO_TRACE", "IMPOSSIBLE"];

/**
 * Calls a function with each awkward value in each place of its good arguments. The call must throw a
 * `LeaseholdError` that says what to do, or the value has a good type. Returns the number of calls.
 */
export function callAwkwardly(name: string, { call, good, ...types }: GoodCall): number {
    const places = placesIn(good);
    const refusal = errorOf(() => call(...good));
    assert.ok(refusal === undefined || (refusal as LeaseholdError).code === "OUT_OF_TURN", `${name} refuses good arguments: ${String(refusal)}`);
    for (const place of places) {
        for (const [label, value] of Object.entries(AWKWARD)) {
            const told = `${name} with ${label} at ${place.join(".")}`;
            const error = errorOf(() => call(...(replaced(good, place, value) as unknown[])));
            if (error === undefined) assert.ok(isGood(value, good, place, types), `${told} is accepted`);
            else checkError(error, told);
        }
    }
    return places.length * Object.keys(AWKWARD).length;
}

/** Returns the error that a call throws, and `undefined` if it returns. */
function errorOf(call: () => unknown): unknown {
    try {
        call();
        return undefined;
    } catch (error) {
        return error;
    }
}

/** Returns true if a value has the type that the good arguments have at a place, and can't be read otherwise. */
function isGood(value: unknown, good: readonly unknown[], place: Place, { mayLack, mayBe }: Pick<GoodCall, "mayLack" | "mayBe">): boolean {
    const type = typeOf(value);
    if (type === "none") return mayLack?.test(place.slice(1).join(".")) ?? false;
    if (typeof value === "number" && !Number.isSafeInteger(value)) return false;
    if (typeof value === "string" && /\p{Surrogate}/u.test(value)) return false;
    return type === mayBe || type === typeOf(partAt(good, place));
}

function checkError(error: unknown, told: string): void {
    assert.ok(error instanceof LeaseholdError, `${told}: ${String(error)}`);
    assert.doesNotMatch(error.message, INSIDES, told);
    if (RULES.includes(error.code)) return;
    assert.ok(["INVALID_ARGUMENT", "INVALID_ROWS"].includes(error.code), `${told}: ${error.code} ${error.message}`);
    assert.match(error.message, /`[\w.[\]]+`/u, told);
    assert.match(error.message, /: (pass|use|add|list|name|create) /u, told);
    assert.ok(!error.message.includes("alice"), `${told} shows a value: ${error.message}`);
}

// The kinds of arguments. A kind is a function that returns a value as the engine takes it, or throws
// `INVALID_ARGUMENT` with the path of the value, what was given and what to pass.
//
// Objects and lists are copied. So getters and other code of the caller run before a call enters the
// wasm file: an exception there would leave the called object locked.
import { LeaseholdError } from "./error.js";

const HALF_PAIR = /\p{Surrogate}/u;
const UUID = /^[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$/iu;

const MAX_UINT64 = 2n ** 64n - 1n;
const MAX_INT64 = 2n ** 63n - 1n;

/** The getter that names the type of a genuine typed array, also of one from another realm. */
const typeOfArray = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Int8Array.prototype), Symbol.toStringTag).get;

/** Returns the error for an argument that has not the form of its type. */
export function invalidArgument(message, cause) {
    const error = new LeaseholdError("INVALID_ARGUMENT", message);
    return cause === undefined ? error : Object.assign(error, { cause });
}

/** Throws the error for a value that is not of the kind that `wanted` describes. */
export function refuse(path, value, wanted, description = given(value)) {
    throw invalidArgument(`\`${path}\` ${value === undefined ? "is missing" : `is ${description}`}: pass ${wanted}`);
}

/** Returns a few words for a value. They never show a text, which may be a claimed value. */
function given(value) {
    if (value === null || typeof value === "boolean" || typeof value === "number") return String(value);
    if (typeof value === "bigint") return shortened(`${value}n`);
    if (typeof value !== "object") return `a ${typeof value}`;
    const name = Object.prototype.toString.call(value).slice("[object ".length, -1);
    return `${/^[AEIO]/u.test(name) ? "an" : "a"} ${name === "Array" || name === "Object" ? name.toLowerCase() : shortened(name)}`;
}

function shortened(text) {
    return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}

/** Returns a list of words for a message, each in backticks. */
function listed(words) {
    return words.map((word) => `\`${word}\``).join(", ");
}

/** A number without a fraction, from `low` to `high`. */
export function integer(low, high) {
    return (value, path) => {
        if (Number.isInteger(value) && value >= low && value <= high) return value;
        return refuse(path, value, `an integer from ${low} to ${high}`);
    };
}

export const INT32 = integer(-(2 ** 31), 2 ** 31 - 1);
export const UINT32 = integer(0, 2 ** 32 - 1);
/** The number of rows of a page. The engine would take 0 for 1. */
export const PAGE_ROWS = integer(1, 2 ** 32 - 1);
export const UINT16 = integer(0, 2 ** 16 - 1);
export const UINT8 = integer(0, 2 ** 8 - 1);

function bigInteger(low, high) {
    return (value, path) => {
        if (typeof value === "bigint" && value >= low && value <= high) return value;
        return refuse(path, value, `a bigint from ${low} to ${high}`);
    };
}

export const INT64 = bigInteger(-MAX_INT64 - 1n, MAX_INT64);
export const UINT64 = bigInteger(0n, MAX_UINT64);

/** A number from 0 to 1. */
export function share(value, path) {
    return typeof value === "number" && value >= 0 && value <= 1 ? value : refuse(path, value, "a number from 0 to 1");
}

export function flag(value, path) {
    return typeof value === "boolean" ? value : refuse(path, value, "true or false");
}

/** Returns false for a text with half of a surrogate pair, which has no form in UTF-8. */
function isWellFormed(text) {
    return text.isWellFormed ? text.isWellFormed() : !HALF_PAIR.test(text);
}

/** Returns the kind of a text. `wanted` says what to pass, and `isCarried` which texts the engine takes. */
export function textOr(wanted, isCarried = isWellFormed) {
    return (value, path) => {
        // A number in place of a name may be the claimed value, which no message shows.
        if (typeof value !== "string") return refuse(path, value, wanted, typeof value === "object" ? given(value) : `a ${typeof value}`);
        if (isCarried(value)) return value;
        throw invalidArgument(`\`${path}\` has half of a surrogate pair: pass valid Unicode`);
    };
}

export const text = textOr("a string");

export function uuid(value, path) {
    return typeof value === "string" && UUID.test(value) ? value : refuse(path, value, "a UUID as a string");
}

/** One of these words. */
export function word(...words) {
    return (value, path) => {
        if (words.includes(value)) return value;
        return refuse(path, value, `${words.length > 1 ? "one of " : ""}${listed(words)}`);
    };
}

/** True if the array has no entries any more: its buffer was transferred, as to a worker, or became too short. */
function isDetached(array) {
    try {
        Int8Array.prototype.at.call(array, 0);
        return false;
    } catch {
        return true;
    }
}

function typedArray(Type, article) {
    return (value, path) => {
        const wanted = `${article} \`${Type.name}\``;
        if (typeOfArray.call(value) !== Type.name) return refuse(path, value, wanted);
        // The wasm file could not copy it, and would be stopped.
        if (isDetached(value)) return refuse(path, value, `${wanted} that still has its buffer`, "detached");
        return value instanceof Type ? value : new Type(value);
    };
}

export const BYTES = typedArray(Uint8Array, "a");
export const INT32_ARRAY = typedArray(Int32Array, "an");
export const INT64_ARRAY = typedArray(BigInt64Array, "a");

/** A value that may be absent: `undefined` or `null`. */
export function optional(kind) {
    return (value, path) => (value === undefined || value === null ? undefined : kind(value, path));
}

/** A value whose kind depends on its JavaScript type: `kinds` has a kind for each name of `typeof`. */
export function byType(kinds, wanted) {
    return (value, path) => {
        const kind = value !== null && Object.hasOwn(kinds, typeof value) ? kinds[typeof value] : undefined;
        return kind ? kind(value, path) : refuse(path, value, wanted);
    };
}

/** An array whose entries are of one kind. */
export function list(kind, length) {
    return (value, path) => {
        const wanted = length === undefined ? "an array" : `an array of ${length}`;
        if (!Array.isArray(value) || (length ?? value.length) !== value.length) return refuse(path, value, wanted);
        return Array.from(value, (entry, at) => kind(entry, `${path}[${at}]`));
    };
}

/** An array with one entry for each of these kinds. */
export function tuple(...kinds) {
    return (value, path) => {
        if (!Array.isArray(value) || value.length !== kinds.length) return refuse(path, value, `an array of ${kinds.length}`);
        return kinds.map((kind, at) => kind(value[at], `${path}[${at}]`));
    };
}

function isObject(value) {
    return Object.prototype.toString.call(value) === "[object Object]";
}

/** An object with these members. `isOpen` is true if it may have others, which are left out. */
export function object(members, isOpen = false) {
    const names = Object.keys(members);
    return (value, path) => {
        if (!isObject(value)) return refuse(path, value, `an object with ${listed(names)}`);
        const other = isOpen ? undefined : Object.keys(value).find((name) => !Object.hasOwn(members, name));
        if (other !== undefined) throw invalidArgument(`\`${path}\` has the unknown member \`${shortened(other)}\`: pass only ${listed(names)}`);
        const entries = names.map((name) => [name, members[name](value[name], `${path}.${name}`)]);
        return Object.fromEntries(entries.filter(([, member]) => member !== undefined));
    };
}

/** Returns a few words for an object with these members. */
function describedBy(members) {
    if (members.length === 0) return "an empty object";
    return members.length === 1 ? `an object with the member \`${shortened(members[0])}\`` : `an object with ${members.length} members`;
}

/**
 * One of several forms: the name of a form without content, or an object whose only member is the name of
 * a form with its content. `forms` has the kind of each content, `undefined` for none.
 */
export function variant(forms) {
    const wanted = `one of ${listed(Object.keys(forms))}`;
    return (value, path) => {
        const members = isObject(value) ? Object.keys(value) : undefined;
        const [name, ...others] = members ?? [value];
        if (typeof name !== "string" || others.length > 0 || !Object.hasOwn(forms, name)) {
            return members ? refuse(path, value, `one whose only member is ${wanted}`, describedBy(members)) : refuse(path, value, wanted);
        }
        const content = forms[name];
        if (content) return { [name]: content(value[name], `${path}.${name}`) };
        return name === value ? value : refuse(path, value, `the string \`${name}\``);
    };
}

/** An object whose member `tag` has the name of its form, with the further members of that form. */
export function tagged(tag, forms) {
    const name = word(...Object.keys(forms));
    const kinds = Object.fromEntries(Object.keys(forms).map((form) => [form, object({ [tag]: name, ...forms[form] })]));
    return (value, path) => {
        if (!isObject(value)) return refuse(path, value, `an object with \`${tag}\``);
        return kinds[name(value[tag], `${path}.${tag}`)](value, path);
    };
}

/** The same kind, whose complaints have another code. */
export function withCode(code, kind) {
    return (value, path) => {
        try {
            return kind(value, path);
        } catch (error) {
            throw error instanceof LeaseholdError ? new LeaseholdError(code, error.message) : error;
        }
    };
}

/**
 * Returns the arguments of a call as the engine takes them. `signature` has the kind of each argument, in
 * the order of the arguments. Further arguments are ignored, as JavaScript does.
 */
export function checked(signature, values) {
    return Object.entries(signature).map(([name, kind], at) => {
        try {
            return kind(values[at], name);
        } catch (error) {
            // A getter of the caller, or a revoked proxy, may throw any value.
            if (error instanceof LeaseholdError) throw error;
            throw invalidArgument(`\`${name}\` can't be read: pass plain objects and arrays`, error);
        }
    });
}

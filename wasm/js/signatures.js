// The arguments of each export of `leasehold`: the names that the types have, in their order, with
// their kinds.
import * as kinds from "./arguments.js";
import { BYTES, INT32, INT64, INT64_ARRAY, PAGE_ROWS, UINT32, UINT64, flag, list, object, optional, text, uuid, word } from "./arguments.js";

const CLAIM = object({
    bucket_type: INT32,
    bucket_value: text,
    subject: optional(object({ subject_type: INT32, id: INT64 })),
    source: optional(object({ source_type: INT32, id: BYTES })),
});

const DATED_LEASES = list(object({ created_at: UINT64, lease: uuid }));

const EVENT = kinds.tagged("event", {
    leases: { leases: DATED_LEASES, now: UINT64, cursor: optional(text) },
    rows: { rows: DATED_LEASES, now: UINT64 },
    settled: { answer: word("done", "rolled_back", "committed", "not_found") },
    deleted: {},
    failed: {},
});

const VERIFICATION_SETTINGS = object({
    source_type: INT32,
    bucket_types: list(INT32),
    recent_within_micros: UINT64,
    rows_per_page: PAGE_ROWS,
    dry_run: flag,
    max_destroy_share: optional(kinds.share),
    hash_seed: UINT64,
});

/** A refused claim. A detail of an error has more members. */
const REFUSED_CLAIM = object({ list: word("creates", "destroys"), position: UINT32, code: text }, true);

/** An integer in decimal digits, as a database writes it. */
const DIGITS = /^-?(?:0|[1-9]\d*)$/u;

const TEXT_KEY = object({ text });

/**
 * Returns the kind of a text that is a key. A text of digits may be an integer: node-postgres returns a
 * `bigint` column so. Its source id would be another one than that of the integer, for every claim.
 */
function textKey(integers) {
    return (value, path) => {
        if (!DIGITS.test(text(value, path))) return value;
        throw kinds.invalidArgument(`\`${path}\` is a string of digits, which may be an integer: pass ${integers}, or \`{ text: "…" }\` if the column is a text`);
    };
}

/** A text key in an object, which says that the column is a text. */
function markedText(value, path) {
    return TEXT_KEY(value, path).text;
}

const KEY = kinds.byType({ bigint: INT64, string: textKey("`BigInt(…)` of it"), object: markedText }, "a bigint, a string or `{ text: \"…\" }`");

const KEY_IN_COLUMN = kinds.byType(
    {
        string: textKey("a `BigInt64Array`"),
        object: (value, path) => (ArrayBuffer.isView(value) ? BYTES : markedText)(value, path),
    },
    "a string, `{ text: \"…\" }` or a `Uint8Array`, or the whole column of integers as a `BigInt64Array`",
);

const VALUE_IN_COLUMN = kinds.textOr("a string, or the whole column of integers as a `BigInt64Array`");

/** A column of integers in a typed array, or of other entries in an array. */
function columnOf(entry) {
    const entries = list(entry);
    return kinds.byType({ object: (value, path) => (Array.isArray(value) ? entries : INT64_ARRAY)(value, path) }, "an array or a `BigInt64Array`");
}

const ROW_COLUMNS = object({
    keys: columnOf(KEY_IN_COLUMN),
    updated_at: optional(INT64_ARRAY),
    claims: list(
        object({
            bucket_type: INT32,
            values: columnOf(optional(VALUE_IN_COLUMN)),
            subject_type: INT32,
            subject_ids: INT64_ARRAY,
        }),
    ),
});

const RECORD_COLUMNS = object({
    source_ids: list(BYTES),
    bucket_types: kinds.INT32_ARRAY,
    values: list(text),
    subject_types: kinds.INT32_ARRAY,
    subject_ids: INT64_ARRAY,
    updated_at: INT64_ARRAY,
    held: list(flag),
});

export const canonicalForm = { bucket_type: INT32, value: text };

export const checkBatch = { creates: list(CLAIM), destroys: list(CLAIM) };

/** A number is refused as a key, because it is exact up to 2^53 only. */
export const encodeSourceId = { key: KEY };

export const Reconciliation = {
    create: { settings: object({ stale_after_micros: UINT64, rows_per_page: PAGE_ROWS }) },
    methods: { step: {}, feed: { event: EVENT }, summary: {} },
};

export const Verification = {
    create: { settings: VERIFICATION_SETTINGS, checkpoint: optional(text) },
    methods: {
        step: {},
        bound: { id: optional(BYTES) },
        records: { records: kinds.withCode("INVALID_ROWS", RECORD_COLUMNS), truncated: flag, now: UINT64 },
        rows: { rows: kinds.withCode("INVALID_ROWS", ROW_COLUMNS), now: UINT64 },
        unchanged: {},
        begun: {},
        settled: {},
        refused: { claims: list(REFUSED_CLAIM) },
        failed: {},
        proceed: {},
        stop: {},
        checkpoint: {},
        report: {},
        takeFindings: {},
    },
};

/** Who holds a bucket. */
export interface Subject {
    subject_type: number;
    id: bigint;
}

/** The table row that a claim comes from; the id is as `encodeSourceId` gives it. */
export interface Source {
    source_type: number;
    id: Uint8Array;
}

/** One claim of an update. */
export interface Claim {
    bucket_type: number;
    bucket_value: string;
    subject?: Subject | undefined;
    source?: Source | undefined;
}

/** One claim that offends: its list, its position there from 0, and the reason as on the wire. */
export interface Detail {
    list: "creates" | "destroys";
    position: number;
    bucket_type: number;
    code: string;
    message: string;
}

/** What a reconciliation goes by: from which age on a lease or a row is stale, and how many rows to list at a time. */
export interface ReconciliationSettings {
    stale_after_micros: bigint;
    rows_per_page: number;
}

/** A lease with the time of its begin, or of its local row, in microseconds since 1970. */
export interface DatedLease {
    created_at: bigint;
    lease: string;
}

/**
 * What a reconciliation asks for:
 * - `list_leases`: list a page of the cell's outstanding leases; answer `leases`.
 * - `find_rows`: find the local rows of these leases; answer `rows` with those that are there.
 * - `list_rows`: list local rows that are at least so old by the database's clock, the oldest first, after this one, and
 *   so many at the most; answer `rows`.
 * - `settle`: commit or roll back the lease; answer `settled`.
 * - `delete_row`: delete the local row, if it is there; say a lost lease to people before; answer `deleted`.
 * - `done`: the run is over.
 */
export type ReconciliationStep =
    | { step: "list_leases"; cursor: string | undefined }
    | { step: "find_rows"; leases: string[] }
    | { step: "list_rows"; after: DatedLease | undefined; min_age_micros: bigint; limit: number }
    | { step: "settle"; lease: string; outcome: "Committed" | "RolledBack" }
    | { step: "delete_row"; lease: string; fate: "committed" | "lost" | "forgotten" }
    | { step: "done" };

/**
 * What came of a step; `now` is the time of whoever answered, in microseconds since 1970; `cursor` is absent on the last
 * page only. `failed` answers every step: it is left for the next run.
 */
export type ReconciliationEvent =
    | { event: "leases"; leases: readonly DatedLease[]; now: bigint; cursor?: string | undefined }
    | { event: "rows"; rows: readonly DatedLease[]; now: bigint }
    | { event: "settled"; answer: "done" | "rolled_back" | "committed" | "not_found" }
    | { event: "deleted" }
    | { event: "failed" };

/** What a reconciliation did, in counts; `lost` are the leases whose claims are gone though their rows are there. */
export interface ReconciliationSummary {
    leases_seen: number;
    committed: number;
    rolled_back: number;
    settled_meanwhile: number;
    looked_up: number;
    forgotten: number;
    lost: string[];
    rows_deleted: number;
    failed: number;
    incomplete: boolean;
}

/** What a verification goes by: the table, the bucket types that its rows claim, and how to run. */
export interface VerificationSettings {
    source_type: number;
    bucket_types: number[];
    /** What was changed within this time is left alone. */
    recent_within_micros: bigint;
    rows_per_page: number;
    /** Whether to report only. */
    dry_run: boolean;
    /** Keys the hashes of values in findings. */
    hash_seed: bigint;
}

/**
 * What a verification asks for. An empty source id bounds nothing.
 * - `find_bound`: find the source id of the row that is so many rows on; hand it to `bound`.
 * - `list_records`: list a page of the server's records beyond one source id and up to another; hand it to `records`.
 * - `read_rows`: read the local rows of a range, by encoded source id; hand them to `rows`.
 * - `read_again`: read these rows once more, from where nothing lags behind, those that are out of the model's scope too,
 *   which claim nothing; hand those that are there to `rows`. A row that is being written counts as changed just now.
 * - `begin`: begin an update; call `begun`, `refused` or `failed`.
 * - `commit`, `roll_back`: settle the update so; call `settled` or `failed`.
 * - `page_done`: a page is compared; call `proceed` or `stop`. After the last page a run may begin at an earlier row once
 *   more, where more than 10,000 names have moved and wait for each other.
 * - `done`: the run is over, or has stopped.
 */
export type VerificationStep =
    | { step: "find_bound"; after: Uint8Array; rows: number }
    | { step: "list_records"; after: Uint8Array; upto: Uint8Array }
    | { step: "read_rows"; after: Uint8Array; upto: Uint8Array }
    | { step: "read_again"; ids: Uint8Array[] }
    | { step: "begin"; creates: Claim[]; destroys: Claim[] }
    | { step: "commit" }
    | { step: "roll_back" }
    | { step: "page_done" }
    | { step: "done" };

/** Rows of the cell's own table, a column each, all of one length. */
export interface RowColumns {
    /** Integer keys, or for each row a key that is text or the bytes of an encoded id. */
    keys: BigInt64Array | readonly (string | Uint8Array)[];
    /** When each row was last changed, in microseconds since 1970. */
    updated_at?: BigInt64Array | undefined;
    /** What each row claims, by bucket type. */
    claims: readonly ClaimColumns[];
}

/** What each row claims of one bucket type: nothing for `null`; an integer is claimed in decimal. */
export interface ClaimColumns {
    bucket_type: number;
    values: BigInt64Array | readonly (string | null | undefined)[];
    subject_type: number;
    subject_ids: BigInt64Array;
}

/** Records that the server listed, a column each, all of one length; `held` where their status is not `ACTIVE`. */
export interface RecordColumns {
    source_ids: readonly Uint8Array[];
    bucket_types: Int32Array;
    values: readonly string[];
    subject_types: Int32Array;
    subject_ids: BigInt64Array;
    /** When each record was last changed, in microseconds since 1970. */
    updated_at: BigInt64Array;
    held: readonly boolean[];
}

/** A claim because of which an update was refused, as the server names it. */
export interface RefusedClaim {
    list: "creates" | "destroys";
    position: number;
    code: string;
}

/** What a verification has seen and done, in counts; in a dry run, what it would do. */
export interface VerificationReport {
    dry_run: boolean;
    pages: number;
    rows: number;
    claims: number;
    records: number;
    updates: number;
    rows_recent: number;
    records_recent: number;
    records_held: number;
    missing: number;
    different: number;
    extra: number;
    created: number;
    replaced: number;
    destroyed: number;
    gone: number;
    invalid: number;
    other_cell: number;
    other_row: number;
    busy: number;
    changed: number;
    recent: number;
    failed: number;
}

/** What became of one claim. No value is shown: the row is in hexadecimal, the value is hashed under the run's seed. */
export interface Finding {
    outcome:
        | "created"
        | "replaced"
        | "destroyed"
        | "gone"
        | "invalid"
        | "other_cell"
        | "other_row"
        | "busy"
        | "changed"
        | "recent"
        | "failed";
    bucket_type: number;
    source_id: string;
    value_hash: string;
}

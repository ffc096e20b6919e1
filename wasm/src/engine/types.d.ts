/** The subject of a claim: the user, project or other object that uses the claimed value. */
export interface Subject {
    subject_type: number;
    id: bigint;
}

/** The source of a claim: a table and one of its rows. `encodeSourceId` returns the id of a row. */
export interface Source {
    source_type: number;
    id: Uint8Array;
}

/** A claim that an update creates or destroys. */
export interface Claim {
    bucket_type: number;
    bucket_value: string;
    subject?: Subject | undefined;
    source?: Source | undefined;
}

/**
 * A claim of an update that the server or `checkBatch` rejects: its list, its position in that list
 * from 0, and the rejection's code on the wire.
 */
export interface Detail {
    list: "creates" | "destroys";
    position: number;
    bucket_type: number;
    code: string;
    message: string;
}

/**
 * The settings of a reconciliation run: the age from which a lease or row counts as stale, and the
 * number of rows on a page.
 */
export interface ReconciliationSettings {
    stale_after_micros: bigint;
    /** The number of rows of a page, at least 1. */
    rows_per_page: number;
}

/**
 * A lease, with the time at which it was begun or its local row was written, in microseconds since
 * 1970.
 */
export interface DatedLease {
    created_at: bigint;
    lease: string;
}

/**
 * A step of a reconciliation run, which the host must take. "Local" means in the cell's own
 * database.
 * - `list_leases`: list a page of the cell's outstanding leases on the server. Feed `leases`.
 * - `find_rows`: find the local rows of these leases. Feed `rows` with the rows that exist.
 * - `list_rows`: list at most `limit` local rows, the oldest first, that follow `after` and are at
 *   least `min_age_micros` old by the database's clock. Feed `rows`.
 * - `settle`: commit the lease or roll it back. Feed `settled`.
 * - `delete_row`: delete the local row if it exists. If its `fate` is `lost`, first report the
 *   lease to an operator. Feed `deleted`.
 * - `done`: the run has ended.
 */
export type ReconciliationStep =
    | { step: "list_leases"; cursor: string | undefined }
    | { step: "find_rows"; leases: string[] }
    | { step: "list_rows"; after: DatedLease | undefined; min_age_micros: bigint; limit: number }
    | { step: "settle"; lease: string; outcome: "Committed" | "RolledBack" }
    | { step: "delete_row"; lease: string; fate: "committed" | "lost" | "forgotten" }
    | { step: "done" };

/**
 * The result of a reconciliation's step. `now` is the time of the server or database that answered,
 * in microseconds since 1970. `cursor` is missing on the last page only. `failed` may answer any
 * step; the run then leaves the leases of this step to the next run.
 */
export type ReconciliationEvent =
    | { event: "leases"; leases: readonly DatedLease[]; now: bigint; cursor?: string | undefined }
    | { event: "rows"; rows: readonly DatedLease[]; now: bigint }
    | { event: "settled"; answer: "done" | "rolled_back" | "committed" | "not_found" }
    | { event: "deleted" }
    | { event: "failed" };

/**
 * The counts of a reconciliation run. `lost` lists leases that were rolled back although their
 * local rows exist.
 */
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

/**
 * The settings of a verification run: the table, the bucket types that its rows claim, and limits.
 */
export interface VerificationSettings {
    source_type: number;
    bucket_types: number[];
    /** The run skips rows and records that changed within this time, in microseconds. */
    recent_within_micros: bigint;
    /** The number of rows of a page, at least 1. */
    rows_per_page: number;
    /** True if the run must only report differences and not correct them. */
    dry_run: boolean;
    /**
     * The largest share of the table's claims that the run may destroy, from 0 to 1. The default is
     * 0.1. Ten claims may be destroyed in any table.
     */
    max_destroy_share?: number;
    /** The key of the hashes that findings contain in place of claimed values. */
    hash_seed: bigint;
}

/**
 * A step of a verification run, which the host must take. A range contains the source ids greater
 * than `after` and at most `upto`. An empty id means no bound on that side.
 * - `find_bound`: find the source id of the row that is `rows` rows after `after`. Call `bound`.
 * - `list_records`: list a page of the server's records in the range. Call `records`.
 * - `read_rows`: read the local rows in the range, in the order of their encoded source ids. Call
 *   `rows`.
 * - `read_again`: read these rows from the primary database, not from a replica. Call `rows` with
 *   the rows that exist. Include rows outside the model's scope, with no claims. If an open
 *   transaction has written a row, report the row as changed now.
 * - `begin`: begin the update on the server. Call `begun`, `refused` or `failed`.
 * - `commit`, `roll_back`: settle the update's lease. Call `settled` or `failed`.
 * - `page_done`: a page is compared. Call `proceed` or `stop`. After the last page a run may return
 *   to an earlier row, if more than 10,000 names have moved between rows.
 * - `refused`: the run would destroy more claims than `max_destroy_share` permits, and makes no
 *   further correction. Store the checkpoint. A run with `needed_share` or more can continue from it.
 * - `done`: the run has ended or was stopped.
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
    | { step: "refused"; destroys: number; claims: number; needed_share: number }
    | { step: "done" };

/**
 * A text that is a row's primary key, also if it has only digits. Such a text alone is refused: some
 * drivers return an integer of 64 bits as a text, and the source id of the integer is another one.
 */
export interface TextKey {
    text: string;
}

/** Rows of the cell's own table, as one array per column. All columns have the same length. */
export interface RowColumns {
    /**
     * The primary key of each row: integers, or for each row a text or the bytes of an encoded
     * source id.
     */
    keys: BigInt64Array | readonly (string | TextKey | Uint8Array)[];
    /** The time of each row's last change, in microseconds since 1970. */
    updated_at?: BigInt64Array | undefined;
    /** The claims that the rows make, one entry for each bucket type. */
    claims: readonly ClaimColumns[];
}

/**
 * The claims of one bucket type that the rows make. A row with `null` claims nothing. An integer is
 * claimed as its decimal text.
 */
export interface ClaimColumns {
    bucket_type: number;
    values: BigInt64Array | readonly (string | null | undefined)[];
    subject_type: number;
    subject_ids: BigInt64Array;
}

/** Records of the server, as one array per column. All columns have the same length. */
export interface RecordColumns {
    source_ids: readonly Uint8Array[];
    bucket_types: Int32Array;
    values: readonly string[];
    subject_types: Int32Array;
    subject_ids: BigInt64Array;
    /** The time of each record's last change, in microseconds since 1970. */
    updated_at: BigInt64Array;
    /** True for each record that a lease holds, so that its status is not `ACTIVE`. */
    held: readonly boolean[];
}

/**
 * A claim because of which the server refused an update: its list, its position in that list from
 * 0, and the rejection's code.
 */
export interface RefusedClaim {
    list: "creates" | "destroys";
    position: number;
    code: string;
}

/**
 * The counts of a verification run. A dry run counts the corrections that a real run would make.
 */
export interface VerificationReport {
    dry_run: boolean;
    /** True at the end of a dry run if a real run would be refused for `max_destroy_share`. */
    over_destroy_limit: boolean;
    pages: number;
    /** The pages that the run compared to count how many claims it would destroy. */
    pages_surveyed: number;
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

/**
 * The outcome of a verification run for one claim. `source_id` is in hexadecimal. `value_hash` is a
 * hash of the value under the key `hash_seed`; a finding never contains the value.
 */
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

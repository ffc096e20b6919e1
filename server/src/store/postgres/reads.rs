//! The statements of reads and periodic tasks, which run outside of groups and on any connection.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use leasehold_core::bucket::BucketKey;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, SourceId, SourceType};
use leasehold_core::lease::{Fence, IdempotencyKey, Lease, LeaseId, Replay};
use leasehold_core::query::{LeasePosition, LeaseRow, LeaseScan, RecordPart, RecordRow, RecordScan};
use leasehold_core::rows::State;
use leasehold_core::time::Timestamp;
use leasehold_core::unicode_version::UnicodeVersion;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::columns::{self, CLAIM, Micros, Parameters};
use super::failure::failed;
use super::{lock_reads, queue_reads};
use crate::store::error::StoreError;
use crate::store::identity::{COUNTED_CLAIMS, Contents, Count};
use crate::store::port::{NamePart, NamePlace, Occupancy};
use crate::store::stored;

type Result<T> = std::result::Result<T, StoreError>;

/// An SQL expression for the time of the database's clock, in microseconds since 1970.
pub(super) const TIME: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Reads the database's clock.
pub(super) async fn time(client: &Client) -> std::result::Result<Timestamp, tokio_postgres::Error> {
    let micros: i64 = client.query_typed_one(&format!("SELECT {TIME}"), &[]).await?.try_get(0)?;
    Ok(Timestamp::from_micros(micros.cast_unsigned()))
}

/// Reads the claims on buckets, in the order of `keys`. All are read by one statement, and so as of
/// one moment.
pub(super) async fn claims(client: &Client, keys: &[BucketKey]) -> Result<Vec<Option<Claim>>> {
    let sql = format!(
        "SELECT {CLAIM} FROM unnest($1, $2) AS k (t, v) JOIN claims c ON c.bucket_type = k.t AND c.bucket_value = k.v"
    );
    let types: Vec<_> = keys.iter().map(|key| key.bucket_type.0).collect();
    let values: Vec<_> = keys.iter().map(|key| &*key.canonical).collect();
    let rows = client.query_typed(&sql, &[(&types, Type::INT4_ARRAY), (&values, Type::TEXT_ARRAY)]).await;
    let found: HashMap<_, _> = rows.map_err(failed)?.iter().map(columns::claim).collect::<Result<_>>()?;
    Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
}

/// Reads at most `scan.limit` outstanding leases of a cell, in the order of `ListLeases` (B31).
pub(super) async fn leases(client: &Client, scan: &LeaseScan) -> Result<Vec<LeaseRow>> {
    let first = LeasePosition { created_at: Timestamp::MIN, lease: LeaseId(Uuid::nil()) };
    let (from, beyond) = match scan.from {
        Bound::Included(from) => (from, ">="),
        Bound::Excluded(from) => (from, ">"),
        Bound::Unbounded => (first, ">="),
    };
    let sql = format!(
        "SELECT uuid, created_at, organization_id FROM claim_leases
         WHERE creator_id = $1 AND (created_at, uuid_send(uuid)) {beyond} ($2, uuid_send($3))
         ORDER BY created_at, uuid_send(uuid) LIMIT $4"
    );
    let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
    let created_at = Micros(from.created_at);
    let parameters: Parameters<'_> = vec![
        (&scan.cell.0, Type::INT8),
        (&created_at, Type::TIMESTAMPTZ),
        (&from.lease.0, Type::UUID),
        (&limit, Type::INT8),
    ];
    let row = |row: &Row| {
        let (lease, created_at): (Uuid, Micros) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        let position = LeasePosition { created_at: created_at.0, lease: LeaseId(lease) };
        let organization = columns::organization(row.try_get(2).map_err(failed)?, "claim_leases")?;
        Ok(LeaseRow { position, updated_at: created_at.0, organization })
    };
    client.query_typed(&sql, &parameters).await.map_err(failed)?.iter().map(row).collect()
}

/// Reads a part of the claims whose source is in one table of a cell, in the order of source id,
/// bucket type and value (B32).
///
/// The statement looks at `scan.limit` claims at most. It returns claims until their bytes reach
/// `scan.max_bytes`. It also returns the last claim that it looked at, because the scan goes on
/// after this claim. It computes sizes without reading attached data that PostgreSQL stores apart
/// from the row (TOAST).
pub(super) async fn records(client: &Client, scan: &RecordScan) -> Result<RecordPart> {
    let (after, place) = match scan.after.bound() {
        Bound::Included(place) => ("source_id >= $3", place),
        Bound::Excluded(place) => ("(source_id, bucket_type, bucket_value) > ($3, $8, $9)", place),
        Bound::Unbounded => ("source_id >= $3", (SourceId::default(), BucketKey::first())),
    };
    let sql = format!(
        "WITH looked_at AS (
             SELECT claims.*, cardinality($5) = 0 OR bucket_type = ANY ($5) AS is_covered FROM claims
             WHERE creator_id = $1 AND source_type = $2 AND {after} AND ($4 = ''::bytea OR source_id <= $4)
             ORDER BY source_id, bucket_type, bucket_value LIMIT $6
         ), sized AS (
             SELECT *, count(*) FILTER (WHERE is_covered) OVER () AS covered, row_number() OVER listed AS number,
                    sum(CASE WHEN is_covered THEN {BYTES} ELSE 0 END) OVER listed
                    - CASE WHEN is_covered THEN {BYTES} ELSE 0 END AS bytes_before
             FROM looked_at
             WINDOW listed AS (ORDER BY source_id, bucket_type, bucket_value ROWS UNBOUNDED PRECEDING)
         )
         SELECT {CLAIM}, is_covered AND bytes_before < $7 AS is_listed, number = $6 AS is_last, covered FROM sized c
         WHERE is_covered AND bytes_before < $7 OR number = $6
         ORDER BY source_id, bucket_type, bucket_value"
    );
    let types: Vec<i32> = scan.bucket_types.iter().map(|bucket_type| bucket_type.0).collect();
    let (gt, lte, value) = (place.0.as_bytes(), scan.source_id_lte.as_bytes(), &*place.1.canonical);
    let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
    let max_bytes = i64::try_from(scan.max_bytes).unwrap_or(i64::MAX);
    let parameters: Parameters<'_> = vec![
        (&scan.cell.0, Type::INT8),
        (&scan.source_type.0, Type::INT4),
        (&gt, Type::BYTEA),
        (&lte, Type::BYTEA),
        (&types, Type::INT4_ARRAY),
        (&limit, Type::INT8),
        (&max_bytes, Type::INT8),
        (&place.1.bucket_type.0, Type::INT4),
        (&value, Type::TEXT),
    ];
    let rows = client.query_typed(&sql, &parameters).await.map_err(failed)?;
    record_part(&rows)
}

fn record_part(rows: &[Row]) -> Result<RecordPart> {
    let (mut part, mut listed, mut last) = (RecordPart::default(), 0, None);
    for row in rows {
        let flag = |name| row.try_get::<_, bool>(name).map_err(failed);
        if flag("is_last")? {
            last = Some(columns::record_place(row)?);
        }
        if !flag("is_listed")? {
            continue;
        }
        listed += 1;
        let place = columns::record_place(row)?;
        match columns::claim(row) {
            Ok((key, claim)) => part.rows.push(RecordRow { key, claim }),
            Err(StoreError::Damaged(_)) => part.damaged.push(place.clone()),
            Err(error) => return Err(error),
        }
        part.next = Some(place);
    }
    let covered: i64 = rows.first().map_or(Ok(0), |row| row.try_get("covered")).map_err(failed)?;
    // All covered claims were returned, so the limit of bytes did not end the part. The scan goes
    // on after the last claim that the statement looked at.
    if listed == covered {
        part.next = last;
    }
    Ok(part)
}

/// An SQL expression for the bytes of a record: at least [`RecordRow::bytes`].
const BYTES: &str = "160 + 2 * octet_length(coalesce(bucket_spelling, bucket_value)) + octet_length(source_id)
    + coalesce(octet_length(user_data), 0)";
/// Reads the ids of at most `limit` leases that were settled before `before`, in the order of their
/// settles.
pub(super) async fn settled(client: &Client, before: Timestamp, limit: usize) -> Result<Vec<LeaseId>> {
    let sql = "SELECT uuid FROM settled_leases WHERE settled_at < $1 ORDER BY settled_at, uuid LIMIT $2";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let before = Micros(before);
    let rows = client.query_typed(sql, &[(&before, Type::TIMESTAMPTZ), (&limit, Type::INT8)]).await;
    rows.map_err(failed)?.iter().map(|row| row.try_get(0).map(LeaseId).map_err(failed)).collect()
}

/// Deletes at most `limit` leases that were settled before `before`, and their idempotency keys
/// (B22, B24). Returns the number of deleted leases. `SKIP LOCKED` lets several servers delete
/// different leases at the same time. The lock timeout limits the wait for a session that does not
/// belong to a server.
pub(super) async fn forget(client: &Client, before: Timestamp, limit: i64) -> Result<u64> {
    let sql = "WITH old AS (
                   SELECT uuid FROM settled_leases, set_config('lock_timeout', '500ms', true) WHERE settled_at < $1
                   ORDER BY settled_at, uuid LIMIT $2 FOR UPDATE OF settled_leases SKIP LOCKED
               ), gone AS (
                   DELETE FROM settled_leases WHERE uuid IN (SELECT uuid FROM old)
                   RETURNING creator_id, idempotency_key
               ), keys AS (
                   DELETE FROM idempotency_keys k USING gone
                   WHERE (k.creator_id, k.idempotency_key) = (gone.creator_id, gone.idempotency_key)
               )
               SELECT count(*) FROM gone";
    let before = Micros(before);
    let row = client.query_typed_one(sql, &[(&before, Type::TIMESTAMPTZ), (&limit, Type::INT8)]).await;
    let gone: i64 = row.map_err(failed)?.try_get(0).map_err(failed)?;
    Ok(gone.cast_unsigned())
}

/// Deletes the entries of abandoned groups that are a day old, because no statement of such a group
/// can still arrive.
pub(super) async fn forget_abandoned(client: &Client) -> Result<()> {
    let sql = "DELETE FROM abandoned_groups WHERE abandoned_at < now() - interval '1 day'";
    client.execute_typed(sql, &[]).await.map(drop).map_err(failed)
}

/// Reads the occupancy of the database, and the number of claims under leases of each cell.
pub(super) async fn occupancy(client: &Client) -> Result<(Occupancy, BTreeMap<CellId, usize>)> {
    let sql = "SELECT count(*), min(created_at),
                      pg_total_relation_size('claims') + pg_total_relation_size('claim_leases')
                      + pg_total_relation_size('settled_leases') + pg_total_relation_size('idempotency_keys')
                      + pg_total_relation_size('lock_sessions') + pg_total_relation_size('locks')
                      + pg_total_relation_size('lock_asks') + pg_total_relation_size('lock_turns')
                      + pg_total_relation_size('request_lanes') + pg_total_relation_size('open_requests')
                      + (SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_partition_tree('settled_requests'))
                      + (SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_partition_tree('request_bodies')),
                      creator_id, coalesce(sum(cardinality(bucket_types)), 0)::bigint
               FROM claim_leases GROUP BY GROUPING SETS ((), (creator_id))";
    let (mut occupancy, mut held_claims) = (Occupancy::default(), BTreeMap::new());
    for row in client.query_typed(sql, &[]).await.map_err(failed)? {
        let count = |at| row.try_get::<_, i64>(at).map(i64::cast_unsigned).map_err(failed);
        let claims = usize::try_from(count(4)?).unwrap_or(usize::MAX);
        let cell: Option<i64> = row.try_get(3).map_err(failed)?;
        if let Some(cell) = cell {
            held_claims.insert(CellId(cell), claims);
            continue;
        }
        // This is the row for all cells together, which exists even if there is no lease.
        let oldest: Option<Micros> = row.try_get(1).map_err(failed)?;
        occupancy = Occupancy {
            leases: usize::try_from(count(0)?).unwrap_or(usize::MAX),
            held_claims: claims,
            oldest_lease: oldest.map(|oldest| oldest.0),
            disk_bytes: count(2)?,
            ..Occupancy::default()
        };
    }
    Ok((occupancy, held_claims))
}

/// Counts the claims and outstanding leases. If there are many claims, their number is estimated
/// from the planner's statistics.
pub(super) async fn contents(client: &Client) -> Result<Contents> {
    let sql = "SELECT (SELECT count(*) FROM (SELECT FROM claims LIMIT $1) AS first),
                      (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'claims'::regclass),
                      (SELECT count(*) FROM claim_leases),
                      coalesce(pg_sequence_last_value('lease_fences'::regclass), 0)";
    let limit = i64::try_from(COUNTED_CLAIMS + 1).unwrap_or(i64::MAX);
    let row = client.query_typed_one(sql, &[(&limit, Type::INT8)]).await.map_err(failed)?;
    let number = |at| row.try_get::<_, i64>(at).map(i64::cast_unsigned).map_err(failed);
    let count = |number| usize::try_from(number).unwrap_or(usize::MAX);
    let claims = Count::of(count(number(0)?), count(number(1)?));
    Ok(Contents { claims, leases: count(number(2)?), fence: Fence(number(3)?) })
}

/// Reads the cells that own at least one claim. The recursive query jumps from cell to cell in the
/// index, so each cell costs one lookup (https://wiki.postgresql.org/wiki/Loose_indexscan).
pub(super) async fn owners(client: &Client) -> Result<BTreeSet<CellId>> {
    let sql = "WITH RECURSIVE owner (cell) AS (
                   SELECT min(creator_id) FROM claims
                   UNION ALL SELECT (SELECT min(creator_id) FROM claims WHERE creator_id > cell) FROM owner
                   WHERE cell IS NOT NULL
               )
               SELECT cell FROM owner WHERE cell IS NOT NULL";
    let rows = client.query_typed(sql, &[]).await.map_err(failed)?;
    rows.iter().map(|row| row.try_get(0).map(CellId).map_err(failed)).collect()
}

/// Reads the tables from which a cell has claims. The recursive query jumps from table to table in
/// the index, as [`owners`] does from cell to cell.
pub(super) async fn tables(client: &Client, cell: CellId) -> Result<BTreeSet<SourceType>> {
    let sql = "WITH RECURSIVE source_table (number) AS (
                   SELECT min(source_type) FROM claims WHERE creator_id = $1
                   UNION ALL
                   SELECT (SELECT min(source_type) FROM claims WHERE creator_id = $1 AND source_type > number)
                   FROM source_table WHERE number IS NOT NULL
               )
               SELECT number FROM source_table WHERE number IS NOT NULL";
    let rows = client.query_typed(sql, &[(&cell.0, Type::INT8)]).await.map_err(failed)?;
    rows.iter().map(|row| row.try_get(0).map(SourceType).map_err(failed)).collect()
}

/// Reads the stored rules of configured bucket types.
pub(super) async fn bucket_types(client: &Client) -> Result<Vec<BucketRule>> {
    let sql = "SELECT coalesce(json_agg(t ORDER BY number), '[]')::text FROM bucket_types t";
    let rules: String = client.query_typed_one(sql, &[]).await.and_then(|row| row.try_get(0)).map_err(failed)?;
    stored::bucket_rules_from_json(rules.as_bytes())
        .map_err(|_| StoreError::Damaged("a row of `bucket_types` can't be read".into()))
}

/// Reads the names of at most `limit` claims, in the order of the primary key.
pub(super) async fn names(client: &Client, after: &NamePlace, limit: usize) -> Result<NamePart> {
    let sql = format!(
        "SELECT {CLAIM} FROM claims c WHERE (bucket_type, bucket_value) > ($1, $2)
         ORDER BY bucket_type, bucket_value LIMIT $3"
    );
    let first = BucketKey::first();
    let after = match after {
        NamePlace::Claim(Some(key)) => key,
        NamePlace::Claim(None) | NamePlace::Lease(_) => &first,
    };
    let (value, rows) = (&*after.canonical, i64::try_from(limit).unwrap_or(i64::MAX));
    let parameters: Parameters<'_> =
        vec![(&after.bucket_type.0, Type::INT4), (&value, Type::TEXT), (&rows, Type::INT8)];
    let rows = client.query_typed(&sql, &parameters).await.map_err(failed)?;
    let mut part = NamePart::default();
    for row in &rows {
        match columns::claim(row) {
            Ok((key, claim)) => part.push(&key, &claim),
            Err(StoreError::Damaged(_)) => part.damaged += 1,
            Err(error) => return Err(error),
        }
    }
    if let Some(last) = rows.last().filter(|_| rows.len() == limit) {
        part.next = Some(NamePlace::Claim(Some(columns::record_place(last)?.1)));
    }
    Ok(part)
}

/// Replaces the version of Unicode `found` of the canonical forms. If another server has replaced it
/// already, nothing changes.
pub(super) async fn set_unicode_version(client: &Client, found: UnicodeVersion, version: UnicodeVersion) -> Result<()> {
    let sql = "UPDATE leasehold_store SET unicode_version = $2 WHERE unicode_version = $1";
    let (found, version) = (found.to_string(), version.to_string());
    client.execute_typed(sql, &[(&found, Type::TEXT), (&version, Type::TEXT)]).await.map(drop).map_err(failed)
}

/// Stores rules of configured bucket types. A rule that is stored already is not changed.
pub(super) async fn remember_bucket_types(client: &Client, rules: &[BucketRule]) -> Result<()> {
    let sql = "INSERT INTO bucket_types SELECT * FROM json_populate_recordset(NULL::bucket_types, $1::json)
               ON CONFLICT DO NOTHING";
    let rules = stored::bucket_rules_to_json(rules).map_err(|error| StoreError::Failed(error.to_string()))?;
    client.execute_typed(sql, &[(&rules, Type::TEXT)]).await.map(drop).map_err(failed)
}

/// Reads all rows and the newest fence.
pub(super) async fn state(client: &Client) -> Result<State> {
    let claims = client.query_typed(&format!("SELECT {CLAIM} FROM claims c"), &[]).await.map_err(failed)?;
    let outstanding = client.query_typed(&format!("SELECT {OUTSTANDING} FROM claim_leases l"), &[]).await;
    let outstanding = outstanding.map_err(failed)?;
    let settled = client.query_typed(&format!("SELECT {SETTLED} FROM settled_leases l"), &[]).await.map_err(failed)?;
    let leases = outstanding.iter().map(columns::outstanding).chain(settled.iter().map(columns::settled));
    let replays = client.query_typed(&format!("SELECT {REPLAY}"), &[]).await.map_err(failed)?;
    let mut state = State {
        claims: claims.iter().map(columns::claim).collect::<Result<_>>()?,
        leases: leases.collect::<Result<BTreeMap<LeaseId, Lease>>>()?,
        replays: replays.iter().map(columns::replay).collect::<Result<BTreeMap<IdempotencyKey, Replay>>>()?,
        fence: newest_fence(client).await?,
        ..State::default()
    };
    lock_reads::add_state(client, &mut state).await?;
    queue_reads::add_state(client, &mut state).await?;
    Ok(state)
}

/// Reads the newest fence that the sequence has given out; 0 if it has given out none.
pub(super) async fn newest_fence(client: &Client) -> Result<Fence> {
    let row = client.query_typed_one("SELECT last_value, is_called FROM lease_fences", &[]).await.map_err(failed)?;
    let (last, is_called): (i64, bool) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
    Ok(if is_called { Fence(last.cast_unsigned()) } else { Fence::default() })
}

/// The columns of `claim_leases`, under the alias `l`, that [`columns::outstanding`] reads.
pub(super) const OUTSTANDING: &str = "l.uuid, l.creator_id, l.fence, l.created_at, l.idempotency_key, l.organization_id, l.bucket_types, l.bucket_values";

/// The columns of `settled_leases`, under the alias `l`, that [`columns::settled`] reads.
pub(super) const SETTLED: &str =
    "l.uuid, l.creator_id, l.fence, l.created_at, l.idempotency_key, l.organization_id, l.committed, l.settled_at";

/// The columns that [`columns::replay`] reads, and the FROM clause for them. The lease of a key is
/// either in `claim_leases` or in `settled_leases`.
pub(super) const REPLAY: &str =
    "k.creator_id, k.idempotency_key, k.lease_uuid, coalesce(o.fence, s.fence), k.fingerprint
    FROM idempotency_keys k
    LEFT JOIN claim_leases o ON o.uuid = k.lease_uuid LEFT JOIN settled_leases s ON s.uuid = k.lease_uuid";

//! Conversions from the tables' columns to values of the engine, and from the engine's keys to
//! array parameters.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::cell::CellId;
use leasehold_core::claim::{
    Claim, ClaimState, Hold, Record, Replacement, Source, SourceId, SourceType, Subject, UserData,
};
use leasehold_core::lease::{Fence, IdempotencyKey, Lease, LeaseId, LeaseState, Outcome, Replay};
use leasehold_core::organization::OrganizationId;
use leasehold_core::query::RecordPlace;
use leasehold_core::time::Timestamp;
use prost::Message;
use prost_types::Any;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};
use uuid::Uuid;

use crate::store::error::StoreError;
use crate::store::stored;

/// Microseconds from 1970-01-01 to 2000-01-01, the epoch of PostgreSQL's timestamps.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// The columns of the table `claims`, under the alias `c`, in the order in which [`claim`] reads
/// them.
pub(super) const CLAIM: &str = "c.bucket_type, c.bucket_value, c.bucket_spelling, c.uuid, c.creator_id, \
    c.subject_type, c.subject_id, c.source_type, c.source_id, c.user_data, c.status, c.lease_uuid, c.leased_at, \
    c.created_at, c.updated_at, c.replaced::text";

/// A time that is sent and received in the binary form of `timestamptz`. A time that this type
/// can't represent is sent as `infinity`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Micros(pub(super) Timestamp);

impl ToSql for Micros {
    accepts!(TIMESTAMPTZ);
    to_sql_checked!();

    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_i64(i64::try_from(self.0.as_micros()).map_or(i64::MAX, |micros| micros - EPOCH_MICROS));
        Ok(IsNull::No)
    }
}

impl<'a> FromSql<'a> for Micros {
    accepts!(TIMESTAMPTZ);

    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?).saturating_add(EPOCH_MICROS);
        Ok(Self(Timestamp::from_micros(u64::try_from(micros)?)))
    }
}

pub(super) fn damaged(table: &str) -> StoreError {
    StoreError::Damaged(format!("a row of `{table}` can't be read"))
}

/// A reader that takes the columns of one row from left to right.
pub(super) struct Columns<'a> {
    row: &'a Row,
    table: &'static str,
    next: usize,
}

impl<'a> Columns<'a> {
    pub(super) fn new(row: &'a Row, table: &'static str) -> Self {
        Self { row, table, next: 0 }
    }

    pub(super) fn damaged(&self) -> StoreError {
        damaged(self.table)
    }

    pub(super) fn take<T: FromSql<'a>>(&mut self) -> Result<T, StoreError> {
        let value = self.row.try_get(self.next).map_err(|_| damaged(self.table));
        self.next += 1;
        value
    }
}

/// Reads a claim and its key from a row with the columns [`CLAIM`].
pub(super) fn claim(row: &Row) -> Result<(BucketKey, Claim), StoreError> {
    let mut columns = Columns::new(row, "claims");
    let key = BucketKey { bucket_type: BucketType(columns.take()?), canonical: columns.take::<&str>()?.into() };
    let spelling = columns.take::<Option<&str>>()?.map_or_else(|| key.canonical.clone(), Into::into);
    let uuid = columns.take()?;
    let owner = CellId(columns.take()?);
    let subject = Subject { subject_type: columns.take()?, id: columns.take()? };
    let source = Source { source_type: SourceType(columns.take()?), id: SourceId::from_bytes(columns.take()?) };
    let user_data = columns.take::<Option<&[u8]>>()?.map(user_data).transpose()?.map(Into::into);
    let status: i16 = columns.take()?;
    let lease: Option<Uuid> = columns.take()?;
    let since: Option<Micros> = columns.take()?;
    let created_at = columns.take::<Micros>()?.0;
    let updated_at = columns.take::<Micros>()?.0;
    let record = Record { uuid, spelling, subject, source, user_data, created_at, updated_at };
    let hold = lease.zip(since).map(|(lease, since)| Hold { lease: LeaseId(lease), since: since.0 });
    let state = match (status, hold, columns.take::<Option<&str>>()?) {
        (1, None, None) => ClaimState::Active(record),
        (2, Some(hold), None) => ClaimState::Creating(hold, record),
        (3, Some(hold), None) => ClaimState::Destroying(hold, record),
        (4, Some(hold), Some(replaced)) => {
            let old: stored::Record<'_> = serde_json::from_str(replaced).map_err(|_| damaged("claims"))?;
            ClaimState::Replacing(hold, Box::new(Replacement { old: old.into(), new: record }))
        }
        _ => return Err(damaged("claims")),
    };
    Ok((key, Claim { owner, state }))
}

/// Reads the place of a claim in the order of records from a row with the columns [`CLAIM`].
pub(super) fn record_place(row: &Row) -> Result<RecordPlace, StoreError> {
    let damaged = |_| damaged("claims");
    let bucket_type = BucketType(row.try_get("bucket_type").map_err(damaged)?);
    let canonical = row.try_get::<_, &str>("bucket_value").map_err(damaged)?.into();
    let source_id = SourceId::from_bytes(row.try_get("source_id").map_err(damaged)?);
    Ok((source_id, BucketKey { bucket_type, canonical }))
}

fn user_data(bytes: &[u8]) -> Result<UserData, StoreError> {
    let any = Any::decode(bytes).map_err(|_| damaged("claims"))?;
    Ok(UserData { type_url: any.type_url, value: any.value })
}

fn idempotency_key(cell: CellId, key: Option<&str>) -> Option<IdempotencyKey> {
    key.map(|key| IdempotencyKey { cell, key: key.into() })
}

/// Returns the organization in the column `organization_id` of `table`.
pub(super) fn organization(id: Option<i64>, table: &str) -> Result<Option<OrganizationId>, StoreError> {
    id.map(OrganizationId::try_from).transpose().map_err(|_| damaged(table))
}

/// The columns that outstanding and settled leases share.
struct LeaseColumns {
    id: LeaseId,
    cell: CellId,
    fence: Fence,
    created_at: Timestamp,
    idempotency_key: Option<IdempotencyKey>,
    organization: Option<OrganizationId>,
}

impl LeaseColumns {
    fn take(columns: &mut Columns<'_>) -> Result<Self, StoreError> {
        let id = LeaseId(columns.take()?);
        let cell = CellId(columns.take()?);
        let fence = Fence(columns.take::<i64>()?.cast_unsigned());
        let created_at = columns.take::<Micros>()?.0;
        let idempotency_key = idempotency_key(cell, columns.take()?);
        let organization = organization(columns.take()?, columns.table)?;
        Ok(Self { id, cell, fence, created_at, idempotency_key, organization })
    }

    fn with(self, state: LeaseState, updated_at: Timestamp) -> (LeaseId, Lease) {
        let Self { id, cell, fence, created_at, idempotency_key, organization } = self;
        (id, Lease { cell, fence, created_at, updated_at, idempotency_key, organization, state })
    }

    fn outstanding(self, types: Vec<i32>, values: Vec<&str>) -> (LeaseId, Lease) {
        let key = |(bucket_type, value): (i32, &str)| BucketKey {
            bucket_type: BucketType(bucket_type),
            canonical: value.into(),
        };
        let created_at = self.created_at;
        self.with(LeaseState::Outstanding(types.into_iter().zip(values).map(key).collect()), created_at)
    }

    fn settled(self, is_committed: bool, at: Timestamp) -> (LeaseId, Lease) {
        let outcome = if is_committed { Outcome::Committed } else { Outcome::RolledBack };
        self.with(LeaseState::Settled(outcome), at)
    }
}

/// Reads an outstanding lease and its id from a row with the columns
/// [`OUTSTANDING`](super::reads::OUTSTANDING).
pub(super) fn outstanding(row: &Row) -> Result<(LeaseId, Lease), StoreError> {
    let mut columns = Columns::new(row, "claim_leases");
    let lease = LeaseColumns::take(&mut columns)?;
    Ok(lease.outstanding(columns.take()?, columns.take()?))
}

/// Reads a settled lease and its id from a row with the columns [`SETTLED`](super::reads::SETTLED).
pub(super) fn settled(row: &Row) -> Result<(LeaseId, Lease), StoreError> {
    let mut columns = Columns::new(row, "settled_leases");
    let lease = LeaseColumns::take(&mut columns)?;
    Ok(lease.settled(columns.take()?, columns.take::<Micros>()?.0))
}

/// Reads a lease and its id from a row with the shared columns, then those of outstanding leases alone, then those
/// of settled ones.
pub(super) fn any_lease(row: &Row) -> Result<(LeaseId, Lease), StoreError> {
    let mut columns = Columns::new(row, "claim_leases");
    let lease = LeaseColumns::take(&mut columns)?;
    let claims: (Option<Vec<i32>>, Option<Vec<&str>>) = (columns.take()?, columns.take()?);
    let settled: (Option<bool>, Option<Micros>) = (columns.take()?, columns.take()?);
    match (claims, settled) {
        ((Some(types), Some(values)), (None, None)) => Ok(lease.outstanding(types, values)),
        ((None, None), (Some(is_committed), Some(at))) => Ok(lease.settled(is_committed, at.0)),
        _ => Err(columns.damaged()),
    }
}

/// Reads a replay and its idempotency key from a row with the columns
/// [`REPLAY`](super::reads::REPLAY).
pub(super) fn replay(row: &Row) -> Result<(IdempotencyKey, Replay), StoreError> {
    let mut columns = Columns::new(row, "idempotency_keys");
    let key = IdempotencyKey { cell: CellId(columns.take()?), key: columns.take::<&str>()?.into() };
    let lease = LeaseId(columns.take()?);
    let fence = Fence(columns.take::<i64>()?.cast_unsigned());
    let fingerprint: stored::Fingerprint<'_> =
        postcard::from_bytes(columns.take()?).map_err(|_| damaged("idempotency_keys"))?;
    Ok((key, Replay { lease, fence, fingerprint: fingerprint.into() }))
}

/// Keys of claims as parameters of a statement: one array of bucket types, one of values.
#[derive(Default)]
pub(super) struct KeyArrays<'a> {
    types: Vec<i32>,
    values: Vec<&'a str>,
}

impl<'a> FromIterator<&'a BucketKey> for KeyArrays<'a> {
    fn from_iter<I: IntoIterator<Item = &'a BucketKey>>(keys: I) -> Self {
        let (types, values) = keys.into_iter().map(|key| (key.bucket_type.0, &*key.canonical)).unzip();
        Self { types, values }
    }
}

impl<'a> KeyArrays<'a> {
    pub(super) fn push(&mut self, key: &'a BucketKey) {
        self.types.push(key.bucket_type.0);
        self.values.push(&key.canonical);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    pub(super) fn parameters(&self) -> Parameters<'_> {
        vec![(&self.types, Type::INT4_ARRAY), (&self.values, Type::TEXT_ARRAY)]
    }
}

/// The parameters of an SQL statement, with their types.
pub(super) type Parameters<'a> = Vec<(&'a (dyn ToSql + Sync), Type)>;

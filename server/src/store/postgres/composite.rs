//! Rows as one parameter of a statement: an array of a composite type, in the binary form that
//! PostgreSQL receives (`array_recv` in `src/backend/utils/adt/arrayfuncs.c`, `record_recv` in
//! `src/backend/utils/adt/rowtypes.c`).

use std::error::Error;

use bytes::{BufMut, BytesMut};
use leasehold_core::bucket::BucketKey;
use leasehold_core::claim::{Claim, ClaimState, UserData};
use leasehold_core::lease::{IdempotencyKey, Lease, LeaseId, Replay};
use prost::Message;
use prost_types::Any;
use tokio_postgres::types::{IsNull, Json, ToSql, Type, accepts, to_sql_checked};

use super::columns::{Micros, Parameters};
use crate::store::error::StoreError;
use crate::store::stored;

type Encoded<T = ()> = Result<T, Box<dyn Error + Sync + Send>>;

/// The length that stands for the value NULL in the binary form.
const NULL: i32 = -1;

/// The rows of an array parameter, which the statement casts to an array of a composite type, as in
/// `$1::new_claim[]`. The OID of such a type differs from database to database. So the rows are
/// sent as `record`, and the cast gives them their type (PostgreSQL 14 and later).
#[derive(Debug, Default)]
pub(super) struct CompositeRows {
    count: i32,
    encoded: BytesMut,
}

impl CompositeRows {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the array as a parameter. Its type is `unknown`, so that PostgreSQL uses the type of
    /// the cast.
    pub(super) fn parameter(&self) -> Parameters<'_> {
        vec![(self, Type::UNKNOWN)]
    }

    /// Adds a row of the composite type `new_claim`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_claim(&mut self, key: &BucketKey, claim: &Claim) -> Result<(), StoreError> {
        let (record, hold) = (claim.record(), claim.hold());
        let any = |data: &UserData| Any { type_url: data.type_url.clone(), value: data.value.clone() };
        let (status, replaced) = match &claim.state {
            ClaimState::Active(_) => (1_i16, None),
            ClaimState::Creating(..) => (2, None),
            ClaimState::Destroying(..) => (3, None),
            ClaimState::Replacing(_, both) => (4, Some(Json(stored::Record::from(&both.old)))),
        };
        self.push(&[
            (&key.bucket_type.0, Type::INT4),
            (&&*key.canonical, Type::TEXT),
            (&(record.spelling != key.canonical).then_some(&*record.spelling), Type::TEXT),
            (&record.uuid, Type::UUID),
            (&claim.owner.0, Type::INT8),
            (&record.subject.subject_type, Type::INT4),
            (&record.subject.id, Type::INT8),
            (&record.source.source_type.0, Type::INT4),
            (&record.source.id.as_bytes(), Type::BYTEA),
            (&record.user_data.as_ref().map(|data| any(data).encode_to_vec()), Type::BYTEA),
            (&status, Type::INT2),
            (&hold.map(|hold| hold.lease.0), Type::UUID),
            (&hold.map(|hold| Micros(hold.since)), Type::TIMESTAMPTZ),
            (&Micros(record.created_at), Type::TIMESTAMPTZ),
            (&Micros(record.updated_at), Type::TIMESTAMPTZ),
            (&replaced, Type::JSON),
        ])
    }

    /// Adds a row of the composite type `begun_lease`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_lease(&mut self, id: LeaseId, lease: &Lease) -> Result<(), StoreError> {
        let (types, names): (Vec<i32>, Vec<&str>) =
            lease.claims().iter().map(|key| (key.bucket_type.0, &*key.canonical)).unzip();
        self.push(&[
            (&id.0, Type::UUID),
            (&lease.cell.0, Type::INT8),
            (&Micros(lease.created_at), Type::TIMESTAMPTZ),
            (&lease.idempotency_key.as_ref().map(|key| &*key.key), Type::TEXT),
            (&types, Type::INT4_ARRAY),
            (&names, Type::TEXT_ARRAY),
            (&lease.organization.map(i64::from), Type::INT8),
        ])
    }

    /// Adds a row of the composite type `new_key`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_key(&mut self, key: &IdempotencyKey, replay: &Replay) -> Result<(), StoreError> {
        let fingerprint = postcard::to_stdvec(&stored::Fingerprint::from(&replay.fingerprint))
            .map_err(|error| StoreError::Failed(error.to_string()))?;
        self.push(&[
            (&key.cell.0, Type::INT8),
            (&&*key.key, Type::TEXT),
            (&replay.lease.0, Type::UUID),
            (&fingerprint, Type::BYTEA),
        ])
    }

    pub(super) fn push(&mut self, columns: &[(&(dyn ToSql + Sync), Type)]) -> Result<(), StoreError> {
        self.count += 1;
        let row = with_length(&mut self.encoded, |out| {
            out.put_i32(i32::try_from(columns.len())?);
            for (value, column_type) in columns {
                out.put_u32(column_type.oid());
                with_length(out, |out| value.to_sql_checked(column_type, out))?;
            }
            Ok(IsNull::No)
        });
        row.map_err(|error| StoreError::Failed(error.to_string()))
    }
}

/// Writes the length of a value in bytes, then the value that `write` writes; for NULL, the length
/// [`NULL`] alone.
fn with_length(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut) -> Encoded<IsNull>) -> Encoded {
    let at = out.len();
    out.put_i32(NULL);
    let start = out.len();
    if let IsNull::No = write(out)? {
        let length = i32::try_from(out.len() - start)?;
        // The value is not NULL, so its length overwrites the [`NULL`] written above.
        if let Some(mut place) = out.get_mut(at..start) {
            place.put_i32(length);
        }
    }
    Ok(())
}

impl ToSql for CompositeRows {
    accepts!(UNKNOWN);
    to_sql_checked!();

    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Encoded<IsNull> {
        const NO_NULLS: i32 = 0;
        const LOWER_BOUND: i32 = 1;
        out.put_i32(i32::from(!self.is_empty()));
        out.put_i32(NO_NULLS);
        out.put_u32(Type::RECORD.oid());
        if !self.is_empty() {
            out.put_i32(self.count);
            out.put_i32(LOWER_BOUND);
            out.extend_from_slice(&self.encoded);
        }
        Ok(IsNull::No)
    }
}

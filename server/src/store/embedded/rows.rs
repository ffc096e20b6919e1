//! Keyspaces and the encoding of their values. The types of the values are in [`stored`].

use std::fmt::Display;
use std::io::ErrorKind;
use std::ops::RangeBounds;

use fjall::{OwnedWriteBatch, Readable, Slice, Snapshot, UserKey, UserValue};
use leasehold_core::bucket::BucketKey;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, ClaimState, Record};
use leasehold_core::lease::{IdempotencyKey, Lease, Replay};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::Result;
use super::journal::SEQUENCE;
use super::pieces::{PIECE_SUMS, PieceSums};
use super::row_sums;
use crate::store::error::StoreError;
use crate::store::stored;

/// The initial capacity of an encoding buffer, into which most rows fit.
const ROW_BYTES: usize = 256;

impl From<fjall::Error> for StoreError {
    fn from(error: fjall::Error) -> Self {
        match error {
            // A file that was cut off is shorter than its other parts say.
            fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error))
                if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidInput) =>
            {
                Self::Damaged(error.to_string())
            }
            fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
                Self::Failed(error.to_string())
            }
            fjall::Error::Storage(inner) => Self::Damaged(inner.to_string()),
            fjall::Error::JournalRecovery(_)
            | fjall::Error::InvalidTrailer
            | fjall::Error::InvalidTag(_)
            | fjall::Error::Decompress(_)
            | fjall::Error::Unrecoverable => Self::Damaged(error.to_string()),
            fjall::Error::Poisoned => Self::Failed(
                "an earlier write failed, so no write is accepted: see the first error, then restart".into(),
            ),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl StoreError {
    /// Returns the error with `name`, a file, directory or keyspace, in front of its text if it is
    /// `Damaged` or `Failed`. Other errors are returned unchanged.
    pub(super) fn of(self, name: impl Display) -> Self {
        match self {
            Self::Damaged(error) => Self::Damaged(format!("`{name}`: {error}")),
            Self::Failed(error) => Self::Failed(format!("`{name}`: {error}")),
            other => other,
        }
    }
}

/// A batch of fjall, and the sums of its pieces.
pub(super) struct WriteBatch {
    writes: OwnedWriteBatch,
    sums: PieceSums,
}

impl WriteBatch {
    pub(super) fn new(writes: OwnedWriteBatch) -> Self {
        Self { writes, sums: PieceSums::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Adds the sums, as a row of the keyspace `meta`, and the batch's number. The rows before them
    /// are complete.
    pub(super) fn end(self, meta: &Keyspace, sequence: u64) -> OwnedWriteBatch {
        let Self { mut writes, sums } = self;
        if let Some(sums) = sums.finish() {
            writes.insert(&meta.rows, PIECE_SUMS, sums);
        }
        writes.insert(&meta.rows, SEQUENCE, sequence.to_be_bytes());
        writes
    }
}

/// A keyspace of fjall, and the name that its errors contain.
pub(super) struct Keyspace {
    pub(super) name: &'static str,
    pub(super) rows: fjall::Keyspace,
}

impl Keyspace {
    pub(super) fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.rows.get(key).map_err(|error| StoreError::from(error).of(self.name))
    }

    pub(super) fn get_in(&self, snapshot: &Snapshot, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        snapshot.get(&self.rows, key).map_err(|error| StoreError::from(error).of(self.name))
    }

    /// Returns the keys and values of a range of the snapshot, in the order of keys.
    pub(super) fn range<K: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        range: impl RangeBounds<K>,
    ) -> impl Iterator<Item = Result<(Slice, Slice)>> {
        let named = |error| StoreError::from(error).of(self.name);
        snapshot.range(&self.rows, range).map(move |item| item.into_inner().map_err(named))
    }

    /// Returns the keys and values of a range of the snapshot, from the last key to the first.
    pub(super) fn range_back<K: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        range: impl RangeBounds<K>,
    ) -> impl Iterator<Item = Result<(Slice, Slice)>> {
        let named = |error| StoreError::from(error).of(self.name);
        snapshot.range(&self.rows, range).rev().map(move |item| item.into_inner().map_err(named))
    }

    pub(super) fn insert(&self, batch: &mut WriteBatch, key: impl Into<UserKey>, value: impl Into<UserValue>) {
        let (key, value) = (key.into(), value.into());
        batch.sums.add(&key, &value);
        batch.writes.insert(&self.rows, key, value);
    }

    pub(super) fn remove(&self, batch: &mut WriteBatch, key: impl Into<UserKey>) {
        let key = key.into();
        batch.sums.add(&key, &[]);
        batch.writes.remove(&self.rows, key);
    }

    pub(super) fn decode<'a, T: Deserialize<'a>>(&self, bytes: &'a [u8]) -> Result<T> {
        postcard::from_bytes(bytes).map_err(|_| self.damaged())
    }

    /// Reads the number with this name from the keyspace `meta`; `None` if it has not been written.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>> {
        let Some(bytes) = self.get(name)? else { return Ok(None) };
        let bytes = <[u8; 8]>::try_from(&bytes[..]).map_err(|_| self.damaged().of(name))?;
        Ok(Some(u64::from_be_bytes(bytes)))
    }

    pub(super) fn damaged(&self) -> StoreError {
        StoreError::Damaged(format!("a row of `{}` can't be read", self.name))
    }
}

pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_extend(value, Vec::with_capacity(ROW_BYTES)).map_err(|error| StoreError::Failed(error.to_string()))
}

/// Returns the owner and record that the keyspace `claims` has for a claim: the current record, or
/// the old record of a replace. `None` for a create, whose claim has no row in `claims` yet.
pub(super) fn resting(claim: &Claim) -> Option<(CellId, &Record)> {
    let record = match &claim.state {
        ClaimState::Active(record) | ClaimState::Destroying(_, record) => record,
        ClaimState::Replacing(_, both) => &both.old,
        ClaimState::Creating(_, _) => return None,
    };
    Some((claim.owner, record))
}

pub(super) fn encode_resting(owner: CellId, record: &Record) -> Result<Vec<u8>> {
    encode(&stored::RestingClaim { owner: owner.0, record: record.into() })
}

pub(super) fn encode_settled(lease: &Lease) -> Result<Vec<u8>> {
    encode(&stored::Lease::from(lease))
}

/// Encodes an outstanding lease together with its claims, which must be among `claims`.
///
/// # Errors
/// A claim of the lease is missing in `claims`.
pub(super) fn encode_outstanding(lease: &Lease, claims: &FxHashMap<&BucketKey, &Claim>) -> Result<Vec<u8>> {
    let held = lease.claims().iter().map(|key| match claims.get(key) {
        Some(claim) => Ok((key.into(), (*claim).into())),
        None => Err(StoreError::Failed("a lease was written without the claims that it holds".into())),
    });
    let row = stored::OutstandingLease { lease: lease.into(), claims: held.collect::<Result<_>>()? };
    encode(&row).map(row_sums::with_sums)
}

pub(super) fn encode_replay(replay: &Replay) -> Result<Vec<u8>> {
    encode(&stored::Replay::from(replay))
}

pub(super) fn encode_idempotency_key(key: &IdempotencyKey) -> Result<Vec<u8>> {
    encode(&stored::IdempotencyKey::from(key))
}

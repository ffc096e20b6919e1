//! A lease: one update, begun and not yet settled, or remembered after it has settled.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::bucket::BucketKey;
use crate::claim::CellId;
use crate::time::Timestamp;

/// A lease's name. Hosts mint it; the engine only compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseId(pub Uuid);

impl LeaseId {
    /// The uuid of the record that the lease's create at `position` makes: the lease's own with the position mixed in,
    /// marked as version 8 (RFC 9562, section 5.8), so that a begin needs one random id and replays alike everywhere.
    pub fn record_uuid(self, position: u32) -> Uuid {
        let mixed = self.0.as_u128() ^ u128::from(position.wrapping_add(1));
        uuid::Builder::from_u128(mixed).with_version(uuid::Version::Custom).into_uuid()
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number that grows with every lease and never falls (B13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl Fence {
    /// The fence after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A caller's name for one begin, so that a retry is known as such (B09). Scoped by its cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdempotencyKey {
    /// The cell that uses the key.
    pub cell: CellId,
    /// The key as given.
    pub key: Arc<str>,
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.cell, self.key.escape_debug())
    }
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// Its update took effect (B20).
    Committed,
    /// Its update left nothing behind (B21).
    RolledBack,
}

/// Where a lease stands. Absent is the lack of a lease: never known, or forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseState {
    /// Holds exactly these claims.
    Outstanding(Vec<BucketKey>),
    /// Holds nothing; remembered so that a repeated or late settle gets the true answer (B22, B23).
    Settled(Outcome),
}

/// One update's lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// The cell that began it.
    pub cell: CellId,
    /// Its fence.
    pub fence: Fence,
    /// When it was begun.
    pub created_at: Timestamp,
    /// When it was begun or settled, whichever came last.
    pub updated_at: Timestamp,
    /// The idempotency key it was begun with; forgotten with the lease.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Where it stands.
    pub state: LeaseState,
}

impl Lease {
    /// The keys of the claims that it holds, none once settled.
    pub fn claims(&self) -> &[BucketKey] {
        match &self.state {
            LeaseState::Outstanding(claims) => claims,
            LeaseState::Settled(_) => &[],
        }
    }

    /// How it was settled, if it was.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.state {
            LeaseState::Outstanding(_) => None,
            LeaseState::Settled(outcome) => Some(outcome),
        }
    }
}

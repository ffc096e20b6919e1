//! A lease: one update from begin to settle, remembered for a while after it has settled.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::bucket::BucketKey;
use crate::cell::CellId;
use crate::fingerprint::Fingerprint;
use crate::time::Timestamp;

/// A lease's id. Hosts mint ids; the engine only compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseId(pub Uuid);

impl LeaseId {
    /// The uuid of the record that the lease's create at `position` makes.
    ///
    /// It is the lease's uuid mixed with the position, as version 8 (RFC 9562, section 5.8). So a
    /// begin needs one random id, and a begin that is run again makes the same records on every
    /// store.
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
        // Saturates in theory only: an import refuses fences near the end
        // (`invariant::FenceCheck`).
        Self(self.0.saturating_add(1))
    }
}

/// A caller's name for one begin: a second begin with the same key is a retry (B09). Each cell has
/// its own keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdempotencyKey {
    /// The cell that uses the key.
    pub cell: CellId,
    /// The key as the caller gave it.
    pub key: Arc<str>,
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.cell, self.key.escape_debug())
    }
}

/// The answer to a begin with an idempotency key, kept as long as its lease so that a retry gets it
/// again (B09).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The lease that the first begin got.
    pub lease: LeaseId,
    /// The lease's fence.
    pub fence: Fence,
    /// The update that was begun: a retry must have the same.
    pub fingerprint: Fingerprint,
}

/// The way in which a lease was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// The update took effect (B20).
    Committed,
    /// The update left nothing behind (B21).
    RolledBack,
}

/// A lease's state. A lease that was never known, or is forgotten, has no row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseState {
    /// The lease holds exactly these claims, so settling it reads these rows and searches for none.
    Outstanding(Vec<BucketKey>),
    /// The lease holds no claim. The row stays so that a repeated or late settle gets the true
    /// answer (B22, B23).
    Settled(Outcome),
}

/// The lease of an update: its cell, fence, times, idempotency key and state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// The cell that began the lease.
    pub cell: CellId,
    /// The lease's fence.
    pub fence: Fence,
    /// The time of the begin.
    pub created_at: Timestamp,
    /// The time of the settle, or of the begin while the lease is outstanding.
    pub updated_at: Timestamp,
    /// The idempotency key of the begin, forgotten together with the lease.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The lease's state.
    pub state: LeaseState,
}

impl Lease {
    /// The keys of the claims that the lease holds: none once it is settled.
    pub fn claims(&self) -> &[BucketKey] {
        match &self.state {
            LeaseState::Outstanding(claims) => claims,
            LeaseState::Settled(_) => &[],
        }
    }

    /// The way in which the lease was settled, `None` while it is outstanding.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.state {
            LeaseState::Outstanding(_) => None,
            LeaseState::Settled(outcome) => Some(outcome),
        }
    }
}

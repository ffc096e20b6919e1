//! A lease: the row of one update from begin to settle, kept for a while after the settle.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::bucket::BucketKey;
use crate::cell::CellId;
use crate::fingerprint::Fingerprint;
use crate::organization::OrganizationId;
use crate::time::Timestamp;

/// The id of a lease. Hosts generate the ids; the engine only compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseId(pub Uuid);

impl LeaseId {
    /// Returns the uuid of the record that the create at `position` of this lease's update makes.
    ///
    /// The uuid is the lease's uuid mixed with the position, as version 8 (RFC 9562, section 5.8).
    /// So a begin needs one random id, and a begin that is run again makes the same records on
    /// every store.
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

/// The number of a lease, or of a grant of a lock. It is larger than every fence that was given out
/// before (B13, K05).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl Fence {
    /// The fence before the first placeholder. A shared store assigns fences itself while it saves a
    /// group, so its workspace begins with this value and the engine gives out placeholders. No
    /// stored fence is as large, since PostgreSQL's `bigint` is not.
    pub const PLACEHOLDER: Self = Self(1 << 63);

    /// Returns the fence that comes after this one.
    pub fn next(self) -> Self {
        // The sum never saturates in practice: an import refuses fences near the end of the range
        // (`invariant::FenceCheck`).
        Self(self.0.saturating_add(1))
    }
}

/// The fences that a shared store has assigned while it saved a group of commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fences {
    /// The fences of new leases, by lease.
    pub leases: FxHashMap<LeaseId, Fence>,
    /// The fences of new grants of locks, by the placeholder that the engine gave out: see
    /// [`Fence::PLACEHOLDER`].
    pub grants: FxHashMap<Fence, Fence>,
}

impl Fences {
    /// Returns the fence that the store has assigned in the place of `fence`, or `fence` itself if
    /// it is no placeholder.
    pub fn of_grant(&self, fence: Fence) -> Fence {
        self.grants.get(&fence).copied().unwrap_or(fence)
    }
}

/// A key that a caller gives to one begin: a second begin with the same key is a retry (B09). Each
/// cell has its own keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdempotencyKey {
    /// The cell whose begin has the idempotency key.
    pub cell: CellId,
    /// The idempotency key as the caller gave it.
    pub key: Arc<str>,
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.cell, self.key.escape_debug())
    }
}

/// The stored answer to a begin with an idempotency key. The row is kept as long as its lease, so
/// that a retry of the begin gets the same answer (B09).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The lease of the first begin with the key.
    pub lease: LeaseId,
    /// The fence of the first begin's lease.
    pub fence: Fence,
    /// The fingerprint of the update of the first begin. A retry must have the same fingerprint.
    pub fingerprint: Fingerprint,
}

/// The way in which a lease was settled: committed or rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// The lease was committed: its update took effect (B20).
    Committed,
    /// The lease was rolled back: its update left nothing behind (B21).
    RolledBack,
}

/// The state of a lease. An unknown or forgotten lease has no row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseState {
    /// The lease is not settled and holds exactly the claims with these keys. A settle reads the
    /// claims by these keys, without a search.
    Outstanding(Vec<BucketKey>),
    /// The lease is settled and holds no claim. Its row is kept so that a repeated or late settle
    /// gets the true answer (B22, B23).
    Settled(Outcome),
}

/// The row of a lease: its cell, fence, times, idempotency key, organization and state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// The cell that began the lease.
    pub cell: CellId,
    /// The lease's fence (B13).
    pub fence: Fence,
    /// The time at which the lease was begun.
    pub created_at: Timestamp,
    /// The time at which the lease was settled. While the lease is outstanding, the time of its
    /// begin.
    pub updated_at: Timestamp,
    /// The idempotency key of the begin, forgotten together with the lease. `None` if the begin had
    /// no key.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The organization that the begin named, `None` if it named none.
    pub organization: Option<OrganizationId>,
    /// The lease's state: outstanding or settled.
    pub state: LeaseState,
}

impl Lease {
    /// Returns the keys of the claims that the lease holds, an empty slice once it is settled.
    pub fn claims(&self) -> &[BucketKey] {
        match &self.state {
            LeaseState::Outstanding(claims) => claims,
            LeaseState::Settled(_) => &[],
        }
    }

    /// Returns the way in which the lease was settled, `None` while it is outstanding.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.state {
            LeaseState::Outstanding(_) => None,
            LeaseState::Settled(outcome) => Some(outcome),
        }
    }
}

//! The invariants of a state, each with a name. Tests and the simulation check them after every
//! step, an import checks them row by row.
//!
//! ```
//! use leasehold_core::invariant::{self, Violation};
//! use leasehold_core::memory::MemoryStore;
//! use leasehold_core::store::Store;
//!
//! let mut state = MemoryStore::default().state().unwrap();
//! assert_eq!(invariant::check(&state), Ok(()));
//! state.fence.0 = u64::MAX;
//! assert_eq!(invariant::check(&state), Err(Violation::FenceOutOfRange(u64::MAX)));
//! ```

mod locks;
mod queues;

use rustc_hash::FxHashSet;

use crate::bucket::BucketKey;
use crate::claim::Claim;
use crate::lease::{Fence, IdempotencyKey, Lease, LeaseId, LeaseState, Replay};
use crate::rows::State;
use crate::time::Timestamp;

pub use locks::{LockRows, LockViolation};
pub use queues::{QueueRows, QueueViolation, check_bodies};

/// The latest time that a row may have: the last microsecond of the year 9999. RFC 3339 has four
/// digits for the year, so a later time could not be shown.
const LATEST: Timestamp = Timestamp::from_micros(253_402_300_799_999_999);
/// The limit that every fence must stay below, so that a next fence exists. It is the largest value
/// of PostgreSQL's `bigint`.
const FENCE_LIMIT: u64 = i64::MAX as u64;

/// The first broken invariant that a check found. No variant stands for two claims of one bucket:
/// [`State`] maps each bucket to at most one claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A claim names a lease that holds it, but this lease is not outstanding, belongs to another
    /// cell, or does not list the claim.
    #[error("claim `{0}` is held by lease {1}, which does not hold it")]
    HeldClaimWithoutItsLease(BucketKey, LeaseId),
    /// An outstanding lease lists a claim that is absent, or that this lease does not hold.
    #[error("lease {1} lists claim `{0}`, which it does not hold")]
    LeaseListsForeignClaim(BucketKey, LeaseId),
    /// An outstanding lease lists no claim, or lists one claim twice.
    #[error("lease {0} lists no claim, or one twice")]
    LeaseListsBadly(LeaseId),
    /// Two leases have the same fence, or a lease's fence is above the newest fence given out.
    #[error("the fence of lease {0} is doubled or above the newest")]
    FenceOutOfOrder(LeaseId),
    /// A lease's fence is 0, or the newest fence is so large that no fence can follow.
    #[error("fence {0} is out of range: fences begin at 1 and end below 9223372036854775807")]
    FenceOutOfRange(u64),
    /// The uuid of a claim's record is nil.
    #[error("the record of claim `{0}` has no uuid")]
    RecordWithoutUuid(BucketKey),
    /// A time in a row is after the year 9999.
    #[error("the time {0}, in microseconds since 1970, is beyond the year 9999")]
    TimeOutOfRange(u64),
    /// A replay's lease is unknown, or was begun by another cell, with another idempotency key or
    /// with another fence.
    #[error("the idempotency key `{0}` names a lease that was not begun with it")]
    ReplayWithoutItsLease(IdempotencyKey),
    /// A row of sessions and locks breaks an invariant.
    #[error(transparent)]
    Lock(#[from] LockViolation),
    /// A row of queues breaks an invariant.
    #[error(transparent)]
    Queue(#[from] QueueViolation),
}

/// Checks every invariant of a whole state.
///
/// # Errors
/// The first violation found.
pub fn check(state: &State) -> Result<(), Violation> {
    let lease_of = |claim: &Claim| claim.hold().and_then(|hold| state.leases.get(&hold.lease));
    for (key, claim) in &state.claims {
        check_claim(key, claim)?;
        check_hold(key, claim, lease_of(claim))?;
    }
    for (id, lease) in &state.leases {
        check_lease(lease)?;
        check_listed_claims(*id, lease, |key| state.claims.get(key))?;
    }
    let mut fences = FenceCheck::default();
    state.leases.iter().try_for_each(|(id, lease)| fences.add(*id, lease.fence))?;
    fences.finish(state.fence)?;
    state.replays.iter().try_for_each(|(key, replay)| check_replay(key, replay, state.leases.get(&replay.lease)))?;
    let seen: FxHashSet<_> = state.leases.values().map(|lease| lease.fence).collect();
    locks::check(&LockRows::from(state), seen.clone())?;
    queues::check(&QueueRows::from(state), seen)?;
    let digests = state.bodies.iter().map(|(id, body)| (*id, body.digest())).collect();
    Ok(check_bodies(&state.requests, &digests)?)
}

/// Checks sessions, locks, asks and turns, and their times. `leases` has the fences of
/// all leases, which may be missing in the state.
///
/// # Errors
/// The first violation found.
pub fn check_locks(rows: &LockRows<'_>, leases: &FenceCheck) -> Result<(), Violation> {
    locks::check(rows, FxHashSet::default())?;
    check_times(locks::times(rows))?;
    match locks::fences(rows).find(|fence| leases.seen.contains(fence)) {
        Some(fence) => Err(LockViolation::FenceOutOfOrder(fence).into()),
        None => Ok(()),
    }
}

/// Checks queues, lanes and requests, and their times. [`check_bodies`] checks bodies.
/// `leases` has the fences of all leases, which may be missing in the rows.
///
/// # Errors
/// The first violation found.
pub fn check_queues(rows: &QueueRows<'_>, leases: &FenceCheck) -> Result<(), Violation> {
    queues::check(rows, FxHashSet::default())?;
    check_times(queues::times(rows))?;
    match queues::fences(rows).find(|fence| leases.seen.contains(fence)) {
        Some(fence) => Err(QueueViolation::FenceOutOfOrder(fence).into()),
        None => Ok(()),
    }
}

/// Checks a claim without other rows.
///
/// # Errors
/// A record of the claim has no uuid, or a time is out of range.
pub fn check_claim(key: &BucketKey, claim: &Claim) -> Result<(), Violation> {
    if claim.records().any(|record| record.uuid.is_nil()) {
        return Err(Violation::RecordWithoutUuid(key.clone()));
    }
    let times = claim.records().flat_map(|record| [record.created_at, record.updated_at]);
    check_times(times.chain(claim.hold().map(|hold| hold.since)))
}

/// Checks a lease without other rows.
///
/// # Errors
/// The lease's fence is 0, or a time is out of range.
pub fn check_lease(lease: &Lease) -> Result<(), Violation> {
    if lease.fence.0 == 0 {
        return Err(Violation::FenceOutOfRange(0));
    }
    check_times([lease.created_at, lease.updated_at])
}

fn check_times(times: impl IntoIterator<Item = Timestamp>) -> Result<(), Violation> {
    let late = times.into_iter().find(|time| *time > LATEST);
    late.map_or(Ok(()), |time| Err(Violation::TimeOutOfRange(time.as_micros())))
}

/// Checks that the lease that holds a claim lists the claim. `lease` is this lease, `None` if it is
/// unknown. A claim at rest passes.
///
/// # Errors
/// The lease is unknown, belongs to another cell, or does not list the claim.
pub fn check_hold(key: &BucketKey, claim: &Claim, lease: Option<&Lease>) -> Result<(), Violation> {
    let Some(hold) = claim.hold() else { return Ok(()) };
    let holds = lease.is_some_and(|lease| lease.cell == claim.owner && lease.claims().contains(key));
    if holds { Ok(()) } else { Err(Violation::HeldClaimWithoutItsLease(key.clone(), hold.lease)) }
}

/// Checks that an outstanding lease holds every claim that it lists. A settled lease passes.
/// `claim` returns the claim of a key.
///
/// # Errors
/// The lease lists no claim, lists a claim twice, or lists a claim that is absent or not held by
/// the lease.
pub fn check_listed_claims<'a>(
    id: LeaseId,
    lease: &Lease,
    claim: impl Fn(&BucketKey) -> Option<&'a Claim>,
) -> Result<(), Violation> {
    let LeaseState::Outstanding(keys) = &lease.state else { return Ok(()) };
    if keys.is_empty() || keys.iter().collect::<FxHashSet<_>>().len() != keys.len() {
        return Err(Violation::LeaseListsBadly(id));
    }
    let is_held = |claim: &Claim| claim.owner == lease.cell && claim.hold().is_some_and(|hold| hold.lease == id);
    match keys.iter().find(|key| !claim(key).is_some_and(is_held)) {
        Some(key) => Err(Violation::LeaseListsForeignClaim(key.clone(), id)),
        None => Ok(()),
    }
}

/// A check of the fences of all leases. The leases are added one by one.
#[derive(Clone, Debug, Default)]
pub struct FenceCheck {
    seen: FxHashSet<Fence>,
    highest: Option<(Fence, LeaseId)>,
}

impl FenceCheck {
    /// Adds the fence of one lease to the check.
    ///
    /// # Errors
    /// An earlier lease has the same fence.
    pub fn add(&mut self, id: LeaseId, fence: Fence) -> Result<(), Violation> {
        if !self.seen.insert(fence) {
            return Err(Violation::FenceOutOfOrder(id));
        }
        self.highest = self.highest.max(Some((fence, id)));
        Ok(())
    }

    /// Checks that no lease's fence is above the newest fence given out, and that another fence can
    /// follow.
    ///
    /// # Errors
    /// A lease's fence is above the newest fence, or no fence can follow the newest.
    pub fn finish(&self, newest: Fence) -> Result<(), Violation> {
        if newest.0 >= FENCE_LIMIT {
            return Err(Violation::FenceOutOfRange(newest.0));
        }
        let above = self.highest.filter(|(fence, _)| *fence > newest);
        above.map_or(Ok(()), |(_, id)| Err(Violation::FenceOutOfOrder(id)))
    }
}

/// Checks that a replay names the lease that was begun with the replay's key. `lease` is this
/// lease, `None` if it is unknown.
///
/// # Errors
/// The lease is unknown, or was begun by another cell, with another key or under another fence.
pub fn check_replay(key: &IdempotencyKey, replay: &Replay, lease: Option<&Lease>) -> Result<(), Violation> {
    let begun_with = |lease: &Lease| {
        lease.cell == key.cell && lease.idempotency_key.as_ref() == Some(key) && lease.fence == replay.fence
    };
    if lease.is_some_and(begun_with) { Ok(()) } else { Err(Violation::ReplayWithoutItsLease(key.clone())) }
}

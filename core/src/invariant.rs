//! What must hold of any state, each by name. Checked after every step in tests, and by `leasehold` on request.

use std::collections::{BTreeMap, BTreeSet};

use crate::bucket::BucketKey;
use crate::claim::Claim;
use crate::lease::{Fence, IdempotencyKey, Lease, LeaseId, LeaseState};
use crate::transaction::Replay;

/// A whole state. That a bucket has at most one claim is its shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Every claim.
    pub claims: BTreeMap<BucketKey, Claim>,
    /// Every lease that is known.
    pub leases: BTreeMap<LeaseId, Lease>,
    /// Every idempotency key that is known.
    pub replays: BTreeMap<IdempotencyKey, Replay>,
    /// The newest fence given out.
    pub fence: Fence,
}

/// What does not hold, by name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A held claim's lease is not outstanding, is of another cell, or does not list it.
    #[error("claim {0:?} is held by lease {1}, which does not hold it")]
    HeldClaimWithoutItsLease(BucketKey, LeaseId),
    /// An outstanding lease lists a claim that it does not hold.
    #[error("lease {1} lists claim {0:?}, which it does not hold")]
    LeaseListsForeignClaim(BucketKey, LeaseId),
    /// An outstanding lease lists a claim twice, or none.
    #[error("lease {0} lists no claim, or one twice")]
    LeaseListsBadly(LeaseId),
    /// Two leases have one fence, or one is above the newest.
    #[error("the fence of lease {0} is doubled or above the newest")]
    FenceOutOfOrder(LeaseId),
    /// A replay names an unknown lease, or one of another cell or key.
    #[error("the idempotency key {0:?} names a lease that was not begun with it")]
    ReplayWithoutItsLease(IdempotencyKey),
}

/// Checks every invariant.
///
/// # Errors
/// The first violation found.
pub fn check(state: &State) -> Result<(), Violation> {
    state.claims.iter().try_for_each(|(key, claim)| held_claim_has_its_lease(state, key, claim))?;
    state.leases.iter().try_for_each(|(id, lease)| lease_holds_what_it_lists(state, *id, lease))?;
    fences_are_distinct(state)?;
    state.replays.iter().try_for_each(|(key, replay)| replay_has_its_lease(state, key, replay))
}

fn held_claim_has_its_lease(state: &State, key: &BucketKey, claim: &Claim) -> Result<(), Violation> {
    let Some(hold) = claim.hold() else { return Ok(()) };
    let lease = state.leases.get(&hold.lease);
    let holds = lease.is_some_and(|lease| lease.cell == claim.owner && lease.claims().contains(key));
    if holds { Ok(()) } else { Err(Violation::HeldClaimWithoutItsLease(key.clone(), hold.lease)) }
}

fn lease_holds_what_it_lists(state: &State, id: LeaseId, lease: &Lease) -> Result<(), Violation> {
    let LeaseState::Outstanding(keys) = &lease.state else { return Ok(()) };
    if keys.is_empty() || keys.iter().collect::<BTreeSet<_>>().len() != keys.len() {
        return Err(Violation::LeaseListsBadly(id));
    }
    let held = |key: &BucketKey| state.claims.get(key).and_then(Claim::hold).is_some_and(|hold| hold.lease == id);
    match keys.iter().find(|key| !held(key)) {
        Some(key) => Err(Violation::LeaseListsForeignClaim(key.clone(), id)),
        None => Ok(()),
    }
}

fn fences_are_distinct(state: &State) -> Result<(), Violation> {
    let mut seen = BTreeSet::new();
    let bad = state.leases.iter().find(|(_, lease)| lease.fence > state.fence || !seen.insert(lease.fence));
    bad.map_or(Ok(()), |(id, _)| Err(Violation::FenceOutOfOrder(*id)))
}

fn replay_has_its_lease(state: &State, key: &IdempotencyKey, replay: &Replay) -> Result<(), Violation> {
    let lease = state.leases.get(&replay.lease);
    let named = lease.is_some_and(|lease| lease.idempotency_key.as_ref() == Some(key) && lease.fence == replay.fence);
    if named { Ok(()) } else { Err(Violation::ReplayWithoutItsLease(key.clone())) }
}

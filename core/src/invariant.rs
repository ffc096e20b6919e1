//! What must hold of any state, each by name. Checked after every step in tests, and row by row by an import.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use crate::bucket::BucketKey;
use crate::claim::Claim;
use crate::lease::{Fence, IdempotencyKey, Lease, LeaseId, LeaseState};
use crate::time::Timestamp;
use crate::transaction::Replay;

/// The last moment of the year 9999: readers have no way to write a later time.
const LATEST: Timestamp = Timestamp::from_micros(253_402_300_799_999_999);
/// No fence is this high: there is always one to give out after it, in databases that count to here, too.
const FENCES: u64 = i64::MAX as u64;

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
    #[error("claim `{0}` is held by lease {1}, which does not hold it")]
    HeldClaimWithoutItsLease(BucketKey, LeaseId),
    /// An outstanding lease lists a claim that it does not hold.
    #[error("lease {1} lists claim `{0}`, which it does not hold")]
    LeaseListsForeignClaim(BucketKey, LeaseId),
    /// An outstanding lease lists a claim twice, or none.
    #[error("lease {0} lists no claim, or one twice")]
    LeaseListsBadly(LeaseId),
    /// Two leases have one fence, or one is above the newest.
    #[error("the fence of lease {0} is doubled or above the newest")]
    FenceOutOfOrder(LeaseId),
    /// A fence is 0 or leaves none to be given out after it.
    #[error("fence {0} can't be: fences begin at 1, and there must be one to follow")]
    FenceOutOfRange(u64),
    /// A record has no name.
    #[error("the record of claim `{0}` has no uuid")]
    RecordWithoutUuid(BucketKey),
    /// A time that can't be said.
    #[error("the time {0}, in microseconds since 1970, is beyond the year 9999")]
    TimeOutOfRange(u64),
    /// A replay names an unknown lease, or one of another cell or key.
    #[error("the idempotency key `{0}` names a lease that was not begun with it")]
    ReplayWithoutItsLease(IdempotencyKey),
}

/// Checks every invariant.
///
/// # Errors
/// The first violation found.
pub fn check(state: &State) -> Result<(), Violation> {
    let lease_of = |claim: &Claim| claim.hold().and_then(|hold| state.leases.get(&hold.lease));
    for (key, claim) in &state.claims {
        lone_claim(key, claim)?;
        held_claim(key, claim, lease_of(claim))?;
    }
    for (id, lease) in &state.leases {
        lone_lease(lease)?;
        lease_holds(*id, lease, |key| state.claims.get(key))?;
    }
    let mut fences = Fences::default();
    state.leases.iter().try_for_each(|(id, lease)| fences.take(*id, lease.fence))?;
    fences.check_newest(state.fence)?;
    state.replays.iter().try_for_each(|(key, used)| replay(key, used, state.leases.get(&used.lease)))
}

/// Checks what a claim says by itself.
///
/// # Errors
/// A record without a uuid, or a time that can't be said.
pub fn lone_claim(key: &BucketKey, claim: &Claim) -> Result<(), Violation> {
    if claim.records().any(|record| record.uuid.is_nil()) {
        return Err(Violation::RecordWithoutUuid(key.clone()));
    }
    let told = claim.records().flat_map(|record| [record.created_at, record.updated_at]);
    times(told.chain(claim.hold().map(|hold| hold.since)))
}

/// Checks what a lease says by itself.
///
/// # Errors
/// A fence that can't be, or a time that can't be said.
pub fn lone_lease(lease: &Lease) -> Result<(), Violation> {
    if lease.fence.0 == 0 {
        return Err(Violation::FenceOutOfRange(0));
    }
    times([lease.created_at, lease.updated_at])
}

fn times(told: impl IntoIterator<Item = Timestamp>) -> Result<(), Violation> {
    let late = told.into_iter().find(|time| *time > LATEST);
    late.map_or(Ok(()), |time| Err(Violation::TimeOutOfRange(time.as_micros())))
}

/// Checks that a held claim is on the list of its lease, given as far as it is known.
///
/// # Errors
/// It is not.
pub fn held_claim(key: &BucketKey, claim: &Claim, lease: Option<&Lease>) -> Result<(), Violation> {
    let Some(hold) = claim.hold() else { return Ok(()) };
    let holds = lease.is_some_and(|lease| lease.cell == claim.owner && lease.claims().contains(key));
    if holds { Ok(()) } else { Err(Violation::HeldClaimWithoutItsLease(key.clone(), hold.lease)) }
}

/// Checks that an outstanding lease holds exactly what it lists, given what is claimed.
///
/// # Errors
/// It does not.
pub fn lease_holds<'a>(
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

/// The fences of leases, seen one after the other.
#[derive(Clone, Debug, Default)]
pub struct Fences {
    seen: FxHashSet<Fence>,
    highest: Option<(Fence, LeaseId)>,
}

impl Fences {
    /// Takes in a lease's fence.
    ///
    /// # Errors
    /// Another lease has it.
    pub fn take(&mut self, id: LeaseId, fence: Fence) -> Result<(), Violation> {
        if !self.seen.insert(fence) {
            return Err(Violation::FenceOutOfOrder(id));
        }
        self.highest = self.highest.max(Some((fence, id)));
        Ok(())
    }

    /// Checks that no lease's fence is above the newest, and that others can follow it.
    ///
    /// # Errors
    /// One is, or none can.
    pub fn check_newest(&self, newest: Fence) -> Result<(), Violation> {
        if newest.0 >= FENCES {
            return Err(Violation::FenceOutOfRange(newest.0));
        }
        let above = self.highest.filter(|(fence, _)| *fence > newest);
        above.map_or(Ok(()), |(_, id)| Err(Violation::FenceOutOfOrder(id)))
    }
}

/// Checks that an idempotency key names the lease that was begun with it, given as far as it is known.
///
/// # Errors
/// It does not.
pub fn replay(key: &IdempotencyKey, replay: &Replay, lease: Option<&Lease>) -> Result<(), Violation> {
    let begun_with = |lease: &Lease| {
        lease.cell == key.cell && lease.idempotency_key.as_ref() == Some(key) && lease.fence == replay.fence
    };
    if lease.is_some_and(begun_with) { Ok(()) } else { Err(Violation::ReplayWithoutItsLease(key.clone())) }
}

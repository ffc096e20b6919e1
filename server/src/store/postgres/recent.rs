//! The leases that this server has begun, with their claims, so that settling one need not read them again: a claim under a
//! lease is changed by nothing but its lease's settling, and that locks the lease's row first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::bucket::BucketKey;
use leasehold_core::claim::Claim;
use leasehold_core::lease::{Lease, LeaseId};
use leasehold_core::store::Fences;
use leasehold_core::transaction::NetChanges;
use rustc_hash::FxHashMap;

/// Claims that are kept at the most; those of the oldest leases go first.
const MAX_CLAIMS: usize = 100_000;

/// An outstanding lease and the claims that it holds.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) lease: Lease,
    pub(super) claims: Vec<(BucketKey, Claim)>,
}

/// What the writers of one server know of its outstanding leases.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent(Arc<Mutex<Leases>>);

#[derive(Debug, Default)]
struct Leases {
    known: FxHashMap<LeaseId, Known>,
    // Oldest first; some are gone by now.
    order: VecDeque<LeaseId>,
    claims: usize,
}

impl Recent {
    fn lock(&self) -> MutexGuard<'_, Leases> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease, where it is known.
    pub(super) fn lease(&self, id: LeaseId) -> Option<Known> {
        self.lock().known.get(&id).cloned()
    }

    /// Takes up what a group has changed where that is kept, with the fences that its leases got; else the group's leases are
    /// read again.
    pub(super) fn keep(&self, changes: &NetChanges, fences: Option<&Fences>) {
        let mut leases = self.lock();
        for change in &changes.leases {
            leases.remove(change.key);
        }
        let Some(fences) = fences else { return };
        let mut held: FxHashMap<LeaseId, Vec<(BucketKey, Claim)>> = FxHashMap::default();
        for change in &changes.claims {
            if let Some(claim) = &change.after
                && let Some(hold) = claim.hold()
            {
                held.entry(hold.lease).or_default().push((change.key.clone(), claim.clone()));
            }
        }
        for change in &changes.leases {
            if let Some(lease) = change.after.as_ref().filter(|lease| lease.outcome().is_none())
                && let Some(fence) = fences.get(&change.key)
            {
                let lease = Lease { fence: *fence, ..lease.clone() };
                leases.insert(change.key, Known { lease, claims: held.remove(&change.key).unwrap_or_default() });
            }
        }
    }
}

impl Leases {
    fn insert(&mut self, id: LeaseId, known: Known) {
        self.claims += known.claims.len();
        self.known.insert(id, known);
        self.order.push_back(id);
        while self.claims > MAX_CLAIMS || self.order.len() > MAX_CLAIMS {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, id: LeaseId) {
        self.claims -= self.known.remove(&id).map_or(0, |known| known.claims.len());
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::claim::CellId;
    use leasehold_core::lease::{Fence, LeaseState};
    use leasehold_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_oldest_leases_go_first() {
        let mut leases = Leases::default();
        let lease = |n: usize| LeaseId(Uuid::from_u128(n as u128));
        let known = |n: usize| Known {
            lease: Lease {
                cell: CellId(1),
                fence: Fence(n as u64),
                created_at: Timestamp::default(),
                updated_at: Timestamp::default(),
                idempotency_key: None,
                state: LeaseState::Outstanding(Vec::new()),
            },
            claims: Vec::new(),
        };
        for n in 0..=MAX_CLAIMS {
            leases.insert(lease(n), known(n));
        }
        assert!(leases.order.len() <= MAX_CLAIMS);
        assert!(!leases.known.contains_key(&lease(0)) && leases.known.contains_key(&lease(MAX_CLAIMS)));
    }
}

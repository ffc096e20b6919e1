//! The claims of leases that this server has begun, so that settling one need not read them again: a claim under a lease
//! is changed by nothing but its lease's settling, and that locks the lease's row first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::bucket::BucketKey;
use leasehold_core::claim::Claim;
use leasehold_core::lease::LeaseId;
use leasehold_core::transaction::NetChanges;
use rustc_hash::FxHashMap;

/// Claims that are kept at the most; those of the oldest leases go first.
const MAX_CLAIMS: usize = 100_000;

pub(super) type Claims = Vec<(BucketKey, Claim)>;

/// What the writers of one server know of its outstanding leases.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent(Arc<Mutex<Leases>>);

#[derive(Debug, Default)]
struct Leases {
    claims: FxHashMap<LeaseId, Claims>,
    // Oldest first; some are gone by now.
    order: VecDeque<LeaseId>,
    count: usize,
}

impl Recent {
    fn lock(&self) -> MutexGuard<'_, Leases> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The claims of a lease, where they are known.
    pub(super) fn claims(&self, lease: LeaseId) -> Option<Claims> {
        self.lock().claims.get(&lease).cloned()
    }

    /// Takes up what a group has changed where that is kept; else the group's leases are read again.
    pub(super) fn keep(&self, changes: &NetChanges, is_kept: bool) {
        let mut leases = self.lock();
        for change in &changes.leases {
            leases.remove(change.key);
        }
        if !is_kept {
            return;
        }
        let mut begun: FxHashMap<LeaseId, Claims> = FxHashMap::default();
        for change in &changes.claims {
            if let Some(claim) = &change.after
                && let Some(hold) = claim.hold()
            {
                begun.entry(hold.lease).or_default().push((change.key.clone(), claim.clone()));
            }
        }
        begun.into_iter().for_each(|(lease, claims)| leases.insert(lease, claims));
    }
}

impl Leases {
    fn insert(&mut self, lease: LeaseId, claims: Claims) {
        self.count += claims.len();
        self.claims.insert(lease, claims);
        self.order.push_back(lease);
        while self.count > MAX_CLAIMS || self.order.len() > MAX_CLAIMS {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, lease: LeaseId) {
        self.count -= self.claims.remove(&lease).map_or(0, |claims| claims.len());
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_oldest_leases_go_first() {
        let mut leases = Leases::default();
        let lease = |n: usize| LeaseId(Uuid::from_u128(n as u128));
        for n in 0..=MAX_CLAIMS {
            leases.insert(lease(n), Vec::new());
        }
        assert!(leases.order.len() <= MAX_CLAIMS);
        assert!(!leases.claims.contains_key(&lease(0)) && leases.claims.contains_key(&lease(MAX_CLAIMS)));
    }
}

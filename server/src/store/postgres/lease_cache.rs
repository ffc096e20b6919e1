//! A cache of the outstanding leases that this server has begun, with their claims, so that a
//! settle need not read the claims again. The cache stays correct: only the settle of a lease
//! changes a claim under that lease, and it locks the row of the lease first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::bucket::BucketKey;
use leasehold_core::claim::Claim;
use leasehold_core::command::Fences;
use leasehold_core::lease::{Lease, LeaseId};
use leasehold_core::rows::NetChanges;
use rustc_hash::FxHashMap;

/// The most claims in the cache. If there are more, the oldest leases are dropped.
const MAX_CLAIMS: usize = 100_000;

/// An outstanding lease and its claims.
#[derive(Clone, Debug)]
pub(super) struct CachedLease {
    pub(super) lease: Lease,
    pub(super) claims: Vec<(BucketKey, Claim)>,
}

/// The cache of outstanding leases that this server has begun. All writers of the server share it.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaseCache(Arc<Mutex<Leases>>);

#[derive(Debug, Default)]
struct Leases {
    cached: FxHashMap<LeaseId, CachedLease>,
    // The ids of cached leases, the oldest first. Some of them are no longer in `cached`.
    order: VecDeque<LeaseId>,
    claims: usize,
}

impl LeaseCache {
    /// Forgets all rows.
    pub(super) fn clear(&self) {
        *self.lock() = Default::default();
    }

    fn lock(&self) -> MutexGuard<'_, Leases> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a lease and its claims; `None` if the lease is not in the cache.
    pub(super) fn lease(&self, id: LeaseId) -> Option<CachedLease> {
        self.lock().cached.get(&id).cloned()
    }

    /// Updates the cache with the changes of a group and the fences of its new leases. `fences` is
    /// `None` if the group was not committed: then its leases are removed from the cache.
    pub(super) fn update(&self, changes: &NetChanges, fences: Option<&Fences>) {
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
                && let Some(fence) = fences.leases.get(&change.key)
            {
                let lease = Lease { fence: *fence, ..lease.clone() };
                leases.insert(change.key, CachedLease { lease, claims: held.remove(&change.key).unwrap_or_default() });
            }
        }
    }
}

impl Leases {
    fn insert(&mut self, id: LeaseId, cached: CachedLease) {
        self.claims += cached.claims.len();
        self.cached.insert(id, cached);
        self.order.push_back(id);
        while self.claims > MAX_CLAIMS || self.order.len() > MAX_CLAIMS {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, id: LeaseId) {
        self.claims -= self.cached.remove(&id).map_or(0, |cached| cached.claims.len());
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::cell::CellId;
    use leasehold_core::lease::{Fence, LeaseState};
    use leasehold_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_oldest_leases_are_dropped_first() {
        let mut leases = Leases::default();
        let lease = |n: usize| LeaseId(Uuid::from_u128(n as u128));
        let cached = |n: usize| CachedLease {
            lease: Lease {
                cell: CellId(1),
                fence: Fence(n as u64),
                created_at: Timestamp::default(),
                updated_at: Timestamp::default(),
                idempotency_key: None,
                organization: None,
                state: LeaseState::Outstanding(Vec::new()),
            },
            claims: Vec::new(),
        };
        for n in 0..=MAX_CLAIMS {
            leases.insert(lease(n), cached(n));
        }
        assert!(leases.order.len() <= MAX_CLAIMS);
        assert!(!leases.cached.contains_key(&lease(0)) && leases.cached.contains_key(&lease(MAX_CLAIMS)));
    }
}

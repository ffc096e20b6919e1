//! The reference store: maps behind the transaction interface. Lists scan and sort, so that there is nothing to get wrong.

use std::ops::{Bound, RangeBounds};

use rustc_hash::FxHashMap;

use crate::bucket::BucketKey;
use crate::claim::Claim;
use crate::invariant::State;
use crate::lease::{Fence, IdempotencyKey, Lease, LeaseId};
use crate::order::sorted_by;
use crate::query::{LeasePosition, LeaseRow, LeaseScan, RecordRow, RecordScan};
use crate::store::{Fences, Store};
use crate::time::Timestamp;
use crate::transaction::{BrokenState, Changes, Keys, NetChanges, Replay, RowChange, Transaction, Workspace};

/// Claims, leases and replays in maps.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    claims: FxHashMap<BucketKey, Claim>,
    leases: FxHashMap<LeaseId, Lease>,
    replays: FxHashMap<IdempotencyKey, Replay>,
    fence: Fence,
}

fn put<K: Eq + std::hash::Hash, V>(map: &mut FxHashMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

impl Transaction for MemoryStore {
    type Error = BrokenState;

    fn claim(&self, key: &BucketKey) -> Result<Option<&Claim>, BrokenState> {
        Ok(self.claims.get(key))
    }

    fn lease(&self, id: LeaseId) -> Result<Option<&Lease>, BrokenState> {
        Ok(self.leases.get(&id))
    }

    fn replay(&self, key: &IdempotencyKey) -> Result<Option<&Replay>, BrokenState> {
        Ok(self.replays.get(key))
    }

    fn last_fence(&self) -> Result<Fence, BrokenState> {
        Ok(self.fence)
    }

    fn write(&mut self, changes: Changes) -> Result<(), BrokenState> {
        changes.claims.into_iter().for_each(|(key, claim)| put(&mut self.claims, key, claim));
        changes.leases.into_iter().for_each(|(id, lease)| put(&mut self.leases, id, lease));
        changes.replays.into_iter().for_each(|(key, replay)| put(&mut self.replays, key, replay));
        self.fence = changes.fence.unwrap_or(self.fence);
        Ok(())
    }
}

impl Store for MemoryStore {
    type Error = BrokenState;

    fn workspace(&self) -> Result<Workspace, BrokenState> {
        Ok(Workspace::new(self.fence))
    }

    fn load(&self, keys: Keys, into: &mut Workspace) -> Result<(), BrokenState> {
        for key in keys.claims {
            let claim = self.claims.get(&key).cloned();
            into.load_claim(key, claim);
        }
        for id in keys.leases {
            into.load_lease(id, self.leases.get(&id).cloned());
        }
        for key in keys.replays {
            let replay = self.replays.get(&key).cloned();
            into.load_replay(key, replay);
        }
        Ok(())
    }

    fn save(&mut self, changes: &NetChanges) -> Result<Fences, BrokenState> {
        fn after<K: Clone, V: Clone>(rows: &[RowChange<K, V>]) -> Vec<(K, Option<V>)> {
            rows.iter().map(|row| (row.key.clone(), row.after.clone())).collect()
        }
        self.write(Changes {
            claims: after(&changes.claims),
            leases: after(&changes.leases),
            replays: after(&changes.replays),
            fence: changes.fence,
        })?;
        Ok(Fences::default())
    }

    fn claim(&self, key: &BucketKey) -> Result<Option<Claim>, BrokenState> {
        Ok(self.claims.get(key).cloned())
    }

    fn leases(&self, scan: &LeaseScan) -> Result<Vec<LeaseRow>, BrokenState> {
        let outstanding = self.leases.iter().filter(|(_, lease)| lease.cell == scan.cell && lease.outcome().is_none());
        let rows = outstanding
            .map(|(id, lease)| LeaseRow {
                position: LeasePosition { created_at: lease.created_at, lease: *id },
                updated_at: lease.updated_at,
            })
            .filter(|row| (scan.from, Bound::Unbounded).contains(&row.position))
            .collect();
        let mut rows: Vec<LeaseRow> = sorted_by(rows, |a, b| a.position.cmp(&b.position));
        rows.truncate(scan.limit);
        Ok(rows)
    }

    fn records(&self, scan: &RecordScan) -> Result<Vec<RecordRow>, BrokenState> {
        let covered = |(key, claim): &(&BucketKey, &Claim)| {
            let source = &claim.record().source;
            claim.owner == scan.cell
                && source.source_type == scan.source_type
                && scan.covers(key.bucket_type, &source.id)
        };
        let claims = self.claims.iter().filter(covered);
        let rows: Vec<_> = claims.map(|(key, claim)| RecordRow { key: key.clone(), claim: claim.clone() }).collect();
        let mut rows = sorted_by(rows, |a, b| {
            let place = |row: &RecordRow| (row.claim.record().source.id.clone(), row.key.clone());
            place(a).cmp(&place(b))
        });
        rows.truncate(scan.limit);
        Ok(rows)
    }

    fn settled(&self, before: Timestamp, limit: usize) -> Result<Vec<LeaseId>, BrokenState> {
        let settled = self.leases.iter().filter(|(_, lease)| lease.outcome().is_some() && lease.updated_at < before);
        let ids: Vec<_> = settled.map(|(id, lease)| (lease.updated_at, *id)).collect();
        let mut ids = sorted_by(ids, Ord::cmp);
        ids.truncate(limit);
        Ok(ids.into_iter().map(|(_, id)| id).collect())
    }

    fn state(&self) -> Result<State, BrokenState> {
        fn sorted<K: Clone + Ord, V: Clone>(map: &FxHashMap<K, V>) -> std::collections::BTreeMap<K, V> {
            map.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
        }
        Ok(State {
            claims: sorted(&self.claims),
            leases: sorted(&self.leases),
            replays: sorted(&self.replays),
            fence: self.fence,
        })
    }
}

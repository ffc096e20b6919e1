//! The maintenance of the store, which its servers share: each forgets old rows, and one of them at a time
//! has the engine forget old revisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold_core::cell::CellId;
use leasehold_core::lease::Lease;
use leasehold_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::engine::{EngineStatus, Entry, RowWrite};
use super::keys::Space;
use super::{OrderedStore, guard_of, rows};
use crate::store::clock::system_time;
use crate::store::error::StoreError;
use crate::store::port::{Occupancy, Probe, Probed, SharedMaintenance, StoreFuture};

type Result<T> = std::result::Result<T, StoreError>;

/// The most settled leases that one transaction deletes.
const FORGET_ROWS: usize = 500;
/// The time for which the id of a group is kept. No transaction arrives at the engine as late.
const GROUP_RETENTION: Duration = Duration::from_secs(60 * 60);
/// The time between two compactions. Revisions are kept for at least this long, so that a scan of many
/// parts, which reads at one revision, ends before.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// The value of the row of the last compaction, as JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Compaction {
    /// The time of the compaction, in microseconds since 1970.
    at: u64,
    /// The newest revision at that time, which the next compaction leaves.
    revision: u64,
}

/// Returns the time that lies `age` before now.
fn before_now(age: Duration) -> Timestamp {
    system_time().minus_micros(u64::try_from(age.as_micros()).unwrap_or(u64::MAX))
}

impl OrderedStore {
    /// Counts the outstanding leases and their claims.
    async fn count_outstanding(&self) -> Result<BTreeMap<CellId, usize>> {
        let (layout, mut held) = (&self.inner.layout, BTreeMap::new());
        let EngineStatus { disk_bytes, room, .. } = self.inner.engine.status().await?;
        self.inner.room.store(Arc::new(room));
        let mut occupancy = Occupancy { disk_bytes, ..Occupancy::default() };
        let count = |entry: &Entry| -> Result<()> {
            let (cell, position) = layout.read_outstanding(&entry.key).ok_or_else(|| rows::damaged(entry))?;
            let claims = rows::decode::<rows::OutstandingPlace>(entry)?.claims as usize;
            *held.entry(cell).or_default() += claims;
            occupancy.leases += 1;
            occupancy.held_claims += claims;
            let oldest = occupancy.oldest_lease.get_or_insert(position.created_at);
            *oldest = position.created_at.min(*oldest);
            Ok(())
        };
        self.inner.snapshot().await?.visit(Space::Outstanding, count).await?;
        self.inner.occupancy.store(Arc::new(occupancy));
        Ok(held)
    }

    /// Deletes the leases that were settled first, with their places and replays.
    async fn forget_settled(&self, before: Timestamp) -> Result<bool> {
        let layout = &self.inner.layout;
        let snapshot = self.inner.snapshot().await?;
        let places = snapshot.first(layout.settled_before(before), FORGET_ROWS, true).await?;
        if places.is_empty() {
            return Ok(false);
        }
        let id = |entry: &Entry| layout.read_settled(&entry.key).ok_or_else(|| rows::damaged(entry));
        let ids = places.iter().map(id).collect::<Result<Vec<_>>>()?;
        let leases = snapshot.rows(ids.iter().map(|id| layout.lease(*id)).collect()).await?;
        let leases: Vec<_> = leases.into_iter().flatten().collect();
        let replays =
            leases.iter().map(|entry| Ok(self.replay_key(&rows::lease(entry)?))).collect::<Result<Vec<_>>>()?;
        let replays = snapshot.rows(replays.into_iter().flatten().collect()).await?;
        let old: Vec<_> = places.into_iter().chain(leases).chain(replays.into_iter().flatten()).collect();
        let guards = old.iter().map(|entry| guard_of(entry.key.clone(), Some(entry))).collect();
        let writes = old.into_iter().map(|entry| RowWrite::Delete(entry.key)).collect();
        match self.inner.write(guards, writes).await?.is_written {
            true => Ok(ids.len() == FORGET_ROWS),
            false => Err(StoreError::Conflict("another server forgets the same leases".into())),
        }
    }

    fn replay_key(&self, lease: &Lease) -> Option<Bytes> {
        lease.idempotency_key.as_ref().map(|key| self.inner.layout.replay(key))
    }

    /// If the last compaction is long ago and no other server compacts now, the engine forgets the revisions
    /// before it.
    async fn compact(&self) -> Result<()> {
        let key = self.inner.layout.compaction();
        let snapshot = self.inner.snapshot().await?;
        let entry = snapshot.row(key.clone()).await?;
        let last = entry.as_ref().map(|entry| serde_json::from_slice::<Compaction>(&entry.value));
        let last = last.transpose().map_err(|error| StoreError::Damaged(error.to_string()))?;
        let due = before_now(COMPACTION_INTERVAL).as_micros();
        if last.is_some_and(|last| last.at > due) {
            return Ok(());
        }
        let next = Compaction { at: system_time().as_micros(), revision: snapshot.revision };
        let value = serde_json::to_vec(&next).map_err(|error| StoreError::Failed(error.to_string()))?;
        let write = RowWrite::Put { key: key.clone(), value: value.into() };
        let is_own_turn = self.inner.write(vec![guard_of(key, entry.as_ref())], vec![write]).await?.is_written;
        match last.filter(|_| is_own_turn) {
            Some(last) => self.inner.engine.compact(last.revision).await,
            None => Ok(()),
        }
    }
}

impl SharedMaintenance for OrderedStore {
    fn probe(&self) -> Box<dyn Probe> {
        Box::new(EngineProbe(self.clone()))
    }

    fn refresh_occupancy(&self) -> StoreFuture<'_, BTreeMap<CellId, usize>> {
        Box::pin(self.count_outstanding())
    }

    fn forget(&self, settled_before: Timestamp) -> StoreFuture<'_, bool> {
        Box::pin(self.forget_settled(settled_before))
    }

    fn forget_abandoned(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let old = self.inner.layout.groups_before(before_now(GROUP_RETENTION));
            self.inner.write(Vec::new(), vec![RowWrite::DeleteRange(old)]).await.map(drop)
        })
    }

    fn shift_partitions(&self, _: Duration) -> StoreFuture<'_, bool> {
        // The store has no partitions.
        Box::pin(std::future::ready(Ok(false)))
    }

    fn vacuum(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            // The state file is a part of the maintenance, and no reason to put a compaction off.
            let kept = self.keep_state().await;
            self.compact().await.and(kept)
        })
    }

    fn role_without_vacuum(&self) -> StoreFuture<'_, Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// A probe that checks if the engine takes writes.
struct EngineProbe(OrderedStore);

impl Probe for EngineProbe {
    fn probe(&mut self) -> StoreFuture<'_, Probed> {
        Box::pin(async move {
            let inner = &self.0.inner;
            inner.engine.prove(inner.layout.absent()).await?;
            Ok(Probed { other_servers: 0, lacks_changes: false, lacks_standby: false })
        })
    }
}

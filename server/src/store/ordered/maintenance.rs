//! The maintenance of the store, which its servers share: each forgets old rows, and one of them at a time
//! has the engine forget old revisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use leasehold_core::cell::CellId;
use leasehold_core::lease::Lease;
use leasehold_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::engine::{EngineStatus, Entry, KeyRange, RowWrite};
use super::keys::{Space, next};
use super::{OrderedStore, Snapshot, base, guard_of, rows};
use crate::store::error::StoreError;
use crate::store::port::{Occupancy, Probe, Probed, SharedMaintenance, StoreFuture};

type Result<T> = std::result::Result<T, StoreError>;

/// The most settled leases that one transaction deletes.
const FORGET_ROWS: usize = 500;
/// The most rows of groups that one transaction deletes.
const FORGET_GROUPS: usize = 1_000;
/// The time after which the row of a group is deleted. No call waits as long for its outcome.
const GROUP_RETENTION: Duration = Duration::from_secs(60 * 60);
/// The time for which revisions are kept, so that a scan of many parts, which reads at one revision, ends before.
const KEPT_HISTORY: Duration = Duration::from_secs(5 * 60);
/// The time between two compactions.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// The value of the row of the last compaction, as JSON.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Compaction {
    /// The oldest revision that was kept.
    revision: u64,
}

impl OrderedStore {
    /// Counts the outstanding leases and their claims.
    async fn count_outstanding(&self) -> Result<BTreeMap<CellId, usize>> {
        let (layout, mut held) = (&self.inner.layout, BTreeMap::new());
        let EngineStatus { disk_bytes, quota_bytes, alarms, .. } = self.inner.engine.status().await?;
        let mut occupancy = Occupancy { disk_bytes, disk_quota_bytes: quota_bytes, alarms, ..Occupancy::default() };
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

    /// Returns the rows as they are now, and notes the time of their revision.
    async fn noted_snapshot(&self) -> Result<Snapshot<'_>> {
        let snapshot = self.inner.snapshot().await?;
        self.inner.horizon.note(Instant::now(), snapshot.revision);
        Ok(snapshot)
    }

    /// Deletes rows of groups that were decided long ago: those that were abandoned, and the last ones of writers
    /// that are gone or idle.
    async fn forget_groups(&self) -> Result<()> {
        let (inner, snapshot) = (&self.inner, self.noted_snapshot().await?);
        let Some(old) = inner.horizon.before(Instant::now(), GROUP_RETENTION) else { return Ok(()) };
        let range = inner.layout.groups_before(old);
        let rows = snapshot.first(range.clone(), FORGET_GROUPS, true).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        let decided_at = inner.layout.read_group(&last.key).ok_or_else(|| rows::damaged(last))?;
        let range = KeyRange { to: next(&last.key), ..range };
        base::forget_groups(&*inner.engine, &inner.layout, range, decided_at.saturating_add(1)).await
    }

    /// If the last compaction is long ago, the engine forgets the revisions that were the newest ones
    /// [`KEPT_HISTORY`] ago.
    async fn compact(&self) -> Result<()> {
        let (key, snapshot) = (self.inner.layout.compaction(), self.noted_snapshot().await?);
        let entry = snapshot.row(key.clone()).await?;
        let last = entry.as_ref().map(|entry| serde_json::from_slice::<Compaction>(&entry.value));
        let last = last.transpose().map_err(|error| StoreError::Damaged(error.to_string()))?.unwrap_or_default();
        let now = Instant::now();
        let before = |age| self.inner.horizon.before(now, age);
        let (Some(due), Some(revision)) = (before(KEPT_HISTORY + COMPACTION_INTERVAL), before(KEPT_HISTORY)) else {
            return Ok(());
        };
        if last.revision > due {
            return Ok(());
        }
        let value =
            serde_json::to_vec(&Compaction { revision }).map_err(|error| StoreError::Failed(error.to_string()))?;
        let write = RowWrite::Put { key: key.clone(), value: value.into() };
        let is_own_turn = match self.inner.write(vec![guard_of(key, entry.as_ref())], vec![write]).await {
            // A full engine takes no row, but it forgets, which makes room.
            Err(StoreError::OutOfResources(_)) => true,
            written => written?.is_written,
        };
        if is_own_turn { self.inner.engine.compact(revision).await } else { Ok(()) }
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
        Box::pin(self.forget_groups())
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
            inner.proofs.prove(&*inner.engine, inner.layout.absent()).await?;
            Ok(Probed { other_servers: 0, lacks_changes: false, lacks_standby: false })
        })
    }

    fn patience(&self) -> Duration {
        // After the loss of a member, the call to it must end before another one is asked, and there may be an election.
        Duration::from_secs(5)
    }
}

//! Reads of the embedded store: outstanding leases and their claims come from memory, all other
//! rows from fjall.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use fjall::Snapshot;
use futures_util::FutureExt;
use leasehold_core::bucket::BucketKey;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, SourceId};
use leasehold_core::lease::{Fence, IdempotencyKey, Lease, LeaseId, Replay};
use leasehold_core::query::{LeaseRow, LeaseScan, RecordRow, RecordScan};
use leasehold_core::rows::{AnyRow, State};
use leasehold_core::time::Timestamp;

use super::outstanding::Outstanding;
use super::rows::encode_idempotency_key;
use super::{BUCKET_TYPES, EmbeddedStore, Inner, Result, keys};
use crate::store::error::StoreError;
use crate::store::port::{Answer, Occupancy, StoreReader};
use crate::store::stored;

impl Inner {
    fn resting_claim(&self, key: &BucketKey) -> Result<Option<Claim>> {
        let bytes = self.claims.get(keys::claim(key))?;
        bytes.map(|bytes| self.decode_claim(&bytes)).transpose()
    }

    fn decode_claim(&self, bytes: &[u8]) -> Result<Claim> {
        self.claims.decode::<stored::RestingClaim<'_>>(bytes).map(Into::into)
    }

    fn decode_lease(&self, bytes: &[u8]) -> Result<Lease> {
        self.settled.decode::<stored::Lease<'_>>(bytes).map(Into::into)
    }

    fn resting_claim_in(&self, snapshot: &Snapshot, key: &BucketKey) -> Result<Option<Claim>> {
        let bytes = self.claims.get_in(snapshot, keys::claim(key))?;
        bytes.map(|bytes| self.decode_claim(&bytes)).transpose()
    }

    pub(super) fn claim(&self, held: &Outstanding, key: &BucketKey) -> Result<Option<Claim>> {
        match held.claim(key) {
            Some(claim) => Ok(Some(claim.clone())),
            None => self.resting_claim(key),
        }
    }

    pub(super) fn lease(&self, held: &Outstanding, id: LeaseId) -> Result<Option<Lease>> {
        if let Some(lease) = held.lease(id) {
            return Ok(Some(lease.clone()));
        }
        self.settled.get(keys::lease(id))?.map(|bytes| self.decode_lease(&bytes)).transpose()
    }

    pub(super) fn replay(&self, key: &IdempotencyKey) -> Result<Option<Replay>> {
        let bytes = self.replays.get(encode_idempotency_key(key)?)?;
        bytes.map(|bytes| self.replays.decode::<stored::Replay<'_>>(&bytes).map(Into::into)).transpose()
    }

    fn visit_claims<E: From<StoreError>>(
        &self,
        held: &Outstanding,
        snapshot: &Snapshot,
        visit: &mut impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        for row in self.claims.range::<&[u8]>(snapshot, ..) {
            let (key, value) = row?;
            let key = keys::read_claim(&key).ok_or_else(|| self.claims.damaged())?;
            if held.claim(&key).is_none() {
                visit(AnyRow::Claim(key, self.decode_claim(&value)?))?;
            }
        }
        let sorted: BTreeMap<_, _> = held.claims().collect();
        sorted.into_iter().try_for_each(|(key, claim)| visit(AnyRow::Claim(key.clone(), claim.clone())))
    }

    fn visit_leases<E: From<StoreError>>(
        &self,
        held: &Outstanding,
        snapshot: &Snapshot,
        visit: &mut impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let sorted: BTreeMap<_, _> = held.leases().collect();
        sorted.into_iter().try_for_each(|(id, lease)| visit(AnyRow::Lease(*id, lease.clone())))?;
        for row in self.settled.range::<&[u8]>(snapshot, ..) {
            let (key, value) = row?;
            let id = keys::read_lease(&key).ok_or_else(|| self.settled.damaged())?;
            visit(AnyRow::Lease(id, self.decode_lease(&value)?))?;
        }
        Ok(())
    }

    fn visit_replays<E: From<StoreError>>(
        &self,
        snapshot: &Snapshot,
        visit: &mut impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        for row in self.replays.range::<&[u8]>(snapshot, ..) {
            let (key, value) = row?;
            let key: stored::IdempotencyKey<'_> = self.replays.decode(&key)?;
            let replay: stored::Replay<'_> = self.replays.decode(&value)?;
            visit(AnyRow::Replay(key.into(), replay.into()))?;
        }
        Ok(())
    }

    /// Returns the source id and bucket of at most `scan.limit` claims at rest, in order. Claims
    /// under a lease are left out.
    fn resting_records(
        &self,
        held: &Outstanding,
        snapshot: &Snapshot,
        scan: &RecordScan,
    ) -> Result<BTreeSet<(SourceId, BucketKey)>> {
        let table = keys::table(scan.cell, scan.source_type);
        let row = |id: &SourceId| keys::source(scan.cell, scan.source_type, id);
        let from =
            if scan.source_id_gt.is_empty() { table.clone() } else { keys::beyond_source(row(&scan.source_id_gt)) };
        let to = if scan.source_id_lte.is_empty() {
            keys::beyond_table(&table)
        } else {
            keys::beyond_source(row(&scan.source_id_lte))
        };
        let mut found = BTreeSet::new();
        if from >= to {
            return Ok(found);
        }
        for row in self.sources.range(snapshot, (Bound::Included(from), Bound::Excluded(to))) {
            let (key, _) = row?;
            let source = key.strip_prefix(table.as_slice()).and_then(keys::read_source_claim);
            let (id, bucket) = source.ok_or_else(|| self.sources.damaged())?;
            if scan.covers(bucket.bucket_type, &id) && held.claim(&bucket).is_none() {
                found.insert((id, bucket));
                if found.len() >= scan.limit {
                    break;
                }
            }
        }
        Ok(found)
    }

    fn records(&self, scan: &RecordScan) -> Result<Vec<RecordRow>> {
        // INVARIANT: the lock is taken before the snapshot. The writer changes the claims in memory
        // under this lock, after it has changed the disk. So both show the same moment.
        let held = self.held();
        let snapshot = self.database.snapshot();
        let mut sources = self.resting_records(&held, &snapshot, scan)?;
        sources.extend(held.records(scan));
        let mut rows = Vec::with_capacity(sources.len().min(scan.limit));
        for (_, key) in sources.into_iter().take(scan.limit) {
            let claim = match held.claim(&key) {
                Some(claim) => claim.clone(),
                None => self.resting_claim_in(&snapshot, &key)?.ok_or_else(|| self.sources.damaged())?,
            };
            rows.push(RecordRow { key, claim });
        }
        Ok(rows)
    }

    fn settled_leases(&self, before: Timestamp, limit: usize) -> Result<Vec<LeaseId>> {
        let to = before.as_micros().to_be_bytes();
        let snapshot = self.database.snapshot();
        let order = &self.settled_order;
        let rows = order.range(&snapshot, ..to).take(limit);
        rows.map(|row| keys::read_settled(&row?.0).ok_or_else(|| order.damaged())).collect()
    }

    /// Returns the cells that own at least one claim. Each cell costs one lookup, however many
    /// claims it owns.
    fn owners(&self) -> Result<BTreeSet<CellId>> {
        let mut owners: BTreeSet<_> = self.held().cells().collect();
        let snapshot = self.database.snapshot();
        let mut from: Vec<u8> = Vec::new();
        while let Some(row) = self.sources.range(&snapshot, std::mem::take(&mut from)..).next() {
            let owner = keys::read_cell(&row?.0).ok_or_else(|| self.sources.damaged())?;
            owners.insert(owner);
            from = keys::beyond_cell(owner);
        }
        Ok(owners)
    }

    fn bucket_types(&self) -> Result<Vec<BucketRule>> {
        let Some(rules) = self.meta.get(BUCKET_TYPES)? else { return Ok(Vec::new()) };
        stored::bucket_rules_from_json(&rules).map_err(|_| self.meta.damaged().of(BUCKET_TYPES))
    }
}

impl EmbeddedStore {
    /// Passes every row to `visit`: claims, then leases, then replays. Returns the newest fence.
    /// The rows at rest are not collected in memory.
    ///
    /// # Errors
    /// A row could not be read, or `visit` failed.
    pub fn for_each<E: From<StoreError>>(
        &self,
        mut visit: impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<Fence, E> {
        let inner = &*self.inner;
        let (held, snapshot) = (inner.held(), inner.database.snapshot());
        inner.visit_claims(&held, &snapshot, &mut visit)?;
        inner.visit_leases(&held, &snapshot, &mut visit)?;
        inner.visit_replays(&snapshot, &mut visit)?;
        Ok(inner.fence()?)
    }

    /// Reads the claims on buckets as they were at one moment, in the order of `keys`; `None` for each
    /// bucket that no cell claims.
    ///
    /// # Errors
    /// A row could not be read.
    pub fn claims(&self, keys: &[BucketKey]) -> Result<Vec<Option<Claim>>> {
        let (held, snapshot) = {
            // INVARIANT: the lock is taken before the snapshot. The writer changes the held claims under the lock after
            // the disk, so both show the same moment.
            let outstanding = self.inner.held();
            let held: Vec<_> = keys.iter().map(|key| outstanding.claim(key).cloned()).collect();
            (held, self.inner.database.snapshot())
        };
        let claim = |(key, held): (&BucketKey, Option<Claim>)| match held {
            Some(claim) => Ok(Some(claim)),
            None => self.inner.resting_claim_in(&snapshot, key),
        };
        keys.iter().zip(held).map(claim).collect()
    }

    fn state(&self) -> Result<State> {
        let mut state = State::default();
        state.fence = self.for_each(|row| {
            state.insert(row);
            Ok::<_, StoreError>(())
        })?;
        Ok(state)
    }

    /// Runs `read`, which may take long, on a thread for blocking work.
    fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Answer<'static, T> {
        let store = self.clone();
        // `spawn_blocking` needs a runtime, so it is called when the answer is first polled.
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || read(&store)).await;
            // The join fails only if the runtime shuts down before the read has begun.
            done.unwrap_or_else(|_| Err(StoreError::Unreachable("the server is stopping".into())))
        })
    }
}

impl StoreReader for EmbeddedStore {
    fn claims<'a>(&'a self, keys: &'a [BucketKey]) -> Answer<'a, Vec<Option<Claim>>> {
        // One claim is usually in memory, so the calling thread reads it. Many may wait for the disk.
        if keys.len() <= 1 {
            return std::future::ready(Self::claims(self, keys)).boxed();
        }
        let keys = keys.to_vec();
        self.blocking(move |store| store.claims(&keys))
    }

    fn leases(&self, scan: LeaseScan) -> Answer<'_, Vec<LeaseRow>> {
        self.blocking(move |store| Ok(store.inner.held().page(&scan)))
    }

    fn records(&self, scan: RecordScan) -> Answer<'_, Vec<RecordRow>> {
        self.blocking(move |store| store.inner.records(&scan))
    }

    fn settled(&self, before: Timestamp, limit: usize) -> Answer<'_, Vec<LeaseId>> {
        self.blocking(move |store| store.inner.settled_leases(before, limit))
    }

    fn state(&self) -> Answer<'_, State> {
        self.blocking(Self::state)
    }

    fn owners(&self) -> Answer<'_, BTreeSet<CellId>> {
        std::future::ready(self.inner.owners()).boxed()
    }

    fn bucket_types(&self) -> Answer<'_, Vec<BucketRule>> {
        std::future::ready(self.inner.bucket_types()).boxed()
    }

    fn occupancy(&self) -> Occupancy {
        let held = self.inner.held();
        let (leases, held_claims) = held.counts();
        let disk_bytes = self.inner.database.disk_space().unwrap_or(0);
        Occupancy { leases, held_claims, oldest_lease: held.oldest(), disk_bytes }
    }

    fn is_lost_by(&self, error: &StoreError) -> bool {
        !error.is_away()
    }
}

//! Reads of the embedded store: outstanding leases and their claims come from memory, all other
//! rows from fjall.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use fjall::Snapshot;
use futures_util::FutureExt;
use leasehold_core::bucket::BucketKey;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::cell::CellId;
use leasehold_core::circle::CircleRead;
use leasehold_core::claim::{Claim, SourceType};
use leasehold_core::lease::{Fence, IdempotencyKey, Lease, LeaseId, Replay};
use leasehold_core::lock::{Ask, AskId, Lock, LockPath};
use leasehold_core::query::{LeaseRow, LeaseScan, RecordPart, RecordPlace, RecordRow, RecordScan};
use leasehold_core::queue::{Lane, LanePath, Queue, QueuePath, Request, RequestBody, RequestId};
use leasehold_core::rows::{AnyRow, OrderedRead, State};
use leasehold_core::session::{Session, SessionId};
use leasehold_core::time::Timestamp;
use tokio::task::{JoinHandle, spawn_blocking};

use super::damaged_index::RestingPlaces;
use super::keyed_rows;
use super::locks::Locks;
use super::outstanding::Outstanding;
use super::rows::encode_idempotency_key;
use super::{BUCKET_TYPES, EmbeddedStore, Inner, Result, keys};
use crate::store::error::StoreError;
use crate::store::port::{NamePart, NamePlace, Occupancy, StoreFuture, StoreReader};
use crate::store::stored;

impl Inner {
    fn resting_claim(&self, key: &BucketKey) -> Result<Option<Claim>> {
        let bytes = self.claims.get(keys::claim(key))?;
        bytes.map(|bytes| self.decode_claim(&bytes)).transpose()
    }

    pub(super) fn decode_claim(&self, bytes: &[u8]) -> Result<Claim> {
        self.claims.decode::<stored::RestingClaim<'_>>(bytes).map(Into::into)
    }

    pub(super) fn decode_lease(&self, bytes: &[u8]) -> Result<Lease> {
        self.settled.decode::<stored::Lease<'_>>(bytes).map(Into::into)
    }

    pub(super) fn resting_claim_in(&self, snapshot: &Snapshot, key: &BucketKey) -> Result<Option<Claim>> {
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
        self.settled_lease(id)
    }

    pub(super) fn settled_lease(&self, id: LeaseId) -> Result<Option<Lease>> {
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

    /// Returns the places of claims at rest in the next part of a scan, which reaches to `last` at
    /// most. Looks at `scan.limit` places of the index at most.
    fn indexed_places(
        &self,
        snapshot: &Snapshot,
        scan: &RecordScan,
        last: Option<RecordPlace>,
    ) -> Result<RestingPlaces> {
        let table = keys::table(scan.cell, scan.source_type);
        let place = |(id, key): &RecordPlace| keys::source_claim(scan.cell, scan.source_type, id, key);
        let from = match scan.after.bound() {
            // The bound is the smallest possible place with this source id. No claim has this
            // place, so the prefix of the source id serves as the bound.
            Bound::Included((id, _)) if id.is_empty() => Bound::Included(table.clone()),
            Bound::Included((id, _)) => Bound::Included(keys::source(scan.cell, scan.source_type, &id)),
            bound => bound.map(|at| place(&at)),
        };
        let end = match scan.source_id_lte.is_empty() {
            true => keys::beyond_table(&table),
            false => keys::beyond_source(keys::source(scan.cell, scan.source_type, &scan.source_id_lte)),
        };
        let mut part = RestingPlaces { next: last, ..RestingPlaces::default() };
        let mut looked_at = (0, None);
        for row in self.sources.range(snapshot, (from, Bound::Unbounded)) {
            let (key, _) = row?;
            if key >= end {
                return Ok(part);
            }
            if looked_at.0 == scan.limit {
                return Ok(RestingPlaces { next: looked_at.1, ..part });
            }
            let source = key.strip_prefix(table.as_slice()).and_then(keys::read_source_claim);
            let found = source.ok_or_else(|| self.sources.damaged())?;
            if part.next.as_ref().is_some_and(|last| found > *last) {
                return Ok(part);
            }
            if scan.covers(found.1.bucket_type) {
                part.places.insert(found.clone());
            }
            looked_at = (looked_at.0 + 1, Some(found));
        }
        Ok(part)
    }

    fn records(&self, scan: &RecordScan) -> Result<RecordPart> {
        let (mut held, snapshot) = {
            // INVARIANT: the lock is taken before the snapshot. The writer changes the claims in
            // memory under this lock, after it has changed the disk. So the memory and the snapshot
            // show the same moment.
            let outstanding = self.held();
            (outstanding.records(scan), self.database.snapshot())
        };
        let last = held.last.take();
        let indexed = self.indexed_places(&snapshot, scan, last.clone());
        let resting = self.indexed_or(indexed, || self.places_of_claims(&snapshot, scan, last))?;
        let RestingPlaces { mut places, next, is_index_damaged, damaged } = resting;
        places.extend(held.claims.keys().cloned());
        let mut part = RecordPart { is_index_damaged, damaged_anywhere: damaged, ..RecordPart::default() };
        let mut bytes = 0;
        for place in places {
            if next.as_ref().is_some_and(|next| place > *next) {
                break;
            }
            if part.rows.len() == scan.limit || bytes >= scan.max_bytes {
                return Ok(part);
            }
            let claim = match held.claims.remove(&place) {
                Some(claim) => Ok(claim),
                None => self.listed_claim(&snapshot, &place.1).map(Some),
            };
            match claim {
                Ok(Some(claim)) => {
                    let row = RecordRow { key: place.1.clone(), claim };
                    bytes += row.bytes();
                    part.rows.push(row);
                }
                Ok(None) => {}
                Err(StoreError::Damaged(_)) => part.damaged.push(place.clone()),
                Err(error) => return Err(error),
            }
            part.next = Some(place);
        }
        part.next = next;
        Ok(part)
    }

    /// Reads the claim at rest that the keyspace `sources` lists.
    pub(super) fn listed_claim(&self, snapshot: &Snapshot, key: &BucketKey) -> Result<Claim> {
        self.resting_claim_in(snapshot, key)?.ok_or_else(|| self.sources.damaged())
    }

    /// Returns the names of the claims of the first outstanding lease after `lease`. After the last
    /// lease, the scan goes on with the claims at rest.
    fn held_names(&self, lease: Option<LeaseId>) -> Result<NamePart> {
        // The rows are read from disk, because a scan of the leases in memory would hold their lock.
        let from = lease.map_or(Bound::Unbounded, |lease| Bound::Excluded(keys::lease(lease)));
        let snapshot = self.database.snapshot();
        let Some(row) = self.outstanding.range(&snapshot, (from, Bound::Unbounded)).next() else {
            return Ok(NamePart { next: Some(NamePlace::Claim(None)), ..NamePart::default() });
        };
        let (key, value) = row?;
        let id = keys::read_lease(&key).ok_or_else(|| self.outstanding.damaged())?;
        let row: stored::OutstandingLease<'_> = self.outstanding.decode(&value)?;
        let mut part = NamePart { next: Some(NamePlace::Lease(Some(id))), ..NamePart::default() };
        row.claims.into_iter().for_each(|(key, claim)| part.push(&key.into(), &claim.into()));
        Ok(part)
    }

    /// Returns the names of at most `limit` claims at rest after the claim on `key`.
    fn resting_names(&self, key: Option<&BucketKey>, limit: usize) -> Result<NamePart> {
        let from = key.map_or(Bound::Unbounded, |key| Bound::Excluded(keys::claim(key)));
        let (snapshot, mut part, mut rows) = (self.database.snapshot(), NamePart::default(), 0);
        for row in self.claims.range(&snapshot, (from, Bound::Unbounded)).take(limit) {
            let (key, value) = row?;
            let key = keys::read_claim(&key).ok_or_else(|| self.claims.damaged())?;
            match self.decode_claim(&value) {
                Ok(claim) => part.push(&key, &claim),
                Err(_) => part.damaged += 1,
            }
            rows += 1;
            part.next = Some(NamePlace::Claim(Some(key)));
        }
        part.next = part.next.filter(|_| rows == limit);
        Ok(part)
    }

    fn settled_leases(&self, before: Timestamp, limit: usize) -> Result<Vec<LeaseId>> {
        let scan = self.settled_position.begin(before);
        if scan.from >= before {
            return Ok(Vec::new());
        }
        let (from, to) = (scan.from.as_micros().to_be_bytes(), before.as_micros().to_be_bytes());
        let snapshot = self.database.snapshot();
        let order = &self.settled_order;
        let rows = order.range(&snapshot, from..to).take(limit);
        let found: Vec<_> =
            rows.map(|row| keys::read_settled(&row?.0).ok_or_else(|| order.damaged())).collect::<Result<_>>()?;
        self.settled_position.end(&scan, found.first().map_or(before, |(settled_at, _)| *settled_at));
        Ok(found.into_iter().map(|(_, lease)| lease).collect())
    }

    /// Returns the cells that own at least one claim.
    fn owners(&self) -> Result<BTreeSet<CellId>> {
        let mut owners: BTreeSet<_> = self.held().cells().collect();
        let snapshot = self.database.snapshot();
        owners.extend(self.indexed_or(self.indexed_owners(&snapshot), || self.owners_of_claims(&snapshot))?);
        Ok(owners)
    }

    /// Returns the owners in the index. Each costs one lookup, however many claims it owns.
    fn indexed_owners(&self, snapshot: &Snapshot) -> Result<BTreeSet<CellId>> {
        let (mut owners, mut from) = (BTreeSet::new(), Vec::new());
        while let Some(row) = self.sources.range(snapshot, std::mem::take(&mut from)..).next() {
            let owner = keys::read_cell(&row?.0).ok_or_else(|| self.sources.damaged())?;
            owners.insert(owner);
            from = keys::beyond_cell(owner);
        }
        Ok(owners)
    }

    /// Returns the tables from which a cell has claims.
    fn tables(&self, cell: CellId) -> Result<BTreeSet<SourceType>> {
        let (mut tables, snapshot) = {
            // INVARIANT: the lock is taken before the snapshot, as for records.
            let outstanding = self.held();
            (outstanding.tables(cell).collect::<BTreeSet<_>>(), self.database.snapshot())
        };
        let indexed = self.indexed_tables(&snapshot, cell);
        tables.extend(self.indexed_or(indexed, || self.tables_of_claims(&snapshot, cell))?);
        Ok(tables)
    }

    /// Returns the tables of a cell in the index. Each costs one lookup, however many claims come
    /// from it.
    fn indexed_tables(&self, snapshot: &Snapshot, cell: CellId) -> Result<BTreeSet<SourceType>> {
        let mut tables = BTreeSet::new();
        let (mut from, end) = (keys::table(cell, SourceType(1)), keys::beyond_cell(cell));
        while let Some(row) = self.sources.range(snapshot, std::mem::take(&mut from)..end.clone()).next() {
            let table = keys::read_table(&row?.0).ok_or_else(|| self.sources.damaged())?;
            tables.insert(table);
            from = keys::beyond_table(&keys::table(cell, table));
        }
        Ok(tables)
    }

    fn bucket_types(&self) -> Result<Vec<BucketRule>> {
        let Some(rules) = self.meta.get(BUCKET_TYPES)? else { return Ok(Vec::new()) };
        stored::bucket_rules_from_json(&rules).map_err(|_| self.meta.damaged().of(BUCKET_TYPES))
    }
}

impl EmbeddedStore {
    /// Passes every row to `visit`: claims, then leases, then replays, then sessions, locks, asks
    /// and turns, then queues, lanes, requests and bodies. Returns the newest fence. Rows at rest are passed on one by one and not collected
    /// in memory.
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
        inner.locks.visit(&snapshot, &mut visit)?;
        inner.queues.visit(&snapshot, &mut visit)?;
        Ok(inner.fence()?)
    }

    /// Reads the claims on buckets as they were at one moment, in the order of `keys`; `None` for each
    /// bucket that no cell claims.
    ///
    /// # Errors
    /// A row could not be read.
    pub fn claims(&self, keys: &[BucketKey]) -> Result<Vec<Option<Claim>>> {
        let (held, snapshot) = {
            // INVARIANT: the lock is taken before the snapshot. The writer changes the held claims
            // under the lock after the disk, so the memory and the snapshot show the same moment.
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

    /// Runs `scan`, which may take long, on a thread of the pool for scans.
    fn scan<T: Send + 'static>(
        &self,
        scan: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let store = self.clone();
        Box::pin(async move {
            let scanning = store.clone();
            finished(store.inner.scan_threads.start(move || scan(&scanning))).await
        })
    }
}

/// Waits for a blocking task. `None` stands for a task that could not be started because the store
/// is closing.
async fn finished<T>(task: Option<JoinHandle<Result<T>>>) -> Result<T> {
    let stopping = || Err(StoreError::Unreachable("the server is stopping".into()));
    match task {
        // The join fails only if the runtime shuts down before the task has begun.
        Some(task) => task.await.unwrap_or_else(|_| stopping()),
        None => stopping(),
    }
}

impl StoreReader for EmbeddedStore {
    fn claims<'a>(&'a self, keys: &'a [BucketKey]) -> StoreFuture<'a, Vec<Option<Claim>>> {
        // A single claim is usually in memory, so the calling thread reads it. Several claims may
        // need the disk, so a blocking thread reads them. Scans have other threads, and so never
        // delay such reads.
        if keys.len() <= 1 {
            return std::future::ready(Self::claims(self, keys)).boxed();
        }
        let (store, keys) = (self.clone(), keys.to_vec());
        // `spawn_blocking` needs a runtime, so it is called when the answer is first polled.
        Box::pin(async move { finished(Some(spawn_blocking(move || store.claims(&keys)))).await })
    }

    fn leases(&self, scan: LeaseScan) -> StoreFuture<'_, Vec<LeaseRow>> {
        self.scan(move |store| Ok(store.inner.held().page(&scan)))
    }

    fn records(&self, scan: RecordScan) -> StoreFuture<'_, RecordPart> {
        self.scan(move |store| store.inner.records(&scan))
    }

    fn names(&self, after: NamePlace, limit: usize) -> StoreFuture<'_, NamePart> {
        self.scan(move |store| match after {
            NamePlace::Lease(lease) => store.inner.held_names(lease),
            NamePlace::Claim(key) => store.inner.resting_names(key.as_ref(), limit),
        })
    }

    fn settled(&self, before: Timestamp, limit: usize) -> StoreFuture<'_, Vec<LeaseId>> {
        self.scan(move |store| store.inner.settled_leases(before, limit))
    }

    fn sessions(&self, read: OrderedRead<Session>) -> StoreFuture<'_, Vec<(SessionId, Session)>> {
        self.scan(move |store| {
            let Locks { sessions, session_order, .. } = &store.inner.locks;
            keyed_rows::first((sessions, session_order), &store.inner.database.snapshot(), &read)
        })
    }

    fn locks(&self, read: OrderedRead<Lock>) -> StoreFuture<'_, Vec<(LockPath, Lock)>> {
        self.scan(move |store| {
            let Locks { locks, lock_order, .. } = &store.inner.locks;
            keyed_rows::first((locks, lock_order), &store.inner.database.snapshot(), &read)
        })
    }

    fn lock<'a>(&'a self, path: &'a LockPath) -> StoreFuture<'a, Option<Lock>> {
        std::future::ready(keyed_rows::get(&self.inner.locks.locks, path)).boxed()
    }

    fn ask(&self, id: AskId) -> StoreFuture<'_, Option<Ask>> {
        std::future::ready(keyed_rows::get(&self.inner.locks.asks, &id)).boxed()
    }

    fn related_asks(&self, read: CircleRead) -> StoreFuture<'_, Vec<(AskId, Ask)>> {
        std::future::ready(self.inner.locks.related_asks(&read)).boxed()
    }

    fn queues(&self, read: OrderedRead<Queue>) -> StoreFuture<'_, Vec<(QueuePath, Queue)>> {
        self.scan(move |store| {
            // The rows of queues are in the order of their names.
            let rows = &store.inner.queues.queues;
            keyed_rows::first((rows, rows), &store.inner.database.snapshot(), &read)
        })
    }

    fn queue<'a>(&'a self, path: &'a QueuePath) -> StoreFuture<'a, Option<Queue>> {
        std::future::ready(keyed_rows::get(&self.inner.queues.queues, path)).boxed()
    }

    fn lanes(&self, read: OrderedRead<Lane>) -> StoreFuture<'_, Vec<(LanePath, Lane)>> {
        self.scan(move |store| store.inner.queues.first_lanes(&store.inner.database, &read))
    }

    fn lane<'a>(&'a self, path: &'a LanePath) -> StoreFuture<'a, Option<Lane>> {
        std::future::ready(keyed_rows::get(&self.inner.queues.lanes, path)).boxed()
    }

    fn requests(&self, read: OrderedRead<Request>) -> StoreFuture<'_, Vec<(RequestId, Request)>> {
        self.scan(move |store| store.inner.queues.first_requests(&store.inner.database, &read))
    }

    fn request(&self, id: RequestId) -> StoreFuture<'_, Option<Request>> {
        std::future::ready(keyed_rows::get(&self.inner.queues.requests, &id)).boxed()
    }

    fn bodies<'a>(&'a self, ids: &'a [RequestId]) -> StoreFuture<'a, Vec<Option<RequestBody>>> {
        let (store, ids) = (self.clone(), ids.to_vec());
        let read = move || ids.iter().map(|id| keyed_rows::get(&store.inner.queues.bodies, id)).collect();
        Box::pin(async move { finished(Some(spawn_blocking(read))).await })
    }

    fn state(&self) -> StoreFuture<'_, State> {
        self.scan(Self::state)
    }

    fn owners(&self) -> StoreFuture<'_, BTreeSet<CellId>> {
        self.scan(|store| store.inner.owners())
    }

    fn tables(&self, cell: CellId) -> StoreFuture<'_, BTreeSet<SourceType>> {
        self.scan(move |store| store.inner.tables(cell))
    }

    fn bucket_types(&self) -> StoreFuture<'_, Vec<BucketRule>> {
        std::future::ready(self.inner.bucket_types()).boxed()
    }

    fn occupancy(&self) -> Occupancy {
        let disk_bytes = self.inner.database.disk_space().unwrap_or(0);
        let held = self.inner.held();
        let (leases, held_claims) = held.counts();
        Occupancy { leases, held_claims, oldest_lease: held.oldest(), disk_bytes, ..Occupancy::default() }
    }

    fn is_lost_by(&self, error: &StoreError) -> bool {
        // A damaged row does not mean that other rows are damaged.
        !error.is_away() && !matches!(error, StoreError::Damaged(_))
    }
}

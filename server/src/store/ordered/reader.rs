//! Reads of the store. Each waits for a proof, then reads at the revision of the proof: see
//! [`super::proof`]. A read of several parts has one revision for all of them.

use std::collections::BTreeSet;

use leasehold_core::bucket::BucketKey;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::cell::CellId;
use leasehold_core::circle::CircleRead;
use leasehold_core::claim::{Claim, SourceType};
use leasehold_core::lease::{Fence, LeaseId};
use leasehold_core::lock::{Ask, AskId, Lock, LockPath};
use leasehold_core::query::{LeaseRow, LeaseScan, RecordPart, RecordPlace, RecordRow, RecordScan};
use leasehold_core::queue::{Lane, LanePath, Queue, QueuePath, Request, RequestBody, RequestId};
use leasehold_core::rows::{AnyRow, OrderedRead, State};
use leasehold_core::session::{Session, SessionId};
use leasehold_core::time::Timestamp;

use super::engine::{Entry, KeyRange};
use super::keys::Space;
use super::{OrderedStore, Snapshot, base, rows};
use crate::store::error::StoreError;
use crate::store::port::{NamePart, NamePlace, Occupancy, StoreFuture, StoreReader};
use crate::store::stored;

type Result<T> = std::result::Result<T, StoreError>;

/// The number of rows that one load of a long scan reads.
pub(super) const PAGE_ROWS: usize = 1_000;
/// The number of claims that one load of a list of records reads.
const RECORD_ROWS: usize = 512;

/// Decodes the rules of bucket types.
pub(super) fn bucket_rules(entry: &Entry) -> Result<Vec<BucketRule>> {
    stored::bucket_rules_from_json(&entry.value).map_err(|_| rows::damaged(entry))
}

impl Snapshot<'_> {
    async fn claims(&self, keys: &[BucketKey]) -> Result<Vec<Option<Claim>>> {
        let rows = self.rows(keys.iter().map(|key| self.inner.layout.claim(key)).collect()).await?;
        rows.iter().map(|row| row.as_ref().map(rows::claim).transpose()).collect()
    }

    async fn leases(&self, scan: &LeaseScan) -> Result<Vec<LeaseRow>> {
        let layout = &self.inner.layout;
        let entries = self.first(layout.outstanding_range(scan), scan.limit, false).await?;
        let row = |entry: &Entry| {
            let (_, position) = layout.read_outstanding(&entry.key).ok_or_else(|| rows::damaged(entry))?;
            Ok(rows::decode::<rows::OutstandingPlace>(entry)?.row(position))
        };
        entries.iter().map(row).collect()
    }

    async fn records(&self, scan: &RecordScan) -> Result<RecordPart> {
        let layout = &self.inner.layout;
        let limit = scan.limit.saturating_add(1);
        let mut entries = self.pages(layout.source_range(scan), Space::Sources, limit).await?;
        let has_more = entries.len() > scan.limit;
        entries.truncate(scan.limit);
        let place = |entry: &Entry| layout.read_source(scan, &entry.key).ok_or_else(|| rows::damaged(entry));
        let places = entries.iter().map(place).collect::<Result<Vec<RecordPlace>>>()?;
        let (mut part, mut bytes) = (RecordPart::default(), 0);
        let last = places.last().cloned().filter(|_| has_more);
        for places in places.chunks(RECORD_ROWS) {
            let covered: Vec<_> = places.iter().filter(|place| scan.covers(place.1.bucket_type)).collect();
            let entries = self.rows(covered.iter().map(|place| layout.claim(&place.1)).collect()).await?;
            for (place, entry) in covered.into_iter().zip(entries) {
                if bytes >= scan.max_bytes {
                    return Ok(part);
                }
                match entry.as_ref().map(rows::claim) {
                    Some(Ok(claim)) => {
                        let row = RecordRow { key: place.1.clone(), claim };
                        bytes += row.bytes();
                        part.rows.push(row);
                    }
                    Some(Err(_)) | None => part.damaged.push(place.clone()),
                }
                part.next = Some(place.clone());
            }
        }
        part.next = last;
        Ok(part)
    }

    async fn names(&self, after: NamePlace, limit: usize) -> Result<NamePart> {
        let layout = &self.inner.layout;
        let range = match after {
            NamePlace::Claim(Some(key)) => layout.after(Space::Claims, &layout.claim(&key)),
            NamePlace::Lease(_) | NamePlace::Claim(None) => layout.space(Space::Claims),
        };
        let (entries, mut part) = (self.first(range, limit, false).await?, NamePart::default());
        for entry in &entries {
            let key = layout.read_claim(&entry.key).ok_or_else(|| rows::damaged(entry))?;
            match rows::claim(entry) {
                Ok(claim) => part.push(&key, &claim),
                Err(_) => part.damaged += 1,
            }
            part.next = Some(NamePlace::Claim(Some(key)));
        }
        part.next = part.next.filter(|_| entries.len() == limit);
        Ok(part)
    }

    async fn settled(&self, before: Timestamp, limit: usize) -> Result<Vec<LeaseId>> {
        let layout = &self.inner.layout;
        let entries = self.first(layout.settled_before(before), limit, true).await?;
        let id = |entry: &Entry| layout.read_settled(&entry.key).ok_or_else(|| rows::damaged(entry));
        entries.iter().map(id).collect()
    }

    /// Reads the keys of the first `limit` rows of a range in pages.
    async fn pages(&self, mut range: KeyRange, space: Space, limit: usize) -> Result<Vec<Entry>> {
        let mut all = Vec::new();
        while all.len() < limit {
            let wanted = PAGE_ROWS.min(limit - all.len());
            let entries = self.first(range.clone(), wanted, true).await?;
            let is_last = entries.len() < wanted;
            if let Some(last) = entries.last() {
                range = KeyRange { to: range.to, ..self.inner.layout.after(space, &last.key) };
            }
            all.extend(entries);
            if is_last {
                break;
            }
        }
        Ok(all)
    }

    /// Passes every row of a list to `visit`, in the order of keys.
    pub(super) async fn visit<E: From<StoreError>>(
        &self,
        space: Space,
        mut visit: impl FnMut(&Entry) -> std::result::Result<(), E> + Send,
    ) -> std::result::Result<(), E> {
        let layout = &self.inner.layout;
        let mut range = layout.space(space);
        loop {
            let entries = self.first(range, PAGE_ROWS, false).await?;
            entries.iter().try_for_each(&mut visit)?;
            match entries.last().filter(|_| entries.len() == PAGE_ROWS) {
                Some(last) => range = layout.after(space, &last.key),
                None => return Ok(()),
            }
        }
    }

    /// Passes every row to `visit`, and returns the newest fence. Claims and leases come in the order of their keys.
    pub(super) async fn each_row<E: From<StoreError>>(
        &self,
        mut visit: impl FnMut(AnyRow) -> std::result::Result<(), E> + Send,
    ) -> std::result::Result<Fence, E> {
        let layout = &self.inner.layout;
        let claim = |entry: &Entry| Some(AnyRow::Claim(layout.read_claim(&entry.key)?, rows::claim(entry).ok()?));
        let lease = |entry: &Entry| Some(AnyRow::Lease(layout.read_lease(&entry.key)?, rows::lease(entry).ok()?));
        let replay = |entry: &Entry| Some(AnyRow::Replay(layout.read_replay(&entry.key)?, rows::replay(entry).ok()?));
        self.visit(Space::Claims, |entry| visit(claim(entry).ok_or_else(|| rows::damaged(entry))?)).await?;
        self.visit(Space::Leases, |entry| visit(lease(entry).ok_or_else(|| rows::damaged(entry))?)).await?;
        self.visit(Space::Replays, |entry| visit(replay(entry).ok_or_else(|| rows::damaged(entry))?)).await?;
        // The base is read last, and is never lowered, so the fence is beyond those of all rows.
        let base = base::read(&*self.inner.engine, layout).await?.base;
        Ok(rows::newest_fence(base.fence, self.revision))
    }

    async fn state(&self) -> Result<State> {
        let mut state = State::default();
        let fence = self.each_row(|row| {
            state.insert(row);
            Ok::<_, StoreError>(())
        });
        let fence = fence.await?;
        Ok(State { fence, ..state })
    }

    /// Reads the first key of a range in the list of records: its cell and table.
    async fn first_table(&self, range: KeyRange) -> Result<Option<(CellId, SourceType)>> {
        let entries = self.first(range, 1, true).await?;
        let read = |entry: &Entry| self.inner.layout.read_table(&entry.key).ok_or_else(|| rows::damaged(entry));
        entries.first().map(read).transpose()
    }

    /// Reads the owners of claims. Each costs one lookup, however many claims it owns.
    async fn owners(&self) -> Result<BTreeSet<CellId>> {
        let (mut owners, mut range) = (BTreeSet::new(), self.inner.layout.space(Space::Sources));
        while let Some((cell, _)) = self.first_table(range).await? {
            owners.insert(cell);
            range = self.inner.layout.beyond_cell(cell);
        }
        Ok(owners)
    }

    /// Reads the tables of a cell. Each costs one lookup, however many claims come from it.
    async fn tables(&self, cell: CellId) -> Result<BTreeSet<SourceType>> {
        let (mut tables, mut range) = (BTreeSet::new(), self.inner.layout.tables_of(cell, None));
        while let Some((_, table)) = self.first_table(range).await? {
            tables.insert(table);
            range = self.inner.layout.tables_of(cell, Some(table));
        }
        Ok(tables)
    }
}

/// Returns the answer to a read of rows that this store does not keep.
fn none<'a, T: Default + Send + 'a>() -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(Ok(T::default())))
}

impl StoreReader for OrderedStore {
    fn claims<'a>(&'a self, keys: &'a [BucketKey]) -> StoreFuture<'a, Vec<Option<Claim>>> {
        Box::pin(async move { self.inner.snapshot().await?.claims(keys).await })
    }

    fn leases(&self, scan: LeaseScan) -> StoreFuture<'_, Vec<LeaseRow>> {
        Box::pin(async move { self.inner.snapshot().await?.leases(&scan).await })
    }

    fn records(&self, scan: RecordScan) -> StoreFuture<'_, RecordPart> {
        Box::pin(async move { self.inner.snapshot().await?.records(&scan).await })
    }

    fn names(&self, after: NamePlace, limit: usize) -> StoreFuture<'_, NamePart> {
        Box::pin(async move { self.inner.snapshot().await?.names(after, limit).await })
    }

    fn settled(&self, before: Timestamp, limit: usize) -> StoreFuture<'_, Vec<LeaseId>> {
        Box::pin(async move { self.inner.snapshot().await?.settled(before, limit).await })
    }

    fn sessions(&self, _: OrderedRead<Session>) -> StoreFuture<'_, Vec<(SessionId, Session)>> {
        none()
    }

    fn locks(&self, _: OrderedRead<Lock>) -> StoreFuture<'_, Vec<(LockPath, Lock)>> {
        none()
    }

    fn lock<'a>(&'a self, _: &'a LockPath) -> StoreFuture<'a, Option<Lock>> {
        none()
    }

    fn ask(&self, _: AskId) -> StoreFuture<'_, Option<Ask>> {
        none()
    }

    fn related_asks(&self, _: CircleRead) -> StoreFuture<'_, Vec<(AskId, Ask)>> {
        none()
    }

    fn queues(&self, _: OrderedRead<Queue>) -> StoreFuture<'_, Vec<(QueuePath, Queue)>> {
        none()
    }

    fn queue<'a>(&'a self, _: &'a QueuePath) -> StoreFuture<'a, Option<Queue>> {
        none()
    }

    fn lanes(&self, _: OrderedRead<Lane>) -> StoreFuture<'_, Vec<(LanePath, Lane)>> {
        none()
    }

    fn lane<'a>(&'a self, _: &'a LanePath) -> StoreFuture<'a, Option<Lane>> {
        none()
    }

    fn requests(&self, _: OrderedRead<Request>) -> StoreFuture<'_, Vec<(RequestId, Request)>> {
        none()
    }

    fn request(&self, _: RequestId) -> StoreFuture<'_, Option<Request>> {
        none()
    }

    fn bodies<'a>(&'a self, ids: &'a [RequestId]) -> StoreFuture<'a, Vec<Option<RequestBody>>> {
        Box::pin(std::future::ready(Ok(ids.iter().map(|_| None).collect())))
    }

    fn state(&self) -> StoreFuture<'_, State> {
        Box::pin(async move { self.inner.snapshot().await?.state().await })
    }

    fn owners(&self) -> StoreFuture<'_, BTreeSet<CellId>> {
        Box::pin(async move { self.inner.snapshot().await?.owners().await })
    }

    fn tables(&self, cell: CellId) -> StoreFuture<'_, BTreeSet<SourceType>> {
        Box::pin(async move { self.inner.snapshot().await?.tables(cell).await })
    }

    fn bucket_types(&self) -> StoreFuture<'_, Vec<BucketRule>> {
        Box::pin(async move {
            let row = self.inner.snapshot().await?.row(self.inner.layout.bucket_types()).await?;
            Ok(row.as_ref().map(bucket_rules).transpose()?.unwrap_or_default())
        })
    }

    fn occupancy(&self) -> Occupancy {
        **self.inner.occupancy.load()
    }

    fn is_lost_by(&self, _: &StoreError) -> bool {
        // A read at another member may succeed, and the probe notices an outage.
        false
    }
}

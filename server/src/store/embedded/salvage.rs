//! Reads of a damaged store, for `leasehold export --salvage`.
//!
//! A scan of fjall can't continue after a damaged block, because it could miss rows or find old
//! versions of them. So a keyspace is scanned from both ends, each time up to the first damaged
//! block. The keys of the rows in the gap between come from another keyspace, and each of these rows
//! is read by its key. The keys of claims are in `sources`, those of settled leases in
//! `settled_order`, and idempotency keys in the leases. Sessions, locks, lanes and requests are in
//! keyspaces with their order, and requests name their bodies. No other keyspace has the keys of outstanding leases, asks and turns, so their rows
//! in a gap are lost.
//!
//! If entries of the journal are lost, rows of different times stand side by side: `lease_salvage`,
//! `lock_salvage` and `queue_salvage` make them fit together.

use std::collections::BTreeSet;
use std::path::Path;

use fjall::{Slice, Snapshot};
use leasehold_core::bucket::BucketKey;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, Record};
use leasehold_core::lease::{Fence, Lease, LeaseId};
use leasehold_core::lock::{Ask, Turn};
use leasehold_core::queue::{Queue, Request, RequestBody, RequestId};
use leasehold_core::rows::{AnyRow, State};

use super::keyed_rows::{self, KeyedRow};
use super::lease_salvage::{self, Agreed};
use super::locks::Locks;
use super::outstanding::Outstanding;
use super::queues::Queues;
use super::rows::{Keyspace, resting};
use super::salvage_copy::SalvageCopy;
use super::search::Search;
use super::{CorrectedByte, EmbeddedStore, Inner, Result, keys, lock_salvage, queue_salvage};
use crate::store::error::StoreError;
use crate::store::identity::RESTORE_JUMP;

/// The result of a salvage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salvaged {
    /// The newest fence.
    pub fence: Fence,
    /// The number of rows that can't be read. A gap whose rows can't be counted counts as one row.
    pub damaged: u64,
    /// False if more rows than `damaged` may be missing, because those of a gap can't be counted.
    pub is_exact: bool,
}

/// The part of a keyspace that neither of the two scans reached.
struct Gap {
    /// The last key before the gap; `None` if the gap begins with the keyspace.
    after: Option<Slice>,
    /// The first key after the gap; `None` if the gap ends with the keyspace.
    before: Option<Slice>,
}

impl Gap {
    fn contains(&self, key: &[u8]) -> bool {
        self.after.as_ref().is_none_or(|after| key > &after[..])
            && self.before.as_ref().is_none_or(|before| key < &before[..])
    }
}

/// A salvage that is under way.
pub(super) struct Salvage<'a> {
    inner: &'a Inner,
    snapshot: Snapshot,
    damaged: u64,
    is_exact: bool,
    // True if entries of the journal are lost.
    lacks_entries: bool,
}

impl Salvage<'_> {
    /// Returns the claim as it is at rest, if its row is there and can be read.
    pub(super) fn at_rest(&self, key: &BucketKey) -> Result<Option<(CellId, Record)>> {
        let claim = if_intact(self.inner.resting_claim_in(&self.snapshot, key))?.flatten();
        Ok(claim.and_then(|claim| resting(&claim).map(|(owner, record)| (owner, record.clone()))))
    }

    /// True if the lease has a row among the settled ones.
    pub(super) fn is_settled(&self, id: LeaseId) -> Result<bool> {
        Ok(if_intact(self.inner.settled_lease(id))?.flatten().is_some())
    }

    /// Returns the value that was read. If the value is damaged, counts it and returns `None`.
    fn intact<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(StoreError::Damaged(error)) => {
                eprintln!("left out: {error}");
                self.damaged += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Passes the rows of a keyspace to `visit`: from its begin up to the first damaged block, then
    /// from its end back to the last one. Returns the gap between; `None` if no block is damaged.
    fn scan<E: From<StoreError>>(
        &mut self,
        keyspace: &Keyspace,
        mut visit: impl FnMut(&mut Self, &Slice, &Slice) -> std::result::Result<(), E>,
    ) -> std::result::Result<Option<Gap>, E> {
        let snapshot = self.snapshot.clone();
        let mut gap = Gap { after: None, before: None };
        let mut is_damaged = false;
        for row in keyspace.range::<&[u8]>(&snapshot, ..) {
            let Some((key, value)) = undamaged(row)? else {
                is_damaged = true;
                break;
            };
            visit(self, &key, &value)?;
            gap.after = Some(key);
        }
        if !is_damaged {
            return Ok(None);
        }
        for row in keyspace.range_back::<&[u8]>(&snapshot, ..) {
            let Some((key, value)) = undamaged(row)?.filter(|(key, _)| gap.contains(key)) else { break };
            visit(self, &key, &value)?;
            gap.before = Some(key);
        }
        Ok(Some(gap))
    }

    /// Passes the rows of a keyspace to `visit`. The rows of a gap can't be counted.
    fn visit_rows<E: From<StoreError>>(
        &mut self,
        keyspace: &Keyspace,
        visit: impl FnMut(&mut Self, &Slice, &Slice) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if self.scan(keyspace, visit)?.is_some() {
            self.intact::<()>(Err(keyspace.damaged()))?;
            self.is_exact = false;
        }
        Ok(())
    }

    /// Passes the keys of a keyspace to `visit`, as [`visit_rows`](Self::visit_rows) does.
    fn visit_keys<E: From<StoreError>>(
        &mut self,
        keyspace: &Keyspace,
        mut visit: impl FnMut(&mut Self, &Slice) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.visit_rows(keyspace, |salvage, key, _| visit(salvage, key))
    }

    /// Reads the outstanding leases with their claims.
    fn outstanding(&mut self) -> Result<Agreed> {
        let (inner, mut rows) = (self.inner, Vec::new());
        self.visit_rows(&inner.outstanding, |salvage, key, value| {
            rows.extend(salvage.intact(inner.held_row(key, value))?);
            Ok::<_, StoreError>(())
        })?;
        let agreed = lease_salvage::agree(rows, self)?;
        agreed.ended.iter().for_each(|id| eprintln!("left out: lease {id}, which later rows show to have ended"));
        Ok(agreed)
    }

    fn visit_claims<E: From<StoreError>>(
        &mut self,
        Agreed { held, kept, .. }: &Agreed,
        visit: &mut impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let inner = self.inner;
        let gap = self.scan(&inner.claims, |salvage, key, value| {
            let bucket = keys::read_claim(key).ok_or_else(|| inner.claims.damaged());
            let Some(bucket) = salvage.intact(bucket)? else { return Ok(()) };
            salvage.visit_claim(held, bucket, || inner.decode_claim(value), visit)
        })?;
        if let Some(gap) = gap {
            self.visit_keys(&inner.sources, |salvage, key| {
                let bucket = keys::read_source(key).ok_or_else(|| inner.sources.damaged());
                let Some(bucket) = salvage.intact(bucket)? else { return Ok(()) };
                if !gap.contains(&keys::claim(&bucket)) {
                    return Ok(());
                }
                let snapshot = salvage.snapshot.clone();
                let read = || inner.listed_claim(&snapshot, &bucket);
                salvage.visit_claim(held, bucket.clone(), read, visit)
            })?;
        }
        held.claims().chain(kept).try_for_each(|(key, claim)| visit(AnyRow::Claim(key.clone(), claim.clone())))
    }

    /// Passes a claim at rest to `visit`. Leaves out a claim that an outstanding lease holds.
    fn visit_claim<E: From<StoreError>>(
        &mut self,
        held: &Outstanding,
        bucket: BucketKey,
        read: impl FnOnce() -> Result<Claim>,
        visit: &mut impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if held.claim(&bucket).is_some() {
            return Ok(());
        }
        let claim = self.intact(read())?;
        claim.map_or(Ok(()), |claim| visit(AnyRow::Claim(bucket, claim)))
    }

    fn visit_leases<E: From<StoreError>>(
        &mut self,
        held: &Outstanding,
        visit: &mut impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        for (id, lease) in held.leases() {
            self.visit_lease(*id, lease.clone(), visit)?;
        }
        let inner = self.inner;
        let gap = self.scan(&inner.settled, |salvage, key, value| {
            let id = keys::read_lease(key).ok_or_else(|| inner.settled.damaged());
            let Some(id) = salvage.intact(id)? else { return Ok(()) };
            let lease = salvage.intact(inner.decode_lease(value))?;
            lease.map_or(Ok(()), |lease| salvage.visit_lease(id, lease, visit))
        })?;
        let Some(gap) = gap else { return Ok(()) };
        self.visit_keys(&inner.settled_order, |salvage, key| {
            let id = keys::read_settled(key).map(|(_, id)| id).ok_or_else(|| inner.settled_order.damaged());
            let id = salvage.intact(id)?.filter(|id| gap.contains(keys::lease(*id).as_ref()));
            let Some(id) = id else { return Ok(()) };
            let lease = inner.settled_lease(id).and_then(|lease| lease.ok_or_else(|| inner.settled.damaged()));
            let lease = salvage.intact(lease)?;
            lease.map_or(Ok(()), |lease| salvage.visit_lease(id, lease, visit))
        })
    }

    /// Passes the rows of a kind to `visit`. Their keys come from the keyspace that has their order,
    /// unless keys may be lost there.
    fn visit_listed<K: KeyedRow, E: From<StoreError>>(
        &mut self,
        (rows, order): (&Keyspace, &Keyspace),
        visit: &mut impl FnMut(K::Key, K) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if self.lacks_entries {
            return self.visit_kind(rows, visit);
        }
        self.visit_rows(order, |salvage, key, value| {
            let key = K::read_position(key, value).ok_or_else(|| order.damaged());
            let Some(key) = salvage.intact(key)? else { return Ok(()) };
            let row = keyed_rows::listed::<K>((rows, order), &salvage.snapshot, key);
            let row = salvage.intact(row)?;
            row.map_or(Ok(()), |(key, row)| visit(key, row))
        })
    }

    /// Passes the rows of a kind that no other keyspace lists to `visit`.
    fn visit_kind<K: KeyedRow, E: From<StoreError>>(
        &mut self,
        rows: &Keyspace,
        visit: &mut impl FnMut(K::Key, K) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.visit_rows(rows, |salvage, key, value| {
            let row = K::read_key(key).ok_or_else(|| rows.damaged()).and_then(|key| Ok((key, K::read(rows, value)?)));
            salvage.intact(row)?.map_or(Ok(()), |(key, row)| visit(key, row))
        })
    }

    fn visit_locks<E: From<StoreError>>(
        &mut self,
        visit: &mut impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let Locks { sessions, session_order, locks, lock_order, asks, turns, .. } = &self.inner.locks;
        let (mut state, damaged) = (State { fence: self.inner.fence()?, ..State::default() }, self.damaged);
        let mut add = |row| {
            state.insert(row);
            Ok::<_, E>(())
        };
        self.visit_listed((sessions, session_order), &mut |id, row| add(AnyRow::Session(id, row)))?;
        self.visit_listed((locks, lock_order), &mut |path, row| add(AnyRow::Lock(path, row)))?;
        self.visit_kind::<Ask, E>(asks, &mut |id, row| add(AnyRow::Ask(id, row)))?;
        self.visit_kind::<Turn, E>(turns, &mut |key, row| add(AnyRow::Turn(key, row)))?;
        if self.damaged > damaged || self.lacks_entries {
            lock_salvage::repair(&mut state);
        }
        let State { sessions, locks, asks, turns, .. } = state;
        sessions.into_iter().try_for_each(|(id, row)| visit(AnyRow::Session(id, row)))?;
        locks.into_iter().try_for_each(|(path, row)| visit(AnyRow::Lock(path, row)))?;
        asks.into_iter().try_for_each(|(id, row)| visit(AnyRow::Ask(id, row)))?;
        turns.into_iter().try_for_each(|(key, row)| visit(AnyRow::Turn(key, row)))
    }

    /// Passes the rows of queues to `visit`. The bodies of requests are read by key, so a gap among them costs no
    /// others.
    fn visit_queues<E: From<StoreError>>(
        &mut self,
        visit: &mut impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let Queues { queues, lanes, lane_order, requests, request_order, .. } = &self.inner.queues;
        let (mut state, damaged) = (State::default(), self.damaged);
        let mut add = |row| {
            state.insert(row);
            Ok::<_, E>(())
        };
        self.visit_kind::<Queue, E>(queues, &mut |path, row| add(AnyRow::Queue(path, row)))?;
        self.visit_listed((lanes, lane_order), &mut |path, row| add(AnyRow::Lane(path, row)))?;
        self.visit_listed((requests, request_order), &mut |id, row| add(AnyRow::Request(id, row)))?;
        let mut lost = BTreeSet::new();
        for (id, request) in &state.requests {
            if self.body(*id, request)?.is_none() {
                lost.insert(*id);
            }
        }
        if self.damaged > damaged || self.lacks_entries {
            queue_salvage::repair(&mut state, &lost);
        }
        let State { queues, lanes, requests, .. } = state;
        queues.into_iter().try_for_each(|(path, row)| visit(AnyRow::Queue(path, row)))?;
        lanes.into_iter().try_for_each(|(path, row)| visit(AnyRow::Lane(path, row)))?;
        requests.iter().try_for_each(|(id, row)| visit(AnyRow::Request(*id, row.clone())))?;
        for id in requests.into_keys() {
            let body = keyed_rows::get::<RequestBody>(&self.inner.queues.bodies, &id)?;
            body.map_or(Ok(()), |body| visit(AnyRow::RequestBody(id, body)))?;
        }
        Ok(())
    }

    /// Reads the body of a request. A body that is missing or another's counts as damaged, unless an entry that is lost
    /// may have had it: that entry counts.
    fn body(&mut self, id: RequestId, request: &Request) -> Result<Option<RequestBody>> {
        let bodies = &self.inner.queues.bodies;
        let body = keyed_rows::get::<RequestBody>(bodies, &id);
        if self.lacks_entries && matches!(body, Ok(None)) {
            return Ok(None);
        }
        let body =
            body.and_then(|body| body.filter(|body| body.digest() == request.body).ok_or_else(|| bodies.damaged()));
        self.intact(body)
    }

    /// Passes a lease and the row of its idempotency key to `visit`.
    fn visit_lease<E: From<StoreError>>(
        &mut self,
        id: LeaseId,
        lease: Lease,
        visit: &mut impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let key = lease.idempotency_key.clone();
        visit(AnyRow::Lease(id, lease))?;
        let Some(key) = key else { return Ok(()) };
        let replay = self.inner.replay(&key);
        // An entry that is lost may have forgotten the lease, and a later begin may have the key.
        let replay = self.intact(replay)?.flatten().filter(|replay| replay.lease == id);
        replay.map_or(Ok(()), |replay| visit(AnyRow::Replay(key, replay)))
    }
}

/// Returns the value that was read; `None` if it is damaged. The scan of its keyspace counts it.
fn if_intact<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(StoreError::Damaged(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the row that was read; `None` if its block is damaged.
fn undamaged<T>(row: Result<T>) -> Result<Option<T>> {
    match row {
        Ok(row) => Ok(Some(row)),
        Err(StoreError::Damaged(error)) => {
            eprintln!("damaged: {error}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A store that may be damaged, for [`salvage`](Self::salvage).
pub struct DamagedStore {
    // The first field, because it is dropped before the copy whose files it reads.
    pub(super) store: EmbeddedStore,
    /// The number of entries that the journal lacks.
    pub(super) lost_entries: u64,
    pub(super) _copy: Option<SalvageCopy>,
}

impl DamagedStore {
    /// Opens a store that may be damaged. Before, corrects changed bytes in its files. If entries of
    /// the journal are damaged or missing, opens a copy of the store without them.
    ///
    /// # Errors
    /// A server uses the directory, a file that names the other files is damaged, or the disk failed.
    pub fn open(dir: &Path) -> Result<Self> {
        for CorrectedByte { path, at } in EmbeddedStore::correct_bytes(dir, &mut Search::of_command())? {
            eprintln!("corrected: byte {at} of `{}`", path.display());
        }
        match EmbeddedStore::inspect(dir) {
            Err(StoreError::RowsDamaged { faults, .. }) => {
                let opened = EmbeddedStore::open_rest(dir)?;
                eprintln!("left out: {} entries of the journal: {faults}", opened.lost_entries);
                Ok(opened)
            }
            opened => Ok(Self { store: opened?, lost_entries: 0, _copy: None }),
        }
    }

    /// Returns the version of the stored rows.
    ///
    /// # Errors
    /// The version could not be read.
    pub fn format(&self) -> Result<u64> {
        self.store.format()
    }

    /// Passes every row that can be read to `visit`: claims, then leases, each followed by the row
    /// of its idempotency key, then sessions, locks, asks and turns, then queues, lanes, requests and
    /// bodies.
    ///
    /// # Errors
    /// The disk failed, or `visit` failed.
    pub fn salvage<E: From<StoreError>>(
        &self,
        mut visit: impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<Salvaged, E> {
        let inner = &*self.store.inner;
        let (snapshot, damaged, lacks_entries) = (inner.database.snapshot(), self.lost_entries, self.lost_entries > 0);
        let mut salvage = Salvage { inner, snapshot, damaged, is_exact: !lacks_entries, lacks_entries };
        let agreed = salvage.outstanding()?;
        salvage.visit_claims(&agreed, &mut visit)?;
        salvage.visit_leases(&agreed.held, &mut visit)?;
        salvage.visit_locks(&mut visit)?;
        salvage.visit_queues(&mut visit)?;
        // Fences that the lost entries gave out must not be given out again (B13).
        let jump = if lacks_entries { RESTORE_JUMP } else { 0 };
        let fence = Fence(inner.fence()?.0.saturating_add(jump));
        Ok(Salvaged { fence, damaged: salvage.damaged, is_exact: salvage.is_exact })
    }
}

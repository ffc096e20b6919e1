//! The reference store: maps in memory. The conformance suite compares other stores with this one.
//! Tests, simulations and packages for other languages also run on it.
//!
//! ```
//! use leasehold_core::batch::{ClaimRequest, UpdateRequest};
//! use leasehold_core::bucket::BucketType;
//! use leasehold_core::cell::CellId;
//! use leasehold_core::claim::{Source, SourceId, SourceType, Subject};
//! use leasehold_core::lease::{LeaseId, Outcome};
//! use leasehold_core::memory::MemoryStore;
//! use leasehold_core::rules::Rules;
//! use leasehold_core::store::Store;
//! use leasehold_core::time::Timestamp;
//! use leasehold_core::update::{begin, settle};
//!
//! let rules = Rules { cells: [CellId(1)].into(), ..Rules::default() };
//! let mut store = MemoryStore::default();
//!
//! // The cell begins the update. From here on the cell owns the name.
//! let alice = ClaimRequest {
//!     bucket_type: BucketType(4),
//!     value: "Alice".into(),
//!     subject: Some(Subject { subject_type: 4, id: 7 }),
//!     source: Some(Source { source_type: SourceType(1), id: SourceId::from(7) }),
//!     user_data: None,
//! };
//! let update = UpdateRequest { creates: vec![alice], destroys: vec![] };
//! let lease = LeaseId(uuid::Uuid::from_u128(1));
//! let command = rules.begin(CellId(1), update, None, lease).unwrap();
//! begin(&mut store, &command, Timestamp::from_micros(1)).unwrap().unwrap();
//!
//! // The cell has committed its own transaction. It now commits the lease.
//! let command = rules.settle(CellId(1), &lease.to_string(), Outcome::Committed).unwrap();
//! settle(&mut store, &command, Timestamp::from_micros(2)).unwrap().unwrap();
//!
//! let key = rules.catalogue.bucket(BucketType(4), "alice".into()).unwrap().key;
//! let claim = Store::claim(&store, &key).unwrap().unwrap();
//! assert_eq!((claim.owner, &*claim.record().spelling), (CellId(1), "Alice"));
//! ```

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::bucket::BucketKey;
use crate::claim::{Claim, SourceId, SourceType};
use crate::command::Fences;
use crate::lease::{Fence, Lease, LeaseId};
use crate::lock::{Lock, LockPath};
use crate::query::{
    LeasePosition, LeaseRow, LeaseScan, RecordPart, RecordPlace, RecordPosition, RecordRow, RecordScan,
};
use crate::queue::{Lane, LanePath, Queue, QueuePath, Request, RequestBody, RequestId};
use crate::rows::{Changes, Keys, Kind, LeaseOrder, NetChanges, OrderedRead, SortedRows, State, Tables, Workspace};
use crate::session::{Session, SessionId};
use crate::store::Store;
use crate::time::Timestamp;
use crate::transaction::{BrokenState, Transaction};

/// A store that keeps its rows in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    tables: Tables,
}

impl MemoryStore {
    /// Returns all rows of a kind, by key.
    pub fn rows<K: Kind>(&self) -> BTreeMap<K::Key, K> {
        self.tables.rows()
    }

    /// Returns all rows of a kind in the order of their keys, without copies.
    pub fn sorted_rows<K: Kind>(&self) -> SortedRows<'_, K> {
        self.tables.sorted_rows()
    }
}

impl Transaction for MemoryStore {
    type Error = BrokenState;

    fn row<K: Kind>(&self, key: &K::Key) -> Result<Option<&K>, BrokenState> {
        Ok(self.tables.row(key))
    }

    fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Result<Vec<K::Key>, BrokenState> {
        Ok(self.tables.first(read).into_iter().map(|(key, _)| key).collect())
    }

    fn last_fence(&self) -> Result<Fence, BrokenState> {
        Ok(self.tables.fence())
    }

    fn write(&mut self, changes: Changes) -> Result<(), BrokenState> {
        self.tables.write(changes);
        Ok(())
    }
}

impl Store for MemoryStore {
    type Error = BrokenState;

    fn workspace(&self) -> Result<Workspace, BrokenState> {
        Ok(Workspace::new(self.tables.fence()))
    }

    fn load(&self, keys: Keys, into: &mut Workspace) -> Result<(), BrokenState> {
        self.tables.load(keys, into);
        Ok(())
    }

    fn save(&mut self, changes: &NetChanges) -> Result<Fences, BrokenState> {
        self.tables.save(changes);
        Ok(Fences::default())
    }

    fn claim(&self, key: &BucketKey) -> Result<Option<Claim>, BrokenState> {
        Ok(self.tables.row::<Claim>(key).cloned())
    }

    fn leases(&self, scan: &LeaseScan) -> Result<Vec<LeaseRow>, BrokenState> {
        let place = |at: LeasePosition| LeaseOrder::Outstanding(scan.cell, at.created_at, at.lease);
        let first = LeasePosition { created_at: Timestamp::MIN, lease: LeaseId(uuid::Uuid::nil()) };
        let last = LeasePosition { created_at: Timestamp::MAX, lease: LeaseId(uuid::Uuid::max()) };
        let from = match scan.from {
            Bound::Unbounded => Bound::Included(place(first)),
            bound => bound.map(place),
        };
        let rows = self.tables.first(&OrderedRead { from, to: Bound::Included(place(last)), limit: scan.limit });
        let row = |(id, lease): (LeaseId, Lease)| LeaseRow {
            position: LeasePosition { created_at: lease.created_at, lease: id },
            updated_at: lease.updated_at,
            organization: lease.organization,
        };
        Ok(rows.into_iter().map(row).collect())
    }

    fn records(&self, scan: &RecordScan) -> Result<RecordPart, BrokenState> {
        let position = |(id, key): RecordPlace| (scan.cell, scan.source_type, id, key);
        let from = scan.after.bound().map(position);
        let end = match scan.source_id_lte.is_empty() {
            true => scan.source_type.0.checked_add(1).map(|next| (SourceType(next), SourceId::default())),
            false => match RecordPosition::Source(scan.source_id_lte.clone()).bound() {
                Bound::Included((id, _)) | Bound::Excluded((id, _)) => Some((scan.source_type, id)),
                Bound::Unbounded => None,
            },
        };
        let to =
            end.map_or(Bound::Unbounded, |(table, id)| Bound::Excluded((scan.cell, table, id, BucketKey::first())));
        let rows = self.tables.first::<Claim>(&OrderedRead { from, to, limit: scan.limit.saturating_add(1) });
        let (mut part, mut bytes) = (RecordPart::default(), 0);
        // A range without an end goes on into the claims of the cells with higher numbers, so these
        // are left out here.
        let own = rows.into_iter().take_while(|(_, claim)| claim.owner == scan.cell);
        for (looked_at, (key, claim)) in own.enumerate() {
            if looked_at == scan.limit || bytes >= scan.max_bytes {
                return Ok(part);
            }
            part.next = Some((claim.record().source.id.clone(), key.clone()));
            if scan.covers(key.bucket_type) {
                let row = RecordRow { key, claim };
                bytes += row.bytes();
                part.rows.push(row);
            }
        }
        part.next = None;
        Ok(part)
    }

    fn settled(&self, before: Timestamp, limit: usize) -> Result<Vec<LeaseId>, BrokenState> {
        let place = |at| LeaseOrder::Settled(at, LeaseId(uuid::Uuid::nil()));
        let (from, to) = (Bound::Included(place(Timestamp::MIN)), Bound::Excluded(place(before)));
        self.first::<Lease>(&OrderedRead { from, to, limit })
    }

    fn sessions(&self, read: &OrderedRead<Session>) -> Result<Vec<(SessionId, Session)>, BrokenState> {
        Ok(self.tables.first(read))
    }

    fn locks(&self, read: &OrderedRead<Lock>) -> Result<Vec<(LockPath, Lock)>, BrokenState> {
        Ok(self.tables.first(read))
    }

    fn lock(&self, path: &LockPath) -> Result<Option<Lock>, BrokenState> {
        Ok(self.tables.row::<Lock>(path).cloned())
    }

    fn queues(&self, read: &OrderedRead<Queue>) -> Result<Vec<(QueuePath, Queue)>, BrokenState> {
        Ok(self.tables.first(read))
    }

    fn lanes(&self, read: &OrderedRead<Lane>) -> Result<Vec<(LanePath, Lane)>, BrokenState> {
        Ok(self.tables.first(read))
    }

    fn requests(&self, read: &OrderedRead<Request>) -> Result<Vec<(RequestId, Request)>, BrokenState> {
        Ok(self.tables.first(read))
    }

    fn bodies(&self, requests: &[RequestId]) -> Result<Vec<Option<RequestBody>>, BrokenState> {
        Ok(requests.iter().map(|id| self.tables.row::<RequestBody>(id).cloned()).collect())
    }

    fn state(&self) -> Result<State, BrokenState> {
        Ok(self.tables.state())
    }
}

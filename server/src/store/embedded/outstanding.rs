//! Outstanding leases and their claims, in memory. Lists and settles of leases read only this
//! memory, so they never scan past deleted rows on disk (B33). On disk each lease is one row.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use leasehold_core::bucket::BucketKey;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, Record, SourceId, SourceType};
use leasehold_core::lease::{Lease, LeaseId};
use leasehold_core::query::{LeasePosition, LeaseRow, LeaseScan, RecordPlace, RecordScan};
use leasehold_core::time::Timestamp;
use rustc_hash::FxHashMap;

type SourceKey = (CellId, SourceType, SourceId, BucketKey);

/// One part of a scan of records: its claims under leases.
#[derive(Debug, Default)]
pub(super) struct HeldPart {
    /// The claim at each place. The value is `None` at the former place of a claim whose lease
    /// moves it to another source.
    pub(super) claims: BTreeMap<RecordPlace, Option<Claim>>,
    /// The last place of the part; `None` if the part reaches the end of the scan.
    pub(super) last: Option<RecordPlace>,
}

/// Outstanding leases and their claims, with the indexes that lists read.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    claims: FxHashMap<BucketKey, Claim>,
    // The keys of the claims under leases, in the order of `ListRecords`. If a lease changes a
    // claim's source, the claim has two keys.
    sources: BTreeSet<SourceKey>,
    leases: FxHashMap<LeaseId, Lease>,
    // The rows of `ListLeases`, in its order.
    rows: BTreeMap<(CellId, LeasePosition), LeaseRow>,
}

impl Outstanding {
    pub(super) fn claim(&self, key: &BucketKey) -> Option<&Claim> {
        self.claims.get(key)
    }

    pub(super) fn lease(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.get(&id)
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = (&BucketKey, &Claim)> {
        self.claims.iter()
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = (&LeaseId, &Lease)> {
        self.leases.iter()
    }

    /// The number of outstanding leases, and the number of claims under them.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.leases.len(), self.claims.len())
    }

    /// The time when the oldest outstanding lease was begun; `None` if there is none.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.oldest_of_each().map(|(_, created_at)| created_at).min()
    }

    /// The cells that have an outstanding lease.
    pub(super) fn cells(&self) -> impl Iterator<Item = CellId> {
        self.oldest_of_each().map(|(cell, _)| cell)
    }

    /// Returns each cell that has an outstanding lease, with the time when its oldest one was
    /// begun. In the order of the index this is the first lease of the cell, so each cell costs one
    /// lookup.
    fn oldest_of_each(&self) -> impl Iterator<Item = (CellId, Timestamp)> {
        let last = LeasePosition { created_at: Timestamp::MAX, lease: LeaseId(uuid::Uuid::max()) };
        let first = move |from| self.rows.range((from, Bound::Unbounded)).next().map(|((cell, at), _)| (*cell, *at));
        let next = move |(cell, _): &(CellId, _)| first(Bound::Excluded((*cell, last)));
        std::iter::successors(first(Bound::Unbounded), next).map(|(cell, at)| (cell, at.created_at))
    }

    /// Returns the tables from which a cell has claims under leases. Each table costs one lookup.
    pub(super) fn tables(&self, cell: CellId) -> impl Iterator<Item = SourceType> {
        let first = move |table: SourceType| {
            let from = (cell, table, SourceId::default(), BucketKey::first());
            self.sources.range(from..).next().filter(|key| key.0 == cell).map(|key| key.1)
        };
        let next = move |table: &SourceType| first(SourceType(table.0.checked_add(1)?));
        std::iter::successors(first(SourceType(1)), next)
    }

    /// Sets the claim on a bucket: the claim is stored if it is under a lease, else the bucket's
    /// entry is removed.
    pub(super) fn put_claim(&mut self, key: &BucketKey, claim: Option<&Claim>) {
        if let Some(before) = self.claims.remove(key) {
            source_keys(key, &before).for_each(|key| {
                self.sources.remove(&key);
            });
        }
        if let Some(claim) = claim.filter(|claim| claim.hold().is_some()) {
            self.sources.extend(source_keys(key, claim));
            self.claims.insert(key.clone(), claim.clone());
        }
    }

    /// Sets a lease: it is stored if it is outstanding, else its entry is removed.
    pub(super) fn put_lease(&mut self, id: LeaseId, lease: Option<&Lease>) {
        let position = |lease: &Lease| (lease.cell, LeasePosition { created_at: lease.created_at, lease: id });
        if let Some(before) = self.leases.remove(&id) {
            self.rows.remove(&position(&before));
        }
        if let Some(lease) = lease.filter(|lease| lease.outcome().is_none()) {
            let (cell, position) = position(lease);
            let row = LeaseRow { position, updated_at: lease.updated_at, organization: lease.organization };
            self.rows.insert((cell, position), row);
            self.leases.insert(id, lease.clone());
        }
    }

    /// Returns at most `scan.limit` leases of a cell, in the order of `ListLeases` (B31).
    pub(super) fn page(&self, scan: &LeaseScan) -> Vec<LeaseRow> {
        let first = LeasePosition { created_at: Timestamp::MIN, lease: LeaseId(uuid::Uuid::nil()) };
        let from = match scan.from {
            Bound::Included(position) => Bound::Included((scan.cell, position)),
            Bound::Excluded(position) => Bound::Excluded((scan.cell, position)),
            Bound::Unbounded => Bound::Included((scan.cell, first)),
        };
        let rows = self.rows.range((from, Bound::Unbounded)).take_while(|((cell, _), _)| *cell == scan.cell);
        rows.take(scan.limit).map(|(_, row)| *row).collect()
    }

    /// Returns the claims under leases for the next part of a scan (B32). Looks at `scan.limit`
    /// claims at most.
    pub(super) fn records(&self, scan: &RecordScan) -> HeldPart {
        let from = scan.after.bound().map(|(id, key)| (scan.cell, scan.source_type, id, key));
        let is_covered = |key: &&SourceKey| key.0 == scan.cell && key.1 == scan.source_type && scan.reaches(&key.2);
        let places = self.sources.range((from, Bound::Unbounded)).take_while(is_covered).take(scan.limit);
        let mut part = HeldPart::default();
        let mut looked_at = 0;
        for (_, _, id, key) in places {
            looked_at += 1;
            let place = (id.clone(), key.clone());
            if looked_at == scan.limit {
                part.last = Some(place.clone());
            }
            if scan.covers(key.bucket_type) {
                let claim = self.claims.get(key).filter(|claim| {
                    let source = &claim.record().source;
                    (source.source_type, &source.id) == (scan.source_type, id)
                });
                part.claims.insert(place, claim.cloned());
            }
        }
        part
    }
}

/// Returns the keys in `sources` of a claim: one for the source of each of its records.
fn source_keys(key: &BucketKey, claim: &Claim) -> impl Iterator<Item = SourceKey> {
    let source = |record: &Record| (claim.owner, record.source.source_type, record.source.id.clone(), key.clone());
    claim.records().map(source)
}

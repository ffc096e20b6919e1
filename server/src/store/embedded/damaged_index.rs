//! Reads of claims at rest past a damaged block of their index, the keyspace `sources`.
//!
//! fjall can't continue a scan after a damaged block. So these reads look at the rows of all claims
//! instead: the answers are complete, but take as long as a scan of the store.

use std::collections::BTreeSet;
use std::ops::Bound;

use fjall::Snapshot;
use leasehold_core::bucket::BucketKey;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Record, SourceType};
use leasehold_core::query::{RecordPlace, RecordScan};

use super::{Inner, Result, keys, rows};
use crate::store::error::StoreError;

/// The places of claims at rest in a part of a scan.
#[derive(Debug, Default)]
pub(super) struct RestingPlaces {
    pub(super) places: BTreeSet<RecordPlace>,
    /// The place after which the scan goes on; `None` at the end of the scan.
    pub(super) next: Option<RecordPlace>,
    /// True if the index is damaged, so that the places come from the rows of all claims.
    pub(super) is_index_damaged: bool,
    /// The number of claims that the scan of all claims could not read, those of other tables too.
    pub(super) damaged: usize,
}

impl Inner {
    /// Returns the result of a read of the index. If a block of the index is damaged, logs it and
    /// returns the result of a read of all claims.
    pub(super) fn indexed_or<T>(&self, indexed: Result<T>, of_claims: impl FnOnce() -> Result<T>) -> Result<T> {
        let Err(StoreError::Damaged(error)) = indexed else { return indexed };
        tracing::error!(
            error,
            "an index of claims is damaged, so all claims are read: make a new store by `export` and `import`"
        );
        of_claims()
    }

    /// Passes the owner, bucket and record of each claim at rest to `visit`. Returns the number of
    /// rows that can't be decoded, so that nobody knows their owners.
    fn visit_resting(&self, snapshot: &Snapshot, mut visit: impl FnMut(CellId, BucketKey, &Record)) -> Result<usize> {
        let mut damaged = 0;
        for row in self.claims.range::<&[u8]>(snapshot, ..) {
            let (key, value) = row?;
            let claim = keys::read_claim(&key).zip(self.decode_claim(&value).ok());
            let Some((key, claim)) = claim else {
                damaged += 1;
                continue;
            };
            if let Some((owner, record)) = rows::resting(&claim) {
                visit(owner, key, record);
            }
        }
        Ok(damaged)
    }

    /// Returns the first `scan.limit` places of claims at rest in a scan that reaches to `last` at
    /// most. Keeps no more places in memory.
    pub(super) fn places_of_claims(
        &self,
        snapshot: &Snapshot,
        scan: &RecordScan,
        last: Option<RecordPlace>,
    ) -> Result<RestingPlaces> {
        let after = scan.after.bound();
        let (mut places, mut is_cut) = (BTreeSet::new(), false);
        let damaged = self.visit_resting(snapshot, |owner, key, record| {
            let (is_of_table, id) =
                ((owner, record.source.source_type) == (scan.cell, scan.source_type), &record.source.id);
            if !is_of_table || !scan.covers(key.bucket_type) || !scan.reaches(id) {
                return;
            }
            let place = (id.clone(), key);
            if is_beyond(&place, &after) && last.as_ref().is_none_or(|last| place <= *last) {
                places.insert(place);
            }
            if places.len() > scan.limit {
                places.pop_last();
                is_cut = true;
            }
        })?;
        let next = if is_cut { places.last().cloned() } else { last };
        Ok(RestingPlaces { places, next, is_index_damaged: true, damaged })
    }

    /// Returns the owners of the claims at rest.
    pub(super) fn owners_of_claims(&self, snapshot: &Snapshot) -> Result<BTreeSet<CellId>> {
        let mut owners = BTreeSet::new();
        self.visit_resting(snapshot, |owner, _, _| {
            owners.insert(owner);
        })?;
        Ok(owners)
    }

    /// Returns the tables from which a cell has claims at rest.
    pub(super) fn tables_of_claims(&self, snapshot: &Snapshot, cell: CellId) -> Result<BTreeSet<SourceType>> {
        let mut tables = BTreeSet::new();
        self.visit_resting(snapshot, |owner, _, record| {
            if owner == cell {
                tables.insert(record.source.source_type);
            }
        })?;
        Ok(tables)
    }
}

/// True if the place lies in a range that begins at this bound.
fn is_beyond(place: &RecordPlace, after: &Bound<RecordPlace>) -> bool {
    match after {
        Bound::Included(first) => place >= first,
        Bound::Excluded(before) => place > before,
        Bound::Unbounded => true,
    }
}

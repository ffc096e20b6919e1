//! The layout of the rows in an ordered engine. Each key begins with the store's prefix, then has a
//! letter and a slash:
//!
//! | key | value |
//! |---|---|
//! | `c/` bucket | a claim |
//! | `l/` lease | a lease, outstanding or settled |
//! | `r/` cell, idempotency key | the begin that used the key |
//! | `o/` cell, time of the begin, lease | the lease's place in the list of outstanding leases (B31), and the number of its claims |
//! | `s/` cell, table, row, bucket | empty; the keys have the order of ListRecords (B32) |
//! | `t/` time of the settle, lease | empty; the keys have the order in which leases are forgotten |
//! | `g/` revision that the group was decided at, group | if the group of commands was committed or abandoned |
//! | `m/base` | the id of the store, and the base of its fences |
//! | `m/bucket_types` | the rules of configured bucket types, as JSON |
//! | `m/compaction` | the last compaction |
//!
//! The parts of keys are those of [`crate::store::keys`].

use std::ops::Bound;

use bytes::Bytes;
use leasehold_core::bucket::BucketKey;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, SourceType};
use leasehold_core::lease::{IdempotencyKey, LeaseId};
use leasehold_core::query::{LeasePosition, LeaseScan, RecordPlace, RecordScan};
use leasehold_core::rows::{Keys, LeaseOrder};
use leasehold_core::time::Timestamp;
use uuid::Uuid;

use super::engine::KeyRange;
use crate::store::keys;

/// A list of rows with one letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// The claims, by bucket.
    Claims,
    /// The leases, by id.
    Leases,
    /// The replays, by cell and idempotency key.
    Replays,
    /// The places of outstanding leases.
    Outstanding,
    /// The places of claims in the list of records.
    Sources,
    /// The places of settled leases.
    Settled,
    /// The groups of commands.
    Groups,
    /// The rows of which there is one each.
    Meta,
}

impl Space {
    fn letter(self) -> u8 {
        match self {
            Self::Claims => b'c',
            Self::Leases => b'l',
            Self::Replays => b'r',
            Self::Outstanding => b'o',
            Self::Sources => b's',
            Self::Settled => b't',
            Self::Groups => b'g',
            Self::Meta => b'm',
        }
    }
}

/// The keys of a store with one prefix.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    prefix: Vec<u8>,
}

impl Layout {
    /// Returns the layout of the store with this prefix, which ends with a slash in each key.
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}/").into_bytes() }
    }

    fn key(&self, space: Space, parts: &[&[u8]]) -> Bytes {
        let mut bytes = self.prefix.clone();
        bytes.extend([space.letter(), b'/']);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.into()
    }

    /// Returns the part of a key behind its letter; `None` if the key is not of this list.
    pub(super) fn rest<'a>(&self, space: Space, key: &'a [u8]) -> Option<&'a [u8]> {
        key.strip_prefix(self.prefix.as_slice())?.strip_prefix(&[space.letter(), b'/'])
    }

    /// Returns the letter of the list that a key is of; 0 if it is of none.
    pub(super) fn letter(&self, key: &[u8]) -> u8 {
        key.get(self.prefix.len()).copied().unwrap_or_default()
    }

    /// Returns all keys of the store.
    pub(super) fn all(&self) -> KeyRange {
        let from = Bytes::from(self.prefix.clone());
        KeyRange { to: beyond(&from), from }
    }

    /// Returns the keys of a list.
    pub(super) fn space(&self, space: Space) -> KeyRange {
        let from = self.key(space, &[]);
        KeyRange { to: beyond(&from), from }
    }

    /// Returns the keys of a list that come after a key of it.
    pub(super) fn after(&self, space: Space, key: &Bytes) -> KeyRange {
        KeyRange { from: next(key), to: self.space(space).to }
    }

    /// Returns the key of the base row.
    pub(super) fn base(&self) -> Bytes {
        self.key(Space::Meta, &[b"base"])
    }

    /// Returns the key of the rules of bucket types.
    pub(super) fn bucket_types(&self) -> Bytes {
        self.key(Space::Meta, &[b"bucket_types"])
    }

    /// Returns the key of the last compaction.
    pub(super) fn compaction(&self) -> Bytes {
        self.key(Space::Meta, &[b"compaction"])
    }

    /// Returns a key that never has a row.
    pub(super) fn absent(&self) -> Bytes {
        self.key(Space::Meta, &[b"absent"])
    }

    /// Returns the keys of the rows of claims, leases and replays, in this order.
    pub(super) fn rows(&self, keys: &Keys) -> Vec<Bytes> {
        let Keys { claims, leases, replays, .. } = keys;
        let names = claims.iter().map(|key| self.claim(key)).chain(leases.iter().map(|id| self.lease(*id)));
        names.chain(replays.iter().map(|key| self.replay(key))).collect()
    }

    /// Returns the key of a claim.
    pub(super) fn claim(&self, key: &BucketKey) -> Bytes {
        let mut bucket = Vec::with_capacity(key.canonical.len() + 8);
        keys::push_bucket(&mut bucket, key);
        self.key(Space::Claims, &[&bucket])
    }

    /// Reads the bucket from the key of a claim.
    pub(super) fn read_claim(&self, key: &[u8]) -> Option<BucketKey> {
        keys::read_bucket(self.rest(Space::Claims, key)?)
    }

    /// Returns the key of a lease.
    pub(super) fn lease(&self, id: LeaseId) -> Bytes {
        self.key(Space::Leases, &[&keys::lease(id)])
    }

    /// Reads the id from the key of a lease.
    pub(super) fn read_lease(&self, key: &[u8]) -> Option<LeaseId> {
        keys::read_lease(self.rest(Space::Leases, key)?)
    }

    /// Returns the key of a replay.
    pub(super) fn replay(&self, key: &IdempotencyKey) -> Bytes {
        self.key(Space::Replays, &[&number(key.cell), key.key.as_bytes()])
    }

    /// Reads the idempotency key from the key of a replay.
    pub(super) fn read_replay(&self, key: &[u8]) -> Option<IdempotencyKey> {
        let (cell, name) = keys::read_number(self.rest(Space::Replays, key)?)?;
        let cell = CellId(i64::try_from(cell).ok()?);
        Some(IdempotencyKey { cell, key: std::str::from_utf8(name).ok()?.into() })
    }

    /// Returns the key of a lease's place in its list.
    pub(super) fn lease_place(&self, place: LeaseOrder) -> Bytes {
        match place {
            LeaseOrder::Outstanding(cell, at, id) => {
                self.outstanding(cell, LeasePosition { created_at: at, lease: id })
            }
            LeaseOrder::Settled(at, id) => self.key(Space::Settled, &[&keys::settled(at, id)]),
        }
    }

    fn outstanding(&self, cell: CellId, at: LeasePosition) -> Bytes {
        self.key(Space::Outstanding, &[&number(cell), &keys::settled(at.created_at, at.lease)])
    }

    /// Reads the cell and the position from the key of an outstanding lease's place.
    pub(super) fn read_outstanding(&self, key: &[u8]) -> Option<(CellId, LeasePosition)> {
        let (cell, rest) = keys::read_number(self.rest(Space::Outstanding, key)?)?;
        let (created_at, lease) = keys::read_settled(rest)?;
        Some((CellId(i64::try_from(cell).ok()?), LeasePosition { created_at, lease }))
    }

    /// Returns the keys of the places that a scan of outstanding leases covers.
    pub(super) fn outstanding_range(&self, scan: &LeaseScan) -> KeyRange {
        let cell = self.key(Space::Outstanding, &[&number(scan.cell)]);
        let from = match scan.from {
            Bound::Unbounded => cell.clone(),
            Bound::Included(at) => self.outstanding(scan.cell, at),
            Bound::Excluded(at) => next(&self.outstanding(scan.cell, at)),
        };
        KeyRange { from, to: beyond(&cell) }
    }

    /// Reads the lease from the key of a settled lease's place.
    pub(super) fn read_settled(&self, key: &[u8]) -> Option<LeaseId> {
        keys::read_settled(self.rest(Space::Settled, key)?).map(|(_, lease)| lease)
    }

    /// Returns the keys of the places of leases that were settled before a time.
    pub(super) fn settled_before(&self, before: Timestamp) -> KeyRange {
        let to = self.key(Space::Settled, &[&before.as_micros().to_be_bytes()]);
        KeyRange { from: self.space(Space::Settled).from, to }
    }

    /// Returns the key of a claim's place in the list of records.
    pub(super) fn source(&self, key: &BucketKey, claim: &Claim) -> Bytes {
        let source = &claim.record().source;
        let place = keys::source_claim(claim.owner, source.source_type, &source.id, key);
        self.key(Space::Sources, &[&place])
    }

    /// Returns the keys of the places that a scan of records covers.
    pub(super) fn source_range(&self, scan: &RecordScan) -> KeyRange {
        let table = keys::table(scan.cell, scan.source_type);
        let place = |(id, key): &RecordPlace| keys::source_claim(scan.cell, scan.source_type, id, key);
        let from = match scan.after.bound() {
            // The bound is the smallest possible place with this source id. No claim has this
            // place, so the prefix of the source id serves as the bound.
            Bound::Included((id, _)) if id.is_empty() => table.clone(),
            Bound::Included((id, _)) => keys::source(scan.cell, scan.source_type, &id),
            Bound::Excluded(at) => [&place(&at)[..], &[0]].concat(),
            Bound::Unbounded => table.clone(),
        };
        let to = match scan.source_id_lte.is_empty() {
            true => keys::beyond_table(&table),
            false => keys::beyond_source(keys::source(scan.cell, scan.source_type, &scan.source_id_lte)),
        };
        KeyRange { from: self.key(Space::Sources, &[&from]), to: self.key(Space::Sources, &[&to]) }
    }

    /// Reads the place from a key of the list of records of one table.
    pub(super) fn read_source(&self, scan: &RecordScan, key: &[u8]) -> Option<RecordPlace> {
        let table = keys::table(scan.cell, scan.source_type);
        keys::read_source_claim(self.rest(Space::Sources, key)?.strip_prefix(table.as_slice())?)
    }

    /// Reads the cell and the table from a key of the list of records.
    pub(super) fn read_table(&self, key: &[u8]) -> Option<(CellId, SourceType)> {
        let rest = self.rest(Space::Sources, key)?;
        keys::read_cell(rest).zip(keys::read_table(rest))
    }

    /// Returns the keys of the list of records after all claims of a cell.
    pub(super) fn beyond_cell(&self, cell: CellId) -> KeyRange {
        KeyRange { from: self.key(Space::Sources, &[&keys::beyond_cell(cell)]), to: self.space(Space::Sources).to }
    }

    /// Returns the keys of a cell in the list of records, after all claims of the table `after`.
    pub(super) fn tables_of(&self, cell: CellId, after: Option<SourceType>) -> KeyRange {
        let from = match after {
            Some(table) => keys::beyond_table(&keys::table(cell, table)),
            None => number(cell),
        };
        KeyRange { from: self.key(Space::Sources, &[&from]), to: self.beyond_cell(cell).from }
    }

    /// Returns the key of a group of commands that was decided at a revision.
    pub(super) fn group(&self, decided_at: u64, group: Uuid) -> Bytes {
        self.key(Space::Groups, &[&decided_at.to_be_bytes(), group.as_bytes()])
    }

    /// Reads the revision at which a group was decided from the key of the group.
    pub(super) fn read_group(&self, key: &[u8]) -> Option<u64> {
        let revision = self.rest(Space::Groups, key)?.first_chunk()?;
        Some(u64::from_be_bytes(*revision))
    }

    /// Returns the keys of groups that were decided before a revision.
    pub(super) fn groups_before(&self, before: u64) -> KeyRange {
        let to = self.key(Space::Groups, &[&before.to_be_bytes()]);
        KeyRange { from: self.space(Space::Groups).from, to }
    }

    /// Returns the keys of the base rows of all stores that would have the keys of this one among theirs.
    pub(super) fn bases_above(&self) -> Vec<Bytes> {
        let slashes = self.prefix.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
        let above = slashes.filter(|end| *end < self.prefix.len()).filter_map(|end| self.prefix.get(..end));
        above.map(|prefix| [prefix, b"m/base"].concat().into()).collect()
    }
}

/// Returns the first key after a key.
pub(super) fn next(key: &Bytes) -> Bytes {
    [&key[..], &[0]].concat().into()
}

/// Returns the first key after all keys that begin with `prefix`.
pub(super) fn beyond(prefix: &[u8]) -> Bytes {
    let mut bytes = prefix.to_vec();
    while let Some(last) = bytes.pop() {
        if let Some(next) = last.checked_add(1) {
            bytes.push(next);
            break;
        }
    }
    bytes.into()
}

fn number(cell: CellId) -> Vec<u8> {
    let mut bytes = Vec::new();
    keys::push_number(&mut bytes, cell.0.unsigned_abs());
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use leasehold_core::bucket::BucketType;

    const LEASE: LeaseId = LeaseId(Uuid::from_u128(7));

    fn bucket() -> BucketKey {
        BucketKey { bucket_type: BucketType(4), canonical: "alice".into() }
    }

    #[test]
    fn keys_read_back() {
        let layout = Layout::new("p");
        assert_eq!(layout.read_claim(&layout.claim(&bucket())), Some(bucket()));
        assert_eq!(layout.read_lease(&layout.lease(LEASE)), Some(LEASE));
        let replay = IdempotencyKey { cell: CellId(300), key: "k/1".into() };
        assert_eq!(layout.read_replay(&layout.replay(&replay)), Some(replay));
        let at = Timestamp::from_micros(5);
        let place = layout.lease_place(LeaseOrder::Outstanding(CellId(300), at, LEASE));
        assert_eq!(
            layout.read_outstanding(&place),
            Some((CellId(300), LeasePosition { created_at: at, lease: LEASE }))
        );
        assert_eq!(layout.read_settled(&layout.lease_place(LeaseOrder::Settled(at, LEASE))), Some(LEASE));
        let (group, next) = (layout.group(7, LEASE.0), layout.group(8, LEASE.0));
        assert_eq!(layout.read_group(&group), Some(7));
        assert!(layout.groups_before(8).from < group && group < layout.groups_before(8).to);
        assert!(layout.groups_before(8).to < next);
    }

    #[test]
    fn each_list_has_its_own_keys() {
        let layout = Layout::new("p");
        let within = |range: &KeyRange, key: &Bytes| range.from <= *key && *key < range.to;
        let (claim, lease) = (layout.claim(&bucket()), layout.lease(LEASE));
        assert!(within(&layout.space(Space::Claims), &claim) && !within(&layout.space(Space::Claims), &lease));
        assert!(within(&layout.all(), &claim) && within(&layout.all(), &layout.base()));
        assert!(!within(&Layout::new("q").all(), &claim));
        assert!(!within(&layout.after(Space::Claims, &claim), &claim));
        assert_eq!(layout.rest(Space::Leases, &claim), None);
    }

    #[test]
    fn the_stores_above_a_prefix_are_those_of_its_parents() {
        assert_eq!(Layout::new("p").bases_above(), Vec::<Bytes>::new());
        assert_eq!(Layout::new("p/c/x").bases_above(), ["p/m/base", "p/c/m/base"]);
    }

    #[test]
    fn the_key_after_a_prefix_is_no_key_of_it() {
        assert_eq!(beyond(b"a\xff"), Bytes::from_static(b"b"));
        assert_eq!(beyond(b"c/"), Bytes::from_static(b"c0"));
    }
}

//! Rows and records stored as columns. A page has thousands of each, so they share a few buffers
//! instead of one allocation each.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;

use crate::bucket::BucketType;
use crate::claim::{SourceId, Subject};
use crate::time::Timestamp;

/// A list of byte strings in one buffer, one after the other, with the end of each.
#[derive(Clone, Debug, Default, Hash)]
struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(index).and_then(|end| self.bytes.get(start..*end)).unwrap_or_default()
    }

    fn len(&self) -> usize {
        self.ends.len()
    }
}

/// A claim that a row calls for, or that the server lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClaimRef<'a> {
    pub(super) bucket_type: BucketType,
    pub(super) value: &'a str,
    pub(super) subject: Subject,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Fixed {
    bucket_type: BucketType,
    subject: Subject,
    end: usize,
}

#[derive(Clone, Debug, Default, Hash)]
struct Claims {
    values: String,
    fixed: Vec<Fixed>,
}

impl Claims {
    fn push(&mut self, claim: ClaimRef<'_>) {
        self.values.push_str(claim.value);
        let end = self.values.len();
        self.fixed.push(Fixed { bucket_type: claim.bucket_type, subject: claim.subject, end });
    }

    /// Returns the claims at a range of positions.
    fn iter(&self, range: Range<usize>) -> impl Iterator<Item = ClaimRef<'_>> + Clone {
        let before = range.start.checked_sub(1).and_then(|before| self.fixed.get(before));
        let start = before.map_or(0, |before| before.end);
        self.fixed.get(range).unwrap_or_default().iter().scan(start, |start, fixed| {
            let value = self.values.get(std::mem::replace(start, fixed.end)..fixed.end)?;
            Some(ClaimRef { bucket_type: fixed.bucket_type, value, subject: fixed.subject })
        })
    }
}

/// Rows of the cell's own table with the claims that they call for, in the order of source ids.
#[derive(Clone, Debug)]
pub struct Rows {
    now: Timestamp,
    ids: Strings,
    updated_at: Vec<Option<Timestamp>>,
    claims_end: Vec<usize>,
    claims: Claims,
    has_stray_claim: bool,
}

impl Rows {
    /// Makes a page without rows. `now` is the database's time from before the records of the page
    /// were listed. For rows that are read again, it is the time from before this reading. So a row
    /// that changes during the listing counts as recent, even if it was renamed and renamed back
    /// (V02).
    pub fn new(now: Timestamp) -> Self {
        Self {
            now,
            ids: Strings::default(),
            updated_at: Vec::new(),
            claims_end: Vec::new(),
            claims: Claims::default(),
            has_stray_claim: false,
        }
    }

    /// Adds a row to the page, with the time of its last change, `None` if the time is unknown. The
    /// rows must be added in the order of encoded source ids.
    pub fn row(&mut self, id: &[u8], updated_at: Option<Timestamp>) {
        self.ids.push(id);
        self.updated_at.push(updated_at);
        self.claims_end.push(self.claims.fixed.len());
    }

    /// Adds a claim that the last added row calls for.
    pub fn claim(&mut self, bucket_type: i32, value: &str, subject_type: i32, subject_id: i64) {
        let subject = Subject { subject_type, id: subject_id };
        self.claims.push(ClaimRef { bucket_type: BucketType(bucket_type), value, subject });
        match self.claims_end.last_mut() {
            Some(end) => *end += 1,
            None => self.has_stray_claim = true,
        }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if the page has no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn claims_len(&self) -> usize {
        self.claims.fixed.len()
    }

    pub(super) fn id(&self, row: usize) -> &[u8] {
        self.ids.get(row)
    }

    /// Returns the position of the row with this source id, `None` if there is no such row.
    pub(super) fn find(&self, id: &SourceId) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.id(middle).cmp(id.as_bytes()) {
                Ordering::Equal => return Some(middle),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Returns true if the row was changed within the last `within_micros`, by the database's
    /// clock. A row whose time of change is unknown is not recent.
    pub(super) fn is_recent(&self, row: usize, within_micros: u64) -> bool {
        let updated_at = self.updated_at.get(row).copied().flatten();
        updated_at.is_some_and(|at| self.now.micros_since(at) < within_micros)
    }

    /// Returns the claims that the row at this position calls for.
    pub(super) fn claims_of(&self, row: usize) -> impl Iterator<Item = ClaimRef<'_>> + Clone {
        let start = row.checked_sub(1).and_then(|before| self.claims_end.get(before)).copied().unwrap_or(0);
        self.claims.iter(start..self.claims_end.get(row).copied().unwrap_or(start))
    }

    pub(super) fn bucket_types_are_among(&self, allowed: &BTreeSet<BucketType>) -> bool {
        self.claims.fixed.iter().all(|claim| allowed.contains(&claim.bucket_type))
    }

    /// Returns true if the source ids ascend without repetition and lie in the range after `after`
    /// and up to `upto`. Also, each claim must have been added after a row.
    pub(super) fn are_valid(&self, after: &SourceId, upto: &SourceId) -> bool {
        !self.has_stray_claim && are_ordered(&self.ids, Ordering::is_lt) && are_within(&self.ids, after, upto)
    }
}

/// One record of the server's list, as the host adds it to [`Records`].
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    /// The source id of the row that the record's claim comes from.
    pub source_id: &'a [u8],
    /// The number of the bucket's type on the wire.
    pub bucket_type: i32,
    /// The bucket's value as the cell spelled it.
    pub value: &'a str,
    /// The number of the subject's kind on the wire.
    pub subject_type: i32,
    /// The id of the subject.
    pub subject_id: i64,
    /// The time of the record's last change, by the server's clock.
    pub updated_at: Timestamp,
    /// True if a lease holds the record's claim: the claim's status is not `ACTIVE`.
    pub held: bool,
}

/// A page of the server's records, in the order of source ids.
#[derive(Clone, Debug, Hash)]
pub struct Records {
    now: Timestamp,
    ids: Strings,
    states: Vec<(Timestamp, bool)>,
    claims: Claims,
}

impl Records {
    /// Makes a page without records. `now` is the server's time when it answered.
    pub fn new(now: Timestamp) -> Self {
        Self { now, ids: Strings::default(), states: Vec::new(), claims: Claims::default() }
    }

    /// Adds a record to the page. The records must be added in the order of the server's list.
    pub fn record(&mut self, record: RecordRef<'_>) {
        self.ids.push(record.source_id);
        self.states.push((record.updated_at, record.held));
        self.claims.push(ClaimRef {
            bucket_type: BucketType(record.bucket_type),
            value: record.value,
            subject: Subject { subject_type: record.subject_type, id: record.subject_id },
        });
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if the page has no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn id(&self, record: usize) -> &[u8] {
        self.ids.get(record)
    }

    pub(super) fn last_id(&self) -> SourceId {
        SourceId::from_bytes(self.id(self.len().saturating_sub(1)))
    }

    /// Returns the position after the last record that has the same source id as the record at
    /// `start`.
    pub(super) fn end_of_source(&self, start: usize) -> usize {
        let id = self.id(start);
        (start + 1..self.len()).find(|at| self.id(*at) != id).unwrap_or(self.len())
    }

    pub(super) fn claims(&self, range: Range<usize>) -> impl Iterator<Item = ClaimRef<'_>> + Clone {
        self.claims.iter(range)
    }

    pub(super) fn is_held(&self, record: usize) -> bool {
        self.states.get(record).is_none_or(|(_, held)| *held)
    }

    /// Returns true if the record was changed within the last `within_micros`, by the server's
    /// clock. A position without a record counts as recent.
    pub(super) fn is_recent(&self, record: usize, within_micros: u64) -> bool {
        self.states.get(record).is_none_or(|(at, _)| self.now.micros_since(*at) < within_micros)
    }

    /// Returns true if the source ids ascend, repetitions allowed, and all lie in the range after
    /// `after` and up to `upto`.
    pub(super) fn are_valid(&self, after: &SourceId, upto: &SourceId) -> bool {
        are_ordered(&self.ids, Ordering::is_le) && are_within(&self.ids, after, upto)
    }
}

fn are_ordered(ids: &Strings, holds: fn(Ordering) -> bool) -> bool {
    (1..ids.len()).all(|at| holds(ids.get(at - 1).cmp(ids.get(at))))
}

/// Returns true if all ids, which must be in order, lie in the range after `after` and up to
/// `upto`. An empty `upto` sets no bound.
fn are_within(ids: &Strings, after: &SourceId, upto: &SourceId) -> bool {
    let last = ids.len().checked_sub(1).map(|last| ids.get(last));
    let first = last.map(|_| ids.get(0));
    first.is_none_or(|first| first > after.as_bytes())
        && last.is_none_or(|last| upto.is_empty() || last <= upto.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_return_the_claims_that_were_added() {
        let mut rows = Rows::new(Timestamp::from_micros(100));
        rows.row(&[1], None);
        rows.row(&[2, 0], Some(Timestamp::from_micros(91)));
        rows.claim(4, "alice", 4, 7);
        rows.claim(5, "ä@b", 4, 8);
        rows.row(&[3], Some(Timestamp::from_micros(90)));
        rows.claim(4, "", 1, 1);
        let claims = |row| rows.claims_of(row).map(|claim| (claim.bucket_type.0, claim.value, claim.subject.id));
        assert_eq!(claims(0).collect::<Vec<_>>(), []);
        assert_eq!(claims(1).collect::<Vec<_>>(), [(4, "alice", 7), (5, "ä@b", 8)]);
        assert_eq!(claims(2).collect::<Vec<_>>(), [(4, "", 1)]);
        let found = [&[1][..], &[2, 0], &[3], &[2], &[0], &[4]].map(|id| rows.find(&SourceId::from_bytes(id)));
        assert_eq!(found, [Some(0), Some(1), Some(2), None, None, None]);
        assert_eq!([0, 1, 2].map(|row| rows.is_recent(row, 10)), [false, true, false]);
    }

    #[test]
    fn order_and_range_are_checked() {
        let rows = |ids: &[&[u8]]| {
            let mut rows = Rows::new(Timestamp::MIN);
            ids.iter().for_each(|id| rows.row(id, None));
            rows.are_valid(&SourceId::from_bytes(&[1]), &SourceId::from_bytes(&[3]))
        };
        for fine in [&[][..], &[&[1, 0][..]], &[&[2], &[3]]] {
            assert!(rows(fine), "{fine:?}");
        }
        for wrong in [&[&[1][..]][..], &[&[3, 0]], &[&[2], &[2]], &[&[3], &[2]], &[&[]]] {
            assert!(!rows(wrong), "{wrong:?}");
        }
        let mut stray = Rows::new(Timestamp::MIN);
        stray.claim(4, "a", 4, 1);
        assert!(!stray.are_valid(&SourceId::default(), &SourceId::default()));
    }
}

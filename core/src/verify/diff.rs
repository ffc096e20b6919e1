//! The comparison of the rows and records of one range: claims are missing, different or extra
//! (V01). Rows and records that were changed lately are left alone (V02).

use std::cmp::Ordering;
use std::ops::Range;

use super::columns::{ClaimRef, Records, Rows};
use super::correction::{PendingCreate, PendingDestroy};
use super::report::Report;
use crate::bucket::{Bucket, BucketKey};
use crate::catalogue::Catalogue;
use crate::claim::SourceId;

/// The differences between the rows and the records of a range.
#[derive(Debug, Default)]
pub(super) struct Differences {
    pub(super) missing: Vec<PendingCreate>,
    pub(super) different: Vec<PendingCreate>,
    pub(super) extra: Vec<PendingDestroy>,
    /// The claims whose value their bucket type does not allow. If such a value has no canonical
    /// form, the key holds the value itself.
    pub(super) invalid: Vec<PendingDestroy>,
}

impl Differences {
    /// Returns true if the row with this source id calls for the bucket with a value that is not
    /// allowed. The claims of one row stand together in the list, so the search ends at a claim of
    /// another row.
    fn is_invalid(&self, key: &BucketKey, source_id: &SourceId) -> bool {
        self.invalid.iter().rev().take_while(|claim| claim.source_id == *source_id).any(|claim| claim.key == *key)
    }
}

/// The settings of a comparison of rows with records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison<'a> {
    pub(super) catalogue: &'a Catalogue,
    pub(super) recent_within_micros: u64,
}

impl Comparison<'_> {
    /// Compares the rows of a range with the records of the range. Both are in the order of source
    /// ids, so one pass through both finds all differences.
    pub(super) fn diff(&self, rows: &Rows, records: &Records, report: &mut Report) -> Differences {
        let mut found = Differences::default();
        let (mut row, mut record) = (0, 0);
        while row < rows.len() || record < records.len() {
            let order = match (row < rows.len(), record < records.len()) {
                (true, true) => rows.id(row).cmp(records.id(record)),
                (true, false) => Ordering::Less,
                (false, _) => Ordering::Greater,
            };
            let end = if order.is_ge() { records.end_of_source(record) } else { record };
            match order {
                Ordering::Greater => self.extra(records, record..end, report, &mut found),
                Ordering::Less | Ordering::Equal => {
                    self.row(rows, row, records, record..end, report, &mut found);
                    row += 1;
                }
            }
            record = end;
        }
        found
    }

    fn row(
        &self,
        rows: &Rows,
        row: usize,
        records: &Records,
        of_row: Range<usize>,
        report: &mut Report,
        found: &mut Differences,
    ) {
        if rows.is_recent(row, self.recent_within_micros) {
            report.rows_recent += 1;
        } else if are_same(rows.claims_of(row), records.claims(of_row.clone())) {
            report.records_held += of_row.filter(|at| records.is_held(*at)).count() as u64;
        } else {
            let source_id = SourceId::from_bytes(rows.id(row));
            let (creates, invalid) = pending_creates(self.catalogue, &source_id, rows.claims_of(row));
            found.invalid.extend(invalid);
            self.claims(creates, &source_id, records, of_row, report, found);
        }
    }

    /// Compares the claims that a row calls for, one by one, with the records that name the row.
    fn claims(
        &self,
        mut creates: Vec<PendingCreate>,
        source_id: &SourceId,
        records: &Records,
        of_row: Range<usize>,
        report: &mut Report,
        found: &mut Differences,
    ) {
        for (at, claim) in of_row.clone().zip(records.claims(of_row)) {
            let Ok(bucket) = existing(self.catalogue, claim) else {
                found.invalid.push(unreadable(claim, source_id));
                continue;
            };
            if found.is_invalid(&bucket.key, source_id) {
                continue;
            }
            let same_bucket = creates.iter().position(|create| create.key == bucket.key);
            let called_for = same_bucket.map(|at| creates.swap_remove(at));
            let is_same = called_for.as_ref().is_some_and(|create| is_same_form(create, claim));
            if is_same {
                report.records_held += u64::from(records.is_held(at));
                continue;
            }
            if self.is_left_alone(records, at, report) {
                continue;
            }
            match called_for {
                Some(create) => found.different.push(create),
                None => found.extra.push(PendingDestroy { key: bucket.key, source_id: source_id.clone() }),
            }
        }
        found.missing.append(&mut creates);
    }

    /// Compares the records of a source id that has no row: each is extra, unless it is left alone.
    fn extra(&self, records: &Records, range: Range<usize>, report: &mut Report, found: &mut Differences) {
        let source_id = SourceId::from_bytes(records.id(range.start));
        self.claims(Vec::new(), &source_id, records, range, report, found);
    }

    fn is_left_alone(&self, records: &Records, record: usize, report: &mut Report) -> bool {
        let (held, recent) = (records.is_held(record), records.is_recent(record, self.recent_within_micros));
        report.records_held += u64::from(held);
        report.records_recent += u64::from(recent && !held);
        held || recent
    }
}

/// Returns the claims that a row calls for, each bucket once, and the claims whose value is not
/// allowed.
pub(super) fn pending_creates<'a>(
    catalogue: &Catalogue,
    source_id: &SourceId,
    claims: impl Iterator<Item = ClaimRef<'a>>,
) -> (Vec<PendingCreate>, Vec<PendingDestroy>) {
    let (mut creates, mut invalid) = (Vec::<PendingCreate>::new(), Vec::new());
    for claim in claims {
        match bucket(catalogue, claim) {
            Err(()) => invalid.push(not_allowed(catalogue, claim, source_id)),
            Ok(bucket) if creates.iter().any(|create| create.key == bucket.key) => {}
            Ok(Bucket { key, spelling }) => {
                let source_id = source_id.clone();
                creates.push(PendingCreate { key, spelling, subject: claim.subject, source_id });
            }
        }
    }
    (creates, invalid)
}

/// Returns true if both sides have the same claims in the same spelling, in any order.
///
/// Equal spellings are one bucket, so this function computes no canonical form. In a table that
/// nobody is changing, this comparison suffices for most rows.
fn are_same<'a>(local: impl Iterator<Item = ClaimRef<'a>>, remote: impl Iterator<Item = ClaimRef<'a>> + Clone) -> bool {
    // One bit for each of the first 64 remote claims. If a row has more claims, the function
    // returns false and the caller compares canonical forms.
    let mut matched = 0_u64;
    for claim in local {
        let Some(at) = remote.clone().take(64).position(|other| other == claim) else { return false };
        matched |= 1 << at;
    }
    remote.count() as u32 == matched.count_ones()
}

fn is_same_form(create: &PendingCreate, claim: ClaimRef<'_>) -> bool {
    create.subject == claim.subject && *create.spelling == *claim.value
}

fn bucket(catalogue: &Catalogue, claim: ClaimRef<'_>) -> Result<Bucket, ()> {
    check_subject(claim)?;
    catalogue.bucket(claim.bucket_type, claim.value.into()).map_err(|_| ())
}

fn existing(catalogue: &Catalogue, claim: ClaimRef<'_>) -> Result<Bucket, ()> {
    check_subject(claim)?;
    catalogue.bucket_of_existing(claim.bucket_type, claim.value.into()).map_err(|_| ())
}

fn check_subject(claim: ClaimRef<'_>) -> Result<(), ()> {
    if claim.subject.subject_type > 0 && claim.subject.id > 0 { Ok(()) } else { Err(()) }
}

/// Returns the claim of a row whose value is not allowed, with the value's canonical form if there
/// is one.
fn not_allowed(catalogue: &Catalogue, claim: ClaimRef<'_>, source_id: &SourceId) -> PendingDestroy {
    match existing(catalogue, claim) {
        Ok(Bucket { key, .. }) => PendingDestroy { key, source_id: source_id.clone() },
        Err(()) => unreadable(claim, source_id),
    }
}

fn unreadable(claim: ClaimRef<'_>, source_id: &SourceId) -> PendingDestroy {
    let key = BucketKey { bucket_type: claim.bucket_type, canonical: claim.value.into() };
    PendingDestroy { key, source_id: source_id.clone() }
}

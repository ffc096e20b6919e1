//! The three-way comparison of one range (V01), with what was changed lately left alone on both sides (V02).

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::columns::{ClaimRef, Records, Rows};
use super::report::Report;
use crate::bucket::{Bucket, BucketKey};
use crate::catalogue::Catalogue;
use crate::claim::{SourceId, Subject};

/// A claim that a row calls for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Take {
    pub(super) key: BucketKey,
    pub(super) spelling: Arc<str>,
    pub(super) subject: Subject,
    pub(super) source_id: SourceId,
}

/// A claim that its row does not call for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Free {
    pub(super) key: BucketKey,
    pub(super) source_id: SourceId,
}

/// What differs within a range.
#[derive(Debug, Default)]
pub(super) struct Differences {
    pub(super) missing: Vec<Take>,
    pub(super) different: Vec<Take>,
    pub(super) extra: Vec<Free>,
    /// Claims whose value their type does not allow: the canonical form is the value as it stands.
    pub(super) invalid: Vec<Free>,
}

/// How to compare.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison<'a> {
    pub(super) catalogue: &'a Catalogue,
    pub(super) recent_within_micros: u64,
}

impl Comparison<'_> {
    /// Compares the rows of a range with its records. Both are in the order of source ids, so one walk over both does it.
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
            let (takes, invalid) = takes(self.catalogue, &source_id, rows.claims_of(row));
            found.invalid.extend(invalid);
            self.claims(takes, &source_id, records, of_row, report, found);
        }
    }

    /// Compares the claims of a row, some of which differ, with the records of that row.
    fn claims(
        &self,
        mut takes: Vec<Take>,
        source_id: &SourceId,
        records: &Records,
        of_row: Range<usize>,
        report: &mut Report,
        found: &mut Differences,
    ) {
        for (at, claim) in of_row.clone().zip(records.claims(of_row)) {
            let Ok(bucket) = bucket(self.catalogue, claim) else {
                found.invalid.push(unreadable(claim, source_id));
                continue;
            };
            let called_for = takes.iter().position(|take| take.key == bucket.key).map(|at| takes.swap_remove(at));
            let is_same = called_for.as_ref().is_some_and(|take| is_called_for(take, claim));
            if is_same {
                report.records_held += u64::from(records.is_held(at));
                continue;
            }
            if self.is_left_alone(records, at, report) {
                continue;
            }
            match called_for {
                Some(take) => found.different.push(take),
                None => found.extra.push(Free { key: bucket.key, source_id: source_id.clone() }),
            }
        }
        found.missing.append(&mut takes);
    }

    /// Records of a source id that has no row.
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

/// The claims that a row calls for, each bucket once, and those whose value is not allowed.
pub(super) fn takes<'a>(
    catalogue: &Catalogue,
    source_id: &SourceId,
    claims: impl Iterator<Item = ClaimRef<'a>>,
) -> (Vec<Take>, Vec<Free>) {
    let (mut takes, mut invalid) = (Vec::<Take>::new(), Vec::new());
    for claim in claims {
        match bucket(catalogue, claim) {
            Err(()) => invalid.push(unreadable(claim, source_id)),
            Ok(bucket) if takes.iter().any(|take| take.key == bucket.key) => {}
            Ok(Bucket { key, spelling }) => {
                takes.push(Take { key, spelling, subject: claim.subject, source_id: source_id.clone() });
            }
        }
    }
    (takes, invalid)
}

/// Whether both sides have the same claims in the same spelling, in whatever order. What is spelled alike is one bucket,
/// so nothing needs its canonical form: most rows end here.
fn are_same<'a>(local: impl Iterator<Item = ClaimRef<'a>>, remote: impl Iterator<Item = ClaimRef<'a>> + Clone) -> bool {
    let mut matched = 0_u64;
    for claim in local {
        let Some(at) = remote.clone().take(64).position(|other| other == claim) else { return false };
        matched |= 1 << at;
    }
    remote.count() as u32 == matched.count_ones()
}

fn is_called_for(take: &Take, claim: ClaimRef<'_>) -> bool {
    take.subject == claim.subject && *take.spelling == *claim.value
}

fn bucket(catalogue: &Catalogue, claim: ClaimRef<'_>) -> Result<Bucket, ()> {
    let is_subject = claim.subject.subject_type > 0 && claim.subject.id > 0;
    let bucket = catalogue.bucket(claim.bucket_type, claim.value.into()).map_err(|_| ())?;
    if is_subject { Ok(bucket) } else { Err(()) }
}

fn unreadable(claim: ClaimRef<'_>, source_id: &SourceId) -> Free {
    let key = BucketKey { bucket_type: claim.bucket_type, canonical: claim.value.into() };
    Free { key, source_id: source_id.clone() }
}

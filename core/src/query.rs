//! Lists, page by page. A host runs the scan that a query asks for and hands the rows back; the rules of order, limits
//! and cuts are here. Getting one claim needs no more than its key.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::batch::MAX_SOURCE_ID_BYTES;
use crate::bucket::{BucketKey, BucketType};
use crate::claim::{CellId, Claim, SourceId, SourceType};
use crate::lease::LeaseId;
use crate::rejection::{Detail, Reason, Rejection};
use crate::time::Timestamp;

/// Leases in a page, unless told.
pub const DEFAULT_LEASES_PER_PAGE: usize = 100;
/// Leases in a page at the most; a larger limit is taken as this one.
pub const MAX_LEASES_PER_PAGE: usize = 1000;
/// Records in a page, unless one source id alone has more.
pub const RECORDS_PER_PAGE: usize = 1000;
/// Bytes of values and attached data in a page, unless one source id alone has more: clients refuse messages over 4 MiB.
pub const RECORD_BYTES_PER_PAGE: usize = 2 * 1024 * 1024;

/// An outstanding lease's place in the order of lists: by birth, then by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeasePosition {
    /// When it was begun.
    pub created_at: Timestamp,
    /// Its id.
    pub lease: LeaseId,
}

/// One outstanding lease in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// Its place.
    pub position: LeasePosition,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// What a store is to read: a cell's outstanding leases from a bound, in order, at most `limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseScan {
    /// The cell.
    pub cell: CellId,
    /// Where to begin; the read itself starts there (B31, B33).
    pub from: Bound<LeasePosition>,
    /// How many rows.
    pub limit: usize,
}

/// A checked request for a page of leases (B31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseQuery {
    scan: LeaseScan,
}

/// A page of leases; the list goes on while there is a `next`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasePage {
    /// The leases, in order.
    pub leases: Vec<LeaseRow>,
    /// Where the next page begins, exclusive. Absent on the last page only.
    pub next: Option<LeasePosition>,
}

impl LeaseQuery {
    /// A page of a cell's leases that were begun at `created_after` or later and come after `cursor`.
    ///
    /// # Errors
    /// A negative limit.
    pub fn parse(
        cell: CellId,
        limit: Option<i32>,
        created_after: Option<Timestamp>,
        cursor: Option<LeasePosition>,
    ) -> Result<Self, Rejection> {
        let limit = match usize::try_from(limit.unwrap_or(0)) {
            Ok(0) => DEFAULT_LEASES_PER_PAGE,
            Ok(limit) => limit.min(MAX_LEASES_PER_PAGE),
            Err(_) => return Err(invalid("`limit` is negative")),
        };
        let first = created_after.map(|created_at| LeasePosition { created_at, lease: LeaseId(uuid::Uuid::nil()) });
        let from = match (first, cursor) {
            (Some(first), Some(cursor)) if first <= cursor => Bound::Excluded(cursor),
            (Some(first), _) => Bound::Included(first),
            (None, Some(cursor)) => Bound::Excluded(cursor),
            (None, None) => Bound::Unbounded,
        };
        Ok(Self { scan: LeaseScan { cell, from, limit } })
    }

    /// What to read: one row more than the page holds, to know whether the list goes on.
    pub fn scan(&self) -> LeaseScan {
        LeaseScan { limit: self.scan.limit + 1, ..self.scan }
    }

    /// The page of the rows that were read.
    pub fn page(&self, mut rows: Vec<LeaseRow>) -> LeasePage {
        let more = rows.len() > self.scan.limit;
        rows.truncate(self.scan.limit);
        let next = rows.last().filter(|_| more).map(|row| row.position);
        LeasePage { leases: rows, next }
    }
}

/// A claim in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRow {
    /// Its bucket's key.
    pub key: BucketKey,
    /// The claim.
    pub claim: Claim,
}

impl RecordRow {
    fn source_id(&self) -> &SourceId {
        &self.claim.record().source.id
    }

    fn bytes(&self) -> usize {
        let record = self.claim.record();
        let user_data = record.user_data.as_ref().map_or(0, |data| data.type_url.len() + data.value.len());
        record.spelling.len() + record.source.id.as_bytes().len() + user_data
    }
}

/// What a store is to read: a cell's claims of one table by source id, in the order of source id, bucket type and
/// canonical value, at most `limit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordScan {
    /// The cell.
    pub cell: CellId,
    /// The table.
    pub source_type: SourceType,
    /// Only of these types; all where it is empty.
    pub bucket_types: BTreeSet<BucketType>,
    /// Only beyond this source id; the empty one bounds nothing.
    pub source_id_gt: SourceId,
    /// Only up to this source id; the empty one bounds nothing.
    pub source_id_lte: SourceId,
    /// How many rows.
    pub limit: usize,
}

impl RecordScan {
    /// Whether the scan covers a claim of this bucket type and source id.
    pub fn covers(&self, bucket_type: BucketType, source_id: &SourceId) -> bool {
        (self.bucket_types.is_empty() || self.bucket_types.contains(&bucket_type))
            && *source_id > self.source_id_gt
            && (self.source_id_lte.is_empty() || *source_id <= self.source_id_lte)
    }
}

/// A checked request for a page of records (B32).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordQuery {
    scan: RecordScan,
}

/// A page of records: never splits a source id, and is never empty where it is truncated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPage {
    /// The records, in order.
    pub records: Vec<RecordRow>,
    /// Whether more remain beyond the last record's source id.
    pub truncated: bool,
}

/// What became of the rows of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordStep {
    /// They make a page.
    Page(RecordPage),
    /// One source id has more rows than the scan read: run this larger one.
    Again(RecordScan),
}

impl RecordQuery {
    /// A page of a cell's records of one table.
    ///
    /// # Errors
    /// An unspecified table (B14), a bound over the limit (B11).
    pub fn parse(
        cell: CellId,
        source_type: SourceType,
        bucket_types: BTreeSet<BucketType>,
        source_id_gt: SourceId,
        source_id_lte: SourceId,
    ) -> Result<Self, Rejection> {
        if source_type.0 <= 0 {
            return Err(invalid("`source_type` is not 1 or more"));
        }
        if bucket_types.iter().any(|bucket_type| bucket_type.0 <= 0) {
            return Err(invalid("`bucket_types` has a number that is not 1 or more"));
        }
        [&source_id_gt, &source_id_lte].into_iter().try_for_each(check_bound)?;
        let limit = RECORDS_PER_PAGE + 1;
        Ok(Self { scan: RecordScan { cell, source_type, bucket_types, source_id_gt, source_id_lte, limit } })
    }

    /// What to read first: one row more than a page holds, to know whether the list goes on.
    pub fn scan(&self) -> RecordScan {
        self.scan.clone()
    }

    /// What the rows of a scan make: a page, or the wish for a larger scan.
    pub fn step(&self, mut rows: Vec<RecordRow>, scan: &RecordScan) -> RecordStep {
        let mut truncated = rows.len() >= scan.limit;
        if truncated {
            // The last source id may go on beyond the rows that were read: leave it to the next page.
            let whole = start_of_last_source(&rows);
            if whole == 0 {
                return RecordStep::Again(RecordScan { limit: scan.limit.saturating_mul(2), ..scan.clone() });
            }
            rows.truncate(whole);
        }
        while rows.len() > RECORDS_PER_PAGE || bytes(&rows) > RECORD_BYTES_PER_PAGE {
            let whole = start_of_last_source(&rows);
            if whole == 0 {
                break;
            }
            rows.truncate(whole);
            truncated = true;
        }
        RecordStep::Page(RecordPage { records: rows, truncated })
    }
}

fn bytes(rows: &[RecordRow]) -> usize {
    rows.iter().map(RecordRow::bytes).sum()
}

/// Where the rows of the last row's source id begin.
fn start_of_last_source(rows: &[RecordRow]) -> usize {
    let last = rows.last().map(RecordRow::source_id);
    rows.iter().rposition(|row| Some(row.source_id()) != last).map_or(0, |at| at + 1)
}

fn check_bound(bound: &SourceId) -> Result<(), Rejection> {
    let bytes = bound.as_bytes().len();
    if bytes <= MAX_SOURCE_ID_BYTES {
        return Ok(());
    }
    let detail = Detail::Limit { name: "source_id_bytes", max: MAX_SOURCE_ID_BYTES as u64, actual: bytes as u64 };
    Err(Rejection::whole(Reason::LimitExceeded, detail))
}

fn invalid(what: &'static str) -> Rejection {
    Rejection::whole(Reason::InvalidUpdate, Detail::Form(what))
}

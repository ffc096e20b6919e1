//! Lists of leases and of records, page by page. A query names the scan that a host must run. The
//! query then cuts the scanned rows into a page, within the limits.
//!
//! ```
//! use leasehold_core::cell::CellId;
//! use leasehold_core::memory::MemoryStore;
//! use leasehold_core::query::LeaseQuery;
//! use leasehold_core::store::Store;
//!
//! let store = MemoryStore::default();
//! let mut cursor = None;
//! loop {
//!     let query = LeaseQuery::parse(CellId(1), Some(100), None, cursor).unwrap();
//!     let page = query.page(store.leases(&query.scan()).unwrap());
//!     assert!(page.leases.is_empty());
//!     // Only a page without a cursor ends the list: a page may be short while leases remain
//!     // (B31).
//!     cursor = page.next;
//!     if cursor.is_none() {
//!         break;
//!     }
//! }
//! ```

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::batch::MAX_SOURCE_ID_BYTES;
use crate::bucket::{BucketKey, BucketType};
use crate::cell::CellId;
use crate::claim::{Claim, SourceId, SourceType};
use crate::lease::LeaseId;
use crate::rejection::{Detail, Reason, Rejection};
use crate::time::Timestamp;

/// The number of leases in a page of `ListLeases`, unless the request sets a limit.
pub const DEFAULT_LEASES_PER_PAGE: usize = 100;
/// The most leases in a page of `ListLeases`. A larger limit in the request counts as this one.
pub const MAX_LEASES_PER_PAGE: usize = 1000;
/// The most records in a page of `ListRecords`, unless one source id alone has more.
pub const RECORDS_PER_PAGE: usize = 1000;
/// The most bytes of values, source ids and attached data in a page of `ListRecords`, unless one
/// source id alone has more. gRPC clients refuse messages over 4 MiB by default, and names and
/// framing come on top.
pub const RECORD_BYTES_PER_PAGE: usize = 2 * 1024 * 1024;

/// The position of an outstanding lease in the list: by the time of its begin, then by id. The id
/// makes positions distinct, so a cursor never skips a lease or repeats one (B31).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeasePosition {
    /// The time at which the lease was begun.
    pub created_at: Timestamp,
    /// The id of the outstanding lease.
    pub lease: LeaseId,
}

/// One outstanding lease in a page of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// The lease's position in the list.
    pub position: LeasePosition,
    /// The time of the lease's last change.
    pub updated_at: Timestamp,
}

/// A scan that a store runs: outstanding leases of one cell, in the order of their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseScan {
    /// The cell whose leases are scanned.
    pub cell: CellId,
    /// The position from which the store reads. Rows before it are not read, so a page costs what
    /// it returns (B33).
    pub from: Bound<LeasePosition>,
    /// The largest number of leases that the scan returns.
    pub limit: usize,
}

/// A checked request for a page of leases (B31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseQuery {
    scan: LeaseScan,
}

/// A page of outstanding leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasePage {
    /// The leases of the page, in the order of their positions.
    pub leases: Vec<LeaseRow>,
    /// The position after which the next page begins, `None` for the last page only.
    pub next: Option<LeasePosition>,
}

impl LeaseQuery {
    /// Parses a request for the leases of a cell that were begun at `created_after` or later and
    /// that come after `cursor`.
    ///
    /// # Errors
    /// The request's `limit` is negative.
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

    /// Returns the scan that the host must run. The scan's limit is one above the page's, so that
    /// an extra row shows if more leases follow.
    pub fn scan(&self) -> LeaseScan {
        LeaseScan { limit: self.scan.limit + 1, ..self.scan }
    }

    /// Makes a page from the rows that the scan returned.
    pub fn page(&self, mut rows: Vec<LeaseRow>) -> LeasePage {
        let more = rows.len() > self.scan.limit;
        rows.truncate(self.scan.limit);
        let next = rows.last().filter(|_| more).map(|row| row.position);
        LeasePage { leases: rows, next }
    }
}

/// One claim in a page of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRow {
    /// The key of the claim's bucket.
    pub key: BucketKey,
    /// The claim of this bucket.
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

/// A scan that a store runs: claims of one cell and one table, in the order of source id, bucket
/// type and canonical value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordScan {
    /// The cell whose claims are scanned.
    pub cell: CellId,
    /// The table that the claims come from.
    pub source_type: SourceType,
    /// The bucket types of the claims to return. An empty set returns claims of all types.
    pub bucket_types: BTreeSet<BucketType>,
    /// The source id after which the scan begins. An empty id means the beginning of the table.
    pub source_id_gt: SourceId,
    /// The last source id of the scan. An empty id means the end of the table.
    pub source_id_lte: SourceId,
    /// The largest number of claims that the scan returns.
    pub limit: usize,
}

impl RecordScan {
    /// Returns true if the claim is of the scan's cell and table, one of its bucket types and in
    /// its range of source ids.
    pub fn covers_claim(&self, key: &BucketKey, claim: &Claim) -> bool {
        let source = &claim.record().source;
        claim.owner == self.cell && source.source_type == self.source_type && self.covers(key.bucket_type, &source.id)
    }

    /// Returns true if a claim with this bucket type and source id is part of the scan. The claim
    /// must be of the scan's cell and table.
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

/// A page of records. Records of one source id are never split between pages, and a truncated page
/// is never empty. So a caller can continue after the last source id (B32).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPage {
    /// The records of the page, in the order of the scan.
    pub records: Vec<RecordRow>,
    /// True if more records follow after the last source id of the page.
    pub truncated: bool,
}

/// The result of cutting the rows of a scan into a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordStep {
    /// The page that the rows make.
    Page(RecordPage),
    /// One source id has more rows than the scan could return: the host must run this larger scan.
    Again(RecordScan),
}

impl RecordQuery {
    /// Parses a request for records of one cell and one table.
    ///
    /// # Errors
    /// The table or a bucket type is unspecified (B14), or a bound of the range is longer than a
    /// source id may be (B11).
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

    /// Returns the scan that the host must run first. The scan's limit is one above the page's, so
    /// that an extra row shows if more records follow.
    pub fn scan(&self) -> RecordScan {
        self.scan.clone()
    }

    /// Makes a page from the rows that `scan` returned, or returns a larger scan for the host to
    /// run.
    pub fn step(&self, mut rows: Vec<RecordRow>, scan: &RecordScan) -> RecordStep {
        let mut truncated = rows.len() >= scan.limit;
        if truncated {
            // The last source id may have rows beyond the scan's limit, so the next page takes this
            // source id.
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

/// Returns the position of the first row that has the same source id as the last row.
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

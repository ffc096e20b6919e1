//! Lists of leases and records, page by page. A host runs the scan that a query asks for and hands
//! the rows back. The query applies limits and cuts the page.
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
//!     // Only a page without a cursor is the last: a page may be short while leases remain (B31).
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

/// The number of leases in a page, unless the request says otherwise.
pub const DEFAULT_LEASES_PER_PAGE: usize = 100;
/// The most leases in a page. A larger limit counts as this one.
pub const MAX_LEASES_PER_PAGE: usize = 1000;
/// The most records in a page, unless one source id alone has more.
pub const RECORDS_PER_PAGE: usize = 1000;
/// The most bytes of values and attached data in a page, unless one source id alone has more. gRPC
/// clients refuse messages over 4 MiB by default, and names and framing come on top.
pub const RECORD_BYTES_PER_PAGE: usize = 2 * 1024 * 1024;

/// An outstanding lease's place in the list: by the time of its begin, then by id. The id makes
/// places distinct, so a cursor never skips a lease or repeats one (B31).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeasePosition {
    /// The time of the begin.
    pub created_at: Timestamp,
    /// The lease's id.
    pub lease: LeaseId,
}

/// One outstanding lease in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// The lease's place in the list.
    pub position: LeasePosition,
    /// The time of the lease's last change.
    pub updated_at: Timestamp,
}

/// A scan of a cell's outstanding leases, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseScan {
    /// The cell.
    pub cell: CellId,
    /// The place to begin at. A store starts reading there, so a page costs what it returns (B33).
    pub from: Bound<LeasePosition>,
    /// The largest number of rows.
    pub limit: usize,
}

/// A checked request for a page of leases (B31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseQuery {
    scan: LeaseScan,
}

/// A page of leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasePage {
    /// The leases, in order.
    pub leases: Vec<LeaseRow>,
    /// The place after which the next page begins. Only the last page has none.
    pub next: Option<LeasePosition>,
}

impl LeaseQuery {
    /// Parses a request for a cell's leases that were begun at `created_after` or later and come
    /// after `cursor`.
    ///
    /// # Errors
    /// The limit is negative.
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

    /// The scan to run. It asks for one row more than the page holds, which shows if the list goes
    /// on.
    pub fn scan(&self) -> LeaseScan {
        LeaseScan { limit: self.scan.limit + 1, ..self.scan }
    }

    /// The page that the rows of the scan make.
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
    /// The bucket's key.
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

/// A scan of a cell's claims of one table, in the order of source id, bucket type and canonical
/// value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordScan {
    /// The cell.
    pub cell: CellId,
    /// The table.
    pub source_type: SourceType,
    /// The bucket types to return. An empty set returns all.
    pub bucket_types: BTreeSet<BucketType>,
    /// The source id after which the scan begins. An empty one bounds nothing.
    pub source_id_gt: SourceId,
    /// The last source id of the scan. An empty one bounds nothing.
    pub source_id_lte: SourceId,
    /// The largest number of rows.
    pub limit: usize,
}

impl RecordScan {
    /// Returns true if the scan covers a claim.
    pub fn covers_claim(&self, key: &BucketKey, claim: &Claim) -> bool {
        let source = &claim.record().source;
        claim.owner == self.cell && source.source_type == self.source_type && self.covers(key.bucket_type, &source.id)
    }

    /// Returns true if the scan covers a claim of its cell and table that has this bucket type and
    /// source id.
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

/// A page of records. It never splits a source id, and a truncated page is never empty. So a caller
/// can go on after the last source id (B32).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPage {
    /// The records, in order.
    pub records: Vec<RecordRow>,
    /// True if more records remain past the last source id.
    pub truncated: bool,
}

/// The result of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordStep {
    /// The rows make a page.
    Page(RecordPage),
    /// One source id has more rows than the scan read: run this larger scan.
    Again(RecordScan),
}

impl RecordQuery {
    /// Parses a request for a cell's records of one table.
    ///
    /// # Errors
    /// The table or a bucket type is unspecified (B14), or a bound is longer than a source id may
    /// be (B11).
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

    /// The scan to run first. It asks for one row more than a page holds, which shows if the list
    /// goes on.
    pub fn scan(&self) -> RecordScan {
        self.scan.clone()
    }

    /// The page that the rows of a scan make, or a larger scan to run.
    pub fn step(&self, mut rows: Vec<RecordRow>, scan: &RecordScan) -> RecordStep {
        let mut truncated = rows.len() >= scan.limit;
        if truncated {
            // The last source id may have rows that were not read, so it is left to the next page.
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

/// The position of the first row that has the last row's source id.
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

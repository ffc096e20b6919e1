//! Lists of leases and of records, page by page. A query names the scan that a host must run. The
//! query then cuts the scanned rows into a page, within the limits. Records are scanned in bounded
//! parts: [`RecordList`].
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
use crate::organization::OrganizationId;
use crate::rejection::{Detail, Reason, Rejection};
use crate::time::Timestamp;

/// The number of leases in a page of `ListLeases`, unless the request sets a limit.
pub const DEFAULT_LEASES_PER_PAGE: usize = 100;
/// The most leases in a page of `ListLeases`. A larger limit in the request is lowered to this one.
pub const MAX_LEASES_PER_PAGE: usize = 1000;
/// The most records in a page of `ListRecords`, unless one source id alone has more.
pub const RECORDS_PER_PAGE: usize = 1000;
/// The most bytes in a page of `ListRecords`, unless one source id alone has more. gRPC clients
/// refuse messages over 4 MiB by default.
pub const RECORD_BYTES_PER_PAGE: usize = 2 * 1024 * 1024;
/// The most bytes of the records of one source id. These records are always on one page.
pub const RECORD_BYTES_PER_SOURCE: usize = 16 * 1024 * 1024;
/// The number of claims that a store reads in one part of a scan.
pub const CLAIMS_PER_PART: usize = 1024;
/// The largest number of claims in a part. Parts grow up to this number while all records of the
/// page have one source id.
const MAX_CLAIMS_PER_PART: usize = 8 * CLAIMS_PER_PART;
/// The number of claims read after which a page ends, even if few of them have the requested bucket
/// types.
const CLAIMS_PER_PAGE: usize = 100 * CLAIMS_PER_PART;
/// The bytes of a record as the wire has it, without its value, source id and attached data: two
/// UUIDs of 36 characters, two times, six numbers, and the headers of their messages.
const RECORD_OVERHEAD_BYTES: usize = 160;

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
    /// The organization that the lease's begin named, `None` if it named none.
    pub organization: Option<OrganizationId>,
}

/// A scan that a store runs: outstanding leases of one cell, in the order of their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseScan {
    /// The cell whose leases are scanned.
    pub cell: CellId,
    /// The position from which the store reads. Rows before this position are not read, so the cost
    /// of a page depends on its own rows only (B33).
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

    /// Returns an upper bound of the record's size on the wire, in bytes. The wire has the value
    /// twice.
    pub fn bytes(&self) -> usize {
        let record = self.claim.record();
        let user_data = record.user_data.as_ref().map_or(0, |data| data.type_url.len() + data.value.len());
        RECORD_OVERHEAD_BYTES + 2 * record.spelling.len() + record.source.id.as_bytes().len() + user_data
    }
}

/// The place of a claim in the order of `ListRecords`: source id, bucket type, canonical value.
pub type RecordPlace = (SourceId, BucketKey);

/// The position after which a part of a scan begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordPosition {
    /// After all claims of this source id. An empty id means the beginning of the table.
    Source(SourceId),
    /// After the claim at this place.
    Claim(RecordPlace),
}

impl RecordPosition {
    /// Returns the position as a bound of places.
    pub fn bound(&self) -> Bound<RecordPlace> {
        match self {
            Self::Source(id) if id.is_empty() => Bound::Included((SourceId::default(), BucketKey::first())),
            // In byte order, no id lies between an id and the same id with a zero byte appended.
            Self::Source(id) => {
                let next = SourceId::from_bytes(&[id.as_bytes(), &[0]].concat());
                Bound::Included((next, BucketKey::first()))
            }
            Self::Claim(place) => Bound::Excluded(place.clone()),
        }
    }
}

/// A part of a scan that a store runs: claims of one cell and one table, in the order of source id,
/// bucket type and canonical value. A store reads all claims of a part in one snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordScan {
    /// The cell whose claims are scanned.
    pub cell: CellId,
    /// The table that the claims come from.
    pub source_type: SourceType,
    /// The bucket types of the claims to return. An empty set returns claims of all types.
    pub bucket_types: BTreeSet<BucketType>,
    /// The position after which the part begins.
    pub after: RecordPosition,
    /// The last source id of the scan. An empty id means the end of the table.
    pub source_id_lte: SourceId,
    /// The largest number of claims that the store reads, claims of other bucket types included.
    pub limit: usize,
    /// The number of bytes ([`RecordRow::bytes`]) at which the part ends. The row that reaches this
    /// number is still returned.
    pub max_bytes: usize,
}

impl RecordScan {
    /// Returns true if the scan returns claims of this bucket type.
    pub fn covers(&self, bucket_type: BucketType) -> bool {
        self.bucket_types.is_empty() || self.bucket_types.contains(&bucket_type)
    }

    /// Returns true if a source id lies before or at the end of the scan.
    pub fn reaches(&self, source_id: &SourceId) -> bool {
        self.source_id_lte.is_empty() || *source_id <= self.source_id_lte
    }
}

/// The claims that a store found in a part of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordPart {
    /// The claims found, in the order of the scan. There may be none although more follow.
    pub rows: Vec<RecordRow>,
    /// The place after which the scan goes on; `None` if the scan is at its end.
    pub next: Option<RecordPlace>,
    /// The places of claims that are left out because they can't be read.
    pub damaged: Vec<RecordPlace>,
    /// True if the store's index is damaged, so that the part comes from a scan of all claims.
    pub is_index_damaged: bool,
    /// The number of damaged claims that the scan of all claims met. Nobody knows their places.
    pub damaged_anywhere: usize,
}

/// A checked request for a page of records (B32).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordQuery {
    scan: RecordScan,
}

/// A page of records. Records of one source id are never split between pages, and a truncated page
/// is never empty. So a caller can continue after the last source id (B32).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordPage {
    /// The records of the page, in the order of the scan.
    pub records: Vec<RecordRow>,
    /// True if more records follow after the last source id of the page.
    pub truncated: bool,
    /// The number of claims that are left out because they can't be read. The sum over all pages
    /// counts each of them once.
    pub damaged: usize,
    /// True if a part of the page comes from a scan of all claims, because the index is damaged.
    pub is_index_damaged: bool,
}

/// A page of records while its host scans for it, part by part.
///
/// The parts may come from different snapshots. The records of one source id come from one
/// snapshot, unless they do not fit into one part.
///
/// ```
/// use leasehold_core::cell::CellId;
/// use leasehold_core::claim::{SourceId, SourceType};
/// use leasehold_core::memory::MemoryStore;
/// use leasehold_core::query::RecordQuery;
/// use leasehold_core::store::Store;
///
/// let store = MemoryStore::default();
/// let (cell, table, all) = (CellId(1), SourceType(1), SourceId::default());
/// let query = RecordQuery::parse(cell, table, [].into(), all.clone(), all).unwrap();
/// let mut list = query.list();
/// let page = loop {
///     let part = store.records(list.scan()).unwrap();
///     if let Some(page) = list.add(part).unwrap() {
///         break page;
///     }
/// };
/// assert!(page.records.is_empty() && !page.truncated);
/// ```
#[derive(Clone, Debug)]
pub struct RecordList {
    scan: RecordScan,
    page: RecordPage,
    // A set, because the last source id of a part may be read again.
    damaged: BTreeSet<RecordPlace>,
    damaged_anywhere: usize,
    // An upper bound of the number of claims that the store has read for this page.
    looked_at: usize,
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
        let after = RecordPosition::Source(source_id_gt);
        let (limit, max_bytes) = (CLAIMS_PER_PART, RECORD_BYTES_PER_PAGE);
        Ok(Self { scan: RecordScan { cell, source_type, bucket_types, after, source_id_lte, limit, max_bytes } })
    }

    /// Begins the page that the query asks for.
    pub fn list(self) -> RecordList {
        let (page, damaged) = Default::default();
        RecordList { scan: self.scan, page, damaged, damaged_anywhere: 0, looked_at: 0 }
    }
}

impl RecordList {
    /// Returns the part of the scan that the host must run next.
    pub fn scan(&self) -> &RecordScan {
        &self.scan
    }

    /// Adds a part that the host has scanned. Returns the page if it is complete, `None` if the
    /// host must run the next part.
    ///
    /// # Errors
    /// One source id has records of more than [`RECORD_BYTES_PER_SOURCE`].
    pub fn add(&mut self, part: RecordPart) -> Result<Option<RecordPage>, Rejection> {
        let before = self.page.records.len();
        self.looked_at += self.scan.limit;
        self.damaged.extend(part.damaged);
        self.damaged_anywhere = part.damaged_anywhere;
        self.page.is_index_damaged |= part.is_index_damaged;
        self.page.records.extend(part.rows);
        let Some(next) = part.next else { return self.cut().map(Some) };
        // The source id at which the part ends may have further records.
        let records = &self.page.records;
        let whole = records.iter().rposition(|row| *row.source_id() != next.0).map_or(0, |at| at + 1);
        if whole > 0 && self.is_full() {
            self.page.records.truncate(whole);
            self.page.truncated = true;
            return self.cut().map(Some);
        }
        self.advance(whole, whole > before, next)?;
        Ok(None)
    }

    /// Sets the next part of the scan. The first `whole` records belong to source ids that are
    /// complete. `is_past_a_source` is true if the last part completed a source id.
    fn advance(&mut self, whole: usize, is_past_a_source: bool, next: RecordPlace) -> Result<(), Rejection> {
        self.scan.after = RecordPosition::Claim(next);
        if is_past_a_source && whole < self.page.records.len() {
            // The next part reads the last source id again from its beginning, so that all records
            // of this source id come from one snapshot.
            self.page.records.truncate(whole);
            let last = self.page.records.last().map(|row| row.source_id().clone());
            self.scan.after = RecordPosition::Source(last.unwrap_or_default());
        }
        let bytes = bytes(&self.page.records);
        self.scan.max_bytes = RECORD_BYTES_PER_PAGE.saturating_sub(bytes).max(1);
        if whole == 0 && !self.page.records.is_empty() {
            check_source_bytes(bytes)?;
            self.scan.limit = self.scan.limit.saturating_mul(2).min(MAX_CLAIMS_PER_PART);
            self.scan.max_bytes = RECORD_BYTES_PER_SOURCE.saturating_sub(bytes) + 1;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.page.records.len() >= RECORDS_PER_PAGE
            || self.looked_at >= CLAIMS_PER_PAGE
            || bytes(&self.page.records) >= RECORD_BYTES_PER_PAGE
    }

    /// Returns the records as a page within the limits, and leaves an empty page.
    fn cut(&mut self) -> Result<RecordPage, Rejection> {
        let mut page = std::mem::take(&mut self.page);
        let mut size = bytes(&page.records);
        while page.records.len() > RECORDS_PER_PAGE || size > RECORD_BYTES_PER_PAGE {
            let whole = start_of_last_source(&page.records);
            if whole == 0 {
                check_source_bytes(size)?;
                break;
            }
            size -= page.records.drain(whole..).map(|row| row.bytes()).sum::<usize>();
            page.truncated = true;
        }
        page.damaged = self.damaged_in(&page);
        Ok(page)
    }

    /// Returns how many damaged claims count for a page. The caller goes on after the page's last
    /// source id, so the next page meets the damaged claims beyond it again. Claims of unknown place
    /// count for the last page.
    fn damaged_in(&self, page: &RecordPage) -> usize {
        match page.records.last().filter(|_| page.truncated) {
            Some(last) => self.damaged.iter().take_while(|place| place.0 <= *last.source_id()).count(),
            None => self.damaged.len() + self.damaged_anywhere,
        }
    }
}

fn check_source_bytes(bytes: usize) -> Result<(), Rejection> {
    if bytes <= RECORD_BYTES_PER_SOURCE {
        return Ok(());
    }
    let max = RECORD_BYTES_PER_SOURCE as u64;
    let detail = Detail::Limit { name: "record_bytes_per_source", max, actual: bytes as u64 };
    Err(Rejection::whole(Reason::LimitExceeded, detail))
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

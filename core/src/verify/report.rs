//! The report of a run of verification: counts, and hashes in place of values (V09).

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::bucket::BucketKey;
use crate::claim::SourceId;

/// The outcome of one correction of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CorrectionOutcome {
    /// The claim was missing, and the run created it.
    Created,
    /// The claim differed from its row or came from another row, and the run replaced its record.
    Replaced,
    /// The claim was extra, and the run destroyed it.
    Destroyed,
    /// The claim was extra, and was gone before the run could destroy it.
    Gone,
    /// The bucket type does not allow the value of the row or of the record.
    Invalid,
    /// Another cell owns the bucket (V06).
    OtherCell,
    /// The bucket's claim comes from another row of this cell, in this table or in another one.
    OtherRow,
    /// Another lease holds the claim.
    Busy,
    /// The row or the claim has changed since the run compared them (V03).
    Changed,
    /// The row had been changed within the threshold when the run read it again (V02).
    Recent,
    /// The update with the correction failed, or its result is unknown.
    Failed,
}

/// One claim that a run corrected, could not correct or left alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Finding {
    /// The outcome of the claim's correction.
    pub outcome: CorrectionOutcome,
    /// The number of the bucket's type on the wire.
    pub bucket_type: i32,
    /// The source id of the claim's row, serialized as hexadecimal text.
    pub source_id: SourceId,
    /// The hash of the bucket's canonical value under the run's seed, as 16 hexadecimal digits.
    pub value_hash: String,
}

impl Finding {
    pub(super) fn new(outcome: CorrectionOutcome, bucket: &BucketKey, source_id: &SourceId, seed: u64) -> Self {
        let hash = xxh3_64_with_seed(bucket.canonical.as_bytes(), seed);
        let source_id = source_id.clone();
        Self { outcome, bucket_type: bucket.bucket_type.0, source_id, value_hash: format!("{hash:016x}") }
    }
}

/// The counts of a run of verification. A dry run counts the corrections that it would make.
///
/// Pages, rows, claims and records that the run compares once more after the scan are counted
/// twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Report {
    /// True if the run was told to make no corrections.
    pub dry_run: bool,
    /// True at the end of a dry run if a run with corrections would be refused, because it would
    /// destroy too many claims (V11).
    pub over_destroy_limit: bool,
    /// The number of ranges of source ids that the run compared.
    pub pages: u64,
    /// The number of ranges that the run's survey compared (V11).
    pub pages_surveyed: u64,
    /// The number of rows of the cell's table that the run read page by page.
    pub rows: u64,
    /// The number of claims that these rows call for.
    pub claims: u64,
    /// The number of records that the server listed.
    pub records: u64,
    /// The number of updates that the run tried to begin.
    pub updates: u64,
    /// The number of rows left alone because they were changed within the threshold (V02).
    pub rows_recent: u64,
    /// The number of records that differ and were left alone because they were changed within the
    /// threshold (V02).
    pub records_recent: u64,
    /// The number of compared records that a lease holds; those of recent rows are not compared. If
    /// such a record differs from its row, the run leaves it alone. If it does not differ, the end of
    /// the lease may still remove it.
    pub records_held: u64,
    /// The number of claims that rows call for and the server lacks. If a page's creates are
    /// dropped and the page is compared once more, only the second comparison counts them.
    pub missing: u64,
    /// The number of records with another subject or spelling than their row.
    pub different: u64,
    /// The number of records that no row calls for.
    pub extra: u64,
    /// The number of claims that the run created.
    pub created: u64,
    /// The number of claims whose record the run replaced, including records that moved to another
    /// row.
    pub replaced: u64,
    /// The number of claims that the run destroyed.
    pub destroyed: u64,
    /// The number of extra claims that were gone before the run could destroy them.
    pub gone: u64,
    /// The number of claims whose value is not allowed, so that no correction can create them.
    pub invalid: u64,
    /// The number of claims whose bucket another cell owns (V06).
    pub other_cell: u64,
    /// The number of claims whose bucket another row of this cell has claimed.
    pub other_row: u64,
    /// The number of claims not corrected because another lease held them.
    pub busy: u64,
    /// The number of corrections dropped because the row or the claim had changed (V03).
    pub changed: u64,
    /// The number of corrections dropped because, when read again, the row had been changed within
    /// the threshold (V02, V03).
    pub recent: u64,
    /// The number of corrections that failed and are left to the next run.
    pub failed: u64,
}

impl Report {
    pub(super) fn count(&mut self, outcome: CorrectionOutcome) {
        let counter = match outcome {
            CorrectionOutcome::Created => &mut self.created,
            CorrectionOutcome::Replaced => &mut self.replaced,
            CorrectionOutcome::Destroyed => &mut self.destroyed,
            CorrectionOutcome::Gone => &mut self.gone,
            CorrectionOutcome::Invalid => &mut self.invalid,
            CorrectionOutcome::OtherCell => &mut self.other_cell,
            CorrectionOutcome::OtherRow => &mut self.other_row,
            CorrectionOutcome::Busy => &mut self.busy,
            CorrectionOutcome::Changed => &mut self.changed,
            CorrectionOutcome::Recent => &mut self.recent,
            CorrectionOutcome::Failed => &mut self.failed,
        };
        *counter += 1;
    }
}

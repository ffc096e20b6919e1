//! The report of a run: counts and hashed values, never a value (V09).

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::bucket::BucketKey;
use crate::claim::SourceId;

/// The outcome of one correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CorrectionOutcome {
    /// The claim was missing and is created.
    Created,
    /// The claim differed, or came from another row, and is replaced.
    Replaced,
    /// The claim was extra and is destroyed.
    Destroyed,
    /// The claim was extra, and was gone before it could be destroyed.
    Gone,
    /// The bucket type does not allow the row's value.
    Invalid,
    /// Another cell holds the bucket (V06).
    OtherCell,
    /// Another row of this cell holds the bucket, in this table or in another one.
    OtherRow,
    /// The claim is under another lease.
    Busy,
    /// The row or the claim has changed since it was compared (V03).
    Changed,
    /// The row was changed within the threshold when it was read again (V02).
    Recent,
    /// The update failed, or its result is unknown.
    Failed,
}

/// One claim that was corrected, refused or left alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Finding {
    /// The outcome.
    pub outcome: CorrectionOutcome,
    /// The bucket's type.
    pub bucket_type: i32,
    /// The row's source id, serialized as hexadecimal text.
    pub source_id: SourceId,
    /// The canonical value's hash under the run's seed, as 16 hexadecimal digits.
    pub value_hash: String,
}

impl Finding {
    pub(super) fn new(outcome: CorrectionOutcome, bucket: &BucketKey, source_id: &SourceId, seed: u64) -> Self {
        let hash = xxh3_64_with_seed(bucket.canonical.as_bytes(), seed);
        let source_id = source_id.clone();
        Self { outcome, bucket_type: bucket.bucket_type.0, source_id, value_hash: format!("{hash:016x}") }
    }
}

/// The counts of a run. A dry run counts the corrections that it would make.
///
/// Pages, rows, claims and records that are looked at again after the scan are counted twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Report {
    /// True if the run made no corrections.
    pub dry_run: bool,
    /// Ranges that were compared.
    pub pages: u64,
    /// Rows that were read with their pages.
    pub rows: u64,
    /// Claims that those rows call for.
    pub claims: u64,
    /// Records that the server listed.
    pub records: u64,
    /// Updates that were begun, or refused.
    pub updates: u64,
    /// Rows left alone because they were changed within the threshold (V02).
    pub rows_recent: u64,
    /// Records left alone because they were changed within the threshold (V02).
    pub records_recent: u64,
    /// Records that a lease holds. A record that differs is left alone, and one that does not may
    /// still go with the lease.
    pub records_held: u64,
    /// Claims found missing. For rows that are looked at again, the second look counts.
    pub missing: u64,
    /// Claims found with another subject or spelling than their row's.
    pub different: u64,
    /// Claims found that no row calls for.
    pub extra: u64,
    /// Claims created.
    pub created: u64,
    /// Claims replaced in place, moved from row to row among them.
    pub replaced: u64,
    /// Claims destroyed.
    pub destroyed: u64,
    /// Extra claims that were gone before they could be destroyed.
    pub gone: u64,
    /// Claims whose value is not allowed, so that no correction can make them.
    pub invalid: u64,
    /// Claims whose bucket another cell holds (V06).
    pub other_cell: u64,
    /// Claims whose bucket another row of this cell holds.
    pub other_row: u64,
    /// Claims that were under another lease at every try.
    pub busy: u64,
    /// Corrections dropped because the row or the claim had changed (V03).
    pub changed: u64,
    /// Corrections dropped because the row had been changed within the threshold when it was read
    /// again (V02, V03).
    pub recent: u64,
    /// Corrections that failed and are left for the next run.
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

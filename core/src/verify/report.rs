//! What a verification says of itself: counts and hashed values, never a value (V09).

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::bucket::BucketKey;
use crate::claim::SourceId;

/// What became of one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was missing and is created.
    Created,
    /// It differed, or came from another row, and is replaced.
    Replaced,
    /// It was extra and is destroyed.
    Destroyed,
    /// It was extra, and gone when it was to be destroyed.
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
    /// The update failed, or nobody knows what came of it.
    Failed,
}

/// One claim that was corrected, refused or left.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Finding {
    /// What became of it.
    pub outcome: Outcome,
    /// The bucket's type.
    pub bucket_type: i32,
    /// The row, as hexadecimal text.
    pub source_id: SourceId,
    /// The canonical value's hash under the run's seed, as 16 hexadecimal digits.
    pub value_hash: String,
}

impl Finding {
    pub(super) fn of(outcome: Outcome, bucket: &BucketKey, source_id: &SourceId, seed: u64) -> Self {
        let hash = xxh3_64_with_seed(bucket.canonical.as_bytes(), seed);
        let source_id = source_id.clone();
        Self { outcome, bucket_type: bucket.bucket_type.0, source_id, value_hash: format!("{hash:016x}") }
    }
}

/// What a run has seen and done, in counts. In a dry run, what it would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Report {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Ranges that were compared; those that were looked at again, twice.
    pub pages: u64,
    /// Rows that were read, page by page: likewise.
    pub rows: u64,
    /// Claims that those rows call for: likewise.
    pub claims: u64,
    /// Records that the server listed: likewise.
    pub records: u64,
    /// Updates that were sent.
    pub updates: u64,
    /// Rows left alone because they were changed within the threshold (V02): likewise.
    pub rows_recent: u64,
    /// Records left alone because they were changed within the threshold (V02): likewise.
    pub records_recent: u64,
    /// Records that a lease holds: likewise. What they differ in is left alone, and where they are as they should be, they
    /// may still go with the lease.
    pub records_held: u64,
    /// Claims found missing; where their rows are looked at again, those found then.
    pub missing: u64,
    /// Claims found with another subject or spelling.
    pub different: u64,
    /// Claims found that no row calls for.
    pub extra: u64,
    /// Claims created.
    pub created: u64,
    /// Claims replaced in place, also those that moved from row to row.
    pub replaced: u64,
    /// Claims destroyed.
    pub destroyed: u64,
    /// Claims that were gone when they were to be destroyed.
    pub gone: u64,
    /// Claims that no correction can make: the value is not allowed.
    pub invalid: u64,
    /// Claims whose bucket another cell holds (V06).
    pub other_cell: u64,
    /// Claims whose bucket another row of this cell holds.
    pub other_row: u64,
    /// Claims that stayed under another lease.
    pub busy: u64,
    /// Corrections dropped because the row or the claim had changed (V03).
    pub changed: u64,
    /// Corrections dropped because the row had been changed within the threshold when it was read again (V02, V03).
    pub recent: u64,
    /// Corrections that failed and are left for the next run.
    pub failed: u64,
}

impl Report {
    pub(super) fn count(&mut self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Created => &mut self.created,
            Outcome::Replaced => &mut self.replaced,
            Outcome::Destroyed => &mut self.destroyed,
            Outcome::Gone => &mut self.gone,
            Outcome::Invalid => &mut self.invalid,
            Outcome::OtherCell => &mut self.other_cell,
            Outcome::OtherRow => &mut self.other_row,
            Outcome::Busy => &mut self.busy,
            Outcome::Changed => &mut self.changed,
            Outcome::Recent => &mut self.recent,
            Outcome::Failed => &mut self.failed,
        };
        *counter += 1;
    }
}

//! The check of planned corrections against rows that were read again (V02, V03).

use super::columns::Rows;
use super::correction::{Correction, PendingCreate, PendingDestroy};
use super::diff::pending_creates;
use super::report::CorrectionOutcome;
use crate::bucket::BucketKey;
use crate::catalogue::Catalogue;
use crate::claim::SourceId;

/// The demand of a row that was read again for one bucket.
enum RowDemand {
    /// The row calls for the bucket, with this spelling and subject.
    CallsFor(PendingCreate),
    /// The row does not call for the bucket any more, or the row is gone.
    DoesNot,
    /// The row was changed within the threshold, so it is left alone.
    Recent,
}

/// The rows that were read again, and the settings of the check.
pub(super) struct Recheck<'a> {
    pub(super) rows: &'a Rows,
    pub(super) catalogue: &'a Catalogue,
    pub(super) recent_within_micros: u64,
}

impl Recheck<'_> {
    fn row_demand(&self, source_id: &SourceId, key: &BucketKey) -> RowDemand {
        let Some(row) = self.rows.find(source_id) else { return RowDemand::DoesNot };
        if self.rows.is_recent(row, self.recent_within_micros) {
            return RowDemand::Recent;
        }
        let (creates, _) = pending_creates(self.catalogue, source_id, self.rows.claims_of(row));
        creates.into_iter().find(|create| create.key == *key).map_or(RowDemand::DoesNot, RowDemand::CallsFor)
    }

    /// Returns true if the row's first claim of the create's type still has the create's value and
    /// subject. This is true of most rows. The comparison needs no canonical form, which is the
    /// slow part of [`row_demand`](Self::row_demand).
    fn is_unchanged(&self, create: &PendingCreate) -> bool {
        let Some(row) = self.rows.find(&create.source_id) else { return false };
        let first = self.rows.claims_of(row).find(|claim| claim.bucket_type == create.key.bucket_type);
        let is_same = first.is_some_and(|claim| *claim.value == *create.spelling && claim.subject == create.subject);
        is_same && !self.rows.is_recent(row, self.recent_within_micros)
    }

    /// Checks one correction against the rows. Returns `None` if the rows still require the
    /// correction, or the correction that they require instead.
    ///
    /// # Errors
    /// The rows require no correction of this bucket. The error is the outcome to report.
    pub(super) fn check(&self, correction: &Correction) -> Result<Option<Correction>, CorrectionOutcome> {
        use RowDemand::{CallsFor, DoesNot, Recent};
        match correction {
            Correction::Create(create) | Correction::Probe(create) if self.is_unchanged(create) => Ok(None),
            Correction::Create(create) | Correction::Probe(create) => {
                match self.row_demand(&create.source_id, &create.key) {
                    CallsFor(now) => Ok((now != *create).then_some(Correction::Create(now))),
                    DoesNot => Err(CorrectionOutcome::Changed),
                    Recent => Err(CorrectionOutcome::Recent),
                }
            }
            Correction::Destroy(destroy) => match self.row_demand(&destroy.source_id, &destroy.key) {
                DoesNot => Ok(None),
                CallsFor(_) => Err(CorrectionOutcome::Changed),
                Recent => Err(CorrectionOutcome::Recent),
            },
            Correction::Replace(destroy, create) => self.check_replace(destroy, create),
        }
    }

    fn check_replace(
        &self,
        destroy: &PendingDestroy,
        create: &PendingCreate,
    ) -> Result<Option<Correction>, CorrectionOutcome> {
        use RowDemand::{CallsFor, DoesNot, Recent};
        let to = self.row_demand(&create.source_id, &create.key);
        let is_own = destroy.source_id == create.source_id;
        let from = if is_own { DoesNot } else { self.row_demand(&destroy.source_id, &destroy.key) };
        match (to, from) {
            (Recent, _) | (_, Recent) => Err(CorrectionOutcome::Recent),
            (_, CallsFor(_)) => Err(CorrectionOutcome::Changed),
            (CallsFor(now), DoesNot) => Ok((now != *create).then(|| Correction::Replace(destroy.clone(), now))),
            (DoesNot, DoesNot) => Ok(Some(Correction::Destroy(destroy.clone()))),
        }
    }
}

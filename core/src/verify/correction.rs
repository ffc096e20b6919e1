//! One change to one bucket, and the next try after the server refuses it (V05).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::report::CorrectionOutcome;
use crate::bucket::BucketKey;
use crate::claim::{SourceId, Subject};
use crate::rejection::Reason;

/// A claim that a row calls for and the server does not have in this form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PendingCreate {
    pub(super) key: BucketKey,
    pub(super) spelling: Arc<str>,
    pub(super) subject: Subject,
    pub(super) source_id: SourceId,
}

/// A claim that the server has and its row does not call for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PendingDestroy {
    pub(super) key: BucketKey,
    pub(super) source_id: SourceId,
}

/// One change to one bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Correction {
    /// Creates a missing claim.
    Create(PendingCreate),
    /// Finds out who holds a taken bucket, by a replace of a claim that the row does not have.
    /// Cells are shown nothing of each other, but the refusal tells: not the owner, changed
    /// (another row of this cell), not found or busy.
    Probe(PendingCreate),
    /// Destroys an extra claim.
    Destroy(PendingDestroy),
    /// Moves a bucket from one row to another, or to another form in the same row. One update does
    /// both, so no other cell can take the bucket in between (B06).
    Replace(PendingDestroy, PendingCreate),
}

impl Correction {
    pub(super) fn key(&self) -> &BucketKey {
        match self {
            Self::Create(create) | Self::Probe(create) | Self::Replace(_, create) => &create.key,
            Self::Destroy(destroy) => &destroy.key,
        }
    }

    /// The row that the correction is reported under.
    pub(super) fn source_id(&self) -> &SourceId {
        match self {
            Self::Create(create) | Self::Probe(create) | Self::Replace(_, create) => &create.source_id,
            Self::Destroy(destroy) => &destroy.source_id,
        }
    }

    /// The outcome to report once the update is committed.
    pub(super) fn outcome(&self) -> CorrectionOutcome {
        match self {
            Self::Create(_) => CorrectionOutcome::Created,
            Self::Probe(_) | Self::Replace(_, _) => CorrectionOutcome::Replaced,
            Self::Destroy(_) => CorrectionOutcome::Destroyed,
        }
    }

    /// The number of claims that the correction takes in an update.
    pub(super) fn claims(&self) -> usize {
        match self {
            Self::Create(_) | Self::Destroy(_) => 1,
            Self::Probe(_) | Self::Replace(_, _) => 2,
        }
    }

    pub(super) fn create(&self) -> Option<&PendingCreate> {
        match self {
            Self::Create(create) | Self::Probe(create) | Self::Replace(_, create) => Some(create),
            Self::Destroy(_) => None,
        }
    }

    /// The row from which the correction's destroy takes the bucket.
    pub(super) fn destroyed_from(&self) -> Option<&SourceId> {
        match self {
            Self::Create(_) => None,
            Self::Probe(create) => Some(&create.source_id),
            Self::Destroy(destroy) | Self::Replace(destroy, _) => Some(&destroy.source_id),
        }
    }

    /// The rows that must bear the correction out.
    pub(super) fn source_ids(&self) -> impl Iterator<Item = SourceId> {
        self.create().map(|create| &create.source_id).into_iter().chain(self.destroyed_from()).cloned()
    }
}

/// The next try of a correction that the server refused.
pub(super) enum AfterRefusal {
    /// Find out who holds the bucket.
    Probe,
    /// Try to create the claim once more.
    Create,
    /// Wait for the holder to let go of the bucket. The outcome is reported if the wait is in vain.
    Defer(CorrectionOutcome),
    /// Report the outcome and give up.
    Drop(CorrectionOutcome),
}

pub(super) fn after_refusal(correction: &Correction, reason: Reason) -> AfterRefusal {
    use AfterRefusal::{Defer, Drop};
    use Correction::{Create, Destroy, Probe, Replace};
    use CorrectionOutcome::{Busy, Changed, Failed, Gone, Invalid, OtherCell, OtherRow};
    match (correction, reason) {
        (_, Reason::InvalidUpdate | Reason::LimitExceeded | Reason::ValueNotAllowed) => Drop(Invalid),
        (Create(_), Reason::ClaimTaken) => AfterRefusal::Probe,
        // The bucket was let go of since.
        (Probe(_) | Replace(_, _), Reason::ClaimNotFound) => AfterRefusal::Create,
        (Probe(_) | Replace(_, _), Reason::ClaimChanged) => Defer(OtherRow),
        (Create(_) | Probe(_) | Replace(_, _), Reason::ClaimBusy) => Defer(Busy),
        (Destroy(_), Reason::ClaimNotFound) => Drop(Gone),
        (Destroy(_), Reason::ClaimChanged) => Drop(Changed),
        (Destroy(_), Reason::ClaimBusy) => Drop(Busy),
        // Another cell's bucket is reported and never fought over (V06).
        (_, Reason::NotOwner) => Drop(OtherCell),
        _ => Drop(Failed),
    }
}

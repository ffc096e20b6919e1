//! A correction: one change to one bucket. If the server refuses a correction, its next try is
//! decided here (V05).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::report::CorrectionOutcome;
use crate::bucket::BucketKey;
use crate::claim::{SourceId, Subject};
use crate::rejection::Reason;

/// A claim that a row calls for and that the server does not have with this spelling, subject and
/// source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PendingCreate {
    pub(super) key: BucketKey,
    pub(super) spelling: Arc<str>,
    pub(super) subject: Subject,
    pub(super) source_id: SourceId,
}

/// A claim that the server has and that its source row does not call for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PendingDestroy {
    pub(super) key: BucketKey,
    pub(super) source_id: SourceId,
}

/// One change of a run to one bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Correction {
    /// Create a missing claim.
    Create(PendingCreate),
    /// Learn the owner of a taken bucket: send a replace that names this row as the source of the
    /// bucket's claim. The server shows a cell only its own claims, but the refusal of the replace
    /// tells the owner: another cell (`NOT_OWNER`), or this cell with another row
    /// (`CLAIM_CHANGED`).
    Probe(PendingCreate),
    /// Destroy an extra claim.
    Destroy(PendingDestroy),
    /// Move a bucket from one row to another, or change its spelling or subject in the same row.
    /// One update does both parts, so no other cell can take the bucket in between (B06).
    Replace(PendingDestroy, PendingCreate),
}

impl Correction {
    pub(super) fn key(&self) -> &BucketKey {
        match self {
            Self::Create(create) | Self::Probe(create) | Self::Replace(_, create) => &create.key,
            Self::Destroy(destroy) => &destroy.key,
        }
    }

    /// Returns the source id of the row under which the correction is reported.
    pub(super) fn source_id(&self) -> &SourceId {
        match self {
            Self::Create(create) | Self::Probe(create) | Self::Replace(_, create) => &create.source_id,
            Self::Destroy(destroy) => &destroy.source_id,
        }
    }

    /// Returns the outcome to report after the update with the correction is committed.
    pub(super) fn outcome(&self) -> CorrectionOutcome {
        match self {
            Self::Create(_) => CorrectionOutcome::Created,
            Self::Probe(_) | Self::Replace(_, _) => CorrectionOutcome::Replaced,
            Self::Destroy(_) => CorrectionOutcome::Destroyed,
        }
    }

    /// Returns the number of claims that the correction adds to an update: 1, or 2 for a create
    /// together with a destroy.
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

    /// Returns the source id of the row whose claim the correction destroys, `None` for a plain
    /// create.
    pub(super) fn destroyed_from(&self) -> Option<&SourceId> {
        match self {
            Self::Create(_) => None,
            Self::Probe(create) => Some(&create.source_id),
            Self::Destroy(destroy) | Self::Replace(destroy, _) => Some(&destroy.source_id),
        }
    }

    /// Returns the source ids of the rows that must still require the correction, with repetitions.
    pub(super) fn source_ids(&self) -> impl Iterator<Item = SourceId> {
        self.create().map(|create| &create.source_id).into_iter().chain(self.destroyed_from()).cloned()
    }
}

/// The next try of a correction that the server has refused.
pub(super) enum AfterRefusal {
    /// Probe the bucket to learn its owner.
    Probe,
    /// Try to create the claim once more.
    Create,
    /// Defer the create until another row or lease gives the bucket up. The outcome is reported if
    /// the create can't be deferred.
    Defer(CorrectionOutcome),
    /// Give up the correction and report the outcome.
    Drop(CorrectionOutcome),
}

pub(super) fn after_refusal(correction: &Correction, reason: Reason) -> AfterRefusal {
    use AfterRefusal::{Defer, Drop};
    use Correction::{Create, Destroy, Probe, Replace};
    use CorrectionOutcome::{Busy, Changed, Failed, Gone, Invalid, OtherCell, OtherRow};
    match (correction, reason) {
        (_, Reason::InvalidUpdate | Reason::LimitExceeded | Reason::ValueNotAllowed) => Drop(Invalid),
        (Create(_), Reason::ClaimTaken) => AfterRefusal::Probe,
        // The bucket has no claim any more, so a create without a destroy suffices.
        (Probe(_) | Replace(_, _), Reason::ClaimNotFound) => AfterRefusal::Create,
        (Probe(_) | Replace(_, _), Reason::ClaimChanged) => Defer(OtherRow),
        (Create(_) | Probe(_) | Replace(_, _), Reason::ClaimBusy) => Defer(Busy),
        (Destroy(_), Reason::ClaimNotFound) => Drop(Gone),
        (Destroy(_), Reason::ClaimChanged) => Drop(Changed),
        (Destroy(_), Reason::ClaimBusy) => Drop(Busy),
        // A bucket that another cell owns is reported and left alone (V06).
        (_, Reason::NotOwner) => Drop(OtherCell),
        _ => Drop(Failed),
    }
}

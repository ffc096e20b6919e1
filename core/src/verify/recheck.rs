//! Rows that are read again: what they make of the corrections that are about them (V02, V03).

use super::columns::Rows;
use super::diff::{Free, Take, takes};
use super::plan::Correction;
use super::report::Outcome;
use crate::bucket::BucketKey;
use crate::catalogue::Catalogue;
use crate::claim::SourceId;

/// How a row stands to a bucket when it is read again.
enum Standing {
    /// It calls for it, in this way.
    CallsFor(Take),
    /// It does not, or is gone.
    DoesNot,
    /// It was changed within the threshold.
    Recent,
}

/// Rows that were read again.
pub(super) struct Sight<'a> {
    pub(super) rows: &'a Rows,
    pub(super) catalogue: &'a Catalogue,
    pub(super) recent_within_micros: u64,
}

impl Sight<'_> {
    fn standing(&self, source_id: &SourceId, key: &BucketKey) -> Standing {
        let Some(row) = self.rows.find(source_id) else { return Standing::DoesNot };
        if self.rows.is_recent(row, self.recent_within_micros) {
            return Standing::Recent;
        }
        let (takes, _) = takes(self.catalogue, source_id, self.rows.claims_of(row));
        takes.into_iter().find(|take| take.key == *key).map_or(Standing::DoesNot, Standing::CallsFor)
    }

    /// Whether the first claim of its row of the take's type is just as it was: most are, and need no canonical form.
    fn is_as_it_was(&self, take: &Take) -> bool {
        let Some(row) = self.rows.find(&take.source_id) else { return false };
        let first = self.rows.claims_of(row).find(|claim| claim.bucket_type == take.key.bucket_type);
        let is_same = first.is_some_and(|claim| *claim.value == *take.spelling && claim.subject == take.subject);
        is_same && !self.rows.is_recent(row, self.recent_within_micros)
    }

    /// What the rows bear out now: none where the correction still stands, another in its place, or why it is dropped.
    pub(super) fn recheck(&self, correction: &Correction) -> Result<Option<Correction>, Outcome> {
        use Standing::{CallsFor, DoesNot, Recent};
        match correction {
            Correction::Take(take) | Correction::Probe(take) if self.is_as_it_was(take) => Ok(None),
            Correction::Take(take) | Correction::Probe(take) => match self.standing(&take.source_id, &take.key) {
                CallsFor(now) => Ok((now != *take).then_some(Correction::Take(now))),
                DoesNot => Err(Outcome::Changed),
                Recent => Err(Outcome::Recent),
            },
            Correction::Free(free) => match self.standing(&free.source_id, &free.key) {
                DoesNot => Ok(None),
                CallsFor(_) => Err(Outcome::Changed),
                Recent => Err(Outcome::Recent),
            },
            Correction::Replace(free, take) => self.recheck_replace(free, take),
        }
    }

    fn recheck_replace(&self, free: &Free, take: &Take) -> Result<Option<Correction>, Outcome> {
        use Standing::{CallsFor, DoesNot, Recent};
        let taker = self.standing(&take.source_id, &take.key);
        let is_own = free.source_id == take.source_id;
        let freer = if is_own { DoesNot } else { self.standing(&free.source_id, &free.key) };
        match (taker, freer) {
            (Recent, _) | (_, Recent) => Err(Outcome::Recent),
            (_, CallsFor(_)) => Err(Outcome::Changed),
            (CallsFor(now), DoesNot) => Ok((now != *take).then(|| Correction::Replace(free.clone(), now))),
            (DoesNot, DoesNot) => Ok(Some(Correction::Free(free.clone()))),
        }
    }
}

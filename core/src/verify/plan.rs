//! The corrections of a run: in which order they are tried, and what becomes of those that are refused (V05).

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHashSet};

use super::Checkpoint;
use super::diff::{Free, Take};
use super::recheck::Sight;
use super::report::Outcome;
use crate::batch::{ClaimRequest, MAX_CLAIMS, UpdateRequest};
use crate::bucket::BucketKey;
use crate::catalogue::Catalogue;
use crate::claim::{Source, SourceId, SourceType};
use crate::order::sorted_by;
use crate::rejection::Reason;
use crate::verify::columns::Rows;

/// Frees that wait for a take of the same bucket, beside those of one page, at the most: then they are destroyed, which
/// makes a full update.
const MAX_WAITING_FREES: usize = MAX_CLAIMS;
/// Takes that wait for another row of this cell to let go, beside those of one page, at the most: then the page is looked
/// at again. One takes some 300 bytes.
const MAX_WAITING_TAKES: usize = 10_000;
/// How often one correction is tried: more often something else is at it.
const MAX_TRIES: u8 = 6;

/// One change to one bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Correction {
    /// Create it.
    Take(Take),
    /// Find out who holds it: to replace the taker's own claim, which it does not have, is refused with the answer.
    Probe(Take),
    /// Destroy it.
    Free(Free),
    /// Let one row take what another, or itself, lets go of, without a gap in between (B06).
    Replace(Free, Take),
}

impl Correction {
    pub(super) fn key(&self) -> &BucketKey {
        match self {
            Self::Take(take) | Self::Probe(take) | Self::Replace(_, take) => &take.key,
            Self::Free(free) => &free.key,
        }
    }

    pub(super) fn source_id(&self) -> &SourceId {
        match self {
            Self::Take(take) | Self::Probe(take) | Self::Replace(_, take) => &take.source_id,
            Self::Free(free) => &free.source_id,
        }
    }

    /// What it is counted as once it is done.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Take(_) => Outcome::Created,
            Self::Probe(_) | Self::Replace(_, _) => Outcome::Replaced,
            Self::Free(_) => Outcome::Destroyed,
        }
    }

    fn weight(&self) -> usize {
        match self {
            Self::Take(_) | Self::Free(_) => 1,
            Self::Probe(_) | Self::Replace(_, _) => 2,
        }
    }

    fn take(&self) -> Option<&Take> {
        match self {
            Self::Take(take) | Self::Probe(take) | Self::Replace(_, take) => Some(take),
            Self::Free(_) => None,
        }
    }

    /// The row from which it frees the bucket.
    fn freed_from(&self) -> Option<&SourceId> {
        match self {
            Self::Take(_) => None,
            Self::Probe(take) => Some(&take.source_id),
            Self::Free(free) | Self::Replace(free, _) => Some(&free.source_id),
        }
    }

    fn source_ids(&self) -> impl Iterator<Item = SourceId> {
        self.take().map(|take| &take.source_id).into_iter().chain(self.freed_from()).cloned()
    }
}

/// What to do with a correction that the server refused.
enum Next {
    Probe,
    /// Try to take it once more.
    Take,
    /// Wait for whoever holds it.
    Wait(Outcome),
    Drop(Outcome),
}

fn after_refusal(correction: &Correction, reason: Reason) -> Next {
    use Correction::{Free, Probe, Replace, Take};
    match (correction, reason) {
        (_, Reason::InvalidUpdate | Reason::LimitExceeded | Reason::ValueNotAllowed) => Next::Drop(Outcome::Invalid),
        (Take(_), Reason::ClaimTaken) => Next::Probe,
        (Probe(_) | Replace(_, _), Reason::ClaimNotFound) => Next::Take,
        (Probe(_) | Replace(_, _), Reason::ClaimChanged) => Next::Wait(Outcome::OtherRow),
        (Take(_) | Probe(_) | Replace(_, _), Reason::ClaimBusy) => Next::Wait(Outcome::Busy),
        (Free(_), Reason::ClaimNotFound) => Next::Drop(Outcome::Gone),
        (Free(_), Reason::ClaimChanged) => Next::Drop(Outcome::Changed),
        (Free(_), Reason::ClaimBusy) => Next::Drop(Outcome::Busy),
        (_, Reason::NotOwner) => Next::Drop(Outcome::OtherCell),
        _ => Next::Drop(Outcome::Failed),
    }
}

#[derive(Clone, Debug, Hash)]
struct Planned {
    correction: Correction,
    tries: u8,
}

/// Where the batch under way stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    /// It is to be begun, perhaps after its rows were read again.
    #[default]
    Planned,
    /// It is begun, and its rows are to be read again under its lease.
    Begun,
    /// Its rows bear it out, as they stood then.
    BorneOut,
    /// Some don't.
    Overtaken,
}

/// Everything that is to be corrected and is not yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// To be tried after their rows have been read again (V03).
    checked: VecDeque<Planned>,
    /// First tries of takes, whose rows were read just now.
    takes: VecDeque<Planned>,
    /// Refused takes of which it is to be found out who holds the bucket.
    probes: VecDeque<Planned>,
    waiting_takes: FxHashMap<BucketKey, Take>,
    waiting_frees: FxHashMap<BucketKey, Free>,
    /// Whether takes have their last try. What is refused once more is left to the next run, which scans anew: kept for it,
    /// it would keep that run from the rows that have come since (V07).
    is_last_pass: bool,
    /// The batch that is read again or sent.
    under_way: Vec<Planned>,
    stage: Stage,
    /// What became of corrections since this was last drained.
    outcomes: Vec<(Outcome, BucketKey, SourceId)>,
}

impl Hash for Plan {
    fn hash<H: Hasher>(&self, to: &mut H) {
        let Self { checked, takes, probes, waiting_takes, waiting_frees, is_last_pass, under_way, stage, outcomes } =
            self;
        (checked, takes, probes, is_last_pass, under_way, stage, outcomes).hash(to);
        (in_order(waiting_takes), in_order(waiting_frees)).hash(to);
    }
}

/// What the plan wants next.
pub(super) enum Want {
    ReadAgain(Vec<SourceId>),
    Begin,
    Commit,
    RollBack,
    Nothing,
}

impl Plan {
    pub(super) fn resume(checkpoint: Checkpoint) -> Self {
        let mut plan = Self::default();
        checkpoint.takes.into_iter().for_each(|take| plan.wait(take, Outcome::OtherRow));
        checkpoint.frees.into_iter().for_each(|free| plan.free(free));
        plan
    }

    /// What is deferred; takes that have not been sent are not in it.
    pub(super) fn waiting(&self) -> (Vec<Take>, Vec<Free>) {
        (in_order(&self.waiting_takes), in_order(&self.waiting_frees))
    }

    /// Forgets the takes that wait of rows beyond this one, where more wait than may; how many. Those are the new ones.
    pub(super) fn forget_beyond(&mut self, source_id: &SourceId) -> Option<u64> {
        let waiting = self.waiting_takes.len();
        if waiting <= MAX_WAITING_TAKES {
            return None;
        }
        self.waiting_takes.retain(|_, take| take.source_id <= *source_id);
        Some((waiting - self.waiting_takes.len()) as u64)
    }

    /// From here on, all that was extra is freed: whoever is refused now has nothing to wait for.
    pub(super) fn waits_no_more(&mut self) {
        self.is_last_pass = true;
    }

    /// A claim that is missing. Where another row is to let go of the bucket, both in one.
    pub(super) fn take(&mut self, take: Take) {
        if self.waiting_takes.get(&take.key).is_some_and(|waiting| waiting.source_id == take.source_id) {
            // Its row is looked at again.
            self.waiting_takes.remove(&take.key);
        }
        match self.waiting_frees.remove(&take.key) {
            Some(free) => self.check(Correction::Replace(free, take)),
            None => self.takes.push_back(planned(Correction::Take(take))),
        }
    }

    /// A claim that is extra. It waits: its bucket may have moved to a row that was refused it, or to one still to come,
    /// and then changes hands without a gap in which another cell could take it.
    pub(super) fn free(&mut self, free: Free) {
        if let Some(take) = self.waiting_takes.remove(&free.key) {
            return self.check(Correction::Replace(free, take));
        }
        self.waiting_frees.insert(free.key.clone(), free);
    }

    /// After a page, all of whose rows have had their say: where too many frees wait, they go.
    pub(super) fn bound_frees(&mut self) {
        if self.waiting_frees.len() >= MAX_WAITING_FREES {
            self.release_frees();
        }
    }

    /// A claim whose record differs from what its own row calls for.
    pub(super) fn replace(&mut self, take: Take) {
        let free = Free { key: take.key.clone(), source_id: take.source_id.clone() };
        self.check(Correction::Replace(free, take));
    }

    /// How many takes have not been sent yet.
    pub(super) fn unsent_takes(&self) -> usize {
        self.takes.len()
    }

    /// What became of corrections since the last call.
    pub(super) fn outcomes(&mut self) -> Vec<(Outcome, BucketKey, SourceId)> {
        std::mem::take(&mut self.outcomes)
    }

    pub(super) fn note(&mut self, outcome: Outcome, key: &BucketKey, source_id: &SourceId) {
        self.outcomes.push((outcome, key.clone(), source_id.clone()));
    }

    /// What to do next: frees and replaces before takes (V05). Takes fill whole updates unless `all` are to go (V08).
    pub(super) fn want(&mut self, all: bool) -> Want {
        match self.stage {
            Stage::Begun => return Want::ReadAgain(self.rows_under_way()),
            Stage::BorneOut => return Want::Commit,
            Stage::Overtaken => return Want::RollBack,
            Stage::Planned if !self.under_way.is_empty() => return Want::Begin,
            Stage::Planned => {}
        }
        if !self.checked.is_empty() {
            self.under_way = batch(&mut self.checked);
            return Want::ReadAgain(self.rows_under_way());
        }
        let queue = if !self.probes.is_empty() {
            &mut self.probes
        } else if self.takes.len() >= MAX_CLAIMS || (all && !self.takes.is_empty()) {
            &mut self.takes
        } else {
            return Want::Nothing;
        };
        self.under_way = batch(queue);
        Want::Begin
    }

    /// The rows that the batch under way is about.
    fn rows_under_way(&self) -> Vec<SourceId> {
        let ids = self.under_way.iter().flat_map(|planned| planned.correction.source_ids()).collect();
        let mut ids: Vec<SourceId> = sorted_by(ids, Ord::cmp);
        ids.dedup();
        ids
    }

    /// At the end of the scan: what waited for rows to come goes on. Whether there was anything.
    pub(super) fn release(&mut self) -> bool {
        if !self.waiting_frees.is_empty() {
            self.release_frees();
            return true;
        }
        if self.waiting_takes.is_empty() {
            return false;
        }
        self.is_last_pass = true;
        let waiting = in_order(&std::mem::take(&mut self.waiting_takes));
        waiting.into_iter().for_each(|take| self.check(Correction::Take(take)));
        true
    }

    /// The batch under way as a request.
    pub(super) fn request(&self, source_type: SourceType) -> UpdateRequest {
        let corrections = || self.under_way.iter().map(|planned| &planned.correction);
        let create = |take: &Take| ClaimRequest {
            bucket_type: take.key.bucket_type,
            value: take.spelling.clone(),
            subject: Some(take.subject),
            source: Some(Source { source_type, id: take.source_id.clone() }),
            user_data: None,
        };
        let destroy = |correction: &Correction| {
            Some(ClaimRequest {
                bucket_type: correction.key().bucket_type,
                value: correction.key().canonical.clone(),
                subject: None,
                source: Some(Source { source_type, id: correction.freed_from()?.clone() }),
                user_data: None,
            })
        };
        UpdateRequest {
            creates: corrections().filter_map(Correction::take).map(create).collect(),
            destroys: corrections().filter_map(destroy).collect(),
        }
    }

    /// The batch under way is begun: other updates of its claims are refused from here on.
    pub(super) fn begun(&mut self) {
        self.stage = Stage::Begun;
    }

    /// Whether rows are to be read again under the lease.
    pub(super) fn is_begun(&self) -> bool {
        self.stage == Stage::Begun
    }

    /// The rows of the batch under way are as they were.
    pub(super) fn borne_out(&mut self) {
        self.stage = Stage::BorneOut;
    }

    /// The batch under way is rolled back: what its rows still bear out is begun anew.
    pub(super) fn rolled_back(&mut self) {
        self.stage = Stage::Planned;
    }

    /// The batch under way is done.
    pub(super) fn applied(&mut self) {
        self.stage = Stage::Planned;
        for planned in std::mem::take(&mut self.under_way) {
            let correction = &planned.correction;
            self.note(correction.outcome(), correction.key(), correction.source_id());
        }
    }

    /// The batch under way failed; the next run finds what is left.
    pub(super) fn failed(&mut self) {
        self.stage = Stage::Planned;
        for planned in std::mem::take(&mut self.under_way) {
            self.note(Outcome::Failed, planned.correction.key(), planned.correction.source_id());
        }
    }

    /// The batch under way was refused because of the claims at these positions; the others go again. Whether any of its
    /// claims was among them.
    pub(super) fn refused(&mut self, creates: &FxHashMap<u32, Reason>, destroys: &FxHashMap<u32, Reason>) -> bool {
        let (mut create, mut destroy) = (0, 0);
        let mut others = Vec::new();
        let batch = std::mem::take(&mut self.under_way);
        let sent = batch.len();
        for planned in batch {
            let mut reason = None;
            if planned.correction.take().is_some() {
                reason = creates.get(&create);
                create += 1;
            }
            if planned.correction.freed_from().is_some() {
                reason = reason.or(destroys.get(&destroy));
                destroy += 1;
            }
            match reason {
                Some(reason) => self.settle_refusal(planned, *reason),
                None => others.push(planned),
            }
        }
        self.under_way = others;
        self.under_way.len() < sent
    }

    fn settle_refusal(&mut self, planned: Planned, reason: Reason) {
        let Planned { correction, tries } = planned;
        let tries = tries + 1;
        let next = if tries < MAX_TRIES { after_refusal(&correction, reason) } else { Next::Drop(Outcome::Failed) };
        match (next, correction.take().cloned()) {
            (Next::Drop(outcome), _) => self.note(outcome, correction.key(), correction.source_id()),
            (Next::Probe, Some(take)) => self.probes.push_back(Planned { correction: Correction::Probe(take), tries }),
            (Next::Take, Some(take)) => self.checked.push_back(Planned { correction: Correction::Take(take), tries }),
            (Next::Wait(outcome), Some(take)) => self.wait(take, outcome),
            (Next::Probe | Next::Take | Next::Wait(_), None) => {
                self.note(Outcome::Failed, correction.key(), correction.source_id());
            }
        }
    }

    /// A take waits for another row of this cell to let go of its bucket.
    fn wait(&mut self, take: Take, outcome: Outcome) {
        if let Some(free) = self.waiting_frees.remove(&take.key) {
            return self.check(Correction::Replace(free, take));
        }
        match self.waiting_takes.get(&take.key) {
            None if !self.is_last_pass => _ = self.waiting_takes.insert(take.key.clone(), take),
            // Found again, after a run was resumed.
            Some(waiting) if !self.is_last_pass && waiting.source_id == take.source_id => {}
            // Of two rows that want one bucket the first waits.
            _ => self.note(outcome, &take.key, &take.source_id),
        }
    }

    fn check(&mut self, correction: Correction) {
        self.checked.push_back(planned(correction));
    }

    fn release_frees(&mut self) {
        let frees = in_order(&std::mem::take(&mut self.waiting_frees));
        frees.into_iter().for_each(|free| self.check(Correction::Free(free)));
    }

    /// The rows of the batch under way as they stand now (V03): what they no longer bear out is dropped. Where that is
    /// known only under the lease, it is rolled back.
    pub(super) fn read_again(&mut self, rows: &Rows, catalogue: &Catalogue, recent_within_micros: u64) {
        let sight = Sight { rows, catalogue, recent_within_micros };
        let mut is_borne_out = true;
        for planned in std::mem::take(&mut self.under_way) {
            let Planned { correction, tries } = planned;
            match sight.recheck(&correction) {
                Ok(None) => self.under_way.push(Planned { correction, tries }),
                Ok(Some(other)) if tries + 1 < MAX_TRIES => {
                    is_borne_out = false;
                    self.under_way.push(Planned { correction: other, tries: tries + 1 });
                }
                Ok(Some(_)) => {
                    is_borne_out = false;
                    self.note(Outcome::Changed, correction.key(), correction.source_id());
                }
                Err(outcome) => {
                    is_borne_out = false;
                    self.note(outcome, correction.key(), correction.source_id());
                }
            }
        }
        if self.is_begun() {
            self.stage = if is_borne_out { Stage::BorneOut } else { Stage::Overtaken };
        }
    }
}

/// What waits, in the order of keys.
fn in_order<T: Clone>(waiting: &FxHashMap<BucketKey, T>) -> Vec<T> {
    let keys = sorted_by(waiting.keys().collect(), Ord::cmp);
    keys.into_iter().filter_map(|key| waiting.get(key).cloned()).collect()
}

fn planned(correction: Correction) -> Planned {
    Planned { correction, tries: 0 }
}

/// As much of a queue as one update takes, each bucket once; what stands twice waits for the next.
fn batch(queue: &mut VecDeque<Planned>) -> Vec<Planned> {
    let (mut batch, mut again) = (Vec::new(), VecDeque::new());
    let mut keys = FxHashSet::default();
    let mut weight = 0;
    while queue.front().is_some_and(|next| weight + next.correction.weight() <= MAX_CLAIMS) {
        let Some(next) = queue.pop_front() else { break };
        if keys.insert(next.correction.key().clone()) {
            weight += next.correction.weight();
            batch.push(next);
        } else {
            again.push_back(next);
        }
    }
    again.append(queue);
    *queue = again;
    batch
}

//! The planned corrections of a run of verification: the order in which they are sent, and the next
//! try of each one that the server refuses (V05).

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHashSet};

use super::checkpoint::Checkpoint;
use super::columns::Rows;
use super::correction::{AfterRefusal, Correction, PendingCreate, PendingDestroy, after_refusal};
use super::recheck::Recheck;
use super::report::CorrectionOutcome;
use crate::batch::{ClaimRequest, MAX_CLAIMS, UpdateRequest};
use crate::bucket::BucketKey;
use crate::catalogue::Catalogue;
use crate::claim::{Source, SourceId, SourceType};
use crate::order::sorted_by;
use crate::rejection::Reason;

/// The most deferred destroys, not counting those of the present page. At this number the run sends
/// them, as a full update of destroys.
const MAX_DEFERRED_DESTROYS: usize = MAX_CLAIMS;
/// The most deferred creates, not counting those of the present page. Beyond this number, the run
/// drops the page's creates and compares the page once more after the scan. A deferred create takes
/// about 300 bytes in memory and 150 bytes in a checkpoint, so a much larger bound would make both
/// large.
const MAX_DEFERRED_CREATES: usize = 10_000;
/// The most tries of one correction. If a correction needs more, something else keeps changing its
/// row or claim.
const MAX_TRIES: u8 = 6;

#[derive(Clone, Debug, Hash)]
struct Planned {
    correction: Correction,
    tries: u8,
}

/// The stage of the present batch of corrections, which are sent as one update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    /// The batch is not begun yet. Its rows may have been read again.
    #[default]
    Planned,
    /// The batch is begun. Its rows are to be read again under the lease.
    Begun,
    /// The rows read under the lease still require each correction of the batch. The batch is to be
    /// committed.
    Confirmed,
    /// The rows read under the lease no longer require every correction of the batch as it is. The
    /// batch is to be rolled back.
    Refuted,
}

/// The corrections of a run that are planned and not made yet, in queues.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// The corrections whose rows are to be read again before they are sent (V03).
    unchecked: VecDeque<Planned>,
    /// The creates that were not sent yet. Their rows were read with the page, moments ago.
    creates: VecDeque<Planned>,
    /// The refused creates whose buckets are to be probed for their owners.
    probes: VecDeque<Planned>,
    /// The creates that wait for another row of this cell to give their bucket up.
    deferred_creates: FxHashMap<BucketKey, PendingCreate>,
    /// The destroys that wait for a row that calls for their bucket.
    deferred_destroys: FxHashMap<BucketKey, PendingDestroy>,
    /// True if creates are no longer deferred. A create that is refused now is left to the next
    /// run, which scans the whole table. If the checkpoint kept the create, the next run would only
    /// retry it and would not scan rows that were added since (V07).
    is_last_pass: bool,
    /// The corrections of the update that is being checked or sent.
    batch: Vec<Planned>,
    stage: Stage,
    /// The outcomes since the last call of [`take_outcomes`](Self::take_outcomes).
    outcomes: Vec<(CorrectionOutcome, BucketKey, SourceId)>,
}

impl Hash for Plan {
    fn hash<H: Hasher>(&self, to: &mut H) {
        let Self {
            unchecked,
            creates,
            probes,
            deferred_creates,
            deferred_destroys,
            is_last_pass,
            batch,
            stage,
            outcomes,
        } = self;
        (unchecked, creates, probes, is_last_pass, batch, stage, outcomes).hash(to);
        // A hash map has no order, so its entries are hashed in the order of keys: equal plans must
        // have equal hashes.
        (in_order(deferred_creates), in_order(deferred_destroys)).hash(to);
    }
}

/// The action that a run must take next on its plan.
pub(super) enum NextAction {
    ReadAgain(Vec<SourceId>),
    Begin,
    Commit,
    RollBack,
    Nothing,
}

/// The kind of deferred corrections that were put back into the plan.
pub(super) enum Released {
    Destroys,
    Creates,
    Nothing,
}

impl Plan {
    pub(super) fn resume(checkpoint: Checkpoint) -> Self {
        let mut plan = Self::default();
        checkpoint.creates.into_iter().for_each(|create| plan.defer(create, CorrectionOutcome::OtherRow));
        checkpoint.destroys.into_iter().for_each(|destroy| plan.destroy(destroy));
        plan
    }

    /// Returns the corrections that a checkpoint must keep, in the order of keys: the deferred
    /// ones, and the planned ones that the run has not made. Creates that were never sent are left
    /// out: the run's progress does not pass their page, so the next run finds them again.
    pub(super) fn pending(&self) -> (Vec<PendingCreate>, Vec<PendingDestroy>) {
        let (mut creates, mut destroys) = (self.deferred_creates.clone(), self.deferred_destroys.clone());
        for planned in self.batch.iter().chain(&self.unchecked).chain(&self.probes) {
            if let Correction::Destroy(destroy) | Correction::Replace(destroy, _) = &planned.correction {
                destroys.insert(destroy.key.clone(), destroy.clone());
            }
            if let Some(create) = planned.correction.create() {
                creates.entry(create.key.clone()).or_insert_with(|| create.clone());
            }
        }
        (in_order(&creates), in_order(&destroys))
    }

    /// Returns the number of claims that the batch destroys. A replace destroys none.
    pub(super) fn batch_destroys(&self) -> u64 {
        destroys(&self.batch)
    }

    /// Returns the number of claims that the batch and the corrections after it destroy. Deferred
    /// destroys do not count, since they may become replaces.
    pub(super) fn planned_destroys(&self) -> u64 {
        self.batch_destroys() + destroys(&self.unchecked)
    }

    /// If more than [`MAX_DEFERRED_CREATES`] creates are deferred, drops those of rows past
    /// `source_id` and returns their number. These are the creates of the page
    /// that was just compared. Otherwise
    /// returns `None`.
    pub(super) fn drop_creates_past(&mut self, source_id: &SourceId) -> Option<u64> {
        let deferred = self.deferred_creates.len();
        if deferred <= MAX_DEFERRED_CREATES {
            return None;
        }
        self.deferred_creates.retain(|_, create| create.source_id <= *source_id);
        Some((deferred - self.deferred_creates.len()) as u64)
    }

    /// Ends the deferring of creates. The scan has found every extra claim by now, so waiting can't
    /// free the bucket of a refused create.
    pub(super) fn begin_last_pass(&mut self) {
        self.is_last_pass = true;
    }

    /// Plans the create of a missing claim. If another row is about to give the bucket up, plans a
    /// replace instead.
    pub(super) fn create(&mut self, create: PendingCreate) {
        if self.deferred_creates.get(&create.key).is_some_and(|other| other.source_id == create.source_id) {
            // The same row's create was deferred when its page was compared for the first time.
            self.deferred_creates.remove(&create.key);
        }
        match self.deferred_destroys.remove(&create.key) {
            Some(destroy) => self.plan_unchecked(Correction::Replace(destroy, create)),
            None => self.creates.push_back(planned(Correction::Create(create))),
        }
    }

    /// Plans the destroy of an extra claim. If a deferred create waits for the bucket, plans a
    /// replace instead.
    ///
    /// A plain destroy is deferred: the bucket may have moved to a row that is still to come.
    /// Between a destroy that is sent alone and a later create, another cell could take the bucket
    /// (V05).
    pub(super) fn destroy(&mut self, destroy: PendingDestroy) {
        if let Some(create) = self.deferred_creates.remove(&destroy.key) {
            return self.plan_unchecked(Correction::Replace(destroy, create));
        }
        self.deferred_destroys.insert(destroy.key.clone(), destroy);
    }

    /// Puts the deferred destroys back into the plan if they fill an update. Must be called after a
    /// page, when each create of the page has been matched with them.
    pub(super) fn limit_deferred_destroys(&mut self) {
        if self.deferred_destroys.len() >= MAX_DEFERRED_DESTROYS {
            self.release_destroys();
        }
    }

    /// Plans the replace of a claim whose record differs from its row.
    pub(super) fn replace(&mut self, create: PendingCreate) {
        let destroy = PendingDestroy { key: create.key.clone(), source_id: create.source_id.clone() };
        self.plan_unchecked(Correction::Replace(destroy, create));
    }

    /// Returns the number of creates that were never sent.
    pub(super) fn unsent_creates(&self) -> usize {
        self.creates.len()
    }

    /// Returns the outcomes of corrections since the last call.
    pub(super) fn take_outcomes(&mut self) -> Vec<(CorrectionOutcome, BucketKey, SourceId)> {
        std::mem::take(&mut self.outcomes)
    }

    pub(super) fn report(&mut self, outcome: CorrectionOutcome, key: &BucketKey, source_id: &SourceId) {
        self.outcomes.push((outcome, key.clone(), source_id.clone()));
    }

    /// Returns the next action. Destroys and replaces are sent before creates, which may need their
    /// buckets (V05). If `fills_updates`, creates wait until they fill an update (V08).
    pub(super) fn next_action(&mut self, fills_updates: bool) -> NextAction {
        match self.stage {
            Stage::Begun => return NextAction::ReadAgain(self.batch_rows()),
            Stage::Confirmed => return NextAction::Commit,
            Stage::Refuted => return NextAction::RollBack,
            Stage::Planned if !self.batch.is_empty() => return NextAction::Begin,
            Stage::Planned => {}
        }
        if !self.unchecked.is_empty() {
            self.batch = next_batch(&mut self.unchecked);
            return NextAction::ReadAgain(self.batch_rows());
        }
        let are_creates_due = self.creates.len() >= MAX_CLAIMS || (!fills_updates && !self.creates.is_empty());
        let queue = match self.probes.is_empty() {
            false => &mut self.probes,
            true if are_creates_due => &mut self.creates,
            true => return NextAction::Nothing,
        };
        self.batch = next_batch(queue);
        NextAction::Begin
    }

    /// Returns the source ids of the rows that the batch depends on, in order.
    fn batch_rows(&self) -> Vec<SourceId> {
        let ids = self.batch.iter().flat_map(|planned| planned.correction.source_ids()).collect();
        let mut ids: Vec<SourceId> = sorted_by(ids, Ord::cmp);
        ids.dedup();
        ids
    }

    /// Puts deferred corrections back into the plan at the end of the scan: the destroys at the
    /// first call, then the creates for their last try. Returns which of them were put back.
    pub(super) fn release_deferred(&mut self) -> Released {
        if !self.deferred_destroys.is_empty() {
            self.release_destroys();
            return Released::Destroys;
        }
        if self.deferred_creates.is_empty() {
            return Released::Nothing;
        }
        self.begin_last_pass();
        let creates = in_order(&std::mem::take(&mut self.deferred_creates));
        creates.into_iter().for_each(|create| self.plan_unchecked(Correction::Create(create)));
        Released::Creates
    }

    /// Returns the batch as the request to begin an update.
    pub(super) fn request(&self, source_type: SourceType) -> UpdateRequest {
        let corrections = || self.batch.iter().map(|planned| &planned.correction);
        let create = |create: &PendingCreate| ClaimRequest {
            bucket_type: create.key.bucket_type,
            value: create.spelling.clone(),
            subject: Some(create.subject),
            source: Some(Source { source_type, id: create.source_id.clone() }),
            user_data: None,
        };
        // Each destroy names its row, so the server does not destroy a claim that has moved to
        // another row (B05).
        let destroy = |correction: &Correction| {
            Some(ClaimRequest {
                bucket_type: correction.key().bucket_type,
                value: correction.key().canonical.clone(),
                subject: None,
                source: Some(Source { source_type, id: correction.destroyed_from()?.clone() }),
                user_data: None,
            })
        };
        UpdateRequest {
            creates: corrections().filter_map(Correction::create).map(create).collect(),
            destroys: corrections().filter_map(destroy).collect(),
        }
    }

    /// Marks the batch as begun. From now on other updates of its claims are refused (B03).
    pub(super) fn begun(&mut self) {
        self.stage = Stage::Begun;
    }

    /// Returns true if the batch is begun and its rows are to be read again under the lease.
    pub(super) fn is_begun(&self) -> bool {
        self.stage == Stage::Begun
    }

    /// Marks the begun batch as confirmed: its rows are unchanged.
    pub(super) fn confirmed(&mut self) {
        self.stage = Stage::Confirmed;
    }

    /// Marks the batch as rolled back. The corrections that remain in the batch are begun again.
    pub(super) fn rolled_back(&mut self) {
        self.stage = Stage::Planned;
    }

    /// Marks the batch as committed, and reports the outcome of each correction.
    pub(super) fn committed(&mut self) {
        self.stage = Stage::Planned;
        for planned in std::mem::take(&mut self.batch) {
            let correction = &planned.correction;
            self.report(correction.outcome(), correction.key(), correction.source_id());
        }
    }

    /// Marks the batch as failed, and reports its corrections as failed. The next run finds the
    /// same differences again.
    pub(super) fn failed(&mut self) {
        self.stage = Stage::Planned;
        for planned in std::mem::take(&mut self.batch) {
            self.report(CorrectionOutcome::Failed, planned.correction.key(), planned.correction.source_id());
        }
    }

    /// Plans the next try of each correction whose claim the server refused. The maps hold the
    /// reason of each refused position in the update's lists of creates and destroys. The other
    /// corrections stay in the batch. Returns true if the refusal names any claim of the batch.
    pub(super) fn refused(&mut self, creates: &FxHashMap<u32, Reason>, destroys: &FxHashMap<u32, Reason>) -> bool {
        let (mut create, mut destroy) = (0, 0);
        let mut others = Vec::new();
        let batch = std::mem::take(&mut self.batch);
        let sent = batch.len();
        for planned in batch {
            let mut reason = None;
            if planned.correction.create().is_some() {
                reason = creates.get(&create);
                create += 1;
            }
            if planned.correction.destroyed_from().is_some() {
                reason = reason.or(destroys.get(&destroy));
                destroy += 1;
            }
            match reason {
                Some(reason) => self.settle_refusal(planned, *reason),
                None => others.push(planned),
            }
        }
        self.batch = others;
        self.batch.len() < sent
    }

    fn settle_refusal(&mut self, planned: Planned, reason: Reason) {
        let Planned { correction, tries } = planned;
        let tries = tries + 1;
        let failed = AfterRefusal::Drop(CorrectionOutcome::Failed);
        let next = if tries < MAX_TRIES { after_refusal(&correction, reason) } else { failed };
        match (next, correction.create().cloned()) {
            (AfterRefusal::Drop(outcome), _) => self.report(outcome, correction.key(), correction.source_id()),
            (AfterRefusal::Probe, Some(create)) => {
                self.probes.push_back(Planned { correction: Correction::Probe(create), tries });
            }
            (AfterRefusal::Create, Some(create)) => {
                self.unchecked.push_back(Planned { correction: Correction::Create(create), tries });
            }
            (AfterRefusal::Defer(outcome), Some(create)) => self.defer(create, outcome),
            (AfterRefusal::Probe | AfterRefusal::Create | AfterRefusal::Defer(_), None) => {
                self.report(CorrectionOutcome::Failed, correction.key(), correction.source_id());
            }
        }
    }

    /// Defers a create until another row of this cell gives the bucket up. If the create can't be
    /// deferred, reports `outcome`.
    fn defer(&mut self, create: PendingCreate, outcome: CorrectionOutcome) {
        if let Some(destroy) = self.deferred_destroys.remove(&create.key) {
            return self.plan_unchecked(Correction::Replace(destroy, create));
        }
        match self.deferred_creates.get(&create.key) {
            None if !self.is_last_pass => _ = self.deferred_creates.insert(create.key.clone(), create),
            // A run that went on from a checkpoint has found the deferred create a second time.
            Some(other) if !self.is_last_pass && other.source_id == create.source_id => {}
            // If two rows call for one bucket, the create of the first row waits and that of the
            // second is reported.
            _ => self.report(outcome, &create.key, &create.source_id),
        }
    }

    fn plan_unchecked(&mut self, correction: Correction) {
        self.unchecked.push_back(planned(correction));
    }

    fn release_destroys(&mut self) {
        let destroys = in_order(&std::mem::take(&mut self.deferred_destroys));
        destroys.into_iter().for_each(|destroy| self.plan_unchecked(Correction::Destroy(destroy)));
    }

    /// Checks the corrections of the batch against their rows, which were read again (V03). Drops
    /// or adapts each correction that the rows no longer require as it is. A begun batch must then
    /// be rolled back, since an update takes effect as a whole or not at all (B01).
    pub(super) fn recheck(&mut self, rows: &Rows, catalogue: &Catalogue, recent_within_micros: u64) {
        let recheck = Recheck { rows, catalogue, recent_within_micros };
        let mut is_confirmed = true;
        for planned in std::mem::take(&mut self.batch) {
            let Planned { correction, tries } = planned;
            match recheck.check(&correction) {
                Ok(None) => self.batch.push(Planned { correction, tries }),
                Ok(Some(other)) if tries + 1 < MAX_TRIES => {
                    is_confirmed = false;
                    self.batch.push(Planned { correction: other, tries: tries + 1 });
                }
                Ok(Some(_)) => {
                    is_confirmed = false;
                    self.report(CorrectionOutcome::Changed, correction.key(), correction.source_id());
                }
                Err(outcome) => {
                    is_confirmed = false;
                    self.report(outcome, correction.key(), correction.source_id());
                }
            }
        }
        if self.is_begun() {
            self.stage = if is_confirmed { Stage::Confirmed } else { Stage::Refuted };
        }
    }
}

/// Returns the deferred corrections in the order of keys.
fn in_order<T: Clone>(deferred: &FxHashMap<BucketKey, T>) -> Vec<T> {
    let keys = sorted_by(deferred.keys().collect(), Ord::cmp);
    keys.into_iter().filter_map(|key| deferred.get(key).cloned()).collect()
}

fn destroys<'a>(planned: impl IntoIterator<Item = &'a Planned>) -> u64 {
    planned.into_iter().filter(|planned| matches!(planned.correction, Correction::Destroy(_))).count() as u64
}

fn planned(correction: Correction) -> Planned {
    Planned { correction, tries: 0 }
}

/// Takes corrections from the front of a queue until one update is full. A second correction of a
/// bucket stays in the queue, since an update with both would be invalid (B07).
fn next_batch(queue: &mut VecDeque<Planned>) -> Vec<Planned> {
    let (mut batch, mut again) = (Vec::new(), VecDeque::new());
    let mut keys = FxHashSet::default();
    let mut claims = 0;
    while queue.front().is_some_and(|next| claims + next.correction.claims() <= MAX_CLAIMS) {
        let Some(next) = queue.pop_front() else { break };
        if keys.insert(next.correction.key().clone()) {
            claims += next.correction.claims();
            batch.push(next);
        } else {
            again.push_back(next);
        }
    }
    again.append(queue);
    *queue = again;
    batch
}

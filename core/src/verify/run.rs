//! A run of verification without its survey: the machine that compares, plans and sends.

use rustc_hash::FxHashMap;

use super::checkpoint::Checkpoint;
use super::columns::{Records, Rows};
use super::destroy_limit::{ClaimCount, TooManyDestroys};
use super::diff::Comparison;
use super::phase::{Phase, PhaseEvent};
use super::plan::{NextAction, Plan, Released};
use super::report::{CorrectionOutcome, Finding, Report};
use super::scan::Progress;
use super::{Misuse, UpdateResult, VerifySettings, VerifyStep};
use crate::bucket::BucketKey;
use crate::catalogue::Catalogue;
use crate::claim::SourceId;
use crate::rejection::{List, Place, Reason};
use crate::time::Timestamp;

/// The most findings that a run keeps until the host takes them. Further findings are only counted.
const MAX_FINDINGS: usize = 10_000;

/// The range of source ids that the run compares now.
#[derive(Clone, Debug, Default, Hash)]
struct Range {
    after: SourceId,
    /// The last source id of the range. It lies before `bound` if the server cut its page.
    upto: SourceId,
    /// The last source id of the page of rows. The last page has no end, since claims may lie
    /// beyond the last row (V04).
    bound: SourceId,
    /// True if the server cut its page of records before `bound`.
    is_cut: bool,
    /// The last source id of the span that the run scans, empty for the whole table.
    end: SourceId,
}

impl Range {
    /// Returns true if the range is the last one of the span.
    fn is_last(&self) -> bool {
        !self.is_cut && self.bound == self.end
    }
}

/// A run of verification. It stops with a refusal if it would destroy too large a share of the
/// claims that it has listed. If these are not all claims of the table,
/// [`Verification`](super::Verification) makes a survey before it decides.
#[derive(Clone, Debug, Hash)]
pub(super) struct Run {
    settings: VerifySettings,
    catalogue: Catalogue,
    pub(super) step: VerifyStep,
    pub(super) phase: Phase,
    range: Range,
    records: Records,
    progress: Progress,
    /// The number of creates that the present page added to the creates to be sent.
    creates_of_page: usize,
    plan: Plan,
    pub(super) count: ClaimCount,
    pub(super) report: Report,
    pub(super) findings: Vec<Finding>,
}

/// These methods are documented in [`Verification`](super::Verification), where they have the same
/// names.
impl Run {
    pub(super) fn new(settings: VerifySettings, catalogue: Catalogue, checkpoint: Checkpoint) -> Self {
        let progress = Progress::new(checkpoint.scan.clone(), checkpoint.again.clone());
        let mut run = Self {
            settings: VerifySettings { rows_per_page: settings.rows_per_page.max(1), ..settings },
            catalogue,
            step: VerifyStep::Done,
            phase: if progress.scanned_upto().is_some() { Phase::Scan } else { Phase::Drain },
            range: Range::default(),
            records: Records::new(Timestamp::MIN),
            progress,
            creates_of_page: 0,
            count: checkpoint.count.clone().unwrap_or_else(ClaimCount::partial),
            plan: Plan::resume(checkpoint),
            report: Report::default(),
            findings: Vec::new(),
        };
        run.report.dry_run = run.settings.dry_run;
        if run.settings.bucket_types.is_empty() {
            // V11: on the wire, an empty list of types means all types. Without this return, each
            // claim of the table would be listed, look extra and be destroyed.
            return run;
        }
        if run.phase == Phase::Scan {
            run.begin_span();
        } else {
            run.go_on();
        }
        run
    }

    pub(super) fn bound(&mut self, bound: Option<SourceId>) -> Result<(), Misuse> {
        let VerifyStep::FindBound { after, .. } = &self.step else { return Err(Misuse::OutOfTurn) };
        let bound = bound.unwrap_or_default();
        if !bound.is_empty() && bound <= *after {
            return Err(Misuse::OutOfOrder);
        }
        let after = after.clone();
        let end = &self.range.end;
        let is_within = end.is_empty() || (!bound.is_empty() && bound < *end);
        self.range.bound = if is_within { bound } else { end.clone() };
        self.list_records(after);
        Ok(())
    }

    pub(super) fn records(&mut self, records: Records, truncated: bool) -> Result<(), Misuse> {
        let VerifyStep::ListRecords { after, upto } = &self.step else { return Err(Misuse::OutOfTurn) };
        if !records.are_valid(after, upto) || (truncated && records.is_empty()) {
            return Err(Misuse::OutOfOrder);
        }
        // A truncated page has all records up to its last source id: the server never splits a
        // source id between pages (B32).
        let upto = if truncated { records.last_id() } else { upto.clone() };
        (self.range.after, self.range.upto, self.range.is_cut) = (after.clone(), upto, truncated);
        self.records = records;
        self.step = VerifyStep::ReadRows { after: self.range.after.clone(), upto: self.range.upto.clone() };
        Ok(())
    }

    pub(super) fn rows(&mut self, rows: Rows) -> Result<(), Misuse> {
        let (after, upto) = match &self.step {
            VerifyStep::ReadRows { after, upto } => (after.clone(), upto.clone()),
            VerifyStep::ReadAgain { .. } => Default::default(),
            _ => return Err(Misuse::OutOfTurn),
        };
        if !rows.are_valid(&after, &upto) {
            return Err(Misuse::OutOfOrder);
        }
        if !rows.bucket_types_are_among(&self.settings.bucket_types) {
            return Err(Misuse::ForeignBucketType);
        }
        match &self.step {
            VerifyStep::ReadAgain { .. } => {
                self.plan.recheck(&rows, &self.catalogue, self.settings.recent_within_micros);
            }
            _ => self.compare(&rows),
        }
        self.go_on();
        Ok(())
    }

    pub(super) fn unchanged(&mut self) -> Result<(), Misuse> {
        if !self.plan.is_begun() {
            return Err(Misuse::OutOfTurn);
        }
        self.plan.confirmed();
        self.go_on();
        Ok(())
    }

    pub(super) fn updated(&mut self, result: UpdateResult) -> Result<(), Misuse> {
        use VerifyStep::{Begin, Commit, RollBack};
        match (&self.step, result) {
            (Begin(_), UpdateResult::Begun) => self.plan.begun(),
            (Begin(_), UpdateResult::Refused(claims)) => self.refused(&claims),
            (Commit, UpdateResult::Settled) => self.commit(),
            (RollBack, UpdateResult::Settled) => self.plan.rolled_back(),
            (Begin(_) | Commit | RollBack, UpdateResult::Failed) => {
                // A commit without an answer may have destroyed the claims, so they count (V11).
                self.count.destroy(if self.step == Commit { self.plan.batch_destroys() } else { 0 });
                self.plan.failed();
            }
            _ => return Err(Misuse::OutOfTurn),
        }
        self.report.updates += u64::from(matches!(self.step, Begin(_)));
        self.go_on();
        Ok(())
    }

    pub(super) fn proceed(&mut self) -> Result<(), Misuse> {
        if self.step != VerifyStep::PageDone {
            return Err(Misuse::OutOfTurn);
        }
        let upto = self.range.upto.clone();
        if self.range.is_cut {
            self.list_records(upto);
        } else if self.range.is_last() {
            self.advance(PhaseEvent::LastPage);
            self.go_on();
        } else {
            self.find_bound(upto);
        }
        Ok(())
    }

    pub(super) fn stop(&mut self) -> Result<(), Misuse> {
        if self.step != VerifyStep::PageDone {
            return Err(Misuse::OutOfTurn);
        }
        self.advance(PhaseEvent::Stopped);
        self.go_on();
        Ok(())
    }

    pub(super) fn checkpoint(&self) -> Checkpoint {
        let (creates, destroys) = self.plan.pending();
        let (scan, again) = self.progress.parts();
        Checkpoint { scan, creates, destroys, again, count: Some(self.count.clone()), survey: None }
    }

    /// Returns the survey of this run: a dry run with the same settings, from a checkpoint.
    pub(super) fn survey(&self, checkpoint: Checkpoint) -> Self {
        let settings = VerifySettings { dry_run: true, ..self.settings.clone() };
        Self::new(settings, self.catalogue.clone(), checkpoint)
    }

    /// Takes the count of a survey that has counted the whole table. If the run was refused by a
    /// smaller count and the whole count permits it, the run goes on.
    pub(super) fn surveyed(&mut self, survey: &ClaimCount) {
        let taken = self.count.take_survey(survey, self.settings.max_destroy_share);
        match (taken, &self.step) {
            (Err(refusal), _) => self.step = VerifyStep::Refused(refusal),
            (Ok(()), VerifyStep::Refused(_)) => self.go_on(),
            // The run went on from a checkpoint with a survey, so it has not reached its destroys
            // yet.
            (Ok(()), _) => {}
        }
    }

    fn advance(&mut self, event: PhaseEvent) {
        self.phase = self.phase.next(event).unwrap_or(self.phase);
    }

    /// Begins the scan of the next span: first the whole table, then the noted spans. Returns false
    /// if no span is left.
    fn begin_span(&mut self) -> bool {
        let Some(span) = self.progress.span() else { return false };
        self.range.end = span.upto;
        self.find_bound(span.after);
        true
    }

    fn find_bound(&mut self, after: SourceId) {
        self.step = VerifyStep::FindBound { after, rows: self.settings.rows_per_page };
    }

    fn list_records(&mut self, after: SourceId) {
        self.step = VerifyStep::ListRecords { after, upto: self.range.bound.clone() };
    }

    fn compare(&mut self, rows: &Rows) {
        let comparison =
            Comparison { catalogue: &self.catalogue, recent_within_micros: self.settings.recent_within_micros };
        let found = comparison.diff(rows, &self.records, &mut self.report);
        let report = &mut self.report;
        for (count, more) in [
            (&mut report.pages, 1),
            (&mut report.rows, rows.len()),
            (&mut report.claims, rows.claims_len()),
            (&mut report.records, self.records.len()),
            (&mut report.missing, found.missing.len()),
            (&mut report.different, found.different.len()),
            (&mut report.extra, found.extra.len()),
        ] {
            *count += more as u64;
        }
        if self.progress.scanned_upto().is_some() {
            self.count.list(self.records.len() as u64);
        }
        let is_mostly_missing = !self.range.is_last() && found.missing.len() * 2 > rows.claims_len();
        self.advance(if is_mostly_missing { PhaseEvent::MostMissing } else { PhaseEvent::MostPresent });
        found.invalid.iter().for_each(|claim| {
            self.plan.report(CorrectionOutcome::Invalid, &claim.key, &claim.source_id);
        });
        // The extra claims are planned first, so that the creates of the same page find them among
        // the deferred destroys.
        found.extra.into_iter().for_each(|destroy| self.plan.destroy(destroy));
        found.different.into_iter().for_each(|create| self.plan.replace(create));
        let unsent = self.plan.unsent_creates();
        found.missing.into_iter().for_each(|create| self.plan.create(create));
        self.creates_of_page = self.plan.unsent_creates() - unsent;
        self.plan.limit_deferred_destroys();
    }

    fn refused(&mut self, claims: &[(Place, Reason)]) {
        let of_list = |list: List| {
            let claims = claims.iter().filter(move |(place, _)| place.list == list);
            claims.map(|(place, reason)| (place.position, *reason)).collect::<FxHashMap<_, _>>()
        };
        // If the refusal names no claim of the batch, the batch would be sent and refused again for
        // ever.
        if !self.plan.refused(&of_list(List::Creates), &of_list(List::Destroys)) {
            self.plan.failed();
        }
    }

    /// Sets the next step, and adds the outcomes of corrections since the last call to the
    /// findings.
    fn go_on(&mut self) {
        loop {
            let action = self.plan.next_action(self.phase.fills_updates());
            for (outcome, key, source_id) in self.plan.take_outcomes() {
                self.find(outcome, &key, &source_id);
            }
            self.step = match action {
                NextAction::ReadAgain(ids) => VerifyStep::ReadAgain { ids },
                NextAction::Begin if self.settings.dry_run => {
                    self.commit();
                    continue;
                }
                NextAction::Begin => match self.check_destroys(self.plan.planned_destroys()) {
                    Ok(()) => VerifyStep::Begin(self.plan.request(self.settings.source_type)),
                    Err(refusal) => VerifyStep::Refused(refusal),
                },
                NextAction::Commit => VerifyStep::Commit,
                NextAction::RollBack => VerifyStep::RollBack,
                NextAction::Nothing => {
                    if self.all_is_sent() {
                        continue;
                    }
                    return;
                }
            };
            return;
        }
    }

    fn commit(&mut self) {
        self.count.destroy(self.plan.batch_destroys());
        self.plan.committed();
    }

    /// Checks that the run may destroy `planned` more claims (V11). Without a planned destroy the
    /// check passes, even if the run was permitted a larger share before its checkpoint.
    fn check_destroys(&self, planned: u64) -> Result<(), TooManyDestroys> {
        if planned == 0 { Ok(()) } else { self.count.check(planned, self.settings.max_destroy_share) }
    }

    /// Sets the next step after all planned corrections were sent. Returns true if deferred
    /// corrections are back in the plan, so that no step is set yet.
    fn all_is_sent(&mut self) -> bool {
        if !self.phase.is_compared() {
            self.note_progress();
            self.step = VerifyStep::PageDone;
            if self.phase == Phase::Stop {
                self.finish();
            }
            return false;
        }
        if self.begin_span() {
            self.advance(PhaseEvent::SpanLeft);
            self.plan.begin_last_pass();
            return false;
        }
        match self.plan.release_deferred() {
            Released::Destroys => true,
            Released::Creates => {
                self.advance(PhaseEvent::CreatesLeft);
                true
            }
            Released::Nothing => {
                self.finish();
                false
            }
        }
    }

    fn finish(&mut self) {
        self.advance(PhaseEvent::NothingLeft);
        self.step = VerifyStep::Done;
        self.report.over_destroy_limit = self.count.check(0, self.settings.max_destroy_share).is_err();
    }

    fn note_progress(&mut self) {
        if let Some(sent) = self.progress.scanned_upto()
            && let Some(dropped) = self.plan.drop_creates_past(sent)
        {
            self.progress.note_span(&self.range.upto);
            // The second comparison of the span finds and counts the dropped creates again.
            self.report.missing = self.report.missing.saturating_sub(dropped);
        }
        match self.plan.unsent_creates() {
            0 => {
                self.progress.sent_upto(&self.range.upto);
                self.count.pass_before(0);
                if self.progress.scanned_upto().is_none() {
                    self.count.end();
                }
            }
            // The oldest creates are sent first, so the unsent creates are all of this page.
            unsent if unsent <= self.creates_of_page => {
                self.progress.sent_before(self.range.after.clone());
                self.count.pass_before(self.records.len() as u64);
            }
            // Creates of earlier pages are unsent, so a resumed run must begin at the point that
            // was noted before.
            _ => {}
        }
    }

    fn find(&mut self, outcome: CorrectionOutcome, key: &BucketKey, source_id: &SourceId) {
        self.report.count(outcome);
        let is_told = outcome != CorrectionOutcome::Created || self.settings.dry_run;
        if is_told && self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding::new(outcome, key, source_id, self.settings.hash_seed));
        }
    }
}

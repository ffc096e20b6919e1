//! Verification: compares the claims of one table with its rows and corrects them (V01 to V09). The
//! first run on a table that has rows and no claims is the backfill.
//!
//! A [`Verification`] never calls out. Its host takes the [`VerifyStep`] that it asks for and hands
//! back the result:
//!
//! ```text
//! FindBound   → bound      the end of the next page of local rows
//! ListRecords → records    the server's records of that range, as many as it gives
//! ReadRows    → rows       the local rows of the range that those records cover
//! ReadAgain   → rows       rows of deferred corrections before they are begun; rows of all begun ones before the commit
//! Begin       → updated    corrections, at most 2000 claims
//! Commit      → updated    the rows still bear the corrections out
//! RollBack    → updated    the rows don't; the corrections that are left are begun anew
//! PageDone    → proceed    or stop, and go on from the checkpoint later (V07)
//! Done                     the run is over or stopped: keep the checkpoint
//! ```
//!
//! A run over an empty table, which must end with no claim:
//!
//! ```
//! use leasehold_core::bucket::BucketType;
//! use leasehold_core::catalogue::Catalogue;
//! use leasehold_core::claim::SourceType;
//! use leasehold_core::time::Timestamp;
//! use leasehold_core::verify::{Records, Rows, Verification, VerifySettings, VerifyStep};
//!
//! let settings = VerifySettings {
//!     source_type: SourceType(1),
//!     bucket_types: [BucketType(4)].into(),
//!     recent_within_micros: 3_600_000_000,
//!     rows_per_page: 1000,
//!     dry_run: false,
//!     hash_seed: 7,
//! };
//! let mut run = Verification::new(settings, Catalogue::default(), None);
//! let now = Timestamp::from_micros(1);
//! loop {
//!     match run.step() {
//!         VerifyStep::FindBound { .. } => run.bound(None)?,
//!         VerifyStep::ListRecords { .. } => run.records(Records::new(now), false)?,
//!         VerifyStep::ReadRows { .. } | VerifyStep::ReadAgain { .. } => run.rows(Rows::new(now))?,
//!         VerifyStep::Begin(_) | VerifyStep::Commit | VerifyStep::RollBack => unreachable!("nothing differs"),
//!         VerifyStep::PageDone => run.proceed()?,
//!         VerifyStep::Done => break,
//!     }
//! }
//! assert!(run.checkpoint().is_done());
//! assert_eq!(run.report().updates, 0);
//! # Ok::<(), leasehold_core::verify::Misuse>(())
//! ```
//!
//! **The server is read before the rows.** A row that is deleted in between leaves a claim that
//! looks extra. That does no harm, since rows are read again before a destroy. In the other order
//! the claim would look missing, and it would be created for a row that is gone. A row that is
//! inserted or changed in between was changed lately, so it is left alone on both sides (V02).
//!
//! **The rows are read again under the lease.** A row may be renamed or deleted between the reading
//! of its page and the begin: seconds later, or minutes where few rows of a large table have names,
//! since updates are filled first. A claim for the old name would keep that name from everybody. A
//! change before the begin is seen when the row is read again. A later change finds its claim under
//! the lease and is told to try again (B03).
//!
//! **Buckets that move.** An extra claim is not destroyed at once. Its destroy is deferred, up to a
//! bound, until a row is found that calls for the bucket. One update then replaces the record, and
//! no other cell can step in between (B06). A create that is refused as taken is probed for the
//! holder. `NOT_OWNER` is another cell: the claim is reported and left in peace (V06).
//! `CLAIM_CHANGED` is another row of this cell: the create is deferred, up to a bound, until that
//! row lets go of the bucket. Creates that are still deferred at the end of the scan have their
//! last try there.
//!
//! **The second look.** If more creates are deferred than the bound allows, those of the last page
//! are dropped and the page is noted. The noted pages are compared once more after the scan, when
//! everything extra is destroyed. So a host must be able to go back once, and then from span to
//! span onwards. The second look can't replace: between the destroy and the create another cell can
//! take the bucket, which is then reported.
//!
//! **Memory.** A run keeps one page of rows and records, one update that fills up, the deferred
//! corrections and the spans to look at again. Each has a bound, whatever the table's size.

mod checkpoint;
mod columns;
mod correction;
mod diff;
mod phase;
mod plan;
mod recheck;
mod report;
mod scan;

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::batch::UpdateRequest;
use crate::bucket::{BucketKey, BucketType};
use crate::catalogue::Catalogue;
use crate::claim::{SourceId, SourceType};
use crate::rejection::{List, Place, Reason};
use crate::time::Timestamp;

pub use checkpoint::Checkpoint;
pub use columns::{RecordRef, Records, Rows};
use diff::Comparison;
pub use phase::{Phase, PhaseEvent};
use plan::{NextAction, Plan, Released};
pub use report::{CorrectionOutcome, Finding, Report};
use scan::Progress;

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerifySettings {
    /// The table.
    pub source_type: SourceType,
    /// The bucket types that the table's rows claim. The server's records of other types are not
    /// compared. A run without types does nothing (V11).
    pub bucket_types: BTreeSet<BucketType>,
    /// Rows and records that were changed within this time are left alone (V02).
    pub recent_within_micros: u64,
    /// The number of local rows in a page.
    pub rows_per_page: usize,
    /// True if the run reports corrections and makes none.
    pub dry_run: bool,
    /// The seed of the hashes that stand for values in findings (V09).
    pub hash_seed: u64,
}

/// The most findings that are kept until the host takes them. Further ones are only counted.
const MAX_FINDINGS: usize = 10_000;

/// The host's next step. An empty source id bounds nothing, as on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VerifyStep {
    /// Find the source id of the row that comes `rows` rows after a source id: hand it to
    /// [`Verification::bound`].
    FindBound {
        /// The source id after which to count.
        after: SourceId,
        /// The number of rows to count.
        rows: usize,
    },
    /// List a page of the server's records of a range: hand it to [`Verification::records`].
    ListRecords {
        /// The source id past which the range begins.
        after: SourceId,
        /// The last source id of the range.
        upto: SourceId,
    },
    /// Read the local rows of a range, in the order of encoded source ids: hand them to
    /// [`Verification::rows`].
    ReadRows {
        /// The source id past which the range begins.
        after: SourceId,
        /// The last source id of the range.
        upto: SourceId,
    },
    /// Read these rows once more and hand them to [`Verification::rows`].
    ///
    /// Read from the primary database, since a replica may lag behind. Hand in rows outside the
    /// model's scope too, without claims. A row that an open transaction is writing counts as
    /// changed just now.
    ReadAgain {
        /// The rows' source ids, in order.
        ids: Vec<SourceId>,
    },
    /// Begin an update: hand the result to [`Verification::updated`].
    Begin(UpdateRequest),
    /// Commit the begun update: hand the result to [`Verification::updated`].
    Commit,
    /// Roll back the begun update: hand the result to [`Verification::updated`].
    RollBack,
    /// A page is compared: call [`Verification::proceed`] or [`Verification::stop`].
    PageDone,
    /// The run is over, or has stopped.
    Done,
}

/// The result of a step of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateResult {
    /// The update is begun.
    Begun,
    /// The begin was refused because of these claims.
    Refused(Vec<(Place, Reason)>),
    /// The update is committed or rolled back, as the step asked.
    Settled,
    /// The step failed otherwise, or its result is unknown.
    Failed,
}

/// A mistake of the host. The machine has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// The settings have no bucket type. A host must not start such a run (V11).
    #[error("`bucket_types` is empty: name the types that the table's rows claim")]
    NoBucketTypes,
    /// The call does not answer the present step.
    #[error("this is no answer to the step that was asked for")]
    OutOfTurn,
    /// Rows or records are not in the order of encoded source ids, or are outside the range of the
    /// step.
    #[error("rows are out of the range that was asked for, or not in the order of encoded source ids: sort by bytes")]
    OutOfOrder,
    /// A row claims a bucket type that the settings lack. The server's records of the type would
    /// not be seen, so the row's claims would look missing.
    #[error("a row claims a bucket type that the run was not set up with: add it to `bucket_types`")]
    ForeignBucketType,
}

/// The range that is compared now.
#[derive(Clone, Debug, Default, Hash)]
struct Range {
    after: SourceId,
    /// The range's end: short of `bound` if the server cut its page.
    upto: SourceId,
    /// The end of the page of local rows. The last page is open-ended, since claims may lie beyond
    /// the last row (V04).
    bound: SourceId,
    /// True if the server cut its page of records.
    is_cut: bool,
    /// The end of the span that is scanned, empty for the whole table.
    end: SourceId,
}

impl Range {
    /// Returns true if nothing of the span is left behind the range.
    fn is_last(&self) -> bool {
        !self.is_cut && self.bound == self.end
    }
}

/// A run of verification.
#[derive(Clone, Debug, Hash)]
pub struct Verification {
    settings: VerifySettings,
    catalogue: Catalogue,
    step: VerifyStep,
    phase: Phase,
    range: Range,
    records: Records,
    progress: Progress,
    /// The number of the page's creates that joined those to be sent.
    creates_of_page: usize,
    plan: Plan,
    report: Report,
    findings: Vec<Finding>,
}

impl Verification {
    /// A new run, or one that goes on from a checkpoint.
    pub fn new(settings: VerifySettings, catalogue: Catalogue, checkpoint: Option<Checkpoint>) -> Self {
        let checkpoint = checkpoint.unwrap_or_default();
        let progress = Progress::new(checkpoint.scan.clone(), checkpoint.again.clone());
        let mut run = Self {
            settings: VerifySettings { rows_per_page: settings.rows_per_page.max(1), ..settings },
            catalogue,
            step: VerifyStep::Done,
            phase: if progress.first_look().is_some() { Phase::Scan } else { Phase::Drain },
            range: Range::default(),
            records: Records::new(Timestamp::MIN),
            progress,
            creates_of_page: 0,
            plan: Plan::resume(checkpoint),
            report: Report::default(),
            findings: Vec::new(),
        };
        run.report.dry_run = run.settings.dry_run;
        if run.settings.bucket_types.is_empty() {
            // V11: no type stands for all types on the wire, so each claim of the table would be
            // listed, look extra and be destroyed.
            return run;
        }
        if run.phase == Phase::Scan {
            run.begin_span();
        } else {
            run.go_on();
        }
        run
    }

    /// The host's next step. It stays the same until it is answered.
    pub fn step(&self) -> &VerifyStep {
        &self.step
    }

    /// The run's phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Takes the end of a page of rows. `None` means that fewer rows are left: the range is then
    /// open-ended (V04).
    ///
    /// # Errors
    /// The present step does not ask for a bound, or the bound is not past the beginning of the
    /// page.
    pub fn bound(&mut self, bound: Option<SourceId>) -> Result<(), Misuse> {
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

    /// Takes a page of the server's records. `truncated` is true if more records remain in the
    /// range.
    ///
    /// # Errors
    /// The present step does not ask for records, they are out of order or out of range, or there
    /// are none although more remain.
    pub fn records(&mut self, records: Records, truncated: bool) -> Result<(), Misuse> {
        let VerifyStep::ListRecords { after, upto } = &self.step else { return Err(Misuse::OutOfTurn) };
        if !records.are_valid(after, upto) || (truncated && records.is_empty()) {
            return Err(Misuse::OutOfOrder);
        }
        // A truncated page is complete up to its last source id: the server never splits one (B32).
        let upto = if truncated { records.last_id() } else { upto.clone() };
        (self.range.after, self.range.upto, self.range.is_cut) = (after.clone(), upto, truncated);
        self.records = records;
        self.step = VerifyStep::ReadRows { after: self.range.after.clone(), upto: self.range.upto.clone() };
        Ok(())
    }

    /// Takes the rows that the present step asks for.
    ///
    /// # Errors
    /// The present step does not ask for rows, the rows are out of order or range, or a row claims
    /// a bucket type that the settings lack.
    pub fn rows(&mut self, rows: Rows) -> Result<(), Misuse> {
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

    /// Confirms the begun update without reading its rows again, for rows that nobody can have
    /// changed: those of a dump. A change after the dump was made can't be seen.
    ///
    /// # Errors
    /// The present step does not ask for rows under a lease.
    pub fn unchanged(&mut self) -> Result<(), Misuse> {
        if !self.plan.is_begun() {
            return Err(Misuse::OutOfTurn);
        }
        self.plan.confirmed();
        self.go_on();
        Ok(())
    }

    /// Takes the result of the update's begin, commit or rollback.
    ///
    /// # Errors
    /// The result does not answer the present step.
    pub fn updated(&mut self, result: UpdateResult) -> Result<(), Misuse> {
        use VerifyStep::{Begin, Commit, RollBack};
        match (&self.step, result) {
            (Begin(_), UpdateResult::Begun) => self.plan.begun(),
            (Begin(_), UpdateResult::Refused(claims)) => self.refused(&claims),
            (Commit, UpdateResult::Settled) => self.plan.committed(),
            (RollBack, UpdateResult::Settled) => self.plan.rolled_back(),
            (Begin(_) | Commit | RollBack, UpdateResult::Failed) => self.plan.failed(),
            _ => return Err(Misuse::OutOfTurn),
        }
        self.report.updates += u64::from(matches!(self.step, Begin(_)));
        self.go_on();
        Ok(())
    }

    /// Goes on after a page.
    ///
    /// # Errors
    /// The present step is not [`VerifyStep::PageDone`].
    pub fn proceed(&mut self) -> Result<(), Misuse> {
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

    /// Ends the run after a page, because its time is over. Creates that wait to fill an update are
    /// sent before the run is done, and another run can go on from the checkpoint (V07). A run that
    /// is dropped instead repeats some pages.
    ///
    /// # Errors
    /// The present step is not [`VerifyStep::PageDone`].
    pub fn stop(&mut self) -> Result<(), Misuse> {
        if self.step != VerifyStep::PageDone {
            return Err(Misuse::OutOfTurn);
        }
        self.advance(PhaseEvent::Stopped);
        self.go_on();
        Ok(())
    }

    /// The point from which another run could go on if this one ended now. The step must be
    /// [`VerifyStep::PageDone`] or [`VerifyStep::Done`].
    pub fn checkpoint(&self) -> Checkpoint {
        let (creates, destroys) = self.plan.deferred();
        let (scan, again) = self.progress.parts();
        Checkpoint { scan, creates, destroys, again }
    }

    /// The counts of the run so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The outcomes of single corrections since the last call: at most 10,000, so take them after
    /// each page. Plain creates are many and only counted, unless the run is dry.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    fn advance(&mut self, event: PhaseEvent) {
        self.phase = self.phase.next(event).unwrap_or(self.phase);
    }

    /// Begins the next span, the whole table first. Returns false if there is none.
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
        self.report.pages += 1;
        self.report.rows += rows.len() as u64;
        self.report.claims += rows.claims_len() as u64;
        self.report.records += self.records.len() as u64;
        self.report.missing += found.missing.len() as u64;
        self.report.different += found.different.len() as u64;
        self.report.extra += found.extra.len() as u64;
        let is_mostly_missing = !self.range.is_last() && found.missing.len() * 2 > rows.claims_len();
        self.advance(if is_mostly_missing { PhaseEvent::MostMissing } else { PhaseEvent::MostPresent });
        found.invalid.iter().for_each(|claim| {
            self.plan.report(CorrectionOutcome::Invalid, &claim.key, &claim.source_id);
        });
        // The extra claims come first, so that the page's own creates find them among the deferred
        // destroys.
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
        // A refusal that names none of the batch's claims would be repeated for ever.
        if !self.plan.refused(&of_list(List::Creates), &of_list(List::Destroys)) {
            self.plan.failed();
        }
    }

    /// Sets the next step, and turns the outcomes so far into findings.
    fn go_on(&mut self) {
        loop {
            let action = self.plan.next_action(self.phase.fills_updates());
            for (outcome, key, source_id) in self.plan.take_outcomes() {
                self.find(outcome, &key, &source_id);
            }
            self.step = match action {
                NextAction::ReadAgain(ids) => VerifyStep::ReadAgain { ids },
                NextAction::Begin if self.settings.dry_run => {
                    self.plan.committed();
                    continue;
                }
                NextAction::Begin => VerifyStep::Begin(self.plan.request(self.settings.source_type)),
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

    /// Goes on once nothing is left to be sent. Returns true if that has put deferred corrections
    /// back into the plan.
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
    }

    fn note_progress(&mut self) {
        if let Some(sent) = self.progress.first_look()
            && let Some(dropped) = self.plan.drop_creates_past(sent)
        {
            self.progress.look_again(&self.range.upto);
            // The second look finds and counts them once more.
            self.report.missing = self.report.missing.saturating_sub(dropped);
        }
        match self.plan.unsent_creates() {
            0 => self.progress.sent_upto(&self.range.upto),
            // The oldest creates are sent first, so those that are left are of this page.
            unsent if unsent <= self.creates_of_page => self.progress.sent_before(self.range.after.clone()),
            // Creates of earlier pages are unsent, so a run that is resumed must begin at the last
            // noted point.
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

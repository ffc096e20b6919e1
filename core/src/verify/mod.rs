//! Verification: compares the claims of one table with the table's rows and corrects the claims
//! (V01 to V09). The first run on a table that has rows and no claims is the backfill. A row *calls
//! for* a claim if one of its values must be unique and so needs the claim.
//!
//! A [`Verification`] does no I/O. Its host executes each [`VerifyStep`] and passes the result
//! back:
//!
//! ```text
//! FindBound   → bound      find the source id that ends the next page of rows
//! ListRecords → records    list the server's records of this page; the server may cut the list
//! ReadRows    → rows       read the cell's rows in the range that these records cover
//! ReadAgain   → rows       read rows again: of replaces and deferred corrections before the begin, of all after it
//! Begin       → updated    begin an update with corrections, at most 2000 claims
//! Commit      → updated    commit the update: the rows that were read again still require it
//! RollBack    → updated    roll the update back: rows have changed; the remaining corrections are begun again
//! PageDone    → proceed    or `stop`, and go on from the checkpoint later (V07)
//! Done                     the run is over or stopped: store the checkpoint
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
//! **The server is read before the rows.** If a row is deleted in between, its claim looks extra.
//! This does no harm, since the run reads rows again before a destroy. In the other order, the
//! claim of a row deleted in between would look missing, and the run would create it. If a row is
//! inserted or changed in between, it was changed lately, so the run leaves it alone on both sides
//! (V02).
//!
//! **The rows are read again under the lease.** A row may be renamed or deleted between the reading
//! of its page and the begin. The begin follows seconds later, in a backfill of a table with few
//! names minutes later. A claim for the old name would keep that name from every cell. The run
//! finds a change before the begin when it reads the row again. A change after the begin meets the
//! lease, so the host is refused and tries again (B03).
//!
//! **Buckets that move.** The run does not destroy an extra claim at once. It defers the destroy,
//! up to a bound, until it finds a row that calls for the bucket. One update then replaces the
//! record, and no other cell can take the bucket in between (B06). If the server refuses a create
//! as taken, the run probes: it sends a replace, whose refusal shows the owner. `NOT_OWNER` means
//! another cell: the run reports the claim and leaves it in peace (V06). `CLAIM_CHANGED` means
//! another row of this cell: the run defers the create, up to a bound, until that row gives the
//! bucket up. Creates that are still deferred at the end of the scan are tried once more then.
//!
//! **The second look.** If the run defers more creates than the bound allows, it drops those of the
//! last page and notes the page's span of source ids. After the scan the run compares the noted
//! spans once more. By then it has found every extra claim. So a host must be able to go back once,
//! and then onwards from span to span. The second look can't always replace a record: if the
//! destroy was sent before, another cell may take the bucket before the create. The run then
//! reports the claim.
//!
//! **Memory.** A run keeps one page of rows and records, one update that is being filled, the
//! deferred corrections and the noted spans. Each of these has a bound, whatever the table's size.

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

/// The settings of a run of verification.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerifySettings {
    /// The table whose rows and claims the run compares.
    pub source_type: SourceType,
    /// The bucket types that the table's rows claim. Claims of other types are not compared. A run
    /// without types does nothing (V11).
    pub bucket_types: BTreeSet<BucketType>,
    /// The threshold in microseconds: the run leaves rows and records alone that were changed
    /// within this time (V02).
    pub recent_within_micros: u64,
    /// The number of rows of the cell's table in a page.
    pub rows_per_page: usize,
    /// True if the run reports corrections and makes none.
    pub dry_run: bool,
    /// The seed of the hashes that replace claimed values in findings (V09).
    pub hash_seed: u64,
}

/// The most findings that a run keeps until the host takes them. Further findings are only counted.
const MAX_FINDINGS: usize = 10_000;

/// The step that the host must execute next. An empty source id sets no bound, as on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VerifyStep {
    /// Find the source id of the row that comes `rows` rows after a source id: pass it to
    /// [`Verification::bound`].
    FindBound {
        /// The source id after which to count rows.
        after: SourceId,
        /// The number of rows to count.
        rows: usize,
    },
    /// List a page of the server's records in a range of source ids: pass it to
    /// [`Verification::records`].
    ListRecords {
        /// The source id after which the range begins.
        after: SourceId,
        /// The last source id of the range.
        upto: SourceId,
    },
    /// Read the rows of the cell's table in a range, in the order of encoded source ids: pass them
    /// to [`Verification::rows`].
    ReadRows {
        /// The source id after which the range begins.
        after: SourceId,
        /// The last source id of the range.
        upto: SourceId,
    },
    /// Read these rows of the cell's table once more: pass them to [`Verification::rows`].
    ///
    /// The host must read from the primary database, since a replica may lag behind. It must pass
    /// rows outside the model's scope too, without claims. If an open transaction is writing a row,
    /// the host must pass the row as changed just now.
    ReadAgain {
        /// The source ids of the rows to read, in order.
        ids: Vec<SourceId>,
    },
    /// Begin an update: pass the result to [`Verification::updated`].
    Begin(UpdateRequest),
    /// Commit the update that was begun last: pass the result to [`Verification::updated`].
    Commit,
    /// Roll back the update that was begun last: pass the result to [`Verification::updated`].
    RollBack,
    /// A page is compared: call [`Verification::proceed`] or [`Verification::stop`].
    PageDone,
    /// The run is over or stopped.
    Done,
}

/// The result of a step that begins or settles an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateResult {
    /// The server has begun the update.
    Begun,
    /// The server refused the begin because of the claims at these places.
    Refused(Vec<(Place, Reason)>),
    /// The server has committed the update or rolled it back, as the step required.
    Settled,
    /// The step failed without a refusal of claims, or its result is unknown.
    Failed,
}

/// The error of a host that calls the machine wrongly. The call has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// The settings have no bucket type. A host must not start such a run (V11).
    #[error("`bucket_types` is empty: name the types that the table's rows claim")]
    NoBucketTypes,
    /// The call does not answer the present step.
    #[error("this is no answer to the step that was asked for")]
    OutOfTurn,
    /// The host passed rows or records outside the range of the step, or not in the order of
    /// encoded source ids.
    #[error("rows are out of the range that was asked for, or not in the order of encoded source ids: sort by bytes")]
    OutOfOrder,
    /// A row claims a bucket type that the settings lack. The server does not list records of this
    /// type, so the row's claims would look missing.
    #[error("a row claims a bucket type that the run was not set up with: add it to `bucket_types`")]
    ForeignBucketType,
}

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

/// A run of verification. The host executes its steps.
#[derive(Clone, Debug, Hash)]
pub struct Verification {
    settings: VerifySettings,
    catalogue: Catalogue,
    step: VerifyStep,
    phase: Phase,
    range: Range,
    records: Records,
    progress: Progress,
    /// The number of creates of the present page that joined the creates to be sent.
    creates_of_page: usize,
    plan: Plan,
    report: Report,
    findings: Vec<Finding>,
}

impl Verification {
    /// Makes a new run, or one that goes on from a checkpoint.
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

    /// Returns the step that the host must execute. The step stays the same until the host passes
    /// its result.
    pub fn step(&self) -> &VerifyStep {
        &self.step
    }

    /// Returns the phase of the run.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Takes the result of [`VerifyStep::FindBound`]. `None` means that fewer rows are left than a
    /// page has, so the range gets no end (V04).
    ///
    /// # Errors
    /// The present step is not [`VerifyStep::FindBound`], or the bound does not lie after the
    /// beginning of the page.
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

    /// Takes the result of [`VerifyStep::ListRecords`]: a page of the server's records. `truncated`
    /// is true if the server has more records in the range.
    ///
    /// # Errors
    /// The present step is not [`VerifyStep::ListRecords`], the records are out of order or out of
    /// range, or there are none although `truncated` is true.
    pub fn records(&mut self, records: Records, truncated: bool) -> Result<(), Misuse> {
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

    /// Takes the rows that [`VerifyStep::ReadRows`] or [`VerifyStep::ReadAgain`] asks for.
    ///
    /// # Errors
    /// The present step does not ask for rows, the rows are out of order or out of range, or a row
    /// claims a bucket type that the settings lack.
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

    /// Confirms the begun update without reading its rows again, if nobody can have changed them:
    /// for example the rows of a dump. The run does not see changes made after the dump.
    ///
    /// # Errors
    /// The present step does not ask for the rows of a begun update.
    pub fn unchanged(&mut self) -> Result<(), Misuse> {
        if !self.plan.is_begun() {
            return Err(Misuse::OutOfTurn);
        }
        self.plan.confirmed();
        self.go_on();
        Ok(())
    }

    /// Takes the result of the step that begins, commits or rolls back an update.
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

    /// Continues the run after [`VerifyStep::PageDone`].
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

    /// Ends the run after a page, because its time is over. The run first sends the creates that
    /// wait to fill an update. Another run can then go on from the checkpoint (V07). If the host
    /// drops the run instead of stopping it, the next run repeats some pages.
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

    /// Returns the point from which another run could go on if this run ended now. The present step
    /// must be [`VerifyStep::PageDone`] or [`VerifyStep::Done`].
    pub fn checkpoint(&self) -> Checkpoint {
        let (creates, destroys) = self.plan.deferred();
        let (scan, again) = self.progress.parts();
        Checkpoint { scan, creates, destroys, again }
    }

    /// Returns the counts of this run of verification so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Returns the findings since the last call, at most 10,000, so a host must call this after
    /// each page. Created claims are many and only counted, except in a dry run.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
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

    /// Sets the next step, and adds the outcomes since the last call to the findings.
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
    }

    fn note_progress(&mut self) {
        if let Some(sent) = self.progress.first_look()
            && let Some(dropped) = self.plan.drop_creates_past(sent)
        {
            self.progress.look_again(&self.range.upto);
            // The second look finds and counts the dropped creates once more.
            self.report.missing = self.report.missing.saturating_sub(dropped);
        }
        match self.plan.unsent_creates() {
            0 => self.progress.sent_upto(&self.range.upto),
            // The oldest creates are sent first, so the unsent creates are all of this page.
            unsent if unsent <= self.creates_of_page => self.progress.sent_before(self.range.after.clone()),
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

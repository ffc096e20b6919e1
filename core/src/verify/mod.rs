//! Verification: the claims of one table compared with its rows and corrected (V01 to V09). The first run on a table that
//! has rows and no claims is the backfill.
//!
//! A [`Verification`] never calls out. Its host takes the [`Step`] that it asks for and hands back what came of it:
//!
//! ```text
//! FindBound   → bound      where the next page of local rows ends
//! ListRecords → records    the server's records of that range, as many as it gives
//! ReadRows    → rows       the local rows of the range that those records cover
//! ReadAgain   → rows       what waited, before it is begun; and all that is begun, before it is committed (V03)
//! Begin       → updated    corrections, at most 2000 claims
//! Commit      → updated    the rows still bear them out
//! RollBack    → updated    they don't: what is left of them is begun anew
//! PageDone    → proceed    or stop, and go on from the checkpoint later (V07)
//! Done                     the run is over, or stopped: keep the checkpoint
//! ```
//!
//! **The server is read before the rows.** Whoever deletes a row meanwhile leaves a claim that looks extra, and rows are
//! read again before a destroy. In the other order the claim would look missing and be created for a row that is gone.
//! Who inserts or changes a row meanwhile leaves a row that was changed lately, which is left alone on both sides (V02).
//!
//! **The rows are read again under the lease.** A row may have been renamed or destroyed since it was read, seconds ago or,
//! where its page had little to correct, minutes. Who changes it before the lease is begun is seen when it is read again;
//! who changes it later finds its claim under the lease, and is told to try again (B03).
//!
//! **Buckets that move.** A claim that is extra waits, up to a bound, until a row is found that was refused its bucket or
//! calls for it later in the scan; then one update replaces the record, and no other cell can step in between (B06). A
//! take that is refused as taken is probed for its holder by an update that can't succeed unless the taker is the holder:
//! `NOT_OWNER` is another cell, which is reported and left in peace (V06); `CLAIM_CHANGED` is another row of this cell,
//! which the take waits for, up to a bound. What still waits at the end of the scan has its last try there.
//!
//! **The second look.** Where more takes wait than the bound allows, those of the page are forgotten and the page is
//! looked at again after the scan, when all that was extra is freed. So a host has to be able to go back once: then from
//! span to span, onwards again.
//!
//! **Memory.** One page of rows and records, one update that fills up, what waits, and the spans to look at again:
//! bounds, whatever the table's size.

mod columns;
mod diff;
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

pub use columns::{RecordRef, Records, Rows};
use diff::{Comparison, Free, Take};
use plan::{Plan, Want};
pub use report::{Finding, Outcome, Report};
use scan::{Progress, Scan, Span};

/// What a run goes by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The table.
    pub source_type: SourceType,
    /// The bucket types that its rows claim.
    pub bucket_types: BTreeSet<BucketType>,
    /// What was changed within this time is left alone (V02).
    pub recent_within_micros: u64,
    /// How many local rows make a page.
    pub rows_per_page: usize,
    /// Whether to report only.
    pub dry_run: bool,
    /// Keys the hashes of values in findings (V09).
    pub hash_seed: u64,
}

/// Findings that are kept until they are taken, at the most; more are counted only.
const MAX_FINDINGS: usize = 10_000;

/// What the host is to do next. An empty source id bounds nothing, as on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Find the source id of the row that is `rows` rows on: hand it to [`Verification::bound`].
    FindBound {
        /// Count the rows after this source id.
        after: SourceId,
        /// How many.
        rows: usize,
    },
    /// List a page of the server's records: hand it to [`Verification::records`].
    ListRecords {
        /// Only beyond this source id.
        after: SourceId,
        /// Only up to this one.
        upto: SourceId,
    },
    /// Read the local rows of a range, by encoded source id: hand them to [`Verification::rows`].
    ReadRows {
        /// Only beyond this source id.
        after: SourceId,
        /// Only up to this one.
        upto: SourceId,
    },
    /// Read these rows once more, from where nothing lags behind, those that are out of the model's scope too, without
    /// claims: hand them to [`Verification::rows`]. A row that is being written counts as changed just now.
    ReadAgain {
        /// The rows, in order.
        ids: Vec<SourceId>,
    },
    /// Begin an update: hand what came of it to [`Verification::updated`].
    Begin(UpdateRequest),
    /// Commit what was begun: hand what came of it to [`Verification::updated`].
    Commit,
    /// Roll back what was begun: hand what came of it to [`Verification::updated`].
    RollBack,
    /// A page is compared: [`Verification::proceed`] or [`Verification::stop`].
    PageDone,
    /// The run is over, or has stopped.
    Done,
}

/// What came of a step of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateResult {
    /// It is begun.
    Begun,
    /// Its begin was refused, because of these claims.
    Refused(Vec<(Place, Reason)>),
    /// It is committed, or rolled back, as was asked for.
    Settled,
    /// It failed otherwise, or nobody knows what came of it.
    Failed,
}

/// The host handed in what the machine can't go on with. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// It is no answer to the step that was asked for.
    #[error("this is no answer to the step that was asked for")]
    OutOfTurn,
    /// Rows or records are out of the order of encoded source ids or out of the range that was asked for.
    #[error("rows are out of the range that was asked for, or not in the order of encoded source ids: sort by bytes")]
    OutOfOrder,
    /// A row claims a bucket type that the settings lack, so that the server's records of it would not be seen.
    #[error("a row claims a bucket type that the run was not set up with: add it to `bucket_types`")]
    ForeignBucketType,
}

/// Where a run can go on: how far the scan has come, what waits, and what is to be looked at again. Holds values of
/// claims: keep it as user data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    scan: Scan,
    takes: Vec<Take>,
    frees: Vec<Free>,
    /// Left out where there is none, as versions without a second look have it and want it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    again: Vec<Span>,
}

impl Checkpoint {
    /// Whether nothing is left to do: a run from here would end at once.
    pub fn is_done(&self) -> bool {
        self.scan == Scan::Finished && self.takes.is_empty() && self.frees.is_empty() && self.again.is_empty()
    }
}

/// The range that is compared.
#[derive(Clone, Debug, Default, Hash)]
struct Range {
    after: SourceId,
    /// Where it ends: short of `bound` where the server's page was cut.
    upto: SourceId,
    /// Where the page of local rows ends; empty on the last one, which is open-ended (V04).
    bound: SourceId,
    is_cut: bool,
    /// Where the span ends that is scanned: the whole table's is empty.
    end: SourceId,
}

impl Range {
    /// Whether nothing of the span is left behind it.
    fn is_last(&self) -> bool {
        !self.is_cut && self.bound == self.end
    }
}

/// A run of verification.
#[derive(Clone, Debug, Hash)]
pub struct Verification {
    settings: Settings,
    catalogue: Catalogue,
    step: Step,
    range: Range,
    records: Records,
    progress: Progress,
    is_scanned: bool,
    is_stopped: bool,
    /// How many takes of the page joined those that are to be sent.
    takes_of_page: usize,
    /// Whether takes wait for others to fill an update (V08).
    is_filling: bool,
    plan: Plan,
    report: Report,
    findings: Vec<Finding>,
}

impl Verification {
    /// A new run, or one that goes on from a checkpoint.
    pub fn new(settings: Settings, catalogue: Catalogue, checkpoint: Option<Checkpoint>) -> Self {
        let checkpoint = checkpoint.unwrap_or(Checkpoint {
            scan: Scan::After(SourceId::default()),
            takes: Vec::new(),
            frees: Vec::new(),
            again: Vec::new(),
        });
        let progress = Progress::new(checkpoint.scan.clone(), checkpoint.again.clone());
        let mut run = Self {
            settings: Settings { rows_per_page: settings.rows_per_page.max(1), ..settings },
            catalogue,
            step: Step::Done,
            range: Range::default(),
            records: Records::new(crate::time::Timestamp::MIN),
            is_scanned: progress.first_look().is_none(),
            progress,
            is_stopped: false,
            takes_of_page: 0,
            is_filling: false,
            plan: Plan::resume(checkpoint),
            report: Report::default(),
            findings: Vec::new(),
        };
        run.report.dry_run = run.settings.dry_run;
        if run.is_scanned {
            run.go_on();
        } else {
            run.scan();
        }
        run
    }

    /// What to do next: the same until it is answered.
    pub fn step(&self) -> &Step {
        &self.step
    }

    /// Where a page of rows ends, none where fewer rows are left: then the range is open-ended (V04).
    ///
    /// # Errors
    /// Not asked for, or not beyond where the page begins.
    pub fn bound(&mut self, bound: Option<SourceId>) -> Result<(), Misuse> {
        let Step::FindBound { after, .. } = &self.step else { return Err(Misuse::OutOfTurn) };
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

    /// A page of the server's records, and whether more remain.
    ///
    /// # Errors
    /// Not asked for, out of order or range, or empty though more remain.
    pub fn records(&mut self, records: Records, truncated: bool) -> Result<(), Misuse> {
        let Step::ListRecords { after, upto } = &self.step else { return Err(Misuse::OutOfTurn) };
        if !records.are_valid(after, upto) || (truncated && records.is_empty()) {
            return Err(Misuse::OutOfOrder);
        }
        let upto = if truncated { records.last_id() } else { upto.clone() };
        (self.range.after, self.range.upto, self.range.is_cut) = (after.clone(), upto, truncated);
        self.records = records;
        self.step = Step::ReadRows { after: self.range.after.clone(), upto: self.range.upto.clone() };
        Ok(())
    }

    /// The rows that were asked for.
    ///
    /// # Errors
    /// Not asked for, out of order or range, or with a bucket type that the settings lack.
    pub fn rows(&mut self, rows: Rows) -> Result<(), Misuse> {
        let (after, upto) = match &self.step {
            Step::ReadRows { after, upto } => (after.clone(), upto.clone()),
            Step::ReadAgain { .. } => Default::default(),
            _ => return Err(Misuse::OutOfTurn),
        };
        if !rows.are_valid(&after, &upto) {
            return Err(Misuse::OutOfOrder);
        }
        if !rows.bucket_types_are_among(&self.settings.bucket_types) {
            return Err(Misuse::ForeignBucketType);
        }
        match &self.step {
            Step::ReadAgain { .. } => {
                self.plan.read_again(&rows, &self.catalogue, self.settings.recent_within_micros);
            }
            _ => self.compare(&rows),
        }
        self.go_on();
        Ok(())
    }

    /// What was begun is borne out by rows that nobody can have changed since, those of a dump: instead of
    /// [`Verification::rows`], under a lease only.
    ///
    /// # Errors
    /// Not asked for, or nothing is begun.
    pub fn unchanged(&mut self) -> Result<(), Misuse> {
        if !self.plan.is_begun() {
            return Err(Misuse::OutOfTurn);
        }
        self.plan.borne_out();
        self.go_on();
        Ok(())
    }

    /// What came of the update's begin, commit or rollback.
    ///
    /// # Errors
    /// Not asked for.
    pub fn updated(&mut self, result: UpdateResult) -> Result<(), Misuse> {
        match (&self.step, result) {
            (Step::Begin(_), UpdateResult::Begun) => self.plan.begun(),
            (Step::Begin(_), UpdateResult::Refused(claims)) => self.refused(&claims),
            (Step::Commit, UpdateResult::Settled) => self.plan.applied(),
            (Step::RollBack, UpdateResult::Settled) => self.plan.rolled_back(),
            (Step::Begin(_) | Step::Commit | Step::RollBack, UpdateResult::Failed) => self.plan.failed(),
            _ => return Err(Misuse::OutOfTurn),
        }
        self.report.updates += u64::from(matches!(self.step, Step::Begin(_)));
        self.go_on();
        Ok(())
    }

    /// Goes on after a page.
    ///
    /// # Errors
    /// No page was done just now.
    pub fn proceed(&mut self) -> Result<(), Misuse> {
        if self.step != Step::PageDone {
            return Err(Misuse::OutOfTurn);
        }
        let upto = self.range.upto.clone();
        if self.range.is_cut {
            self.list_records(upto);
        } else if self.range.is_last() {
            self.is_scanned = true;
            self.go_on();
        } else {
            self.find_bound(upto);
        }
        Ok(())
    }

    /// Ends the run after a page, its time being over: what waits to fill an update is sent before it is done, and another
    /// run can go on from the checkpoint (V07). A run that is dropped instead repeats some pages.
    ///
    /// # Errors
    /// No page was done just now.
    pub fn stop(&mut self) -> Result<(), Misuse> {
        if self.step != Step::PageDone {
            return Err(Misuse::OutOfTurn);
        }
        self.is_stopped = true;
        self.go_on();
        Ok(())
    }

    /// Where a run could go on if this one stopped here, which is at [`Step::PageDone`] or [`Step::Done`].
    pub fn checkpoint(&self) -> Checkpoint {
        let (takes, frees) = self.plan.waiting();
        let (scan, again) = self.progress.parts();
        Checkpoint { scan, takes, frees, again }
    }

    /// What was seen and done so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// What became of single claims since the last call, beside plain creates, which are many and only counted unless the
    /// run is dry. At the most 10,000 at a time: take them after each page.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// Begins the span that comes next, where there is one.
    fn scan(&mut self) -> bool {
        let Some(span) = self.progress.span() else { return false };
        self.is_scanned = false;
        self.range.end = span.upto;
        self.find_bound(span.after);
        true
    }

    fn find_bound(&mut self, after: SourceId) {
        self.step = Step::FindBound { after, rows: self.settings.rows_per_page };
    }

    fn list_records(&mut self, after: SourceId) {
        self.step = Step::ListRecords { after, upto: self.range.bound.clone() };
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
        // A page that is mostly missing is one of a backfill; else a take would wait long for its update to fill, and what
        // was read of its row would be old.
        self.is_filling = !self.range.is_last() && found.missing.len() * 2 > rows.claims_len();
        found.invalid.iter().for_each(|claim| self.plan.note(Outcome::Invalid, &claim.key, &claim.source_id));
        found.extra.into_iter().for_each(|free| self.plan.free(free));
        found.different.into_iter().for_each(|take| self.plan.replace(take));
        let unsent = self.plan.unsent_takes();
        found.missing.into_iter().for_each(|take| self.plan.take(take));
        self.takes_of_page = self.plan.unsent_takes() - unsent;
        self.plan.bound_frees();
    }

    fn refused(&mut self, claims: &[(Place, Reason)]) {
        let of = |list: List| {
            let claims = claims.iter().filter(move |(place, _)| place.list == list);
            claims.map(|(place, reason)| (place.position, *reason)).collect::<FxHashMap<_, _>>()
        };
        if !self.plan.refused(&of(List::Creates), &of(List::Destroys)) {
            self.plan.failed();
        }
    }

    /// Sets the next step, and draws the findings of what has just happened.
    fn go_on(&mut self) {
        loop {
            let want = self.plan.want(self.is_scanned || self.is_stopped || !self.is_filling);
            for (outcome, key, source_id) in self.plan.outcomes() {
                self.find(outcome, &key, &source_id);
            }
            self.step = match want {
                Want::ReadAgain(ids) => Step::ReadAgain { ids },
                Want::Begin if self.settings.dry_run => {
                    self.plan.applied();
                    continue;
                }
                Want::Begin => Step::Begin(self.plan.request(self.settings.source_type)),
                Want::Commit => Step::Commit,
                Want::RollBack => Step::RollBack,
                Want::Nothing if !self.is_scanned => {
                    self.note_progress();
                    if self.is_stopped { Step::Done } else { Step::PageDone }
                }
                Want::Nothing if self.scan() => {
                    self.plan.waits_no_more();
                    return;
                }
                Want::Nothing if self.plan.release() => continue,
                Want::Nothing => Step::Done,
            };
            return;
        }
    }

    fn note_progress(&mut self) {
        if let Some(sent) = self.progress.first_look()
            && let Some(forgotten) = self.plan.forget_beyond(sent)
        {
            self.progress.look_again(&self.range.upto);
            // They will be found once more.
            self.report.missing = self.report.missing.saturating_sub(forgotten);
        }
        match self.plan.unsent_takes() {
            0 => self.progress.sent_upto(&self.range.upto),
            // The oldest are sent first: those that are left are of this page.
            unsent if unsent <= self.takes_of_page => self.progress.sent_before(self.range.after.clone()),
            _ => {}
        }
    }

    fn find(&mut self, outcome: Outcome, key: &BucketKey, source_id: &SourceId) {
        self.report.count(outcome);
        let is_worth_telling = outcome != Outcome::Created || self.settings.dry_run;
        if is_worth_telling && self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding::of(outcome, key, source_id, self.settings.hash_seed));
        }
    }
}

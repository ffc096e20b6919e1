//! Verification: compares the claims of one table with the table's rows and corrects the claims
//! (V01 to V09). The first run on a table that has rows and no claims is called the backfill. A row
//! *calls for* a claim if one of its values must be unique and so needs the claim.
//!
//! A [`Verification`] does no I/O. Its host executes each [`VerifyStep`] and passes the result
//! back:
//!
//! ```text
//! FindBound   → bound      find the source id that ends the next page of rows
//! ListRecords → records    list the server's records of this page; the server may cut the list
//! ReadRows    → rows       read the cell's rows in the range that these records cover
//! ReadAgain   → rows       read rows again: before the begin those of replaces and deferred corrections, after it all
//! Begin       → updated    begin an update with corrections, at most 2000 claims
//! Commit      → updated    commit the update: the rows that were read again still require it
//! RollBack    → updated    roll the update back: rows have changed; the remaining corrections are begun again
//! PageDone    → proceed    or `stop`, and go on from the checkpoint later (V07)
//! Refused                  the run would destroy too many claims (V11): tell the user, and store the checkpoint
//! Done                     the run is over or stopped: store the checkpoint
//! ```
//!
//! This example is a run over an empty table that has no claims:
//!
//! ```
//! use leasehold_core::bucket::BucketType;
//! use leasehold_core::catalogue::Catalogue;
//! use leasehold_core::claim::SourceType;
//! use leasehold_core::time::Timestamp;
//! use leasehold_core::verify::{Records, Rows, Share, Verification, VerifySettings, VerifyStep};
//!
//! let settings = VerifySettings {
//!     source_type: SourceType(1),
//!     bucket_types: [BucketType(4)].into(),
//!     recent_within_micros: 3_600_000_000,
//!     rows_per_page: 1000,
//!     dry_run: false,
//!     max_destroy_share: Share::default(),
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
//!         VerifyStep::Refused(refusal) => unreachable!("nothing is destroyed: {refusal:?}"),
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
//! claim of a row deleted in between would look missing, and the run would create it. A row that is
//! inserted or changed in between counts as changed lately, so the run leaves the row and its
//! records alone (V02).
//!
//! **The rows are read again under the lease.** A row may be renamed or deleted between the reading
//! of its page and the begin. The begin follows seconds later, or minutes later in a backfill of a
//! table with few names. A claim for the old name would keep that name from every cell. The run
//! finds a change before the begin when it reads the row again. A change after the begin meets the
//! lease, so the host is refused and tries again (B03).
//!
//! **Buckets that move.** The run does not destroy an extra claim at once. It defers the destroy,
//! up to a bound, until it finds a row that calls for the bucket. One update then replaces the
//! record, and no other cell can take the bucket in between (B06). If the server refuses a create
//! as taken, the run probes: it sends a replace, whose refusal shows the owner. `NOT_OWNER` means
//! another cell: the run reports the claim and leaves it alone (V06). `CLAIM_CHANGED` means another
//! row of this cell: the run defers the create, up to a bound, until that row gives the bucket up.
//! Creates that are still deferred at the end of the scan are tried once more then.
//!
//! **The second look.** If the run defers more creates than the bound allows, it drops the creates
//! of the last page. It notes the page's span of source ids. After the scan the run compares the
//! noted spans once more. By then it has found every extra claim. So a host must be able to go back
//! in the table once, and then forwards from span to span. The second look can't always replace a
//! record: if the destroy was sent before, another cell may take the bucket before the create. The
//! run then reports the claim.
//!
//! **The limit on destroys.** A wrong scope or a wrong database makes the claims of a table look
//! extra. So a run destroys at most a share of the table's claims, or ten claims if that is more
//! (V11). Most runs know the number of the table's claims when they begin to destroy, because
//! destroys are deferred to the end of the scan. If destroys fill an update earlier, the share is
//! taken of the claims listed so far: the table has at least these. A run that may exceed the share
//! of the listed claims makes a *survey* first: a dry run over the whole table, which goes back to
//! its beginning. The survey is a scan of its own because the number of destroys depends on the
//! moves in the whole table. The run can't keep all extra claims of a table in memory. So a run
//! pays for a survey only if it has found many extra claims close together. Its steps are those of
//! a run without corrections. After the survey the host goes back once more, or the step is
//! `Refused`.
//!
//! **Memory.** A run keeps one page of rows and records, one update that is being filled, the
//! deferred corrections and the noted spans. A survey keeps as much again. Each of these has a
//! bound, whatever the table's size.

mod checkpoint;
mod columns;
mod correction;
mod destroy_limit;
mod diff;
mod phase;
mod plan;
mod recheck;
mod report;
mod run;
mod scan;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::batch::UpdateRequest;
use crate::bucket::BucketType;
use crate::catalogue::Catalogue;
use crate::claim::{SourceId, SourceType};
use crate::rejection::{Place, Reason};

pub use checkpoint::Checkpoint;
pub use columns::{RecordRef, Records, Rows};
pub use destroy_limit::{Share, ShareError, TooManyDestroys};
pub use phase::{Phase, PhaseEvent};
pub use report::{CorrectionOutcome, Finding, Report};
use run::Run;

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
    /// The largest share of the table's claims that the run may destroy, a tenth by default (V11).
    /// Ten claims may be destroyed whatever the share is. To let a refused run go on, pass a larger
    /// share with its checkpoint.
    #[serde(default)]
    pub max_destroy_share: Share,
    /// The seed of the hashes that replace claimed values in findings (V09).
    pub hash_seed: u64,
}

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
    /// The run would destroy more claims than
    /// [`max_destroy_share`](VerifySettings::max_destroy_share) permits, and makes no further
    /// correction (V11). A run with a larger share can go on from the checkpoint.
    Refused(TooManyDestroys),
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

/// A run of verification. The host executes its steps.
#[derive(Clone, Debug, Hash)]
pub struct Verification {
    run: Run,
    /// The survey in progress, a dry run over the whole table (V11). The run itself waits meanwhile.
    survey: Option<Box<Run>>,
}

impl Verification {
    /// Makes a new run, or one that goes on from a checkpoint.
    pub fn new(settings: VerifySettings, catalogue: Catalogue, checkpoint: Option<Checkpoint>) -> Self {
        let mut checkpoint = checkpoint.unwrap_or_default();
        let survey = checkpoint.survey.take();
        let run = Run::new(settings, catalogue, checkpoint);
        let survey = survey.map(|checkpoint| Box::new(run.survey(*checkpoint)));
        let mut verification = Self { run, survey };
        // A survey that was complete at the checkpoint takes effect at once.
        verification.advance_survey();
        verification
    }

    /// Returns the step that the host must execute. The step stays the same until the host passes
    /// its result.
    pub fn step(&self) -> &VerifyStep {
        &self.survey.as_deref().unwrap_or(&self.run).step
    }

    /// Returns the phase of the run. A survey and a refusal leave the phase as it is.
    pub fn phase(&self) -> Phase {
        self.run.phase
    }

    /// Takes the result of [`VerifyStep::FindBound`]. `None` means that fewer rows are left than a
    /// page has, so the range gets no end (V04).
    ///
    /// # Errors
    /// The present step is not [`VerifyStep::FindBound`], or the bound does not lie after the
    /// beginning of the page.
    pub fn bound(&mut self, bound: Option<SourceId>) -> Result<(), Misuse> {
        self.pass(|run| run.bound(bound))
    }

    /// Takes the result of [`VerifyStep::ListRecords`]: a page of the server's records. `truncated`
    /// is true if the server has more records in the range.
    ///
    /// # Errors
    /// The present step is not [`VerifyStep::ListRecords`], the records are out of order or out of
    /// range, or there are none although `truncated` is true.
    pub fn records(&mut self, records: Records, truncated: bool) -> Result<(), Misuse> {
        self.pass(|run| run.records(records, truncated))
    }

    /// Takes the rows that [`VerifyStep::ReadRows`] or [`VerifyStep::ReadAgain`] asks for.
    ///
    /// # Errors
    /// The present step does not ask for rows, the rows are out of order or out of range, or a row
    /// claims a bucket type that the settings lack.
    pub fn rows(&mut self, rows: Rows) -> Result<(), Misuse> {
        self.pass(|run| run.rows(rows))
    }

    /// Confirms the begun update without reading its rows again, if nobody can have changed them:
    /// for example the rows of a dump. The run does not see changes made after the dump.
    ///
    /// # Errors
    /// The present step does not ask for the rows of a begun update.
    pub fn unchanged(&mut self) -> Result<(), Misuse> {
        self.pass(Run::unchanged)
    }

    /// Takes the result of the step that begins, commits or rolls back an update.
    ///
    /// # Errors
    /// The result does not answer the present step.
    pub fn updated(&mut self, result: UpdateResult) -> Result<(), Misuse> {
        self.pass(|run| run.updated(result))
    }

    /// Continues the run after [`VerifyStep::PageDone`].
    ///
    /// # Errors
    /// The present step is not [`VerifyStep::PageDone`].
    pub fn proceed(&mut self) -> Result<(), Misuse> {
        self.pass(Run::proceed)
    }

    /// Ends the run after a page, because its time is over. The run first sends the creates that
    /// wait to fill an update. Another run can then go on from the checkpoint (V07). If the host
    /// drops the run instead of stopping it, the next run repeats some pages.
    ///
    /// # Errors
    /// The present step is not [`VerifyStep::PageDone`].
    pub fn stop(&mut self) -> Result<(), Misuse> {
        match &mut self.survey {
            // A stopped survey has not counted the whole table, so it decides nothing. It stays in
            // the checkpoint.
            Some(survey) => survey.stop(),
            None => self.pass(Run::stop),
        }
    }

    /// Returns the point from which another run could go on if this run ended now.
    pub fn checkpoint(&self) -> Checkpoint {
        let survey = self.survey.as_deref().map(|survey| Box::new(survey.checkpoint()));
        Checkpoint { survey, ..self.run.checkpoint() }
    }

    /// Returns the counts of this run of verification so far.
    pub fn report(&self) -> &Report {
        &self.run.report
    }

    /// Returns the findings since the last call, at most 10,000, so a host must call this after
    /// each page. Created claims are many and only counted, except in a dry run.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.run.findings)
    }

    /// Passes a result to the survey, or to the run if there is no survey.
    fn pass(&mut self, result: impl FnOnce(&mut Run) -> Result<(), Misuse>) -> Result<(), Misuse> {
        result(self.present())?;
        self.advance_survey();
        Ok(())
    }

    fn present(&mut self) -> &mut Run {
        self.survey.as_deref_mut().unwrap_or(&mut self.run)
    }

    /// Begins a survey if the run is refused and has counted only a part of the table. Ends a
    /// survey that has counted the whole table.
    fn advance_survey(&mut self) {
        match &self.survey {
            Some(survey) => {
                self.run.report.pages_surveyed = survey.report.pages;
                if survey.step == VerifyStep::Done {
                    self.run.surveyed(&survey.count);
                    self.survey = None;
                }
            }
            None if matches!(self.run.step, VerifyStep::Refused(_)) && !self.run.count.is_whole() => {
                self.survey = Some(Box::new(self.run.survey(Checkpoint::default())));
            }
            None => {}
        }
    }
}

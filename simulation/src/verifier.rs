//! A verifier: a process that drives the engine's verification machine over its cell's table. The
//! verifier executes the machine's steps one at a time and decides nothing. It reads pages from the
//! replica if the cell has one, and rows under a lease from the database itself.
//!
//! ```text
//! correction      begin lease · read rows again · write lease row · commit lease · delete lease row
//! rows changed    begin lease · read rows again · roll the lease back
//! ```
//!
//! The gem's verifier begins an update while it commits the one before; the simulated verifier
//! first finishes the commit. The lease row is written in its own transaction. If the verifier
//! crashes after that, reconciliation commits the lease; if it crashes before, reconciliation rolls
//! the lease back.

use std::sync::Arc;

use leasehold_core::claim::SourceId;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::query::RecordRow;
use leasehold_core::reconcile::{LocalRow, Settled};
use leasehold_core::time::Timestamp;
use leasehold_core::verify::{
    RecordRef, Records, Report, Rows, Share, UpdateResult, Verification, VerifySettings, VerifyStep,
};

use crate::database::{Database, Row, micros};
use crate::names::{BUCKET_TYPE, Names, TABLE, source_id};
use crate::network::{Purpose, Request, Response};
use crate::process::Process;
use crate::settings::{Rule, WorldSettings};
use crate::step_context::{Calls, StepContext};

/// The number of rows in a page. It is small, so that runs have several pages.
const ROWS_PER_PAGE: usize = 2;

/// A verifier's run in progress.
#[derive(Clone, Debug, Hash)]
pub struct Run {
    /// The engine's machine that decides the steps of the run.
    pub machine: Verification,
    /// The database's time immediately before the verifier's last call. If the call was a begin,
    /// this is the begin time in the lease row (R04). If the call listed records, the ages of the
    /// page's rows are counted up to this time (V02).
    called_at: Timestamp,
    /// The correction in progress, `None` until its lease has begun.
    correction: Option<Correction>,
}

/// A correction whose lease has begun.
#[derive(Clone, Copy, Debug, Hash)]
struct Correction {
    lease: LeaseId,
    stage: CorrectionStage,
}

/// The progress of a correction whose lease has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CorrectionStage {
    /// The lease of the correction has begun.
    Begun,
    /// The lease row of the correction is written.
    Written,
    /// The lease of the correction is committed.
    Committed,
}

/// A process that verifies its cell's claims.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    /// The verifier's run in progress, `None` while it is idle.
    pub run: Option<Box<Run>>,
    /// The report of the verifier's last run.
    pub last: Option<Report>,
    /// The state of the verifier's calls to the service.
    pub calls: Calls,
}

impl Verifier {
    /// Executes the next step of the run. If no run is in progress, starts one first.
    pub fn step(&mut self, context: &mut StepContext<'_>) {
        let run = self.run.get_or_insert_with(|| Box::new(start(context)));
        let now = context.database_now;
        let reports_age = context.settings.rules_off.is_on(Rule::SkipRecentRows);
        let reader = RowReader { names: context.names, now, reports_age };
        let fed = match run.machine.step().clone() {
            VerifyStep::Done | VerifyStep::Refused(_) => {
                self.last = self.run.take().map(|run| run.machine.report().clone());
                return;
            }
            VerifyStep::FindBound { after, rows } => {
                let table = context.database.read(now, context.settings);
                let bound = table.iter().filter(|row| source_id(row.id) > after).nth(rows.saturating_sub(1));
                run.machine.bound(bound.map(|row| source_id(row.id)))
            }
            VerifyStep::ListRecords { after, upto } => {
                run.called_at = now;
                return context.call(Process::Verifier, &mut self.calls, Request::ListRecords { after, upto });
            }
            VerifyStep::ReadRows { after, upto } => {
                let table = context.database.read(now, context.settings);
                let reader = RowReader { now: run.called_at, ..reader };
                run.machine.rows(reader.rows(table, &|id| *id > after && (upto.is_empty() || *id <= upto)))
            }
            VerifyStep::ReadAgain { ids } if run.correction.is_some() => {
                run.machine.rows(reader.under_lease(context.database, &ids))
            }
            // Before the begin, the second read only avoids an update that would be rolled back, so
            // a read of the replica is enough.
            VerifyStep::ReadAgain { ids } => {
                let table = context.database.read(now, context.settings);
                run.machine.rows(reader.rows(table, &|id| ids.contains(id)))
            }
            VerifyStep::Begin(update) => {
                run.called_at = now;
                let key = context.settings.rules_off.is_on(Rule::ReplayKeys);
                let key = key.then(|| Arc::from(format!("verify-{}", self.calls.made)));
                let request = Request::Begin { update: Arc::new(update), key, purpose: Purpose::Correction };
                return context.call(Process::Verifier, &mut self.calls, request);
            }
            VerifyStep::Commit => return self.commit(context),
            VerifyStep::RollBack => return self.settle(Outcome::RolledBack, context),
            VerifyStep::PageDone => run.machine.proceed(),
        };
        debug_assert_eq!(fed, Ok(()), "a host answers the step that it was asked for");
    }

    fn commit(&mut self, context: &mut StepContext<'_>) {
        let Some(run) = &mut self.run else { return };
        let Some(correction) = &mut run.correction else { return };
        match correction.stage {
            CorrectionStage::Begun => {
                let row = LocalRow { created_at: run.called_at, lease: correction.lease };
                let written = context.database.write_lease_row(row, context.database_now, context.settings);
                context.effects.commit_refusal = written.err();
                if written.is_err() {
                    return self.update(UpdateResult::Failed);
                }
                correction.stage = CorrectionStage::Written;
                context.effects.leases.push(correction.lease);
                context
                    .ground_truth
                    .lease_mut(correction.lease)
                    .into_iter()
                    .for_each(|truth| truth.is_committed = true);
            }
            CorrectionStage::Written => self.settle(Outcome::Committed, context),
            CorrectionStage::Committed => {
                context.database.delete_lease_row(correction.lease);
                context.effects.leases.push(correction.lease);
                self.update(UpdateResult::Settled);
            }
        }
    }

    fn settle(&mut self, outcome: Outcome, context: &mut StepContext<'_>) {
        let lease = self.run.as_ref().and_then(|run| run.correction).map(|correction| correction.lease);
        debug_assert!(lease.is_some(), "what is settled was begun");
        if let Some(lease) = lease {
            context.call(Process::Verifier, &mut self.calls, Request::Settle { lease, outcome });
        }
    }

    /// Passes an answer of the service to the run.
    pub fn answer(&mut self, answer: &Response, settings: &WorldSettings) {
        self.calls.is_waiting = false;
        let Some(run) = &mut self.run else { return };
        match (answer, &mut run.correction) {
            (Response::Begun { lease, .. }, _) => {
                self.update(UpdateResult::Begun);
                self.begin_correction(*lease);
            }
            (Response::Records { records, now, truncated }, _) => {
                let as_of = if settings.rules_off.is_on(Rule::SkipRecentClaims) { None } else { Some(Timestamp::MIN) };
                let fed = run.machine.records(columns(records, *now, as_of), *truncated);
                debug_assert_eq!(fed, Ok(()), "a host answers the step that it was asked for");
            }
            (Response::Settled(Settled::Done), Some(correction)) if correction.stage == CorrectionStage::Written => {
                correction.stage = CorrectionStage::Committed;
            }
            (Response::Settled(Settled::Done), _) => self.update(UpdateResult::Settled),
            (Response::Refused { claims, .. }, _) if !claims.is_empty() => {
                self.update(UpdateResult::Refused(claims.to_vec()));
            }
            _ => self.time_out(),
        }
    }

    fn begin_correction(&mut self, lease: LeaseId) {
        self.run.iter_mut().for_each(|run| run.correction = Some(Correction { lease, stage: CorrectionStage::Begun }));
    }

    /// Passes the result of a begin, commit or rollback to the machine.
    fn update(&mut self, result: UpdateResult) {
        let Some(run) = &mut self.run else { return };
        run.correction = None;
        // The machine accepts a result only while it waits for that of an update. If it waits for a
        // list of records, the list has failed, so the run ends.
        if run.machine.updated(result).is_err() {
            self.run = None;
        }
    }

    /// Ends the wait for an answer. If the call was part of a correction, the machine treats the
    /// correction as failed. If the call listed records, the run ends.
    pub fn time_out(&mut self) {
        self.calls.is_waiting = false;
        self.update(UpdateResult::Failed);
    }

    /// Ends the process, which loses its run.
    pub fn crash(&mut self) {
        self.run = None;
        self.calls.is_waiting = false;
    }
}

impl Run {
    /// Returns the name of the run's next action, for views and scripts. The machine's step
    /// `Commit` takes three actions of the verifier.
    pub fn step_name(&self) -> &'static str {
        match self.machine.step() {
            VerifyStep::FindBound { .. } => "find_bound",
            VerifyStep::ListRecords { .. } => "list_records",
            VerifyStep::ReadRows { .. } => "read_rows",
            VerifyStep::ReadAgain { .. } => "read_again",
            VerifyStep::Begin(_) => "begin",
            VerifyStep::Commit => match self.stage() {
                Some(CorrectionStage::Written) => "commit",
                Some(CorrectionStage::Committed) => "delete_row",
                Some(CorrectionStage::Begun) | None => "write_lease",
            },
            VerifyStep::RollBack => "roll_back",
            VerifyStep::PageDone => "page_done",
            VerifyStep::Done | VerifyStep::Refused(_) => "done",
        }
    }

    /// Returns the progress of the present correction; `None` if there is none, or if its lease has
    /// not begun.
    pub fn stage(&self) -> Option<CorrectionStage> {
        self.correction.map(|correction| correction.stage)
    }
}

fn start(context: &StepContext<'_>) -> Run {
    let settings = VerifySettings {
        source_type: TABLE,
        bucket_types: [BUCKET_TYPE].into(),
        recent_within_micros: micros(context.settings.thresholds.recent_within_seconds),
        rows_per_page: ROWS_PER_PAGE,
        dry_run: false,
        // The limit on destroys protects large tables. A world's table is so small that a run may
        // always destroy all of its claims.
        max_destroy_share: Share::ALL,
        hash_seed: 0,
    };
    let machine = Verification::new(settings, context.names.rules.catalogue.clone(), None);
    Run { machine, called_at: Timestamp::MIN, correction: None }
}

/// A reader that converts rows of the cell for the machine. The machine has one threshold for rows
/// and claims. If the rule for recent rows is off, the reader reports no age for any row.
struct RowReader<'a> {
    names: &'a Names,
    now: Timestamp,
    reports_age: bool,
}

impl RowReader<'_> {
    /// Reads rows from the database itself, without the replica's lag. A row that an open
    /// transaction has written counts as changed now.
    fn under_lease(&self, database: &Database, ids: &[SourceId]) -> Rows {
        let mut table = database.rows().to_vec();
        table.iter_mut().filter(|row| database.is_being_written(row.id)).for_each(|row| row.updated_at = self.now);
        self.rows(&table, &|id| ids.contains(id))
    }

    fn rows(&self, table: &[Row], is_requested: &dyn Fn(&SourceId) -> bool) -> Rows {
        let mut rows = Rows::new(self.now);
        for row in table {
            let id = source_id(row.id);
            if is_requested(&id) {
                let (bucket_type, value, subject_type, subject_id) = self.names.expected_claim(row.id, row.name);
                rows.row(id.as_bytes(), self.reports_age.then_some(row.updated_at));
                rows.claim(bucket_type, value, subject_type, subject_id);
            }
        }
        rows
    }
}

fn columns(page: &[RecordRow], now: Timestamp, as_of: Option<Timestamp>) -> Records {
    let mut records = Records::new(now);
    for row in page {
        let record = row.claim.record();
        records.record(RecordRef {
            source_id: record.source.id.as_bytes(),
            bucket_type: row.key.bucket_type.0,
            value: &record.spelling,
            subject_type: record.subject.subject_type,
            subject_id: record.subject.id,
            updated_at: as_of.unwrap_or(record.updated_at),
            held: row.claim.hold().is_some(),
        });
    }
    records
}

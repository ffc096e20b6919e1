//! A verifier: a process that runs the engine's verification of its cell's table. It does what the machine asks for,
//! one step at a time, and decides nothing. It reads a replica where there is one, but for what it reads under a lease.
//!
//! ```text
//! a correction    begin lease · read its rows again · its row · commit lease · delete its row
//! overtaken       begin lease · read its rows again · roll the lease back
//! ```
//!
//! The lease's row is written in a transaction of its own, so that reconciliation commits what is lost after it, and
//! rolls back what is lost before.

use std::sync::Arc;

use leasehold_core::claim::SourceId;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::query::RecordRow;
use leasehold_core::reconcile::{LocalRow, Settled};
use leasehold_core::time::Timestamp;
use leasehold_core::verify::{RecordRef, Records, Report, Rows, Settings, Step, UpdateResult, Verification};

use crate::database::{Database, Row, micros};
use crate::event::Process;
use crate::names::{BUCKET_TYPE, Names, TABLE, source_id};
use crate::network::{Answer, Purpose, Request};
use crate::outside::{Line, Outside};
use crate::settings::{self, Rule};

/// How many rows make a page: few, so that runs have many.
const ROWS_PER_PAGE: usize = 2;

/// A run under way.
#[derive(Clone, Debug, Hash)]
pub struct Run {
    /// The engine's machine.
    pub machine: Verification,
    /// The database's time right before the last begin (R04).
    begun_at: Timestamp,
    /// The correction that is under way, once it is begun.
    held: Option<Held>,
}

/// A correction that is begun.
#[derive(Clone, Copy, Debug, Hash)]
struct Held {
    lease: LeaseId,
    stage: Stage,
}

/// Where a correction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Begun.
    Begun,
    /// The row of its lease is written.
    Written,
    /// Its lease is committed.
    Committed,
}

/// A verifier.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    /// The run that it is at.
    pub run: Option<Box<Run>>,
    /// What the last run saw and did.
    pub last: Option<Report>,
    /// Its call to the service.
    pub line: Line,
}

impl Verifier {
    /// Takes the next step; starts a run where there is none.
    pub fn step(&mut self, outside: &mut Outside<'_>) {
        let run = self.run.get_or_insert_with(|| Box::new(start(outside)));
        let now = outside.database_now;
        let sight =
            Sight { names: outside.names, now, tells_age: outside.settings.rules_off.keep(Rule::SkipRecentRows) };
        let fed = match run.machine.step().clone() {
            Step::Done => {
                self.last = self.run.take().map(|run| run.machine.report().clone());
                return;
            }
            Step::FindBound { after, rows } => {
                let table = outside.database.read(now, outside.settings);
                let bound = table.iter().filter(|row| source_id(row.id) > after).nth(rows.saturating_sub(1));
                run.machine.bound(bound.map(|row| source_id(row.id)))
            }
            Step::ListRecords { after, upto } => {
                return outside.call(Process::Verifier, &mut self.line, Request::ListRecords { after, upto });
            }
            Step::ReadRows { after, upto } => {
                let table = outside.database.read(now, outside.settings);
                run.machine.rows(sight.rows(table, &|id| *id > after && (upto.is_empty() || *id <= upto)))
            }
            Step::ReadAgain { ids } if run.held.is_some() => {
                run.machine.rows(sight.under_lease(outside.database, &ids))
            }
            // Before a begin it only spares an update that would be rolled back.
            Step::ReadAgain { ids } => {
                let table = outside.database.read(now, outside.settings);
                run.machine.rows(sight.rows(table, &|id| ids.contains(id)))
            }
            Step::Begin(update) => {
                run.begun_at = now;
                let key = outside.settings.rules_off.keep(Rule::ReplayKeys);
                let key = key.then(|| Arc::from(format!("verify-{}", self.line.made)));
                let request = Request::Begin { update: Arc::new(update), key, purpose: Purpose::Correction };
                return outside.call(Process::Verifier, &mut self.line, request);
            }
            Step::Commit => return self.commit(outside),
            Step::RollBack => return self.settle(Outcome::RolledBack, outside),
            Step::PageDone => run.machine.proceed(),
        };
        debug_assert_eq!(fed, Ok(()), "a host answers the step that it was asked for");
    }

    fn commit(&mut self, outside: &mut Outside<'_>) {
        let Some(run) = &mut self.run else { return };
        let Some(held) = &mut run.held else { return };
        match held.stage {
            Stage::Begun => {
                let row = LocalRow { created_at: run.begun_at, lease: held.lease };
                let written = outside.database.write_lease_row(row, outside.database_now, outside.settings);
                outside.touched.refused = written.err();
                if written.is_err() {
                    return self.update(UpdateResult::Failed);
                }
                held.stage = Stage::Written;
                outside.touched.leases.push(held.lease);
                outside.ghosts.lease_mut(held.lease).into_iter().for_each(|ghost| ghost.is_committed = true);
            }
            Stage::Written => self.settle(Outcome::Committed, outside),
            Stage::Committed => {
                outside.database.delete_lease_row(held.lease);
                outside.touched.leases.push(held.lease);
                self.update(UpdateResult::Settled);
            }
        }
    }

    fn settle(&mut self, outcome: Outcome, outside: &mut Outside<'_>) {
        let lease = self.run.as_ref().and_then(|run| run.held).map(|held| held.lease);
        debug_assert!(lease.is_some(), "what is settled was begun");
        if let Some(lease) = lease {
            outside.call(Process::Verifier, &mut self.line, Request::Settle { lease, outcome });
        }
    }

    /// The service has answered.
    pub fn answer(&mut self, answer: &Answer, settings: &settings::Settings) {
        self.line.is_waiting = false;
        let Some(run) = &mut self.run else { return };
        match (answer, &mut run.held) {
            (Answer::Begun { lease, .. }, _) => {
                self.update(UpdateResult::Begun);
                self.hold(*lease);
            }
            (Answer::Records { records, now, truncated }, _) => {
                let as_of = if settings.rules_off.keep(Rule::SkipRecentClaims) { None } else { Some(Timestamp::MIN) };
                let fed = run.machine.records(columns(records, *now, as_of), *truncated);
                debug_assert_eq!(fed, Ok(()), "a host answers the step that it was asked for");
            }
            (Answer::Settled(Settled::Done), Some(held)) if held.stage == Stage::Written => {
                held.stage = Stage::Committed;
            }
            (Answer::Settled(Settled::Done), _) => self.update(UpdateResult::Settled),
            (Answer::Refused { claims, .. }, _) if !claims.is_empty() => {
                self.update(UpdateResult::Refused(claims.to_vec()));
            }
            _ => self.time_out(),
        }
    }

    fn hold(&mut self, lease: LeaseId) {
        self.run.iter_mut().for_each(|run| run.held = Some(Held { lease, stage: Stage::Begun }));
    }

    /// A correction has come further, or has come to its end.
    fn update(&mut self, result: UpdateResult) {
        let Some(run) = &mut self.run else { return };
        run.held = None;
        // Only a correction can fail, so without one there is nothing to go on with.
        if run.machine.updated(result).is_err() {
            self.run = None;
        }
    }

    /// No answer came in time: nobody knows what came of a correction, and without a page there is nothing to go on
    /// with.
    pub fn time_out(&mut self) {
        self.line.is_waiting = false;
        self.update(UpdateResult::Failed);
    }

    /// The process dies.
    pub fn crash(&mut self) {
        self.run = None;
        self.line.is_waiting = false;
    }
}

impl Run {
    /// Where the correction that is under way stands, once it is begun.
    pub fn stage(&self) -> Option<Stage> {
        self.held.map(|held| held.stage)
    }
}

fn start(outside: &Outside<'_>) -> Run {
    let settings = Settings {
        source_type: TABLE,
        bucket_types: [BUCKET_TYPE].into(),
        recent_within_micros: micros(outside.settings.thresholds.recent_within_seconds),
        rows_per_page: ROWS_PER_PAGE,
        dry_run: false,
        hash_seed: 0,
    };
    let machine = Verification::new(settings, outside.names.rules.catalogue.clone(), None);
    Run { machine, begun_at: Timestamp::MIN, held: None }
}

/// How rows are handed to the machine. It has one threshold for both sides; with the rule for one side off, its host
/// says of that side that it knows of no late change.
struct Sight<'a> {
    names: &'a Names,
    now: Timestamp,
    tells_age: bool,
}

impl Sight<'_> {
    /// Rows that are read under a lease: nothing may lag behind, and whoever is at one has changed it just now.
    fn under_lease(&self, database: &Database, ids: &[SourceId]) -> Rows {
        let mut table = database.rows().to_vec();
        table.iter_mut().filter(|row| database.is_being_written(row.id)).for_each(|row| row.updated_at = self.now);
        self.rows(&table, &|id| ids.contains(id))
    }

    fn rows(&self, table: &[Row], is_asked_for: &dyn Fn(&SourceId) -> bool) -> Rows {
        let mut rows = Rows::new(self.now);
        for row in table {
            let id = source_id(row.id);
            if is_asked_for(&id) {
                let (bucket_type, value, subject_type, subject_id) = self.names.called_for(row.id, row.name);
                rows.row(id.as_bytes(), self.tells_age.then_some(row.updated_at));
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

//! A verifier: a process that runs the engine's verification of its cell's table. It does what the machine asks for,
//! one step at a time, and decides nothing. It reads a replica where there is one.

use std::sync::Arc;

use leasehold_core::claim::SourceId;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::query::RecordRow;
use leasehold_core::reconcile::Settled;
use leasehold_core::time::Timestamp;
use leasehold_core::verify::{RecordRef, Records, Report, Rows, Settings, Step, UpdateResult, Verification};

use crate::database::{Row, micros};
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
    /// The lease of the correction that is under way, once it is begun.
    lease: Option<LeaseId>,
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
        let run = self.run.get_or_insert_with(|| Box::new(Run { machine: start(outside), lease: None }));
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
                run.machine.rows(sight.rows(table, |id| *id > after && (upto.is_empty() || *id <= upto)))
            }
            // Nothing may lag behind what is read under a lease.
            Step::ReadAgain { ids } => run.machine.rows(sight.rows(outside.database.rows(), |id| ids.contains(id))),
            Step::Begin(update) => {
                let key = outside.settings.rules_off.keep(Rule::ReplayKeys);
                let key = key.then(|| Arc::from(format!("verify-{}", self.line.made)));
                let request = Request::Begin { update: Arc::new(update), key, purpose: Purpose::Correction };
                return outside.call(Process::Verifier, &mut self.line, request);
            }
            Step::Commit => return self.settle(Outcome::Committed, outside),
            Step::RollBack => return self.settle(Outcome::RolledBack, outside),
            Step::PageDone => run.machine.proceed(),
        };
        debug_assert_eq!(fed, Ok(()), "a host answers the step that it was asked for");
    }

    fn settle(&mut self, outcome: Outcome, outside: &mut Outside<'_>) {
        let lease = self.run.as_mut().and_then(|run| run.lease.take());
        debug_assert!(lease.is_some(), "what is settled was begun");
        if let Some(lease) = lease {
            outside.call(Process::Verifier, &mut self.line, Request::Settle { lease, outcome });
        }
    }

    /// The service has answered.
    pub fn answer(&mut self, answer: &Answer, settings: &settings::Settings) {
        self.line.is_waiting = false;
        let Some(run) = &mut self.run else { return };
        let fed = match answer {
            Answer::Begun { lease, .. } => {
                run.lease = Some(*lease);
                run.machine.updated(UpdateResult::Begun)
            }
            Answer::Records { records, now, truncated } => {
                let as_of = if settings.rules_off.keep(Rule::SkipRecentClaims) { None } else { Some(Timestamp::MIN) };
                run.machine.records(columns(records, *now, as_of), *truncated)
            }
            Answer::Settled(Settled::Done) => run.machine.updated(UpdateResult::Settled),
            Answer::Refused { claims, .. } if !claims.is_empty() => {
                run.machine.updated(UpdateResult::Refused(claims.to_vec()))
            }
            _ => return self.time_out(),
        };
        debug_assert_eq!(fed, Ok(()), "a host answers the step that it was asked for");
    }

    /// No answer came in time: nobody knows what came of a correction, and without a page there is nothing to go on
    /// with.
    pub fn time_out(&mut self) {
        self.line.is_waiting = false;
        let Some(run) = &mut self.run else { return };
        if run.machine.updated(UpdateResult::Failed).is_err() {
            self.run = None;
        }
    }

    /// The process dies.
    pub fn crash(&mut self) {
        self.run = None;
        self.line.is_waiting = false;
    }
}

impl Run {
    /// Whether a correction is begun and to be committed.
    pub fn lease(&self) -> Option<LeaseId> {
        self.lease
    }
}

fn start(outside: &Outside<'_>) -> Verification {
    let settings = Settings {
        source_type: TABLE,
        bucket_types: [BUCKET_TYPE].into(),
        recent_within_micros: micros(outside.settings.thresholds.recent_within_seconds),
        rows_per_page: ROWS_PER_PAGE,
        dry_run: false,
        hash_seed: 0,
    };
    Verification::new(settings, outside.names.rules.catalogue.clone(), None)
}

/// How rows are handed to the machine. It has one threshold for both sides; with the rule for one side off, its host
/// says of that side that it knows of no late change.
struct Sight<'a> {
    names: &'a Names,
    now: Timestamp,
    tells_age: bool,
}

impl Sight<'_> {
    fn rows(&self, table: &[Row], is_asked_for: impl Fn(&SourceId) -> bool) -> Rows {
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

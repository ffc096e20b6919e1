//! A worker: one process of a cell that saves for users, one save at a time, in steps between any two of which it may
//! die.
//!
//! ```text
//! before commit   validate · BEGIN · write · begin lease · its row · COMMIT · commit lease · delete its row
//! lease first     validate · begin lease · BEGIN · write · its row · COMMIT · commit lease · delete its row
//! failing         ROLLBACK · roll the lease back
//! ```
//!
//! A lease that was to come first, and finds that a name which it is to give up is not claimed, is begun before commit:
//! only under the row's lock is it certain that nobody claims that name meanwhile.
//!
//! Of a call without an answer there is one more try, under the same idempotency key. A begin that nobody answered may
//! have taken effect: after the local rollback it is asked for again under its key, and rolled back. What fails after
//! the local COMMIT is left to reconciliation, and so is a COMMIT of unknown outcome (R02).

use std::sync::Arc;

use leasehold_core::batch::UpdateRequest;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::reconcile::{LocalRow, Settled};
use leasehold_core::rejection::{List, Place, Reason};
use leasehold_core::time::Timestamp;
use serde::Serialize;

use crate::database::{TooLate, Writes, Written};
use crate::event::{Change, Process};
use crate::network::{Answer, Purpose, Request};
use crate::outside::{Line, Outside};
use crate::settings::{Mode, Rule};

/// Tries of one call.
const TRIES: u8 = 2;

/// What a save does next, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// To look whether it is valid.
    Validate,
    /// To begin the local transaction.
    Open,
    /// To write its rows, once nobody else holds their locks.
    Write,
    /// To begin the lease.
    Begin,
    /// The service is to answer.
    AwaitBegin,
    /// To write the lease's row.
    WriteLease,
    /// To send COMMIT.
    Commit,
    /// The database is to answer.
    AwaitDatabase,
    /// To commit the lease.
    CommitLease,
    /// The service is to answer.
    AwaitCommit,
    /// To delete the lease's row.
    DeleteRow,
    /// To roll the local transaction back.
    Abort,
    /// To find out which lease was begun, if any was.
    FindLease,
    /// The service is to answer.
    AwaitFound,
    /// To roll the lease back.
    RollBackLease,
    /// The service is to answer.
    AwaitRollback,
}

impl Phase {
    /// Whether it waits for the service.
    pub fn awaits_service(self) -> bool {
        matches!(self, Self::AwaitBegin | Self::AwaitCommit | Self::AwaitFound | Self::AwaitRollback)
    }
}

/// What a user was told in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// All rows are saved.
    Saved,
    /// There is nothing to save, or it is not valid.
    Invalid,
    /// The service refused the claims.
    Refused(#[serde(serialize_with = "as_code")] Reason),
    /// The cell's own database refused the rows.
    Conflict,
    /// The database refused the COMMIT as too late: try again.
    TooLate,
    /// The service did not answer: try again.
    Unavailable,
    /// The connection was lost at COMMIT, or the process died: look whether it is there.
    Unknown,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn as_code<S: serde::Serializer>(reason: &Reason, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(reason.code())
}

/// A save under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Save {
    /// Its number, by which its begins are known to be one.
    pub number: u32,
    /// What to save.
    pub change: Change,
    /// What it does next.
    pub phase: Phase,
    /// What it writes, once that is known.
    pub writes: Writes,
    /// The keys of its new rows.
    pub keys: [u32; 2],
    /// Its lease, once it is begun.
    pub lease: Option<LeaseId>,
    /// The database's time right before the begin (R04).
    pub begun_at: Timestamp,
    tries: u8,
    /// Which destroys were found to be done already, as bits.
    gone: u8,
    /// Whether its lease, which was to come first, comes before its commit.
    begins_late: bool,
    /// Whether a begin went without an answer.
    is_unanswered: bool,
    /// What to tell the user after a rollback.
    failure: Told,
}

/// A worker.
#[derive(Clone, Debug, Default, Hash)]
pub struct Worker {
    /// The save that it is at.
    pub save: Option<Save>,
    /// What it told the last user.
    pub told: Option<Told>,
    /// Its call to the service.
    pub line: Line,
}

impl Worker {
    /// A user asks for a save.
    pub fn start(&mut self, number: u32, change: Change, keys: [u32; 2]) {
        self.told = None;
        self.save = Some(Save {
            number,
            change,
            phase: Phase::Validate,
            writes: Writes::new(),
            keys,
            lease: None,
            begun_at: Timestamp::MIN,
            tries: 0,
            gone: 0,
            begins_late: false,
            is_unanswered: false,
            failure: Told::Invalid,
        });
    }

    /// Whether it can take a step by itself.
    pub fn is_ready(&self, number: u8, outside: &crate::database::Database) -> bool {
        self.save.as_ref().is_some_and(|save| match save.phase {
            Phase::AwaitDatabase => false,
            Phase::Write => outside.is_free(number, &save.planned(outside)),
            phase => !phase.awaits_service(),
        })
    }

    /// The process dies.
    pub fn crash(&mut self) {
        if self.save.take().is_some() {
            self.told = Some(Told::Unknown);
        }
        self.line.is_waiting = false;
    }

    fn end(&mut self, told: Told) {
        self.save = None;
        self.told = Some(told);
    }

    /// Takes the next step.
    pub fn step(&mut self, number: u8, outside: &mut Outside<'_>, mode: Mode) {
        let Some(mut save) = self.save.take() else { return };
        let next = save.take_step(number, &mut self.line, outside, mode);
        self.go_on(save, next);
    }

    /// The service has answered.
    pub fn answer(&mut self, answer: &Answer, mode: Mode) {
        self.line.is_waiting = false;
        let Some(mut save) = self.save.take() else { return };
        let next = save.take_answer(answer, mode);
        self.go_on(save, next);
    }

    /// No answer came in time.
    pub fn time_out(&mut self) {
        self.line.is_waiting = false;
        let Some(mut save) = self.save.take() else { return };
        let next = save.no_answer();
        self.go_on(save, next);
    }

    /// The database has carried the COMMIT out, or refused it.
    pub fn committed(&mut self, result: Result<(), TooLate>) {
        let Some(mut save) = self.save.take() else { return };
        let next = match (result, save.lease) {
            (Ok(()), Some(_)) => Next::Phase(Phase::CommitLease),
            (Ok(()), None) => Next::End(Told::Saved),
            (Err(_), _) => save.fail(Told::TooLate, Phase::RollBackLease),
        };
        self.go_on(save, next);
    }

    /// The connection to the database is lost while a transaction was open. Before COMMIT was sent that is a rollback,
    /// but nothing proves it to a worker with another connection: it leaves its lease to reconciliation.
    pub fn disconnect(&mut self) {
        let is_known = self.save.as_ref().is_some_and(|save| save.phase != Phase::AwaitDatabase);
        self.crash();
        if is_known {
            self.told = Some(Told::Unavailable);
        }
    }

    fn go_on(&mut self, mut save: Save, next: Next) {
        match next {
            Next::Phase(phase) => {
                save.phase = phase;
                self.save = Some(save);
            }
            Next::End(told) => self.end(told),
        }
    }
}

/// What a step leads to.
enum Next {
    Phase(Phase),
    End(Told),
}

impl Save {
    /// What it writes, as far as can be known by now.
    fn planned(&self, database: &crate::database::Database) -> Writes {
        if self.writes.is_empty() {
            database.plan(self.change, self.keys).unwrap_or_default()
        } else {
            self.writes.clone()
        }
    }

    fn take_step(&mut self, number: u8, line: &mut Line, outside: &mut Outside<'_>, mode: Mode) -> Next {
        let next = match self.phase {
            Phase::Validate => return self.validate(outside, mode),
            Phase::Open => {
                outside.database.begin(number, outside.database_now);
                Phase::Write
            }
            Phase::Write => return self.write(number, outside, mode),
            Phase::Begin => return self.begin(number, line, outside, mode),
            Phase::WriteLease => {
                let lease = self.lease.map(|lease| LocalRow { created_at: self.begun_at, lease });
                if let Some(open) = outside.database.open(number) {
                    open.lease = lease;
                }
                Phase::Commit
            }
            Phase::Commit => {
                outside.database.send_commit(number);
                Phase::AwaitDatabase
            }
            Phase::CommitLease => return self.settle(number, line, outside, Outcome::Committed),
            Phase::DeleteRow => {
                if let Some(lease) = self.lease {
                    outside.database.delete_lease_row(lease);
                    outside.touched.leases.push(lease);
                }
                return Next::End(Told::Saved);
            }
            Phase::Abort => {
                outside.database.lose_connection(number);
                return self.after_abort(outside);
            }
            Phase::FindLease => {
                let update = outside.names.update(&self.writes, self.gone);
                self.call_begin(update, number, line, outside);
                Phase::AwaitFound
            }
            Phase::RollBackLease => return self.settle(number, line, outside, Outcome::RolledBack),
            waiting => waiting,
        };
        Next::Phase(next)
    }

    fn validate(&mut self, outside: &Outside<'_>, mode: Mode) -> Next {
        let Some(writes) = outside.database.plan(self.change, self.keys) else { return Next::End(Told::Invalid) };
        Next::Phase(match mode {
            Mode::BeforeCommit => Phase::Open,
            Mode::LeaseFirst => {
                self.writes = writes;
                Phase::Begin
            }
        })
    }

    /// Rows are read under their locks, unless the lease came first: then they must still be what they were.
    fn write(&mut self, number: u8, outside: &mut Outside<'_>, mode: Mode) -> Next {
        let planned = self.planned(outside.database);
        if planned.is_empty() {
            return self.fail(Told::Conflict, Phase::Abort);
        }
        match outside.database.write(number, &planned, outside.database_now) {
            Written::Blocked => Next::Phase(Phase::Write),
            Written::Conflict => self.fail(Told::Conflict, Phase::Abort),
            Written::Done => {
                self.writes = planned;
                Next::Phase(match (self.is_lease_first(mode), self.lease) {
                    (false, _) => Phase::Begin,
                    (true, Some(_)) => Phase::WriteLease,
                    (true, None) => Phase::Commit,
                })
            }
        }
    }

    fn begin(&mut self, number: u8, line: &mut Line, outside: &mut Outside<'_>, mode: Mode) -> Next {
        let update = outside.names.update(&self.writes, self.gone);
        if update.creates.is_empty() && update.destroys.is_empty() {
            return Next::Phase(self.after_begin(mode));
        }
        if self.tries == 0 {
            // Before the call, so that the row is never younger than the lease (R04).
            self.begun_at = outside.database_now;
        }
        self.call_begin(update, number, line, outside);
        Next::Phase(Phase::AwaitBegin)
    }

    fn call_begin(&self, update: UpdateRequest, number: u8, line: &mut Line, outside: &mut Outside<'_>) {
        let key = outside.settings.rules_off.keep(Rule::ReplayKeys);
        let key = key.then(|| Arc::from(format!("save-{}-{}", self.number, self.gone)));
        let request = Request::Begin { update: Arc::new(update), key, purpose: Purpose::Save(self.number) };
        outside.call(Process::Worker(number), line, request);
    }

    fn settle(&self, number: u8, line: &mut Line, outside: &mut Outside<'_>, outcome: Outcome) -> Next {
        let Some(lease) = self.lease else { return Next::End(self.failure) };
        outside.call(Process::Worker(number), line, Request::Settle { lease, outcome });
        Next::Phase(if outcome == Outcome::Committed { Phase::AwaitCommit } else { Phase::AwaitRollback })
    }

    fn take_answer(&mut self, answer: &Answer, mode: Mode) -> Next {
        match (self.phase, answer) {
            (_, Answer::Unavailable) => self.no_answer(),
            (Phase::AwaitBegin, Answer::Begun { lease, .. }) => {
                self.lease = Some(*lease);
                self.tries = 0;
                Next::Phase(self.after_begin(mode))
            }
            (Phase::AwaitBegin, Answer::Refused { reason, claims, .. }) => self.refused(*reason, claims, mode),
            (Phase::AwaitCommit, Answer::Settled(Settled::Done)) => Next::Phase(Phase::DeleteRow),
            // The rows are committed whatever the service says: reconciliation finds out the rest.
            (Phase::AwaitCommit, _) => Next::End(Told::Saved),
            (Phase::AwaitFound, Answer::Begun { lease, .. }) => {
                self.lease = Some(*lease);
                self.tries = 0;
                Next::Phase(Phase::RollBackLease)
            }
            (_, _) => Next::End(self.failure),
        }
    }

    fn is_lease_first(&self, mode: Mode) -> bool {
        mode == Mode::LeaseFirst && !self.begins_late
    }

    fn after_begin(&self, mode: Mode) -> Phase {
        match self.lease {
            _ if self.is_lease_first(mode) => Phase::Open,
            Some(_) => Phase::WriteLease,
            None => Phase::Commit,
        }
    }

    /// To destroy what is not there, or not ours, is already done: the update is begun again without that.
    fn refused(&mut self, reason: Reason, claims: &[(Place, Reason)], mode: Mode) -> Next {
        let is_gone = |(place, reason): &(Place, Reason)| {
            let is_done = matches!(reason, Reason::ClaimNotFound | Reason::ClaimChanged | Reason::NotOwner);
            is_done && place.list == List::Destroys
        };
        self.tries = 0;
        self.is_unanswered = false;
        if self.gone == 0 && claims.iter().all(is_gone) {
            if self.is_lease_first(mode) {
                // Nothing keeps others from claiming what is gone before its row is locked: it is asked for under the lock.
                self.begins_late = true;
                return Next::Phase(Phase::Open);
            }
            self.gone = claims.iter().fold(0, |gone, (place, _)| gone | 1 << place.position.min(7));
            return Next::Phase(Phase::Begin);
        }
        let failure = Told::Refused(reason);
        if self.is_lease_first(mode) { Next::End(failure) } else { self.fail(failure, Phase::Abort) }
    }

    /// Nobody knows what came of the call: once more, then it is given up.
    fn no_answer(&mut self) -> Next {
        self.tries += 1;
        let is_last = self.tries >= TRIES;
        if is_last {
            self.tries = 0;
        }
        match (self.phase, is_last) {
            (Phase::AwaitBegin, false) => {
                self.is_unanswered = true;
                Next::Phase(Phase::Begin)
            }
            (Phase::AwaitBegin, true) => {
                self.is_unanswered = true;
                self.fail(Told::Unavailable, Phase::Abort)
            }
            (Phase::AwaitCommit, false) => Next::Phase(Phase::CommitLease),
            (Phase::AwaitCommit, true) => Next::End(Told::Saved),
            (Phase::AwaitFound, false) => Next::Phase(Phase::FindLease),
            (Phase::AwaitRollback, false) => Next::Phase(Phase::RollBackLease),
            (_, _) => Next::End(self.failure),
        }
    }

    /// The local transaction is rolled back for certain: then so is the lease.
    fn after_abort(&self, outside: &Outside<'_>) -> Next {
        let has_key = outside.settings.rules_off.keep(Rule::ReplayKeys);
        match self.lease {
            Some(_) => Next::Phase(Phase::RollBackLease),
            None if self.is_unanswered && has_key => Next::Phase(Phase::FindLease),
            None => Next::End(self.failure),
        }
    }

    fn fail(&mut self, told: Told, phase: Phase) -> Next {
        self.failure = told;
        self.tries = 0;
        Next::Phase(phase)
    }
}

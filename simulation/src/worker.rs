//! A worker: a process of a cell that performs one save for a user at a time. The worker can crash
//! between any two of its steps.
//!
//! ```text
//! before commit   validate · BEGIN · write rows · begin lease · write lease row · COMMIT · after COMMIT
//! lease first     validate · begin lease · BEGIN · write rows · write lease row · COMMIT · after COMMIT
//! after COMMIT    commit lease · delete lease row
//! failure         ROLLBACK · roll the lease back
//! ```
//!
//! In the mode *lease first*, a begin can be refused because a name to be given up is not claimed.
//! The save then begins its lease before COMMIT instead, while it holds the lock of the row.
//! Without the lock, a verifier could claim the old name for the row, which is about to lose this
//! name.
//!
//! A worker repeats a call without an answer once, with the same idempotency key. A begin without
//! an answer may have taken effect. So after the local rollback, the worker repeats the begin with
//! its key to learn the lease, and rolls the lease back. A failure after the local COMMIT is left
//! to reconciliation, and so is a COMMIT of unknown outcome (R02).

use std::sync::Arc;

use leasehold_core::batch::UpdateRequest;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::reconcile::{LocalRow, Settled};
use leasehold_core::rejection::{List, Place, Reason};
use leasehold_core::time::Timestamp;
use serde::Serialize;

use crate::database::{CommitRefusal, RowRefusal, WriteResult, Writes};
use crate::event::Change;
use crate::names::Names;
use crate::network::{Purpose, Request, Response};
use crate::process::Process;
use crate::settings::{Mode, Rule};
use crate::step_context::{Calls, StepContext};

/// The number of times that a worker tries one call.
const ATTEMPTS: u8 = 2;

/// The next action of a save, or the answer that the save waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Check that the change of the save is valid.
    Validate,
    /// Begin the local transaction.
    Open,
    /// Write the rows, once no other transaction holds their locks.
    Write,
    /// Begin the lease of the save.
    Begin,
    /// Wait for the service's answer to the begin.
    AwaitBegin,
    /// Write the lease row in the local transaction.
    WriteLease,
    /// Send the COMMIT of the local transaction.
    Commit,
    /// Wait for the database's answer to the COMMIT.
    AwaitDatabase,
    /// Commit the lease at the service.
    CommitLease,
    /// Wait for the service's answer to the commit of the lease.
    AwaitCommit,
    /// Delete the lease row.
    DeleteRow,
    /// Roll back the local transaction.
    Abort,
    /// Repeat the begin to learn the lease that it may have begun.
    FindLease,
    /// Wait for the service's answer to the repeated begin.
    AwaitFound,
    /// Roll back the lease at the service.
    RollBackLease,
    /// Wait for the service's answer to the rollback of the lease.
    AwaitRollback,
}

impl Phase {
    /// Returns true if a save in this phase waits for the service.
    pub fn awaits_service(self) -> bool {
        matches!(self, Self::AwaitBegin | Self::AwaitCommit | Self::AwaitFound | Self::AwaitRollback)
    }
}

/// The result of a save, as its user learns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SaveResult {
    /// The local transaction is committed, so all rows are saved.
    Saved,
    /// The change is invalid or changes nothing.
    Invalid,
    /// The service refused to begin the lease, for this reason.
    Refused(#[serde(serialize_with = "as_code")] Reason),
    /// The cell's own database refused to write the rows.
    Conflict,
    /// The database refused the COMMIT as too late; the user can try again.
    TooLate,
    /// The service did not answer; the user can try again.
    Unavailable,
    /// The connection was lost during COMMIT, or the process crashed; the user must check whether
    /// the rows exist.
    Unknown,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn as_code<S: serde::Serializer>(reason: &Reason, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(reason.code())
}

/// The state of a save in progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Save {
    /// The number of the save in the world. The idempotency keys of all its begins contain the
    /// number.
    pub number: u32,
    /// The change that the user wants to save.
    pub change: Change,
    /// The next action of the save.
    pub phase: Phase,
    /// The writes of the local transaction, empty until they are known.
    pub writes: Writes,
    /// The primary keys for the new rows of the save.
    pub keys: [u32; 2],
    /// The lease of the save, `None` until it has begun.
    pub lease: Option<LeaseId>,
    /// The database's time immediately before the first begin of the lease (R04).
    pub begun_at: Timestamp,
    attempts: u8,
    /// The positions of destroys that the update leaves out, as bits.
    skipped_destroys: u8,
    /// True if the lease begins before COMMIT although the cell's mode is *lease first*.
    begins_before_commit: bool,
    /// True if a begin of the save got no answer.
    has_unanswered_begin: bool,
    /// The result that the user learns after a rollback.
    failure: SaveResult,
}

/// A process that performs saves for users.
#[derive(Clone, Debug, Default, Hash)]
pub struct Worker {
    /// The worker's save in progress, `None` while it is idle.
    pub save: Option<Save>,
    /// The result of the worker's last save, `None` before its end.
    pub last_result: Option<SaveResult>,
    /// The state of the worker's calls to the service.
    pub calls: Calls,
}

impl Worker {
    /// Starts a save that a user has requested.
    pub fn start(&mut self, number: u32, change: Change, keys: [u32; 2]) {
        self.last_result = None;
        self.save = Some(Save {
            number,
            change,
            phase: Phase::Validate,
            writes: Writes::new(),
            keys,
            lease: None,
            begun_at: Timestamp::MIN,
            attempts: 0,
            skipped_destroys: 0,
            begins_before_commit: false,
            has_unanswered_begin: false,
            failure: SaveResult::Invalid,
        });
    }

    /// Returns true if the worker can take a step without waiting for a message, its database or a
    /// lock.
    pub fn is_ready(&self, number: u8, context: &crate::database::Database) -> bool {
        self.save.as_ref().is_some_and(|save| match save.phase {
            Phase::AwaitDatabase => false,
            Phase::Write => context.is_free(number, &save.planned(context)),
            phase => !phase.awaits_service(),
        })
    }

    /// Ends the process, which loses its save. The save's user does not learn its outcome.
    pub fn crash(&mut self) {
        if self.save.take().is_some() {
            self.last_result = Some(SaveResult::Unknown);
        }
        self.calls.is_waiting = false;
    }

    fn end(&mut self, result: SaveResult) {
        self.save = None;
        self.last_result = Some(result);
    }

    /// Takes the next step of the save, if one is in progress.
    pub fn step(&mut self, number: u8, context: &mut StepContext<'_>, mode: Mode) {
        let Some(mut save) = self.save.take() else { return };
        let next = save.take_step(number, &mut self.calls, context, mode);
        self.advance(save, next);
    }

    /// Passes an answer of the service to the save.
    pub fn answer(&mut self, answer: &Response, mode: Mode) {
        self.calls.is_waiting = false;
        let Some(mut save) = self.save.take() else { return };
        let next = save.take_answer(answer, mode);
        self.advance(save, next);
    }

    /// Ends the wait for an answer: the save repeats the call or gives it up.
    pub fn time_out(&mut self) {
        self.calls.is_waiting = false;
        let Some(mut save) = self.save.take() else { return };
        let next = save.retry_or_give_up();
        self.advance(save, next);
    }

    /// Passes the database's answer to the COMMIT to the save.
    pub fn committed(&mut self, result: Result<(), CommitRefusal>) {
        let Some(mut save) = self.save.take() else { return };
        let next = match (result, save.lease) {
            (Ok(()), Some(_)) => Next::Phase(Phase::CommitLease),
            (Ok(()), None) => Next::End(SaveResult::Saved),
            (Err(_), _) => save.fail(SaveResult::TooLate, Phase::RollBackLease),
        };
        self.advance(save, next);
    }

    /// Ends the save, because the database connection was lost during its transaction. If COMMIT
    /// was not sent, the database rolls back. The worker cannot verify this on a new connection, so
    /// it leaves the lease to reconciliation.
    pub fn disconnect(&mut self) {
        let is_known = self.save.as_ref().is_some_and(|save| save.phase != Phase::AwaitDatabase);
        self.crash();
        if is_known {
            self.last_result = Some(SaveResult::Unavailable);
        }
    }

    fn advance(&mut self, mut save: Save, next: Next) {
        match next {
            Next::Phase(phase) => {
                save.phase = phase;
                self.save = Some(save);
            }
            Next::End(result) => self.end(result),
        }
    }
}

/// The effect of a step on a save: its next phase, or its end.
enum Next {
    Phase(Phase),
    End(SaveResult),
}

impl Save {
    /// Returns the writes of the save: those that an earlier step has fixed, or else those that its
    /// change needs given the committed rows.
    fn planned(&self, database: &crate::database::Database) -> Writes {
        if self.writes.is_empty() {
            database.plan(self.change, self.keys).unwrap_or_default()
        } else {
            self.writes.clone()
        }
    }

    fn take_step(&mut self, number: u8, calls: &mut Calls, context: &mut StepContext<'_>, mode: Mode) -> Next {
        let next = match self.phase {
            Phase::Validate => return self.validate(context, mode),
            Phase::Open => {
                context.database.begin(number, context.database_now);
                Phase::Write
            }
            Phase::Write => return self.write(number, context, mode),
            Phase::Begin => return self.begin(number, calls, context, mode),
            Phase::WriteLease => {
                let lease = self.lease.map(|lease| LocalRow { created_at: self.begun_at, lease });
                if let Some(open) = context.database.open(number) {
                    open.lease = lease;
                }
                Phase::Commit
            }
            Phase::Commit => {
                context.database.send_commit(number);
                Phase::AwaitDatabase
            }
            Phase::CommitLease => return self.settle(number, calls, context, Outcome::Committed),
            Phase::DeleteRow => {
                if let Some(lease) = self.lease {
                    context.database.delete_lease_row(lease);
                    context.effects.leases.push(lease);
                }
                return Next::End(SaveResult::Saved);
            }
            Phase::Abort => {
                context.database.lose_connection(number);
                return self.after_abort(context);
            }
            Phase::FindLease => {
                let update = self.update(context.names);
                self.call_begin(update, number, calls, context);
                Phase::AwaitFound
            }
            Phase::RollBackLease => return self.settle(number, calls, context, Outcome::RolledBack),
            waiting => waiting,
        };
        Next::Phase(next)
    }

    fn validate(&mut self, context: &StepContext<'_>, mode: Mode) -> Next {
        let Some(writes) = context.database.plan(self.change, self.keys) else { return Next::End(SaveResult::Invalid) };
        Next::Phase(match mode {
            Mode::BeforeCommit => Phase::Open,
            Mode::LeaseFirst => {
                self.writes = writes;
                Phase::Begin
            }
        })
    }

    /// Writes the rows of the save. In the mode *before commit*, the save reads the rows now, under
    /// their locks. In the mode *lease first*, the rows must still equal those that the save read
    /// before its lease.
    fn write(&mut self, number: u8, context: &mut StepContext<'_>, mode: Mode) -> Next {
        let planned = self.planned(context.database);
        if planned.is_empty() {
            return self.refuse_rows(RowRefusal::RowChanged, context);
        }
        match context.database.write(number, &planned, context.database_now) {
            WriteResult::Blocked => Next::Phase(Phase::Write),
            WriteResult::Refused(reason) => self.refuse_rows(reason, context),
            WriteResult::Done => {
                self.writes = planned;
                Next::Phase(match (self.is_lease_first(mode), self.lease) {
                    (false, _) => Phase::Begin,
                    (true, Some(_)) => Phase::WriteLease,
                    (true, None) => Phase::Commit,
                })
            }
        }
    }

    fn refuse_rows(&mut self, reason: RowRefusal, context: &mut StepContext<'_>) -> Next {
        context.effects.row_refusal = Some(reason);
        self.fail(SaveResult::Conflict, Phase::Abort)
    }

    /// Returns the update that the save begins. It is empty if the save changes no claim.
    pub(crate) fn update(&self, names: &Names) -> UpdateRequest {
        names.update(&self.writes, self.skipped_destroys)
    }

    fn begin(&mut self, number: u8, calls: &mut Calls, context: &mut StepContext<'_>, mode: Mode) -> Next {
        let update = self.update(context.names);
        if update.creates.is_empty() && update.destroys.is_empty() {
            return Next::Phase(self.after_begin(mode));
        }
        if self.attempts == 0 {
            // The time is taken before the first attempt, so that the lease row is never younger
            // than the lease (R04).
            self.begun_at = context.database_now;
        }
        self.call_begin(update, number, calls, context);
        Next::Phase(Phase::AwaitBegin)
    }

    fn call_begin(&self, update: UpdateRequest, number: u8, calls: &mut Calls, context: &mut StepContext<'_>) {
        let key = context.settings.rules_off.is_on(Rule::ReplayKeys);
        let key = key.then(|| Arc::from(format!("save-{}-{}", self.number, self.skipped_destroys)));
        let request = Request::Begin { update: Arc::new(update), key, purpose: Purpose::Save(self.number) };
        context.call(Process::Worker(number), calls, request);
    }

    fn settle(&self, number: u8, calls: &mut Calls, context: &mut StepContext<'_>, outcome: Outcome) -> Next {
        let Some(lease) = self.lease else { return Next::End(self.failure) };
        context.call(Process::Worker(number), calls, Request::Settle { lease, outcome });
        Next::Phase(if outcome == Outcome::Committed { Phase::AwaitCommit } else { Phase::AwaitRollback })
    }

    fn take_answer(&mut self, answer: &Response, mode: Mode) -> Next {
        match (self.phase, answer) {
            (_, Response::Unavailable) => self.retry_or_give_up(),
            (Phase::AwaitBegin, Response::Begun { lease, .. }) => {
                self.lease = Some(*lease);
                self.attempts = 0;
                Next::Phase(self.after_begin(mode))
            }
            (Phase::AwaitBegin, Response::Refused { reason, claims, .. }) => self.on_refusal(*reason, claims, mode),
            (Phase::AwaitCommit, Response::Settled(Settled::Done)) => Next::Phase(Phase::DeleteRow),
            // The rows are committed, whatever the service answers. Reconciliation settles the
            // lease.
            (Phase::AwaitCommit, _) => Next::End(SaveResult::Saved),
            (Phase::AwaitFound, Response::Begun { lease, .. }) => {
                self.lease = Some(*lease);
                self.attempts = 0;
                Next::Phase(Phase::RollBackLease)
            }
            (_, _) => Next::End(self.failure),
        }
    }

    fn is_lease_first(&self, mode: Mode) -> bool {
        mode == Mode::LeaseFirst && !self.begins_before_commit
    }

    fn after_begin(&self, mode: Mode) -> Phase {
        match self.lease {
            _ if self.is_lease_first(mode) => Phase::Open,
            Some(_) => Phase::WriteLease,
            None => Phase::Commit,
        }
    }

    /// Processes a refused begin. A claim that does not exist or belongs to another row or cell
    /// need not be destroyed. If all refused claims are such destroys, the begin is repeated
    /// without them. Any other refusal fails the save.
    fn on_refusal(&mut self, reason: Reason, claims: &[(Place, Reason)], mode: Mode) -> Next {
        let need_not_be_destroyed = |(place, reason): &(Place, Reason)| {
            let is_done = matches!(reason, Reason::ClaimNotFound | Reason::ClaimChanged | Reason::NotOwner);
            is_done && place.list == List::Destroys
        };
        self.attempts = 0;
        self.has_unanswered_begin = false;
        // A refusal of the whole update names no claim. The service refuses an update in this way
        // if, for example, its key belongs to a lease that was rolled back.
        let may_skip = self.skipped_destroys == 0 && !claims.is_empty();
        if may_skip && claims.iter().all(need_not_be_destroyed) {
            if self.is_lease_first(mode) {
                // Until the save has locked the row, another save can claim the missing name. So
                // the lease must wait for the lock.
                self.begins_before_commit = true;
                return Next::Phase(Phase::Open);
            }
            self.skipped_destroys = claims.iter().fold(0, |skipped, (place, _)| skipped | 1 << place.position.min(7));
            return Next::Phase(Phase::Begin);
        }
        let failure = SaveResult::Refused(reason);
        if self.is_lease_first(mode) { Next::End(failure) } else { self.fail(failure, Phase::Abort) }
    }

    /// Repeats a call without an answer once, then gives the call up.
    fn retry_or_give_up(&mut self) -> Next {
        self.attempts += 1;
        let is_last = self.attempts >= ATTEMPTS;
        if is_last {
            self.attempts = 0;
        }
        match (self.phase, is_last) {
            (Phase::AwaitBegin, false) => {
                self.has_unanswered_begin = true;
                Next::Phase(Phase::Begin)
            }
            (Phase::AwaitBegin, true) => {
                self.has_unanswered_begin = true;
                self.fail(SaveResult::Unavailable, Phase::Abort)
            }
            (Phase::AwaitCommit, false) => Next::Phase(Phase::CommitLease),
            (Phase::AwaitCommit, true) => Next::End(SaveResult::Saved),
            (Phase::AwaitFound, false) => Next::Phase(Phase::FindLease),
            (Phase::AwaitRollback, false) => Next::Phase(Phase::RollBackLease),
            (_, _) => Next::End(self.failure),
        }
    }

    /// Returns the next step after a local rollback. The save's lease must be rolled back too. A
    /// begin without an answer may also have begun a lease.
    fn after_abort(&self, context: &StepContext<'_>) -> Next {
        let has_key = context.settings.rules_off.is_on(Rule::ReplayKeys);
        match self.lease {
            Some(_) => Next::Phase(Phase::RollBackLease),
            None if self.has_unanswered_begin && has_key => Next::Phase(Phase::FindLease),
            None => Next::End(self.failure),
        }
    }

    fn fail(&mut self, result: SaveResult, phase: Phase) -> Next {
        self.failure = result;
        self.attempts = 0;
        Next::Phase(phase)
    }
}

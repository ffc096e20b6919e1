//! A writer of the committer: it decides a group of commands on the rows that it loads, commits the
//! changes, and answers the callers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::claim::Claim;
use leasehold_core::command::{Command, Fences};
use leasehold_core::rows::{NetChanges, RowChange};
use tokio::sync::{Notify, oneshot, watch};

use super::lock_suspects::LockSuspects;
use super::progress::Progress;
use super::queue::{BatchPolicy, Job, Queue};
use super::retry::{self, Attempt, Reaction};
use super::{BeginGate, CommitterRefusal, Decision, Delivery, Undelivered};
use crate::audit::{AuditEvent, AuditSink};
use crate::locks::LockHost;
use crate::metrics::{Abandoned, Metrics, Retry};
use crate::queues::SavedRequests;
use crate::store::{Failure, GroupError, GroupStore, LockTimeout, StoreClock};

/// The time for which the answer of the begin gate is reused, before the gate is called again.
const GATE_INTERVAL: Duration = Duration::from_secs(1);
/// The pause between two attempts to reach the store, for a writer that can't reach it although
/// other writers can.
const LONE_PAUSE: Duration = Duration::from_secs(1);

/// The time for which a store that lacked a resource, such as disk space, stays away at least. In
/// this time a small write may succeed, and the next large one fail. Then a writer checks again and
/// again, after pauses of this length, if the store has room: callers that follow the health status
/// send no writes.
const EXHAUSTED_PAUSE: Duration = Duration::from_secs(5);

/// The refusal of a command that was not tried. Another command that needs one of the same rows has
/// just met a lock.
const FOUND_LOCKED: &str = "the rows are locked by another session of the database: end its transaction; another command met the lock just now";

/// An SQL statement for operators that finds the sessions which lock servers' rows for more than
/// half a second. Servers lock rows for milliseconds.
const BLOCKERS: &str = "SELECT pid, usename, application_name, client_addr, xact_start, query FROM pg_stat_activity \
    WHERE datname = current_database() AND xact_start < now() - interval '0.5 s' AND pid IN \
    (SELECT pid FROM pg_locks WHERE granted AND mode <> 'AccessShareLock' AND relation = ANY ( \
    '{claims, claim_leases, idempotency_keys, lock_sessions, locks, lock_asks, lock_turns, request_queues, request_lanes, \
    open_requests, settled_requests, request_bodies}'::regclass[])) ORDER BY xact_start";

/// The state that the writers of one queue share.
pub(super) struct WriterShared {
    pub(super) queue: Queue,
    pub(super) patience: Duration,
    pub(super) clock: Arc<StoreClock>,
    pub(super) begin_gate: Mutex<CachedGate>,
    // The fatal failure of the store, for which all commands are refused; `None` before.
    pub(super) failed: watch::Sender<Option<Arc<str>>>,
    // The time at which the store became unreachable; `None` while the store can be reached.
    pub(super) away: Mutex<Option<Instant>>,
    // Set while the store is away because it lacks a resource.
    pub(super) exhausted: Mutex<Option<Exhausted>>,
    // The number of writers whose last attempt reached the store.
    pub(super) connected_writers: AtomicUsize,
    pub(super) metrics: Arc<Metrics>,
    pub(super) audit: Arc<AuditSink>,
    pub(super) locks: Arc<LockHost>,
    pub(super) suspects: LockSuspects,
    // Notified after each change of `failed` and `away`.
    pub(super) health: Notify,
    pub(super) progress: Progress,
}

impl WriterShared {
    pub(super) fn has_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    pub(super) fn is_away(&self) -> bool {
        lock(&self.away).is_some()
    }

    /// Marks the store as back after a successful write, unless it has lacked a resource within
    /// [`EXHAUSTED_PAUSE`].
    fn mark_back(&self) {
        // The lock is kept, so that a writer which meets a full disk now marks the store afterwards.
        let mut exhausted = lock(&self.exhausted);
        if exhausted.as_ref().is_some_and(|exhausted| exhausted.last.elapsed() < EXHAUSTED_PAUSE) {
            return;
        }
        *exhausted = None;
        if lock(&self.away).take().is_some() {
            tracing::info!("the store is back");
            self.health.notify_one();
        }
    }

    /// Marks the store as away, and returns the time at which it became unreachable.
    fn mark_away(&self, error: &GroupError) -> Instant {
        *lock(&self.away).get_or_insert_with(|| {
            tracing::warn!(%error, "the store is away: commands wait for it");
            self.health.notify_one();
            Instant::now()
        })
    }

    /// Logs a fatal failure of the store, and refuses every command from now on.
    fn fail(&self, error: &str) {
        tracing::error!(
            error,
            "the store failed, and nothing is written any more: the server stops; its next start repairs damaged indexes; if it fails too, mend the cause, such as a full or broken disk; `leasehold doctor --deep` names a damaged block, and `leasehold export --salvage` reads what is intact"
        );
        self.failed.send_replace(Some(error.into()));
        self.health.notify_one();
    }

    /// Returns the refusal of all commands after a fatal failure of the store; `None` before.
    pub(super) fn failure(&self) -> Option<CommitterRefusal> {
        self.failed.borrow().clone().map(CommitterRefusal::StoreUnavailable)
    }

    /// True if at least one writer reaches the store and the queue is open, so that commands are
    /// taken.
    fn has_connected_writers(&self) -> bool {
        self.connected_writers.load(Ordering::Relaxed) > 0 && !self.queue.is_closed()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // INVARIANT: the values behind these locks are valid at every moment, so a panic leaves none
    // half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The times of a store that lacks a resource.
pub(super) struct Exhausted {
    // The time of the last failed write.
    last: Instant,
    // The time of the last check if the store has room, or of the last failed write if it is later.
    checked: Instant,
}

/// The gate for begins, with its last answer and the time of that answer.
pub(super) struct CachedGate {
    gate: BeginGate,
    last: Option<(Instant, Option<CommitterRefusal>)>,
}

impl CachedGate {
    pub(super) fn new(gate: BeginGate) -> Self {
        Self { gate, last: None }
    }

    fn refusal(&mut self) -> Option<CommitterRefusal> {
        if let Some((_, refusal)) = self.last.as_ref().filter(|(at, _)| at.elapsed() < GATE_INTERVAL) {
            return refusal.clone();
        }
        let refusal = (self.gate)();
        if let Some(refusal) = &refusal {
            tracing::error!(%refusal, "begins are refused");
        }
        self.last = Some((Instant::now(), refusal.clone()));
        refusal
    }
}

/// A committed group: a decision for each command, and the changed claims. A command whose decision
/// is `None` must wait for the next group.
struct CommittedGroup {
    decisions: Vec<Option<Decision>>,
    claims: Vec<RowChange<Claim>>,
    // False if the group changed no row, so that its commit does not prove that the store accepts
    // writes.
    has_written: bool,
}

/// The counts of a group's failed attempts so far.
#[derive(Default)]
struct FailureCounts {
    attempts: u32,
    conflicts: u32,
    outages: u32,
}

pub(super) struct Writer {
    store: Box<dyn GroupStore>,
    shared: Arc<WriterShared>,
    // The number of this writer, from 0, among the writers of the queue.
    index: usize,
    policy: BatchPolicy,
    // The time at which this writer lost the store; `None` while this writer reaches the store.
    // Other writers may reach the store at the same time.
    away: Option<Instant>,
    // True if a write got no answer, until this writer reaches the store again.
    has_unknown_write: bool,
}

impl Writer {
    pub(super) fn new(index: usize, mut store: Box<dyn GroupStore>, shared: Arc<WriterShared>) -> Self {
        store.enable_speculation();
        Self { index, store, shared, policy: BatchPolicy::NO_WAIT, away: None, has_unknown_write: false }
    }

    pub(super) fn run(mut self) {
        let _guard = PanicGuard(self.shared.clone());
        while let Some(group) = self.take() {
            // If this writer panics, `end` is never called. The supervisor then sees a hang and
            // restarts the server.
            self.shared.progress.begin(self.index);
            if group.is_empty() {
                self.on_idle();
                self.shared.progress.end(self.index);
                continue;
            }
            let group = self.reject_forbidden(self.drop_abandoned(group));
            let (others, suspects) = self.split_suspects(group);
            if !others.is_empty() {
                self.commit(others);
            }
            if !suspects.is_empty() {
                self.commit_one_by_one(suspects);
            }
            self.shared.queue.end_group();
            self.shared.progress.end(self.index);
        }
    }

    /// Does the work of an idle writer. While the store is away, this checks if writes are possible
    /// again. A read that succeeds is no proof, because the store may still refuse writes.
    fn on_idle(&mut self) {
        if self.away.is_none() && !self.shared.is_away() {
            self.store.on_idle();
        } else if self.may_be_back() {
            self.mark_back();
        }
    }

    /// True if the store has just accepted a write. If it lacked a resource, it must also have room,
    /// which one writer at a time checks.
    fn may_be_back(&mut self) -> bool {
        let mut guard = lock(&self.shared.exhausted);
        let Some(exhausted) = guard.as_mut() else {
            drop(guard);
            return self.store.accepts_writes();
        };
        if exhausted.checked.elapsed() < EXHAUSTED_PAUSE {
            return false;
        }
        exhausted.checked = Instant::now();
        drop(guard);
        self.store.has_room()
    }

    /// Takes the next group of commands. Returns an empty group if this writer got no work for a
    /// while, `None` if the queue is closed and empty. While this writer can't reach the store and
    /// another writer can, this writer takes no commands.
    fn take(&mut self) -> Option<Vec<Job>> {
        while self.away.is_some() && self.shared.has_connected_writers() {
            if self.may_be_back() {
                self.mark_back();
            } else {
                std::thread::sleep(LONE_PAUSE);
            }
        }
        self.shared.queue.take(self.index, self.policy)
    }

    fn mark_back(&mut self) {
        self.resolve_unknown_write();
        self.shared.mark_back();
        if self.away.take().is_some() {
            self.shared.connected_writers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets the host of locks read its sessions again if an attempt may be committed. A retry then finds
    /// the changes made, and tells the host of none: a session whose eviction got no answer would be
    /// renewed on in memory while its locks pass on (K06).
    fn note_unknown_write(&mut self, error: &GroupError) {
        if error.may_be_committed {
            self.has_unknown_write = true;
            self.shared.locks.doubt();
        } else if !self.has_unknown_write {
            self.shared.locks.answered(self.index);
        }
    }

    /// Tells the host of locks that this writer has no write of unknown outcome any more. The host reads
    /// its sessions once more if there was one: it may have been committed after the host's last look.
    fn resolve_unknown_write(&mut self) {
        match std::mem::take(&mut self.has_unknown_write) {
            true => self.shared.locks.ended_unanswered(self.index),
            false => self.shared.locks.answered(self.index),
        }
    }

    /// Marks the store as away, for this writer and for all writers. Returns the earlier of the two
    /// times at which this writer and the server lost the store.
    fn mark_away(&mut self, error: &GroupError) -> Instant {
        let shared = &self.shared;
        let own = *self.away.get_or_insert_with(|| {
            shared.connected_writers.fetch_sub(1, Ordering::Relaxed);
            Instant::now()
        });
        own.min(shared.mark_away(error))
    }

    /// Drops the commands of a group that need not be decided, and returns the others.
    fn drop_abandoned(&self, mut group: Vec<Job>) -> Vec<Job> {
        let dropped: Vec<_> = group.extract_if(.., |job| job.is_abandoned()).collect();
        let begins = dropped.iter().filter(|job| matches!(job.command, Command::Begin(_)));
        begins.for_each(|_| self.shared.metrics.abandoned(Abandoned::Dropped));
        self.shared.queue.update_held_claims(&dropped, &[]);
        group
    }

    /// Rejects the group's forbidden commands: all of them after a fatal failure, the begins while
    /// the begin gate refuses. Returns the other commands.
    fn reject_forbidden(&mut self, mut group: Vec<Job>) -> Vec<Job> {
        let failed = self.shared.failure();
        let has_failed = failed.is_some();
        let refusal = failed.or_else(|| lock(&self.shared.begin_gate).refusal());
        let Some(refusal) = refusal else { return group };
        let forbidden = group.extract_if(.., |job| has_failed || matches!(job.command, Command::Begin(_)));
        self.reject(forbidden.collect(), &refusal);
        group
    }

    /// Splits a group into commands that need no suspect row and commands that need one, in this
    /// order.
    fn split_suspects(&self, group: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
        let now = Instant::now();
        group.into_iter().partition(|job| self.shared.suspects.suspected_at(&job.command, now).is_none())
    }

    fn reject(&self, group: Vec<Job>, refusal: &CommitterRefusal) {
        self.shared.queue.update_held_claims(&group, &[]);
        group.into_iter().for_each(|job| refuse(job.answer, refusal.clone()));
    }

    /// Commits a group, and executes the reaction of [`retry::next`] after each failed attempt.
    fn commit(&mut self, mut group: Vec<Job>) {
        // INVARIANT: the guard is dropped before the group. If this function panics, the store is
        // marked as failed first, and then the dropped answers tell the callers so.
        let _guard = PanicGuard(self.shared.clone());
        self.shared.metrics.group(group.len());
        let (mut history, taken) = (FailureCounts::default(), Instant::now());
        loop {
            self.shared.progress.begin(self.index);
            let error = match self.attempt(&group) {
                Ok(committed) => {
                    self.resolve_unknown_write();
                    if committed.has_written {
                        self.mark_back();
                    }
                    return self.finish(group, committed, taken);
                }
                Err(error) => error,
            };
            self.note_unknown_write(&error);
            let attempt = self.describe(&error, group.len(), &mut history);
            let is_outage = attempt.away_for.is_some();
            if is_outage {
                self.reject_late(&mut group, &error);
                if group.is_empty() {
                    return;
                }
            }
            match retry::next(error.failure, &attempt) {
                Reaction::RetryNow => self.shared.metrics.retried(cause(error.failure)),
                Reaction::RetryAfter(pause) => {
                    self.shared.metrics.retried(cause(error.failure));
                    std::thread::sleep(pause);
                }
                Reaction::Split => {
                    resume(&mut group);
                    return self.commit_one_by_one(group);
                }
                Reaction::Requeue => return self.shared.queue.requeue(group),
                Reaction::Reject if is_outage => {
                    return self.reject(group, &unknown_outcome(&error, "the store is back"));
                }
                Reaction::Reject => return self.reject_failed(group, &error),
                Reaction::Halt => {
                    self.shared.fail(&error.to_string());
                    return self.reject(group, &unknown_outcome(&error, "a restart"));
                }
            }
            if is_outage {
                resume(&mut group);
            }
        }
    }

    /// Describes a failed attempt for [`retry::next`], and marks the store as away if the attempt
    /// shows an outage.
    fn describe(&mut self, error: &GroupError, commands: usize, history: &mut FailureCounts) -> Attempt {
        history.attempts += 1;
        let is_outage = retry::is_outage(error.failure, commands, self.away.is_some());
        if error.failure == Failure::Exhausted {
            let now = Instant::now();
            *lock(&self.shared.exhausted) = Some(Exhausted { last: now, checked: now });
        }
        let away_for = is_outage.then(|| self.mark_away(error).elapsed());
        let attempt = Attempt {
            commands,
            number: history.attempts,
            conflicts: history.conflicts,
            outages: history.outages,
            may_be_committed: error.may_be_committed,
            away_for,
            patience: self.shared.patience,
            has_other_writers: self.shared.has_connected_writers(),
            is_stopping: self.shared.queue.is_closed(),
            random: rand::random(),
        };
        history.conflicts += u32::from(error.failure == Failure::Conflict);
        history.outages += u32::from(is_outage);
        attempt
    }

    /// Notes that the store is away for the commands of a group, and rejects those that have waited
    /// for it with patience. Without this, writers could pass on a command for ever that fails in a
    /// store which accepts others.
    fn reject_late(&self, group: &mut Vec<Job>, error: &GroupError) {
        let (now, patience) = (Instant::now(), self.shared.patience);
        let is_late = |job: &mut Job| now.duration_since(*job.away_since.get_or_insert(now)) >= patience;
        let late = group.extract_if(.., is_late).collect();
        self.reject(late, &unknown_outcome(error, "the store is back"));
    }

    /// Rejects a group whose rows are locked or can't be read or written. If rows are locked, the
    /// rows of the group become suspects.
    fn reject_failed(&self, group: Vec<Job>, error: &GroupError) {
        let text: Arc<str> = error.to_string().into();
        if error.failure != Failure::Locked {
            tracing::error!(%error, "a row could not be read or written");
            return self.reject(group, &CommitterRefusal::StoreUnavailable(text));
        }
        tracing::warn!(%error, "rows are locked by another session: find it with `{BLOCKERS}`");
        group.iter().for_each(|job| self.shared.suspects.note(&job.command, Instant::now()));
        self.reject(group, &CommitterRefusal::Locked(text));
    }

    /// Retries the jobs one at a time. A job with suspect rows gets a short lock timeout. It is
    /// rejected if another job that needs one of its rows has met a lock since this call began. If
    /// the store goes away, the remaining jobs are requeued.
    fn commit_one_by_one(&mut self, group: Vec<Job>) {
        let (mut jobs, since) = (group.into_iter(), Instant::now());
        for job in jobs.by_ref() {
            match self.shared.suspects.suspected_at(&job.command, Instant::now()) {
                None => self.commit(vec![job]),
                Some(at) if at < since => self.commit_suspect(job, since),
                Some(_) => self.reject(vec![job], &CommitterRefusal::Locked(FOUND_LOCKED.into())),
            }
            if self.away.is_some() {
                break;
            }
        }
        self.shared.queue.requeue(jobs.collect());
    }

    fn commit_suspect(&mut self, job: Job, since: Instant) {
        let command = job.command.clone();
        self.store.set_lock_timeout(LockTimeout::Short);
        self.commit(vec![job]);
        self.store.set_lock_timeout(LockTimeout::Usual);
        self.shared.suspects.forget(&command, since);
    }

    fn attempt(&mut self, group: &[Job]) -> Result<CommittedGroup, GroupError> {
        let started = Instant::now();
        let (decisions, changes) = self.decide(group)?;
        self.shared.metrics.loaded(started.elapsed());
        let (saving, has_written) = (Instant::now(), !changes.is_empty());
        self.shared.locks.saving(self.index, &changes);
        let fences = self.store.commit(&changes)?;
        let took = saving.elapsed();
        self.policy = self.shared.queue.policy_after(group, took);
        self.shared.metrics.saved(took);
        self.shared.metrics.requests_saved(SavedRequests::of(&changes));
        self.shared.metrics.locks_saved(self.shared.locks.saved(&changes, &fences));
        let decisions = decisions.into_iter().map(|decision| decision.map(|decision| numbered(decision, &fences)));
        Ok(CommittedGroup { decisions: decisions.collect(), claims: changes.claims, has_written })
    }

    /// Decides each command of the group in turn, and returns the decisions and the changes. In a
    /// shared store, a command that needs rows which the group has changed gets no decision: it
    /// must be decided on rows as they were loaded.
    fn decide(&mut self, group: &[Job]) -> Result<(Vec<Option<Decision>>, NetChanges), GroupError> {
        let commands = || group.iter().map(|job| &job.command);
        let mut workspace = self.store.begin()?;
        loop {
            let keys = workspace.missing(commands());
            if keys.is_empty() {
                break;
            }
            self.store.load(keys, &mut workspace)?;
        }
        let (now, is_shared) = (self.shared.clock.now(), self.store.is_shared());
        let decisions = commands().map(|command| {
            if is_shared && workspace.has_changed(command) {
                return None;
            }
            Some(command.apply(&mut workspace, now).map_err(|broken| {
                tracing::error!(error = %broken, "the state is broken");
                CommitterRefusal::Broken(broken)
            }))
        });
        let decisions = decisions.collect();
        Ok((decisions, workspace.into_changes()))
    }

    /// Answers the callers of the group's decided commands, and requeues the commands without a
    /// decision. The group was taken from the queue at `taken`.
    fn finish(&self, group: Vec<Job>, committed: CommittedGroup, taken: Instant) {
        let size = group.len();
        let (mut decided, mut undecided) = (Vec::with_capacity(group.len()), Vec::new());
        let mut decisions = Vec::with_capacity(group.len());
        for (job, decision) in group.into_iter().zip(committed.decisions) {
            match decision {
                Some(decision) => {
                    decided.push(job);
                    decisions.push(decision);
                }
                None => undecided.push(job),
            }
        }
        self.shared.queue.update_held_claims(&decided, &committed.claims);
        decided.iter().filter_map(|job| job.timed.as_ref()).for_each(|timed| timed.committed(taken, size));
        if !undecided.is_empty() {
            self.shared.queue.requeue(undecided);
        }
        answer(decided, decisions, &self.shared);
    }
}

/// Marks the store as failed if its writer panics, so that callers are refused instead of waiting
/// for ever.
struct PanicGuard(Arc<WriterShared>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if !self.0.has_failed() {
                self.0.fail("a writer has panicked: see the log above");
            }
            self.0.queue.abandon();
        }
    }
}

/// The cause under which the metric `retries` counts a retry after this failure.
fn cause(failure: Failure) -> Retry {
    match failure {
        Failure::Conflict => Retry::Changed,
        Failure::Misspeculated => Retry::Misspeculated,
        _ => Retry::Away,
    }
}

fn unknown_outcome(error: &GroupError, after: &str) -> CommitterRefusal {
    let text = format!("{error}; whether the last commands were committed is known after {after}");
    CommitterRefusal::StoreUnavailable(text.into())
}

/// Marks the commands as tried, because an earlier attempt may have been committed. For a begin
/// that was tried, the engine first checks if its lease exists already.
fn resume(group: &mut [Job]) {
    for job in group {
        job.tried = true;
        if let Command::Begin(begin) = &mut job.command {
            begin.resumed = true;
        }
    }
}

fn numbered(decision: Decision, fences: &Fences) -> Decision {
    decision.map(|reply| reply.map(|reply| reply.with_fences(fences)))
}

/// Sends the decisions, which are durable now, to the callers of the group. Then records the audit
/// events, also those of callers that have disconnected.
fn answer(group: Vec<Job>, decisions: Vec<Decision>, shared: &Arc<WriterShared>) {
    let (at, mut events) = (shared.clock.now(), Vec::with_capacity(group.len()));
    for (job, decision) in group.into_iter().zip(decisions) {
        if let Ok(Ok(reply)) = &decision {
            events.extend(AuditEvent::of_command(at, job.caller, &job.command, reply, job.tried));
        }
        let undelivered = Undelivered::of(&job.command, &decision, shared);
        // The send fails if the caller is gone. If only this response named the lease, the drop of
        // `undelivered` then rolls the lease back.
        let _ = job.answer.send((decision, undelivered));
    }
    shared.audit.record(events);
}

fn refuse(answer: oneshot::Sender<Delivery>, refusal: CommitterRefusal) {
    // The send fails if the caller is gone.
    let _ = answer.send((Err(refusal), None));
}

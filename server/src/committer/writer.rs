//! A writer: decides a group of commands over the rows that it loads, keeps what they changed, and answers them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::bucket::BucketKey;
use leasehold_core::claim::Claim;
use leasehold_core::store::Fences;
use leasehold_core::transaction::{NetChanges, RowChange};
use leasehold_core::update::Command;
use tokio::sync::oneshot;

use super::locked::Locked;
use super::queue::{Gather, Job, Queue};
use super::{Decision, Failure, Guard, Refusal, Writable, now};
use crate::audit::{AuditEvent, AuditSink};
use crate::metrics::{Metrics, Retry};

/// How long the guard's word holds.
const GUARD_INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks for a store that is away: the first at once, then longer and longer.
const MAX_PAUSE: Duration = Duration::from_millis(400);
/// Between two tries of a writer that alone can't reach the store.
const LONE_PAUSE: Duration = Duration::from_secs(1);
/// How often a group may lose to others before its commands are tried one by one; each time another group has won.
const MAX_LOSSES: u32 = 100;

/// What a command is told whose rows a command beside it has found locked.
const FOUND_LOCKED: &str =
    "the rows are locked by another session of the database, which is to end its transaction: found just now";

/// For operators to find who keeps servers from their rows: these lock theirs for milliseconds.
const BLOCKERS: &str = "SELECT pid, usename, application_name, client_addr, xact_start, query FROM pg_stat_activity \
    WHERE datname = current_database() AND xact_start < now() - interval '0.5 s' AND pid IN \
    (SELECT pid FROM pg_locks WHERE granted AND mode <> 'AccessShareLock' AND relation IN \
    ('claims'::regclass, 'claim_leases'::regclass, 'idempotency_keys'::regclass)) ORDER BY xact_start";

/// What the writers of one queue share.
pub(super) struct Shared {
    pub(super) queue: Queue,
    pub(super) patience: Duration,
    pub(super) watch: Mutex<Watch>,
    pub(super) failed: Mutex<Option<Refusal>>,
    // Since when the store has been away.
    pub(super) away: Mutex<Option<Instant>>,
    // Writers that have not found it away.
    pub(super) at_work: AtomicUsize,
    pub(super) metrics: Arc<Metrics>,
    pub(super) audit: Arc<AuditSink>,
    pub(super) locked: Locked,
}

impl Shared {
    pub(super) fn has_failed(&self) -> bool {
        lock(&self.failed).is_some()
    }

    pub(super) fn is_away(&self) -> bool {
        lock(&self.away).is_some()
    }

    pub(super) fn is_back(&self) {
        if lock(&self.away).take().is_some() {
            tracing::info!("the store is back");
        }
    }

    fn is_away_since(&self, error: &str) -> Instant {
        *lock(&self.away).get_or_insert_with(|| {
            tracing::warn!(error, "the store is away: commands wait for it");
            Instant::now()
        })
    }

    /// Has every command refused from now on, as it is after a failure of the store.
    fn fail(&self, error: &str) {
        tracing::error!(error, "the store failed: nothing is written any more; mend the cause and restart the server");
        *lock(&self.failed) = Some(Refusal::StoreUnavailable(error.into()));
    }

    /// Why nothing is written any more, where nothing is.
    pub(super) fn failure(&self) -> Option<Refusal> {
        lock(&self.failed).clone()
    }

    /// Whether there is a writer that can do what another can't, and will.
    fn has_writers_at_work(&self) -> bool {
        self.at_work.load(Ordering::Relaxed) > 0 && !self.queue.is_closed()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these hold is whole at every moment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The guard, and what it last said.
pub(super) struct Watch {
    guard: Guard,
    said: Option<(Instant, Option<Refusal>)>,
}

impl Watch {
    pub(super) fn new(guard: Guard) -> Self {
        Self { guard, said: None }
    }

    fn warning(&mut self) -> Option<Refusal> {
        if let Some((_, warning)) = self.said.as_ref().filter(|(at, _)| at.elapsed() < GUARD_INTERVAL) {
            return warning.clone();
        }
        let warning = (self.guard)();
        if let Some(warning) = &warning {
            tracing::error!(%warning, "begins are refused");
        }
        self.said = Some((Instant::now(), warning.clone()));
        warning
    }
}

/// A group that is decided and kept: no decision where a command has to wait for the next group.
struct Kept {
    decisions: Vec<Option<Decision>>,
    claims: Vec<RowChange<BucketKey, Claim>>,
}

pub(super) struct Writer<S> {
    store: S,
    shared: Arc<Shared>,
    // Among the writers of its queue.
    index: usize,
    gather: Gather,
    // Since when this one can't reach the store, whatever others can.
    away: Option<Instant>,
}

impl<S: Writable> Writer<S> {
    pub(super) fn new(index: usize, mut store: S, shared: Arc<Shared>) -> Self {
        store.may_presume();
        Self { index, store, shared, gather: Gather::NOBODY, away: None }
    }

    pub(super) fn run(mut self) {
        let _fault = Fault(self.shared.clone());
        while let Some(group) = self.take() {
            if group.is_empty() {
                self.rest();
                continue;
            }
            let group = self.turn_away(group);
            let (free, others) = self.set_apart(group);
            if !free.is_empty() {
                self.commit(free);
            }
            if !others.is_empty() {
                self.commit_one_by_one(others);
            }
            self.shared.queue.end_group();
        }
    }

    /// Without work it looks whether a store that was away is back: what others find, who only read, is no proof.
    fn rest(&mut self) {
        if self.away.is_none() {
            self.store.rest();
        } else if self.store.is_reachable() {
            self.is_back();
        }
    }

    /// A group to commit, an empty one after a while without any; a writer that alone can't reach the store leaves them to
    /// others until it can.
    fn take(&mut self) -> Option<Vec<Job>> {
        while self.away.is_some() && self.shared.has_writers_at_work() {
            if self.store.is_reachable() {
                self.is_back();
            } else {
                std::thread::sleep(LONE_PAUSE);
            }
        }
        self.shared.queue.take(self.index, self.gather)
    }

    fn is_back(&mut self) {
        self.shared.is_back();
        if self.away.take().is_some() {
            self.shared.at_work.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Since when the store has been away, to this writer or to all.
    fn is_away_since(&mut self, error: &str) -> Instant {
        let shared = &self.shared;
        let own = *self.away.get_or_insert_with(|| {
            shared.at_work.fetch_sub(1, Ordering::Relaxed);
            Instant::now()
        });
        own.min(shared.is_away_since(error))
    }

    /// Answers what must not be tried: anything after a failure, begins while the guard warns.
    fn turn_away(&mut self, mut group: Vec<Job>) -> Vec<Job> {
        let failed = self.shared.failure();
        let has_failed = failed.is_some();
        let refusal = failed.or_else(|| lock(&self.shared.watch).warning());
        let Some(refusal) = refusal else { return group };
        let refused = group.extract_if(.., |job| has_failed || matches!(job.command, Command::Begin(_)));
        self.refuse(refused.collect(), &refusal);
        group
    }

    /// A group, and the commands in it whose rows were found locked lately.
    fn set_apart(&self, group: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
        let now = Instant::now();
        group.into_iter().partition(|job| self.shared.locked.found_at(&job.command, now).is_none())
    }

    fn refuse(&self, group: Vec<Job>, refusal: &Refusal) {
        self.shared.queue.account(&group, &[]);
        group.into_iter().for_each(|job| send(job.answer, Err(refusal.clone())));
    }

    /// Tries until the group is kept, or there is no sense in it.
    fn commit(&mut self, mut group: Vec<Job>) {
        // Dropped before the group is: whoever is left without an answer finds why.
        let _fault = Fault(self.shared.clone());
        self.shared.metrics.group(group.len());
        let (mut pause, mut losses, mut tries) = (Duration::ZERO, 0, 0);
        loop {
            tries += 1;
            let (failure, error) = match self.attempt(&group) {
                Ok(kept) => {
                    self.is_back();
                    return self.finish(group, kept);
                }
                Err((Failure::TooLong, error)) if group.len() == 1 || self.away.is_some() => (Failure::Away, error),
                Err(failed) => failed,
            };
            match failure {
                Failure::Mistaken => {
                    self.shared.metrics.retried(Retry::Mistaken);
                    continue;
                }
                Failure::Changed if losses < MAX_LOSSES => {
                    losses += 1;
                    self.shared.metrics.retried(Retry::Changed);
                    // Those who met once would meet again.
                    std::thread::sleep(Duration::from_micros(rand::random_range(0..=u64::from(losses) * 100)));
                    continue;
                }
                Failure::Away => {
                    let since = self.is_away_since(&error);
                    if !self.store.may_have_written() && self.shared.has_writers_at_work() {
                        return self.shared.queue.put_back(group);
                    }
                    // The first try may have been over a connection that had died long before.
                    let is_patient = tries == 1 || since.elapsed() < self.shared.patience;
                    if !is_patient || self.shared.queue.is_closed() {
                        return self.refuse(group, &Refusal::StoreUnavailable(unknown(&error, "the store is back")));
                    }
                    self.shared.metrics.retried(Retry::Away);
                    std::thread::sleep(pause);
                    pause = (pause * 2).clamp(Duration::from_millis(10), MAX_PAUSE);
                }
                Failure::Final => return self.fail(&error, group),
                // What can't be read must fail only the commands that read it.
                Failure::Row | Failure::Blocked | Failure::Changed | Failure::TooLong if group.len() > 1 => {
                    resume(&mut group);
                    return self.commit_one_by_one(group);
                }
                Failure::Blocked => {
                    tracing::warn!(error, "rows are locked by another session; who it is: `{BLOCKERS}`");
                    group.iter().for_each(|job| self.shared.locked.note(&job.command, Instant::now()));
                    return self.refuse(group, &Refusal::Locked(error.into()));
                }
                Failure::Row | Failure::Changed | Failure::TooLong => {
                    tracing::error!(error, "a row could not be read or written");
                    return self.refuse(group, &Refusal::StoreUnavailable(error.into()));
                }
            }
            resume(&mut group);
        }
    }

    /// Tries each by itself, briefly where its rows were found locked lately and not at all where one before it found them so.
    /// Once the store is away the rest wait together, so that not each of them waits for it in turn.
    fn commit_one_by_one(&mut self, group: Vec<Job>) {
        let (mut jobs, since) = (group.into_iter(), Instant::now());
        for job in jobs.by_ref() {
            match self.shared.locked.found_at(&job.command, Instant::now()) {
                None => self.commit(vec![job]),
                Some(at) if at < since => self.commit_suspect(job, since),
                Some(_) => self.refuse(vec![job], &Refusal::Locked(FOUND_LOCKED.into())),
            }
            if self.away.is_some() {
                break;
            }
        }
        self.shared.queue.put_back(jobs.collect());
    }

    fn commit_suspect(&mut self, job: Job, since: Instant) {
        let command = job.command.clone();
        self.store.be_brief(true);
        self.commit(vec![job]);
        self.store.be_brief(false);
        self.shared.locked.forget(&command, since);
    }

    fn attempt(&mut self, group: &[Job]) -> Result<Kept, (Failure, String)> {
        let told = |error: S::Error, saving| (S::failure(&error, saving), error.to_string());
        let started = Instant::now();
        let (decisions, changes) = self.decide(group).map_err(|error| told(error, false))?;
        self.shared.metrics.loaded(started.elapsed());
        let saving = Instant::now();
        let fences = self.store.save(&changes).map_err(|error| told(error, true))?;
        let took = saving.elapsed();
        self.gather = self.shared.queue.gather_after(group.len(), took);
        self.shared.metrics.saved(took);
        let decisions = decisions.into_iter().map(|decision| decision.map(|decision| numbered(decision, &fences)));
        Ok(Kept { decisions: decisions.collect(), claims: changes.claims })
    }

    /// Decides each command in turn. Of a shared store, one that touches what the group has changed is not decided.
    fn decide(&self, group: &[Job]) -> Result<(Vec<Option<Decision>>, NetChanges), S::Error> {
        let commands = || group.iter().map(|job| &job.command);
        let mut workspace = self.store.workspace()?;
        loop {
            let keys = workspace.missing(commands());
            if keys.is_empty() {
                break;
            }
            self.store.load(keys, &mut workspace)?;
        }
        let (now, is_shared) = (now(), self.store.is_shared());
        let decisions = commands().map(|command| {
            if is_shared && workspace.has_changed(command) {
                return None;
            }
            Some(command.apply(&mut workspace, now).map_err(|broken| {
                tracing::error!(error = %broken, "the state is broken");
                Refusal::StoreUnavailable(format!("the state is broken: {broken}").into())
            }))
        });
        let decisions = decisions.collect();
        Ok((decisions, workspace.into_changes()))
    }

    /// Answers what is decided, and puts the rest back.
    fn finish(&self, group: Vec<Job>, kept: Kept) {
        let (mut decided, mut later) = (Vec::with_capacity(group.len()), Vec::new());
        let mut decisions = Vec::with_capacity(group.len());
        for (job, decision) in group.into_iter().zip(kept.decisions) {
            match decision {
                Some(decision) => {
                    decided.push(job);
                    decisions.push(decision);
                }
                None => later.push(job),
            }
        }
        self.shared.queue.account(&decided, &kept.claims);
        if !later.is_empty() {
            self.shared.queue.put_back(later);
        }
        answer(decided, decisions, &self.shared.audit);
    }

    fn fail(&mut self, error: &str, group: Vec<Job>) {
        self.shared.fail(error);
        self.refuse(group, &Refusal::StoreUnavailable(unknown(error, "a restart")));
    }
}

/// A writer that panics must not leave its callers waiting for an answer that nobody gives: everything is refused from then on.
struct Fault(Arc<Shared>);

impl Drop for Fault {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if !self.0.has_failed() {
                self.0.fail("a writer has stopped by a fault of its own, which the log shows above");
            }
            self.0.queue.abandon();
        }
    }
}

fn unknown(error: &str, after: &str) -> Arc<str> {
    format!("{error}; whether the last commands were kept is known after {after}").into()
}

/// The engine looks first whether these have happened: an attempt may have been kept.
fn resume(group: &mut [Job]) {
    for job in group {
        job.tried = true;
        if let Command::Begin(begin) = &mut job.command {
            begin.resumed = true;
        }
    }
}

fn numbered(decision: Decision, fences: &Fences) -> Decision {
    decision.map(|reply| reply.map(|reply| reply.numbered(fences)))
}

/// Answers the callers, now that the decisions are durable, then records the audit events, also those of callers that
/// have gone away.
fn answer(group: Vec<Job>, decisions: Vec<Decision>, audit: &AuditSink) {
    let (at, mut events) = (now(), Vec::with_capacity(group.len()));
    for (job, decision) in group.into_iter().zip(decisions) {
        if let Ok(Ok(reply)) = &decision {
            events.extend(AuditEvent::of_command(at, job.caller, &job.command, reply, job.tried));
        }
        send(job.answer, decision);
    }
    audit.record(events);
}

fn send(answer: oneshot::Sender<Decision>, decision: Decision) {
    // A caller that has gone away finds the outcome by asking again.
    let _ = answer.send(decision);
}

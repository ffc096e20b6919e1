//! Group commit: takes what is waiting, loads its rows once, runs each command in turn, writes once, answers all.
//!
//! Each command sees the effect of those before it, gets its own answer, and no answer leaves before its change is
//! durable. Commit and rollback go before begin when there is more than fits, and are never turned away. A begin is
//! taken in only where there is room for its claims beside those that are held and those that wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use leasehold_core::bucket::BucketKey;
use leasehold_core::claim::Claim;
use leasehold_core::rejection::Rejection;
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::{NetChanges, RowChange};
use leasehold_core::update::{Command, Reply};
use tokio::sync::oneshot;

use crate::audit;
use crate::identity::Caller;
use crate::metrics::Metrics;
use crate::trace;

/// Commands in one group at the most.
const MAX_GROUP_COMMANDS: usize = 512;
/// Claims that the begins of one group may name, beyond its first command.
const MAX_GROUP_CLAIMS: usize = 8_000;
/// How long a group waits at the most for the callers of the last one to come back: about what a save takes anyway.
const MAX_GATHER: Duration = Duration::from_millis(1);
/// How long an overloaded caller is told to wait.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Why a command got no answer from the engine.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    /// Too many begins are waiting, or too many claims are held.
    #[error("the server is overloaded, try again")]
    Overloaded {
        /// When to try again.
        retry_after: Duration,
    },
    /// A begin alone has more claims than may be held.
    #[error("the update alone has {claims} claims, more than `limits.held_claims` = {max}: make it smaller")]
    TooLarge {
        /// Its claims.
        claims: usize,
        /// How many may be held.
        max: usize,
    },
    /// The store failed, or is about to.
    #[error("{0}")]
    StoreUnavailable(Arc<str>),
    /// The server is stopping.
    #[error("the server is stopping, try another or try again")]
    Stopping,
}

/// What a command was answered.
pub type Decision = Result<Result<Reply, Rejection>, Refusal>;

/// Says why no update should be begun just now, or nothing where it may. Asked about once a second.
pub type Guard = Box<dyn FnMut() -> Option<Refusal> + Send>;

impl Refusal {
    /// An answer to calls that come too fast.
    pub fn overloaded() -> Self {
        Self::Overloaded { retry_after: RETRY_AFTER }
    }
}

struct Job {
    caller: Caller,
    command: Command,
    answer: oneshot::Sender<Decision>,
}

/// How much may be taken in.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Begins that may wait.
    pub queued_begins: usize,
    /// Claims that may be held by leases, with those of begins under way.
    pub held_claims: usize,
}

#[derive(Default)]
struct Waiting {
    settles: VecDeque<Job>,
    begins: VecDeque<Job>,
    // Claims that are held, and that begins under way may come to hold.
    claims: usize,
    // The writer is woken when this many wait.
    wanted: usize,
    closed: bool,
}

impl Waiting {
    fn len(&self) -> usize {
        self.settles.len() + self.begins.len()
    }
}

/// Whom a group waits for. Callers that were answered together come back together; a sync for the first of them alone
/// would make the others wait for it, and then for a second one.
#[derive(Clone, Copy)]
struct Gather {
    jobs: usize,
    at_most: Duration,
}

impl Gather {
    const NOBODY: Self = Self { jobs: 1, at_most: Duration::ZERO };

    /// After a group of `jobs` that took `save` to keep.
    fn after(jobs: usize, save: Duration) -> Self {
        Self { jobs: jobs.min(MAX_GROUP_COMMANDS), at_most: save.min(MAX_GATHER) }
    }
}

struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    room: Room,
    failed: AtomicBool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it holds the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: Job) -> Result<(), Refusal> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(Refusal::Stopping);
        }
        if let Command::Settle(_) = job.command {
            waiting.settles.push_back(job);
        } else {
            waiting.claims += self.room.admit(&waiting, &job.command)?;
            waiting.begins.push_back(job);
        }
        let enough = waiting.len() >= waiting.wanted;
        drop(waiting);
        if enough {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Waits until something waits, then until `gather` jobs do or the time is up; nothing comes once the queue is closed
    /// and empty.
    fn wait(&self, gather: Gather) -> MutexGuard<'_, Waiting> {
        let mut waiting = self.lock();
        waiting.wanted = 1;
        let idle = |waiting: &mut Waiting| waiting.len() == 0 && !waiting.closed;
        waiting = self.arrived.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner);
        waiting.wanted = gather.jobs;
        let few = |waiting: &mut Waiting| waiting.len() < waiting.wanted && !waiting.closed;
        let waited = self.arrived.wait_timeout_while(waiting, gather.at_most, few);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits for work and takes a group of it; none once the queue is closed and empty.
    fn take(&self, gather: Gather) -> Option<Vec<Job>> {
        let mut waiting = self.wait(gather);
        if waiting.len() == 0 {
            return None;
        }
        let settles = waiting.settles.len().min(MAX_GROUP_COMMANDS);
        let mut group: Vec<_> = waiting.settles.drain(..settles).collect();
        let mut claims = 0;
        while group.len() < MAX_GROUP_COMMANDS
            && let Some(job) = waiting.begins.pop_front()
        {
            claims += claims_of(&job.command);
            if claims > MAX_GROUP_CLAIMS && !group.is_empty() {
                waiting.begins.push_front(job);
                break;
            }
            group.push(job);
        }
        Some(group)
    }

    /// Puts what a group's begins have come to hold in the place of what they might have, and takes off what is settled.
    fn account(&self, group: &[Job], changes: &[RowChange<BucketKey, Claim>]) {
        let held = |claim: &Option<Claim>| usize::from(claim.as_ref().is_some_and(|claim| claim.hold().is_some()));
        let begun: usize = changes.iter().map(|change| held(&change.after)).sum();
        let ended: usize = changes.iter().map(|change| held(&change.before)).sum();
        let reserved: usize = group.iter().map(|job| claims_of(&job.command)).sum();
        let mut waiting = self.lock();
        waiting.claims = (waiting.claims + begun).saturating_sub(ended + reserved);
    }

    fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }
}

impl Room {
    /// The claims that a begin needs room for, where there is room.
    fn admit(self, waiting: &Waiting, command: &Command) -> Result<usize, Refusal> {
        let claims = claims_of(command);
        if claims > self.held_claims {
            return Err(Refusal::TooLarge { claims, max: self.held_claims });
        }
        let fits = claims == 0 || waiting.claims.saturating_add(claims) <= self.held_claims;
        if waiting.begins.len() < self.queued_begins && fits { Ok(claims) } else { Err(Refusal::overloaded()) }
    }
}

fn claims_of(command: &Command) -> usize {
    match command {
        Command::Begin(begin) => begin.batch.entries().len(),
        Command::Settle(_) | Command::Forget(_) => 0,
    }
}

/// The way to the one writer. Dropping it finishes what is waiting and stops the writer.
pub struct Committer {
    queue: Arc<Queue>,
    writer: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts the writer on a thread of its own. `held_claims` are in the store already.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start<S>(
        store: S,
        held_claims: usize,
        room: Room,
        guard: Guard,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Self>
    where
        S: Store + Send + 'static,
        S::Error: std::fmt::Display,
    {
        let queue = Arc::new(Queue {
            waiting: Mutex::new(Waiting { claims: held_claims, ..Waiting::default() }),
            arrived: Condvar::new(),
            room,
            failed: AtomicBool::new(false),
        });
        let writer =
            Writer { store, queue: queue.clone(), guard, guarded: None, failed: None, gather: Gather::NOBODY, metrics };
        let writer = std::thread::Builder::new().name("committer".into()).spawn(move || writer.run())?;
        Ok(Self { queue, writer: Some(writer) })
    }

    /// Has a command decided, and its effect kept, before it answers.
    ///
    /// # Errors
    /// The engine was not asked, or its decision could not be kept.
    pub async fn submit(&self, caller: Caller, command: Command) -> Decision {
        let (answer, decision) = oneshot::channel();
        self.queue.push(Job { caller, command, answer })?;
        decision.await.unwrap_or(Err(Refusal::Stopping))
    }

    /// Whether the store has failed, so that nothing is written until a restart.
    pub fn has_failed(&self) -> bool {
        self.queue.failed.load(Ordering::Relaxed)
    }

    /// How many commands are waiting.
    pub fn waiting(&self) -> usize {
        self.queue.lock().len()
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has answered nobody; there is nothing left to do.
            let _ = writer.join();
        }
    }
}

struct Writer<S> {
    store: S,
    queue: Arc<Queue>,
    guard: Guard,
    // What the guard last said, and when.
    guarded: Option<(Instant, Option<Refusal>)>,
    failed: Option<Refusal>,
    gather: Gather,
    metrics: Arc<Metrics>,
}

impl<S: Store> Writer<S>
where
    S::Error: std::fmt::Display,
{
    fn run(mut self) {
        while let Some(group) = self.queue.take(self.gather) {
            let group = self.turn_away(group);
            if !group.is_empty() {
                self.commit(group);
            }
        }
    }

    /// Answers what must not be tried: anything after a failure, begins while the guard warns.
    fn turn_away(&mut self, mut group: Vec<Job>) -> Vec<Job> {
        let refusal = self.failed.clone().or_else(|| self.warning());
        let Some(refusal) = refusal else { return group };
        let failed = self.failed.is_some();
        let refused = group.extract_if(.., |job| failed || matches!(job.command, Command::Begin(_)));
        self.refuse(refused.collect(), &refusal);
        group
    }

    fn refuse(&self, group: Vec<Job>, refusal: &Refusal) {
        self.queue.account(&group, &[]);
        group.into_iter().for_each(|job| send(job.answer, Err(refusal.clone())));
    }

    fn warning(&mut self) -> Option<Refusal> {
        let fresh = self.guarded.as_ref().filter(|(at, _)| at.elapsed() < Duration::from_secs(1));
        if let Some((_, warning)) = fresh {
            return warning.clone();
        }
        let warning = (self.guard)();
        if let Some(warning) = &warning {
            tracing::error!(%warning, "begins are refused");
        }
        self.guarded = Some((Instant::now(), warning.clone()));
        warning
    }

    fn commit(&mut self, group: Vec<Job>) {
        let started = Instant::now();
        self.metrics.group(group.len());
        match self.decide(&group) {
            Ok((decisions, changes)) => {
                self.metrics.loaded(started.elapsed());
                let saving = Instant::now();
                if let Err(error) = self.store.save(&changes) {
                    return self.fail(&error.to_string(), group);
                }
                let took = saving.elapsed();
                self.gather = Gather::after(group.len(), took);
                self.metrics.saved(took);
                self.queue.account(&group, &changes.claims);
                answer(group, decisions);
            }
            // A row that can't be read must fail only the commands that read it.
            Err(_) if group.len() > 1 => group.into_iter().for_each(|job| self.commit(vec![job])),
            Err(error) => {
                tracing::error!(%error, "a row could not be read");
                self.refuse(group, &Refusal::StoreUnavailable(error.to_string().into()));
            }
        }
    }

    fn decide(&self, group: &[Job]) -> Result<(Vec<Decision>, NetChanges), S::Error> {
        let commands = || group.iter().map(|job| &job.command);
        let mut workspace = self.store.workspace()?;
        loop {
            let keys = workspace.missing(commands());
            if keys.is_empty() {
                break;
            }
            self.store.load(keys, &mut workspace)?;
        }
        let now = now();
        let decisions = commands().map(|command| {
            command.apply(&mut workspace, now).map_err(|broken| {
                tracing::error!(error = %broken, "the state is broken");
                Refusal::StoreUnavailable(format!("the state is broken: {broken}").into())
            })
        });
        let decisions = decisions.collect();
        Ok((decisions, workspace.into_changes()))
    }

    fn fail(&mut self, error: &str, group: Vec<Job>) {
        tracing::error!(error, "the store failed: nothing is written any more; mend the cause and restart the server");
        let reason: Arc<str> = format!("{error}; whether the last commands were kept is known after a restart").into();
        self.refuse(group, &Refusal::StoreUnavailable(reason));
        self.failed = Some(Refusal::StoreUnavailable(error.into()));
        self.queue.failed.store(true, Ordering::Relaxed);
    }
}

/// Answers, now that the decisions are durable, then tells what happened, even where a caller has gone away.
fn answer(group: Vec<Job>, decisions: Vec<Decision>) {
    let mut replies = Vec::with_capacity(group.len());
    for (job, decision) in group.into_iter().zip(decisions) {
        if let Ok(Ok(reply)) = &decision {
            replies.push((job.caller, job.command, *reply));
        }
        send(job.answer, decision);
    }
    trace::together(|| replies.iter().for_each(|(caller, command, reply)| audit::tell(*caller, command, reply)));
}

fn send(answer: oneshot::Sender<Decision>, decision: Decision) {
    // A caller that has gone away finds the outcome by asking again.
    let _ = answer.send(decision);
}

/// The system clock, in the engine's terms.
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

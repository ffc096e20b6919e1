//! Group commit: a writer takes the waiting commands, loads their rows once, decides each command
//! in turn, commits once, and then answers all of them.
//!
//! Each command of a group sees the effects of the commands before it and gets its own answer. No
//! answer is sent before its change is durable.
//!
//! A shared store has several writers. There, a command that needs a row which its group has
//! already changed moves to the next group, because it must be decided on rows as they were loaded.
//!
//! If more commands wait than a group may have, commits and rollbacks go before begins. Commits and
//! rollbacks are never refused for load. A begin is admitted only if its claims, the claims of
//! waiting begins and the claims under leases together stay within `limits.held_claims`, and within
//! its cell's share of that limit ([`shares`]).
//!
//! A begin is dropped if its caller is gone before the first attempt to decide it. If the caller of
//! a begin without an idempotency key is gone later, the lease is rolled back ([`Undelivered`]).

mod cell_limits;
mod lock_suspects;
mod progress;
mod queue;
mod retry;
mod times;
mod undelivered;
mod writer;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold_core::command::{Command, Reply};
use leasehold_core::rejection::Rejection;
use leasehold_core::transaction::BrokenState;
use leasehold_core::update::Begin;
use tokio::sync::{Notify, oneshot, watch};

use self::lock_suspects::LockSuspects;
use self::progress::Progress;
use self::queue::{Job, Queue};
use self::times::Timed;
use self::writer::{CachedGate, Writer, WriterShared};
use crate::audit::AuditSink;
use crate::identity::Caller;
use crate::locks::LockHost;
use crate::metrics::Metrics;
use crate::store::{GroupStore, StoreClock};

pub use self::cell_limits::CellLimits;
pub use self::queue::{Capacity, HeldClaims};
pub use self::times::{CommandTimes, TIMES, TimesSlot};
pub use self::undelivered::Undelivered;
pub use crate::shares::LimitReached;

/// The delay that an `OVERLOADED` refusal tells the caller to wait before a retry.
pub const RETRY_AFTER: Duration = Duration::from_millis(200);

/// A refusal by the committer: the engine did not decide the command, or its decision was not
/// committed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitterRefusal {
    /// Too many begins or lists are waiting, or too many claims are under leases. A later retry can
    /// succeed.
    #[error("{limit}")]
    Overloaded {
        /// The limit that is used up.
        limit: LimitReached,
        /// The delay that the caller should wait before it sends the command again.
        retry_after: Duration,
    },
    /// One begin has more claims than its cell may have under leases.
    #[error("the update alone has {claims} claims, and the cell may have {max} under leases: make it smaller")]
    TooLarge {
        /// The number of claims in the refused begin.
        claims: usize,
        /// The most claims of the cell: its own limit, or its share of `limits.held_claims`.
        max: usize,
    },
    /// A database session that does not belong to a Leasehold server locks the command's rows. The
    /// text tells how to find the session.
    #[error("{0}")]
    Locked(Arc<str>),
    /// The store has failed, can't be reached, or has a nearly full disk. The text gives the
    /// reason.
    #[error("{0}")]
    StoreUnavailable(Arc<str>),
    /// Stored rows contradict each other. A retry cannot help.
    #[error("the state is broken: {0}: go back to the last backup")]
    Broken(BrokenState),
    /// The server is stopping.
    #[error("the server is stopping, try another or try again")]
    Stopping,
}

/// The answer to a command: the engine's reply or rejection, or the committer's refusal.
pub type Decision = Result<Result<Reply, Rejection>, CommitterRefusal>;

/// A decision, and the begun lease if the caller can learn it from this response only.
type Delivery = (Decision, Option<Undelivered>);

/// A function that returns the reason why no update may begin now, or `None` if updates may begin.
/// The committer calls it at most once a second.
pub type BeginGate = Box<dyn FnMut() -> Option<CommitterRefusal> + Send>;

impl CommitterRefusal {
    /// The refusal of a call that would exceed a limit on the server's load.
    pub fn overloaded(limit: LimitReached) -> Self {
        Self::Overloaded { limit, retry_after: RETRY_AFTER }
    }
}

/// The settings with which [`Committer::start`] starts a committer.
pub struct CommitterSettings {
    /// The limits beyond which begins are refused as overloaded.
    pub capacity: Capacity,
    /// The claims of each cell that are under a lease when the server starts.
    pub held_claims: HeldClaims,
    /// The longest time that commands wait while the store can't be reached. After this time they
    /// are refused.
    pub patience: Duration,
    /// The clock that gives the times of leases.
    pub clock: Arc<StoreClock>,
    /// Decides if updates may begin, for example by the free space on the disk.
    pub begin_gate: BeginGate,
    /// The server's memory of sessions and locks, which learns of each saved change.
    pub locks: Arc<LockHost>,
    /// The audit trail, which records each lease that a command begins or settles.
    pub audit: Arc<AuditSink>,
}

/// The committer: a queue of commands and the writer threads that take groups from it. Dropping the
/// committer decides the waiting commands and stops the writers.
pub struct Committer {
    shared: Arc<WriterShared>,
    writers: Vec<JoinHandle<()>>,
}

impl Committer {
    /// Starts the committer, with one writer thread for each of `stores`. Several stores must be
    /// connections to one shared store.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start(
        stores: Vec<Box<dyn GroupStore>>,
        settings: CommitterSettings,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(WriterShared {
            queue: Queue::new(settings.capacity, settings.held_claims, stores.len()),
            patience: settings.patience,
            clock: settings.clock,
            begin_gate: Mutex::new(CachedGate::new(settings.begin_gate)),
            failed: watch::Sender::default(),
            away: Mutex::default(),
            exhausted: Mutex::default(),
            connected_writers: stores.len().into(),
            metrics,
            audit: settings.audit,
            locks: settings.locks,
            suspects: LockSuspects::default(),
            health: Notify::new(),
            progress: Progress::new(stores.len()),
        });
        let mut committer = Self { shared, writers: Vec::new() };
        for (index, store) in stores.into_iter().enumerate() {
            let writer = Writer::new(index, store, committer.shared.clone());
            let thread = std::thread::Builder::new().name("committer".into());
            committer.writers.push(thread.spawn(move || writer.run())?);
        }
        Ok(committer)
    }

    /// Queues a settle or a forget, and returns its reply or rejection when its effect is durable.
    ///
    /// # Errors
    /// A [`CommitterRefusal`] if the command was not decided, or if its decision could not be
    /// committed.
    pub async fn submit(&self, caller: Caller, command: Command) -> Decision {
        self.ask(caller, command, false).await.0
    }

    /// Queues a begin, and returns its reply or rejection when its effect is durable.
    ///
    /// The second value is present if the caller can learn its lease from the response only. The
    /// value must travel with the response: dropping it rolls the lease back.
    pub async fn begin(&self, caller: Caller, begin: Begin) -> Delivery {
        self.ask(caller, Command::Begin(begin), false).await
    }

    /// Queues a step of a drop of claims, as [`begin`](Self::begin) queues a begin. It does not count
    /// against the rate of its cell.
    pub async fn begin_drop(&self, caller: Caller, begin: Begin) -> Delivery {
        self.ask(caller, Command::Begin(begin), true).await
    }

    async fn ask(&self, caller: Caller, command: Command, is_drop: bool) -> Delivery {
        let (answer, decision) = oneshot::channel();
        // A writer drops the channel `answer` without a message if the server is stopping, or if
        // the writer has panicked.
        let gone = || self.shared.failure().unwrap_or(CommitterRefusal::Stopping);
        let timed = Timed::of_current_task();
        let job = Job { caller, command, tried: false, away_since: None, is_drop, timed, answer };
        match self.shared.queue.push(job) {
            Ok(()) => decision.await.unwrap_or_else(|_| (Err(gone()), None)),
            Err(CommitterRefusal::Stopping) => (Err(gone()), None),
            Err(refusal) => (Err(refusal), None),
        }
    }

    /// True if the store has failed, so that no command is written until a restart.
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed()
    }

    /// Waits until the store has failed, and returns the reason. Waits for ever if it never fails.
    pub async fn failed(&self) -> Arc<str> {
        let mut failed = self.shared.failed.subscribe();
        let reason = failed.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        // INVARIANT: the sender lives as long as this committer, and the awaited value is no `None`.
        match reason {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    /// True if the store could not be reached by the last attempt to commit a group.
    pub fn is_away(&self) -> bool {
        self.shared.is_away()
    }

    /// The time for which the longest attempt of a writer has been running. The store limits this
    /// time, unless a disk or a writer hangs.
    pub fn longest_attempt(&self) -> Duration {
        self.shared.progress.longest()
    }

    /// The clock that gives the times of leases.
    pub fn clock(&self) -> &StoreClock {
        &self.shared.clock
    }

    /// Waits until [`has_failed`](Self::has_failed) or [`is_away`](Self::is_away) may have changed.
    /// Only one task at a time may wait.
    pub async fn health_changed(&self) {
        self.shared.health.notified().await;
    }

    /// Ends the wait of [`health_changed`](Self::health_changed). Call this after a change that the
    /// health status depends on and the committer does not see.
    pub fn recheck_health(&self) {
        self.shared.health.notify_one();
    }

    /// Sets the number of claims under leases of each cell, as read from the store. Leases that
    /// other servers began count too.
    pub fn set_held_claims(&self, held_claims: HeldClaims) {
        self.shared.queue.set_held_claims(held_claims);
    }

    /// Changes the limits beyond which begins are refused as overloaded.
    pub fn set_capacity(&self, capacity: Capacity) {
        self.shared.queue.set_capacity(capacity);
    }

    /// Divides the write slots by the number of servers that write to the same database: this
    /// server and `others`. More groups at once would cost the database more for every command.
    pub fn set_other_servers(&self, others: usize) {
        self.shared.queue.set_write_slots(self.writers.len() / (others + 1));
    }

    /// The number of groups that this server may write at the same time.
    pub fn write_slots(&self) -> usize {
        self.shared.queue.write_slots()
    }

    /// The number of commands that wait in the queue.
    pub fn waiting(&self) -> usize {
        self.shared.queue.len()
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.shared.queue.close();
        for writer in self.writers.drain(..) {
            // The join fails if the writer has panicked. Then the callers of its commands have been
            // refused already, so there is no more to do.
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

    use leasehold_core::command::Fences;
    use leasehold_core::lease::LeaseId;
    use leasehold_core::rows::{Keys, NetChanges, Workspace};
    use leasehold_core::time::Timestamp;
    use leasehold_core::update::Forget;
    use uuid::Uuid;

    use super::*;
    use crate::store::GroupError;

    /// A store that panics when a writer begins a group.
    struct Faulty;

    impl GroupStore for Faulty {
        fn begin(&mut self) -> Result<Workspace, GroupError> {
            panic!("a fault of the store")
        }

        fn load(&mut self, _: Keys, _: &mut Workspace) -> Result<(), GroupError> {
            Ok(())
        }

        fn commit(&mut self, _: &NetChanges) -> Result<Fences, GroupError> {
            Ok(Fences::default())
        }
    }

    #[tokio::test]
    async fn a_writer_that_panics_refuses_its_callers_and_fails_the_store() {
        let capacity = Capacity { cells: [].into(), queued_begins: 8, held_claims: 8 };
        let (begin_gate, audit) = (Box::new(|| None), Arc::new(AuditSink::off()));
        let held_claims = HeldClaims::new();
        let settings = CommitterSettings {
            capacity,
            held_claims,
            patience: Duration::ZERO,
            clock: Arc::default(),
            begin_gate,
            locks: Arc::default(),
            audit,
        };
        let stores: Vec<Box<dyn GroupStore>> = vec![Box::new(Faulty), Box::new(Faulty)];
        let committer = Committer::start(stores, settings, Arc::default()).unwrap();
        let forget = || Command::Forget(Forget { lease: LeaseId(Uuid::nil()), settled_before: Timestamp::MIN });
        for _ in 0..4 {
            let refusal = committer.submit(Caller::Trusted, forget()).await.unwrap_err();
            assert!(matches!(refusal, CommitterRefusal::StoreUnavailable(_)), "{refusal}");
        }
        assert!(committer.has_failed());
        assert_eq!(&*committer.failed().await, "a writer has panicked: see the log above");
    }
}

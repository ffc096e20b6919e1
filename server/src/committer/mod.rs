//! Group commit: takes the waiting commands, loads their rows once, decides each command in turn, commits once, and then
//! answers all of them.
//!
//! Each command sees the effects of those before it, gets its own answer, and no answer leaves before its change is durable.
//! A shared store has several writers. There a command that touches rows which its group has changed goes into the next
//! group, because it must be decided on rows as they were loaded.
//!
//! If there are more commands than a group takes, commits and rollbacks go before begins, and they are never refused for
//! load. A begin is admitted only if its claims fit beside the held claims and the claims of waiting begins.

mod lock_suspects;
mod queue;
mod retry;
mod writer;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold_core::command::{Command, Reply};
use leasehold_core::rejection::Rejection;
use leasehold_core::time::Timestamp;
use tokio::sync::oneshot;

use self::lock_suspects::LockSuspects;
use self::queue::{Job, Queue};
use self::writer::{CachedGate, Shared, Writer};
use crate::audit::AuditSink;
use crate::identity::Caller;
use crate::metrics::Metrics;
use crate::store::GroupStore;

pub use self::queue::Capacity;

/// The delay after which an overloaded caller is told to retry.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// A refusal by the committer: the engine did not decide the command, or the decision was not committed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    /// Too many begins are waiting, or too many claims are held.
    #[error("the server is overloaded, try again")]
    Overloaded {
        /// The delay before the retry.
        retry_after: Duration,
    },
    /// A single begin has more claims than leases may hold together.
    #[error("the update alone has {claims} claims, more than `limits.held_claims` = {max}: make it smaller")]
    TooLarge {
        /// The number of its claims.
        claims: usize,
        /// The most claims that leases may hold.
        max: usize,
    },
    /// A session that is no server keeps the rows locked.
    #[error("{0}")]
    Locked(Arc<str>),
    /// The store has failed or is away, or its disk is nearly full.
    #[error("{0}")]
    StoreUnavailable(Arc<str>),
    /// The server is stopping.
    #[error("the server is stopping, try another or try again")]
    Stopping,
}

/// The answer to a command.
pub type Decision = Result<Result<Reply, Rejection>, Refusal>;

/// Returns the reason why no update may begin now, or `None`. It is called about once a second.
pub type BeginGate = Box<dyn FnMut() -> Option<Refusal> + Send>;

impl Refusal {
    /// The refusal of calls that come too fast.
    pub fn overloaded() -> Self {
        Self::Overloaded { retry_after: RETRY_AFTER }
    }
}

/// The settings of the committer.
pub struct CommitterSettings {
    /// The limits of admission.
    pub capacity: Capacity,
    /// The number of claims that are held at the start.
    pub held_claims: usize,
    /// The longest time that commands wait for a store that is away.
    pub patience: Duration,
    /// Keeps begins away.
    pub begin_gate: BeginGate,
    /// Records each lease that is begun or settled.
    pub audit: Arc<AuditSink>,
}

/// The committer: a queue and its writers. Dropping it decides the waiting commands and stops the writers.
pub struct Committer {
    shared: Arc<Shared>,
    writers: Vec<JoinHandle<()>>,
}

impl Committer {
    /// Starts a writer on a thread of its own for each store. Several stores must be writers of one shared store.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start(
        stores: Vec<Box<dyn GroupStore>>,
        settings: CommitterSettings,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Queue::new(settings.capacity, settings.held_claims, stores.len()),
            patience: settings.patience,
            begin_gate: Mutex::new(CachedGate::new(settings.begin_gate)),
            failed: Mutex::default(),
            away: Mutex::default(),
            connected_writers: stores.len().into(),
            metrics,
            audit: settings.audit,
            suspects: LockSuspects::default(),
        });
        let mut committer = Self { shared, writers: Vec::new() };
        for (index, store) in stores.into_iter().enumerate() {
            let writer = Writer::new(index, store, committer.shared.clone());
            let thread = std::thread::Builder::new().name("committer".into());
            committer.writers.push(thread.spawn(move || writer.run())?);
        }
        Ok(committer)
    }

    /// Decides a command, and returns the answer when its effect is durable.
    ///
    /// # Errors
    /// The engine did not decide the command, or the decision could not be committed.
    pub async fn submit(&self, caller: Caller, command: Command) -> Decision {
        let (answer, decision) = oneshot::channel();
        // The answer is dropped if the server is stopping, or if a writer has panicked.
        let gone = || self.shared.failure().unwrap_or(Refusal::Stopping);
        match self.shared.queue.push(Job { caller, command, tried: false, answer }) {
            Ok(()) => decision.await.unwrap_or_else(|_| Err(gone())),
            Err(Refusal::Stopping) => Err(gone()),
            Err(refusal) => Err(refusal),
        }
    }

    /// True if the store has failed, so that nothing is written until a restart.
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed()
    }

    /// True if the last attempt did not reach the store.
    pub fn is_away(&self) -> bool {
        self.shared.is_away()
    }

    /// Sets the number of held claims. Other servers may hold some too.
    pub fn set_held_claims(&self, held_claims: usize) {
        self.shared.queue.set_held_claims(held_claims);
    }

    /// Shares the write slots with other servers at work on the same database. Together they write about as many groups at
    /// once as one server would: more groups at once cost the database more for every command.
    pub fn set_other_servers(&self, others: usize) {
        self.shared.queue.set_write_slots(self.writers.len() / (others + 1));
    }

    /// The number of groups that may be written at once.
    pub fn write_slots(&self) -> usize {
        self.shared.queue.write_slots()
    }

    /// The number of waiting commands.
    pub fn waiting(&self) -> usize {
        self.shared.queue.len()
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.shared.queue.close();
        for writer in self.writers.drain(..) {
            // The join fails if the writer has panicked. Its callers have been refused then, and nothing is left to do.
            let _ = writer.join();
        }
    }
}

/// The time of the system clock.
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

    use leasehold_core::command::Fences;
    use leasehold_core::lease::LeaseId;
    use leasehold_core::rows::{Keys, NetChanges, Workspace};
    use leasehold_core::update::Forget;
    use uuid::Uuid;

    use super::*;
    use crate::store::GroupError;

    /// A store that panics at the begin of a group.
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
        let capacity = Capacity { queued_begins: 8, held_claims: 8 };
        let (begin_gate, audit) = (Box::new(|| None), Arc::new(AuditSink::off()));
        let settings = CommitterSettings { capacity, held_claims: 0, patience: Duration::ZERO, begin_gate, audit };
        let stores: Vec<Box<dyn GroupStore>> = vec![Box::new(Faulty), Box::new(Faulty)];
        let committer = Committer::start(stores, settings, Arc::default()).unwrap();
        let forget = || Command::Forget(Forget { lease: LeaseId(Uuid::nil()), settled_before: now() });
        for _ in 0..4 {
            let refusal = committer.submit(Caller::Trusted, forget()).await.unwrap_err();
            assert!(matches!(refusal, Refusal::StoreUnavailable(_)), "{refusal}");
        }
        assert!(committer.has_failed());
    }
}

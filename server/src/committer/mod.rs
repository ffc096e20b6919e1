//! Group commit: takes what is waiting, loads its rows once, runs each command in turn, writes once, answers all.
//!
//! Each command sees the effect of those before it, gets its own answer, and no answer leaves before its change is
//! durable. Of a shared store, which others write to as well, there are several writers, and a command that touches what
//! its group has changed goes into the next group: it is decided only on rows as they were loaded.
//!
//! Commit and rollback go before begin when there is more than fits, and are never turned away. A begin is
//! taken in only where there is room for its claims beside those that are held and those that wait.

mod locked;
mod queue;
mod writer;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold_core::rejection::Rejection;
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_core::update::{Command, Reply};
use tokio::sync::oneshot;

use self::locked::Locked;
use self::queue::{Job, Queue};
use self::writer::{Shared, Watch, Writer};
use crate::audit::AuditSink;
use crate::identity::Caller;
use crate::metrics::Metrics;

pub use self::queue::Room;

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
    /// Somebody who is no server keeps the rows locked.
    #[error("{0}")]
    Locked(Arc<str>),
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

/// What a store's failure means to the commands at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// What was loaded has changed since, and nothing was written: they are decided again on what is there now.
    Changed,
    /// They were decided on what the store presumed, wrongly, and nothing was written: they are decided again.
    Mistaken,
    /// The store is away. Whether anything was written is found when it is back.
    Away,
    /// Somebody who is no server keeps rows locked; other commands may fare better.
    Blocked,
    /// The store has cut it short; fewer commands at a time may be done in time.
    TooLong,
    /// Something can't be read or written; other commands may fare better.
    Row,
    /// Nothing may be written any more.
    Final,
}

/// A store that the committer writes to.
pub trait Writable: Store<Error: std::fmt::Display> + Send + 'static {
    /// What an error means, from a load or from a save.
    fn failure(error: &Self::Error, saving: bool) -> Failure;

    /// Lets the store presume rows instead of reading them; a save may then fail as [`Failure::Mistaken`].
    fn may_presume(&mut self) {}

    /// Waits hardly at all, or as usual, for rows that others keep locked.
    fn be_brief(&mut self, _is_brief: bool) {}

    /// Has time for itself: nothing has waited to be written for a while.
    fn rest(&mut self) {}

    /// Looks whether it is there, and can be written to.
    fn is_reachable(&mut self) -> bool {
        true
    }

    /// Whether the last save, which failed as [`Failure::Away`], may have been kept all the same.
    fn may_have_written(&self) -> bool {
        true
    }
}

/// What the committer goes by, beside its stores.
pub struct Settings {
    /// How much may be taken in.
    pub room: Room,
    /// Claims that are held already.
    pub held_claims: usize,
    /// How long commands wait for a store that is away.
    pub patience: Duration,
    /// Keeps begins away.
    pub guard: Guard,
    /// Records each lease begun and settled.
    pub audit: Arc<AuditSink>,
}

/// The way to the writers. Dropping it finishes what is waiting and stops them.
pub struct Committer {
    shared: Arc<Shared>,
    writers: Vec<JoinHandle<()>>,
}

impl Committer {
    /// Starts a writer for each store, on a thread of its own. Several of them must be the same shared one.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start<S: Writable>(stores: Vec<S>, settings: Settings, metrics: Arc<Metrics>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Queue::new(settings.room, settings.held_claims, stores.len()),
            patience: settings.patience,
            watch: Mutex::new(Watch::new(settings.guard)),
            failed: Mutex::default(),
            away: Mutex::default(),
            at_work: stores.len().into(),
            metrics,
            audit: settings.audit,
            locked: Locked::default(),
        });
        let mut committer = Self { shared, writers: Vec::new() };
        for (index, store) in stores.into_iter().enumerate() {
            let writer = Writer::new(index, store, committer.shared.clone());
            let thread = std::thread::Builder::new().name("committer".into());
            committer.writers.push(thread.spawn(move || writer.run())?);
        }
        Ok(committer)
    }

    /// Has a command decided, and its effect kept, before it answers.
    ///
    /// # Errors
    /// The engine was not asked, or its decision could not be kept.
    pub async fn submit(&self, caller: Caller, command: Command) -> Decision {
        let (answer, decision) = oneshot::channel();
        // Nobody takes it, or answers it, where the server is stopping or a writer has.
        let gone = || self.shared.failure().unwrap_or(Refusal::Stopping);
        match self.shared.queue.push(Job { caller, command, tried: false, answer }) {
            Ok(()) => decision.await.unwrap_or_else(|_| Err(gone())),
            Err(Refusal::Stopping) => Err(gone()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Whether the store has failed, so that nothing is written until a restart.
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed()
    }

    /// Whether the store could not be reached when it was last tried.
    pub fn is_away(&self) -> bool {
        self.shared.is_away()
    }

    /// Takes up how many claims are held, where other servers hold some too.
    pub fn recount(&self, held_claims: usize) {
        self.shared.queue.recount(held_claims);
    }

    /// Leaves other servers that are at work on the same store their share of the groups that are written at once.
    pub fn share(&self, others: usize) {
        self.shared.queue.set_places(self.writers.len() / (others + 1));
    }

    /// How many groups are written at once.
    pub fn places(&self) -> usize {
        self.shared.queue.places()
    }

    /// How many commands are waiting.
    pub fn waiting(&self) -> usize {
        self.shared.queue.len()
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.shared.queue.close();
        for writer in self.writers.drain(..) {
            // A writer that panicked has answered nobody; there is nothing left to do.
            let _ = writer.join();
        }
    }
}

/// The system clock, in the engine's terms.
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

    use leasehold_core::bucket::BucketKey;
    use leasehold_core::claim::Claim;
    use leasehold_core::invariant::State;
    use leasehold_core::lease::LeaseId;
    use leasehold_core::memory::MemoryStore;
    use leasehold_core::query::{LeaseRow, LeaseScan, RecordRow, RecordScan};
    use leasehold_core::store::Fences;
    use leasehold_core::transaction::{Keys, NetChanges, Workspace};
    use leasehold_core::update::Forget;
    use uuid::Uuid;

    use super::*;

    /// Panics where a group begins; what it is not asked is as in memory.
    struct Faulty(MemoryStore);

    impl Store for Faulty {
        type Error = <MemoryStore as Store>::Error;

        fn workspace(&self) -> Result<Workspace, Self::Error> {
            panic!("a fault of the store")
        }

        fn load(&self, keys: Keys, into: &mut Workspace) -> Result<(), Self::Error> {
            self.0.load(keys, into)
        }

        fn save(&mut self, changes: &NetChanges) -> Result<Fences, Self::Error> {
            self.0.save(changes)
        }

        fn claim(&self, key: &BucketKey) -> Result<Option<Claim>, Self::Error> {
            self.0.claim(key)
        }

        fn leases(&self, scan: &LeaseScan) -> Result<Vec<LeaseRow>, Self::Error> {
            self.0.leases(scan)
        }

        fn records(&self, scan: &RecordScan) -> Result<Vec<RecordRow>, Self::Error> {
            self.0.records(scan)
        }

        fn settled(&self, before: Timestamp, limit: usize) -> Result<Vec<LeaseId>, Self::Error> {
            self.0.settled(before, limit)
        }

        fn state(&self) -> Result<State, Self::Error> {
            self.0.state()
        }
    }

    impl Writable for Faulty {
        fn failure(_: &Self::Error, _: bool) -> Failure {
            Failure::Final
        }
    }

    #[tokio::test]
    async fn a_writer_that_panics_leaves_nobody_waiting_and_fails_the_store() {
        let room = Room { queued_begins: 8, held_claims: 8 };
        let audit = Arc::new(AuditSink::off());
        let settings = Settings { room, held_claims: 0, patience: Duration::ZERO, guard: Box::new(|| None), audit };
        let stores = vec![Faulty(MemoryStore::default()), Faulty(MemoryStore::default())];
        let committer = Committer::start(stores, settings, Arc::default()).unwrap();
        let forget = || Command::Forget(Forget { lease: LeaseId(Uuid::nil()), settled_before: now() });
        for _ in 0..4 {
            let refusal = committer.submit(Caller::Trusted, forget()).await.unwrap_err();
            assert!(matches!(refusal, Refusal::StoreUnavailable(_)), "{refusal}");
        }
        assert!(committer.has_failed());
    }
}

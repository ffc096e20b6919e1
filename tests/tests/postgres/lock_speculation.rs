//! A test of two stores that assume the rows of locks instead of reading them. Each store remembers
//! rows that the other one has changed.

use leasehold_core::command::{Command, Reply};
use leasehold_core::invariant;
use leasehold_core::lease::Fence;
use leasehold_core::lock::{Ask, AskId, AskState, Lock, LockPath, LockValue};
use leasehold_core::locking::acquire::{Acquire, Acquired};
use leasehold_core::locking::end::{Cause, End};
use leasehold_core::locking::leave::Leave;
use leasehold_core::locking::open::Open;
use leasehold_core::locking::release::{Release, ReleaseOutcome};
use leasehold_core::locking::{LockCommand, LockReply};
use leasehold_core::memory::MemoryStore;
use leasehold_core::rejection::Reason;
use leasehold_core::session::{Principal, SessionId, Terms};
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::Transaction;
use leasehold_server::store::{BlockingStore, StoreError};
use leasehold_tests::postgres::Cluster;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use uuid::Uuid;

use crate::{NO_SYNC, open_store};

const SESSIONS: usize = 4;
const LOCKS: u32 = 2;
const STEPS: u32 = 1_500;
const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// A reply without its fence, which only the database knows.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Holding,
    Other(LockReply),
    Refused(Reason),
}

impl Answer {
    fn of(decided: Result<LockReply, leasehold_core::rejection::Rejection>) -> Self {
        match decided {
            Ok(LockReply::Acquired(Acquired::Holding(_))) => Self::Holding,
            Ok(reply) => Self::Other(reply),
            Err(rejection) => Self::Refused(rejection.reason()),
        }
    }
}

/// Decides a command as a writer does, and saves it. `None` if an assumption was wrong.
fn try_answer(store: &mut BlockingStore, command: &Command) -> Option<Answer> {
    let is_wrong = |error: &StoreError| matches!(error, StoreError::Misspeculated(_));
    let mut workspace = store.workspace().unwrap();
    loop {
        let keys = workspace.missing([command]);
        if keys.is_empty() {
            break;
        }
        match store.load(keys, &mut workspace) {
            Err(error) if is_wrong(&error) => return None,
            loaded => loaded.unwrap(),
        }
    }
    let decided = command.apply(&mut workspace, NOW).unwrap().map(|reply| match reply {
        Reply::Lock(reply) => reply,
        reply => unreachable!("{reply:?}"),
    });
    match store.save(&workspace.into_changes()) {
        Err(error) if is_wrong(&error) => None,
        saved => saved.map(|_| Some(Answer::of(decided))).unwrap(),
    }
}

/// The reference: the same commands on one store in memory, which has other fences.
struct Model {
    memory: MemoryStore,
    rng: SmallRng,
    // The numbers of the sessions in use, and of the newest session and ask.
    sessions: [u128; SESSIONS],
    newest_session: u128,
    asks: u128,
}

impl Model {
    fn new() -> Self {
        let (memory, rng) = (MemoryStore::default(), SmallRng::seed_from_u64(19));
        Self { memory, rng, sessions: [1, 2, 3, 4], newest_session: 4, asks: 0 }
    }

    fn session(&mut self) -> SessionId {
        SessionId(Uuid::from_u128(self.sessions[self.rng.random_range(0..SESSIONS)]))
    }

    /// Returns the close of a session. Another one takes its place.
    fn close(&mut self, principal: Principal) -> LockCommand {
        self.newest_session += 1;
        let place = self.rng.random_range(0..SESSIONS);
        let closed = std::mem::replace(&mut self.sessions[place], self.newest_session);
        LockCommand::End(End { session: SessionId(Uuid::from_u128(closed)), cause: Cause::Close(principal) })
    }

    fn lock(&mut self) -> LockPath {
        LockPath::parse_joined("a", &self.rng.random_range(0..LOCKS).to_string()).unwrap()
    }

    fn ask(&self, ask: u128) -> Option<Ask> {
        self.memory.row::<Ask>(&AskId(Uuid::from_u128(ask))).unwrap().cloned()
    }

    /// Returns a random command. Most of them concern an ask that exists.
    fn command(&mut self) -> LockCommand {
        let (session, principal) = (self.session(), Principal::parse("svc").unwrap());
        let newest = self.asks;
        let known = (newest.saturating_sub(8)..=newest).filter_map(|number| Some((number, self.ask(number)?)));
        let known: Vec<_> = known.collect();
        let place = self.rng.random_range(0..known.len().max(1));
        match (self.rng.random_range(0..20), known.into_iter().nth(place)) {
            (0, _) => self.close(principal),
            (1..=3, _) => {
                let terms = Terms::parse(1_000_000, 1_000_000).unwrap();
                LockCommand::Open(Open { session, principal, terms })
            }
            (4..=5, Some((number, ask))) => {
                let ask_id = AskId(Uuid::from_u128(number));
                LockCommand::Leave(Leave { session: ask.session, principal, ask: ask_id })
            }
            (6..=12, Some((_, ask))) => {
                let AskState::Holding(fence) = ask.state else { return self.acquire(session, principal, ask.lock) };
                let (outcome, value) = (ReleaseOutcome::Succeeded, LockValue::default());
                LockCommand::Release(Release { session: ask.session, principal, lock: ask.lock, fence, outcome, value })
            }
            _ => {
                let lock = self.lock();
                self.acquire(session, principal, lock)
            }
        }
    }

    fn acquire(&mut self, session: SessionId, principal: Principal, lock: LockPath) -> LockCommand {
        // Some acquires are repeated.
        self.asks += u128::from(self.rng.random_bool(0.9));
        let (ask, wait) = (AskId(Uuid::from_u128(self.asks)), self.rng.random_bool(0.6));
        LockCommand::Acquire(Acquire { session, principal, ask, lock, share: None, held: vec![], wait, reaped: None })
    }
}

/// Returns the command with the fence that the database has given to the holder.
fn with_fence(store: &BlockingStore, command: LockCommand) -> LockCommand {
    let LockCommand::Release(release) = command else { return command };
    let lock = store.lock(&release.lock).unwrap().unwrap();
    let fence = lock.grant().map_or(Fence(0), |grant| grant.fence);
    LockCommand::Release(Release { fence, ..release })
}

/// Returns a lock's holder and the number of asks that wait for it.
fn holder(lock: Option<&Lock>) -> Option<(Option<AskId>, u32)> {
    lock.map(|lock| (lock.grant().map(|grant| grant.ask), lock.waiting))
}

/// K05, K08, K09: two stores with stale rows answer as one store in memory does.
#[test]
fn k05_k08_stores_that_assume_stale_rows_answer_as_one_store_does() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let mut stores = [open_store(&url).speculating(), open_store(&url).speculating()];
    let mut model = Model::new();
    let mut wrong = 0;
    for step in 0..STEPS {
        let command = model.command();
        let expected = Answer::of(command.apply(&mut model.memory, NOW).unwrap());
        // One store gets several commands in a row, so that its rows are not stale all the time.
        let store = &mut stores[(step / 7 % 2) as usize];
        let on_database = Command::Lock(with_fence(store, command.clone()));
        let answer = (0..100).find_map(|_| {
            let answer = try_answer(store, &on_database);
            wrong += u32::from(answer.is_none());
            answer
        });
        assert_eq!(answer, Some(expected), "step {step}: {command:?}");
        for lock in (0..LOCKS).map(|key| LockPath::parse_joined("a", &key.to_string()).unwrap()) {
            let stored = store.lock(&lock).unwrap();
            assert_eq!(holder(stored.as_ref()), holder(model.memory.row::<Lock>(&lock).unwrap()), "step {step}");
        }
    }
    assert!(wrong > STEPS / 20, "{wrong} assumptions were wrong, so nothing was proved");
    assert_eq!(invariant::check(&stores[0].state().unwrap()), Ok(()));
}

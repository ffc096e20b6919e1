//! The bytes of requests and of answers that the server holds: a request from its arrival to its
//! answer, an answer until the client has taken it. One bound applies to each connection and one to
//! the server, of which each caller has a share, so memory use is bounded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::config::{Config, Limits};
use crate::shares::{LimitShares, Sharer};
use crate::waiting_calls::{REQUEST_SETTING, WaitingCalls};

/// The longest time for which an answer waits for room.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);

/// The bytes of answers that each connection may hold however many the server holds, so that a
/// client that takes its answers is always served.
const FREE_ANSWER_BYTES: usize = 64 * 1024;

/// The open streams of health and reflection that one connection may have.
pub const MAX_WATCHES: usize = 8;

/// The settings of the bounds on one kind of bytes, as a refusal names them.
#[derive(Clone, Copy, Debug)]
pub struct BudgetSettings {
    of_server: &'static str,
    of_connection: &'static str,
    /// The bytes that each connection may hold however many the server holds.
    free: usize,
}

impl BudgetSettings {
    /// The bounds on the bytes of requests.
    pub const REQUESTS: Self =
        Self { of_server: REQUEST_SETTING, of_connection: "limits.request_mib_per_connection", free: 0 };
    /// The bounds on the bytes of answers.
    pub const ANSWERS: Self = Self {
        of_server: "limits.answer_mib",
        of_connection: "limits.answer_mib_per_connection",
        free: FREE_ANSWER_BYTES,
    };
}

/// The bytes of one kind that all connections may hold together.
#[derive(Debug)]
pub struct ServerBudget {
    settings: BudgetSettings,
    shares: Mutex<LimitShares>,
    max_of_connection: AtomicUsize,
    /// Wakes those who wait for room.
    freed: Notify,
}

/// The bytes of one kind that one connection holds.
#[derive(Debug)]
pub struct ConnectionBudget {
    held: AtomicUsize,
    server: Arc<ServerBudget>,
    untaken: Mutex<BTreeMap<u64, Instant>>,
    next_untaken: AtomicU64,
}

/// The budgets of the server.
#[derive(Clone, Debug)]
pub struct ServerBudgets {
    /// The bytes of requests.
    pub requests: Arc<ServerBudget>,
    /// The calls that have not arrived completely.
    pub waiting: Arc<WaitingCalls>,
    /// The bytes of answers.
    pub answers: Arc<ServerBudget>,
}

/// The budgets of one connection.
#[derive(Clone, Debug)]
pub struct ConnectionBudgets {
    /// The bytes of requests.
    pub requests: Arc<ConnectionBudget>,
    /// The calls of all connections that have not arrived completely.
    pub waiting: Arc<WaitingCalls>,
    /// The bytes of answers.
    pub answers: Arc<ConnectionBudget>,
    watches: Arc<Semaphore>,
}

/// The bytes that one request or answer holds; dropping it returns them.
#[derive(Debug)]
pub struct Charge {
    bytes: AtomicUsize,
    connection: Arc<ConnectionBudget>,
    sharer: Sharer,
}

/// An answer that is ready for the client to take, with its charge.
#[derive(Debug)]
pub struct ReadyAnswer {
    charge: Arc<Charge>,
    key: u64,
}

/// The refusal of bytes that would exceed a bound, with the name of the bound's setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetExceeded(pub &'static str);

impl ServerBudget {
    /// A budget of `max` bytes, of which one connection may hold `max_of_connection`.
    pub fn new(settings: BudgetSettings, max: usize, max_of_connection: usize) -> Arc<Self> {
        let shares = Mutex::new(LimitShares::new(settings.of_server, max, Sharer::nobody()));
        Arc::new(Self { settings, shares, max_of_connection: max_of_connection.into(), freed: Notify::new() })
    }

    /// Changes the bounds, and the callers who share them. Bytes that are held stay.
    pub fn set_bounds(&self, max: usize, max_of_connection: usize, config: &Config) {
        self.shares().resize(max, Sharer::all(config));
        self.max_of_connection.store(max_of_connection, Ordering::Relaxed);
        self.freed.notify_waiters();
    }

    /// The bytes that all connections hold now.
    pub fn held(&self) -> usize {
        self.shares().total()
    }

    /// Charges `bytes` more to a caller's share. `own` are the bytes that the same charge has already.
    /// If no other charge of the caller holds bytes, they pass however low the bound is.
    fn add(&self, sharer: Sharer, own: usize, bytes: usize) -> Result<(), BudgetExceeded> {
        let mut shares = self.shares();
        if shares.used(sharer.0) > own && shares.check(sharer.0, bytes).is_err() {
            return Err(BudgetExceeded(self.settings.of_server));
        }
        shares.add(sharer.0, bytes);
        Ok(())
    }

    /// Replaces `before` bytes of a caller by `after`, and wakes those who wait for room.
    fn replace(&self, sharer: Sharer, before: usize, after: usize) {
        let mut shares = self.shares();
        shares.subtract(sharer.0, before);
        shares.add(sharer.0, after);
        drop(shares);
        if after < before {
            self.freed.notify_waiters();
        }
    }

    fn shares(&self) -> MutexGuard<'_, LimitShares> {
        // INVARIANT: each change of the counts is complete before anything can panic.
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerBudgets {
    /// The budgets with the bounds that the configuration sets.
    pub fn new(config: &Config) -> Self {
        let budget = |settings| ServerBudget::new(settings, usize::MAX, usize::MAX);
        let (requests, answers) = (budget(BudgetSettings::REQUESTS), budget(BudgetSettings::ANSWERS));
        let budgets = Self { requests, waiting: WaitingCalls::new(usize::MAX), answers };
        budgets.set_bounds(config);
        budgets
    }

    /// Changes the bounds.
    pub fn set_bounds(&self, config: &Config) {
        let Limits { request_mib, request_mib_per_connection, answer_mib, answer_mib_per_connection, .. } =
            config.limits;
        self.requests.set_bounds(mib(request_mib), mib(request_mib_per_connection), config);
        self.waiting.set_bound(mib(request_mib), config);
        self.answers.set_bounds(mib(answer_mib), mib(answer_mib_per_connection), config);
    }

    /// The budgets of a new connection.
    pub fn of_connection(&self) -> ConnectionBudgets {
        let of_connection = |budget: &Arc<ServerBudget>| ConnectionBudget::new(budget.clone());
        let (requests, answers) = (of_connection(&self.requests), of_connection(&self.answers));
        let watches = Arc::new(Semaphore::new(MAX_WATCHES));
        ConnectionBudgets { requests, waiting: self.waiting.clone(), answers, watches }
    }
}

impl ConnectionBudgets {
    /// A permit for one more open stream of health or reflection; `None` if the connection has
    /// [`MAX_WATCHES`].
    pub fn watch(&self) -> Option<OwnedSemaphorePermit> {
        self.watches.clone().try_acquire_owned().ok()
    }
}

/// Converts MiB to bytes.
fn mib(count: usize) -> usize {
    count.saturating_mul(1024 * 1024)
}

impl ConnectionBudget {
    /// The budget of a new connection.
    pub fn new(server: Arc<ServerBudget>) -> Arc<Self> {
        let untaken = Mutex::default();
        Arc::new(Self { held: AtomicUsize::new(0), server, untaken, next_untaken: AtomicU64::new(0) })
    }

    /// Completes when the client has left an answer untaken for `timeout`.
    pub async fn stalled(&self, timeout: Duration) {
        loop {
            let oldest = self.with_untaken(|untaken| untaken.first_key_value().map(|(_, ready_at)| *ready_at));
            let end = oldest.unwrap_or_else(Instant::now) + timeout;
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }

    fn with_untaken<T>(&self, change: impl FnOnce(&mut BTreeMap<u64, Instant>) -> T) -> T {
        // INVARIANT: each change is a single operation of the map, so a panic leaves none half done.
        change(&mut self.untaken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Charge {
    /// The charge of a new request or answer of this caller, without any byte.
    pub fn new(connection: Arc<ConnectionBudget>, sharer: Sharer) -> Self {
        Self { bytes: AtomicUsize::new(0), connection, sharer }
    }

    /// Charges `bytes` more. If no other charge of the caller, or of the connection, holds bytes,
    /// they pass however low that bound is.
    ///
    /// # Errors
    /// The connection or the caller would hold more than it may. The charge stays as it was.
    pub fn add(&self, bytes: usize) -> Result<(), BudgetExceeded> {
        let ConnectionBudget { held, server, .. } = &*self.connection;
        let own = self.bytes.load(Ordering::Relaxed);
        let before = held.fetch_add(bytes, Ordering::Relaxed);
        let after = before + bytes;
        let added = if after > server.max_of_connection.load(Ordering::Relaxed) && before > own {
            Err(BudgetExceeded(server.settings.of_connection))
        } else if after <= server.settings.free {
            server.replace(self.sharer, 0, bytes);
            Ok(())
        } else {
            server.add(self.sharer, own, bytes)
        };
        match added {
            Ok(()) => self.bytes.fetch_add(bytes, Ordering::Relaxed),
            Err(_) => held.fetch_sub(bytes, Ordering::Relaxed),
        };
        added
    }

    /// Charges what is missing to `bytes`.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    pub fn grow_to(&self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.add(bytes.saturating_sub(self.bytes.load(Ordering::Relaxed)))
    }

    /// Charges `bytes` more as soon as there is room.
    ///
    /// # Errors
    /// There was no room for [`ROOM_TIMEOUT`].
    pub async fn reserve(&self, bytes: usize) -> Result<(), BudgetExceeded> {
        let waiting = async {
            loop {
                // The wait begins before the attempt, so that room that is freed in between is not
                // missed (`Notify::notify_waiters` wakes a future from its creation on).
                let freed = self.connection.server.freed.notified();
                if self.add(bytes).is_ok() {
                    return;
                }
                freed.await;
            }
        };
        match self.add(bytes) {
            Ok(()) => Ok(()),
            Err(exceeded) => tokio::time::timeout(ROOM_TIMEOUT, waiting).await.map_err(|_| exceeded),
        }
    }

    /// Replaces the estimate by the size of an answer that is ready for the client to take. The size
    /// may exceed the bounds, because the answer exists.
    pub fn ready(self: Arc<Self>, bytes: usize) -> ReadyAnswer {
        let ConnectionBudget { held, server, next_untaken, .. } = &*self.connection;
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        held.fetch_add(bytes, Ordering::Relaxed);
        held.fetch_sub(before, Ordering::Relaxed);
        server.replace(self.sharer, before, bytes);
        let key = next_untaken.fetch_add(1, Ordering::Relaxed);
        self.connection.with_untaken(|untaken| untaken.insert(key, Instant::now()));
        ReadyAnswer { charge: self, key }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        if bytes > 0 {
            self.connection.held.fetch_sub(bytes, Ordering::Relaxed);
            self.connection.server.replace(self.sharer, bytes, 0);
        }
    }
}

impl Drop for ReadyAnswer {
    fn drop(&mut self) {
        self.charge.connection.with_untaken(|untaken| untaken.remove(&self.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Sharer = Sharer::CELL_ONE;
    const OTHER: Sharer = Sharer::ANONYMOUS;

    #[test]
    fn a_charge_is_bounded_for_the_connection_and_for_the_server() {
        let server = ServerBudget::new(BudgetSettings::REQUESTS, 100, 60);
        let [one, two] = [(); 2].map(|()| ConnectionBudget::new(server.clone()));
        let charge = |connection: &Arc<_>| Charge::new(Arc::clone(connection), ONE);
        let first = charge(&one);
        assert_eq!(first.add(50), Ok(()));
        assert_eq!(charge(&one).add(11), Err(BudgetExceeded("limits.request_mib_per_connection")));
        assert_eq!(charge(&one).add(10), Ok(()));
        let second = charge(&two);
        assert_eq!(second.add(51), Err(BudgetExceeded("limits.request_mib")));
        assert_eq!(second.add(50), Ok(()));
        assert_eq!(server.held(), 100);
        drop(first);
        assert_eq!(second.add(10), Ok(()));
        drop(second);
        assert_eq!(server.held(), 0);
    }

    #[test]
    fn a_reload_changes_the_bounds_and_keeps_the_bytes_that_are_held() {
        let mut config = Config::development();
        let budgets = ServerBudgets::new(&config);
        let of_connection = budgets.of_connection();
        let charge = || Charge::new(of_connection.answers.clone(), ONE);
        let first = charge();
        first.add(mib(3)).unwrap();
        assert_eq!(charge().add(mib(3)), Ok(()));
        for (server, connection, setting) in [(5, 32, "limits.answer_mib"), (32, 5, "limits.answer_mib_per_connection")]
        {
            (config.limits.answer_mib, config.limits.answer_mib_per_connection) = (server, connection);
            budgets.set_bounds(&config);
            assert_eq!(charge().add(mib(3)), Err(BudgetExceeded(setting)));
        }
        assert_eq!(budgets.answers.held(), mib(3));
    }

    #[test]
    fn a_request_alone_passes_any_bound() {
        let server = ServerBudget::new(BudgetSettings::REQUESTS, 10, 10);
        let connection = ConnectionBudget::new(server.clone());
        let alone = Charge::new(connection.clone(), ONE);
        assert_eq!((alone.add(8), alone.add(100)), (Ok(()), Ok(())));
        assert!(Charge::new(connection, ONE).add(1).is_err());
        let other = Charge::new(ConnectionBudget::new(server.clone()), OTHER);
        assert_eq!(other.add(9), Ok(()));
        drop((alone, other));
        assert_eq!(server.held(), 0);
    }

    #[test]
    fn a_connection_that_takes_its_answers_is_served_while_the_budget_is_used_up() {
        let server = ServerBudget::new(BudgetSettings::ANSWERS, 10, usize::MAX);
        let greedy = Charge::new(ConnectionBudget::new(server.clone()), ONE);
        greedy.add(2 * FREE_ANSWER_BYTES).unwrap();
        let connection = ConnectionBudget::new(server);
        let [first, second] = [(); 2].map(|()| Charge::new(connection.clone(), ONE));
        assert_eq!(first.add(FREE_ANSWER_BYTES), Ok(()));
        assert_eq!(second.add(1), Err(BudgetExceeded("limits.answer_mib")));
    }

    #[tokio::test]
    async fn an_answer_waits_for_room() {
        let max = 2 * FREE_ANSWER_BYTES;
        let server = ServerBudget::new(BudgetSettings::ANSWERS, 10 * max, max);
        let connection = ConnectionBudget::new(server.clone());
        let [first, second] = [(); 2].map(|()| Arc::new(Charge::new(connection.clone(), ONE)));
        first.add(max).unwrap();
        assert_eq!(second.add(max), Err(BudgetExceeded("limits.answer_mib_per_connection")));
        let (reserved, ready) = tokio::join!(second.reserve(max - 10), async { first.ready(10) });
        assert_eq!((reserved, server.held()), (Ok(()), max));
        drop((ready, second));
        assert_eq!(server.held(), 0);
    }

    #[tokio::test]
    async fn an_answer_that_is_not_taken_stalls_its_connection() {
        let connection = ConnectionBudget::new(ServerBudget::new(BudgetSettings::ANSWERS, 100, 60));
        let timeout = Duration::from_millis(50);
        let answer = || Arc::new(Charge::new(connection.clone(), ONE)).ready(10);
        drop(answer());
        let since = Instant::now();
        let _left = answer();
        connection.stalled(timeout).await;
        assert!(since.elapsed() >= timeout);
    }
}

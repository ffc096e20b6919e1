//! The bytes of requests and of answers that the server holds: a request from its arrival to its
//! answer, a list's answer until the client has taken it. One bound applies to each connection and
//! one to the server, so memory use is bounded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::Limits;

/// The longest time for which an answer waits for room.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);

/// The memory of a call whose body has not arrived: its stream, its head and its task.
pub const CALL_BYTES: usize = 6 * 1024;

/// The calls of a connection that may always wait for their bodies.
const FREE_CALLS: usize = 16;

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
        Self { of_server: "limits.request_mib", of_connection: "limits.request_mib_per_connection", free: 0 };
    /// The bounds on the bytes of answers.
    pub const ANSWERS: Self =
        Self { of_server: "limits.answer_mib", of_connection: "limits.answer_mib_per_connection", free: 0 };
    /// The bounds on the memory of calls that have not arrived completely. Some calls of each
    /// connection are free, so that the calls of others do not refuse a commit whose body follows
    /// its head a moment later.
    pub const HEADS: Self = Self { free: FREE_CALLS * CALL_BYTES, ..Self::REQUESTS };
}

/// The bytes of one kind that all connections may hold together.
#[derive(Debug)]
pub struct ServerBudget {
    settings: BudgetSettings,
    held: AtomicUsize,
    max: AtomicUsize,
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
    /// The memory of calls that have not arrived completely.
    pub heads: Arc<ServerBudget>,
    /// The bytes of answers to lists.
    pub answers: Arc<ServerBudget>,
}

/// The budgets of one connection.
#[derive(Clone, Debug)]
pub struct ConnectionBudgets {
    /// The bytes of requests.
    pub requests: Arc<ConnectionBudget>,
    /// The memory of calls that have not arrived completely.
    pub heads: Arc<ConnectionBudget>,
    /// The bytes of answers to lists.
    pub answers: Arc<ConnectionBudget>,
}

/// The bytes that one request or answer holds; dropping it returns them.
#[derive(Debug)]
pub struct Charge {
    bytes: AtomicUsize,
    connection: Arc<ConnectionBudget>,
    /// The key in `untaken`; `None` unless the charge is of an answer that is ready.
    untaken: Option<u64>,
}

/// The refusal of bytes that would exceed a bound, with the name of the bound's setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetExceeded(pub &'static str);

impl ServerBudget {
    /// A budget of `max` bytes, of which one connection may hold `max_of_connection`.
    pub fn new(settings: BudgetSettings, max: usize, max_of_connection: usize) -> Arc<Self> {
        let (max, max_of_connection) = (max.into(), max_of_connection.into());
        Arc::new(Self { settings, held: AtomicUsize::new(0), max, max_of_connection, freed: Notify::new() })
    }

    /// Changes the bounds. Bytes that are held stay.
    pub fn set_bounds(&self, max: usize, max_of_connection: usize) {
        self.max.store(max, Ordering::Relaxed);
        self.max_of_connection.store(max_of_connection, Ordering::Relaxed);
        self.freed.notify_waiters();
    }

    /// The bytes that all connections hold now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl ServerBudgets {
    /// The budgets with the bounds that the limits set.
    pub fn new(limits: &Limits) -> Self {
        let budget = |settings| ServerBudget::new(settings, usize::MAX, usize::MAX);
        let (requests, heads) = (budget(BudgetSettings::REQUESTS), budget(BudgetSettings::HEADS));
        let budgets = Self { requests, heads, answers: budget(BudgetSettings::ANSWERS) };
        budgets.set_limits(limits);
        budgets
    }

    /// Changes the bounds.
    pub fn set_limits(&self, limits: &Limits) {
        for budget in [&self.requests, &self.heads] {
            budget.set_bounds(mib(limits.request_mib), mib(limits.request_mib_per_connection));
        }
        self.answers.set_bounds(mib(limits.answer_mib), mib(limits.answer_mib_per_connection));
    }

    /// The budgets of a new connection.
    pub fn of_connection(&self) -> ConnectionBudgets {
        let of_connection = |budget: &Arc<ServerBudget>| ConnectionBudget::new(budget.clone());
        let (requests, heads) = (of_connection(&self.requests), of_connection(&self.heads));
        ConnectionBudgets { requests, heads, answers: of_connection(&self.answers) }
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
    /// The charge of a new request or answer, without any byte.
    pub fn new(connection: Arc<ConnectionBudget>) -> Self {
        Self { bytes: AtomicUsize::new(0), connection, untaken: None }
    }

    /// Charges `bytes` more. If no other charge of the budget holds bytes, they pass however low
    /// the bounds are.
    ///
    /// # Errors
    /// The connection or the server would hold more than it may. The charge stays as it was.
    pub fn add(&self, bytes: usize) -> Result<(), BudgetExceeded> {
        let ConnectionBudget { held, server, .. } = &*self.connection;
        if !self.fits(held, bytes, server.max_of_connection.load(Ordering::Relaxed)) {
            return Err(BudgetExceeded(server.settings.of_connection));
        }
        let is_free = held.load(Ordering::Relaxed) <= server.settings.free;
        let max = if is_free { usize::MAX } else { server.max.load(Ordering::Relaxed) };
        if !self.fits(&server.held, bytes, max) {
            held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(BudgetExceeded(server.settings.of_server));
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Charges what is missing to `bytes`.
    ///
    /// # Errors
    /// Those of [`add`](Self::add).
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

    /// Replaces the estimate by the size of an answer that is ready for the client to take.
    pub fn ready(&mut self, bytes: usize) {
        let ConnectionBudget { held, server, next_untaken, .. } = &*self.connection;
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        for held in [held, &server.held] {
            held.fetch_add(bytes, Ordering::Relaxed);
            held.fetch_sub(before, Ordering::Relaxed);
        }
        server.freed.notify_waiters();
        let key = next_untaken.fetch_add(1, Ordering::Relaxed);
        self.connection.with_untaken(|untaken| untaken.insert(key, Instant::now()));
        self.untaken = Some(key);
    }

    /// Adds `bytes` to `held` and returns true if the sum is at most `max`, or if no other charge
    /// holds bytes.
    fn fits(&self, held: &AtomicUsize, bytes: usize, max: usize) -> bool {
        let before = held.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= max || before <= self.bytes.load(Ordering::Relaxed);
        if !fits {
            held.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        self.connection.held.fetch_sub(bytes, Ordering::Relaxed);
        self.connection.server.held.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(key) = self.untaken {
            self.connection.with_untaken(|untaken| untaken.remove(&key));
        }
        if bytes > 0 {
            self.connection.server.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_bounded_for_the_connection_and_for_the_server() {
        let server = ServerBudget::new(BudgetSettings::REQUESTS, 100, 60);
        let [one, two] = [(); 2].map(|()| ConnectionBudget::new(server.clone()));
        let first = Charge::new(one.clone());
        assert_eq!(first.add(50), Ok(()));
        assert_eq!(Charge::new(one.clone()).add(11), Err(BudgetExceeded("limits.request_mib_per_connection")));
        assert_eq!(Charge::new(one).add(10), Ok(()));
        let second = Charge::new(two);
        assert_eq!(second.add(51), Err(BudgetExceeded("limits.request_mib")));
        assert_eq!(second.add(50), Ok(()));
        assert_eq!(server.held(), 100);
        drop(first);
        assert_eq!(second.add(10), Ok(()));
        drop(second);
        assert_eq!(server.held(), 0);
    }

    #[test]
    fn a_request_alone_passes_any_bound() {
        let server = ServerBudget::new(BudgetSettings::REQUESTS, 10, 10);
        let connection = ConnectionBudget::new(server.clone());
        let alone = Charge::new(connection.clone());
        assert_eq!((alone.add(8), alone.add(100)), (Ok(()), Ok(())));
        assert!(Charge::new(connection).add(1).is_err());
        drop(alone);
        assert_eq!(server.held(), 0);
    }

    #[tokio::test]
    async fn an_answer_waits_for_room() {
        let server = ServerBudget::new(BudgetSettings::ANSWERS, 100, 60);
        let connection = ConnectionBudget::new(server.clone());
        let (mut first, second) = (Charge::new(connection.clone()), Charge::new(connection));
        first.add(50).unwrap();
        assert_eq!(second.add(50), Err(BudgetExceeded("limits.answer_mib_per_connection")));
        let (reserved, ()) = tokio::join!(second.reserve(50), async { first.ready(10) });
        assert_eq!((reserved, server.held()), (Ok(()), 60));
        drop((first, second));
        assert_eq!(server.held(), 0);
    }

    #[tokio::test]
    async fn an_answer_that_is_not_taken_stalls_its_connection() {
        let connection = ConnectionBudget::new(ServerBudget::new(BudgetSettings::ANSWERS, 100, 60));
        let timeout = Duration::from_millis(50);
        let mut taken = Charge::new(connection.clone());
        taken.ready(10);
        drop(taken);
        let mut left = Charge::new(connection.clone());
        let since = Instant::now();
        left.ready(10);
        connection.stalled(timeout).await;
        assert!(since.elapsed() >= timeout);
    }
}

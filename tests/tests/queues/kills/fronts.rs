//! The fronts of a run: calls of the servers, and transactions of the user's database with the outbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use leasehold_client::{Client, NewRequest};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, Interval, interval};
use tokio_postgres::NoTls;
use uuid::{Builder, Uuid};

use super::history::{Answer, Lane, QUEUES, Source, Submitted, now};

/// The pause between two submits of a front.
const PACE: Duration = Duration::from_millis(25);
/// The number of keys of a queue that fronts use at a time.
const KEYS: u64 = 8;
/// The time after which fronts leave a key, in nanoseconds. New keys have new creates.
const KEY_LIFE: u64 = 1_500_000_000;
/// The longest time of a submit, after which the front calls another server.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The longest time for which a front tries to submit or to connect.
const PATIENCE: Duration = Duration::from_secs(60);

/// The state that all fronts share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) servers: Vec<String>,
    pub(super) database: String,
    /// The number of submits that each server has answered.
    pub(super) answered: Vec<AtomicU64>,
    /// The number of transactions that have committed.
    pub(super) committed: AtomicU64,
    pub(super) is_stopped: AtomicBool,
}

/// A front that submits random requests, and keeps what it was told.
pub(super) struct Front {
    shared: Arc<Shared>,
    rng: SmallRng,
    pace: Interval,
    begun: u64,
    submitted: Vec<Submitted>,
}

impl Front {
    pub(super) fn new(shared: Arc<Shared>, seed: u64) -> Self {
        let rng = SmallRng::seed_from_u64(seed);
        Self { shared, rng, pace: interval(PACE), begun: now(), submitted: Vec::new() }
    }

    async fn goes_on(&mut self) -> bool {
        self.pace.tick().await;
        !self.shared.is_stopped.load(Ordering::Relaxed)
    }

    fn queue(&mut self) -> &'static str {
        QUEUES[self.rng.random_range(0..QUEUES.len())]
    }

    fn key(&mut self) -> String {
        let first = (now() - self.begun) / KEY_LIFE;
        format!("key-{}", self.rng.random_range(first..first + KEYS))
    }

    fn attempts(&mut self) -> u32 {
        [2, 4, 6][self.rng.random_range(0..3)]
    }

    /// Submits by calls of the servers, until the load ends.
    pub(super) async fn call(mut self) -> Vec<Submitted> {
        let client = |server: &String| Client::builder(server).timeout(TIMEOUT).build().unwrap();
        let clients: Vec<_> = self.shared.servers.iter().map(client).collect();
        while self.goes_on().await {
            let queue = self.queue();
            let (keys, requests): (Vec<_>, Vec<_>) = (0..self.rng.random_range(1..4)).map(|_| self.request()).unzip();
            let called = now();
            let mut answers = self.submit(&clients, queue, &requests).await;
            if self.rng.random_ratio(1, 8) {
                let again = self.submit(&clients, queue, &requests).await;
                let is_other = again.is_some() && answers.is_some() && again != answers;
                assert!(!is_other, "Q09: a repeated submit has another answer");
                answers = answers.or(again);
            }
            for (at, (key, request)) in keys.into_iter().zip(&requests).enumerate() {
                let answer = answers.as_ref().map_or(Answer::Unknown, |ids| Answer::Accepted(ids[at]));
                self.keep(request.id(), (queue.to_owned(), key), Source::Call, called, answer);
            }
        }
        self.submitted
    }

    /// Returns a random request with its key.
    fn request(&mut self) -> (String, NewRequest) {
        let (key, body) = (self.key(), vec![7; self.rng.random_range(0..200)]);
        let is_create = self.rng.random_ratio(1, 10);
        let new = if is_create { NewRequest::create(&key, body) } else { NewRequest::update(&key, body) };
        let id = self.id();
        (key, new.with_id(id).with_max_attempts(self.attempts()).with_priority(self.rng.random_range(0..10)))
    }

    /// Returns a new id: a random one, or one that begins with the time, as those of clients do.
    fn id(&mut self) -> Uuid {
        let random = self.rng.random::<[u8; 16]>();
        let since_1970 = UNIX_EPOCH.elapsed().unwrap();
        let millis = u64::try_from(since_1970.as_millis()).unwrap();
        match self.rng.random_ratio(1, 4) {
            true => Uuid::from_bytes(random),
            false => Builder::from_unix_timestamp_millis(millis, random.first_chunk().unwrap()).into_uuid(),
        }
    }

    fn keep(&mut self, id: Uuid, lane: Lane, source: Source, called: u64, answer: Answer) {
        self.submitted.push(Submitted { id, lane, source, called, answered: now(), answer });
    }

    /// Submits requests, usually until a server answers. Returns the ids that it answers; `None` if the front has
    /// given up.
    async fn submit(&mut self, clients: &[Client], queue: &str, requests: &[NewRequest]) -> Option<Vec<Uuid>> {
        let (mut ticks, deadline) = (interval(PACE), Instant::now() + PATIENCE);
        while Instant::now() < deadline {
            ticks.tick().await;
            let server = self.rng.random_range(0..clients.len());
            match clients[server].submit(queue, requests).await {
                Ok(submitted) => {
                    self.shared.answered[server].fetch_add(1, Ordering::Relaxed);
                    return Some(submitted.iter().map(|submitted| submitted.id).collect());
                }
                Err(_) if self.rng.random_ratio(1, 4) => return None,
                Err(_) => {}
            }
        }
        panic!("no server takes a submit within {PATIENCE:?}")
    }

    /// Returns a connection to the user's database, once it answers.
    async fn connect(&self) -> tokio_postgres::Client {
        let (mut ticks, deadline) = (interval(PACE), Instant::now() + PATIENCE);
        while Instant::now() < deadline {
            ticks.tick().await;
            if let Ok((database, connection)) = tokio_postgres::connect(&self.shared.database, NoTls).await {
                tokio::spawn(connection);
                return database;
            }
        }
        panic!("the database does not answer within {PATIENCE:?}")
    }

    /// Submits in transactions, until the load ends.
    pub(super) async fn commit(mut self) -> Vec<Submitted> {
        while self.goes_on().await {
            let mut database = self.connect().await;
            while self.goes_on().await && self.transaction(&mut database).await.is_ok() {}
        }
        self.submitted
    }

    /// Writes rows of the user's table and submits their requests, in one transaction.
    async fn transaction(&mut self, database: &mut tokio_postgres::Client) -> Result<(), tokio_postgres::Error> {
        let called = now();
        let orders: Vec<_> =
            (0..self.rng.random_range(1..4)).map(|_| (self.id(), (self.queue().to_owned(), self.key()))).collect();
        let savepoint = self.rng.random_ratio(1, 6);
        let is_given_up = self.rng.random_ratio(1, 5);
        let mut transaction = database.transaction().await?;
        for (id, lane) in &orders {
            order(&transaction, *id, lane, self.attempts()).await?;
        }
        let inner = (self.id(), (self.queue().to_owned(), self.key()));
        if savepoint {
            let nested = transaction.savepoint("inner").await?;
            order(&nested, inner.0, &inner.1, self.attempts()).await?;
            nested.rollback().await?;
            self.keep(inner.0, inner.1, Source::Outbox, called, Answer::RolledBack);
        }
        let ended = if is_given_up { transaction.rollback().await } else { transaction.commit().await };
        for (id, lane) in orders {
            let answer = match (is_given_up, &ended) {
                (true, _) => Answer::RolledBack,
                (false, Ok(())) => Answer::Accepted(id),
                (false, Err(_)) => Answer::Unknown,
            };
            self.keep(id, lane, Source::Outbox, called, answer);
        }
        self.shared.committed.fetch_add(u64::from(!is_given_up && ended.is_ok()), Ordering::Relaxed);
        ended
    }
}

/// Writes a row of the user's table, and submits its request.
async fn order(
    transaction: &tokio_postgres::Transaction<'_>,
    id: Uuid,
    (queue, key): &Lane,
    max_attempts: u32,
) -> Result<(), tokio_postgres::Error> {
    transaction.execute("INSERT INTO orders (id) VALUES ($1)", &[&id]).await?;
    let attempts = i32::try_from(max_attempts).unwrap();
    let submit = "SELECT leasehold_submit($1, $2, max_attempts => $3, id => $4)";
    transaction.query(submit, &[queue, key, &attempts, &id]).await.map(drop)
}

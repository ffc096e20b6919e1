//! A worker of a run: a process of its own, which the test kills, and which kills itself between its COMMIT and its
//! settle.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_client::{Batch, Client, Error, LockSession, SessionTerms, TakeTerms};
use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_proto::leasehold::queues::v1::queue_service_client::QueueServiceClient;
use leasehold_tests::wire::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio_postgres::NoTls;
use tonic::transport::Endpoint;
use uuid::Uuid;
use wire::settle_request::Outcome as Settle;

use super::history::{EXACT, Event, Outcome, QUEUES, now};

/// The environment variable with the [`Plan`] of a worker. The test runs itself with it.
pub(super) const PLAN: &str = "LEASEHOLD_TESTS_KILLED_WORKER";

/// Terms under which what a dead worker held soon comes back.
const TERMS: SessionTerms = SessionTerms { duration: Duration::from_secs(3), grace: Duration::from_secs(1) };

/// The work of a batch: one row for each request that is not done. The guard refuses a passed fence.
const WORK: &str = "
    INSERT INTO effects (request_id, queue, key, fence)
    SELECT id, $2, $3, $4 FROM unnest($1::uuid[]) WITH ORDINALITY AS batch (id, place) WHERE id <> ALL ($5::uuid[])
    ORDER BY place ON CONFLICT DO NOTHING";

/// The order to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) server: String,
    pub(super) database: String,
    pub(super) log: PathBuf,
    /// Once this file exists, the worker neither fails nor kills itself.
    pub(super) calm: PathBuf,
    /// The queue in which the worker kills itself.
    pub(super) dies_in: String,
    pub(super) seed: u64,
}

struct Worker {
    plan: Plan,
    client: Client,
    log: File,
    rng: RefCell<SmallRng>,
}

/// Runs a worker until it is killed, if the environment says that this process is one.
pub(super) fn work_if_told() {
    let Ok(plan) = std::env::var(PLAN) else { return };
    let plan: Plan = serde_json::from_str(&plan).unwrap();
    std::thread::spawn(|| {
        // The test closes the pipe, however it ends.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0)
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let log = OpenOptions::new().create(true).append(true).open(&plan.log).unwrap();
        let rng = RefCell::new(SmallRng::seed_from_u64(plan.seed));
        let client = Client::builder(&plan.server).build().unwrap();
        Worker { plan, client, log, rng }.run().await
    })
}

impl Worker {
    async fn run(self) {
        loop {
            let open = async || self.client.lock_session(TERMS).await.ok();
            let session = eventually("a session is opened", open).await.unwrap();
            let [direct, limited, exact] = QUEUES;
            tokio::join!(self.work(&session, direct), self.work(&session, limited), self.work(&session, exact));
        }
    }

    /// Works on the batches of a queue until the session is lost.
    async fn work(&self, session: &LockSession, queue: &'static str) {
        let terms = TakeTerms { credit: 1 + 3 * u32::from(queue == EXACT), max_requests: self.roll(1..20) };
        let mut batches = session.take(queue, terms);
        let mut database = None;
        loop {
            match batches.next().await {
                Ok(batch) => Held { worker: self, session, queue, batch }.work(&mut database).await,
                Err(Error::SessionLost) => return,
                Err(_) => batches = session.take(queue, terms),
            }
        }
    }

    fn roll(&self, range: std::ops::Range<u32>) -> u32 {
        self.rng.borrow_mut().random_range(range)
    }

    fn is_calm(&self) -> bool {
        self.plan.calm.exists()
    }

    /// Writes a line at once, so that it outlives the process.
    fn note(&self, event: &Event) {
        let line = serde_json::to_string(event).unwrap() + "\n";
        (&self.log).write_all(line.as_bytes()).unwrap();
    }

    async fn connect(&self) -> Option<tokio_postgres::Client> {
        let (client, connection) = tokio_postgres::connect(&self.plan.database, NoTls).await.ok()?;
        tokio::spawn(connection);
        Some(client)
    }
}

/// A batch that the worker holds.
struct Held<'a> {
    worker: &'a Worker,
    session: &'a LockSession,
    queue: &'static str,
    batch: Batch,
}

impl Held<'_> {
    async fn work(&self, database: &mut Option<tokio_postgres::Client>) {
        let requests = self.batch.requests().iter().map(|request| (request.id, request.attempt)).collect();
        let (queue, key, fence) = (self.queue.to_owned(), self.batch.key().to_owned(), self.batch.fence());
        self.worker.note(&Event::Took { at: now(), queue, key, fence, requests });
        match self.worker.roll(0..100) {
            0..8 if !self.worker.is_calm() => self.settle(Outcome::Failed).await,
            8..14 if !self.worker.is_calm() => self.settle(Outcome::GivenBack).await,
            _ => self.complete(database).await,
        }
    }

    async fn complete(&self, database: &mut Option<tokio_postgres::Client>) {
        let mut connected = match database.take() {
            Some(client) => client,
            None => eventually("the database answers", async || self.worker.connect().await).await.unwrap(),
        };
        // The guard has refused the fence, or the database has crashed: then the outcome of a COMMIT may be unknown.
        if self.write(&mut connected).await.is_err() {
            return self.settle(Outcome::GivenBack).await;
        }
        *database = Some(connected);
        if self.worker.plan.dies_in == self.queue && self.worker.roll(0..12) == 0 && !self.worker.is_calm() {
            kill(Pid::this(), Signal::SIGKILL).unwrap();
        }
        // The relay settles the others of the queue.
        if self.queue != EXACT || self.worker.roll(0..2) == 0 {
            self.settle(Outcome::Completed).await;
        }
    }

    /// Does the work of the batch in one transaction. In the queue [`EXACT`] it also completes the batch.
    async fn write(&self, database: &mut tokio_postgres::Client) -> Result<(), tokio_postgres::Error> {
        let ids: Vec<_> = self.batch.requests().iter().map(|request| request.id).collect();
        let (queue, key, fence) = (self.queue, self.batch.key(), i64::try_from(self.batch.fence()).unwrap());
        let transaction = database.transaction().await?;
        let remaining = self.session.session_remaining().as_secs_f64();
        let guard = "SELECT leasehold_guard($1, $2, $3 * interval '1 second')";
        transaction.query(guard, &[&format!("{queue}/{key}"), &fence, &remaining]).await?;
        let mut done = Vec::<Uuid>::new();
        if queue == EXACT {
            done = transaction.query_one("SELECT leasehold_done($1, $2, $3)", &[&queue, &key, &ids]).await?.get(0);
        }
        transaction.execute(WORK, &[&ids, &queue, &key, &fence, &done]).await?;
        if queue == EXACT {
            let complete = "SELECT leasehold_complete($1, $2, $3, $4, $5)";
            transaction.query(complete, &[&self.session.id(), &queue, &key, &fence, &ids]).await?;
        }
        transaction.commit().await
    }

    /// Settles the batch, in some cases twice, and once in a while in another way as well, which must be refused (Q10).
    async fn settle(&self, outcome: Outcome) {
        let fence = self.batch.fence();
        self.worker.note(&Event::Settling { at: now(), fence, outcome });
        let pause = Duration::from_millis(self.worker.roll(0..100).into());
        let settle = async || match outcome {
            Outcome::Completed => self.batch.complete().await,
            Outcome::Failed => self.batch.fail(Some(pause)).await,
            Outcome::GivenBack => self.batch.give_back().await,
        };
        if settle().await.is_err() {
            return;
        }
        self.worker.note(&Event::Settled { fence });
        if self.worker.roll(0..4) == 0 {
            // The repeated call is refused if the lane was taken and settled since.
            let _ = settle().await;
        }
        if self.worker.roll(0..8) == 0 && self.contradict(outcome).await.is_ok() {
            self.worker.note(&Event::Contradicted { fence });
        }
    }

    /// Sends another outcome in a single call.
    async fn contradict(&self, outcome: Outcome) -> Result<(), tonic::Status> {
        let other = if outcome == Outcome::Completed { Settle::Failed } else { Settle::Completed };
        let request = wire::SettleRequest {
            session_id: self.session.id().as_bytes().to_vec(),
            queue: self.queue.to_owned(),
            key: self.batch.key().to_owned(),
            fence: self.batch.fence(),
            outcome: other.into(),
            retry_micros: None,
        };
        let channel = Endpoint::from_shared(self.worker.plan.server.clone()).unwrap().connect_lazy();
        QueueServiceClient::new(channel).settle(request).await.map(drop)
    }
}

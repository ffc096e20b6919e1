//! The rows of queues: requests that are submitted, taken and completed in a second, one by one or in
//! batches of 50 of one key. The peer is the SQL of seed 001, which pgbench has prepared.
//!
//! Each client is a front and a worker: it submits, takes what is ready by a stream as our clients do, and completes it.

use anyhow::{Context as _, Result, bail};
use leasehold_client::Stub;
use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_proto::leasehold::queues::v1::settle_request::Outcome;
use leasehold_proto::leasehold::queues::v1::take_response::News;
use leasehold_proto::leasehold::sessions::v1::OpenSessionRequest;
use tonic::Streaming;

use super::connection::Channel;
use super::load::{CLAIMS, Load, Peer, median};
use super::ours::Ours;
use super::pgbench::{self, Protocol};
use super::postgres;
use super::row::{Better, Heading, Row};
use super::saves_vs_etcd::round;
use super::server::Contender;
use super::{Context, LoadArguments};

/// The requests of a batch.
const BATCH: usize = 50;
const QUEUE: &str = "bench";
/// The duration of the sessions, longer than a measurement.
const HOUR_MICROS: u64 = 3_600_000_000;
/// The bytes of a body, as many as an id and a few columns need.
const BODY_BYTES: usize = 100;

const SINGLE: Heading = Heading { name: "queue-vs-pgbench", unit: "requests/s", better: Better::Higher, target: 2.0 };
const BATCHES: Heading = Heading { name: "queue-batches-vs-pgbench", target: 6.0, ..SINGLE };
const EMBEDDED: Heading = Heading { name: "queue-embedded", target: 1.0, ..SINGLE };
const EMBEDDED_BATCHES: Heading = Heading { name: "queue-embedded-batches", target: 1.0, ..SINGLE };
/// The requests a second that are asked of the embedded store, in place of a peer.
const ASKED: f64 = 10_000.0;
const ASKED_IN_BATCHES: f64 = 50_000.0;

/// Measures requests one by one on the embedded store.
///
/// # Errors
/// The server cannot be measured.
pub(crate) async fn embedded(context: &Context) -> Result<Row> {
    Ok(EMBEDDED.row(rate::<OnEmbedded<1>>(&context.load, 1).await?, ASKED))
}

/// Measures batches on the embedded store.
///
/// # Errors
/// The server cannot be measured.
pub(crate) async fn embedded_batches(context: &Context) -> Result<Row> {
    Ok(EMBEDDED_BATCHES.row(rate::<OnEmbedded<BATCH>>(&context.load, BATCH).await?, ASKED_IN_BATCHES))
}

/// Measures requests one by one on PostgreSQL, beside pgbench.
///
/// # Errors
/// One of the contenders cannot be measured.
pub(crate) async fn vs_pgbench(context: &Context) -> Result<Row> {
    beside_pgbench::<1>(SINGLE, "queue-single.sql", &context.load).await
}

/// Measures batches on PostgreSQL, beside pgbench.
///
/// # Errors
/// One of the contenders cannot be measured.
pub(crate) async fn batches_vs_pgbench(context: &Context) -> Result<Row> {
    beside_pgbench::<BATCH>(BATCHES, "queue-batch.sql", &context.load).await
}

async fn rate<C: Contender>(load: &LoadArguments, requests: usize) -> Result<f64> {
    let mut rounds = Vec::new();
    for number in 1..=load.rounds {
        rounds.push(round::<C>(number, load).await?);
    }
    Ok(Load::median(&rounds).context("no round was run")?.saves_per_second * requests as f64)
}

async fn beside_pgbench<const REQUESTS: usize>(heading: Heading, script: &str, load: &LoadArguments) -> Result<Row> {
    beside::<REQUESTS>(heading, load, async |database| {
        postgres::execute(database, include_str!("pgbench/queue.sql")).await?;
        pgbench::rate(database, script, Protocol::Prepared, load).await
    })
    .await
}

/// Measures batches of `REQUESTS` requests on PostgreSQL beside a peer, in turn. `peer` returns how many such batches
/// the peer submits, takes and completes in a second, in an empty database of this name.
///
/// # Errors
/// One of the contenders cannot be measured.
pub(crate) async fn beside<const REQUESTS: usize>(
    heading: Heading,
    load: &LoadArguments,
    peer: impl AsyncFn(&str) -> Result<f64>,
) -> Result<Row> {
    xtask::needs::install(xtask::needs::FOR_POSTGRES)?;
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    for number in 1..=load.rounds {
        // Each has a cluster of its own, so that none pays for what the other has left to the vacuum and the checkpoints.
        ours.push(round::<OnPostgres<REQUESTS>>(number, load).await?);
        postgres::stop().await;
        let rate = peer(&postgres::database().await?).await?;
        postgres::stop().await;
        eprintln!("round {number}: the peer of {}: {rate:.0} times a second", heading.name);
        peers.push(rate);
    }
    let ours = Load::median(&ours).context("no round was run")?.saves_per_second;
    let peer = median(&peers, |rate| *rate).context("no round was run")?;
    let requests = REQUESTS as f64;
    Ok(heading.row(ours * requests, peer * requests))
}

/// A server on the embedded store. Its clients submit `REQUESTS` requests at a time.
pub(crate) struct OnEmbedded<const REQUESTS: usize>(pub(crate) Ours);

/// A server on PostgreSQL.
struct OnPostgres<const REQUESTS: usize>(Ours);

impl<const REQUESTS: usize> Contender for OnEmbedded<REQUESTS> {
    const NAME: &'static str = "our queue";
    type Client = Worker<REQUESTS>;

    async fn start() -> Result<Self> {
        Ours::start().await.map(Self)
    }

    async fn connect(&self) -> Result<Self::Client> {
        Ok(Worker::on(self.0.stub().await?))
    }

    fn share(client: &Self::Client) -> Self::Client {
        Worker::on(client.stub.clone())
    }

    async fn stop(self) -> Result<()> {
        self.0.stop().await
    }
}

impl<const REQUESTS: usize> Contender for OnPostgres<REQUESTS> {
    const NAME: &'static str = "our queue on PostgreSQL";
    type Client = Worker<REQUESTS>;

    async fn start() -> Result<Self> {
        postgres::server().await.map(Self)
    }

    async fn connect(&self) -> Result<Self::Client> {
        Ok(Worker::on(self.0.stub().await?))
    }

    fn share(client: &Self::Client) -> Self::Client {
        Worker::on(client.stub.clone())
    }

    async fn stop(self) -> Result<()> {
        self.0.stop().await
    }
}

/// A front and worker with a session of its own, opened by its first take. It submits `REQUESTS` requests of one key at a
/// time.
pub(crate) struct Worker<const REQUESTS: usize> {
    stub: Stub<Channel>,
    session: Vec<u8>,
    is_open: bool,
    // The stream of what the worker takes; `None` before its first batch.
    batches: Option<Streaming<wire::TakeResponse>>,
}

impl<const REQUESTS: usize> Worker<REQUESTS> {
    pub(crate) fn on(stub: Stub<Channel>) -> Self {
        Self { stub, session: new_id(), is_open: false, batches: None }
    }

    /// Opens the session, if it is not open.
    async fn open(&mut self) -> Result<()> {
        if self.is_open {
            return Ok(());
        }
        let session_id = self.session.clone();
        let request = OpenSessionRequest { session_id, duration_micros: HOUR_MICROS, grace_micros: HOUR_MICROS };
        self.stub.open_session(request).await.context("open failed")?;
        self.is_open = true;
        Ok(())
    }

    /// Submits requests of a new key.
    ///
    /// # Errors
    /// The server refuses them.
    pub(crate) async fn submit(&mut self) -> Result<()> {
        submit_to(&mut self.stub, &new_key(), REQUESTS).await
    }

    /// Begins the stream, by which the worker holds `credit` batches at a time. With 0 it has only those that are on
    /// their way, and ends.
    async fn begin_takes(&mut self, credit: u32) -> Result<Streaming<wire::TakeResponse>> {
        self.open().await?;
        let request = wire::TakeRequest {
            session_id: self.session.clone(),
            queue: QUEUE.into(),
            credit,
            held_fences: Vec::new(),
            max_requests: 0,
        };
        Ok(self.stub.take_batches(request).await.context("take failed")?.into_inner())
    }

    /// Takes a batch by the stream, and waits until one is ready.
    ///
    /// # Errors
    /// The server refuses the take.
    pub(crate) async fn take(&mut self) -> Result<wire::Batch> {
        loop {
            let mut batches = match self.batches.take() {
                Some(batches) => batches,
                None => self.begin_takes(1).await?,
            };
            match batches.message().await.context("take failed")?.and_then(|message| message.news) {
                Some(News::Batch(batch)) => {
                    self.batches = Some(batches);
                    return Ok(batch);
                }
                Some(News::Moving(_)) | None => {}
            }
        }
    }

    /// Takes at most `max_requests` requests of one key by a call, or 100 for 0. One is ready, since as many are submitted
    /// as are taken; another client may be faster at each lane.
    ///
    /// # Errors
    /// No lane is ready, or the server refuses the take.
    pub(crate) async fn take_now(&mut self, max_requests: u32) -> Result<wire::Batch> {
        self.open().await?;
        let request = wire::TakeNowRequest {
            session_id: self.session.clone(),
            queue: QUEUE.into(),
            take_id: new_id(),
            max_requests,
        };
        for _ in 0..1_000 {
            let taken = self.stub.take_batch(request.clone()).await.context("take failed")?.into_inner();
            if let Some(batch) = taken.batch {
                return Ok(batch);
            }
        }
        bail!("no lane is ready, though each client has submitted one")
    }

    /// Completes what was taken.
    ///
    /// # Errors
    /// The server refuses the settle.
    pub(crate) async fn complete(&mut self, key: String, fence: u64) -> Result<()> {
        self.settle(key, fence, Outcome::Completed).await
    }

    async fn settle(&mut self, key: String, fence: u64, outcome: Outcome) -> Result<()> {
        let request = wire::SettleRequest {
            session_id: self.session.clone(),
            queue: QUEUE.into(),
            key,
            fence,
            outcome: outcome.into(),
            retry_micros: None,
        };
        self.stub.settle_batch(request).await.context("settle failed")?;
        Ok(())
    }
}

/// Submits new requests in lanes of `each`, with one call.
///
/// # Errors
/// The server refuses them.
pub(crate) async fn submit_lanes(stub: &mut Stub<Channel>, lanes: usize, each: usize) -> Result<()> {
    submit(stub, (0..lanes).flat_map(|_| requests(&new_key(), each)).collect()).await
}

/// Submits new requests of a key, with one call.
///
/// # Errors
/// The server refuses them.
pub(crate) async fn submit_to(stub: &mut Stub<Channel>, key: &str, number: usize) -> Result<()> {
    submit(stub, requests(key, number)).await
}

async fn submit(stub: &mut Stub<Channel>, requests: Vec<wire::NewRequest>) -> Result<()> {
    stub.submit_requests(wire::SubmitRequest { queue: QUEUE.into(), requests }).await.context("submit failed")?;
    Ok(())
}

/// Returns new requests of a key.
fn requests(key: &str, number: usize) -> Vec<wire::NewRequest> {
    let request = || wire::NewRequest {
        request_id: new_id(),
        key: key.into(),
        kind: wire::RequestKind::Update.into(),
        max_attempts: 5,
        body: vec![7; BODY_BYTES],
        ..Default::default()
    };
    (0..number).map(|_| request()).collect()
}

/// Returns a random key.
fn new_key() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Returns an id as our Rust client makes those of requests: the time first.
fn new_id() -> Vec<u8> {
    uuid::Uuid::now_v7().as_bytes().to_vec()
}

impl<const REQUESTS: usize> Peer for Worker<REQUESTS> {
    type Lease = (String, u64);

    async fn begin(&mut self, _: &[String; CLAIMS]) -> Result<Self::Lease> {
        self.submit().await?;
        let batch = self.take().await?;
        Ok((batch.key, batch.fence))
    }

    async fn commit(&mut self, (key, fence): Self::Lease) -> Result<()> {
        self.complete(key, fence).await
    }

    async fn end(mut self) -> Result<()> {
        // The server may have taken a batch for this worker that another one's submit has made, which waits for it.
        self.batches = None;
        let mut batches = self.begin_takes(0).await?;
        while let Some(message) = batches.message().await.context("stop failed")? {
            if let Some(News::Batch(batch)) = message.news {
                self.settle(batch.key, batch.fence, Outcome::GivenBack).await?;
            }
        }
        Ok(())
    }
}

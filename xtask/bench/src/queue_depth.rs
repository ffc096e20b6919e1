//! The rows `queue-take-waiting` and `queue-take-settled`: the time of a take from the embedded store while many
//! requests wait, and after as many were settled. The peer is a queue in which few wait.

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;

use super::LoadArguments;
use super::connection::Channel;
use super::load::{CLAIMS, Peer, drive};
use super::ours::Ours;
use super::queues::{Worker, submit_lanes};
use super::row::{Better, Heading, Row};
use super::saves_vs_etcd::schedule;
use super::server::Contender;
use leasehold_client::Stub;

const WAITING: Heading = Heading { name: "queue-take-waiting", unit: "µs", better: Better::Lower, target: 0.67 };
const SETTLED: Heading = Heading { name: "queue-take-settled", ..WAITING };

const FEW: u64 = 10_000;
/// The requests of each lane. Then the few requests are in more lanes than there are clients, and the many can be
/// settled in some minutes.
const EACH: u64 = 20;
/// The lanes that are submitted with one call, which may have 1,000 requests.
const LANES: u64 = 50;
/// The clients that fill and drain the queue.
const CLIENTS: u64 = 8;
const WORKERS: u64 = 64;

/// The median times of a take.
#[derive(Debug)]
pub(crate) struct Depth {
    few_us: f64,
    waiting_us: f64,
    settled_us: f64,
}

impl Depth {
    pub(crate) fn waiting_row(&self) -> Row {
        WAITING.row(self.waiting_us, self.few_us)
    }

    pub(crate) fn settled_row(&self) -> Row {
        SETTLED.row(self.settled_us, self.few_us)
    }
}

/// Measures takes while few requests wait, while many wait, and once the many are settled.
///
/// # Errors
/// The server refuses a call.
pub(crate) async fn measure(load: &LoadArguments) -> Result<Depth> {
    let server = Ours::start().await?;
    fill(&server.stub().await?, FEW).await?;
    let few_us = take_us(&server, load).await?;
    let many = load.waiting.saturating_sub(FEW);
    for tenth in 1..=10 {
        fill(&server.stub().await?, many / 10).await?;
        eprintln!("{} requests wait", FEW + many / 10 * tenth);
    }
    let waiting_us = take_us(&server, load).await?;
    drain(&server, many / EACH).await?;
    let settled_us = take_us(&server, load).await?;
    server.stop().await?;
    Ok(Depth { few_us, waiting_us, settled_us })
}

/// Submits requests, in lanes of [`EACH`].
async fn fill(stub: &Stub<Channel>, requests: u64) -> Result<()> {
    let calls = requests / (LANES * EACH);
    let share = |client| calls / CLIENTS + u64::from(client < calls % CLIENTS);
    let submit = |client| {
        let (mut stub, calls) = (stub.clone(), share(client));
        async move {
            for _ in 0..calls {
                submit_lanes(&mut stub, LANES as usize, EACH as usize).await?;
            }
            Ok(())
        }
    };
    together((0..CLIENTS).map(submit)).await
}

/// Takes and completes whole lanes.
async fn drain(server: &Ours, lanes: u64) -> Result<()> {
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        let mut worker = Worker::<1>::on(server.stub().await?);
        workers.push(async move {
            for _ in 0..lanes / WORKERS {
                let batch = worker.take_now(0).await?;
                worker.complete(batch.key, batch.fence).await?;
            }
            Ok(())
        });
    }
    together(workers).await
}

async fn together(tasks: impl IntoIterator<Item = impl Future<Output = Result<()>> + Send + 'static>) -> Result<()> {
    let mut running: JoinSet<_> = tasks.into_iter().collect();
    while let Some(ended) = running.join_next().await {
        ended.context("a client ended early")??;
    }
    Ok(())
}

/// Returns the median time of a take under load, in microseconds. As many requests wait afterwards.
async fn take_us(server: &Ours, load: &LoadArguments) -> Result<f64> {
    let connections = load.connections();
    let mut clients = Vec::new();
    for connection in 0..connections {
        let stub = server.stub().await?;
        let own = (0..load.clients).filter(|client| client % connections == connection);
        clients.push(own.map(|_| Replacing(Worker::on(stub.clone()))).collect());
    }
    let load = drive(clients, schedule(load)).await?;
    eprintln!(
        "{:.0} requests/s, take p50 {} µs, p99 {} µs",
        load.saves_per_second, load.begin_p50_us, load.begin_p99_us
    );
    Ok(load.begin_p50_us)
}

/// A worker that takes one request, then completes it and submits another one.
struct Replacing(Worker<1>);

impl Peer for Replacing {
    type Lease = (String, u64);

    async fn begin(&mut self, _: &[String; CLAIMS]) -> Result<Self::Lease> {
        let batch = self.0.take_now(1).await?;
        Ok((batch.key, batch.fence))
    }

    async fn commit(&mut self, (key, fence): Self::Lease) -> Result<()> {
        self.0.complete(key, fence).await?;
        self.0.submit().await
    }
}

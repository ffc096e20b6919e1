//! The rows `queue-start-embedded` and `queue-start-two-servers`: the time from a submit until an idle worker has the
//! request. The requests come one at a time. On two servers of one database, all workers are at the other server.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::load::{median, microseconds};
use super::ours::Ours;
use super::postgres;
use super::queues::Worker;
use super::row::{Better, Heading, Row};
use super::server::Contender;
use super::{Context, LoadArguments};

const EMBEDDED: Heading = Heading { name: "queue-start-embedded", unit: "µs", better: Better::Lower, target: 1.0 };
const TWO_SERVERS: Heading = Heading { name: "queue-start-two-servers", ..EMBEDDED };
/// The median times that stand in the table in place of a peer, in microseconds.
const ALLOWED_EMBEDDED: f64 = 5_000.0;
const ALLOWED_TWO_SERVERS: f64 = 50_000.0;

const WORKERS: usize = 2;
/// The time between two submits. A worker has completed its request by then, and is idle again.
const EVERY: Duration = Duration::from_millis(20);
/// The same on two servers. After this time, a worker that nobody wakes looks again 250 ms later.
const EVERY_ON_TWO_SERVERS: Duration = Duration::from_millis(500);
/// The longest time that the histogram keeps, in microseconds.
const LONGEST_MICROSECONDS: u64 = 60_000_000;

/// Measures a server with the embedded store.
///
/// # Errors
/// The server cannot be measured.
pub(crate) async fn embedded(context: &Context) -> Result<Row> {
    let mut rounds = Vec::new();
    for number in 1..=context.load.rounds {
        let server = Ours::start().await?;
        rounds.push(round(number, (&server, &server), EVERY, &context.load).await?);
        server.stop().await?;
    }
    Ok(EMBEDDED.row(median(&rounds, |p50| *p50).context("no round was run")?, ALLOWED_EMBEDDED))
}

/// Measures two servers of one database, which ring each other.
///
/// # Errors
/// The servers cannot be measured.
pub(crate) async fn two_servers(context: &Context) -> Result<Row> {
    xtask::needs::install(xtask::needs::FOR_POSTGRES)?;
    let mut rounds = Vec::new();
    for number in 1..=context.load.rounds {
        let database = postgres::database().await?;
        let (front, back) = (ringing(&database).await?, ringing(&database).await?);
        rounds.push(round(number, (&front, &back), EVERY_ON_TWO_SERVERS, &context.load).await?);
        front.stop().await?;
        back.stop().await?;
    }
    postgres::stop().await;
    Ok(TWO_SERVERS.row(median(&rounds, |p50| *p50).context("no round was run")?, ALLOWED_TWO_SERVERS))
}

/// Starts a server that other servers of the database ring.
async fn ringing(database: &str) -> Result<Ours> {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.to_string();
    let store = ["--store".into(), postgres::cluster().await?.url(database).into()];
    Ours::start_at(&address, |data| with_configuration(&data, &address, store)).await
}

/// Returns the arguments of a server that is rung at an address, beside those that select its store.
fn with_configuration(data: &Path, address: &str, store: [OsString; 2]) -> Result<Vec<OsString>> {
    let file = data.with_extension("toml");
    let cells = "[[cells]]\nid = 1\nname = \"cell-1\"\naddress = \"127.0.0.1:3001\"\n";
    std::fs::write(&file, format!("[locks]\npeer_address = \"http://{address}\"\n{cells}"))
        .context("the configuration can't be written")?;
    Ok(store.into_iter().chain(["--config".into(), file.into()]).collect())
}

/// Submits requests at the server `front` for idle workers of `back`. Returns the median time to a start, in
/// microseconds.
#[allow(clippy::cast_precision_loss, reason = "microseconds stay far below 2^52")]
async fn round(number: u32, (front, back): (&Ours, &Ours), every: Duration, load: &LoadArguments) -> Result<f64> {
    let (started, mut starts) = unbounded_channel();
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        workers.spawn(work(Worker::on(back.stub().await?), started.clone()));
    }
    let (mut submitter, began) = (Worker::<1>::on(front.stub().await?), Instant::now());
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let (measured_from, end) =
        (began + seconds(load.warm_up_seconds), began + seconds(load.warm_up_seconds + load.seconds));
    let (mut times, mut due) = (Histogram::<u64>::new_with_max(LONGEST_MICROSECONDS, 3)?, interval(every));
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < end {
        due.tick().await;
        let submitted = Instant::now();
        submitter.submit().await?;
        let at = tokio::select! {
            at = starts.recv() => at.context("no worker is left")?,
            ended = workers.join_next() => return Err(failure(ended)),
        };
        if submitted >= measured_from {
            times.saturating_record(microseconds(at - submitted));
        }
    }
    ensure!(!times.is_empty(), "no request was measured");
    let (p50, p99) = (times.value_at_quantile(0.5), times.value_at_quantile(0.99));
    eprintln!("round {number}: {} starts, p50 {p50} µs, p99 {p99} µs, max {} µs", times.len(), times.max());
    Ok(p50 as f64)
}

/// Takes and completes requests, and tells when each has arrived.
async fn work(mut worker: Worker<1>, started: UnboundedSender<Instant>) -> Result<()> {
    loop {
        let batch = worker.take().await?;
        started.send(Instant::now()).context("the measurement has ended")?;
        worker.complete(batch.key, batch.fence).await?;
    }
}

fn failure(ended: Option<std::result::Result<Result<()>, tokio::task::JoinError>>) -> anyhow::Error {
    match ended {
        Some(Ok(Err(error))) => error,
        other => anyhow::anyhow!("a worker ended early: {other:?}"),
    }
}

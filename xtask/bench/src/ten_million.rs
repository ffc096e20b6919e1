//! The rows with 10 million stored claims: their effect on a server's begins, on its memory, and on
//! its start after a crash.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::LoadArguments;
use super::bulk;
use super::load::{Schedule, drive};
use super::ours::Ours;
use super::postgres;
use super::row::{Better, Heading, Row};
use super::saves_vs_etcd::{clients, schedule};
use super::server::Contender;

const BEGIN: Heading = Heading { name: "begin-10m-vs-10k", unit: "µs", better: Better::Lower, target: 0.67 };
const BEGIN_ON_POSTGRES: Heading = Heading { name: "begin-postgres-10m-vs-10k", ..BEGIN };
const MEMORY: Heading = Heading { name: "memory-10m", unit: "MB", better: Better::Lower, target: 1.0 };
const RESTART: Heading = Heading { name: "restart-10m", unit: "s", better: Better::Lower, target: 1.0 };
/// The allowed resident memory, and the allowed time of a restart. These bounds stand in the table
/// in place of a peer.
const ALLOWED_MEGABYTES: f64 = 300.0;
const ALLOWED_SECONDS: f64 = 2.0;

const FEW: u64 = 10_000;
const MANY: u64 = 10_000_000;
/// The number of claims in one update while the store is filled.
const CLAIMS_EACH: u64 = 1_000;
/// The number of crashes. The row has the time of the slowest start after a crash.
const CRASHES: usize = 5;

/// The figures of a server with 10 thousand and with 10 million claims.
#[derive(Debug)]
pub(crate) struct TenMillion {
    begin_few_us: f64,
    begin_many_us: f64,
    megabytes: f64,
    slowest_restart: Duration,
}

impl TenMillion {
    pub(crate) fn begin_row(&self) -> Row {
        BEGIN.row(self.begin_many_us, self.begin_few_us)
    }

    pub(crate) fn memory_row(&self) -> Row {
        MEMORY.row(self.megabytes, ALLOWED_MEGABYTES)
    }

    pub(crate) fn restart_row(&self) -> Row {
        RESTART.row(self.slowest_restart.as_secs_f64(), ALLOWED_SECONDS)
    }
}

/// Fills a server with 10 thousand claims, then with 10 million, and measures begins each time
/// under the load of `saves-vs-etcd`. Then kills the server under this load several times.
///
/// # Errors
/// The server refuses a call, or does not start again.
pub(crate) async fn measure(arguments: &LoadArguments) -> Result<TenMillion> {
    let mut server = Ours::start().await?;
    let (begin_few_us, begin_many_us) = begins(&server, arguments).await?;
    let megabytes = server.resident_megabytes()?;
    let mut slowest_restart = Duration::ZERO;
    for _ in 0..CRASHES {
        let took = crash(&mut server, arguments).await?;
        eprintln!("serves again {:.2} s after the start", took.as_secs_f64());
        slowest_restart = slowest_restart.max(took);
    }
    server.stop().await?;
    Ok(TenMillion { begin_few_us, begin_many_us, megabytes, slowest_restart })
}

/// Measures the row `begin-postgres-10m-vs-10k`: the same begins with the store in PostgreSQL.
///
/// # Errors
/// The server refuses a call.
pub(crate) async fn on_postgres(arguments: &LoadArguments) -> Result<Row> {
    xtask::needs::install(xtask::needs::FOR_POSTGRES)?;
    let server = postgres::server().await?;
    let (few, many) = begins(&server, arguments).await?;
    server.stop().await?;
    postgres::stop().await;
    Ok(BEGIN_ON_POSTGRES.row(many, few))
}

/// Fills a server with 10 thousand claims, then with 10 million. Returns the median time of a begin
/// after each, in microseconds.
async fn begins(server: &Ours, arguments: &LoadArguments) -> Result<(f64, f64)> {
    bulk::fill(&server.stub().await?, FEW / CLAIMS_EACH, CLAIMS_EACH).await?;
    let few = begin_p50_us(server, arguments).await?;
    let filling = Instant::now();
    for step in 1..=10 {
        bulk::fill(&server.stub().await?, MANY / CLAIMS_EACH / 10, CLAIMS_EACH).await?;
        eprintln!("{} million claims stored after {:.0} s", step * MANY / 10_000_000, filling.elapsed().as_secs_f64());
    }
    Ok((few, begin_p50_us(server, arguments).await?))
}

async fn begin_p50_us(server: &Ours, arguments: &LoadArguments) -> Result<f64> {
    let load = drive(clients(server, arguments).await?, schedule(arguments)).await?;
    eprintln!("{:.0} saves/s, begin p50 {} µs, p99 {} µs", load.saves_per_second, load.begin_p50_us, load.begin_p99_us);
    Ok(load.begin_p50_us)
}

/// Kills the server under load, and returns the time from its next start to its first answer.
async fn crash(server: &mut Ours, arguments: &LoadArguments) -> Result<Duration> {
    let endless = Schedule { warm_up: Duration::ZERO, measured: Duration::from_secs(3600) };
    let load = tokio::spawn(drive(clients(server, arguments).await?, endless));
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.kill().await?;
    // The load must end with an error, because its server was killed.
    load.await?.err().context("the load went on without a server")?;
    let started = Instant::now();
    server.start_again().await?;
    server.stub().await?.get_cells().await?;
    Ok(started.elapsed())
}

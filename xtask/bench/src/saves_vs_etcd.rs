//! The row `saves-vs-etcd`: saves a second of Leasehold and of etcd, under the same load on the
//! same machine.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::etcd::Etcd;
use super::load::{Load, Schedule, drive};
use super::ours::Ours;
use super::row::{Better, Heading, Row};
use super::server::Contender;
use super::{Context, LoadArguments};
use xtask::needs;

const HEADING: Heading = Heading { name: "saves-vs-etcd", unit: "saves/s", better: Better::Higher, target: 4.0 };

/// The medians over the rounds of both servers, under the same load.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) ours: Load,
    pub(crate) etcd: Load,
}

/// Measures the row `saves-vs-etcd`.
///
/// # Errors
/// One of the two servers cannot be measured.
pub(crate) async fn row(context: &Context) -> Result<Row> {
    let Comparison { ours, etcd } = context.comparison().await?;
    Ok(HEADING.row(ours.saves_per_second, etcd.saves_per_second))
}

/// Measures Leasehold and etcd in turn, so that a slow minute of the machine affects both.
///
/// # Errors
/// One of the two servers cannot be started, or refuses a save.
pub(crate) async fn compare(arguments: &LoadArguments) -> Result<Comparison> {
    needs::install(needs::FOR_ETCD)?;
    let (mut ours, mut etcd) = (Vec::new(), Vec::new());
    for number in 1..=arguments.rounds {
        ours.push(round::<Ours>(number, arguments).await?);
        etcd.push(round::<Etcd>(number, arguments).await?);
    }
    let median = |rounds: &[Load]| Load::median(rounds).context("no round was run");
    Ok(Comparison { ours: median(&ours)?, etcd: median(&etcd)? })
}

/// Runs one round on an empty store, while the other contender is stopped. Returns its figures.
pub(crate) async fn round<C: Contender>(number: u32, arguments: &LoadArguments) -> Result<Load> {
    let contender = C::start().await.with_context(|| format!("cannot start {}", C::NAME))?;
    let clients = clients(&contender, arguments).await?;
    let load = drive(clients, schedule(arguments)).await.with_context(|| format!("{} failed", C::NAME))?;
    contender.stop().await?;
    let Load { saves_per_second, begin_p50_us, begin_p99_us, commit_p99_us } = load;
    eprintln!(
        "round {number}: {}: {saves_per_second:.0} saves/s, begin p50 {begin_p50_us} µs, p99 {begin_p99_us} µs, \
         commit p99 {commit_p99_us} µs",
        C::NAME
    );
    Ok(load)
}

/// Opens the connections, and returns the clients of each. The clients are spread evenly over the
/// connections.
pub(crate) async fn clients<C: Contender>(contender: &C, arguments: &LoadArguments) -> Result<Vec<Vec<C::Client>>> {
    let connections = arguments.connections();
    let mut clients = Vec::new();
    for connection in 0..connections {
        let first = contender.connect().await?;
        let own = (0..arguments.clients).filter(|client| client % connections == connection);
        clients.push(own.map(|_| C::share(&first)).collect());
    }
    Ok(clients)
}

pub(crate) fn schedule(arguments: &LoadArguments) -> Schedule {
    Schedule {
        warm_up: Duration::from_secs(arguments.warm_up_seconds.into()),
        measured: Duration::from_secs(arguments.seconds.into()),
    }
}

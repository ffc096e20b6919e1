//! The row `leases-after-million`: the time to list a cell's 10 outstanding leases, before and
//! after a million other leases were settled.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use leasehold_client::Stub;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::ListLeasesRequest;

use super::bulk;
use super::connection::Channel;
use super::ours::{CELL_ID, Ours};
use super::row::{Better, Heading, Row};
use super::server::Contender;

const HEADING: Heading = Heading { name: "leases-after-million", unit: "µs", better: Better::Lower, target: 0.9 };
const OUTSTANDING: usize = 10;
const SETTLED: u64 = 1_000_000;
/// The number of leases that are settled between two reports of progress.
const STEP: u64 = 100_000;
const LISTS: usize = 2_000;

/// Measures the row `leases-after-million`.
///
/// # Errors
/// The server refuses a call, or its list does not have exactly the outstanding leases.
pub(crate) async fn row() -> Result<Row> {
    let server = Ours::start().await?;
    let mut stub = server.stub().await?;
    for _ in 0..OUTSTANDING {
        bulk::begin(&mut stub, 1).await?;
    }
    list_time(&mut stub).await?;
    let before = list_time(&mut stub).await?;
    for step in 1..=SETTLED / STEP {
        bulk::fill(&stub, STEP, 1).await?;
        eprintln!("{} leases settled", step * STEP);
    }
    let after = list_time(&mut stub).await?;
    server.stop().await?;
    Ok(HEADING.row(micros(after), micros(before)))
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Returns the median time of a call of `ListLeases`.
async fn list_time(stub: &mut Stub<Channel>) -> Result<Duration> {
    let mut times = Vec::with_capacity(LISTS);
    for _ in 0..LISTS {
        let started = Instant::now();
        let request = ListLeasesRequest { cell_id: CELL_ID, ..ListLeasesRequest::default() };
        let leases = stub.list_leases(request).await?.into_inner().leases;
        ensure!(leases.len() == OUTSTANDING, "the list has {} leases", leases.len());
        times.push(started.elapsed());
    }
    times.sort();
    Ok(times.get(LISTS / 2).copied().unwrap_or_default())
}

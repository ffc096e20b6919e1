//! The row `locks-postgres-vs-pgbench`: locks that are acquired and released in a second on
//! PostgreSQL. The peer is a pair of hand-written statements that pgbench has prepared. Each client
//! has a lock of its own.

use anyhow::{Context as _, Result};

use super::load::{Load, median};
use super::locks_vs_etcd::{OurClient, OurLocks};
use super::pgbench::{self, Protocol};
use super::postgres;
use super::row::{Better, Heading, Row};
use super::saves_vs_etcd::round;
use super::server::Contender;
use super::{Context, LoadArguments};

const HEADING: Heading =
    Heading { name: "locks-postgres-vs-pgbench", unit: "locks/s", better: Better::Higher, target: 1.5 };

/// Measures the row.
///
/// # Errors
/// One of the contenders cannot be measured.
pub(crate) async fn row(context: &Context) -> Result<Row> {
    xtask::needs::install(xtask::needs::FOR_POSTGRES)?;
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for number in 1..=context.load.rounds {
        ours.push(round::<OnPostgres>(number, &context.load).await?);
        let update = by_hand(number, "lock-update.sql", &context.load).await?;
        let insert = by_hand(number, "lock-insert.sql", &context.load).await?;
        // The faster statements count: those that update the lock's row, or that insert and delete it.
        peer.push(update.max(insert));
    }
    postgres::stop().await;
    let ours = Load::median(&ours).context("no round was run")?.saves_per_second;
    let peer = median(&peer, |rate| *rate).context("no round was run")?;
    Ok(HEADING.row(ours, peer))
}

/// Runs one script on an empty database. Returns the locks a second.
async fn by_hand(number: u32, script: &str, load: &LoadArguments) -> Result<f64> {
    let database = postgres::database().await?;
    postgres::execute(&database, include_str!("pgbench/locks.sql")).await?;
    let rate = pgbench::rate(&database, script, Protocol::Prepared, load).await?;
    eprintln!("round {number}: pgbench, {script}: {rate:.0} locks/s");
    Ok(rate)
}

/// One server of Leasehold on PostgreSQL, as a server of locks.
pub(crate) struct OnPostgres(OurLocks);

impl Contender for OnPostgres {
    const NAME: &'static str = "our locks on PostgreSQL";
    type Client = OurClient;

    async fn start() -> Result<Self> {
        Ok(Self(OurLocks::on(postgres::server().await?)))
    }

    async fn connect(&self) -> Result<OurClient> {
        self.0.connect().await
    }

    fn share(client: &OurClient) -> OurClient {
        OurLocks::share(client)
    }

    async fn stop(self) -> Result<()> {
        self.0.stop().await
    }
}

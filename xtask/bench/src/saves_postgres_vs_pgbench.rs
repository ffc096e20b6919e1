//! The rows `saves-postgres-vs-pgbench` and `saves-two-servers`: saves a second on PostgreSQL, of
//! Leasehold and of hand-written statements that pgbench runs.

use anyhow::{Context as _, Result};

use super::load::median;
use super::pgbench::{self, Protocol};
use super::postgres::{self, OnPostgres};
use super::row::{Better, Heading, Row};
use super::saves_vs_etcd::round;
use super::{Context, LoadArguments};

const HEADING: Heading =
    Heading { name: "saves-postgres-vs-pgbench", unit: "saves/s", better: Better::Higher, target: 4.0 };
const TWO: Heading = Heading { name: "saves-two-servers", unit: "saves/s", better: Better::Higher, target: 1.0 };

const NO_ROUND: &str = "no round was run";

/// The measured rounds of one server, two servers and pgbench, on one cluster under the same load.
#[derive(Debug)]
pub(crate) struct Comparison {
    rounds: Vec<Round>,
}

/// One round: the saves a second of each contender. They are measured one right after the other.
#[derive(Clone, Copy, Debug)]
struct Round {
    one_server: f64,
    two_servers: f64,
    pgbench: f64,
}

impl Comparison {
    /// Returns the row `saves-postgres-vs-pgbench`, with the medians over the rounds.
    ///
    /// # Errors
    /// No round was run.
    pub(crate) fn row(&self) -> Result<Row> {
        let median = |figure: fn(&Round) -> f64| median(&self.rounds, figure).context(NO_ROUND);
        Ok(HEADING.row(median(|round| round.one_server)?, median(|round| round.pgbench)?))
    }

    /// Returns the row `saves-two-servers`, with the figures of the round that has the median
    /// ratio. The two figures are so close that medians of different rounds would compare the
    /// machine's speed at different minutes.
    ///
    /// # Errors
    /// No round was run.
    pub(crate) fn two_servers_row(&self) -> Result<Row> {
        let ratio = |round: &Round| round.two_servers / round.one_server;
        let mut rounds = self.rounds.clone();
        rounds.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        // If the number of rounds is even, the lower of the two middle ratios is used.
        let pair = rounds.get(rounds.len().saturating_sub(1) / 2).context(NO_ROUND)?;
        Ok(TWO.row(pair.two_servers, pair.one_server))
    }
}

/// Measures the contenders in turn, so that a slow minute of the machine affects all of them. The
/// order of one and two servers alternates from round to round.
///
/// # Errors
/// A contender cannot be started, or refuses a save.
pub(crate) async fn compare(arguments: &LoadArguments) -> Result<Comparison> {
    xtask::needs::install(xtask::needs::FOR_POSTGRES)?;
    let mut rounds = Vec::new();
    for number in 1..=arguments.rounds {
        let (one_server, two_servers) = if number % 2 == 1 {
            let one_server = served::<1>(number, arguments).await?;
            (one_server, served::<2>(number, arguments).await?)
        } else {
            let two_servers = served::<2>(number, arguments).await?;
            (served::<1>(number, arguments).await?, two_servers)
        };
        rounds.push(Round { one_server, two_servers, pgbench: by_hand(number, arguments).await? });
    }
    postgres::stop().await;
    Ok(Comparison { rounds })
}

async fn served<const SERVERS: usize>(number: u32, arguments: &LoadArguments) -> Result<f64> {
    Ok(round::<OnPostgres<SERVERS>>(number, arguments).await?.saves_per_second)
}

/// Returns the row `saves-postgres-vs-pgbench`, which is measured if it was not yet.
///
/// # Errors
/// A contender cannot be measured.
pub(crate) async fn row(context: &Context) -> Result<Row> {
    context.postgres().await?.row()
}

/// Runs one round of pgbench on an empty database. Returns the saves a second.
async fn by_hand(number: u32, arguments: &LoadArguments) -> Result<f64> {
    let database = postgres::database().await?;
    postgres::execute(&database, include_str!("pgbench/schema.sql")).await?;
    let rate = pgbench::rate(&database, "save.sql", Protocol::Simple, arguments).await?;
    eprintln!("round {number}: pgbench: {rate:.0} saves/s");
    Ok(rate)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn two_servers_are_compared_within_a_round() {
        let round = |one_server, two_servers| Round { one_server, two_servers, pgbench: 1.0 };
        let comparison = Comparison { rounds: vec![round(100.0, 90.0), round(50.0, 60.0), round(200.0, 210.0)] };
        let row = comparison.two_servers_row().unwrap();
        assert_eq!(serde_json::to_value(row).unwrap()["ratio"], 1.05);
    }
}

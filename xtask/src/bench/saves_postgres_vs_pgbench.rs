//! Saves a second on PostgreSQL: ours, and the statements that a person would write by hand, run by pgbench.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use super::load::Load;
use super::postgres::{self, OnPostgres};
use super::row::{Better, Heading, Row};
use super::saves_vs_etcd::round;
use super::{Context, LoadArguments};

const HEADING: Heading =
    Heading { name: "saves-postgres-vs-pgbench", unit: "saves/s", better: Better::Higher, target: 4.0 };
const TWO: Heading = Heading { name: "saves-two-servers", unit: "saves/s", better: Better::Higher, target: 1.0 };

/// All on one cluster under the same load: medians over the rounds.
#[derive(Debug)]
pub(crate) struct Comparison {
    one_server: f64,
    two_servers: f64,
    pgbench: f64,
}

impl Comparison {
    pub(crate) fn row(&self) -> Row {
        HEADING.row(self.one_server, self.pgbench)
    }

    /// Two servers of ours beside one.
    pub(crate) fn two_servers_row(&self) -> Row {
        TWO.row(self.two_servers, self.one_server)
    }
}

/// Drives them in turn, so that a slow minute of the machine meets all.
///
/// # Errors
/// When one cannot be started, or refuses a save.
pub(crate) async fn compare(arguments: &LoadArguments) -> Result<Comparison> {
    crate::needs::install(crate::needs::FOR_POSTGRES)?;
    let (mut one_server, mut two_servers, mut pgbench) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=arguments.rounds {
        one_server.push(round::<OnPostgres<1>>(number, arguments).await?);
        pgbench.push(by_hand(number, arguments).await?);
        two_servers.push(round::<OnPostgres<2>>(number, arguments).await?);
    }
    postgres::stop().await;
    let median = |rounds: &[Load]| Load::median(rounds).map(|load| load.saves_per_second).context("no round was run");
    Ok(Comparison {
        one_server: median(&one_server)?,
        two_servers: median(&two_servers)?,
        pgbench: super::load::median(&pgbench, |rate| *rate).context("no round was run")?,
    })
}

/// The row.
///
/// # Errors
/// When either cannot be measured.
pub(crate) async fn row(context: &Context) -> Result<Row> {
    Ok(context.postgres().await?.row())
}

/// One round of pgbench on an empty database.
async fn by_hand(number: u32, arguments: &LoadArguments) -> Result<f64> {
    let database = postgres::database().await?;
    postgres::execute(&database, include_str!("pgbench/schema.sql")).await?;
    pgbench(&database, arguments, arguments.warm_up_seconds).await?;
    let rate = pgbench(&database, arguments, arguments.seconds).await?;
    eprintln!("round {number}: pgbench: {rate:.0} saves/s");
    Ok(rate)
}

async fn pgbench(database: &str, arguments: &LoadArguments, seconds: u32) -> Result<f64> {
    if seconds == 0 {
        return Ok(0.0);
    }
    let url = postgres::cluster().await?.url(database);
    let mut command = Command::new("pgbench");
    command.arg("--no-vacuum").arg("--file").arg(postgres::script("save.sql"));
    command.args(["--client", &arguments.clients.to_string(), "--jobs", "2", "--time", &seconds.to_string(), &url]);
    let output = command.stdin(Stdio::null()).output().await.context("cannot run `pgbench`")?;
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "pgbench failed: {error}");
    transactions_per_second(&text).with_context(|| format!("pgbench tells no rate: {text}"))
}

/// A transaction of the script is a whole save.
fn transactions_per_second(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_line_that_has_it() {
        let text = "latency average = 1.5 ms\ntps = 1632.5 (without initial connection time)\n";
        assert_eq!(transactions_per_second(text), Some(1632.5));
        assert_eq!(transactions_per_second("nothing"), None);
    }
}

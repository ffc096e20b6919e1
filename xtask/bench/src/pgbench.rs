//! The peer pgbench: clients that run a script of hand-written statements again and again.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use super::LoadArguments;
use super::postgres;

/// The way in which pgbench sends its statements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    /// Each statement is sent as text, which PostgreSQL parses and plans each time.
    Simple,
    /// Each statement is prepared once for each connection. This is pgbench's fastest way.
    Prepared,
}

impl Protocol {
    const fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Prepared => "prepared",
        }
    }
}

/// Runs a script in a database for the time of a warm-up, then for that of a measurement. Returns
/// the runs of the script in a second of the measurement.
///
/// # Errors
/// pgbench can't be run, or a statement fails.
pub(crate) async fn rate(database: &str, script: &str, protocol: Protocol, arguments: &LoadArguments) -> Result<f64> {
    if arguments.warm_up_seconds > 0 {
        run(database, script, protocol, arguments.clients, arguments.warm_up_seconds).await?;
    }
    run(database, script, protocol, arguments.clients, arguments.seconds).await
}

async fn run(database: &str, script: &str, protocol: Protocol, clients: u32, seconds: u32) -> Result<f64> {
    let url = postgres::cluster().await?.url(database);
    let mut command = Command::new("pgbench");
    command.args(["--no-vacuum", "--protocol", protocol.name(), "--file"]).arg(path(script));
    command.args(["--client", &clients.to_string(), "--jobs", "2", "--time", &seconds.to_string(), &url]);
    let output = command.stdin(Stdio::null()).output().await.context("cannot run `pgbench`")?;
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "pgbench failed: {error}");
    transactions_per_second(&text).with_context(|| format!("pgbench tells no rate: {text}"))
}

/// Returns the path of a script of pgbench.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pgbench").join(name)
}

/// Reads the rate from pgbench's output, which counts each run of the script as one transaction.
/// `None` if the output has no rate.
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

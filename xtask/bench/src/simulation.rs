//! The rows `simulation-native` and `simulation-node`: the events a second that the simulation
//! plays and checks on one core, natively and through the wasm file.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::row::{Better, Heading, Row};
use super::script::output;
use xtask::needs;

const NATIVE: Heading = Heading { name: "simulation-native", unit: "events/s", better: Better::Higher, target: 1.0 };
const IN_NODE: Heading = Heading { name: "simulation-node", unit: "events/s", better: Better::Higher, target: 1.0 };
/// The required rates, which stand in the table in place of a peer: for native code, and for
/// WebAssembly in Node.
const ASKED_FOR: [f64; 2] = [500_000.0, 150_000.0];
const ROUNDS: usize = 5;

/// The JSON on the last line of a measuring program's output.
#[derive(Deserialize)]
struct Measured {
    events_per_second: f64,
}

/// Measures the row `simulation-native`: worlds in the release build.
///
/// # Errors
/// The example cannot be built or run.
pub(crate) async fn native() -> Result<Row> {
    let example = ["run", "--release", "--quiet", "--package", "leasehold-simulation", "--example", "speed", "2000000"];
    Ok(NATIVE.row(median("cargo", &example).await?, ASKED_FOR[0]))
}

/// Measures the row `simulation-node`: runs in Node as a page plays them. Each event becomes a text
/// and is kept.
///
/// # Errors
/// The package cannot be built, or the script fails.
pub(crate) async fn in_node() -> Result<Row> {
    needs::install(needs::FOR_NPM)?;
    output(".", "cargo", &["xtask", "web"]).await?;
    Ok(IN_NODE.row(median("node", &["wasm/bench/speed.mjs"]).await?, ASKED_FOR[1]))
}

async fn median(program: &str, arguments: &[&str]) -> Result<f64> {
    let mut rates = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        rates.push(rate(&output(".", program, arguments).await?)?);
    }
    rates.sort_by(f64::total_cmp);
    rates.get(ROUNDS / 2).copied().context("there was no round")
}

fn rate(output: &str) -> Result<f64> {
    let line = output.lines().last().context("the script says nothing")?;
    let measured: Measured = serde_json::from_str(line).context("the script says something else")?;
    Ok(measured.events_per_second)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn the_rate_is_on_the_last_line() {
        assert_eq!(rate("10 events\n{\"events_per_second\":7}\n").unwrap(), 7.0);
        assert!(rate("10 events\n").is_err() && rate("").is_err());
    }
}

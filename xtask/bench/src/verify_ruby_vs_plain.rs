//! The claims a second that verification compares from Ruby, measured by `ruby/bench/verify.rb`: the extension beside plain
//! Ruby.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::row::{Better, Heading, Row};
use super::script::output;
use xtask::needs;

const HEADING: Heading =
    Heading { name: "verify-ruby-vs-plain", unit: "claims/s", better: Better::Higher, target: 5.0 };

/// The script's output, for the slower of the two forms in which rows come.
#[derive(Deserialize)]
struct Measured {
    ours: f64,
    peer: f64,
}

/// Measures the row.
///
/// # Errors
/// The extension cannot be compiled, or finds differences where there are none.
pub(crate) async fn row() -> Result<Row> {
    needs::install(needs::FOR_EXTENSION)?;
    needs::install(needs::FOR_GEM)?;
    output("ruby", "rake", &["compile"]).await?;
    let measured = output("ruby", "ruby", &["-I", "lib", "bench/verify.rb", "--json"]).await?;
    let measured: Measured = serde_json::from_str(&measured).context("the script says something else")?;
    Ok(HEADING.row(measured.ours, measured.peer))
}

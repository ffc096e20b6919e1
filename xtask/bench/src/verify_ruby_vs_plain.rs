//! Claims compared with rows from Ruby: through the extension, beside the algorithm in plain Ruby (`ruby/bench/verify.rb`).

use anyhow::{Context, Result};
use serde::Deserialize;

use super::row::{Better, Heading, Row};
use super::script::output;
use xtask::needs;

const HEADING: Heading =
    Heading { name: "verify-ruby-vs-plain", unit: "claims/s", better: Better::Higher, target: 5.0 };

/// What the script says of the slower of the two forms that rows come in.
#[derive(Deserialize)]
struct Measured {
    ours: f64,
    peer: f64,
}

/// The row.
///
/// # Errors
/// When the extension cannot be compiled, or finds differences where there are none.
pub(crate) async fn row() -> Result<Row> {
    needs::install(needs::FOR_EXTENSION)?;
    needs::install(needs::FOR_GEM)?;
    output("ruby", "rake", &["compile"]).await?;
    let measured = output("ruby", "ruby", &["-I", "lib", "bench/verify.rb", "--json"]).await?;
    let measured: Measured = serde_json::from_str(&measured).context("the script says something else")?;
    Ok(HEADING.row(measured.ours, measured.peer))
}

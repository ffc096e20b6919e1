//! The row `verify-ruby-vs-plain`: the claims a second that verification compares from Ruby,
//! measured by `ruby/bench/verify.rb`. It compares the extension with plain Ruby.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::row::{Better, Heading, Row};
use super::script::output;
use xtask::needs;

const HEADING: Heading =
    Heading { name: "verify-ruby-vs-plain", unit: "claims/s", better: Better::Higher, target: 5.0 };

/// The JSON output of `ruby/bench/verify.rb`: two rates in claims a second. Rows can have two
/// forms; the rates are those of the slower one.
#[derive(Deserialize)]
struct Measured {
    ours: f64,
    peer: f64,
}

/// Measures the row `verify-ruby-vs-plain`.
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

//! Claims compared with rows from Ruby: through the extension, beside the algorithm in plain Ruby (`ruby/bench/verify.rb`).

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::row::{Better, Heading, Row};
use crate::needs;
use crate::process::Group;

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
    run("rake", &["compile"]).await?;
    let output = run("ruby", &["-I", "lib", "bench/verify.rb", "--json"]).await?;
    let measured: Measured = serde_json::from_str(&output).context("the script says something else")?;
    Ok(HEADING.row(measured.ours, measured.peer))
}

/// What a program of the gem's says on standard output.
async fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ruby");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut group = Group::start(&mut command)?;
    let mut output = String::new();
    let mut pipe = group.take_stdout().context("standard output is not piped")?;
    pipe.read_to_string(&mut output).await?;
    ensure!(group.wait().await?.success(), "`{program} {}` failed", arguments.join(" "));
    Ok(output)
}

//! The rows `verify-python-vs-plain` and `verify-python-threads`: the claims a second that
//! verification compares from Python, measured by `python/bench/verify.py`. They compare the
//! extension with plain Python, and two threads with one.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::row::{Better, Heading, Row};
use super::script::output;
use xtask::needs;
use xtask::python::Environment;

const VS_PLAIN: Heading =
    Heading { name: "verify-python-vs-plain", unit: "claims/s", better: Better::Higher, target: 10.0 };
const THREADS: Heading =
    Heading { name: "verify-python-threads", unit: "claims/s", better: Better::Higher, target: 1.7 };

/// The JSON output of `python/bench/verify.py`: two rates in claims a second.
#[derive(Deserialize)]
struct Measured {
    ours: f64,
    peer: f64,
}

/// Measures the row `verify-python-vs-plain`, with a million Arrow rows that have two claims each.
///
/// # Errors
/// The package cannot be built, or finds differences where there are none.
pub(crate) async fn vs_plain() -> Result<Row> {
    let measured = measure("plain").await?;
    Ok(VS_PLAIN.row(measured.ours, measured.peer))
}

/// Measures the row `verify-python-threads`: two threads, each with its own run of verification.
/// The peer is one such thread alone.
///
/// # Errors
/// See [`vs_plain`].
pub(crate) async fn threads() -> Result<Row> {
    let measured = measure("threads").await?;
    Ok(THREADS.row(measured.ours, measured.peer))
}

async fn measure(what: &str) -> Result<Measured> {
    needs::install(needs::FOR_PYTHON)?;
    needs::install(needs::FOR_VENV)?;
    let environment = Environment::of_project();
    environment.prepare().await?;
    environment.install_release().await?;
    let measured = output("python", environment.path("python"), &["bench/verify.py", "--json", what]).await?;
    serde_json::from_str(&measured).context("the script says something else")
}

//! Runs `leasehold export` and `leasehold import`, and parses the lines of an export.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use leasehold_core::rows::State;
use serde_json::{Value, json};

use crate::server::binary;

/// Runs the subcommand `verb` of `leasehold` on a data directory, and waits for its end.
///
/// # Errors
/// The binary does not build, or cannot be run.
pub fn run(verb: &str, data: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary()?);
    command.env_remove("LEASEHOLD_CONFIG");
    command.arg(verb).arg("--data").arg(data).args(arguments);
    command.output().context("leasehold cannot be run")
}

/// Runs `leasehold export` on the data directory of a stopped server. Returns the exported lines.
///
/// # Errors
/// The export fails.
pub fn export(data: &Path) -> Result<String> {
    let output = run("export", data, &[])?;
    ensure!(output.status.success(), "the export fails: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs `leasehold import` with the file `lines` into the new data directory `data`.
///
/// # Errors
/// The import fails.
pub fn import(data: &Path, lines: &Path) -> Result<()> {
    let lines = lines.to_str().context("the path is not text")?;
    let output = run("import", data, &["--input", lines])?;
    ensure!(output.status.success(), "the import fails: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Returns the claims, leases and keys that the lines of an export contain.
///
/// # Errors
/// A line is not a valid line of an export.
pub fn state(lines: &str) -> Result<State> {
    let mut state = State::default();
    for line in lines.lines() {
        let mut line: Value = serde_json::from_str(line)?;
        let (kind, fields) =
            line.as_object_mut().and_then(|line| line.iter_mut().next()).context("a line has no row")?;
        read_row(&mut state, kind, fields).with_context(|| format!("a line of kind `{kind}` cannot be read"))?;
    }
    Ok(state)
}

/// Converts a lease from the stored form to the engine's form. The stored form has the organization
/// in the state, the engine's form has it beside the state.
fn engine_lease(mut lease: Value) -> Option<Value> {
    let fields = lease.as_object_mut()?;
    let (variant, content) = fields.get_mut("state")?.as_object_mut()?.iter_mut().next()?;
    let (variant, content) = match variant.as_str() {
        "OutstandingForOrganization" => ("Outstanding", content.get("claims")?.clone()),
        "SettledForOrganization" => ("Settled", content.get("outcome")?.clone()),
        _ => return Some(lease),
    };
    let stored = fields.insert("state".to_owned(), json!({ variant: content }))?;
    let organization = stored.as_object()?.values().next()?.get("organization_id")?.clone();
    fields.insert("organization".to_owned(), organization);
    Some(lease)
}

fn read_row(state: &mut State, kind: &str, fields: &mut Value) -> Result<()> {
    let mut field = |name: &str| fields.get_mut(name).map(Value::take).with_context(|| format!("`{name}` is missing"));
    match kind {
        "header" => {}
        "claim" => {
            let (key, claim) = (serde_json::from_value(field("key")?)?, serde_json::from_value(field("claim")?)?);
            ensure!(state.claims.insert(key, claim).is_none(), "two lines have the same claim");
        }
        "lease" => {
            let (id, lease) = (serde_json::from_value(field("id")?)?, field("lease")?);
            let lease = serde_json::from_value(engine_lease(lease).context("the lease has no state")?)?;
            ensure!(state.leases.insert(id, lease).is_none(), "two lines have the same lease");
        }
        "replay" => {
            let (key, replay) = (serde_json::from_value(field("key")?)?, serde_json::from_value(field("replay")?)?);
            ensure!(state.replays.insert(key, replay).is_none(), "two lines have the same idempotency key");
        }
        "end" => state.fence = serde_json::from_value(field("fence")?)?,
        other => bail!("`{other}` is no kind of row"),
    }
    Ok(())
}

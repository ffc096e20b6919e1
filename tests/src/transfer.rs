//! Runs `leasehold export` and `leasehold import`, and parses the lines of an export.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use leasehold_core::rows::State;
use serde_json::{Value, json};
use uuid::Uuid;

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

/// Returns the rows of an export with this many rows of each kind: claims at rest, outstanding leases with a claim each,
/// settled leases, and replays.
#[must_use]
pub fn many_rows(count: u64) -> Vec<String> {
    let id = |kind: u64, number: u64| Uuid::from_u64_pair(0x0192_0000_0000_7000 + kind, 0x8000_0000_0000_0000 + number);
    let key = |name: &str| json!({ "bucket_type": 4, "canonical": name });
    let claim = |name: &str, number: u64, hold: Option<Uuid>| {
        let record = json!({
            "uuid": id(0, number), "spelling": name, "subject": { "subject_type": 4, "id": 7 },
            "source": { "source_type": 1, "id": "07" }, "user_data": null, "created_at": 1, "updated_at": 1,
        });
        let state = match hold {
            Some(lease) => json!({ "Creating": [{ "lease": lease, "since": 1 }, record] }),
            None => json!({ "Active": record }),
        };
        json!({ "claim": { "key": key(name), "claim": { "owner": 1, "state": state } } })
    };
    let lease = |id: Uuid, fence: u64, name: Option<String>, state: Value| {
        let key = name.map(|key| json!({ "cell": 1, "key": key }));
        json!({ "lease": { "id": id, "lease": {
            "cell": 1, "fence": fence, "created_at": 1, "updated_at": 1, "idempotency_key": key, "state": state,
        } } })
    };
    let replay = |number: u64| {
        json!({ "replay": { "key": { "cell": 1, "key": format!("k{number:05}") }, "replay": {
            "lease": id(2, number), "fence": count + number, "fingerprint": { "creates": [], "destroys": [] },
        } } })
    };
    let all = || 1..=count;
    let resting = all().map(|number| claim(&format!("a{number:05}"), number, None));
    let held = all().map(|number| claim(&format!("h{number:05}"), count + number, Some(id(1, number))));
    let outstanding = all().map(|number| {
        let claims = json!({ "Outstanding": [key(&format!("h{number:05}"))] });
        lease(id(1, number), number, None, claims)
    });
    let settled = all().map(|number| {
        lease(id(2, number), count + number, Some(format!("k{number:05}")), json!({ "Settled": "Committed" }))
    });
    resting.chain(held).chain(outstanding).chain(settled).chain(all().map(replay)).map(|row| row.to_string()).collect()
}

/// Returns an export with these rows.
#[must_use]
pub fn export_of(rows: &[String], fence: u64) -> String {
    let end = json!({ "end": { "fence": fence, "rows": rows.len() } }).to_string();
    let header = json!({ "header": { "format": 1 } }).to_string();
    [&[header], rows, &[end]].concat().join("\n")
}

/// Returns the rows of an export in a fixed order, as JSON.
///
/// # Errors
/// A line is not JSON.
pub fn sorted_rows(export: &str) -> Result<Vec<String>> {
    let rows = export.lines().filter(|line| !line.starts_with("{\"header\"") && !line.starts_with("{\"end\""));
    let mut rows: Vec<_> =
        rows.map(|row| Ok(serde_json::from_str::<Value>(row)?.to_string())).collect::<Result<_>>()?;
    rows.sort_unstable();
    Ok(rows)
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

//! The verb `decommission`: counts the data of a cell, and drops it if the caller asks for it.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use leasehold_client::{CellData, Client, DropError};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::source;
use serde_json::{Value, json};

use crate::error::{CliError, call_failed};
use crate::output::{Pages, line};
use crate::session::Session;
use crate::words::name_of;

/// The cell counts as stopped if its newest lease is at least this old.
const QUIET: Duration = Duration::from_secs(600);

/// Arguments of `decommission`.
#[derive(Clone, Debug, clap::Args)]
pub struct DecommissionArgs {
    /// The cell whose data to count, or to drop
    #[arg(long, value_name = "N")]
    cell: i64,

    /// Drop the data; NAME is the cell's name, as `leasehold cells` shows it
    ///
    /// Rolls all leases of the cell back and gives up all of its claims, so that other cells may take the names. The
    /// data is dropped in steps, each of which the server writes to its audit trail. After an interruption, the same
    /// command goes on. A dropped claim can't be restored.
    #[arg(long, value_name = "NAME")]
    drop: Option<String>,

    /// Drop the data even if an outstanding lease was begun within the last ten minutes
    #[arg(long, requires = "drop")]
    even_if_active: bool,
}

pub(crate) async fn decommission(session: &Session<'_>, args: DecommissionArgs) -> Result<(), CliError> {
    session.open().await?;
    let client = session.connection.client()?;
    let cells = client.cells().await.map_err(admins_call_failed)?;
    let cell = cells.into_iter().find(|cell| cell.id == args.cell).ok_or_else(|| {
        let hint = "keep it there until its data is dropped";
        CliError::Usage(format!("the server's configuration has no cell {}: {hint}", args.cell))
    })?;
    if args.drop.as_ref().is_some_and(|name| *name != cell.name) {
        return Err(CliError::Usage(format!(
            "cell {} is named `{}`: repeat this name after --drop",
            cell.id, cell.name
        )));
    }
    let found = client.count_cell_data(cell.id, progress("found")).await;
    end_progress();
    let found = found.map_err(admins_call_failed)?;
    if args.drop.is_none() {
        show(session, &found, false)?;
        let next = format!("--cell {} --drop {}{}", cell.id, cell.name, session.connection.options());
        return note(
            session,
            &format!("nothing was changed; to drop all this, stop the cell and run\n  leasehold decommission {next}"),
        );
    }
    if let Some(age) = found.newest_lease_age.filter(|age| *age < QUIET && !args.even_if_active) {
        let stop = "stop it first, or repeat the command with --even-if-active";
        return Err(CliError::Usage(format!(
            "cell {} began a lease {} s ago that is still outstanding: {stop}",
            cell.id,
            age.as_secs()
        )));
    }
    let dropped = drop_all(&client, cell.id).await?;
    show(session, &dropped, true)?;
    note(session, "the cell has no leases and no claims: remove it from the server's configuration")
}

async fn drop_all(client: &Client, cell: i64) -> Result<CellData, CliError> {
    let dropped = client.drop_cell_data(cell, progress("dropped")).await;
    end_progress();
    dropped.map_err(|error| match error {
        DropError::Call(error) => admins_call_failed(error),
        other => CliError::Incomplete(other.to_string()),
    })
}

/// Returns a function that shows the sums so far on standard error, if that is a terminal.
fn progress(verb: &'static str) -> impl FnMut(&CellData) {
    let is_shown = stderr().is_terminal();
    move |data: &CellData| {
        if is_shown {
            let claims: u64 = data.claims.values().sum();
            let _ = write!(stderr(), "\r{verb} {} leases, {claims} claims ", data.leases);
        }
    }
}

fn end_progress() {
    if stderr().is_terminal() {
        eprintln!();
    }
}

fn show(session: &Session<'_>, data: &CellData, is_dropped: bool) -> Result<(), CliError> {
    let tables = data.claims.iter().map(|(table, claims)| (name_of::<source::Type>(*table), *claims));
    if session.json {
        let claims: serde_json::Map<_, _> = tables.map(|(table, claims)| (table, Value::from(claims))).collect();
        return line(&json!({ "leases": data.leases, "claims": claims, "dropped": is_dropped }).to_string());
    }
    let leases = std::iter::once(vec!["leases".to_owned(), data.leases.to_string()]);
    let rows = tables.map(|(table, claims)| vec![format!("claims from {table}"), claims.to_string()]);
    Pages::new(&[if is_dropped { "DROPPED" } else { "DATA" }, "COUNT"]).write(leases.chain(rows))
}

fn note(session: &Session<'_>, text: &str) -> Result<(), CliError> {
    if !session.json {
        eprintln!("{text}");
    }
    Ok(())
}

fn admins_call_failed(error: leasehold_client::Error) -> CliError {
    call_failed(error).for_admins()
}

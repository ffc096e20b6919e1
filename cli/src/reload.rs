//! The verb `reload`: makes a server read its configuration again.

use crate::error::CliError;
use crate::output::{json_line, line};
use crate::session::Session;

/// Arguments of `reload`: none.
#[derive(Clone, Debug, clap::Args)]
pub struct ReloadArgs {}

pub(crate) async fn reload(session: &Session<'_>, _: ReloadArgs) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let reloaded = session.connection.wait(stub.reload_configuration()).await.map_err(CliError::for_admins)?;
    let reloaded = reloaded.into_inner();
    if session.json {
        return json_line(&reloaded);
    }
    line(&match reloaded.changed.as_slice() {
        [] => "no setting has changed".to_owned(),
        changed => format!("changed: {}", changed.join(", ")),
    })?;
    match reloaded.kept_until_restart.as_slice() {
        [] => Ok(()),
        kept => line(&format!("kept until a restart: {}", kept.join(", "))),
    }
}

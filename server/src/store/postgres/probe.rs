//! Whether the database is there: asked over a connection of its own, which waits for nobody's statements.

use std::time::Duration;

use tokio_postgres::{Client, SimpleQueryMessage};

use super::connect::Way;
use super::failure::failed;
use super::fitness::is_crowded;
use crate::store::StoreError;

/// Reads no row, so that load does not hold it up; but a table that is gone, or that somebody locks whole, is no good.
const LOOK: &str = "
    SET LOCAL lock_timeout = 1500; SELECT FROM claims, claim_leases WHERE false;
    SELECT current_setting('transaction_read_only')";

/// Looks for a database.
pub struct Probe {
    way: Way,
    timeout: Duration,
    client: Option<Client>,
}

impl Probe {
    pub(super) fn new(way: Way, timeout: Duration) -> Self {
        Self { way, timeout, client: None }
    }

    /// Looks whether it answers, and can be written.
    ///
    /// # Errors
    /// It doesn't, or can't. That may take as long as connecting and a statement may.
    pub async fn look(&mut self) -> Result<(), StoreError> {
        let had_connection = self.client.is_some();
        match self.look_once().await {
            // The connection may have died long before.
            Err(StoreError::Away(_)) if had_connection => self.look_once().await,
            seen => seen,
        }
    }

    async fn look_once(&mut self) -> Result<(), StoreError> {
        let client = match self.client.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => match self.way.connect().await {
                // It answers; whether it has room for others, these will say.
                Err(StoreError::Away(cause)) if is_crowded(&cause) => return Ok(()),
                connected => connected?,
            },
        };
        let late = || StoreError::Away(format!("no answer within {} s", self.timeout.as_secs()));
        let answer = tokio::time::timeout(self.timeout, client.simple_query(LOOK)).await.map_err(|_| late())?;
        let answer = answer.map_err(failed)?;
        self.client = Some(client);
        let is_on =
            |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("on"));
        if answer.iter().any(is_on) { Err(StoreError::Away("it is read-only".into())) } else { Ok(()) }
    }
}

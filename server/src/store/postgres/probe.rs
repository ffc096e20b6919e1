//! Whether the database is there: asked over a connection of its own, which waits for nobody's statements.

use std::time::Duration;

use tokio_postgres::SimpleQueryMessage;

use super::connect::{Connection, Way};
use super::failure::failed;
use super::fitness::is_crowded;
use super::servers::{AtWork, Server};
use crate::store::StoreError;

/// Reads no row, so that load does not hold it up; but a table that is gone, or that somebody locks whole, is no good.
const LOOK: &str = "SET LOCAL lock_timeout = 1500; SELECT FROM claims, claim_leases WHERE false";

/// Looks for a database.
pub struct Probe {
    way: Way,
    timeout: Duration,
    client: Option<Connection>,
    // Looks, and tells whether it is read-only and how many other servers are at work.
    look: String,
    at_work: AtWork,
}

impl Probe {
    pub(super) fn new(way: Way, server: Server, timeout: Duration) -> Self {
        let look = format!("{LOOK}; SELECT current_setting('transaction_read_only'), {}", server.others());
        Self { way, timeout, client: None, look, at_work: AtWork::default() }
    }

    /// Looks whether it answers, and can be written. Returns how many other servers are at work on it.
    ///
    /// # Errors
    /// It doesn't, or can't. That may take as long as connecting and a statement may.
    pub async fn look(&mut self) -> Result<usize, StoreError> {
        let had_connection = self.client.is_some();
        match self.look_once().await {
            // The connection may have died long before.
            Err(StoreError::Away(_)) if had_connection => self.look_once().await,
            seen => seen,
        }
    }

    async fn look_once(&mut self) -> Result<usize, StoreError> {
        let client = match self.client.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => match self.way.connect().await {
                // It answers; whether it has room for others, these will say.
                Err(StoreError::Away(cause)) if is_crowded(&cause) => return Ok(self.at_work.count()),
                connected => connected?,
            },
        };
        let late = || StoreError::Away(format!("no answer within {} s", self.timeout.as_secs()));
        let answer = tokio::time::timeout(self.timeout, client.simple_query(&self.look)).await.map_err(|_| late())?;
        let answer = answer.map_err(failed)?;
        for message in &answer {
            let SimpleQueryMessage::Row(row) = message else { continue };
            if row.get(0) == Some("on") {
                return Err(StoreError::Away("it is read-only".into()));
            }
            self.at_work.saw(row.get(1).and_then(|count| count.parse().ok()).unwrap_or(0));
        }
        // Not one that is read-only: another host may have become the primary.
        self.client = Some(client);
        Ok(self.at_work.count())
    }
}

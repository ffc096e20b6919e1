//! The probe of the database. It has a connection of its own, so neither load nor a full pool looks like an outage.

use std::time::Duration;

use tokio_postgres::SimpleQueryMessage;

use super::active_servers::{ActiveServers, ServerId};
use super::connect::{Connection, Connector};
use super::failure::failed;
use crate::store::error::StoreError;
use crate::store::port::{Answer, Probe};

/// Reads no row, so load does not delay it. A missing table, or one that another session has locked, is an error.
const LOOK: &str = "SET LOCAL lock_timeout = 1500; SELECT FROM claims, claim_leases WHERE false";

/// Looks whether the database is up.
pub(super) struct DatabaseProbe {
    connector: Connector,
    timeout: Duration,
    client: Option<Connection>,
    // The statements of a look. They return whether the database is read-only, and the number of other servers.
    look: String,
    others: ActiveServers,
}

impl DatabaseProbe {
    pub(super) fn new(connector: Connector, server: ServerId, timeout: Duration) -> Self {
        let look = format!("{LOOK}; SELECT current_setting('transaction_read_only'), {}", server.others());
        Self { connector, timeout, client: None, look, others: ActiveServers::default() }
    }

    async fn look_twice(&mut self) -> Result<usize, StoreError> {
        let had_connection = self.client.is_some();
        match self.look_once().await {
            // The old connection may have died long ago.
            Err(error) if error.is_away() && had_connection => self.look_once().await,
            seen => seen,
        }
    }

    async fn look_once(&mut self) -> Result<usize, StoreError> {
        let client = match self.client.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => match self.connector.connect().await {
                // The database answers. Readers and writers notice themselves if they get no connection.
                Err(StoreError::TooManyConnections(_)) => return Ok(self.others.count()),
                connected => connected?,
            },
        };
        let late = || StoreError::Unreachable(format!("no answer within {} s", self.timeout.as_secs()));
        let answer = tokio::time::timeout(self.timeout, client.simple_query(&self.look)).await.map_err(|_| late())?;
        let answer = answer.map_err(failed)?;
        for message in &answer {
            let SimpleQueryMessage::Row(row) = message else { continue };
            if row.get(0) == Some("on") {
                return Err(StoreError::Unreachable("the host is read-only".into()));
            }
            self.others.observe(row.get(1).and_then(|count| count.parse().ok()).unwrap_or(0));
        }
        // A connection to a read-only host is dropped above: another host may have become the primary.
        self.client = Some(client);
        Ok(self.others.count())
    }
}

impl Probe for DatabaseProbe {
    fn look(&mut self) -> Answer<'_, usize> {
        Box::pin(self.look_twice())
    }
}

//! The probe of a shared store. It has a connection of its own, so neither load nor a full pool
//! looks like an outage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::time::Timestamp;
use tokio_postgres::SimpleQueryMessage;

use super::active_servers::{ActiveServers, ServerId};
use super::connect::{Connector, DatabaseConnection};
use super::failure::failed;
use super::reads::TIME;
use crate::store::clock::{ClockDifference, StoreClock};
use crate::store::error::StoreError;
use crate::store::port::{Probe, StoreFuture};

/// The first statements of a probe. They read no row, so load does not delay them. They fail if a
/// table is missing, or if another session has locked a table.
const PROBE: &str = "SET LOCAL lock_timeout = 1500; SELECT FROM claims, claim_leases WHERE false";

/// Checks if the database can be reached and accepts writes, counts the other active servers, and
/// reads the database's clock.
pub(super) struct DatabaseProbe {
    connector: Connector,
    timeout: Duration,
    client: Option<DatabaseConnection>,
    // The SQL text of one probe. Its last row has three columns: if the database is read-only, the
    // number of other servers that are writing, and the database's time.
    query: String,
    others: ActiveServers,
    clock: Arc<StoreClock>,
    difference: ClockDifference,
}

impl DatabaseProbe {
    pub(super) fn new(connector: Connector, server: ServerId, clock: Arc<StoreClock>, timeout: Duration) -> Self {
        let query = format!("{PROBE}; SELECT current_setting('transaction_read_only'), {}, {TIME}", server.others());
        Self {
            connector,
            timeout,
            client: None,
            query,
            others: ActiveServers::default(),
            clock,
            difference: ClockDifference::default(),
        }
    }

    async fn probe_twice(&mut self) -> Result<usize, StoreError> {
        let had_connection = self.client.is_some();
        match self.probe_once().await {
            // The connection may have died since the last probe. This says nothing about the
            // database now, so the probe tries a new connection.
            Err(error) if error.is_away() && had_connection => self.probe_once().await,
            seen => seen,
        }
    }

    async fn probe_once(&mut self) -> Result<usize, StoreError> {
        self.connector.look_for_promotion().await;
        let client = self.client.take().filter(|client| !client.is_closed() && self.connector.is_current(client));
        let client = match client {
            Some(client) => client,
            None => match self.connector.connect().await {
                // The database answers, so it is not away. Readers and writers report it themselves
                // if they get no connection.
                Err(StoreError::TooManyConnections(_)) => return Ok(self.others.count()),
                connected => connected?,
            },
        };
        let late = || StoreError::Unreachable(format!("no answer within {} s", self.timeout.as_secs()));
        let asked = Instant::now();
        let answer = tokio::time::timeout(self.timeout, client.simple_query(&self.query)).await.map_err(|_| late())?;
        let answer = answer.map_err(failed)?;
        for message in &answer {
            let SimpleQueryMessage::Row(row) = message else { continue };
            if row.get(0) == Some("on") {
                return Err(StoreError::Unreachable("the host is read-only".into()));
            }
            if let Some(micros) = row.get(2).and_then(|micros| micros.parse().ok()) {
                let time = Timestamp::from_micros(micros);
                self.clock.set(time, asked);
                self.difference.observe(time, asked).into_iter().for_each(warn_of_clocks);
            }
            self.others.observe(row.get(1).and_then(|count| count.parse().ok()).unwrap_or(0));
        }
        // A connection to a host that accepts no writes is not kept, because another host may have
        // become the primary.
        self.client = Some(client);
        Ok(self.others.count())
    }
}

/// Logs that this machine's clock differs from the database's, or that both clocks agree again.
fn warn_of_clocks(ahead_micros: i128) {
    // The difference is rounded, because the round trip makes each reading a little too small or
    // too large.
    let seconds = (ahead_micros.unsigned_abs() + 500_000) / 1_000_000;
    let side = if ahead_micros > 0 { "ahead of" } else { "behind" };
    match ahead_micros {
        0 => tracing::info!("the clocks of this machine and of the database agree again"),
        _ => tracing::warn!(
            "this machine's clock is {seconds} s {side} the database's: synchronise both by NTP; leases have the \
             database's times, certificates and log lines this machine's"
        ),
    }
}

impl Probe for DatabaseProbe {
    fn probe(&mut self) -> StoreFuture<'_, usize> {
        Box::pin(self.probe_twice())
    }
}

//! The probe of a shared store. It has a connection of its own, so neither load nor a full pool
//! looks like an outage. Each probe is a durable write, by which reads are proved: see [`super::epochs`].

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::time::Timestamp;
use tokio::task::JoinHandle;
use tokio_postgres::SimpleQueryMessage;

use super::active_servers::{ActiveServers, ServerId};
use super::connect::{Connector, EpochConnection, SILENCE};
use super::failure::failed;
use super::reads::TIME;
use super::standbys::{self, STANDBYS, Standbys};
use crate::store::clock::{ClockDifference, StoreClock};
use crate::store::error::StoreError;
use crate::store::port::{Probe, Probed, StoreFuture};

/// The first statements of a probe. They read no row, so load does not delay them. They fail if a
/// table is missing, or if another session has locked a table.
const PROBE: &str = "SET LOCAL lock_timeout = 1500; SELECT FROM claims, claim_leases WHERE false";

/// Checks if the database can be reached and accepts writes, counts the other active servers, and
/// reads the database's clock.
pub(super) struct DatabaseProbe {
    connector: Connector,
    timeout: Duration,
    client: Option<EpochConnection>,
    // The SQL text of one probe, without its write. Its last row begins with four columns: the number of other servers
    // that are writing, the database's time, and if COMMITs wait for a standby and standbys are connected.
    query: String,
    others: ActiveServers,
    clock: Arc<StoreClock>,
    difference: ClockDifference,
    standbys: Standbys,
    // The task that looked last for a promoted host.
    look: Option<JoinHandle<()>>,
}

impl DatabaseProbe {
    pub(super) fn new(connector: Connector, server: ServerId, clock: Arc<StoreClock>, timeout: Duration) -> Self {
        let query = format!("{PROBE}; SELECT {}, {TIME}, {STANDBYS}", server.others());
        Self {
            connector,
            timeout,
            client: None,
            query,
            others: ActiveServers::default(),
            clock,
            difference: ClockDifference::default(),
            standbys: Standbys::default(),
            look: None,
        }
    }

    async fn probe_twice(&mut self) -> Result<Probed, StoreError> {
        let had_connection = self.client.is_some();
        match self.probe_once().await {
            // The connection may have died since the last probe. This says nothing about the
            // database now, so the probe tries a new connection.
            Err(error) if error.is_away() && had_connection => {
                self.connector.epochs().set_away(true);
                self.probe_once().await
            }
            seen => seen,
        }
    }

    /// Looks for a promotion in the background. A host that is away delays the look, and must not delay the probe.
    fn look_for_promotion(&mut self) {
        if self.look.as_ref().is_none_or(JoinHandle::is_finished) {
            let connector = self.connector.clone();
            self.look = Some(tokio::spawn(async move { connector.look_for_promotion().await }));
        }
    }

    async fn probe_once(&mut self) -> Result<Probed, StoreError> {
        self.look_for_promotion();
        let client = self.client.take().filter(|client| self.connector.is_current(client));
        let client = match client {
            Some(client) => client,
            None => match self.connector.connect_in_epoch().await {
                // The database answers, so it is not away. Readers and writers report it themselves
                // if they get no connection.
                Err(StoreError::TooManyConnections(_)) => return Ok(self.probed()),
                connected => connected?,
            },
        };
        let late = || StoreError::Unreachable(format!("no answer within {} s", self.timeout.as_secs()));
        let asked = Instant::now();
        let answer = tokio::select! {
            answer = tokio::time::timeout(self.timeout, self.ask(&client)) => answer.map_err(|_| late()).flatten(),
            never = self.tell_of_silence() => match never {},
            () = self.connector.look_elsewhere(&client) => {
                Err(StoreError::Unreachable("the database was restarted, or another host was promoted".into()))
            }
        };
        let answer = answer.inspect_err(|_| self.connector.cancel(client.cancel_token()))?;
        for message in &answer {
            let SimpleQueryMessage::Row(row) = message else { continue };
            if let Some(micros) = row.get(1).and_then(|micros| micros.parse().ok()) {
                let time = Timestamp::from_micros(micros);
                self.clock.set(time, asked);
                self.difference.observe(time, asked).into_iter().for_each(warn_of_clocks);
            }
            let is_true = |column: usize| row.get(column) == Some("t");
            self.standbys.observe(is_true(2), is_true(3));
            self.others.observe(row.get(0).and_then(|count| count.parse().ok()).unwrap_or(0));
        }
        // A connection to a host that accepts no writes is not kept, because another host may have
        // become the primary.
        self.client = Some(client);
        Ok(self.probed())
    }

    /// Sends the statements of a probe, and waits for their answers and for the durable write.
    async fn ask(&self, client: &EpochConnection) -> Result<Vec<SimpleQueryMessage>, StoreError> {
        let query = format!("{}, {}, write_durably()", self.query, client.accepted().guard("0"));
        client.durable(async { client.simple_query(&query).await.map_err(failed) }).await
    }

    /// Lets reads wait no longer once this probe has had no answer for a while, and tells in the log if COMMITs wait for a
    /// standby. Does not return.
    async fn tell_of_silence(&self) -> Infallible {
        tokio::time::sleep(SILENCE).await;
        // The probe may be answered later, but no read is proved meanwhile.
        self.connector.epochs().set_away(true);
        let asked = async { standbys::commits_wait(&*self.connector.connect().await.ok()?).await.ok() };
        if asked.await == Some(true) {
            tracing::warn!("COMMITs of the database wait for a standby, and none confirms them: is one connected?");
        }
        pending().await
    }

    fn probed(&self) -> Probed {
        Probed {
            other_servers: self.others.count(),
            lacks_changes: self.connector.epochs().lacks_changes(),
            lacks_standby: self.standbys.lacks_one(),
        }
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

impl Drop for DatabaseProbe {
    fn drop(&mut self) {
        self.look.iter().for_each(JoinHandle::abort);
    }
}

impl Probe for DatabaseProbe {
    fn probe(&mut self) -> StoreFuture<'_, Probed> {
        Box::pin(async {
            let probed = self.probe_twice().await;
            self.connector.epochs().set_away(probed.as_ref().is_err_and(StoreError::is_away));
            probed
        })
    }
}

//! Servers of one database that ring each other.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Context, Result};

use crate::server::Server;
use crate::wire::{eventually, get};

/// A server of a database, with a port that is known before its start.
#[derive(Debug)]
pub struct RungServer {
    /// The server.
    pub server: Server,
    metrics: SocketAddr,
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Returns the settings of a server that is rung in plain text at this port.
#[must_use]
pub fn in_plain_text(port: u16) -> String {
    format!("[locks]\npeer_address = \"http://127.0.0.1:{port}\"\n")
}

impl RungServer {
    /// Starts a server on the database of this URL. `settings` makes its tables `[locks]` and `[tls]` for its port.
    ///
    /// # Errors
    /// The server does not start.
    pub fn start(url: &str, settings: impl FnOnce(u16) -> String) -> Result<Self> {
        let (port, metrics) = (free_port()?, SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)));
        let settings = settings(port);
        let cells = "[[cells]]\nid = 1\nname = \"cell-1\"\naddress = \"http://127.0.0.1:3001\"\n";
        let config = format!("metrics_listen = \"{metrics}\"\n{settings}[postgres]\nurl = \"{url}\"\n{cells}");
        let server = Server::builder().config(config).listen(format!("127.0.0.1:{port}")).start()?;
        Ok(Self { server, metrics })
    }

    /// Returns the number of rings of a kind, `lock` or `queue`, with this outcome.
    ///
    /// # Errors
    /// The server does not answer, or has no such metric.
    pub async fn rings(&self, kind: &str, outcome: &str) -> Result<u64> {
        let (_, metrics) = get(self.metrics, "/metrics").await?;
        let name = format!("leasehold_{kind}_rings_total{{outcome=\"{outcome}\"}} ");
        let count = metrics.lines().find_map(|line| line.strip_prefix(&name));
        count.with_context(|| format!("no metric begins with `{name}`"))?.parse().context("a metric is no number")
    }

    /// Waits for a number of such rings.
    ///
    /// # Errors
    /// They do not come in time.
    pub async fn await_rings(&self, kind: &str, outcome: &str, count: u64) -> Result<()> {
        let rings = async || self.rings(kind, outcome).await.is_ok_and(|rings| rings >= count).then_some(());
        eventually(&format!("{count} rings for {kind} are {outcome}"), rings).await
    }
}

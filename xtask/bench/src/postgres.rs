//! PostgreSQL for measurements: one cluster, in which Leasehold and pgbench have a database each.

use std::sync::Arc;

use anyhow::{Context, Result};
use leasehold_tests::postgres::Cluster;
use tokio::sync::Mutex;

use super::ours::{Client, Ours};
use super::server::Contender;

/// Settings of the PostgreSQL cluster: memory for pages and space for the log, as a production
/// database has. Commits are synced by default.
const SETTINGS: &[&str] = &["shared_buffers=512MB", "max_wal_size=4GB", "max_connections=200"];

static CLUSTER: Mutex<Option<Arc<Cluster>>> = Mutex::const_new(None);

/// Returns the cluster. The first call starts it; [`stop`] stops it.
///
/// # Errors
/// PostgreSQL does not start.
pub(crate) async fn cluster() -> Result<Arc<Cluster>> {
    let mut cluster = CLUSTER.lock().await;
    if let Some(running) = &*cluster {
        return Ok(running.clone());
    }
    let started = blocking(|| Cluster::start(SETTINGS).map(Arc::new)).await?;
    Ok(cluster.insert(started).clone())
}

/// Stops the cluster and removes its data.
pub(crate) async fn stop() {
    drop(CLUSTER.lock().await.take());
}

/// Creates a database in the cluster and returns its name.
///
/// # Errors
/// PostgreSQL refuses to create the database.
pub(crate) async fn database() -> Result<String> {
    let cluster = cluster().await?;
    blocking(move || cluster.database()).await
}

/// Runs SQL statements in a database. Returns the first column of all result rows as text.
///
/// # Errors
/// PostgreSQL refuses a statement.
pub(crate) async fn execute(database: &str, sql: &'static str) -> Result<Vec<String>> {
    let (cluster, database) = (cluster().await?, database.to_owned());
    blocking(move || cluster.execute(&database, sql)).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("the work was cut short")?
}

/// Starts a server of Leasehold on a new database.
///
/// # Errors
/// The server does not start.
pub(crate) async fn server() -> Result<Ours> {
    on(&database().await?).await
}

async fn on(database: &str) -> Result<Ours> {
    let url = cluster().await?.url(database);
    Ours::start_on(|_| Ok(vec!["--store".into(), url.into()])).await
}

/// Several servers of Leasehold with default settings on one new database. Clients are spread over
/// the servers.
pub(crate) struct OnPostgres<const SERVERS: usize> {
    servers: Vec<Ours>,
    next: std::sync::atomic::AtomicUsize,
}

impl<const SERVERS: usize> Contender for OnPostgres<SERVERS> {
    const NAME: &'static str = if SERVERS == 1 { "ours on PostgreSQL" } else { "several of ours on PostgreSQL" };
    type Client = Client;

    async fn start() -> Result<Self> {
        let database = database().await?;
        let mut servers = Vec::new();
        for _ in 0..SERVERS {
            servers.push(on(&database).await?);
        }
        Ok(Self { servers, next: std::sync::atomic::AtomicUsize::new(0) })
    }

    async fn connect(&self) -> Result<Client> {
        let next = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.servers.get(next % SERVERS).context("there is no server")?.connect().await
    }

    fn share(client: &Client) -> Client {
        Ours::share(client)
    }

    async fn stop(self) -> Result<()> {
        for server in self.servers {
            server.stop().await?;
        }
        Ok(())
    }
}

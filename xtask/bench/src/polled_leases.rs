//! The design of the document on deadline leases, with waiters that poll: a table of leases, and the
//! fastest statements that a person would write for it. Each client has a connection of its own and
//! has prepared its statements.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio_postgres::{NoTls, Statement};
use uuid::Uuid;

use super::load::{CLAIMS, Peer};
use super::locks_vs_etcd::NamedLock;
use super::postgres;
use super::server::Contender;

/// The pause of a client before it asks for a held lock again. A shorter pause costs the database more:
/// with 1 ms, 48 clients that wait would ask up to 48,000 times a second.
const POLL: Duration = Duration::from_millis(10);

/// The key of a lease is its lock, and the lease key names its holder. Pages have room for the next
/// versions of their rows.
const TABLE: &str = "
    CREATE TABLE leases (
        namespace text        NOT NULL,
        key       text        NOT NULL,
        lease_key uuid        NOT NULL,
        deadline  timestamptz NOT NULL,
        PRIMARY KEY (namespace, key)
    ) WITH (fillfactor = 10)";

/// Takes a lease that is absent or expired. A poll of a held lock only reads, so its COMMIT does not
/// wait for the disk.
const ACQUIRE: &str = "
    INSERT INTO leases AS l (namespace, key, lease_key, deadline)
    SELECT 'bench', $1, $2, now() + interval '10 s'
    WHERE NOT EXISTS (SELECT FROM leases WHERE namespace = 'bench' AND key = $1 AND deadline >= now())
    ON CONFLICT (namespace, key) DO UPDATE SET lease_key = excluded.lease_key, deadline = excluded.deadline
    WHERE l.deadline < now()";

const RELEASE: &str = "DELETE FROM leases WHERE namespace = 'bench' AND key = $1 AND lease_key = $2";

/// A database with the table of leases.
pub(crate) struct PolledLeases {
    url: String,
}

impl Contender for PolledLeases {
    const NAME: &'static str = "polled leases";
    type Client = PollingClient;

    async fn start() -> Result<Self> {
        let database = postgres::database().await?;
        postgres::execute(&database, TABLE).await?;
        Ok(Self { url: postgres::cluster().await?.url(&database) })
    }

    async fn connect(&self) -> Result<PollingClient> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.context("cannot connect")?;
        tokio::spawn(connection);
        let (acquire, release) = (client.prepare(ACQUIRE).await?, client.prepare(RELEASE).await?);
        Ok(PollingClient { client: Arc::new(client), acquire, release, key: String::new() })
    }

    fn share(client: &PollingClient) -> PollingClient {
        client.clone()
    }

    async fn stop(self) -> Result<()> {
        Ok(())
    }
}

/// A client that polls.
#[derive(Clone)]
pub(crate) struct PollingClient {
    client: Arc<tokio_postgres::Client>,
    acquire: Statement,
    release: Statement,
    key: String,
}

impl NamedLock for PollingClient {
    fn ask_for(&mut self, name: &str) {
        self.key = name.into();
    }
}

impl Peer for PollingClient {
    type Lease = Uuid;

    async fn begin(&mut self, _: &[String; CLAIMS]) -> Result<Uuid> {
        let lease_key = Uuid::from_u128(rand::random());
        while self.client.execute(&self.acquire, &[&self.key, &lease_key]).await.context("acquire failed")? == 0 {
            tokio::time::sleep(POLL).await;
        }
        Ok(lease_key)
    }

    async fn commit(&mut self, lease_key: Uuid) -> Result<()> {
        let released = self.client.execute(&self.release, &[&self.key, &lease_key]).await.context("release failed")?;
        ensure!(released == 1, "the lease was lost");
        Ok(())
    }
}

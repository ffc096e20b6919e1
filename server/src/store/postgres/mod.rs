//! The shared store: PostgreSQL, with any number of servers on one database.
//!
//! What keeps them apart is the database: the primary key of `claims` and of `idempotency_keys`, the rows' own versions
//! (every group is one transaction at REPEATABLE READ, so that writing a row which has changed since it was read fails),
//! locks taken in one order, and one sequence of fences. See [`writer`] for why that is enough.
//!
//! No statement relies on its connection: nothing is prepared or set beyond a transaction, so pgbouncer may stand before
//! the database in transaction mode.

mod columns;
mod connect;
mod failure;
mod migrate;
mod presumption;
mod reads;
mod recent;
mod writer;
mod writes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime};
use leasehold_core::bucket::BucketKey;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::claim::{CellId, Claim};
use leasehold_core::query::{LeaseRow, LeaseScan, RecordRow, RecordScan};
use leasehold_core::time::Timestamp;

use self::connect::Way;
use self::failure::failed;
use self::recent::Recent;
use crate::config::Postgres;
use crate::store::{Occupancy, StoreError};

pub use writer::PostgresWriter;

type Result<T> = std::result::Result<T, StoreError>;

/// How many settled leases one statement forgets.
const FORGET_ROWS: i64 = 5_000;

/// The database, for reading. Clones share its pool.
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Postgres,
    way: Way,
    pool: Pool,
    occupancy: ArcSwap<Occupancy>,
}

/// The state of the pool of connections for reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolState {
    /// Connections that are open.
    pub open: usize,
    /// Those of them that nobody uses.
    pub idle: usize,
    /// Reads that wait for one.
    pub waiting: usize,
}

impl PostgresStore {
    /// Checks the settings, reaches the database, and brings its tables to this version.
    ///
    /// # Errors
    /// The settings can't be used, the database can't be reached or is of a newer version.
    pub async fn open(settings: &Postgres) -> Result<Self> {
        let store = Self::of(settings)?;
        store.migrate().await?;
        Ok(store)
    }

    /// Checks the settings; reaches nothing yet.
    ///
    /// # Errors
    /// The settings can't be used.
    pub fn of(settings: &Postgres) -> Result<Self> {
        let way = Way::parse(settings)?;
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(way.config.clone(), way.tls.clone(), manager);
        let timeout = Some(Duration::from_secs(settings.connect_timeout_seconds));
        let pool = Pool::builder(manager)
            .max_size(settings.read_connections)
            .runtime(Runtime::Tokio1)
            .create_timeout(timeout)
            .wait_timeout(timeout)
            .build()
            .map_err(|error| StoreError::Unusable { url: settings.shown_url(), error: error.to_string() })?;
        let inner = Inner { settings: settings.clone(), way, pool, occupancy: ArcSwap::default() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Brings the tables to this version; the version found, and the version now.
    ///
    /// # Errors
    /// The database can't be reached, refuses, or is of a newer version.
    pub async fn migrate(&self) -> Result<(i32, i32)> {
        let found = migrate::migrate(&mut self.inner.way.connect().await?).await?;
        Ok((found, migrate::VERSION))
    }

    /// Writers for the committer, each with a connection and a thread of its own.
    ///
    /// # Errors
    /// The machine has no room for them.
    pub fn writers(&self) -> std::io::Result<Vec<PostgresWriter>> {
        let recent = Recent::default();
        let writer = |_| PostgresWriter::new(self.inner.way.clone(), recent.clone(), &self.inner.settings);
        (0..self.inner.settings.write_connections).map(writer).collect()
    }

    /// A bucket's claim (B30).
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn claim(&self, key: &BucketKey) -> Result<Option<Claim>> {
        self.read(|client| async move { reads::claim(&client, key).await }).await
    }

    /// Outstanding leases (B31).
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn leases(&self, scan: &LeaseScan) -> Result<Vec<LeaseRow>> {
        self.read(|client| async move { reads::leases(&client, scan).await }).await
    }

    /// Claims by table and key (B32).
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn records(&self, scan: &RecordScan) -> Result<Vec<RecordRow>> {
        self.read(|client| async move { reads::records(&client, scan).await }).await
    }

    /// Forgets leases settled before a time (B22, B24), a batch of them; whether there may be more.
    ///
    /// # Errors
    /// The database can't be written.
    pub async fn forget(&self, settled_before: Timestamp) -> Result<bool> {
        let forget = |client: Object| async move { reads::forget(&client, settled_before, FORGET_ROWS).await };
        Ok(self.read(forget).await? >= FORGET_ROWS.cast_unsigned())
    }

    /// Forgets groups of unknown outcome that can't arrive any more.
    ///
    /// # Errors
    /// The database can't be written.
    pub async fn forget_abandoned(&self) -> Result<()> {
        self.read(|client| async move { reads::forget_abandoned(&client).await }).await
    }

    /// Frees what settled leases have left in the small table that lists scan (B33).
    ///
    /// # Errors
    /// The database can't be written.
    pub async fn vacuum(&self) -> Result<()> {
        let client = self.inner.pool.get().await.map_err(not_got)?;
        client.batch_execute("VACUUM (SKIP_LOCKED) claim_leases").await.map_err(failed)
    }

    /// Asks how full the database is.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn occupancy(&self) -> Result<Occupancy> {
        let occupancy = self.read(|client| async move { reads::occupancy(&client).await }).await?;
        self.inner.occupancy.store(Arc::new(occupancy));
        Ok(occupancy)
    }

    /// The cells that own any claim.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn owners(&self) -> Result<BTreeSet<CellId>> {
        self.read(|client| async move { reads::owners(&client).await }).await
    }

    /// The rules under which claims of configured bucket types were made.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn bucket_types(&self) -> Result<Vec<BucketRule>> {
        self.read(|client| async move { reads::bucket_types(&client).await }).await
    }

    /// Remembers those of them that are new.
    ///
    /// # Errors
    /// The database can't be written.
    pub async fn remember_bucket_types(&self, rules: &[BucketRule]) -> Result<()> {
        self.read(|client| async move { reads::remember_bucket_types(&client, rules).await }).await
    }

    /// How full the database was when it was last asked.
    pub fn last_occupancy(&self) -> Occupancy {
        **self.inner.occupancy.load()
    }

    /// The pool's state.
    pub fn pool(&self) -> PoolState {
        let status = self.inner.pool.status();
        PoolState { open: status.size, idle: status.available, waiting: status.waiting }
    }

    /// Runs a statement on a connection of the pool; a connection that has died meanwhile is replaced once.
    async fn read<T, F: Future<Output = Result<T>>>(&self, read: impl Fn(Object) -> F) -> Result<T> {
        match self.read_once(&read).await {
            Err(StoreError::Away(_)) => self.read_once(&read).await,
            answer => answer,
        }
    }

    async fn read_once<T, F: Future<Output = Result<T>>>(&self, read: &impl Fn(Object) -> F) -> Result<T> {
        let timeout = Duration::from_secs(self.inner.settings.statement_timeout_seconds);
        let client = self.inner.pool.get().await.map_err(not_got)?;
        let answer = tokio::time::timeout(timeout, read(client)).await;
        answer.unwrap_or_else(|_| Err(StoreError::Away(format!("no answer within {} s", timeout.as_secs()))))
    }
}

fn not_got(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => failed(error),
        error => StoreError::Away(error.to_string()),
    }
}

//! The shared store: PostgreSQL, with any number of servers on one database.
//!
//! What keeps them apart is the database: the primary key of `claims` and of `idempotency_keys`, the rows' own versions
//! (a group is one transaction, which fails where a row that it writes has changed since it was read, or presumed), locks
//! taken in one order, and one sequence of fences. See [`writer`] for why that is enough.
//!
//! No statement relies on its connection: nothing is prepared or set beyond a transaction, so pgbouncer may stand before
//! the database in transaction mode.

mod columns;
mod connect;
mod failure;
mod fitness;
mod migrate;
mod presumption;
mod probe;
mod reads;
mod recent;
mod rows;
mod servers;
mod writer;
mod writes;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, TimeoutType};
use leasehold_core::bucket::BucketKey;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::claim::{CellId, Claim};
use leasehold_core::query::{LeaseRow, LeaseScan, RecordRow, RecordScan};
use leasehold_core::time::Timestamp;
use tokio_postgres::Client;

use self::connect::Way;
use self::failure::failed;
use self::recent::Recent;
use self::servers::Server;
use crate::config::PostgresConfig;
use crate::store::{Occupancy, StoreError, Trouble, Unusable};

pub use probe::Probe;
pub use writer::PostgresWriter;

type Result<T> = std::result::Result<T, StoreError>;

/// How many settled leases one statement forgets.
const FORGET_ROWS: i64 = 5_000;

/// How long a vacuum may take of what is small.
const VACUUM_TIME: Duration = Duration::from_secs(60);

/// A row for each session that vacuums the table, or makes ready to.
const VACUUMING: &str = "
    SELECT FROM pg_locks WHERE locktype = 'relation' AND mode = 'ShareUpdateExclusiveLock'
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND relation = 'claim_leases'::regclass";

/// The database, for reading. Clones share its pool.
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

struct Inner {
    settings: PostgresConfig,
    server: Server,
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
    /// Checks the settings and the database, and brings its tables to this version.
    ///
    /// # Errors
    /// The settings or the database can't be used; a [`StoreError::Unusable`] says why.
    pub async fn open(settings: &PostgresConfig) -> Result<Self> {
        let unusable = |trouble| unusable(settings, trouble);
        let store = Self::of(settings)?;
        let mut client = store.inner.way.reach().await.map_err(unusable)?;
        fitness::check(&client).await.map_err(unusable)?;
        fitness::check_rights(&client).await.map_err(unusable)?;
        migrate::migrate(&mut client, settings.migration_wait_seconds).await.map_err(unusable)?;
        fitness::check_objects(&client).await.map_err(unusable)?;
        fitness::warn_of_carelessness(&client).await.map_err(unusable)?;
        Ok(store)
    }

    /// Brings a database's tables to this version; the version found, and the version now.
    ///
    /// # Errors
    /// As for [`open`](Self::open), but for rights that only serving needs.
    pub async fn migrate(settings: &PostgresConfig) -> Result<(i32, i32)> {
        let migrated = async {
            let mut client = Way::parse(settings)?.reach().await?;
            fitness::check(&client).await?;
            let found = migrate::migrate(&mut client, settings.migration_wait_seconds).await?;
            fitness::check_objects(&client).await.map(|()| found)
        };
        let found = migrated.await.map_err(|trouble| unusable(settings, trouble))?;
        Ok((found, migrate::VERSION))
    }

    /// Checks whether a URL is one of a database, whatever the other settings are.
    ///
    /// # Errors
    /// It is not understood.
    pub fn check_url(url: &str) -> Result<()> {
        let unusable = |error| unusable(&PostgresConfig::at(url), Trouble::Settings(error));
        connect::parse(url).map(drop).map_err(unusable)
    }

    /// Checks the settings; reaches nothing yet.
    fn of(settings: &PostgresConfig) -> Result<Self> {
        let way = Way::parse(settings).map_err(|trouble| unusable(settings, trouble))?;
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(way.config.clone(), way.clone(), manager);
        let timeout = Some(Duration::from_secs(settings.connect_timeout_seconds));
        let pool = Pool::builder(manager)
            .max_size(settings.read_connections)
            .runtime(Runtime::Tokio1)
            .create_timeout(timeout)
            .wait_timeout(timeout)
            .build()
            .map_err(|error| unusable(settings, Trouble::Settings(error.to_string())))?;
        let (settings, server) = (settings.clone(), Server::random());
        let inner = Inner { settings, server, way, pool, occupancy: ArcSwap::default() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Writers for the committer, each with a connection and a thread of its own.
    ///
    /// # Errors
    /// The machine has no room for them.
    pub fn writers(&self) -> std::io::Result<Vec<PostgresWriter>> {
        let recent = Recent::default();
        let Inner { settings, server, way, .. } = &*self.inner;
        let writer = |_| PostgresWriter::new(way.clone(), *server, recent.clone(), settings);
        (0..settings.write_connections).map(writer).collect()
    }

    /// A way to look whether the database is there, which does not wait for reads or writes.
    pub fn probe(&self) -> Probe {
        let Inner { settings, server, way, .. } = &*self.inner;
        Probe::new(way.clone(), *server, Duration::from_secs(settings.statement_timeout_seconds))
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
        let forget = |client: Arc<Lent>| async move { reads::forget(&client, settled_before, FORGET_ROWS).await };
        Ok(self.read(forget).await? >= FORGET_ROWS.cast_unsigned())
    }

    /// Forgets groups of unknown outcome that can't arrive any more.
    ///
    /// # Errors
    /// The database can't be written.
    pub async fn forget_abandoned(&self) -> Result<()> {
        self.read(|client| async move { reads::forget_abandoned(&client).await }).await
    }

    /// The server's role, as statements write it, where it may not vacuum.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn without_vacuum(&self) -> Result<Option<String>> {
        self.read(|client| async move { fitness::without_vacuum(&client).await.map_err(failed) }).await
    }

    /// Frees what settled leases have left in the small table that lists scan (B33); leaves it to the database's own
    /// rounds where the role may not.
    ///
    /// # Errors
    /// The database can't be written.
    pub async fn vacuum(&self) -> Result<()> {
        if self.without_vacuum().await?.is_some() {
            return Ok(());
        }
        self.read_once(&|client: Arc<Lent>| async move { vacuum(&client).await }, VACUUM_TIME).await
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

    /// The same at a start, which tells more of what goes wrong.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn first_occupancy(&self) -> Result<Occupancy> {
        self.occupancy().await.map_err(|error| match error {
            StoreError::Away(cause) => unusable(&self.inner.settings, fitness::of_away(cause)),
            error => error,
        })
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

    /// Runs a statement on a connection of the pool. A connection that has died meanwhile is replaced once, and so is a
    /// snapshot that other servers have overtaken, where the operator's default isolation has one last.
    async fn read<T, F: Future<Output = Result<T>>>(&self, read: impl Fn(Arc<Lent>) -> F) -> Result<T> {
        let (started, timeout) = (Instant::now(), Duration::from_secs(self.inner.settings.statement_timeout_seconds));
        match self.read_once(&read, timeout).await {
            // Not where it was too slow: it would be again.
            Err(StoreError::Away(_) | StoreError::Changed(_)) if started.elapsed() < timeout => {
                self.read_once(&read, timeout).await
            }
            answer => answer,
        }
    }

    async fn read_once<T, F: Future<Output = Result<T>>>(
        &self,
        read: &impl Fn(Arc<Lent>) -> F,
        timeout: Duration,
    ) -> Result<T> {
        let Inner { pool, settings, way, .. } = &*self.inner;
        let connection = pool.get().await.map_err(|error| not_got(error, settings))?;
        let lent = Arc::new(Lent { connection: Some(connection), way: way.clone(), is_idle: AtomicBool::new(false) });
        let late = |_| StoreError::Away(format!("no answer within {} s", timeout.as_secs()));
        let answer = tokio::time::timeout(timeout, read(lent.clone())).await.map_err(late)?;
        lent.is_idle.store(true, Ordering::Relaxed);
        answer
    }
}

/// A connection of the pool that is lent to one read. One that is still busy in the end, since the read took too long or its
/// caller has gone away, leaves the pool, where others would wait for it, and the database is asked to end what it does.
struct Lent {
    connection: Option<Object>,
    way: Way,
    is_idle: AtomicBool,
}

impl Deref for Lent {
    type Target = Client;

    fn deref(&self) -> &Client {
        #[expect(clippy::expect_used, reason = "INVARIANT: it is taken by nothing but `drop`")]
        let connection = self.connection.as_ref().expect("a connection that is lent is there");
        connection
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && !self.is_idle.load(Ordering::Relaxed)
        {
            self.way.cancel(connection.cancel_token());
            drop(Object::take(connection));
        }
    }
}

async fn vacuum(client: &Client) -> Result<()> {
    // Where another server does it just now there is no need to, and the database would log that it was skipped.
    let others = client.query_typed(VACUUMING, &[]).await.map_err(failed)?;
    if !others.is_empty() {
        return Ok(());
    }
    // Cut short, the table would be locked whole for that moment, on standbys too.
    client.batch_execute("VACUUM (SKIP_LOCKED, TRUNCATE false) claim_leases").await.map_err(failed)
}

fn unusable(settings: &PostgresConfig, trouble: Trouble) -> StoreError {
    StoreError::Unusable(Box::new(Unusable { database: settings.shown_url(), trouble }))
}

fn not_got(error: PoolError, settings: &PostgresConfig) -> StoreError {
    let seconds = settings.connect_timeout_seconds;
    match error {
        PoolError::Backend(error) => failed(error),
        PoolError::Timeout(TimeoutType::Wait) => StoreError::Away(format!(
            "all {} connections for reads, `postgres.read_connections`, were in use for {seconds} s",
            settings.read_connections
        )),
        PoolError::Timeout(_) => StoreError::Away(format!("no answer within {seconds} s")),
        error => StoreError::Away(error.to_string()),
    }
}

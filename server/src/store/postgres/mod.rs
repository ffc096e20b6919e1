//! The shared store: a PostgreSQL database that any number of servers use together.
//!
//! PostgreSQL keeps the servers' changes consistent by the primary keys of `claims` and
//! `idempotency_keys`, by locks in one order, by one sequence of fences, and by the versions of
//! rows. A group is one transaction, which fails if a row that it writes has changed since it was
//! read or assumed. The documentation of [`writer`] shows why this is enough.
//!
//! No statement relies on the state of its database session: no statement is prepared, and no
//! setting lasts beyond a transaction. So a pgbouncer in transaction mode may be in front of the
//! database (https://www.pgbouncer.org/features.html).

mod active_servers;
mod columns;
mod composite;
mod connect;
mod epochs;
mod failure;
mod fences;
mod hosts;
mod lease_cache;
mod lock_cache;
mod lock_columns;
mod lock_reads;
mod lock_sharing;
mod lock_swaps;
mod lock_writes;
mod migrate;
mod outbox;
mod pool;
mod preflight;
mod probe;
mod queue_columns;
mod queue_partitions;
mod queue_reads;
mod queue_writes;
mod reads;
mod session;
mod speculation;
mod standbys;
mod transfer;
mod writer;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use leasehold_core::bucket::BucketKey;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::cell::CellId;
use leasehold_core::circle::CircleRead;
use leasehold_core::claim::{Claim, SourceType};
use leasehold_core::lease::{Fence, LeaseId};
use leasehold_core::lock::{Ask, AskId, Lock, LockPath};
use leasehold_core::query::{LeaseRow, LeaseScan, RecordPart, RecordScan};
use leasehold_core::queue::{Lane, LanePath, Queue, QueuePath, Request, RequestBody, RequestId};
use leasehold_core::rows::{OrderedRead, State};
use leasehold_core::session::{Session, SessionId};
use leasehold_core::time::Timestamp;
use leasehold_core::unicode_version::{UNICODE_VERSION, UnicodeVersion};
use rustc_hash::FxHashMap;
use tokio_postgres::Client;

use self::active_servers::ServerId;
use self::connect::{Connector, DatabaseConnection};
use self::epochs::Epochs;
use self::failure::failed;
use self::lease_cache::LeaseCache;
use self::lock_cache::LockCache;
use self::pool::{Access, Pool, PooledConnection};
use self::probe::DatabaseProbe;
use self::writer::PostgresWriter;
use super::clock::{StoreClock, ahead_micros, certain_micros};
use super::error::StoreError;
use super::form_scan::{FormCheck, FormScan};
use super::identity::{Contents, Creation, Identity, RaisedFences};
use super::port::{
    Backend, GroupStore, NamePart, NamePlace, Occupancy, OtherServer, PoolState, Probe, SharedLocks, SharedMaintenance,
    StoreFuture, StoreMaintenance, StoreReader, Vouched, WaitingRows,
};
use super::preflight::{PreflightError, Problem};
use crate::config::PostgresConfig;

pub use self::outbox::{
    OutboxBatch, OutboxConnection, OutboxDatabase, OutboxError, OutboxOperation, OutboxOutcome, OutboxPlace,
    OutboxRefusal, OutboxRow, OutboxSettle, OutboxSubmit, OutboxTurn,
};

pub use self::transfer::PostgresImport;

type Result<T> = std::result::Result<T, StoreError>;

/// The most settled leases that one statement deletes.
const FORGET_ROWS: i64 = 5_000;

/// The longest time that a vacuum of the table of outstanding leases may take. The table is small.
const VACUUM_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest time that a vouch may take. Other servers adopt the sessions of a server that does
/// not vouch for a few seconds.
const VOUCH_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest time of the read before a ring. Later, the waiting servers have read their grants.
const ATTENDANTS_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest time that an adoption of sessions may take.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(10);

/// A query that returns a row for each session that vacuums the table of outstanding leases, or
/// waits to do so.
const VACUUMING: &str = "
    SELECT FROM pg_locks WHERE locktype = 'relation' AND mode = 'ShareUpdateExclusiveLock'
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND relation = 'claim_leases'::regclass";

/// The shared store in a PostgreSQL database. Clones share one pool of connections for reads.
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
    identity: Identity,
}

/// The results of the examination of a database, for a report before a server starts.
#[derive(Debug)]
pub struct Examined {
    /// The identity and contents of the store; `None` if its tables have an older version.
    pub store: Option<(Identity, Contents)>,
    /// The check of every claim and its canonical form; `None` if it was neither asked for, nor needed
    /// because older tables of Unicode made the forms.
    pub forms: Option<FormCheck>,
    /// The version of the tables.
    pub version: i32,
    /// The version to which a start migrates them.
    pub known: i32,
    /// The time by which this machine's clock is ahead of the database's, in microseconds.
    pub clock_ahead_micros: i128,
    /// The time of a durable write that changed no row; `None` if the tables have an older version.
    pub durable_write: Option<Result<Duration>>,
    /// The warnings that a server would log at its start.
    pub warnings: Vec<String>,
}

/// The tables of a database after a migration.
#[derive(Clone, Copy, Debug)]
pub struct Migrated {
    /// The identity of the store.
    pub identity: Identity,
    /// The version of the tables before.
    pub from: i32,
    /// The version of the tables now.
    pub to: i32,
    /// True if the tables were a copy, and are accepted now.
    pub is_adopted: bool,
}

struct Inner {
    settings: PostgresConfig,
    server: ServerId,
    connector: Connector,
    pool: Pool,
    occupancy: ArcSwap<Occupancy>,
    clock: Arc<StoreClock>,
}

impl Inner {
    /// Returns a store without connections.
    fn new(settings: &PostgresConfig, connector: Connector) -> std::result::Result<Self, Problem> {
        let pool = Pool::new(settings, &connector).map_err(Problem::Settings)?;
        let (settings, server) = (settings.clone(), ServerId::random());
        Ok(Self { settings, server, connector, pool, occupancy: ArcSwap::default(), clock: Arc::default() })
    }
}

impl PostgresStore {
    /// Opens the store: checks the settings and the database, and migrates the database's tables to
    /// the version of this program. If there are no tables, makes them, provided that `creation`
    /// allows it.
    ///
    /// # Errors
    /// The settings or the database can't be used; [`StoreError::Preflight`] has the problem.
    pub async fn open(settings: &PostgresConfig, creation: Creation) -> Result<Self> {
        Self::checked(settings, creation).await.map_err(|problem| refused(settings, problem))
    }

    async fn checked(settings: &PostgresConfig, creation: Creation) -> std::result::Result<Self, Problem> {
        let inner = Inner::new(settings, Connector::parse(settings)?)?;
        let mut client = inner.connector.connect_first().await?;
        preflight::check(&client).await?;
        preflight::check_rights(&client).await?;
        let found = migrate::migrate(&mut client, settings.migration_wait_seconds, creation).await?;
        preflight::check_objects(&client).await?;
        let client = inner.connector.enter(client).await?;
        fences::raise(&client).await?;
        for warning in preflight::warnings(&client, settings).await? {
            tracing::warn!("{warning}");
        }
        let identity = preflight::identity(&client, found == 0).await?;
        let asked = Instant::now();
        inner.clock.set(reads::time(&client).await?, asked);
        Ok(Self { inner: Arc::new(inner), identity })
    }

    /// Migrates the tables of a database. If there are no tables, makes them, provided that
    /// `creation` allows it. With `adopts`, accepts the tables if they are a copy of those that servers have used.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), except for rights that only a server needs.
    pub async fn migrate(settings: &PostgresConfig, creation: Creation, adopts: bool) -> Result<Migrated> {
        let migrated = async {
            let connector = Connector::parse(settings)?;
            let mut client = connector.connect_first().await?;
            preflight::check(&client).await?;
            let found = migrate::migrate(&mut client, settings.migration_wait_seconds, creation).await?;
            preflight::check_objects(&client).await?;
            let identity = preflight::identity(&client, found == 0).await?;
            let is_adopted = if adopts { connector.adopt(&client).await? } else { false };
            Epochs::observe(&client).await?;
            Ok(Migrated { identity, from: found, to: migrate::VERSION, is_adopted })
        };
        migrated.await.map_err(|problem| refused(settings, problem))
    }

    /// Examines a database without changing it.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), except for those of a migration.
    pub async fn examine(settings: &PostgresConfig, is_deep: bool) -> Result<Examined> {
        let examined = async {
            let connector = Connector::parse(settings)?;
            let client = connector.connect_first().await?;
            preflight::check(&client).await?;
            preflight::check_rights(&client).await?;
            let version = migrate::existing_version(&client).await?;
            let store = match version {
                migrate::VERSION => Some(examine_store(&client).await?),
                _ => None,
            };
            let durable_write = match store {
                Some(_) => {
                    Some(connector.time_durable_write(&client).await.map_err(|cause| refused(settings, cause.into())))
                }
                None => None,
            };
            let asked = Instant::now();
            let time = reads::time(&client).await?;
            let took = asked.elapsed();
            let clock_ahead_micros = certain_micros(ahead_micros(time, took), took);
            let mut warnings = preflight::warnings(&client, settings).await?;
            warnings.extend(connector.unfit_hosts().await);
            let forms = match store {
                Some((identity, _)) if is_deep || identity.unicode < UNICODE_VERSION => {
                    Some(examine_forms(settings, identity).await?)
                }
                _ => None,
            };
            let known = migrate::VERSION;
            Ok(Examined { store, forms, version, known, clock_ahead_micros, durable_write, warnings })
        };
        examined.await.map_err(|problem| refused(settings, problem))
    }

    /// Checks the settings of a database and the files that they name, without a connection.
    ///
    /// # Errors
    /// A setting or a file can't be used.
    pub fn check_settings(settings: &PostgresConfig) -> Result<()> {
        Connector::parse(settings).map(drop).map_err(|problem| refused(settings, problem))
    }

    /// Checks that a connection string names a PostgreSQL database. The other settings are not
    /// checked.
    ///
    /// # Errors
    /// The connection string can't be parsed.
    pub fn check_url(url: &str) -> Result<()> {
        let refused = |error| refused(&PostgresConfig::at(url), Problem::Settings(error));
        connect::parse(url).map(drop).map_err(refused)
    }

    /// Reads the occupancy when a server starts, and returns the number of claims under leases of
    /// each cell. An outage is reported as [`StoreError::Preflight`], with the operator's next
    /// step.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn first_occupancy(&self) -> Result<BTreeMap<CellId, usize>> {
        self.refresh_occupancy().await.map_err(|error| match preflight::of_away(error) {
            Ok(problem) => refused(&self.inner.settings, problem),
            Err(error) => error,
        })
    }

    /// Runs a statement that reads rows on a connection of the pool, and returns its result.
    fn read<'a, T: Send + 'a, F: Future<Output = Result<T>> + Send + 'a>(
        &'a self,
        statement: impl Fn(Arc<PooledConnection>) -> F + Send + Sync + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(self.inner.pool.run(Access::Read, statement))
    }

    /// Runs a statement that changes rows on a connection of the pool, and returns its result.
    fn write<'a, T: Send + 'a, F: Future<Output = Result<T>> + Send + 'a>(
        &'a self,
        statement: impl Fn(Arc<PooledConnection>) -> F + Send + Sync + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(self.inner.pool.run(Access::Write, statement))
    }
}

impl Backend for PostgresStore {
    fn writers(&self) -> std::io::Result<Vec<Box<dyn GroupStore>>> {
        let caches = (LeaseCache::default(), LockCache::default());
        let Inner { settings, server, connector, .. } = &*self.inner;
        let writer = |_| -> std::io::Result<Box<dyn GroupStore>> {
            Ok(Box::new(PostgresWriter::new(connector.clone(), *server, caches.clone(), settings)?))
        };
        (0..settings.write_connections).map(writer).collect()
    }

    fn reader(&self) -> Arc<dyn StoreReader> {
        Arc::new(self.clone())
    }

    fn clock(&self) -> Arc<StoreClock> {
        self.inner.clock.clone()
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn contents(&self) -> StoreFuture<'_, Contents> {
        self.read(|client| async move { reads::contents(&client).await })
    }

    fn raise_fences(&self) -> StoreFuture<'_, RaisedFences> {
        Box::pin(async {
            let connected = self.inner.connector.connect_in_epoch().await?;
            fences::jump(&connected).await.map_err(|problem| refused(&self.inner.settings, problem))
        })
    }

    fn maintenance(&self) -> StoreMaintenance {
        StoreMaintenance::Shared(Arc::new(self.clone()))
    }

    fn shared_locks(&self) -> Option<Arc<dyn SharedLocks>> {
        Some(Arc::new(self.clone()))
    }

    fn remember_bucket_types<'a>(&'a self, rules: &'a [BucketRule]) -> StoreFuture<'a, ()> {
        self.write(move |client| async move { reads::remember_bucket_types(&client, rules).await })
    }

    fn set_unicode_version(&self, version: UnicodeVersion) -> StoreFuture<'_, ()> {
        let found = self.identity.unicode;
        self.write(move |client| async move { reads::set_unicode_version(&client, found, version).await })
    }
}

impl StoreReader for PostgresStore {
    fn claims<'a>(&'a self, keys: &'a [BucketKey]) -> StoreFuture<'a, Vec<Option<Claim>>> {
        self.read(move |client| async move { reads::claims(&client, keys).await })
    }

    fn leases(&self, scan: LeaseScan) -> StoreFuture<'_, Vec<LeaseRow>> {
        self.read(move |client| async move { reads::leases(&client, &scan).await })
    }

    fn records(&self, scan: RecordScan) -> StoreFuture<'_, RecordPart> {
        let scan = Arc::new(scan);
        self.read(move |client| {
            let scan = scan.clone();
            async move { reads::records(&client, &scan).await }
        })
    }

    fn names(&self, after: NamePlace, limit: usize) -> StoreFuture<'_, NamePart> {
        let after = Arc::new(after);
        self.read(move |client| {
            let after = after.clone();
            async move { reads::names(&client, &after, limit).await }
        })
    }

    fn settled(&self, before: Timestamp, limit: usize) -> StoreFuture<'_, Vec<LeaseId>> {
        self.read(move |client| async move { reads::settled(&client, before, limit).await })
    }

    fn sessions(&self, read: OrderedRead<Session>) -> StoreFuture<'_, Vec<(SessionId, Session)>> {
        let read = Arc::new(read);
        self.read(move |client| {
            let read = read.clone();
            async move { lock_reads::sessions(&client, &read).await }
        })
    }

    fn locks(&self, read: OrderedRead<Lock>) -> StoreFuture<'_, Vec<(LockPath, Lock)>> {
        let read = Arc::new(read);
        self.read(move |client| {
            let read = read.clone();
            async move { lock_reads::locks(&client, &read).await }
        })
    }

    fn lock<'a>(&'a self, path: &'a LockPath) -> StoreFuture<'a, Option<Lock>> {
        self.read(move |client| async move { lock_reads::lock(&client, path).await })
    }

    fn ask(&self, id: AskId) -> StoreFuture<'_, Option<Ask>> {
        self.read(move |client| async move { lock_reads::ask(&client, id).await })
    }

    fn related_asks(&self, read: CircleRead) -> StoreFuture<'_, Vec<(AskId, Ask)>> {
        self.read(move |client| {
            let read = read.clone();
            async move { lock_reads::related_asks(&client, &read).await }
        })
    }

    fn queues(&self, read: OrderedRead<Queue>) -> StoreFuture<'_, Vec<(QueuePath, Queue)>> {
        let read = Arc::new(read);
        self.read(move |client| {
            let read = read.clone();
            async move { queue_reads::queues(&client, &read).await }
        })
    }

    fn queue<'a>(&'a self, path: &'a QueuePath) -> StoreFuture<'a, Option<Queue>> {
        self.read(move |client| async move { queue_reads::queue(&client, path).await })
    }

    fn lanes(&self, read: OrderedRead<Lane>) -> StoreFuture<'_, Vec<(LanePath, Lane)>> {
        let read = Arc::new(read);
        self.read(move |client| {
            let read = read.clone();
            async move { queue_reads::lanes(&client, &read).await }
        })
    }

    fn lane<'a>(&'a self, path: &'a LanePath) -> StoreFuture<'a, Option<Lane>> {
        self.read(move |client| async move { queue_reads::lane(&client, path).await })
    }

    fn requests(&self, read: OrderedRead<Request>) -> StoreFuture<'_, Vec<(RequestId, Request)>> {
        let read = Arc::new(read);
        self.read(move |client| {
            let read = read.clone();
            async move { queue_reads::requests(&client, &read).await }
        })
    }

    fn request(&self, id: RequestId) -> StoreFuture<'_, Option<Request>> {
        self.read(move |client| async move { queue_reads::request(&client, id).await })
    }

    fn bodies<'a>(&'a self, ids: &'a [RequestId]) -> StoreFuture<'a, Vec<Option<RequestBody>>> {
        self.read(move |client| async move { queue_reads::bodies(&client, ids).await })
    }

    fn state(&self) -> StoreFuture<'_, State> {
        self.read(|client| async move { reads::state(&client).await })
    }

    fn owners(&self) -> StoreFuture<'_, BTreeSet<CellId>> {
        self.read(|client| async move { reads::owners(&client).await })
    }

    fn tables(&self, cell: CellId) -> StoreFuture<'_, BTreeSet<SourceType>> {
        self.read(move |client| async move { reads::tables(&client, cell).await })
    }

    fn bucket_types(&self) -> StoreFuture<'_, Vec<BucketRule>> {
        self.read(|client| async move { reads::bucket_types(&client).await })
    }

    fn occupancy(&self) -> Occupancy {
        **self.inner.occupancy.load()
    }

    fn pool(&self) -> Option<PoolState> {
        Some(self.inner.pool.state())
    }

    fn is_lost_by(&self, _: &StoreError) -> bool {
        // A read on another connection may succeed, and the probe notices an outage.
        false
    }
}

impl SharedMaintenance for PostgresStore {
    fn probe(&self) -> Box<dyn Probe> {
        let Inner { settings, server, connector, clock, .. } = &*self.inner;
        let timeout = Duration::from_secs(settings.statement_timeout_seconds);
        Box::new(DatabaseProbe::new(connector.clone(), *server, clock.clone(), timeout))
    }

    fn refresh_occupancy(&self) -> StoreFuture<'_, BTreeMap<CellId, usize>> {
        Box::pin(async {
            let read = self.read(|client| async move { reads::occupancy(&client).await });
            let (occupancy, held_claims) = read.await?;
            self.inner.occupancy.store(Arc::new(occupancy));
            Ok(held_claims)
        })
    }

    fn forget(&self, settled_before: Timestamp) -> StoreFuture<'_, bool> {
        self.inner.connector.epochs().forget(settled_before);
        self.write(move |client| async move {
            let forgotten = reads::forget(&client, settled_before, FORGET_ROWS).await?;
            Ok(forgotten >= FORGET_ROWS.cast_unsigned())
        })
    }

    fn forget_abandoned(&self) -> StoreFuture<'_, ()> {
        self.write(|client| async move { reads::forget_abandoned(&client).await })
    }

    fn shift_partitions(&self, retention: Duration) -> StoreFuture<'_, bool> {
        Box::pin(queue_partitions::shift(&self.inner.pool, retention))
    }

    fn vacuum(&self) -> StoreFuture<'_, ()> {
        Box::pin(async {
            if self.role_without_vacuum().await?.is_some() {
                return Ok(());
            }
            let statement = |client: Arc<PooledConnection>| async move { vacuum(&client).await };
            self.inner.pool.run_once(Access::Alone, &statement, VACUUM_TIMEOUT).await
        })
    }

    fn role_without_vacuum(&self) -> StoreFuture<'_, Option<String>> {
        self.read(|client| async move { preflight::role_without_vacuum(&client).await.map_err(failed) })
    }
}

impl SharedLocks for PostgresStore {
    fn vouch<'a>(&'a self, address: Option<&'a str>) -> StoreFuture<'a, Vouched> {
        Box::pin(async move {
            let home = self.inner.server.home();
            let statement =
                move |client: Arc<PooledConnection>| async move { lock_sharing::vouch(&client, home, address).await };
            // A second attempt would miss the news that the first one has deleted.
            self.inner.pool.run_once(Access::Write, &statement, VOUCH_TIMEOUT).await
        })
    }

    fn own_sessions(&self, after: Option<SessionId>, limit: usize) -> StoreFuture<'_, Vec<(SessionId, Session)>> {
        let (home, limit) = (self.inner.server.home(), i64::try_from(limit).unwrap_or(i64::MAX));
        self.read(move |client| async move { lock_sharing::own(&client, home, after, limit).await })
    }

    fn homeless(&self) -> StoreFuture<'_, Vec<i64>> {
        self.write(|client| async move { lock_sharing::homeless(&client).await })
    }

    fn adopt(&self, former: i64, limit: usize) -> StoreFuture<'_, Vec<(SessionId, Session)>> {
        let (home, limit) = (self.inner.server.home(), i32::try_from(limit).unwrap_or(i32::MAX));
        Box::pin(async move {
            let statement = move |client: Arc<PooledConnection>| async move {
                lock_sharing::adopt(&client, home, former, limit).await
            };
            // A second attempt would not return the sessions that the first one has adopted.
            self.inner.pool.run_once(Access::Write, &statement, ADOPT_TIMEOUT).await
        })
    }

    fn forget_server<'a>(&'a self, other: &'a OtherServer) -> StoreFuture<'a, ()> {
        self.write(move |client| async move { lock_sharing::forget_server(&client, other).await })
    }

    fn stop(&self) -> StoreFuture<'_, ()> {
        let home = self.inner.server.home();
        self.write(move |client| async move { lock_sharing::stop(&client, home).await })
    }

    fn waiting<'a>(&'a self, asks: &'a [AskId], sessions: &'a [SessionId]) -> StoreFuture<'a, WaitingRows> {
        self.read(move |client| async move { lock_sharing::waiting(&client, asks, sessions).await })
    }

    fn attendants<'a>(&'a self, asks: &'a [AskId], limit: usize) -> StoreFuture<'a, Vec<String>> {
        let (home, limit) = (self.inner.server.home(), i64::try_from(limit).unwrap_or(i64::MAX));
        Box::pin(async move {
            let statement = move |client: Arc<PooledConnection>| async move {
                lock_sharing::attendants(&client, home, asks, limit).await
            };
            self.inner.pool.run_once(Access::Read, &statement, ATTENDANTS_TIMEOUT).await
        })
    }

    fn forced<'a>(&'a self, sessions: &'a [SessionId]) -> StoreFuture<'a, FxHashMap<SessionId, Vec<Fence>>> {
        self.read(move |client| async move { lock_sharing::forced(&client, sessions).await })
    }

    fn attend(&self, ask: AskId) -> StoreFuture<'_, bool> {
        let home = self.inner.server.home();
        self.write(move |client| async move { lock_sharing::attend(&client, home, ask).await })
    }

    fn abandon(&self, ask: AskId) -> StoreFuture<'_, bool> {
        let home = self.inner.server.home();
        self.write(move |client| async move { lock_sharing::abandon(&client, home, ask).await })
    }
}

async fn examine_store(client: &DatabaseConnection) -> std::result::Result<(Identity, Contents), Problem> {
    preflight::check_objects(client).await?;
    Epochs::observe(client).await?;
    let contents = reads::contents(client).await.map_err(|error| Problem::Failed(error.to_string()))?;
    Ok((preflight::identity(client, false).await?, contents))
}

/// Reads every claim of a store, and checks its canonical form.
async fn examine_forms(settings: &PostgresConfig, identity: Identity) -> std::result::Result<FormCheck, Problem> {
    let connector = Connector::parse(settings)?.observing();
    let store = PostgresStore { inner: Arc::new(Inner::new(settings, connector)?), identity };
    let checked = FormScan::check_all(&store).await;
    checked.map_err(|error| Problem::Failed(error.to_string()))
}

async fn vacuum(client: &Client) -> Result<()> {
    // If another server vacuums the table now, this vacuum is not needed, and PostgreSQL would log
    // that it was skipped.
    let others = client.query_typed(VACUUMING, &[]).await.map_err(failed)?;
    if !others.is_empty() {
        return Ok(());
    }
    // With TRUNCATE, a vacuum would lock the whole table for a moment, also on standbys
    // (https://www.postgresql.org/docs/15/sql-vacuum.html).
    client.batch_execute("VACUUM (SKIP_LOCKED, TRUNCATE false) claim_leases").await.map_err(failed)
}

fn refused(settings: &PostgresConfig, problem: Problem) -> StoreError {
    StoreError::Preflight(Box::new(PreflightError { database: settings.shown_url(), problem }))
}

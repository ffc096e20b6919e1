//! The export and the import of a whole store. Each is one transaction: an export shows the store as it was at
//! one moment, while servers use it, and an import that fails leaves the tables empty.

use std::pin::pin;

use futures_util::TryStreamExt;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::lease::Fence;
use leasehold_core::rows::{AnyRow, Keys, NetChanges, Workspace};
use leasehold_core::unicode_version::UNICODE_VERSION;
use tokio::runtime::Runtime;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::active_servers::ServerId;
use super::columns::{self, CLAIM};
use super::connect::{Connector, EpochConnection};
use super::epochs::Epochs;
use super::failure::failed;
use super::lease_cache::LeaseCache;
use super::lock_columns::{self, ASK, LOCK, SESSION, TURN};
use super::queue_columns::{self, LANE, QUEUE, REQUEST};
use super::reads::{OUTSTANDING, REPLAY, SETTLED};
use super::writes::Writes;
use super::{PostgresStore, fences, migrate, preflight, reads, refused, writer};
use crate::config::PostgresConfig;
use crate::store::error::StoreError;
use crate::store::identity::Creation;
use crate::store::port::ImportTarget;
use crate::store::preflight::Problem;

type Result<T> = std::result::Result<T, StoreError>;

/// Begins the transaction of an export. All of its statements read one snapshot.
const BEGIN_EXPORT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0";

/// Begins the transaction of an import. A server that uses the tables waits for its end, or fails.
const BEGIN_IMPORT: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = '5s';
    LOCK TABLE claims, claim_leases, lock_sessions, request_queues, request_lanes IN SHARE ROW EXCLUSIVE MODE";

/// A query that tells if the tables have a row of the store.
const HAS_ROWS: &str = "
    SELECT EXISTS (SELECT FROM claims) OR EXISTS (SELECT FROM claim_leases) OR EXISTS (SELECT FROM settled_leases)
        OR EXISTS (SELECT FROM lock_sessions) OR EXISTS (SELECT FROM locks) OR EXISTS (SELECT FROM request_queues)
        OR EXISTS (SELECT FROM request_lanes)";

/// Gives imported leases their own fences in place of those that the sequence has given out.
const GIVE_FENCES: [&str; 2] = [
    "UPDATE claim_leases l SET fence = g.fence FROM unnest($1, $2) AS g (uuid, fence) WHERE l.uuid = g.uuid",
    "UPDATE settled_leases l SET fence = g.fence FROM unnest($1, $2) AS g (uuid, fence) WHERE l.uuid = g.uuid",
];

impl PostgresStore {
    /// Passes every row of the database to `visit`, as all were at one moment, and returns the newest fence. Claims and
    /// leases come in the order of their keys.
    ///
    /// # Errors
    /// The database can't be used, its tables have another version, a row could not be read, or `visit` failed.
    pub async fn export<E: From<StoreError>>(
        settings: &PostgresConfig,
        visit: impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<Fence, E> {
        let connected = async {
            let connector = Connector::parse(settings)?.observing();
            let client = connector.connect_first().await?;
            preflight::check(&client).await?;
            preflight::check_rights_to_read(&client).await?;
            let version = migrate::existing_version(&client).await?;
            if version != migrate::VERSION {
                return Err(Problem::Older { found: version, known: migrate::VERSION });
            }
            Epochs::observe(&client).await?;
            client.batch_execute(BEGIN_EXPORT).await?;
            Ok(client)
        };
        let client = connected.await.map_err(|problem| refused(settings, problem))?;
        Export { client: &client, visit }.all().await?;
        // The sequence is no part of the snapshot. It is read last, and so stands at the fences of all rows at least.
        Ok(reads::newest_fence(&client).await?)
    }
}

/// An export under way.
struct Export<'a, V> {
    client: &'a Client,
    visit: V,
}

impl<V> Export<'_, V> {
    async fn all<E: From<StoreError>>(mut self) -> std::result::Result<(), E>
    where
        V: FnMut(AnyRow) -> std::result::Result<(), E>,
    {
        let claims = format!("SELECT {CLAIM} FROM claims c ORDER BY bucket_type, bucket_value");
        self.each(&claims, |row| columns::claim(row).map(|(key, claim)| AnyRow::Claim(key, claim))).await?;
        self.each(&leases(), |row| columns::any_lease(row).map(|(id, lease)| AnyRow::Lease(id, lease))).await?;
        let replays = format!("SELECT {REPLAY}");
        self.each(&replays, |row| columns::replay(row).map(|(key, replay)| AnyRow::Replay(key, replay))).await?;
        self.locks().await?;
        self.queues().await
    }

    async fn locks<E: From<StoreError>>(&mut self) -> std::result::Result<(), E>
    where
        V: FnMut(AnyRow) -> std::result::Result<(), E>,
    {
        let [sessions, locks, asks, turns] =
            [(SESSION, "lock_sessions s"), (LOCK, "locks l"), (ASK, "lock_asks a"), (TURN, "lock_turns t")]
                .map(|(columns, table)| format!("SELECT {columns} FROM {table}"));
        self.each(&sessions, |row| lock_columns::session(row).map(|(id, session)| AnyRow::Session(id, session)))
            .await?;
        self.each(&locks, |row| lock_columns::lock(row).map(|(path, lock)| AnyRow::Lock(path, lock))).await?;
        self.each(&asks, |row| lock_columns::ask(row).map(|(id, ask)| AnyRow::Ask(id, ask))).await?;
        self.each(&turns, |row| lock_columns::turn(row).map(|(key, turn)| AnyRow::Turn(key, turn))).await
    }

    async fn queues<E: From<StoreError>>(&mut self) -> std::result::Result<(), E>
    where
        V: FnMut(AnyRow) -> std::result::Result<(), E>,
    {
        let [queues, lanes, open, settled, bodies] = [
            (QUEUE, "request_queues q"),
            (LANE, "request_lanes l"),
            (REQUEST, "open_requests r"),
            (REQUEST, "settled_requests r"),
            ("b.uuid, b.body", "request_bodies b"),
        ]
        .map(|(columns, table)| format!("SELECT {columns} FROM {table}"));
        self.each(&queues, |row| queue_columns::queue(row).map(|(path, queue)| AnyRow::Queue(path, queue))).await?;
        self.each(&lanes, |row| queue_columns::lane(row).map(|(path, lane)| AnyRow::Lane(path, lane))).await?;
        for requests in [open, settled] {
            self.each(&requests, |row| queue_columns::request(row).map(|(id, request)| AnyRow::Request(id, request)))
                .await?;
        }
        self.each(&bodies, |row| queue_columns::body(row).map(|(id, body)| AnyRow::RequestBody(id, body))).await
    }

    /// Passes each row of a query to `visit`. The database sends rows as they are taken, so none wait in memory.
    async fn each<E: From<StoreError>>(
        &mut self,
        sql: &str,
        read: impl Fn(&Row) -> Result<AnyRow>,
    ) -> std::result::Result<(), E>
    where
        V: FnMut(AnyRow) -> std::result::Result<(), E>,
    {
        let none: [(bool, Type); 0] = [];
        let rows = self.client.query_typed_raw(sql, none).await.map_err(failed)?;
        let mut rows = pin!(rows);
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            (self.visit)(read(&row)?)?;
        }
        Ok(())
    }
}

/// Returns the query for outstanding and settled leases, by id, with the columns that
/// [`any_lease`](columns::any_lease) reads.
fn leases() -> String {
    format!(
        "SELECT {OUTSTANDING}, NULL::boolean, NULL::timestamptz FROM claim_leases l
         UNION ALL
         SELECT {SETTLED_LAST} FROM settled_leases l ORDER BY 1",
        SETTLED_LAST = SETTLED.replace("l.committed", "NULL, NULL, l.committed")
    )
}

/// The import into a database, whose tables must be empty. All rows are written in one transaction.
pub struct PostgresImport {
    runtime: Runtime,
    connection: EpochConnection,
    server: ServerId,
}

impl PostgresImport {
    /// Begins an import. Makes the tables if there are none.
    ///
    /// # Errors
    /// The errors of [`PostgresStore::open`], the tables are not empty, or the role may not set the fences.
    pub fn begin(settings: &PostgresConfig) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::Failed(error.to_string()))?;
        let (connection, server) = runtime.block_on(async {
            let store = PostgresStore::open(settings, Creation::Allowed).await?;
            let connection = store.inner.connector.connect_in_epoch().await?;
            let begun = begin(&connection, &store).await;
            begun.map_err(|problem| refused(settings, problem))?;
            Ok::<_, StoreError>((connection, store.inner.server))
        })?;
        Ok(Self { runtime, connection, server })
    }
}

async fn begin(connection: &EpochConnection, store: &PostgresStore) -> std::result::Result<(), Problem> {
    preflight::check_right_to_set_fences(connection).await?;
    connection.batch_execute(BEGIN_IMPORT).await?;
    if connection.query_typed_one(HAS_ROWS, &[]).await?.try_get(0)? {
        return Err(Problem::NotEmpty);
    }
    // The import checks the forms of all claims with the tables of this program.
    let set = reads::set_unicode_version(connection, store.identity.unicode, UNICODE_VERSION).await;
    set.map_err(|error| Problem::Failed(error.to_string()))
}

impl ImportTarget for PostgresImport {
    fn load(&mut self, keys: Keys, into: &mut Workspace) -> Result<()> {
        let nothing = LeaseCache::default();
        let loaded = self.runtime.block_on(writer::load_rows(&self.connection, None, &keys, &nothing))?;
        loaded.put_into(into, keys);
        Ok(())
    }

    fn save(&mut self, rows: &NetChanges) -> Result<()> {
        let writes = Writes::of(rows)?;
        let leases = rows.leases.iter().filter_map(|change| Some((change.key.0, change.after.as_ref()?.fence)));
        let (ids, given): (Vec<Uuid>, Vec<i64>) = leases.map(|(id, fence)| (id, fence.0.cast_signed())).unzip();
        self.runtime.block_on(async {
            writer::write(&self.connection, self.server, &writes).await?;
            for sql in GIVE_FENCES.into_iter().filter(|_| !ids.is_empty()) {
                let parameters: columns::Parameters<'_> = vec![(&ids, Type::UUID_ARRAY), (&given, Type::INT8_ARRAY)];
                self.connection.execute_typed(sql, &parameters).await.map_err(failed)?;
            }
            Ok(())
        })
    }

    fn complete(self, newest: Fence, rules: &[BucketRule]) -> Result<()> {
        let Self { runtime, connection, .. } = self;
        runtime.block_on(async {
            fences::raise_to(&connection, newest).await.map_err(failed)?;
            reads::remember_bucket_types(&connection, rules).await?;
            connection.durable(async { connection.batch_execute("COMMIT").await.map_err(failed) }).await
        })
    }
}

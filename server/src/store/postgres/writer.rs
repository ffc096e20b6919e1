//! A writer of the shared store. It has one connection, and writes each group of commands as one
//! transaction.
//!
//! Most groups begin updates of new names and settle leases that this server has begun, or acquire
//! and release locks that this server has seen. They are decided on assumed rows (see
//! [`super::speculation`]). A single statement, which is a transaction of its own, then writes the
//! changes and so proves the assumptions. All other groups take two round trips:
//!
//! 1. `BEGIN` at REPEATABLE READ and, without waiting for its answer, the reads of the group's
//!    rows. Leases to be settled are locked in the order of their ids. Claims and keys are read in
//!    the one snapshot of the transaction.
//! 2. The changes, with one statement for each kind of change, and `COMMIT`.
//!
//! **Linearizability.** The answers equal those of a single server that executes all commands in
//! some order. The reasons below need one rule of the committer: in a shared store, it decides each
//! command on rows as they were loaded.
//!
//! - A command that changes rows has its place in this order at its commit. At that moment every
//!   row that it read is still as it was read. Rows that existed are written, and PostgreSQL
//!   refuses to write a row that has changed since the snapshot (SQLSTATE 40001). Rows that were
//!   absent are inserted under a primary key.
//! - A command that changes nothing has its place at the snapshot of its transaction.
//! - A speculative group has no snapshot, so each of its commands must change something. It deletes
//!   the leases that it settles. Only one transaction can delete a lease, and then no other can
//!   change the lease's claims. Rows that it assumed absent are inserted. If a command changes
//!   nothing, the group is decided again in two round trips.
//! - A command of sessions and locks writes every row that it decides on. An acquire and a release
//!   write the rows of their session and of their lock, and so conflict with any other command that
//!   changes the session's asks or the lock's queue.
//! - A command of queues writes the row of its lane, and a take writes that of its session too. If the
//!   queue has a limit, the row of the queue is written as well. Requests and bodies change only together
//!   with the row of their lane.
//! - A speculative group of sessions and locks compares each assumed row with the row in the table. It
//!   compares the rows that it writes when it locks them. Last, it compares the others in one snapshot,
//!   in which a command that changes nothing has its place: see [`super::lock_swaps`].
//!
//! **Why writers don't deadlock.** Each transaction first locks leases, then the claims at rest
//! that it changes. Then it inserts claims and idempotency keys, and then it locks sessions and
//! locks and inserts the others, and last queues and lanes, each in the order of their keys. Two transactions never conflict on
//! any other row: a claim under a lease changes only together with the row of its lease, and asks and
//! turns together with that of their lock. A speculative group writes its rows in the same order. It
//! waits for a lock for at most 100 ms, then fails and is decided again.
//!
//! **Why a lost connection at COMMIT is safe.** Every transaction of a group keeps the advisory
//! lock of the group's number to its end. A retry first waits for that lock, and so for the end of
//! the first attempt. Only then does it check if the group's leases exist (`Begin::resumed`). It
//! also records the number in `abandoned_groups`, so that a statement of the first attempt that
//! arrives even later has no effect.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::bucket::BucketKey;
use leasehold_core::claim::Claim;
use leasehold_core::command::Fences;
use leasehold_core::lease::{Fence, IdempotencyKey, Lease, LeaseId, LeaseState, Replay};
use leasehold_core::rows::{Keys, NetChanges, RowChange, Workspace};
use rustc_hash::FxHashMap;
use tokio::runtime::Runtime;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::active_servers::ServerId;
use super::columns::{self, CLAIM, KeyArrays, Parameters};
use super::connect::{Connector, EpochConnection};
use super::epochs::Accepted;
use super::failure::failed;
use super::fences;
use super::lease_cache::{CachedLease, LeaseCache};
use super::lock_cache::{AssumedLocks, LockCache};
use super::lock_reads::{self, LoadedLocks, LockKeys};
use super::lock_swaps::LockSwaps;
use super::queue_reads::{self, LoadedQueues, QueueKeys};
use super::reads::{OUTSTANDING, REPLAY, SETTLED};
use super::session::{End, Session};
use super::speculation::{Assumed, AssumedRows, Speculation};
use super::standbys;
use super::writes::Writes;
use crate::config::PostgresConfig;
use crate::store::error::StoreError;
use crate::store::port::{Failure, GroupError, GroupStore, LockTimeout};

/// The usual lock timeout of a group. A server locks rows for milliseconds. A session that locks
/// rows for longer belongs to a person or hangs, and must not delay commands on other rows.
const USUAL_LOCK_TIMEOUT_MS: u64 = 500;
/// The lock timeout of a command whose rows were recently found locked.
const SHORT_LOCK_TIMEOUT_MS: u64 = 20;

/// The time for which an idle writer runs the task of its connection, to notice if the database has
/// closed the connection.
const LISTEN: Duration = Duration::from_millis(1);

/// Fills 16 MiB of the database's disk, the size of a segment of its log, and frees them. The log
/// does not have them, because the table is temporary. Pages of uncompressed text are written at
/// once when the table grows.
const FILL: &str = "CREATE TEMPORARY TABLE leasehold_room (filler text) ON COMMIT DROP;
    ALTER TABLE leasehold_room ALTER COLUMN filler SET STORAGE EXTERNAL;
    INSERT INTO leasehold_room SELECT repeat('x', 1048576) FROM generate_series(1, 16)";

type Result<T> = std::result::Result<T, StoreError>;

/// Fills a part of the database's disk, and frees it again. Does nothing if the role may not.
///
/// # Errors
/// The disk has too little room, or the database is away.
pub(super) async fn fill(connection: &Client) -> Result<()> {
    match connection.batch_execute(FILL).await.map_err(failed) {
        Err(error) if error.is_away() || matches!(error, StoreError::OutOfResources(_)) => Err(error),
        // A role without the right TEMPORARY can't fill a table. A small write must then do.
        _ => Ok(()),
    }
}

/// A writer: a connection for groups of commands, and a runtime that only this writer's thread
/// drives.
pub(super) struct PostgresWriter {
    runtime: Runtime,
    connector: Connector,
    statement_timeout: Duration,
    cache: LeaseCache,
    lock_cache: LockCache,
    speculation: Speculation,
    session: Session<EpochConnection>,
    // The epoch of the last connection.
    epoch: Option<Arc<Accepted>>,
    server: ServerId,
    // The number of the current group, which its retries keep.
    group: i64,
    lock_timeout: LockTimeout,
}

impl PostgresWriter {
    pub(super) fn new(
        connector: Connector,
        server: ServerId,
        (cache, lock_cache): (LeaseCache, LockCache),
        settings: &PostgresConfig,
    ) -> std::io::Result<Self> {
        Ok(Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            connector,
            statement_timeout: Duration::from_secs(settings.statement_timeout_seconds),
            cache,
            lock_cache,
            speculation: Speculation::default(),
            session: Session::default(),
            epoch: None,
            group: server.group(),
            server,
            lock_timeout: LockTimeout::Usual,
        })
    }

    /// Waits for an answer of the database. The wait is one second longer than the database's
    /// statement timeout, so that the database's own error, which names the reason, arrives first. It ends
    /// when this server leaves the epoch of the connection.
    fn wait<T>(&self, connection: &EpochConnection, answer: impl Future<Output = Result<T>>) -> Result<T> {
        let patience = self.statement_timeout + Duration::from_secs(1);
        let late = || StoreError::Unreachable(format!("no answer within {} s", patience.as_secs()));
        self.runtime.block_on(async {
            // The timer is created inside the runtime, because it belongs to the runtime in which
            // it is created.
            tokio::select! {
                biased;
                answer = tokio::time::timeout(patience, answer) => answer.unwrap_or_else(|_| Err(late())),
                () = self.connector.epochs().left(connection.accepted()) => {
                    Err(StoreError::Unreachable("the database was restarted, or another host was promoted".into()))
                }
            }
        })
    }

    /// Takes a connection without a transaction out of the session. If needed, it first connects,
    /// abandons the group of unknown outcome, or rolls back. The session is then `Down`; after an
    /// error in the state `Unknown` it stays `Unknown`.
    fn take_idle(&mut self) -> Result<EpochConnection> {
        match std::mem::take(&mut self.session) {
            Session::Idle(connection) if self.connector.is_current(&connection) => Ok(connection),
            Session::Idle(_) | Session::Down => self.connect(),
            Session::Open(connection) => {
                self.roll_back(connection);
                self.take_idle()
            }
            Session::Unknown => {
                self.session = Session::Unknown;
                let connection = self.connect()?;
                self.wait(&connection, abandon_group(&connection, self.group, self.statement_timeout))?;
                self.session = Session::Down;
                Ok(connection)
            }
        }
    }

    /// Opens a connection, and makes sure that the next fence is larger than the fence of every
    /// lease.
    fn connect(&mut self) -> Result<EpochConnection> {
        let connection = self.runtime.block_on(self.connector.connect_in_epoch())?;
        if self
            .epoch
            .replace(connection.accepted().clone())
            .is_some_and(|former| !Arc::ptr_eq(&former, connection.accepted()))
        {
            // Cached rows may have been lost.
            self.cache.clear();
            self.lock_cache.clear();
        }
        self.wait(&connection, async { fences::raise(&connection).await.map_err(failed) })?;
        Ok(connection)
    }

    /// Commits a small change, and returns the connection, which has no transaction then. The session
    /// is as after [`Self::take_idle`].
    fn write_once(&mut self) -> Result<EpochConnection> {
        let connection = self.take_idle()?;
        // No group has this number, so its row in `abandoned_groups` has no effect until the
        // maintenance deletes it.
        self.wait(&connection, abandon_group(&connection, self.server.group(), self.statement_timeout))?;
        Ok(connection)
    }

    /// Rolls back the transaction of a connection. If this fails, the connection is closed.
    fn roll_back(&mut self, connection: EpochConnection) {
        let done = self.wait(&connection, async { connection.batch_execute("ROLLBACK").await.map_err(failed) });
        self.session = Session::after_rollback(connection, End::of(&done));
    }

    /// Returns the SQL statements that begin the transaction of a group.
    fn begin_statements(&self, connection: &EpochConnection) -> String {
        let timeout = self.statement_timeout.as_millis();
        let group = connection.accepted().guard(&self.group.to_string());
        let lock_timeout = match self.lock_timeout {
            LockTimeout::Usual => USUAL_LOCK_TIMEOUT_MS,
            LockTimeout::Short => SHORT_LOCK_TIMEOUT_MS,
        };
        format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT begin_group({group}, {timeout}); SET LOCAL lock_timeout = {lock_timeout}"
        )
    }

    /// Reads the rows of `keys` in the transaction of the group. A group's first read begins the
    /// transaction.
    fn read(&mut self, keys: &Keys) -> Result<LoadedRows> {
        let (connection, begin) = match std::mem::take(&mut self.session) {
            Session::Open(connection) => (connection, None),
            session => {
                self.session = session;
                let connection = self.take_idle()?;
                let begin = self.begin_statements(&connection);
                (connection, Some(begin))
            }
        };
        let loaded = self.wait(&connection, load_rows(&connection, begin, keys, &self.cache));
        if let Ok(loaded) = &loaded {
            self.lock_cache.add_read(&loaded.locks);
        }
        let end = End::of(&loaded);
        match Session::after_read(connection, end) {
            Session::Open(connection) if end == End::Failed => self.roll_back(connection),
            session => self.session = session,
        }
        loaded
    }

    /// Assumes the rows of `keys` instead of reading them: leases and their claims come from the
    /// cache, and all other rows are assumed to be absent. Sessions, locks and their asks come from
    /// another cache. Returns `None` if the rows must be read.
    fn assume(&mut self, keys: &Keys) -> Option<LoadedRows> {
        let is_between_groups = matches!(self.session, Session::Idle(_) | Session::Down);
        if !is_between_groups || self.lock_timeout == LockTimeout::Short {
            return None;
        }
        let mut loaded = LoadedRows::default();
        if let Some(locks) = self.speculation.assume_locks(keys, &self.lock_cache) {
            loaded.locks = locks;
            return Some(loaded);
        }
        for (id, cached) in self.speculation.assume(keys, &self.cache)? {
            loaded.leases.insert(id, cached.lease);
            loaded.claims.extend(cached.claims);
        }
        Some(loaded)
    }

    /// Writes the changes in the open transaction and commits it. Returns the fences of new leases.
    fn commit_open(&mut self, changes: &NetChanges) -> Result<Fences> {
        let connection = match std::mem::take(&mut self.session) {
            Session::Open(connection) => connection,
            // No row was read, so no command was decided and there is no change to commit.
            session => {
                self.session = session;
                return Ok(Fences::default());
            }
        };
        let writes = match Writes::of(changes) {
            Ok(writes) => writes,
            Err(error) => {
                self.roll_back(connection);
                return Err(error);
            }
        };
        let written = write_and_commit(&connection, self.server, &writes);
        let committed = match changes.is_empty() {
            true => self.wait(&connection, proved(&connection, written)),
            false => self.wait(&connection, connection.durable(written)),
        };
        self.session = Session::after_commit(connection, End::of(&committed));
        committed
    }

    /// Commits a speculative group, and returns the fences of its new leases. The commit fails if
    /// an assumption was wrong.
    fn commit_speculative(&mut self, assumed: &AssumedRows, changes: &NetChanges) -> Result<Fences> {
        let writes = Writes::of(changes)?;
        if !(assumed.are_proved_by(changes) && writes.is_one_statement()) {
            return Err(StoreError::Misspeculated(
                "a command of the group does not change the rows that it reads".into(),
            ));
        }
        let connection = self.take_idle()?;
        let written = async {
            let rows = writes.alone(&connection, self.group).await.map_err(failed)?;
            let leases = fences(&rows)?.into_iter().collect();
            Ok(Fences { leases, ..Fences::default() })
        };
        let committed = self.wait(&connection, connection.durable(written));
        self.session = Session::after_commit(connection, End::of(&committed));
        committed.map_err(misspeculated)
    }

    /// Commits a group of sessions and locks that assumed rows of the cache, and returns the fences of
    /// its new grants. The commit fails if a row is not as it is in the cache.
    fn commit_swaps(&mut self, assumed: &AssumedLocks, changes: &NetChanges) -> Result<Fences> {
        let writes = Writes::of(changes)?;
        let swaps = LockSwaps::of(changes, assumed)?.filter(|_| writes.locks().is_swap());
        let Some(swaps) = swaps else { return Err(self.read_instead()) };
        let connection = self.take_idle()?;
        let written = swaps.write(&connection, self.server, self.group, writes.locks());
        let committed = match changes.is_empty() {
            true => self.wait(&connection, proved(&connection, written)),
            false => self.wait(&connection, connection.durable(written)),
        };
        self.session = Session::after_commit(connection, End::of(&committed));
        if committed.is_err() {
            self.lock_cache.forget(assumed);
        }
        let committed = committed.map(|grants| Fences { grants, ..Fences::default() }).map_err(misspeculated);
        self.record(&committed);
        committed
    }

    /// Notes the leases that a group has begun and settled last.
    fn note_last(&self, changes: &NetChanges, fences: &Fences) {
        let begun = |change: &RowChange<Lease>| {
            Some((*fences.leases.get(&change.key)?, change.key, change.after.as_ref()?.created_at))
        };
        if let Some((fence, lease, begun_at)) = changes.leases.iter().filter_map(begun).max() {
            self.connector.epochs().note(lease, fence, begun_at);
        }
        let is_settled = |lease: &Lease| matches!(lease.state, LeaseState::Settled(_));
        let settled = changes.leases.iter().rev().find(|change| change.after.as_ref().is_some_and(is_settled));
        settled.into_iter().for_each(|change| self.connector.epochs().note_settled(change.key));
    }

    /// Notes if the database found the assumptions of a speculative group right.
    fn record(&mut self, committed: &Result<Fences>) {
        match committed {
            Ok(_) => self.speculation.record(true),
            Err(StoreError::Misspeculated(_)) => self.speculation.record(false),
            Err(_) => {}
        }
    }

    /// True if COMMITs wait for a standby. Their locks are no fault of somebody who could end a transaction.
    fn commits_wait(&mut self) -> bool {
        let Ok(connection) = self.take_idle() else { return false };
        let waiting = self.wait(&connection, async { standbys::commits_wait(&connection).await.map_err(failed) });
        if waiting.is_ok() {
            self.session = Session::Idle(connection);
        }
        waiting.unwrap_or(false)
    }

    /// Returns the error of a group whose rows can't be assumed, and lets the group read them.
    fn read_instead(&mut self) -> StoreError {
        self.speculation.read_next();
        StoreError::Misspeculated("a command of the group changes or reads other rows than the cache has".into())
    }

    fn group_error(&mut self, error: StoreError) -> GroupError {
        let error = match error {
            StoreError::Locked(_) if self.commits_wait() => StoreError::Unreachable(AWAITED.into()),
            error => error,
        };
        let failure = match error {
            StoreError::Conflict(_) => Failure::Conflict,
            StoreError::Misspeculated(_) => Failure::Misspeculated,
            StoreError::Locked(_) => Failure::Locked,
            StoreError::StatementTimeout(_) => Failure::StatementTimeout,
            StoreError::Unreachable(_) | StoreError::TooManyConnections(_) => Failure::Away,
            StoreError::OutOfResources(_) => Failure::Exhausted,
            _ => Failure::Row,
        };
        GroupError { failure, may_be_committed: self.session.is_unknown(), error }
    }
}

/// The text for rows that nobody keeps locked on purpose.
const AWAITED: &str = "a COMMIT waits for a standby, and keeps rows locked";

/// Returns the error of a speculative group: a lost race means that an assumption was wrong.
fn misspeculated(error: StoreError) -> StoreError {
    match error {
        StoreError::Conflict(cause) | StoreError::Locked(cause) => StoreError::Misspeculated(cause),
        error => error,
    }
}

/// Waits until the transaction of a group with unknown outcome has ended, and records the group as
/// abandoned. If the transaction's COMMIT does not end, as when it waits for a lost standby, this
/// function fails. The writer then begins no transaction, because each would hang too, and use
/// another connection.
async fn abandon_group(connection: &EpochConnection, group: i64, statement_timeout: Duration) -> Result<()> {
    let timeout = statement_timeout.as_millis();
    let group = connection.accepted().guard(&group.to_string());
    let abandon = format!("SET LOCAL lock_timeout = {timeout}; SELECT abandon_group({group})");
    let abandoned = async {
        connection.batch_execute(&abandon).await.map_err(|error| match failed(error) {
            StoreError::Locked(_) => StoreError::Unreachable(
                "an earlier transaction of this server does not end: it waits for a standby, or hangs".into(),
            ),
            error => error,
        })
    };
    connection.durable(abandoned).await
}

/// Waits for the answer of a group that changes nothing: its rows must not be stale (B30).
async fn proved<T>(connection: &EpochConnection, answer: impl Future<Output = Result<T>>) -> Result<T> {
    let answer = answer.await?;
    if !connection.accepted().is_proved() {
        connection.prove().await?;
    }
    Ok(answer)
}

/// Reads the rows of `keys`, and locks the leases. All statements but the last are sent before the
/// first answer is awaited.
pub(super) async fn load_rows(
    client: &Client,
    begin: Option<String>,
    keys: &Keys,
    cache: &LeaseCache,
) -> Result<LoadedRows> {
    let claims: KeyArrays<'_> = keys.claims.iter().collect();
    let leases: Vec<Uuid> = {
        let mut ids: Vec<_> = keys.leases.iter().map(|id| id.0).collect();
        ids.sort();
        ids
    };
    let cached: FxHashMap<LeaseId, CachedLease> =
        keys.leases.iter().filter_map(|id| Some((*id, cache.lease(*id)?))).collect();
    let uncached: Vec<Uuid> = leases.iter().copied().filter(|id| !cached.contains_key(&LeaseId(*id))).collect();
    let (cells, names): (Vec<i64>, Vec<&str>) = keys.replays.iter().map(|key| (key.cell.0, &*key.key)).unzip();
    // INVARIANT: `join!` polls its futures, and so sends their statements, in this order. BEGIN
    // comes first, and the leases are locked before the snapshot shows their claims.
    let (locks, queues) = (LockKeys::of(keys)?, QueueKeys::of(keys)?);
    let (begun, outstanding, held, claims, replays, locks, queues) = futures_util::join!(
        async {
            match &begin {
                Some(begin) => client.batch_execute(begin).await,
                None => Ok(()),
            }
        },
        rows(client, &LOCK_LEASES, vec![(&leases, Type::UUID_ARRAY)], leases.is_empty()),
        rows(client, &READ_HELD, vec![(&uncached, Type::UUID_ARRAY)], uncached.is_empty()),
        rows(client, &READ_CLAIMS, claims.parameters(), claims.is_empty()),
        rows(client, &READ_REPLAYS, vec![(&cells, Type::INT8_ARRAY), (&names, Type::TEXT_ARRAY)], cells.is_empty()),
        lock_reads::load(client, locks),
        queue_reads::load(client, queues),
    );
    begun.map_err(failed)?;
    let (outstanding, held) = (outstanding.map_err(failed)?, held.map_err(failed)?);
    let claims = claims.map_err(failed)?;
    let mut leases: FxHashMap<LeaseId, Lease> = outstanding.iter().map(columns::outstanding).collect::<Result<_>>()?;
    let absent: Vec<_> = keys.leases.iter().filter(|id| !leases.contains_key(id)).map(|id| id.0).collect();
    // If a lease is not outstanding, a repeated commit may have named it. So it is looked up among
    // the settled leases.
    let settled = rows(client, &READ_SETTLED, vec![(&absent, Type::UUID_ARRAY)], absent.is_empty()).await;
    for row in settled.map_err(failed)? {
        leases.extend([columns::settled(&row)?]);
    }
    let mut claims: FxHashMap<BucketKey, Claim> =
        claims.iter().chain(&held).map(columns::claim).collect::<Result<_>>()?;
    let outstanding = cached.into_iter().filter(|(id, _)| leases.get(id).is_some_and(|l| l.outcome().is_none()));
    claims.extend(outstanding.flat_map(|(_, cached)| cached.claims));
    let replays = replays.map_err(failed)?.iter().map(columns::replay).collect::<Result<_>>()?;
    Ok(LoadedRows { leases, claims, replays, locks: locks?, queues: queues? })
}

/// Writes the changes of a group one after the other in the open transaction.
pub(super) async fn write(client: &Client, server: ServerId, writes: &Writes<'_>) -> Result<()> {
    for statement in writes.statements(client) {
        fences(&statement.await.map_err(failed)?)?;
    }
    writes.locks().write(client, server, writes.queues(), false).await.map(drop)
}

async fn write_and_commit(client: &Client, server: ServerId, writes: &Writes<'_>) -> Result<Fences> {
    let statements = writes.statements(client);
    let locks = writes.locks().write(client, server, writes.queues(), statements.is_empty());
    let commit = client.batch_execute("COMMIT");
    let (written, locked, committed) = futures_util::join!(join_all(statements), locks, commit);
    let mut all = Fences::default();
    // After an error, all later statements of the transaction fail, so only the first error tells
    // the cause.
    for rows in written {
        all.leases.extend(fences(&rows.map_err(failed)?)?);
    }
    all.grants = locked?;
    committed.map_err(failed)?;
    Ok(all)
}

/// The number in a row of `try_write_group` that reports a lock timeout.
const LOCK_NOT_AVAILABLE: i64 = 2;

/// Reads the fences of new leases from the rows that `try_write_group` returned.
///
/// # Errors
/// Another transaction was first, or a lock timed out: then `try_write_group` returns a row without
/// a lease.
fn fences(rows: &[Row]) -> Result<Vec<(LeaseId, Fence)>> {
    let fence = |row: &Row| {
        let (lease, number): (Option<Uuid>, i64) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        match lease {
            Some(lease) => Ok((LeaseId(lease), Fence(number.cast_unsigned()))),
            None if number == LOCK_NOT_AVAILABLE => Err(StoreError::Locked("lock timeout".into())),
            None => Err(StoreError::Conflict("another transaction was first".into())),
        }
    };
    rows.iter().map(fence).collect()
}

async fn rows(
    client: &Client,
    sql: &str,
    parameters: Parameters<'_>,
    is_empty: bool,
) -> std::result::Result<Vec<Row>, tokio_postgres::Error> {
    if is_empty { Ok(Vec::new()) } else { client.query_typed(sql, &parameters).await }
}

/// The rows that one load has read or assumed.
#[derive(Default)]
pub(super) struct LoadedRows {
    leases: FxHashMap<LeaseId, Lease>,
    claims: FxHashMap<BucketKey, Claim>,
    replays: FxHashMap<IdempotencyKey, Replay>,
    locks: LoadedLocks,
    queues: LoadedQueues,
}

impl LoadedRows {
    pub(super) fn put_into(mut self, workspace: &mut Workspace, keys: Keys) {
        self.locks.put_into(workspace, &keys);
        self.queues.put_into(workspace, &keys);
        let Keys { claims, leases, replays, .. } = keys;
        for id in leases {
            workspace.load(id, self.leases.remove(&id));
        }
        for key in replays {
            let replay = self.replays.remove(&key);
            workspace.load(key, replay);
        }
        for key in claims {
            let claim = self.claims.remove(&key);
            workspace.load(key, claim);
        }
        // The remaining claims belong to the leases, and the committer would ask for them next.
        self.claims.into_iter().for_each(|(key, claim)| workspace.load(key, Some(claim)));
    }
}

static LOCK_LEASES: LazyLock<String> = LazyLock::new(|| format!("SELECT {OUTSTANDING} FROM lock_leases($1) l"));

static READ_SETTLED: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {SETTLED} FROM settled_leases l WHERE l.uuid = ANY ($1)"));

static READ_HELD: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {CLAIM} FROM claim_leases l, unnest(l.bucket_types, l.bucket_values) AS k (t, v)
         JOIN claims c ON c.bucket_type = k.t AND c.bucket_value = k.v WHERE l.uuid = ANY ($1)"
    )
});

static READ_CLAIMS: LazyLock<String> = LazyLock::new(|| format!("SELECT {CLAIM} FROM read_claims($1, $2) c"));

static READ_REPLAYS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {REPLAY} JOIN unnest($1, $2) AS n (cell, name) ON k.creator_id = n.cell AND k.idempotency_key = n.name"
    )
});

impl GroupStore for PostgresWriter {
    fn is_shared(&self) -> bool {
        true
    }

    fn begin(&mut self) -> std::result::Result<Workspace, GroupError> {
        if !self.session.is_unknown() {
            self.group = self.server.group();
        }
        self.speculation.begin_group();
        // The database assigns the fences when it writes the leases and grants. Until then, the
        // engine's own fences are placeholders.
        Ok(Workspace::new(Fence::PLACEHOLDER))
    }

    fn load(&mut self, keys: Keys, into: &mut Workspace) -> std::result::Result<(), GroupError> {
        if self.speculation.has_assumed_locks() {
            let error = self.read_instead();
            return Err(self.group_error(error));
        }
        let loaded = match self.assume(&keys) {
            Some(assumed) => assumed,
            None => self.read(&keys).map_err(|error| self.group_error(error))?,
        };
        loaded.put_into(into, keys);
        Ok(())
    }

    fn commit(&mut self, changes: &NetChanges) -> std::result::Result<Fences, GroupError> {
        let assumed = self.speculation.take();
        let committed = match &assumed {
            Some(Assumed::Claims(assumed)) => {
                let committed = self.commit_speculative(assumed, changes);
                self.record(&committed);
                committed
            }
            Some(Assumed::Locks(assumed)) => self.commit_swaps(assumed, changes),
            None => self.commit_open(changes),
        };
        if let Ok(fences) = &committed {
            self.note_last(changes, fences);
        }
        self.cache.update(changes, committed.as_ref().ok());
        self.lock_cache.update(changes, committed.as_ref().ok());
        committed.map_err(|error| self.group_error(error))
    }

    fn enable_speculation(&mut self) {
        self.speculation.enable();
    }

    fn set_lock_timeout(&mut self, timeout: LockTimeout) {
        self.lock_timeout = timeout;
    }

    fn on_idle(&mut self) {
        if let Session::Idle(connection) = &self.session {
            // The task that drives the connection runs only while this thread waits in the runtime.
            self.runtime.block_on(async { tokio::time::sleep(LISTEN).await });
            if !self.connector.is_current(connection) {
                self.session = Session::Down;
            }
        }
    }

    fn accepts_writes(&mut self) -> bool {
        let written = self.write_once();
        written.map(|connection| self.session = Session::Idle(connection)).is_ok()
    }

    fn has_room(&mut self) -> bool {
        let Ok(connection) = self.write_once() else { return false };
        let has_room = self.wait(&connection, async { fill(&connection).await }).is_ok();
        if has_room {
            self.session = Session::Idle(connection);
        }
        has_room
    }
}

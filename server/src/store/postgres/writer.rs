//! One writer: a connection of its own, and a group of commands in one transaction.
//!
//! Most groups begin updates of new names and settle leases that this server has begun. They are decided on what is presumed
//! (see [`super::presumption`]), and one statement, which is its own transaction, writes and so proves it. The others take
//! two round trips:
//!
//! 1. `BEGIN` at REPEATABLE READ and, in the same flight, the group's rows: leases to be settled are locked in the order
//!    of their ids; claims and keys are read as of the transaction's one snapshot.
//! 2. What the engine decided, as one statement a kind of change, and `COMMIT`.
//!
//! Why the answers agree with some order of all commands, whichever server took them: the committer decides each command
//! of a shared store only on rows as they were loaded. A command that changed something stands at its commit: every row
//! that it read is then as it was read, since rows that were there are written (the database refuses to write one that
//! has changed since the snapshot), and rows that were absent are inserted under a primary key. A command that changed
//! nothing stands at the snapshot, which is all that it saw. A group that was presumed about has no snapshot, so each of its
//! commands has to change something: its leases are deleted, which only one transaction can do and which keeps others from
//! their claims, and what was absent is inserted. Where one doesn't, the group is decided again in two round trips.
//!
//! Why nobody waits in a circle: leases are locked first, then claims at rest that are to change, then rows are inserted,
//! claims before keys, each kind in the order of its keys. Nothing else that a transaction writes can be another's: a
//! claim under a lease changes only with the lease's row. A group that was presumed about has locked nothing first, so it
//! does not wait for others: it gives up and is decided again.

use std::cell::{Cell, RefCell};
use std::sync::LazyLock;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::bucket::BucketKey;
use leasehold_core::claim::Claim;
use leasehold_core::invariant::State;
use leasehold_core::lease::{Fence, IdempotencyKey, Lease, LeaseId};
use leasehold_core::query::{LeaseRow, LeaseScan, RecordRow, RecordScan};
use leasehold_core::store::{Fences, Store};
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::{Keys, NetChanges, Replay, Workspace};
use rustc_hash::FxHashMap;
use tokio::runtime::Runtime;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::columns::{self, CLAIM, KeyArrays, Parameters};
use super::connect::{Connection, Way};
use super::failure::{failed, is_cut_short};
use super::presumption::{Presumed, Presumption};
use super::reads::{self, OUTSTANDING, REPLAY, SETTLED};
use super::recent::{Known, Recent};
use super::servers::Server;
use super::writes::Writes;
use crate::committer::{Failure, Writable};
use crate::config::PostgresConfig;
use crate::store::StoreError;

/// How long a group waits for rows that are locked. Servers lock theirs for some milliseconds; a session that holds some for
/// longer is a person's, or gone, and is not to hold up commands that have nothing to do with its rows.
const LOCK_PATIENCE_MS: u64 = 500;
/// How long a command does that was found to want such rows.
const BRIEF_LOCK_PATIENCE_MS: u64 = 20;

/// How long a writer that has nothing to do listens whether its connection still stands.
const LISTEN: Duration = Duration::from_millis(1);

type Result<T> = std::result::Result<T, StoreError>;

/// A connection for groups of commands. Its methods block: each writer has a thread of its own.
pub struct PostgresWriter {
    runtime: Runtime,
    way: Way,
    statement_timeout: Duration,
    recent: Recent,
    presumption: RefCell<Presumption>,
    client: RefCell<Option<Connection>>,
    // Whether a transaction has begun on the connection, and not ended.
    begun: Cell<bool>,
    // Whether anything was sent to the database by the last run.
    sent: Cell<bool>,
    server: Server,
    // Names the transactions of one group and its retries.
    group: Cell<i64>,
    // Whether the outcome of the group's last transaction is unknown.
    unknown: Cell<bool>,
    is_brief: bool,
}

impl PostgresWriter {
    pub(super) fn new(way: Way, server: Server, recent: Recent, settings: &PostgresConfig) -> std::io::Result<Self> {
        Ok(Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            way,
            statement_timeout: Duration::from_secs(settings.statement_timeout_seconds),
            recent,
            presumption: RefCell::default(),
            client: RefCell::default(),
            begun: Cell::default(),
            sent: Cell::default(),
            group: Cell::new(server.group()),
            server,
            unknown: Cell::default(),
            is_brief: false,
        })
    }

    /// Runs something on the connection, made where there is none; a connection that fails is given up.
    fn run<T>(&self, work: impl AsyncFnOnce(&Client) -> Result<T>) -> Result<T> {
        let mut held = self.client.borrow_mut();
        let patience = self.statement_timeout + Duration::from_secs(1);
        self.sent.set(false);
        let done = self.runtime.block_on(async {
            let client = match held.take() {
                Some(client) => client,
                None => self.way.connect().await?,
            };
            self.sent.set(true);
            let late = || StoreError::Away(format!("no answer within {} s", patience.as_secs()));
            let done = tokio::time::timeout(patience, work(&client)).await.unwrap_or_else(|_| Err(late()));
            // A connection that has failed is not asked again: that would take its time, too.
            let is_good = match &done {
                Ok(_) => true,
                Err(StoreError::Away(_)) => false,
                Err(_) => !self.begun.get() || self.recover(&client).await,
            };
            if is_good {
                *held = Some(client);
            }
            done
        });
        if done.is_err() {
            self.begun.set(false);
        }
        done
    }

    /// Ends a failed transaction; false where the connection is of no more use.
    async fn recover(&self, client: &Client) -> bool {
        let rollback = client.batch_execute("ROLLBACK");
        matches!(tokio::time::timeout(self.statement_timeout, rollback).await, Ok(Ok(())))
    }

    /// The statements that begin a transaction, whose lock a retry of the group waits for.
    fn begin(&self) -> String {
        let (timeout, group) = (self.statement_timeout.as_millis(), self.group.get());
        let patience = if self.is_brief { BRIEF_LOCK_PATIENCE_MS } else { LOCK_PATIENCE_MS };
        format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT begin_group({group}, {timeout}); SET LOCAL lock_timeout = {patience}"
        )
    }

    /// Waits until a transaction whose outcome is unknown has ended, one way or the other. Where it doesn't, as where its COMMIT
    /// waits for a standby that is gone, nothing is written: each further transaction would take a connection and hang.
    async fn await_outcome(&self, client: &Client) -> Result<()> {
        let (timeout, group) = (self.statement_timeout.as_millis(), self.group.get());
        let abandon = format!("SET LOCAL lock_timeout = {timeout}; SELECT abandon_group({group})");
        client.batch_execute(&abandon).await.map_err(|error| match failed(error) {
            StoreError::Blocked(_) => StoreError::Away("a transaction of this server does not come to its end".into()),
            error => error,
        })?;
        self.unknown.set(false);
        Ok(())
    }

    async fn load_rows(&self, client: &Client, keys: &Keys) -> Result<Loaded> {
        if self.unknown.get() {
            self.await_outcome(client).await?;
        }
        // From here on, whatever comes of it.
        let begin = (!self.begun.replace(true)).then(|| self.begin());
        let claims: KeyArrays<'_> = keys.claims.iter().collect();
        let leases: Vec<Uuid> = {
            let mut ids: Vec<_> = keys.leases.iter().map(|id| id.0).collect();
            ids.sort();
            ids
        };
        let known: FxHashMap<LeaseId, Known> =
            keys.leases.iter().filter_map(|id| Some((*id, self.recent.lease(*id)?))).collect();
        let strangers: Vec<Uuid> = leases.iter().copied().filter(|id| !known.contains_key(&LeaseId(*id))).collect();
        let (cells, names): (Vec<i64>, Vec<&str>) = keys.replays.iter().map(|key| (key.cell.0, &*key.key)).unzip();
        // Polled, and so sent, in this order.
        let (begun, outstanding, held, claims, replays) = futures_util::join!(
            async {
                match &begin {
                    Some(begin) => client.batch_execute(begin).await,
                    None => Ok(()),
                }
            },
            rows(client, &LOCK_LEASES, vec![(&leases, Type::UUID_ARRAY)], leases.is_empty()),
            rows(client, &READ_HELD, vec![(&strangers, Type::UUID_ARRAY)], strangers.is_empty()),
            rows(client, &READ_CLAIMS, claims.parameters(), claims.is_empty()),
            rows(client, &READ_REPLAYS, vec![(&cells, Type::INT8_ARRAY), (&names, Type::TEXT_ARRAY)], cells.is_empty()),
        );
        begun.map_err(failed)?;
        let (outstanding, held) = (outstanding.map_err(failed)?, held.map_err(failed)?);
        let claims = claims.map_err(failed)?;
        let mut leases: FxHashMap<LeaseId, Lease> =
            outstanding.iter().map(columns::outstanding).collect::<Result<_>>()?;
        let absent: Vec<_> = keys.leases.iter().filter(|id| !leases.contains_key(id)).map(|id| id.0).collect();
        // A retry's mostly.
        let settled = rows(client, &READ_SETTLED, vec![(&absent, Type::UUID_ARRAY)], absent.is_empty()).await;
        for row in settled.map_err(failed)? {
            leases.extend([columns::settled(&row)?]);
        }
        let mut claims: FxHashMap<BucketKey, Claim> =
            claims.iter().chain(&held).map(columns::claim).collect::<Result<_>>()?;
        let outstanding = known.into_iter().filter(|(id, _)| leases.get(id).is_some_and(|l| l.outcome().is_none()));
        claims.extend(outstanding.flat_map(|(_, known)| known.claims));
        Ok(Loaded {
            leases,
            claims,
            replays: replays.map_err(failed)?.iter().map(columns::replay).collect::<Result<_>>()?,
        })
    }

    /// The group's rows where they may be presumed.
    fn presume(&self, keys: &Keys) -> Option<Loaded> {
        if self.begun.get() || self.unknown.get() || self.is_brief {
            return None;
        }
        let mut loaded = Loaded::default();
        for (id, known) in self.presumption.borrow_mut().leases(keys, &self.recent)? {
            loaded.leases.insert(id, known.lease);
            loaded.claims.extend(known.claims);
        }
        Some(loaded)
    }

    async fn save_rows(&self, client: &Client, changes: &NetChanges) -> Result<Fences> {
        if !self.begun.get() {
            return Ok(Fences::default());
        }
        let writes = Writes::of(changes)?;
        let commit = client.batch_execute("COMMIT");
        let (landed, committed) = futures_util::join!(join_all(writes.flights(client)), commit);
        // Where a statement has failed, the database has rolled back instead.
        self.begun.set(false);
        let mut fences = Fences::default();
        // The first failure is the cause of those after it.
        for written in landed {
            fences.extend(numbered(&written.map_err(failed)?)?);
        }
        committed.map_err(failed)?;
        Ok(fences)
    }

    /// Writes what was decided on presumptions; that it can be written proves them.
    fn save_presumed(&self, presumed: &Presumed, changes: &NetChanges) -> Result<Fences> {
        let writes = Writes::of(changes)?;
        let mistaken = |why: String| Err(StoreError::Mistaken(why));
        if !(presumed.is_proved_by(changes) && writes.is_one_statement()) {
            return mistaken("not every command of the group changes what it reads".into());
        }
        let written = self.run(async |client| {
            let rows = writes.alone(client, self.group.get()).await.map_err(failed)?;
            numbered(&rows).map(|fences| fences.into_iter().collect())
        });
        match written {
            Err(StoreError::Changed(why) | StoreError::Blocked(why)) => mistaken(why),
            written => written,
        }
    }
}

/// What `try_write_rows` numbers the row without a lease where it has waited too long for a lock.
const LOST_TO_A_LOCK: i64 = 2;

/// The fences of new leases; an error where the group has come second, which is a row without a lease.
fn numbered(rows: &[Row]) -> Result<Vec<(LeaseId, Fence)>> {
    let fence = |row: &Row| {
        let (lease, number): (Option<Uuid>, i64) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        match lease {
            Some(lease) => Ok((LeaseId(lease), Fence(number.cast_unsigned()))),
            None if number == LOST_TO_A_LOCK => Err(StoreError::Blocked("the lock was waited for too long".into())),
            None => Err(StoreError::Changed("another transaction was first".into())),
        }
    };
    rows.iter().map(fence).collect()
}

async fn rows(
    client: &Client,
    sql: &str,
    parameters: Parameters<'_>,
    none: bool,
) -> std::result::Result<Vec<Row>, tokio_postgres::Error> {
    if none { Ok(Vec::new()) } else { client.query_typed(sql, &parameters).await }
}

/// The rows of one load.
#[derive(Default)]
struct Loaded {
    leases: FxHashMap<LeaseId, Lease>,
    claims: FxHashMap<BucketKey, Claim>,
    replays: FxHashMap<IdempotencyKey, Replay>,
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

impl Writable for PostgresWriter {
    fn failure(error: &StoreError, _: bool) -> Failure {
        match error {
            StoreError::Changed(_) => Failure::Changed,
            StoreError::Mistaken(_) => Failure::Mistaken,
            StoreError::Away(cause) if is_cut_short(cause) => Failure::TooLong,
            StoreError::Away(_) => Failure::Away,
            StoreError::Blocked(_) => Failure::Blocked,
            _ => Failure::Row,
        }
    }

    fn may_presume(&mut self) {
        self.presumption.get_mut().allow();
    }

    fn be_brief(&mut self, is_brief: bool) {
        self.is_brief = is_brief;
    }

    fn rest(&mut self) {
        let client = self.client.get_mut();
        if client.is_some() {
            // What drives the connection runs only while this thread waits for it: it is to hear that the other end is closed.
            // Made within it: a timer needs the runtime it waits in.
            self.runtime.block_on(async { tokio::time::sleep(LISTEN).await });
            client.take_if(|client| client.is_closed());
        }
    }

    fn is_reachable(&mut self) -> bool {
        let reached =
            self.run(async |client| if self.unknown.get() { self.await_outcome(client).await } else { Ok(()) });
        reached.is_ok()
    }

    fn may_have_written(&self) -> bool {
        self.unknown.get()
    }
}

impl Store for PostgresWriter {
    type Error = StoreError;

    fn is_shared(&self) -> bool {
        true
    }

    fn workspace(&self) -> Result<Workspace> {
        if !self.unknown.get() {
            self.group.set(self.server.group());
        }
        self.presumption.borrow_mut().renew();
        // The database numbers the leases: the fences given here stand until then.
        Ok(Workspace::new(Fence::default()))
    }

    fn load(&self, keys: Keys, into: &mut Workspace) -> Result<()> {
        let loaded = match self.presume(&keys) {
            Some(presumed) => presumed,
            None => self.run(async |client| self.load_rows(client, &keys).await)?,
        };
        let Loaded { mut leases, mut claims, mut replays } = loaded;
        for id in keys.leases {
            into.load_lease(id, leases.remove(&id));
        }
        for key in keys.replays {
            let replay = replays.remove(&key);
            into.load_replay(key, replay);
        }
        for key in keys.claims {
            let claim = claims.remove(&key);
            into.load_claim(key, claim);
        }
        // Those of the leases, which would be asked for next.
        claims.into_iter().for_each(|(key, claim)| into.load_claim(key, Some(claim)));
        Ok(())
    }

    fn save(&mut self, changes: &NetChanges) -> Result<Fences> {
        let presumed = self.presumption.get_mut().take();
        let fences = match &presumed {
            Some(presumed) => self.save_presumed(presumed, changes),
            None => self.run(async |client| self.save_rows(client, changes).await),
        };
        match fences {
            Ok(_) if presumed.is_some() => self.presumption.get_mut().learn(true),
            Err(StoreError::Mistaken(_)) => self.presumption.get_mut().learn(false),
            _ => {}
        }
        self.begun.set(false);
        // A connection that fails now may have carried the commit, or not.
        self.unknown.set(self.sent.get() && matches!(fences, Err(StoreError::Away(_))));
        self.recent.keep(changes, fences.as_ref().ok());
        fences
    }

    fn claim(&self, key: &BucketKey) -> Result<Option<Claim>> {
        self.run(async |client| reads::claim(client, key).await)
    }

    fn leases(&self, scan: &LeaseScan) -> Result<Vec<LeaseRow>> {
        self.run(async |client| reads::leases(client, scan).await)
    }

    fn records(&self, scan: &RecordScan) -> Result<Vec<RecordRow>> {
        self.run(async |client| reads::records(client, scan).await)
    }

    fn settled(&self, before: Timestamp, limit: usize) -> Result<Vec<LeaseId>> {
        self.run(async |client| reads::settled(client, before, limit).await)
    }

    fn state(&self) -> Result<State> {
        self.run(async |client| reads::state(client).await)
    }
}

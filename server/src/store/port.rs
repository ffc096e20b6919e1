//! The ports of a store: the traits through which the committer, the gRPC services and the
//! maintenance use a store.
//!
//! A [`Backend`] is one open store. It provides the writers of the committer ([`GroupStore`]), the
//! reader of the services ([`StoreReader`]) and its [`StoreMaintenance`].
//!
//! ```text
//! workspace = store.begin()?
//! loop { keys = workspace.missing(commands); if keys.is_empty() { break } store.load(keys, &mut workspace)? }
//! for each command: reply = command.apply(&mut workspace, now)
//! fences = store.commit(&workspace.into_changes())?      then, and only then, let the replies go
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::bucket::BucketKey;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::cell::CellId;
use leasehold_core::circle::CircleRead;
use leasehold_core::claim::{Claim, SourceType};
use leasehold_core::command::Fences;
use leasehold_core::lease::{Fence, LeaseId};
use leasehold_core::lock::{Ask, AskId, Lock, LockPath};
use leasehold_core::locking::HeldSlot;
use leasehold_core::query::{LeaseRow, LeaseScan, RecordPart, RecordScan};
use leasehold_core::queue::{Lane, LanePath, Queue, QueuePath, Request, RequestBody, RequestId};
use leasehold_core::rows::{Keys, NetChanges, OrderedRead, State, Workspace};
use leasehold_core::session::{Session, SessionId};
use leasehold_core::time::Timestamp;
use leasehold_core::unicode_version::UnicodeVersion;
use rustc_hash::FxHashMap;

use super::clock::StoreClock;
use super::error::StoreError;
use super::identity::{Contents, Identity, RaisedFences};

type Result<T> = std::result::Result<T, StoreError>;

/// The future of a store's operation, which may wait for a database.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T>>;

/// The kind of the failure of a group, which decides the committer's reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Another transaction changed the rows that were loaded. The group was not written, and is
    /// decided again.
    Conflict,
    /// The store assumed a row without reading it, and the assumption was wrong. The group was not
    /// written, and is decided again.
    Misspeculated,
    /// The store can't be reached. It may come back.
    Away,
    /// A session that does not belong to a Leasehold server locks some of the group's rows. Other
    /// commands of the group may succeed.
    Locked,
    /// The database canceled a statement that took too long. With fewer commands, a group may be
    /// fast enough.
    StatementTimeout,
    /// The store lacks a resource that all groups need, such as disk space. The group was not
    /// written, and its commands would fail one at a time too.
    Exhausted,
    /// The store failed in a way that no other variant names, for example because a row of the group
    /// can't be read or written. Other commands of the group may succeed.
    Row,
    /// The store allows no write until it has been opened again.
    Fatal,
}

/// The failure to load or commit a group of commands.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct GroupError {
    /// The kind of the failure, which decides the committer's reaction.
    pub failure: Failure,
    /// True if the group's changes may have been committed although this is a failure, because the
    /// answer to the commit was lost.
    pub may_be_committed: bool,
    /// The store's error, which is the cause.
    pub error: StoreError,
}

impl GroupError {
    /// Returns the failure of a group that was certainly not committed.
    pub fn uncommitted(failure: Failure, error: StoreError) -> Self {
        Self { failure, may_be_committed: false, error }
    }
}

/// The longest time that a group waits for rows which other database sessions have locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockTimeout {
    /// The usual timeout, longer than any server locks rows.
    Usual,
    /// A very short timeout, for rows that were just found locked by a session that does not belong
    /// to a server.
    Short,
}

/// A writer of a store, which loads rows for groups of commands and commits their changes. Its
/// methods block, so each writer has a thread of its own.
pub trait GroupStore: Send + 'static {
    /// True if other writers may change the same rows. The committer must then decide each command
    /// on rows as they were loaded, not as earlier commands of the group have left them: see
    /// [`Workspace::has_changed`].
    fn is_shared(&self) -> bool {
        false
    }

    /// True if fences that nobody gets may lie between two fences that the store gives out (B13).
    fn skips_fences(&self) -> bool {
        false
    }

    /// Begins a group of commands, and returns an empty workspace for it.
    ///
    /// # Errors
    /// The newest fence could not be read.
    fn begin(&mut self) -> std::result::Result<Workspace, GroupError>;

    /// Loads the rows with these keys into the workspace of the group.
    ///
    /// # Errors
    /// A row could not be read. The group is then over, and must be begun again.
    fn load(&mut self, keys: Keys, into: &mut Workspace) -> std::result::Result<(), GroupError>;

    /// Commits the group's changes, all or none, and returns when they are durable. A shared store numbers new leases
    /// itself and returns their fences (B13), which the caller must put into the replies with
    /// [`Reply::with_fences`](leasehold_core::command::Reply::with_fences).
    ///
    /// # Errors
    /// The group was not committed, or the outcome is unknown ([`GroupError::may_be_committed`]).
    /// No reply may be sent.
    fn commit(&mut self, changes: &NetChanges) -> std::result::Result<Fences, GroupError>;

    /// Allows the store to assume rows instead of reading them. A commit may then fail as
    /// [`Failure::Misspeculated`].
    fn enable_speculation(&mut self) {}

    /// Sets the lock timeout for all following groups.
    fn set_lock_timeout(&mut self, _timeout: LockTimeout) {}

    /// Does the store's own idle work, such as noticing a closed connection. The committer calls
    /// this if no command has come for a while.
    fn on_idle(&mut self) {}

    /// True if the store has just accepted a small write, and the outcome of its last group is known.
    fn accepts_writes(&mut self) -> bool {
        true
    }

    /// True if the store accepts writes, and has the room for a large group.
    fn has_room(&mut self) -> bool {
        self.accepts_writes()
    }
}

/// The amount of data in a store: counts of leases and claims, and the size on disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occupancy {
    /// The number of outstanding leases.
    pub leases: usize,
    /// The number of claims under outstanding leases.
    pub held_claims: usize,
    /// The time when the oldest outstanding lease was begun; `None` if no lease is outstanding.
    pub oldest_lease: Option<Timestamp>,
    /// The size of the store on disk, in bytes; the largest of its members, if each has a copy.
    pub disk_bytes: u64,
    /// The size at which the store refuses writes, in bytes; 0 if it has no such size.
    pub disk_quota_bytes: u64,
    /// The number of alarms for which the store refuses writes.
    pub alarms: usize,
}

/// A place in a scan of the names of all claims. A store that keeps the claims of outstanding leases
/// apart visits the leases first, because a commit moves their claims to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamePlace {
    /// After the claims of this outstanding lease; `None` at the start of the scan.
    Lease(Option<LeaseId>),
    /// After this claim; `None` before the first claim.
    Claim(Option<BucketKey>),
}

impl Default for NamePlace {
    fn default() -> Self {
        Self::Lease(None)
    }
}

/// A part of a scan of the names of all claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamePart {
    /// The keys of claims, each with the spelling of a record. A replaced claim has two records.
    pub names: Vec<(BucketKey, Arc<str>)>,
    /// The number of claims that could not be read.
    pub damaged: usize,
    /// The place after which the scan goes on; `None` at its end.
    pub next: Option<NamePlace>,
}

impl NamePart {
    /// Adds the names of a claim's records.
    pub fn push(&mut self, key: &BucketKey, claim: &Claim) {
        self.names.extend(claim.records().map(|record| (key.clone(), record.spelling.clone())));
    }
}

/// The state of the pool of connections that read from a database.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolState {
    /// The number of open connections.
    pub open: usize,
    /// The number of open connections that no read uses.
    pub idle: usize,
    /// The number of reads that wait for a connection.
    pub waiting: usize,
}

/// The asynchronous reader of a store. Each read sees every group whose commit was answered before
/// the read began (B30).
pub trait StoreReader: Send + Sync {
    /// Reads the claims on buckets as they were at one moment, in the order of `keys` (B30); `None`
    /// for each bucket that no cell claims.
    ///
    /// # Errors
    /// A row could not be read.
    fn claims<'a>(&'a self, keys: &'a [BucketKey]) -> StoreFuture<'a, Vec<Option<Claim>>>;

    /// Reads a page of a cell's outstanding leases, in the order of their creation (B31).
    ///
    /// # Errors
    /// A row could not be read.
    fn leases(&self, scan: LeaseScan) -> StoreFuture<'_, Vec<LeaseRow>>;

    /// Reads a part of the claims whose source is in one table of a cell, in the order of source
    /// id, bucket type and canonical value (B32). Each part is short, and blocks neither writers
    /// nor other reads.
    ///
    /// # Errors
    /// The part could not be read. A claim that can't be read is counted and left out.
    fn records(&self, scan: RecordScan) -> StoreFuture<'_, RecordPart>;

    /// Reads a part of the names of all claims: the claims of one lease, or at most `limit` claims.
    ///
    /// # Errors
    /// The part could not be read. A claim that can't be read is counted and left out.
    fn names(&self, after: NamePlace, limit: usize) -> StoreFuture<'_, NamePart>;

    /// Reads the ids of at most `limit` leases that were settled before `before`, in the order of
    /// their settles.
    ///
    /// # Errors
    /// A row could not be read.
    fn settled(&self, before: Timestamp, limit: usize) -> StoreFuture<'_, Vec<LeaseId>>;

    /// Reads the first sessions of a range: live sessions by id, or ended sessions by the time of
    /// their end.
    ///
    /// # Errors
    /// A row could not be read.
    fn sessions(&self, read: OrderedRead<Session>) -> StoreFuture<'_, Vec<(SessionId, Session)>>;

    /// Reads the first locks of a range: those of each list by path (K16), or free locks by the time of
    /// their last change.
    ///
    /// # Errors
    /// A row could not be read.
    fn locks(&self, read: OrderedRead<Lock>) -> StoreFuture<'_, Vec<(LockPath, Lock)>>;

    /// Reads a lock; `None` if it has no row, so that it is free.
    ///
    /// # Errors
    /// The row could not be read.
    fn lock<'a>(&'a self, path: &'a LockPath) -> StoreFuture<'a, Option<Lock>>;

    /// Reads an ask; `None` if it has no row, because it has ended or never was.
    ///
    /// # Errors
    /// The row could not be read.
    fn ask(&self, id: AskId) -> StoreFuture<'_, Option<Ask>>;

    /// Reads asks for a search for circles (K15).
    ///
    /// # Errors
    /// A row could not be read.
    fn related_asks(&self, read: CircleRead) -> StoreFuture<'_, Vec<(AskId, Ask)>>;

    /// Reads the first queues of a range that have a row, by name.
    ///
    /// # Errors
    /// A row could not be read.
    fn queues(&self, read: OrderedRead<Queue>) -> StoreFuture<'_, Vec<(QueuePath, Queue)>>;

    /// Reads a queue's row; `None` if the queue is neither paused nor limited.
    ///
    /// # Errors
    /// The row could not be read.
    fn queue<'a>(&'a self, path: &'a QueuePath) -> StoreFuture<'a, Option<Queue>>;

    /// Reads the first lanes of a range.
    ///
    /// # Errors
    /// A row could not be read.
    fn lanes(&self, read: OrderedRead<Lane>) -> StoreFuture<'_, Vec<(LanePath, Lane)>>;

    /// Reads a lane; `None` if it has no row, so that it is empty.
    ///
    /// # Errors
    /// The row could not be read.
    fn lane<'a>(&'a self, path: &'a LanePath) -> StoreFuture<'a, Option<Lane>>;

    /// Reads the first requests of a range: those of a lane by number, or settled ones by the time of
    /// their settle.
    ///
    /// # Errors
    /// A row could not be read.
    fn requests(&self, read: OrderedRead<Request>) -> StoreFuture<'_, Vec<(RequestId, Request)>>;

    /// Reads a request; `None` if it has no row.
    ///
    /// # Errors
    /// The row could not be read.
    fn request(&self, id: RequestId) -> StoreFuture<'_, Option<Request>>;

    /// Reads the bodies of requests, in the order of `ids`; `None` for a request that has no row.
    ///
    /// # Errors
    /// A row could not be read.
    fn bodies<'a>(&'a self, ids: &'a [RequestId]) -> StoreFuture<'a, Vec<Option<RequestBody>>>;

    /// Reads all rows of the store, so that tests can check the state's invariants.
    ///
    /// # Errors
    /// A row could not be read.
    fn state(&self) -> StoreFuture<'_, State>;

    /// Reads the cells that own at least one claim.
    ///
    /// # Errors
    /// A row could not be read.
    fn owners(&self) -> StoreFuture<'_, BTreeSet<CellId>>;

    /// Reads the tables from which a cell has claims, in the order of their numbers.
    ///
    /// # Errors
    /// A row could not be read.
    fn tables(&self, cell: CellId) -> StoreFuture<'_, BTreeSet<SourceType>>;

    /// Reads the stored rules of the configured bucket types that were served so far.
    ///
    /// # Errors
    /// The rules could not be read.
    fn bucket_types(&self) -> StoreFuture<'_, Vec<BucketRule>>;

    /// Returns the occupancy of the store; for a shared store, as it was when maintenance last read
    /// it.
    fn occupancy(&self) -> Occupancy;

    /// Returns the state of the pool of connections for reads; `None` if the store has no
    /// connections.
    fn pool(&self) -> Option<PoolState> {
        None
    }

    /// True if `error`, which a read returned, means that other reads will fail too, until the cause
    /// is mended.
    fn is_lost_by(&self, error: &StoreError) -> bool;
}

/// One open store, which provides its writers, its reader and its maintenance.
pub trait Backend: Send + Sync {
    /// Returns new writers for the committer. Several writers may commit groups at the same time.
    ///
    /// # Errors
    /// A writer can't be started.
    fn writers(&self) -> std::io::Result<Vec<Box<dyn GroupStore>>>;

    /// Returns the reader of this store.
    fn reader(&self) -> Arc<dyn StoreReader>;

    /// Returns the clock that gives the times of this store's leases.
    fn clock(&self) -> Arc<StoreClock> {
        Arc::default()
    }

    /// Returns the identity of this store.
    fn identity(&self) -> Identity;

    /// Counts the claims and outstanding leases of this store.
    ///
    /// # Errors
    /// The store could not be read.
    fn contents(&self) -> StoreFuture<'_, Contents>;

    /// Raises the fences by [`RESTORE_JUMP`](super::RESTORE_JUMP) at least, beyond those that the original
    /// of a restored copy may have given out after the backup (B13). No writer may have begun a
    /// group yet.
    ///
    /// # Errors
    /// The store could not be written.
    fn raise_fences(&self) -> StoreFuture<'_, RaisedFences>;

    /// Returns the maintenance of this store.
    fn maintenance(&self) -> StoreMaintenance;

    /// Returns the part of a shared store by which servers share sessions; `None` if no other server
    /// uses the store.
    fn shared_locks(&self) -> Option<Arc<dyn SharedLocks>> {
        None
    }

    /// True if the store keeps claims only, so that calls of sessions, locks and queues must be refused.
    fn keeps_claims_only(&self) -> bool {
        false
    }

    /// Stores the rules of configured bucket types. In a shared store, a rule that another server
    /// has already stored is not replaced.
    ///
    /// # Errors
    /// The rules could not be written.
    fn remember_bucket_types<'a>(&'a self, rules: &'a [BucketRule]) -> StoreFuture<'a, ()>;

    /// Stores the version of Unicode by whose tables all keys of the store are canonical forms. In a
    /// shared store, a version that another server has stored since the opening is not replaced.
    ///
    /// # Errors
    /// The version could not be written.
    fn set_unicode_version(&self, version: UnicodeVersion) -> StoreFuture<'_, ()>;
}

/// A new store that an import fills. No server can use it before [`complete`](Self::complete).
pub trait ImportTarget {
    /// True if the store keeps claims only, so that an export with sessions, locks or queues must be refused.
    fn keeps_claims_only(&self) -> bool {
        false
    }

    /// Loads the rows with these keys that were saved before.
    ///
    /// # Errors
    /// A row could not be read.
    fn load(&mut self, keys: Keys, into: &mut Workspace) -> Result<()>;

    /// Saves new rows. Unlike those of a group of commands, they have their fences already.
    ///
    /// # Errors
    /// The store could not be written.
    fn save(&mut self, rows: &NetChanges) -> Result<()>;

    /// Completes the import with the newest fence that was given out, and the rules of configured bucket types.
    ///
    /// # Errors
    /// The store could not be written.
    fn complete(self, newest: Fence, rules: &[BucketRule]) -> Result<()>;
}

/// The periodic maintenance of a store, which depends on the number of servers that write to it.
pub enum StoreMaintenance {
    /// This process is the only one that writes to the store. Settled leases are forgotten by
    /// commands of the committer.
    Exclusive(Arc<dyn StoreReader>),
    /// Several servers share the store. Each server forgets those settled leases that no other
    /// server is forgetting at the time.
    Shared(Arc<dyn SharedMaintenance>),
}

/// The maintenance of a store that several servers share.
pub trait SharedMaintenance: Send + Sync {
    /// Returns a new probe, which has a connection of its own.
    fn probe(&self) -> Box<dyn Probe>;

    /// Reads the occupancy of the store, which [`StoreReader::occupancy`] returns from then on.
    /// Returns the number of claims under leases of each cell.
    ///
    /// # Errors
    /// The store can't be read.
    fn refresh_occupancy(&self) -> StoreFuture<'_, BTreeMap<CellId, usize>>;

    /// Deletes a batch of leases that were settled before `settled_before` (B22, B24). Returns true
    /// if there may be more.
    ///
    /// # Errors
    /// The store can't be written.
    fn forget(&self, settled_before: Timestamp) -> StoreFuture<'_, bool>;

    /// Deletes old entries of the list of abandoned groups, whose statements can't arrive at the
    /// database any more. A group is abandoned if its commit got no answer and its commands were
    /// decided again.
    ///
    /// # Errors
    /// The store can't be written.
    fn forget_abandoned(&self) -> StoreFuture<'_, ()>;

    /// Adds partitions for the requests to come, and drops those whose requests are all forgotten (Q16). `retention` is
    /// the time for which settled requests are remembered. Returns true if partitions are missing, because the default
    /// partitions are too large to be scanned.
    ///
    /// # Errors
    /// Another session uses the tables, or the store can't be written.
    fn shift_partitions(&self, retention: Duration) -> StoreFuture<'_, bool>;

    /// Removes the dead rows of the table that `ListLeases` scans (B33). If the database role may
    /// not vacuum the table, this does nothing.
    ///
    /// # Errors
    /// The store can't be written.
    fn vacuum(&self) -> StoreFuture<'_, ()>;

    /// Returns this server's database role if the role may not vacuum the table of leases, else
    /// `None`.
    ///
    /// # Errors
    /// The store can't be read.
    fn role_without_vacuum(&self) -> StoreFuture<'_, Option<String>>;
}

/// A server that watches sessions, as another server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherServer {
    /// The number that the server chose at its start.
    pub id: i64,
    /// The number of the server's vouches.
    pub beats: i64,
    /// True if the server has stopped.
    pub is_stopped: bool,
    /// The address at which the server can be rung; `None` if it has none.
    pub address: Option<String>,
}

/// A change of a session that another server has written, for the server that watched it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionChange {
    /// The changed session.
    pub session: SessionId,
    /// The number of the session's written renewals after the change.
    pub renewals: u64,
    /// True if the session has ended.
    pub has_ended: bool,
    /// The fence of the grant that an operator took; `None` for any other change.
    pub forced: Option<Fence>,
}

/// The answer to a vouch.
#[derive(Clone, Debug, Default)]
pub struct Vouched {
    /// The number of this server's vouches that the store has; 1 if the store had none.
    pub beats: i64,
    /// The name of the store's history. It changes at a failover, which may lose changes.
    pub timeline: String,
    /// True if this server has the smallest number of those that have not stopped.
    pub is_first: bool,
    /// The other servers.
    pub others: Vec<OtherServer>,
    /// The news since the last vouch, each of which is told once.
    pub news: Vec<SessionChange>,
}

/// The rows of asks that wait and of sessions that renew elsewhere.
#[derive(Clone, Debug, Default)]
pub struct WaitingRows {
    /// What each ask holds; `None` if the ask waits. An ask that has ended is absent.
    pub asks: FxHashMap<AskId, Option<HeldSlot>>,
    /// The number of forced grants of each session. A session that has ended is absent.
    pub sessions: FxHashMap<SessionId, u64>,
}

/// The part of a shared store by which servers agree on who watches a session.
///
/// Each live session has a home: the server that wrote its last counted renewal. Only the home
/// answers renewals from memory, and only while its last vouch is young enough.
pub trait SharedLocks: Send + Sync {
    /// Tells other servers that this server lives and at which address they may ring it, and reads its
    /// news. A failed vouch may have lost news, so [`own_sessions`](Self::own_sessions) must then be
    /// read.
    ///
    /// # Errors
    /// The store does not answer in time.
    fn vouch<'a>(&'a self, address: Option<&'a str>) -> StoreFuture<'a, Vouched>;

    /// Reads a page of the live sessions whose home is this server, in the order of their ids.
    ///
    /// # Errors
    /// A row could not be read.
    fn own_sessions(&self, after: Option<SessionId>, limit: usize) -> StoreFuture<'_, Vec<(SessionId, Session)>>;

    /// Returns the homes of live sessions that are no server's.
    ///
    /// # Errors
    /// The rows could not be read.
    fn homeless(&self) -> StoreFuture<'_, Vec<i64>>;

    /// Makes this server the home of at most `limit` live sessions of another home, and returns them.
    /// The number of their written renewals grows, so the former home can't end them.
    ///
    /// # Errors
    /// The store could not be written.
    fn adopt(&self, former: i64, limit: usize) -> StoreFuture<'_, Vec<(SessionId, Session)>>;

    /// Forgets a server that has not vouched since, and is the home of no live session.
    ///
    /// # Errors
    /// The store could not be written.
    fn forget_server<'a>(&'a self, other: &'a OtherServer) -> StoreFuture<'a, ()>;

    /// Tells other servers that this server stops.
    ///
    /// # Errors
    /// The store could not be written.
    fn stop(&self) -> StoreFuture<'_, ()>;

    /// Reads which of these asks and sessions exist, and which asks hold their locks.
    ///
    /// # Errors
    /// A row could not be read.
    fn waiting<'a>(&'a self, asks: &'a [AskId], sessions: &'a [SessionId]) -> StoreFuture<'a, WaitingRows>;

    /// Reads the addresses of other servers whose calls attend to these asks: at most `limit`. A server
    /// without an address is left out.
    ///
    /// # Errors
    /// A row could not be read.
    fn attendants<'a>(&'a self, asks: &'a [AskId], limit: usize) -> StoreFuture<'a, Vec<String>>;

    /// Reads the fences of the grants that an operator took from sessions.
    ///
    /// # Errors
    /// A row could not be read.
    fn forced<'a>(&'a self, sessions: &'a [SessionId]) -> StoreFuture<'a, FxHashMap<SessionId, Vec<Fence>>>;

    /// Notes that a call at this server attends to an ask. Returns false if the ask has ended or is
    /// about to leave.
    ///
    /// # Errors
    /// The store could not be written.
    fn attend(&self, ask: AskId) -> StoreFuture<'_, bool>;

    /// Notes that an ask is about to leave. Returns false if the ask has ended, or a call at another
    /// server has attended to it since.
    ///
    /// # Errors
    /// The store could not be written.
    fn abandon(&self, ask: AskId) -> StoreFuture<'_, bool>;
}

/// A probe that checks if a shared store answers, independently of all reads and writes.
pub trait Probe: Send {
    /// Probes the store by a durable write.
    ///
    /// # Errors
    /// The store does not answer, or can't be written. The probe may take as long as the timeouts
    /// of a connection and of a statement together.
    fn probe(&mut self) -> StoreFuture<'_, Probed>;

    /// The longest time that a probe may take before the store counts as away. A probe touches no row, so load alone
    /// never makes it this slow.
    fn patience(&self) -> Duration {
        Duration::from_secs(2)
    }
}

/// The findings of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The number of other servers that write to the store.
    pub other_servers: usize,
    /// True if the store lacks changes that this server has acknowledged.
    pub lacks_changes: bool,
    /// True if a failover of the store would lose changes, because its commits wait for no standby.
    pub lacks_standby: bool,
}

//! The ports of a store: all that the committer, the gRPC services and the maintenance know of it.
//!
//! A [`Backend`] is one open store. It brings the writers of the committer ([`GroupStore`]), the reader of the services
//! ([`StoreReader`]) and its [`StoreMaintenance`].
//!
//! ```text
//! workspace = store.begin()?
//! loop { keys = workspace.missing(commands); if keys.is_empty() { break } store.load(keys, &mut workspace)? }
//! for each command: reply = command.apply(&mut workspace, now)
//! fences = store.commit(&workspace.into_changes())?      then, and only then, let the replies go
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use leasehold_core::bucket::BucketKey;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::cell::CellId;
use leasehold_core::claim::Claim;
use leasehold_core::command::Fences;
use leasehold_core::lease::LeaseId;
use leasehold_core::query::{LeaseRow, LeaseScan, RecordRow, RecordScan};
use leasehold_core::rows::{Keys, NetChanges, State, Workspace};
use leasehold_core::time::Timestamp;

use super::error::StoreError;

type Result<T> = std::result::Result<T, StoreError>;

/// The answer of a port that may wait for a database.
pub type Answer<'a, T> = BoxFuture<'a, Result<T>>;

/// The reaction of the committer to a group that was not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Another transaction changed the loaded rows, and nothing was written: the group is decided again.
    Conflict,
    /// A row was assumed wrongly, and nothing was written: the group is decided again.
    Misspeculated,
    /// The store is away. It may come back.
    Away,
    /// A session that is no server keeps rows locked. Other commands of the group may succeed.
    Locked,
    /// The store canceled a statement that took too long. Fewer commands at a time may be fast enough.
    StatementTimeout,
    /// A row can't be read or written. Other commands of the group may succeed.
    Row,
    /// No write is allowed until the store has been opened again.
    Fatal,
}

/// A group that was not loaded or not committed.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct GroupError {
    /// The kind of the failure.
    pub failure: Failure,
    /// True if the changes may have been committed all the same, because the answer to the commit was lost.
    pub may_be_committed: bool,
    /// The cause.
    pub error: StoreError,
}

impl GroupError {
    /// The failure of a group that was certainly not committed.
    pub fn uncommitted(failure: Failure, error: StoreError) -> Self {
        Self { failure, may_be_committed: false, error }
    }
}

/// The time that a group waits for rows which other sessions have locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockTimeout {
    /// Longer than any server keeps its rows locked.
    Usual,
    /// Hardly at all: another session was just found to keep such rows locked.
    Short,
}

/// A store that commits groups of commands. Its methods block, so each store has a thread of its own.
pub trait GroupStore: Send + 'static {
    /// True if other writers change the same rows. The committer must then decide each command on rows as they were
    /// loaded, not as earlier commands of the group have left them: see [`Workspace::has_changed`].
    fn is_shared(&self) -> bool {
        false
    }

    /// Begins a group, and returns its empty workspace.
    ///
    /// # Errors
    /// The newest fence could not be read.
    fn begin(&mut self) -> std::result::Result<Workspace, GroupError>;

    /// Loads rows of the group into its workspace.
    ///
    /// # Errors
    /// A row could not be read. The group has ended.
    fn load(&mut self, keys: Keys, into: &mut Workspace) -> std::result::Result<(), GroupError>;

    /// Commits the group's changes, all or none, and returns when they are durable. A shared store numbers new leases
    /// itself and returns their fences (B13), which the caller must put into the replies with
    /// [`Reply::with_fences`](leasehold_core::command::Reply::with_fences).
    ///
    /// # Errors
    /// No reply may be sent. [`GroupError::may_be_committed`] says whether the outcome is known.
    fn commit(&mut self, changes: &NetChanges) -> std::result::Result<Fences, GroupError>;

    /// Lets the store assume rows instead of reading them. A commit may then fail as [`Failure::Misspeculated`].
    fn enable_speculation(&mut self) {}

    /// Sets the lock timeout of the next groups.
    fn set_lock_timeout(&mut self, _timeout: LockTimeout) {}

    /// Called if no command has waited for a while.
    fn on_idle(&mut self) {}

    /// True if the store answers and the outcome of the last group is known.
    fn is_reachable(&mut self) -> bool {
        true
    }
}

/// The occupancy of a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occupancy {
    /// The number of outstanding leases.
    pub leases: usize,
    /// The number of claims that outstanding leases hold.
    pub held_claims: usize,
    /// When the oldest outstanding lease was begun.
    pub oldest_lease: Option<Timestamp>,
    /// The size on disk in bytes.
    pub disk_bytes: u64,
}

/// The state of a pool of connections for reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolState {
    /// The number of open connections.
    pub open: usize,
    /// The number of open connections that no read uses.
    pub idle: usize,
    /// The number of reads that wait for a connection.
    pub waiting: usize,
}

/// An asynchronous reader. Its reads see every group that was committed before they were asked for (B30).
pub trait StoreReader: Send + Sync {
    /// The claim of a bucket (B30).
    ///
    /// # Errors
    /// The row could not be read.
    fn claim<'a>(&'a self, key: &'a BucketKey) -> Answer<'a, Option<Claim>>;

    /// Outstanding leases in the order of their creation (B31).
    ///
    /// # Errors
    /// A row could not be read.
    fn leases(&self, scan: LeaseScan) -> Answer<'_, Vec<LeaseRow>>;

    /// Claims of one table in the order of source id, bucket type and canonical value (B32).
    ///
    /// # Errors
    /// A row could not be read.
    fn records(&self, scan: RecordScan) -> Answer<'_, Vec<RecordRow>>;

    /// At most `limit` leases that were settled before a time, the oldest first.
    ///
    /// # Errors
    /// A row could not be read.
    fn settled(&self, before: Timestamp, limit: usize) -> Answer<'_, Vec<LeaseId>>;

    /// The whole state, to check its invariants.
    ///
    /// # Errors
    /// A row could not be read.
    fn state(&self) -> Answer<'_, State>;

    /// The cells that own at least one claim.
    ///
    /// # Errors
    /// A row could not be read.
    fn owners(&self) -> Answer<'_, BTreeSet<CellId>>;

    /// The rules of configured bucket types under which claims were made.
    ///
    /// # Errors
    /// The rules could not be read.
    fn bucket_types(&self) -> Answer<'_, Vec<BucketRule>>;

    /// The occupancy; of a shared store, as it was when the maintenance last asked.
    fn occupancy(&self) -> Occupancy;

    /// The state of the pool of connections; `None` if the store has no connections.
    fn pool(&self) -> Option<PoolState> {
        None
    }

    /// True if a read that failed with this error shows that the store will fail until a restart.
    fn is_lost_by(&self, error: &StoreError) -> bool;
}

/// One open store.
pub trait Backend: Send + Sync {
    /// The writers for the committer. More than one may commit at the same time.
    ///
    /// # Errors
    /// The machine can't start a further writer.
    fn writers(&self) -> std::io::Result<Vec<Box<dyn GroupStore>>>;

    /// The reader.
    fn reader(&self) -> Arc<dyn StoreReader>;

    /// The maintenance.
    fn maintenance(&self) -> StoreMaintenance;

    /// Stores the rules of configured bucket types. Rules that another server has stored meanwhile stay.
    ///
    /// # Errors
    /// The rules could not be written.
    fn remember_bucket_types<'a>(&'a self, rules: &'a [BucketRule]) -> Answer<'a, ()>;
}

/// The periodic work on a store, which depends on who else writes to it.
pub enum StoreMaintenance {
    /// This process is the only writer. The committer forgets settled leases by commands, as it writes everything.
    Exclusive(Arc<dyn StoreReader>),
    /// Several servers share the store. Each forgets settled leases that no other server forgets at the same time.
    Shared(Arc<dyn SharedMaintenance>),
}

/// The maintenance of a store that several servers share.
pub trait SharedMaintenance: Send + Sync {
    /// A probe with a connection of its own.
    fn probe(&self) -> Box<dyn Probe>;

    /// Reads the occupancy, which [`StoreReader::occupancy`] returns from then on.
    ///
    /// # Errors
    /// The store can't be read.
    fn refresh_occupancy(&self) -> Answer<'_, Occupancy>;

    /// Deletes a batch of leases that were settled before a time (B22, B24), and returns true if there may be more.
    ///
    /// # Errors
    /// The store can't be written.
    fn forget(&self, settled_before: Timestamp) -> Answer<'_, bool>;

    /// Deletes the numbers of abandoned groups whose statements can't arrive any more.
    ///
    /// # Errors
    /// The store can't be written.
    fn forget_abandoned(&self) -> Answer<'_, ()>;

    /// Frees the dead rows of the table that lists scan (B33). Does nothing if the role may not.
    ///
    /// # Errors
    /// The store can't be written.
    fn vacuum(&self) -> Answer<'_, ()>;

    /// The role of this server if it may not vacuum; `None` if it may.
    ///
    /// # Errors
    /// The store can't be read.
    fn role_without_vacuum(&self) -> Answer<'_, Option<String>>;
}

/// Looks whether a shared store is up, apart from all reads and writes.
pub trait Probe: Send {
    /// The number of other servers at work on the store.
    ///
    /// # Errors
    /// The store does not answer, or can't be written. The answer may take as long as a connection and a statement.
    fn look(&mut self) -> Answer<'_, usize>;
}

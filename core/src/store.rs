//! The interface that a store implements for a server and for the conformance suite: rows in
//! groups, and lists. The trait is synchronous. An asynchronous store passes the suite through an
//! adapter.

use crate::bucket::BucketKey;
use crate::claim::Claim;
use crate::command::Fences;
use crate::lease::LeaseId;
use crate::lock::{Lock, LockPath};
use crate::query::{LeaseRow, LeaseScan, RecordPart, RecordScan};
use crate::queue::{Lane, LanePath, Queue, QueuePath, Request, RequestBody, RequestId};
use crate::rows::{Keys, NetChanges, OrderedRead, State, Workspace};
use crate::session::{Session, SessionId};
use crate::time::Timestamp;

/// A place that keeps rows. An error of any method means that the store failed: a store never
/// refuses a command.
pub trait Store {
    /// The error type of the store.
    type Error: std::fmt::Debug;

    /// Returns true if other servers write to the same data.
    ///
    /// A host then decides each command on rows as the store has them. A command that reads a row
    /// which an earlier command of the group wrote ([`Workspace::has_changed`]) waits for the next
    /// group. Otherwise, if saving the earlier command fails because another server was faster, the
    /// later command has been decided on rows that the store never had.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns true if fences that nobody gets may lie between two fences that the store gives out
    /// (B13). The conformance suite then compares the order of fences, and not the numbers.
    fn skips_fences(&self) -> bool {
        false
    }

    /// Returns an empty workspace that knows the newest fence given out.
    ///
    /// # Errors
    /// The fence could not be read.
    fn workspace(&self) -> Result<Workspace, Self::Error>;

    /// Loads the rows with these keys into a workspace, or the fact that a row is absent.
    ///
    /// # Errors
    /// A row could not be read.
    fn load(&self, keys: Keys, into: &mut Workspace) -> Result<(), Self::Error>;

    /// Writes the changes of a group of commands: all of them, durably, or none.
    ///
    /// A store that several servers write to assigns the fences of new leases and grants itself
    /// (B13, K05) and returns them. The host puts the fences into the replies: see
    /// [`Reply::with_fences`](crate::command::Reply::with_fences). Other stores return an empty
    /// map.
    ///
    /// # Errors
    /// The host must send no reply of the group. The store may have kept the changes or not: only a
    /// restart of the store shows which.
    fn save(&mut self, changes: &NetChanges) -> Result<Fences, Self::Error>;

    /// Returns the claim of a bucket, `None` if the bucket has none (B30).
    ///
    /// # Errors
    /// The row could not be read.
    fn claim(&self, key: &BucketKey) -> Result<Option<Claim>, Self::Error>;

    /// Returns outstanding leases of a cell, in the order of their begins (B31).
    ///
    /// # Errors
    /// A row could not be read.
    fn leases(&self, scan: &LeaseScan) -> Result<Vec<LeaseRow>, Self::Error>;

    /// Returns claims of a cell from one table, in the order of source ids (B32), from one
    /// snapshot. The store reads at most `scan.limit` claims.
    ///
    /// # Errors
    /// The scan could not be run. A claim that can't be read is counted and left out.
    fn records(&self, scan: &RecordScan) -> Result<RecordPart, Self::Error>;

    /// Returns the ids of at most `limit` leases that were settled before a time, the oldest settle
    /// first.
    ///
    /// # Errors
    /// A row could not be read.
    fn settled(&self, before: Timestamp, limit: usize) -> Result<Vec<LeaseId>, Self::Error>;

    /// Returns the first sessions of a range, in order.
    ///
    /// # Errors
    /// A row could not be read.
    fn sessions(&self, read: &OrderedRead<Session>) -> Result<Vec<(SessionId, Session)>, Self::Error>;

    /// Returns the first locks of a range, in order.
    ///
    /// # Errors
    /// A row could not be read.
    fn locks(&self, read: &OrderedRead<Lock>) -> Result<Vec<(LockPath, Lock)>, Self::Error>;

    /// Returns a lock, `None` if it has no row.
    ///
    /// # Errors
    /// The row could not be read.
    fn lock(&self, path: &LockPath) -> Result<Option<Lock>, Self::Error>;

    /// Returns the first queues of a range that have a row, in order.
    ///
    /// # Errors
    /// A row could not be read.
    fn queues(&self, read: &OrderedRead<Queue>) -> Result<Vec<(QueuePath, Queue)>, Self::Error>;

    /// Returns the first lanes of a range, in order.
    ///
    /// # Errors
    /// A row could not be read.
    fn lanes(&self, read: &OrderedRead<Lane>) -> Result<Vec<(LanePath, Lane)>, Self::Error>;

    /// Returns the first requests of a range, in order.
    ///
    /// # Errors
    /// A row could not be read.
    fn requests(&self, read: &OrderedRead<Request>) -> Result<Vec<(RequestId, Request)>, Self::Error>;

    /// Returns the bodies of requests in the given order, `None` for a request without a row.
    ///
    /// # Errors
    /// A row could not be read.
    fn bodies(&self, requests: &[RequestId]) -> Result<Vec<Option<RequestBody>>, Self::Error>;

    /// Returns every row, for dumps and for checking invariants.
    ///
    /// # Errors
    /// A row could not be read.
    fn state(&self) -> Result<State, Self::Error>;
}

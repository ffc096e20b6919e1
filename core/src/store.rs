//! A store as a server and the conformance suite use it: rows in groups, and lists. The trait is
//! synchronous. An asynchronous store passes the same suite behind an adapter.

use crate::bucket::BucketKey;
use crate::claim::Claim;
use crate::command::Fences;
use crate::lease::LeaseId;
use crate::query::{LeaseRow, LeaseScan, RecordRow, RecordScan};
use crate::rows::{Keys, NetChanges, State, Workspace};
use crate::time::Timestamp;

/// A place that keeps rows. Every method's error means that the store failed; a refusal never comes
/// from a store.
pub trait Store {
    /// The error of a failing store.
    type Error: std::fmt::Debug;

    /// Returns true if other servers write to the same data.
    ///
    /// A host then decides each command on rows as the store has them. A command that reads a row
    /// which a command before it wrote ([`Workspace::has_changed`]) waits for the next group: if
    /// the save of the first fails because another server was faster, the second would have been
    /// decided on rows that never were.
    fn is_shared(&self) -> bool {
        false
    }

    /// An empty workspace above the newest fence given out.
    ///
    /// # Errors
    /// The fence could not be read.
    fn workspace(&self) -> Result<Workspace, Self::Error>;

    /// Loads rows, present or absent, into a workspace.
    ///
    /// # Errors
    /// A row could not be read.
    fn load(&self, keys: Keys, into: &mut Workspace) -> Result<(), Self::Error>;

    /// Writes a group's changes: all of them, durably, or none.
    ///
    /// A store that several servers write to numbers new leases itself (B13) and returns their
    /// fences. The host puts them into the replies: see
    /// [`Reply::with_fences`](crate::command::Reply::with_fences).
    ///
    /// # Errors
    /// No reply of the group may leave. The changes may be kept or not; only opening the store
    /// again tells.
    fn save(&mut self, changes: &NetChanges) -> Result<Fences, Self::Error>;

    /// A bucket's claim (B30).
    ///
    /// # Errors
    /// The row could not be read.
    fn claim(&self, key: &BucketKey) -> Result<Option<Claim>, Self::Error>;

    /// Outstanding leases of a cell (B31).
    ///
    /// # Errors
    /// A row could not be read.
    fn leases(&self, scan: &LeaseScan) -> Result<Vec<LeaseRow>, Self::Error>;

    /// Claims of a cell by table and row (B32).
    ///
    /// # Errors
    /// A row could not be read.
    fn records(&self, scan: &RecordScan) -> Result<Vec<RecordRow>, Self::Error>;

    /// The ids of leases settled before a time: at most `limit`, the longest settled first.
    ///
    /// # Errors
    /// A row could not be read.
    fn settled(&self, before: Timestamp, limit: usize) -> Result<Vec<LeaseId>, Self::Error>;

    /// Every row, for dumps and for checking invariants.
    ///
    /// # Errors
    /// A row could not be read.
    fn state(&self) -> Result<State, Self::Error>;
}

//! What a server needs of its store beside a command's rows: loading and saving in groups, and lists. Synchronous; an
//! asynchronous store answers the same questions in its own way and passes the same suite behind an adapter.

use rustc_hash::FxHashMap;

use crate::bucket::BucketKey;
use crate::claim::Claim;
use crate::invariant::State;
use crate::lease::{Fence, LeaseId};
use crate::query::{LeaseRow, LeaseScan, RecordRow, RecordScan};
use crate::time::Timestamp;
use crate::transaction::{Keys, NetChanges, Workspace};

/// The fences that a store gave to leases as it kept them.
pub type Fences = FxHashMap<LeaseId, Fence>;

/// A place where claims are kept. Every method's error means that the store could not do it, and nothing else.
pub trait Store {
    /// A failing store.
    type Error: std::fmt::Debug;

    /// Whether others write to the same data. A command is then to be decided on rows as they were loaded, not as commands
    /// before it in its group have left them: see [`Workspace::has_changed`].
    fn is_shared(&self) -> bool {
        false
    }

    /// A workspace above the newest fence given out.
    ///
    /// # Errors
    /// The fence could not be read.
    fn workspace(&self) -> Result<Workspace, Self::Error>;

    /// Loads rows into a workspace.
    ///
    /// # Errors
    /// A row could not be read.
    fn load(&self, keys: Keys, into: &mut Workspace) -> Result<(), Self::Error>;

    /// Writes a group's changes: all of them, durably, or none. A store that several servers write to numbers the leases
    /// itself and returns their fences (B13), which belong into the replies: see
    /// [`Reply::numbered`](crate::update::Reply::numbered).
    ///
    /// # Errors
    /// Nothing may be acknowledged. Whether the changes are kept is open until the store has been opened again.
    fn save(&mut self, changes: &NetChanges) -> Result<Fences, Self::Error>;

    /// A bucket's claim (B30).
    ///
    /// # Errors
    /// The row could not be read.
    fn claim(&self, key: &BucketKey) -> Result<Option<Claim>, Self::Error>;

    /// Outstanding leases (B31).
    ///
    /// # Errors
    /// A row could not be read.
    fn leases(&self, scan: &LeaseScan) -> Result<Vec<LeaseRow>, Self::Error>;

    /// Claims by table and key (B32).
    ///
    /// # Errors
    /// A row could not be read.
    fn records(&self, scan: &RecordScan) -> Result<Vec<RecordRow>, Self::Error>;

    /// Leases settled before a time, the longest ago first, at most `limit`.
    ///
    /// # Errors
    /// A row could not be read.
    fn settled(&self, before: Timestamp, limit: usize) -> Result<Vec<LeaseId>, Self::Error>;

    /// Everything, for export and for checking invariants.
    ///
    /// # Errors
    /// A row could not be read.
    fn state(&self) -> Result<State, Self::Error>;
}

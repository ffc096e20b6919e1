//! The interface to a store that commands need: rows by key, an ordered read, and one atomic write.
//!
//! Commands run over a [`Transaction`]. A host whose rows are on another machine or on disk first
//! loads them into a [`Workspace`]. It then runs any number of commands over the workspace and
//! writes their net effect at once. Each command sees the effect of the commands before it.
//!
//! ```
//! use leasehold_core::cell::CellId;
//! use leasehold_core::command::{Command, Reply};
//! use leasehold_core::memory::MemoryStore;
//! use leasehold_core::rejection::Rejection;
//! use leasehold_core::store::Store;
//! use leasehold_core::time::Timestamp;
//!
//! /// Runs a group of commands, as a server does.
//! fn run<S: Store>(store: &mut S, group: &[Command], now: Timestamp) -> Result<Vec<Result<Reply, Rejection>>, S::Error>
//! where
//!     S::Error: From<leasehold_core::transaction::BrokenState>,
//! {
//!     let mut workspace = store.workspace()?;
//!     loop {
//!         let keys = workspace.missing(group);
//!         if keys.is_empty() {
//!             break;
//!         }
//!         store.load(keys, &mut workspace)?;
//!     }
//!     let replies: Vec<_> =
//!         group.iter().map(|command| command.apply(&mut workspace, now)).collect::<Result<_, _>>()?;
//!     // No reply leaves before the changes are durable.
//!     let fences = store.save(&workspace.into_changes())?;
//!     Ok(replies.into_iter().map(|reply| reply.map(|reply| reply.with_fences(&fences))).collect())
//! }
//!
//! # use leasehold_core::lease::{LeaseId, Outcome};
//! # use leasehold_core::update::Settle;
//! let settle = Settle { cell: CellId(1), lease: LeaseId(uuid::Uuid::from_u128(1)), outcome: Outcome::Committed };
//! let replies = run(&mut MemoryStore::default(), &[Command::Settle(settle)], Timestamp::MIN).unwrap();
//! assert_eq!(replies[0].as_ref().unwrap_err().reason().code(), "LEASE_NOT_FOUND");
//! ```

use crate::bucket::BucketKey;
use crate::claim::Claim;
use crate::lease::{Fence, IdempotencyKey, Lease, LeaseId, Replay};
use crate::lock::AskId;
use crate::rows::{Changes, Kind, NotLoaded, OrderedRead, Workspace};
use crate::session::SessionId;

/// The error of a state that contradicts an invariant: the store lost or mixed up rows, or the host
/// forgot to load one. No command may be decided on such a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenState {
    /// A lease lists a claim that is absent or that the lease does not hold.
    #[error("lease {0} lists a claim that it does not hold")]
    LeaseListsForeignClaim(LeaseId),
    /// An idempotency key's answer names a lease that has no row.
    #[error("lease {0} is missing, although an idempotency key names it")]
    ReplayWithoutLease(LeaseId),
    /// An ask has a row, but its lock has no row or is held by another ask.
    #[error("ask {0} has no row of its lock, or does not hold it")]
    AskWithoutLock(AskId),
    /// A turn names an ask that has no row.
    #[error("ask {0} is missing, although a turn names it")]
    TurnWithoutAsk(AskId),
    /// A lock's count of waiting asks is larger than the number of its turns.
    #[error("a lock counts more waiting asks than it has turns")]
    LockWithoutTurn,
    /// A slot has a row, and its lock has none.
    #[error("a slot of a lock has a row, and its lock has none")]
    SlotWithoutLock,
    /// The number of a session's asks differs from the count in the session's row. Or the lock of
    /// such an ask has no row or another holder.
    #[error("session {0} has other asks than its row counts, or a lock that it does not hold")]
    SessionAsksDiffer(SessionId),
    /// A lane's row counts other requests than the lane has.
    #[error("a lane counts other requests than it has")]
    LaneMiscounts,
    /// A queue's row counts fewer taken lanes than the queue has.
    #[error("a queue counts fewer taken lanes than it has")]
    QueueMiscounts,
    /// A command read a row that the host had not loaded. The value is the name of the row's kind.
    #[error("a row of `{0}` was read that had not been loaded")]
    NotLoaded(&'static str),
}

impl From<NotLoaded> for BrokenState {
    fn from(NotLoaded(kind): NotLoaded) -> Self {
        Self::NotLoaded(kind)
    }
}

/// The access to a store that a command needs.
pub trait Transaction {
    /// The error type of a failing store. After an error the command has changed nothing, and its
    /// host answers "unavailable".
    type Error: From<BrokenState>;

    /// Returns the row with this key, `None` if there is no such row.
    ///
    /// # Errors
    /// The row could not be read, so the store may have it or not.
    fn row<K: Kind>(&self, key: &K::Key) -> Result<Option<&K>, Self::Error>;

    /// Returns the keys of the first rows of a range, in order.
    ///
    /// # Errors
    /// A row of the range could not be read.
    fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Result<Vec<K::Key>, Self::Error>;

    /// Returns the newest fence given out, 0 before the first.
    ///
    /// # Errors
    /// The fence could not be read.
    fn last_fence(&self) -> Result<Fence, Self::Error>;

    /// Writes the changes of one command: all of them, or none.
    ///
    /// # Errors
    /// None of the changes took effect.
    fn write(&mut self, changes: Changes) -> Result<(), Self::Error>;

    /// Returns the claim of a bucket, `None` if the bucket has none.
    ///
    /// # Errors
    /// The claim could not be read, so the store may have it or not.
    fn claim(&self, key: &BucketKey) -> Result<Option<&Claim>, Self::Error> {
        self.row(key)
    }

    /// Returns the lease with this id, `None` if there is no such lease.
    ///
    /// # Errors
    /// The lease could not be read, so the store may have it or not.
    fn lease(&self, id: LeaseId) -> Result<Option<&Lease>, Self::Error> {
        self.row(&id)
    }

    /// Returns the stored answer of the begin that used this idempotency key, `None` if no begin
    /// did.
    ///
    /// # Errors
    /// The answer could not be read, so the store may have it or not.
    fn replay(&self, key: &IdempotencyKey) -> Result<Option<&Replay>, Self::Error> {
        self.row(key)
    }
}

impl Transaction for Workspace {
    type Error = BrokenState;

    fn row<K: Kind>(&self, key: &K::Key) -> Result<Option<&K>, BrokenState> {
        Ok(Workspace::row(self, key)?)
    }

    fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Result<Vec<K::Key>, BrokenState> {
        Ok(Workspace::first(self, read)?)
    }

    fn last_fence(&self) -> Result<Fence, BrokenState> {
        Ok(self.fence())
    }

    fn write(&mut self, changes: Changes) -> Result<(), BrokenState> {
        Workspace::write(self, changes);
        Ok(())
    }
}

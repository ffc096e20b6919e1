//! The changes made by one event: everything that the checks must test after the event, and
//! everything that a page highlights.

use leasehold_core::lease::{Fence, LeaseId, Outcome};
use leasehold_core::reconcile::Settled;
use leasehold_core::session::SessionId;
use leasehold_core::table::{
    ClaimEvent, ClaimStatus, LeaseEvent, LeaseStatus, LockEvent, LockStatus, RequestEvent, RequestStatus, SessionEvent,
    SessionStatus,
};
use smallvec::SmallVec;

use crate::database::{CommitRefusal, RowRefusal};
use crate::network::MessageId;
use crate::queue_message::BatchOutcome;
use crate::resource::WriteOutcome;

/// The reason for which the service changes claims and leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// An update was begun.
    Begin,
    /// A lease was settled.
    Settle(Outcome),
    /// A settled lease was deleted.
    Forget,
}

/// A transition of a claim or a lease from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// A transition of a claim.
    Claim {
        /// The number of the claim's name.
        name: u8,
        /// The state of the claim before the transition.
        from: ClaimStatus,
        /// The event that caused the transition, as the engine's table names it.
        event: ClaimEvent,
        /// The state of the claim after the transition.
        to: ClaimStatus,
    },
    /// A transition of a lease.
    Lease {
        /// The id of the lease.
        lease: LeaseId,
        /// The state of the lease before the transition.
        from: LeaseStatus,
        /// The event that caused the transition, as the engine's table names it.
        event: LeaseEvent,
        /// The state of the lease after the transition.
        to: LeaseStatus,
    },
    /// A transition of a session.
    Session {
        /// The id of the session.
        session: SessionId,
        /// The state of the session before the transition.
        from: SessionStatus,
        /// The event that caused the transition, as the engine's table names it.
        event: SessionEvent,
        /// The state of the session after the transition.
        to: SessionStatus,
    },
    /// A transition of a lock.
    Lock {
        /// The number of the lock.
        lock: u8,
        /// The state of the lock before the transition.
        from: LockStatus,
        /// The event that caused the transition, as the engine's table names it.
        event: LockEvent,
        /// The state of the lock after the transition.
        to: LockStatus,
    },
    /// A transition of a request.
    Request {
        /// The number of the request.
        request: u32,
        /// The state of the request before the transition.
        from: RequestStatus,
        /// The event that caused the transition, as the engine's table names it.
        event: RequestEvent,
        /// The state of the request after the transition.
        to: RequestStatus,
    },
}

/// The service's answer to a commit or rollback of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SettleAnswer {
    /// The lease that the cell wanted to settle.
    pub lease: LeaseId,
    /// The outcome that the cell requested.
    pub requested: Outcome,
    /// The answer of the service.
    pub answer: Settled,
}

/// The service's answer to a settle of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SettleReply {
    /// The number of the cell whose worker settles.
    pub cell: u8,
    /// The fence of the worker's hold.
    pub fence: Fence,
    /// The outcome that the worker told.
    pub outcome: BatchOutcome,
    /// True if the service answered that the lane is another's.
    pub is_refused: bool,
}

/// The changes made by one event.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// The names whose claims or rows have changed.
    pub names: SmallVec<[u8; 8]>,
    /// The leases that have changed at the service or in a cell's database.
    pub leases: SmallVec<[LeaseId; 4]>,
    /// The transitions of claims and leases at the service.
    pub transitions: SmallVec<[Transition; 4]>,
    /// The answer that the service gave to a commit or rollback, `None` if the event delivered no
    /// such request.
    pub settle_answer: Option<SettleAnswer>,
    /// The leases that the service rolled back because no caller can know them (B25). No process
    /// gets an answer about these leases, so `settle_answer` omits them.
    pub taken_back: SmallVec<[LeaseId; 2]>,
    /// True if a save was refused because of a lease that the same save's first attempt had begun.
    pub blocked_by_own_lease: bool,
    /// The reason for which a database refused a COMMIT, `None` if none was refused.
    pub commit_refusal: Option<CommitRefusal>,
    /// The reason for which a database refused rows, `None` if none were refused.
    pub row_refusal: Option<RowRefusal>,
    /// The ids of the messages that were sent.
    pub sent: SmallVec<[MessageId; 2]>,
    /// True if rows of sessions and locks have changed at the service.
    pub has_lock_changes: bool,
    /// The outcome of a client's write to a resource, `None` if no client wrote.
    pub write: Option<WriteOutcome>,
    /// The number of ended sessions and free locks that the service forgot.
    pub forgotten_locks: usize,
    /// True if rows of the queue have changed at the service.
    pub has_queue_changes: bool,
    /// The fence of the batch that a worker has written to its resource, `None` if no worker wrote.
    pub written_batch: Option<Fence>,
    /// The fence of the batch of which a worker has died, `None` if none has.
    pub deadly_batch: Option<Fence>,
    /// The answer to a settle of a batch, `None` if the event delivered none.
    pub settle_reply: Option<SettleReply>,
    /// The number of the request that the service has added a second time, `None` if there is none.
    pub doubled: Option<u32>,
}

impl Effects {
    /// Removes all changes, so that the next event starts without any.
    pub fn clear(&mut self) {
        self.names.clear();
        self.leases.clear();
        self.transitions.clear();
        self.settle_answer = None;
        self.taken_back.clear();
        self.blocked_by_own_lease = false;
        (self.commit_refusal, self.row_refusal) = (None, None);
        self.sent.clear();
        self.has_lock_changes = false;
        self.write = None;
        self.forgotten_locks = 0;
        self.has_queue_changes = false;
        (self.written_batch, self.deadly_batch) = (None, None);
        (self.settle_reply, self.doubled) = (None, None);
    }

    /// Notes that the claim or the rows of a name have changed.
    pub fn name(&mut self, name: u8) {
        if !self.names.contains(&name) {
            self.names.push(name);
        }
    }

    /// Notes that the claim of a name has changed from one state to another.
    pub fn claim(&mut self, name: u8, from: ClaimStatus, to: ClaimStatus, cause: Cause) {
        self.name(name);
        let event = match (cause, to) {
            (Cause::Settle(Outcome::Committed), _) => ClaimEvent::Commit,
            (Cause::Settle(Outcome::RolledBack) | Cause::Forget, _) => ClaimEvent::Rollback,
            (Cause::Begin, ClaimStatus::Destroying) => ClaimEvent::BeginDestroy,
            (Cause::Begin, ClaimStatus::Replacing) => ClaimEvent::BeginReplace,
            (Cause::Begin, _) => ClaimEvent::BeginCreate,
        };
        self.transitions.push(Transition::Claim { name, from, event, to });
    }

    /// Notes that a lease has changed at the service from one state to another.
    pub fn lease(&mut self, lease: LeaseId, from: LeaseStatus, to: LeaseStatus, cause: Cause) {
        self.leases.push(lease);
        let event = match cause {
            Cause::Begin => LeaseEvent::Begin,
            Cause::Settle(Outcome::Committed) => LeaseEvent::Commit,
            Cause::Settle(Outcome::RolledBack) => LeaseEvent::Rollback,
            Cause::Forget => LeaseEvent::Forget,
        };
        self.transitions.push(Transition::Lease { lease, from, event, to });
    }
}

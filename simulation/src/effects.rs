//! The changes made by one event: everything that must be checked after it, and everything that a
//! page highlights.

use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::reconcile::Settled;
use leasehold_core::table::{ClaimEvent, ClaimStatus, LeaseEvent, LeaseStatus};
use smallvec::SmallVec;

use crate::database::CommitRefusal;
use crate::network::MessageId;

/// The reason for which the service writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// An update was begun.
    Begin,
    /// A lease was settled.
    Settle(Outcome),
    /// A settled lease was deleted.
    Forget,
}

/// A transition of a claim or a lease between two states of the engine's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// A claim.
    Claim {
        /// The claim's name, by number.
        name: u8,
        /// The state before the transition.
        from: ClaimStatus,
        /// The event that caused the transition, as the engine's table names it.
        event: ClaimEvent,
        /// The state after the transition.
        to: ClaimStatus,
    },
    /// A lease.
    Lease {
        /// The lease.
        lease: LeaseId,
        /// The state before the transition.
        from: LeaseStatus,
        /// The event that caused the transition, as the engine's table names it.
        event: LeaseEvent,
        /// The state after the transition.
        to: LeaseStatus,
    },
}

/// The service's answer to a settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SettleAnswer {
    /// The lease.
    pub lease: LeaseId,
    /// The outcome that the cell requested.
    pub requested: Outcome,
    /// The answer of the service.
    pub answer: Settled,
}

/// The changes made by one event.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// The names whose claims or rows have changed.
    pub names: SmallVec<[u8; 8]>,
    /// The leases that have changed at the service or in a cell's database.
    pub leases: SmallVec<[LeaseId; 4]>,
    /// The transitions of claims and leases.
    pub transitions: SmallVec<[Transition; 4]>,
    /// The service's answer to a settle, if the event delivered one.
    pub settle_answer: Option<SettleAnswer>,
    /// True if a save was refused because of a lease that its own first attempt had begun.
    pub blocked_by_own_lease: bool,
    /// The reason for which a database refused a COMMIT.
    pub commit_refusal: Option<CommitRefusal>,
    /// The message that was sent.
    pub sent: Option<MessageId>,
}

impl Effects {
    /// Removes all changes, before the next event.
    pub fn clear(&mut self) {
        self.names.clear();
        self.leases.clear();
        self.transitions.clear();
        self.settle_answer = None;
        self.blocked_by_own_lease = false;
        self.commit_refusal = None;
        self.sent = None;
    }

    /// Records that a name's rows have changed.
    pub fn name(&mut self, name: u8) {
        if !self.names.contains(&name) {
            self.names.push(name);
        }
    }

    /// Records that a name's claim has changed.
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

    /// Records that a lease has changed at the service.
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

//! What one event has changed: all that has to be checked after it, and what a page highlights.

use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::reconcile::Settled;
use leasehold_core::table::{ClaimEvent, ClaimStatus, LeaseEvent, LeaseStatus};
use smallvec::SmallVec;

use crate::database::TooLate;
use crate::network::MessageId;

/// Why the service has written something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// An update was begun.
    Begin,
    /// A lease was settled.
    Settle(Outcome),
    /// A lease was forgotten.
    Forget,
}

/// A claim or lease that has gone from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fired {
    /// A claim.
    Claim {
        /// Of which name.
        name: u8,
        /// Where it stood.
        from: ClaimStatus,
        /// By what it was moved.
        event: ClaimEvent,
        /// Where it stands.
        to: ClaimStatus,
    },
    /// A lease.
    Lease {
        /// Which one.
        lease: LeaseId,
        /// Where it stood.
        from: LeaseStatus,
        /// By what it was moved.
        event: LeaseEvent,
        /// Where it stands.
        to: LeaseStatus,
    },
}

/// How the service answered a settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answered {
    /// The lease.
    pub lease: LeaseId,
    /// What was wanted.
    pub wanted: Outcome,
    /// What the service said.
    pub told: Settled,
}

/// What one event has changed.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// Names whose claims or rows have changed.
    pub names: SmallVec<[u8; 8]>,
    /// Leases that have changed, at the service or in a cell's database.
    pub leases: SmallVec<[LeaseId; 4]>,
    /// Edges that have fired.
    pub fired: SmallVec<[Fired; 4]>,
    /// How the service answered a settle.
    pub answered: Option<Answered>,
    /// Whether a save was refused because of its own first try.
    pub is_own_obstacle: bool,
    /// Why a database has refused a COMMIT.
    pub refused: Option<TooLate>,
    /// The message that was sent.
    pub sent: Option<MessageId>,
}

impl Touched {
    /// Nothing yet.
    pub fn clear(&mut self) {
        self.names.clear();
        self.leases.clear();
        self.fired.clear();
        self.answered = None;
        self.is_own_obstacle = false;
        self.refused = None;
        self.sent = None;
    }

    /// A name's rows have changed.
    pub fn name(&mut self, name: u8) {
        if !self.names.contains(&name) {
            self.names.push(name);
        }
    }

    /// A name's claim has changed.
    pub fn claim(&mut self, name: u8, from: ClaimStatus, to: ClaimStatus, cause: Cause) {
        self.name(name);
        let event = match (cause, to) {
            (Cause::Settle(Outcome::Committed), _) => ClaimEvent::Commit,
            (Cause::Settle(Outcome::RolledBack) | Cause::Forget, _) => ClaimEvent::Rollback,
            (Cause::Begin, ClaimStatus::Destroying) => ClaimEvent::BeginDestroy,
            (Cause::Begin, ClaimStatus::Replacing) => ClaimEvent::BeginReplace,
            (Cause::Begin, _) => ClaimEvent::BeginCreate,
        };
        self.fired.push(Fired::Claim { name, from, event, to });
    }

    /// A lease has changed at the service.
    pub fn lease(&mut self, lease: LeaseId, from: LeaseStatus, to: LeaseStatus, cause: Cause) {
        self.leases.push(lease);
        let event = match cause {
            Cause::Begin => LeaseEvent::Begin,
            Cause::Settle(Outcome::Committed) => LeaseEvent::Commit,
            Cause::Settle(Outcome::RolledBack) => LeaseEvent::Rollback,
            Cause::Forget => LeaseEvent::Forget,
        };
        self.fired.push(Fired::Lease { lease, from, event, to });
    }
}

//! The machines' transition tables, as data: the documentation's diagrams are drawn from them, and a test holds the
//! engine to them edge by edge.

use std::fmt::Write;

use crate::claim::{Claim, ClaimState};
use crate::lease::{Lease, LeaseState, Outcome};
use crate::reconcile::{Decision, Presence};

/// One edge: from a state, by an event, to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge<S, E> {
    /// Where the machine stands.
    pub from: S,
    /// What happens.
    pub event: E,
    /// Where it stands then.
    pub to: S,
}

const fn edge<S, E>(from: S, event: E, to: S) -> Edge<S, E> {
    Edge { from, event, to }
}

/// The states of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimStatus {
    /// There is no claim.
    Absent,
    /// At rest.
    Active,
    /// Held by the lease that creates it.
    Creating,
    /// Held by the lease that destroys it.
    Destroying,
    /// Held by the lease that changes its record.
    Replacing,
}

/// What can happen to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimEvent {
    /// An update with a create of it is begun.
    BeginCreate,
    /// An update with a destroy of it is begun.
    BeginDestroy,
    /// An update with both is begun.
    BeginReplace,
    /// Its lease is committed.
    Commit,
    /// Its lease is rolled back.
    Rollback,
}

/// Every edge of the claim machine; what is not here is refused.
pub const CLAIM: [Edge<ClaimStatus, ClaimEvent>; 9] = {
    use ClaimEvent::{BeginCreate, BeginDestroy, BeginReplace, Commit, Rollback};
    use ClaimStatus::{Absent, Active, Creating, Destroying, Replacing};
    [
        edge(Absent, BeginCreate, Creating),
        edge(Creating, Commit, Active),
        edge(Creating, Rollback, Absent),
        edge(Active, BeginDestroy, Destroying),
        edge(Destroying, Commit, Absent),
        edge(Destroying, Rollback, Active),
        edge(Active, BeginReplace, Replacing),
        edge(Replacing, Commit, Active),
        edge(Replacing, Rollback, Active),
    ]
};

/// The states of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseStatus {
    /// Never known, or forgotten.
    Absent,
    /// Begun, not settled.
    Outstanding,
    /// Settled by commit.
    Committed,
    /// Settled by rollback.
    RolledBack,
}

/// What can happen to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseEvent {
    /// Its update is begun.
    Begin,
    /// It is committed.
    Commit,
    /// It is rolled back.
    Rollback,
    /// It was settled long ago.
    Forget,
}

/// Every edge of the lease machine; what is not here is refused, or changes nothing.
pub const LEASE: [Edge<LeaseStatus, LeaseEvent>; 5] = {
    use LeaseEvent::{Begin, Commit, Forget, Rollback};
    use LeaseStatus::{Absent, Committed, Outstanding, RolledBack};
    [
        edge(Absent, Begin, Outstanding),
        edge(Outstanding, Commit, Committed),
        edge(Outstanding, Rollback, RolledBack),
        edge(Committed, Forget, Absent),
        edge(RolledBack, Forget, Absent),
    ]
};

/// One row of the table of reconciliation: how either side stands to a lease, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// The cell's own row of the lease.
    pub local: Presence,
    /// The server's outstanding lease.
    pub remote: Presence,
    /// What to do.
    pub decision: Decision,
}

const fn ruling(local: Presence, remote: Presence, decision: Decision) -> Ruling {
    Ruling { local, remote, decision }
}

/// What reconciliation decides (R01): every pair has its row.
pub const RECONCILE: [Ruling; 9] = {
    use Decision::{Commit, Leave, LookUp, RollBack};
    use Presence::{Fresh, Missing, Stale};
    [
        ruling(Fresh, Fresh, Leave),
        ruling(Fresh, Stale, Leave),
        ruling(Fresh, Missing, Leave),
        ruling(Stale, Fresh, Commit),
        ruling(Stale, Stale, Commit),
        ruling(Stale, Missing, LookUp),
        ruling(Missing, Fresh, Leave),
        ruling(Missing, Stale, RollBack),
        ruling(Missing, Missing, Leave),
    ]
};

impl ClaimStatus {
    /// Where a claim stands.
    pub fn of(claim: Option<&Claim>) -> Self {
        match claim.map(|claim| &claim.state) {
            None => Self::Absent,
            Some(ClaimState::Active(_)) => Self::Active,
            Some(ClaimState::Creating(_, _)) => Self::Creating,
            Some(ClaimState::Destroying(_, _)) => Self::Destroying,
            Some(ClaimState::Replacing(_, _)) => Self::Replacing,
        }
    }
}

impl LeaseStatus {
    /// Where a lease stands.
    pub fn of(lease: Option<&Lease>) -> Self {
        match lease.map(|lease| &lease.state) {
            None => Self::Absent,
            Some(LeaseState::Outstanding(_)) => Self::Outstanding,
            Some(LeaseState::Settled(Outcome::Committed)) => Self::Committed,
            Some(LeaseState::Settled(Outcome::RolledBack)) => Self::RolledBack,
        }
    }
}

/// A machine as a Mermaid state diagram.
pub fn mermaid<S: std::fmt::Debug, E: std::fmt::Debug>(edges: &[Edge<S, E>]) -> String {
    let mut text = String::from("stateDiagram-v2\n");
    for edge in edges {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    {:?} --> {:?}: {:?}", edge.from, edge.to, edge.event);
    }
    text
}

//! The machines' transition tables as data. The documentation's diagrams are drawn from them, and
//! tests hold the engine to every edge and to no other.

use std::fmt::Write;

use crate::claim::{Claim, ClaimState};
use crate::lease::{Lease, LeaseState, Outcome};
use crate::reconcile::{Decision, Presence};
use crate::verify::{Phase, PhaseEvent};

/// One edge: from a state, by an event, to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge<S, E> {
    /// The state before.
    pub from: S,
    /// The event.
    pub event: E,
    /// The state after.
    pub to: S,
}

const fn edge<S, E>(from: S, event: E, to: S) -> Edge<S, E> {
    Edge { from, event, to }
}

/// The states of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimStatus {
    /// The bucket has no claim.
    Absent,
    /// The claim is at rest.
    Active,
    /// The claim is held by the lease that creates it.
    Creating,
    /// The claim is held by the lease that destroys it.
    Destroying,
    /// The claim is held by the lease that changes its record.
    Replacing,
}

/// The events of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimEvent {
    /// An update with a create of the bucket is begun.
    BeginCreate,
    /// An update with a destroy of the bucket is begun.
    BeginDestroy,
    /// An update with both is begun.
    BeginReplace,
    /// The claim's lease is committed.
    Commit,
    /// The claim's lease is rolled back.
    Rollback,
}

/// Every edge of the claim machine. Any other event is refused.
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
    /// The lease was never known, or is forgotten.
    Absent,
    /// The lease is begun and not settled.
    Outstanding,
    /// The lease is settled by a commit.
    Committed,
    /// The lease is settled by a rollback.
    RolledBack,
}

/// The events of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseEvent {
    /// The lease's update is begun.
    Begin,
    /// The lease is committed.
    Commit,
    /// The lease is rolled back.
    Rollback,
    /// The lease is forgotten, long after it was settled.
    Forget,
}

/// Every edge of the lease machine. Any other event is refused or changes nothing.
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

/// One row of the table of reconciliation: a lease on either side, and the decision about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// The presence of the cell's own row of the lease.
    pub local: Presence,
    /// The presence of the server's outstanding lease.
    pub remote: Presence,
    /// The decision.
    pub decision: Decision,
}

const fn ruling(local: Presence, remote: Presence, decision: Decision) -> Ruling {
    Ruling { local, remote, decision }
}

/// The decisions of reconciliation (R01). Every pair has its row.
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

/// Every edge of a run of verification. Any other event changes nothing.
pub const VERIFICATION: [Edge<Phase, PhaseEvent>; 16] = {
    use Phase::{Done, Drain, Fill, LastTry, Refill, Rescan, Scan, Stop};
    use PhaseEvent::{CreatesLeft, LastPage, MostMissing, MostPresent, NothingLeft, SpanLeft, Stopped};
    [
        edge(Scan, MostMissing, Fill),
        edge(Fill, MostPresent, Scan),
        edge(Scan, LastPage, Drain),
        edge(Drain, CreatesLeft, LastTry),
        edge(Drain, SpanLeft, Rescan),
        edge(Rescan, MostMissing, Refill),
        edge(Refill, MostPresent, Rescan),
        edge(Rescan, LastPage, LastTry),
        edge(LastTry, SpanLeft, Rescan),
        edge(Drain, NothingLeft, Done),
        edge(LastTry, NothingLeft, Done),
        edge(Scan, Stopped, Stop),
        edge(Fill, Stopped, Stop),
        edge(Rescan, Stopped, Stop),
        edge(Refill, Stopped, Stop),
        edge(Stop, NothingLeft, Done),
    ]
};

impl ClaimStatus {
    /// The status of a bucket's claim.
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
    /// The status of a lease.
    pub fn of(lease: Option<&Lease>) -> Self {
        match lease.map(|lease| &lease.state) {
            None => Self::Absent,
            Some(LeaseState::Outstanding(_)) => Self::Outstanding,
            Some(LeaseState::Settled(Outcome::Committed)) => Self::Committed,
            Some(LeaseState::Settled(Outcome::RolledBack)) => Self::RolledBack,
        }
    }
}

/// The text of a machine's state diagram, for Mermaid.
pub fn mermaid<S: std::fmt::Debug, E: std::fmt::Debug>(edges: &[Edge<S, E>]) -> String {
    let mut text = String::from("stateDiagram-v2\n");
    for edge in edges {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    {:?} --> {:?}: {:?}", edge.from, edge.to, edge.event);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v07_the_verification_table_has_every_edge_of_the_machine_and_no_other() {
        use Phase::{Done, Drain, Fill, LastTry, Refill, Rescan, Scan, Stop};
        use PhaseEvent::{CreatesLeft, LastPage, MostMissing, MostPresent, NothingLeft, SpanLeft, Stopped};
        for from in [Scan, Fill, Drain, Rescan, Refill, LastTry, Stop, Done] {
            for event in [MostMissing, MostPresent, LastPage, SpanLeft, CreatesLeft, Stopped, NothingLeft] {
                let to = VERIFICATION.iter().find(|edge| (edge.from, edge.event) == (from, event)).map(|edge| edge.to);
                assert_eq!(from.next(event), to, "{from:?} {event:?}");
            }
        }
    }
}

//! The transition tables of the state machines, as data. Tests compare these tables with the engine
//! and with the diagrams in the book.

use std::fmt::Write;

use crate::claim::{Claim, ClaimState};
use crate::lease::{Lease, LeaseState, Outcome};
use crate::lock::{Lock, LockState};
use crate::queue::{Request, RequestState};
use crate::reconcile::{Decision, Presence};
use crate::session::{Session, SessionEnd, SessionState};
use crate::verify::{Phase, PhaseEvent};

/// One edge of a state machine: from a state, by an event, to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge<S, E> {
    /// The state before the event.
    pub from: S,
    /// The event that moves the machine along this edge.
    pub event: E,
    /// The state after the event.
    pub to: S,
}

const fn edge<S, E>(from: S, event: E, to: S) -> Edge<S, E> {
    Edge { from, event, to }
}

/// The states of a bucket's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimStatus {
    /// The bucket has no claim.
    Absent,
    /// The claim is at rest: no lease holds it.
    Active,
    /// The claim is held by the lease that creates it.
    Creating,
    /// The claim is held by the lease that destroys it.
    Destroying,
    /// The claim is held by the lease that changes its record.
    Replacing,
}

/// The events that move a bucket's claim to another state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimEvent {
    /// An update begins that creates the bucket's claim.
    BeginCreate,
    /// An update begins that destroys the bucket's claim.
    BeginDestroy,
    /// An update begins that both creates and destroys the bucket's claim, and so replaces its
    /// record.
    BeginReplace,
    /// The lease that holds the claim is committed.
    Commit,
    /// The lease that holds the claim is rolled back.
    Rollback,
}

/// Every edge of the state machine of a claim. The engine refuses any other event.
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

/// The events that move a lease to another state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseEvent {
    /// The update of the lease is begun.
    Begin,
    /// The lease is committed.
    Commit,
    /// The lease is rolled back.
    Rollback,
    /// The lease is forgotten, a while after it was settled.
    Forget,
}

/// Every edge of the state machine of a lease. The engine refuses any other event, or leaves the
/// lease as it is.
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

/// The states of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionStatus {
    /// The session was never known, or is forgotten.
    Absent,
    /// The session may hold locks.
    Live,
    /// The service closed the session.
    Closed,
    /// The session was silent for too long.
    Expired,
    /// An operator evicted the session.
    Evicted,
}

/// The events that move a session to another state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionEvent {
    /// The session is opened.
    Open,
    /// A renewal is written.
    Renew,
    /// The service closes the session.
    Close,
    /// A host has observed the session's silence.
    Silence,
    /// An operator evicts the session.
    Evict,
    /// The session is forgotten, a while after its end.
    Forget,
}

/// Every edge of the state machine of a session. The engine refuses any other event, or leaves the
/// session as it is.
pub const SESSION: [Edge<SessionStatus, SessionEvent>; 8] = {
    use SessionEvent::{Close, Evict, Forget, Open, Renew, Silence};
    use SessionStatus::{Absent, Closed, Evicted, Expired, Live};
    [
        edge(Absent, Open, Live),
        edge(Live, Renew, Live),
        edge(Live, Close, Closed),
        edge(Live, Silence, Expired),
        edge(Live, Evict, Evicted),
        edge(Closed, Forget, Absent),
        edge(Expired, Forget, Absent),
        edge(Evicted, Forget, Absent),
    ]
};

/// The states of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockStatus {
    /// The lock has no row, and is free.
    Absent,
    /// The lock was held and is free.
    Free,
    /// One ask holds the lock.
    Held,
    /// The lock was taken from its holder, whose time is not over.
    Withheld,
    /// The lock waits for a cleanup.
    Orphaned,
    /// The lock waits for an operator, because its cleanup has failed too often.
    SetAside,
    /// Slots of the lock are taken.
    Divided,
}

/// The events that move a lock to another state. If asks wait, the end of a grant hands the lock
/// over to the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockEvent {
    /// The lock is granted to an ask that found it free.
    Grant,
    /// The grant ends, and nobody waits: the holder released the lock, left, or its session ended; or
    /// an operator took the lock without waiting for the holder's time.
    Release,
    /// The grant ends, and the lock is granted to the first ask that waits.
    HandOver,
    /// An operator takes the lock, or evicts its holder's session.
    Withhold,
    /// The former holder's time is over, or an operator waits for it no longer; and nobody waits.
    Elapse,
    /// The former holder's time is over, or an operator waits for it no longer; and the lock is
    /// granted to the first ask that waits.
    ElapseHandOver,
    /// The grant ends without a release where the lock is reaped, or a cleanup fails; or the time of
    /// such a holder is over.
    Orphan,
    /// The same, and no further cleanup is allowed.
    PutAside,
    /// The cleanup begins: the lock is granted to a cleaner.
    Reap,
    /// An operator has the cleanup begun again.
    Retry,
    /// An operator has cleaned up, and nobody waits.
    Clean,
    /// An operator has cleaned up, and the lock is granted to the first ask that waits.
    CleanHandOver,
    /// The lock is free, and is granted to asks that share it: to one that found it free, or to the first
    /// ones that wait.
    Divide,
    /// A slot of the lock is granted or becomes free.
    Share,
    /// The lock is forgotten, a while after it became free.
    Forget,
}

/// Every edge of the state machine of a lock. The engine refuses any other event, or leaves the lock
/// as it is.
pub const LOCK: [Edge<LockStatus, LockEvent>; 27] = {
    use LockEvent::{
        Clean, CleanHandOver, Divide, Elapse, ElapseHandOver, Forget, Grant, HandOver, Orphan, PutAside, Reap, Release,
        Retry, Share, Withhold,
    };
    use LockStatus::{Absent, Divided, Free, Held, Orphaned, SetAside, Withheld};
    [
        edge(Absent, Grant, Held),
        edge(Free, Grant, Held),
        edge(Held, Release, Free),
        edge(Held, HandOver, Held),
        edge(Held, Withhold, Withheld),
        edge(Withheld, Elapse, Free),
        edge(Withheld, ElapseHandOver, Held),
        edge(Held, Orphan, Orphaned),
        edge(Held, PutAside, SetAside),
        edge(Withheld, Orphan, Orphaned),
        edge(Withheld, PutAside, SetAside),
        edge(Orphaned, Reap, Held),
        edge(Orphaned, Clean, Free),
        edge(Orphaned, CleanHandOver, Held),
        edge(SetAside, Retry, Orphaned),
        edge(SetAside, Clean, Free),
        edge(SetAside, CleanHandOver, Held),
        edge(Free, Forget, Absent),
        edge(Absent, Divide, Divided),
        edge(Free, Divide, Divided),
        edge(Held, Divide, Divided),
        edge(Withheld, Divide, Divided),
        edge(Orphaned, Divide, Divided),
        edge(SetAside, Divide, Divided),
        edge(Divided, Share, Divided),
        edge(Divided, Release, Free),
        edge(Divided, HandOver, Held),
    ]
};

/// Every edge of the state machine of a slot of a lock that is shared. A slot that is not taken has no
/// row.
pub const SLOT: [Edge<LockStatus, LockEvent>; 16] = {
    use LockEvent::{
        Clean, CleanHandOver, Elapse, ElapseHandOver, Grant, HandOver, Orphan, PutAside, Reap, Release, Retry, Withhold,
    };
    use LockStatus::{Absent, Held, Orphaned, SetAside, Withheld};
    [
        edge(Absent, Grant, Held),
        edge(Held, Release, Absent),
        edge(Held, HandOver, Held),
        edge(Held, Withhold, Withheld),
        edge(Withheld, Elapse, Absent),
        edge(Withheld, ElapseHandOver, Held),
        edge(Held, Orphan, Orphaned),
        edge(Held, PutAside, SetAside),
        edge(Withheld, Orphan, Orphaned),
        edge(Withheld, PutAside, SetAside),
        edge(Orphaned, Reap, Held),
        edge(Orphaned, Clean, Absent),
        edge(Orphaned, CleanHandOver, Held),
        edge(SetAside, Retry, Orphaned),
        edge(SetAside, Clean, Absent),
        edge(SetAside, CleanHandOver, Held),
    ]
};

/// The states of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestStatus {
    /// The request was never known, or is withdrawn or forgotten.
    Absent,
    /// The request waits to be taken.
    New,
    /// A worker has taken the request.
    InProgress,
    /// The work succeeded.
    Complete,
    /// The last attempt failed.
    Error,
}

/// The events that move a request to another state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestEvent {
    /// A front submits the request.
    Submit,
    /// A worker takes the request, which counts an attempt.
    Take,
    /// The worker completes the request.
    Complete,
    /// The worker fails the request, and an attempt is left.
    Fail,
    /// The worker fails the request in its last attempt.
    FailLast,
    /// The worker gives the request back, and the attempt does not count.
    GiveBack,
    /// The worker's session has ended, and an attempt is left.
    Silence,
    /// The worker's session has ended in the last attempt.
    SilenceLast,
    /// A front withdraws the request.
    Withdraw,
    /// The failed request is submitted again, with all its attempts.
    Resubmit,
    /// The request is forgotten, a while after it was settled.
    Forget,
}

/// Every edge of the state machine of a request. The engine refuses any other event, or leaves the
/// request as it is.
pub const REQUEST: [Edge<RequestStatus, RequestEvent>; 12] = {
    use RequestEvent::{
        Complete as Completed, Fail, FailLast, Forget, GiveBack, Resubmit, Silence, SilenceLast, Submit, Take, Withdraw,
    };
    use RequestStatus::{Absent, Complete, Error, InProgress, New};
    [
        edge(Absent, Submit, New),
        edge(New, Take, InProgress),
        edge(InProgress, Completed, Complete),
        edge(InProgress, Fail, New),
        edge(InProgress, FailLast, Error),
        edge(InProgress, GiveBack, New),
        edge(InProgress, Silence, New),
        edge(InProgress, SilenceLast, Error),
        edge(New, Withdraw, Absent),
        edge(Error, Resubmit, New),
        edge(Complete, Forget, Absent),
        edge(Error, Forget, Absent),
    ]
};

/// One row of the decision table of reconciliation: the presence of a lease on both sides, and the
/// decision about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// The presence of the lease as a row in the cell's own database.
    pub local: Presence,
    /// The presence of the lease as an outstanding lease on the server.
    pub remote: Presence,
    /// The decision about a lease with this presence on both sides.
    pub decision: Decision,
}

const fn ruling(local: Presence, remote: Presence, decision: Decision) -> Ruling {
    Ruling { local, remote, decision }
}

/// The decisions of reconciliation (R01): one row for each pair of presences.
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

/// Every edge of the phases of a verification run. Any other event leaves the phase as it is.
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
    /// Returns the status of a bucket's claim, [`Absent`](Self::Absent) for `None`.
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
    /// Returns the status of a lease, [`Absent`](Self::Absent) for `None`.
    pub fn of(lease: Option<&Lease>) -> Self {
        match lease.map(|lease| &lease.state) {
            None => Self::Absent,
            Some(LeaseState::Outstanding(_)) => Self::Outstanding,
            Some(LeaseState::Settled(Outcome::Committed)) => Self::Committed,
            Some(LeaseState::Settled(Outcome::RolledBack)) => Self::RolledBack,
        }
    }
}

impl SessionStatus {
    /// Returns the status of a session, [`Absent`](Self::Absent) for `None`.
    pub fn of(session: Option<&Session>) -> Self {
        match session.map(|session| session.state) {
            None => Self::Absent,
            Some(SessionState::Live) => Self::Live,
            Some(SessionState::Ended(SessionEnd::Closed)) => Self::Closed,
            Some(SessionState::Ended(SessionEnd::Expired)) => Self::Expired,
            Some(SessionState::Ended(SessionEnd::Evicted)) => Self::Evicted,
        }
    }
}

impl LockStatus {
    /// Returns the status of a lock, [`Absent`](Self::Absent) for `None`.
    pub fn of(lock: Option<&Lock>) -> Self {
        let Some(lock) = lock else { return Self::Absent };
        match lock.state {
            LockState::Free => Self::Free,
            LockState::Held(_) => Self::Held,
            LockState::Divided(_) => Self::Divided,
            LockState::Withheld(_) => Self::Withheld,
            LockState::Orphaned if lock.is_exhausted() => Self::SetAside,
            LockState::Orphaned => Self::Orphaned,
        }
    }
}

impl RequestStatus {
    /// Returns the status of a request, [`Absent`](Self::Absent) for `None`.
    pub fn of(request: Option<&Request>) -> Self {
        match request.map(|request| request.state) {
            None => Self::Absent,
            Some(RequestState::New) => Self::New,
            Some(RequestState::InProgress) => Self::InProgress,
            Some(RequestState::Complete) => Self::Complete,
            Some(RequestState::Error) => Self::Error,
        }
    }
}

/// Returns the state diagram of a machine in Mermaid's language.
pub fn mermaid<S: std::fmt::Debug, E: std::fmt::Debug>(edges: &[Edge<S, E>]) -> String {
    let mut text = String::from("stateDiagram-v2\n");
    for edge in edges {
        // Writing to a `String` cannot fail.
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

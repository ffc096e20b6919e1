//! The violations that the checks find, each with its text.

use leasehold_core::invariant;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::reconcile::Settled;
use serde::{Serialize, Serializer};

use crate::message_text::settled_text;

/// A condition that does not hold in a world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// The service's state violates an invariant of the engine.
    #[error("in the service {0}")]
    Engine(#[serde(serialize_with = "as_text")] invariant::Violation),
    /// Committed rows of two cells have the same name.
    #[error("`{name}` belongs to rows of cell {} and cell {}", cells[0], cells[1])]
    OwnedTwice {
        /// The name that belongs to two cells.
        name: String,
        /// The numbers of the two cells.
        cells: [u8; 2],
    },
    /// A committed row has no claim, and no outstanding lease will give it one.
    #[error("row {row} of cell {cell} is committed as `{name}`, but has no claim")]
    Unclaimed {
        /// The number of the cell that has the row.
        cell: u8,
        /// The primary key of the row.
        row: u32,
        /// The name of the row.
        name: String,
    },
    /// Verification corrects a claim wrongly, although no plain SQL has changed the claim's row: it
    /// gives up a claim that the row needs, or makes one that the row does not need.
    #[error("verification changes the claim of `{name}` contrary to row {row} of cell {cell}")]
    Miscorrected {
        /// The number of the cell that has the row.
        cell: u8,
        /// The primary key of the row.
        row: u32,
        /// The name whose claim is corrected.
        name: String,
    },
    /// A lease was committed, but its local transaction was not.
    #[error("lease {lease} was committed, but its local transaction was not")]
    CommittedWithoutRows {
        /// The lease that was committed.
        lease: LeaseId,
    },
    /// A lease was rolled back, but its local transaction was committed.
    #[error("lease {lease} was rolled back, but its local transaction was committed")]
    RolledBackUnderRows {
        /// The lease that was rolled back.
        lease: LeaseId,
    },
    /// The service gave a false answer to a commit or rollback of a lease.
    #[error("lease {lease} {}, but its cell was told: {}", ending(*ended), settled_text(*told))]
    ToldWrongly {
        /// The lease that the answer is about.
        lease: LeaseId,
        /// The true outcome of the lease, `None` while the lease is outstanding.
        #[serde(skip_serializing_if = "Option::is_none")]
        ended: Option<Outcome>,
        /// The answer that the service gave.
        told: Settled,
    },
    /// A save was refused because of a lease that its own first attempt had begun.
    #[error("a save is refused because of the lease that its own first attempt has begun")]
    OwnObstacle,
    /// A lock was granted on, or became free, while its holder may still work by its own clock.
    #[error("the lock `{lock}` has passed on, but the client of cell {cell} may still work under fence {fence}")]
    PassedOn {
        /// The key of the lock.
        lock: String,
        /// The number of the cell whose client may still work.
        cell: u8,
        /// The fence under which the client works.
        fence: u64,
    },
    /// A resource accepted a write after a write under a newer fence.
    #[error("a resource accepts a write of a former holder, after a write under fence {newer}")]
    WrittenOutOfOrder {
        /// The newer fence.
        newer: u64,
    },
    /// Another worker got a lane while its worker may still work by its own clock.
    #[error("the lane `{lane}` has passed on, but the client of cell {cell} may still work under fence {fence}")]
    LanePassedOn {
        /// The key of the lane.
        lane: String,
        /// The number of the cell whose client may still work.
        cell: u8,
        /// The fence under which the client works.
        fence: u64,
    },
    /// A worker has worked on an update before the create of its resource was settled.
    #[error("request {update} is worked on before the create of its resource, request {create}, is settled")]
    UpdatedTooEarly {
        /// The number of the update.
        update: u32,
        /// The number of the create.
        create: u32,
    },
    /// A request is complete, and no worker has done its work.
    #[error("request {request} is complete, but nobody has done its work")]
    NotDone {
        /// The number of the request.
        request: u32,
    },
    /// A request has ended more workers than it has attempts.
    #[error("request {request} has ended {deaths} workers, more than it has attempts")]
    DeadlyTooOften {
        /// The number of the request.
        request: u32,
        /// The number of workers that have died of it.
        deaths: u32,
    },
    /// A worker has settled its batch, and is told that another has the lane.
    #[error("the worker of cell {cell} has settled under fence {fence}, but is told that another has the lane")]
    SettleDenied {
        /// The number of the cell whose worker settles.
        cell: u8,
        /// The fence of the worker's hold.
        fence: u64,
    },
    /// A request that was submitted once is in its lane twice.
    #[error("request {request} was submitted once, and is in its lane twice")]
    SubmittedTwice {
        /// The number of the request.
        request: u32,
    },
}

fn ending(ended: Option<Outcome>) -> &'static str {
    match ended {
        None => "is not settled",
        Some(Outcome::Committed) => "was committed",
        Some(Outcome::RolledBack) => "was rolled back",
    }
}

fn as_text<S: Serializer>(violation: &invariant::Violation, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(violation)
}

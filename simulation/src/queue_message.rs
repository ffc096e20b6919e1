//! The requests about a queue, and their answers.

use leasehold_core::lease::Fence;
use leasehold_core::queue::TakeId;
use leasehold_core::session::SessionId;
use serde::Serialize;

use crate::variant_names::variant_names;

/// The kind of a request that a front submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// The request creates the resource of its lane.
    Create,
    /// The request updates the resource of its lane.
    Update,
    /// An update that ends the process of each worker that works on it (Q03).
    Poison,
}

variant_names!(WorkKind { Create: "create", Update: "update", Poison: "poison" });

/// The outcome of the work on a batch, as its worker tells the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchOutcome {
    /// The work is done.
    Completed,
    /// The work has failed, and is tried again if attempts are left.
    Failed,
    /// The worker gives the requests back, which counts no attempt.
    GivenBack,
}

/// The requests that a worker has taken as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    /// The number of the resource.
    pub lane: u8,
    /// The fence of the worker's hold.
    pub fence: Fence,
    /// The number of requests.
    pub count: u8,
    /// The kind of the requests: poison if one of them is.
    pub kind: WorkKind,
}

/// A request of a front or a worker about the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueRequest {
    /// Submit a request.
    Submit {
        /// The number of the request.
        number: u32,
        /// The number of the try, from 0.
        attempt: u8,
        /// The lane of the request.
        lane: u8,
        /// The kind of the request.
        kind: WorkKind,
    },
    /// Take the first requests of a lane that is ready.
    Take {
        /// The session of the worker.
        session: SessionId,
        /// The id of the take. A repeated take has the same id.
        take: TakeId,
        /// True if the service answers only when it has a batch, so the call may wait for long.
        waits: bool,
    },
    /// Settle the requests that were taken.
    Settle {
        /// The session of the worker.
        session: SessionId,
        /// The batch.
        batch: Batch,
        /// The outcome of the work.
        outcome: BatchOutcome,
    },
}

/// The answer of the service to a request about the queue. A refusal is a
/// [`LockAnswer`](crate::lock_message::LockAnswer).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueAnswer {
    /// The request with this number is in its lane: the one submitted, or the first create (Q09).
    Submitted(u32),
    /// The worker has taken these requests.
    Taken(Batch),
    /// No lane is ready.
    Nothing,
    /// The batch is settled.
    Settled,
}

//! The history of a run: what fronts and workers saw, and the rows that are left.

use std::collections::BTreeSet;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The queue in which at most [`LIMIT`] lanes are taken at a time.
pub(super) const LIMITED: &str = "kills.limited";
/// The queue whose workers complete in the transaction of their work, so that it is done exactly once.
pub(super) const EXACT: &str = "kills.exact";
/// All queues of a run.
pub(super) const QUEUES: [&str; 3] = ["kills.direct", LIMITED, EXACT];
/// The limit of the queue [`LIMITED`].
pub(super) const LIMIT: u32 = 2;

/// The name of a queue, and a key.
pub(super) type Lane = (String, String);

/// The way of a request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// A call of the server.
    Call,
    /// A transaction of the user's database.
    Outbox,
}

/// The answer to a submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The request with this id was submitted: the own one, or the first create of the resource.
    Accepted(Uuid),
    /// The transaction was rolled back, to a savepoint or as a whole.
    RolledBack,
    /// No answer came.
    Unknown,
}

/// A submit of a front. Its effect lies between the two times.
#[derive(Clone, Debug)]
pub(super) struct Submitted {
    pub(super) id: Uuid,
    pub(super) lane: Lane,
    pub(super) source: Source,
    pub(super) called: u64,
    pub(super) answered: u64,
    pub(super) answer: Answer,
}

/// A settled request, as the server lists it at the end.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    pub(super) id: Uuid,
    pub(super) lane: Lane,
    pub(super) number: u64,
    pub(super) is_create: bool,
    pub(super) is_complete: bool,
    pub(super) attempts: u32,
    pub(super) max_attempts: u32,
}

/// A row that a worker has written into the user's database, as the work of a request.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    /// The order in which transactions wrote rows of one lane: the guard lets one of them write at a time.
    pub(super) number: i64,
    pub(super) id: Uuid,
    pub(super) lane: Lane,
    pub(super) fence: u64,
}

/// The outcome of a worker's settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Outcome {
    Completed,
    Failed,
    GivenBack,
}

/// A line of a worker's log. Fences are distinct, so a fence names a hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Event {
    /// The worker has received a batch: its requests, each with the number of its attempt.
    Took { at: u64, queue: String, key: String, fence: u64, requests: Vec<(Uuid, u32)> },
    /// The worker is about to send its first settle of the batch.
    Settling { at: u64, fence: u64, outcome: Outcome },
    /// The server has answered that the batch is settled so.
    Settled { fence: u64 },
    /// The server has accepted another outcome of a batch that was settled.
    Contradicted { fence: u64 },
}

/// A batch of a worker.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) lane: Lane,
    pub(super) fence: u64,
    pub(super) requests: Vec<(Uuid, u32)>,
    pub(super) took: u64,
    pub(super) settling: Option<(u64, Outcome)>,
    pub(super) is_settled: bool,
}

/// The end of a hold, as the shared store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Settled(Outcome),
    /// The session of the worker ended.
    Lost,
}

/// A change of a lane's row in the shared store, as a trigger has noted it.
#[derive(Clone, Debug)]
pub(super) struct LaneChange {
    pub(super) transaction: String,
    pub(super) lane: Lane,
    /// The fence of the hold; `None` if no worker has the lane.
    pub(super) fence: Option<u64>,
    /// The fence of the hold that ended last.
    pub(super) last: Option<(u64, End)>,
}

/// All that is known about a run at its end.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) submitted: Vec<Submitted>,
    pub(super) settled: Vec<Settled>,
    /// The ids in the user's own table, into which each transaction with a submit writes a row.
    pub(super) orders: BTreeSet<Uuid>,
    pub(super) effects: Vec<Effect>,
    pub(super) taken: Vec<Taken>,
    /// The fences of the batches for which the server accepted a second outcome.
    pub(super) contradicted: Vec<u64>,
    /// The changes of lanes in the order of their commits; `None` on the embedded store.
    pub(super) changes: Option<Vec<LaneChange>>,
}

/// Returns the nanoseconds of the clock that all processes of a machine share and that never jumps.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    u64::try_from(time.tv_sec()).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap()
}

impl History {
    /// Adds the log of a worker. A worker that was killed may have cut its last line short.
    pub(super) fn read_log(&mut self, text: &str) {
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            self.add(serde_json::from_str(line).unwrap());
        }
    }

    fn add(&mut self, event: Event) {
        match event {
            Event::Took { at: took, queue, key, fence, requests } => {
                let lane = (queue, key);
                self.taken.push(Taken { lane, fence, requests, took, settling: None, is_settled: false });
            }
            Event::Settling { at, fence, outcome } => self.taken_under(fence).settling = Some((at, outcome)),
            Event::Settled { fence } => self.taken_under(fence).is_settled = true,
            Event::Contradicted { fence } => self.contradicted.push(fence),
        }
    }

    /// Returns the newest batch with this fence.
    fn taken_under(&mut self, fence: u64) -> &mut Taken {
        self.taken.iter_mut().rev().find(|taken| taken.fence == fence).unwrap()
    }
}

//! The commands of queues, as functions over a [`Transaction`]; one file has one command, or two
//! that are each other's reverse.
//!
//! A front *submits* a request to the lane of its resource. A worker *takes* the first requests of a
//! lane, works and *settles* them. The worker is a process with a [session](crate::session), as the
//! holder of a lock is: what it has taken comes back once its session has ended.
//!
//! - A lane has at most one worker. Its requests are worked in order, and a lane that is stuck is in no
//!   other's way (Q07).
//! - All updates that wait are taken as one. What is submitted meanwhile is in the next batch (Q02,
//!   Q08).
//! - An attempt counts when it is taken, so a request that kills its worker ends in error (Q03).
//!
//! ```
//! use leasehold_core::locking::open::{Open, open};
//! use leasehold_core::memory::MemoryStore;
//! use leasehold_core::queue::{BatchSize, LanePath, Priority, QueuePath, RequestBody, RequestId, RequestKind, TakeId};
//! use leasehold_core::queueing::Worker;
//! use leasehold_core::queueing::settle::{SettleWork, WorkOutcome, settle_work};
//! use leasehold_core::queueing::submit::{NewRequest, Submit, submit};
//! use leasehold_core::queueing::take::{Take, take};
//! use leasehold_core::session::{Principal, SessionId, Terms};
//! use leasehold_core::time::Timestamp;
//! use uuid::Uuid;
//!
//! let (mut store, now) = (MemoryStore::default(), Timestamp::from_micros(1));
//! let lane = LanePath::parse(QueuePath::parse("sheets").unwrap(), "7").unwrap();
//! let update = |number| NewRequest {
//!     request: RequestId(Uuid::from_u128(number)),
//!     lane: lane.clone(),
//!     kind: RequestKind::Update,
//!     priority: Priority::default(),
//!     not_before: now,
//!     max_attempts: 5,
//!     body: RequestBody::parse(b"column C").unwrap(),
//! };
//! let command = Submit::parse(vec![update(1), update(2)]).unwrap();
//! submit(&mut store, &command, now).unwrap().unwrap();
//!
//! let worker = Worker { session: SessionId(Uuid::from_u128(3)), principal: Principal::parse("sheets").unwrap() };
//! let terms = Terms::parse(10_000_000, 1_000_000).unwrap();
//! let command = Open { session: worker.session, principal: worker.principal.clone(), terms };
//! open(&mut store, &command, now).unwrap().unwrap();
//!
//! // Both updates are taken as one (Q02), each for the first time.
//! let (take_id, size) = (TakeId(Uuid::from_u128(4)), BatchSize::MAX);
//! let command = Take { worker: worker.clone(), take: take_id, lane: lane.clone(), size };
//! let taken = take(&mut store, &command, now).unwrap().unwrap().unwrap();
//! let requests = taken.requests.iter().map(|taken| (taken.request, taken.attempt));
//! assert!(requests.eq([1, 2].map(|number| (RequestId(Uuid::from_u128(number)), 1))));
//!
//! let command = SettleWork { worker, lane, fence: taken.fence, outcome: WorkOutcome::Completed };
//! assert_eq!(settle_work(&mut store, &command, now).unwrap(), Ok(true));
//! // A repeated settle changes nothing (Q10).
//! assert_eq!(settle_work(&mut store, &command, now).unwrap(), Ok(false));
//! ```

mod draft;
pub mod forget;
mod keys;
pub mod limit;
pub mod news;
pub mod note;
pub mod pause;
pub mod reads;
pub mod reclaim;
pub mod retry;
pub mod revise;
pub mod settle;
pub mod submit;
pub mod take;

use crate::lease::Fences;
use crate::queue::RequestState;
use crate::session::{Principal, SessionId};
use crate::time::Timestamp;
use crate::transaction::Transaction;
use crate::update::Answer;

pub(crate) use keys::QueueReads;

/// A worker: a session, and the service that opened it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The session of the worker's process.
    pub session: SessionId,
    /// The service that opened the session.
    pub principal: Principal,
}

/// One command of queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueCommand {
    /// Submits requests: run by [`submit`](submit::submit).
    Submit(submit::Submit),
    /// Takes the first requests of a lane: run by [`take`](take::take).
    Take(take::Take),
    /// Notes the progress on what was taken: run by [`note_progress`](note::note_progress).
    NoteProgress(note::NoteProgress),
    /// Settles what was taken: run by [`settle_work`](settle::settle_work).
    SettleWork(settle::SettleWork),
    /// Takes a lane back from a session that has ended: run by [`reclaim`](reclaim::reclaim).
    Reclaim(reclaim::Reclaim),
    /// Withdraws a request: run by [`withdraw`](revise::withdraw).
    Withdraw(revise::Withdraw),
    /// Submits a failed request again: run by [`resubmit`](revise::resubmit).
    Resubmit(revise::Resubmit),
    /// Pauses or resumes a queue or a lane: run by [`pause`](pause::pause).
    Pause(pause::Pause),
    /// Sets the limit of a queue: run by [`limit_queue`](limit::limit_queue).
    LimitQueue(limit::LimitQueue),
    /// Forgets a settled request: run by [`forget_request`](forget::forget_request).
    ForgetRequest(forget::ForgetRequest),
    /// Forgets an idle lane: run by [`forget_lane`](forget::forget_lane).
    ForgetLane(forget::ForgetLane),
}

/// The reply to a command of queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueReply {
    /// The reply to a submit, in the order of its requests.
    Submitted(Vec<submit::Submitted>),
    /// The reply to a take; `None` if the lane is not ready.
    Taken(Option<take::Taken>),
    /// The reply to a withdraw or a resubmit: the state in which it found the request.
    Found(Option<RequestState>),
    /// The reply to every other command: true if the command changed something.
    Done(bool),
}

impl QueueReply {
    /// Returns the reply with the fence that the store has assigned to its hold.
    #[must_use]
    pub fn with_fences(self, fences: &Fences) -> Self {
        match self {
            Self::Taken(taken) => Self::Taken(taken.map(|taken| taken.with_fences(fences))),
            reply => reply,
        }
    }
}

impl QueueCommand {
    /// Runs the command over a transaction and returns the reply.
    ///
    /// # Errors
    /// The outer error means that the store failed and nothing was changed. The inner error is a
    /// refusal.
    pub fn apply<T: Transaction>(&self, tx: &mut T, now: Timestamp) -> Answer<QueueReply, T::Error> {
        Ok(match self {
            Self::Submit(command) => submit::submit(tx, command, now)?.map(QueueReply::Submitted),
            Self::Take(command) => take::take(tx, command, now)?.map(QueueReply::Taken),
            Self::NoteProgress(command) => note::note_progress(tx, command, now)?.map(QueueReply::Done),
            Self::SettleWork(command) => settle::settle_work(tx, command, now)?.map(QueueReply::Done),
            Self::Reclaim(command) => reclaim::reclaim(tx, command, now)?.map(QueueReply::Done),
            Self::Withdraw(command) => Ok(QueueReply::Found(revise::withdraw(tx, command, now)?)),
            Self::Resubmit(command) => revise::resubmit(tx, command, now)?.map(QueueReply::Found),
            Self::Pause(command) => Ok(QueueReply::Done(pause::pause(tx, command, now)?)),
            Self::LimitQueue(command) => Ok(QueueReply::Done(limit::limit_queue(tx, command, now)?)),
            Self::ForgetRequest(command) => Ok(QueueReply::Done(forget::forget_request(tx, command, now)?)),
            Self::ForgetLane(command) => Ok(QueueReply::Done(forget::forget_lane(tx, command)?)),
        })
    }
}

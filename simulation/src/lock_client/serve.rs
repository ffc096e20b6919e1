//! The part of a client that is the worker of a queue: it takes the first requests of a lane, works
//! on them under the fence of its hold, and settles them.

use leasehold_core::lease::Fence;

use super::{ATTEMPTS, ClientContext, LockClient, Task, TaskKind, WorkPhase, WorkResult};
use crate::network::Request;
use crate::queue_message::{Batch, BatchOutcome, QueueAnswer, QueueRequest, WorkKind};
use crate::queue_names::take_id;
use crate::resource::WriteOutcome;
use crate::settings::LockSettings;

/// The state of a worker's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Serving {
    /// The requests that the worker has taken, `None` before it learns of them.
    pub batch: Option<Batch>,
    /// The outcome that the worker tells the service.
    pub outcome: BatchOutcome,
    take: u32,
}

impl Serving {
    pub(super) fn new(take: u32) -> Self {
        Self { batch: None, outcome: BatchOutcome::Completed, take }
    }
}

impl LockClient {
    /// Returns the lane and the fence under which the worker works, `None` if it holds none as far as
    /// it knows.
    pub fn lane_hold(&self, clock: u64, terms: LockSettings) -> Option<(u8, Fence)> {
        let batch = self.batch_in_work()?;
        self.session.filter(|session| !session.is_lost(clock, terms))?;
        Some((batch.lane, batch.fence))
    }

    /// Returns the batch that the worker is working on, `None` if it does not.
    pub fn batch_in_work(&self) -> Option<&Batch> {
        self.task.filter(|task| matches!(task.phase, WorkPhase::Check | WorkPhase::WriteResource))?;
        self.serving.as_ref()?.batch.as_ref()
    }

    /// Returns the fence of the batch of which the worker dies with its next step, `None` if it does
    /// not (Q03).
    pub fn dies_of(&self) -> Option<Fence> {
        self.task.filter(|task| task.phase == WorkPhase::WriteResource)?;
        self.batch_in_work().filter(|batch| batch.kind == WorkKind::Poison).map(|batch| batch.fence)
    }

    /// Returns true if the worker waits for a batch.
    pub fn awaits_batch(&self) -> bool {
        self.task.is_some_and(|task| task.phase == WorkPhase::AwaitTake)
    }

    /// Ends the work on a batch before its write, with this outcome.
    pub fn end_batch(&mut self, outcome: BatchOutcome) {
        if let (true, Some(task)) = (self.batch_in_work().is_some(), self.task) {
            self.serving.iter_mut().for_each(|serving| serving.outcome = outcome);
            self.task = Some(Task { phase: WorkPhase::Settle, attempts: 0, ..task });
        }
    }

    /// Returns the request that a worker sends in the phase of its task.
    pub(super) fn queue_request(&self, task: Task, cell: u8) -> Option<Request> {
        let (session, serving) = (self.session?.id, self.serving.as_ref()?);
        Some(Request::Queue(match task.phase {
            // The last try asks for an answer at once: after it, no hold of this take can begin.
            WorkPhase::Take => {
                let (take, waits) = (take_id(cell, serving.take), task.attempts + 1 < ATTEMPTS);
                QueueRequest::Take { session, take, waits }
            }
            WorkPhase::Settle => QueueRequest::Settle { session, batch: serving.batch?, outcome: serving.outcome },
            _ => return None,
        }))
    }

    /// Writes the work on the batch to the resource.
    pub(super) fn write_batch(&mut self, task: Task, context: &mut ClientContext<'_>) -> Option<WriteOutcome> {
        let (lane, fence) = self.batch_in_work().map(|batch| (batch.lane, batch.fence))?;
        let outcome = context.resources.write(lane, fence, context.cell);
        match outcome {
            WriteOutcome::Refused => self.end_without_session(WorkResult::Fenced),
            WriteOutcome::Accepted { .. } => {
                self.task = Some(Task { phase: WorkPhase::Settle, attempts: 0, ..task });
            }
        }
        Some(outcome)
    }

    /// Passes an answer about the queue to the task.
    pub(super) fn advance_batch(&mut self, task: Task, answer: &QueueAnswer) {
        match (task.phase, answer) {
            (WorkPhase::AwaitTake, QueueAnswer::Taken(batch)) => {
                let fence = Some(batch.fence);
                self.serving.iter_mut().for_each(|serving| serving.batch = Some(*batch));
                self.task = Some(Task { phase: WorkPhase::Check, fence, attempts: 0, ..task });
            }
            (WorkPhase::AwaitTake, QueueAnswer::Nothing) => self.end(WorkResult::Idle),
            (WorkPhase::AwaitSettle, QueueAnswer::Settled) => {
                let outcome = self.serving.as_ref().map(|serving| serving.outcome);
                self.end(match outcome {
                    Some(BatchOutcome::Failed) => WorkResult::Failed,
                    Some(BatchOutcome::GivenBack) => WorkResult::GivenBack,
                    Some(BatchOutcome::Completed) | None => WorkResult::Done,
                });
            }
            _ => {}
        }
    }
}

/// Returns true if a task serves the queue.
pub(super) fn is_serving(task: Task) -> bool {
    task.kind == TaskKind::Serve
}

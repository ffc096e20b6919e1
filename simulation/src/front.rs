//! The front of a cell: a process that submits requests to a queue, one at a time. It repeats a
//! submit that is not answered, under the same id.

use serde::Serialize;

use crate::network::{MessageId, Network, Payload, Request, Response};
use crate::process::Process;
use crate::queue_message::{QueueAnswer, QueueRequest, WorkKind};
use crate::step_context::Calls;

/// The number of times that a front tries one submit.
const ATTEMPTS: u8 = 3;

/// The result of a submit, as the front tells its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SubmitResult {
    /// The request is in its lane.
    Submitted,
    /// The resource has a create already: the one with this number.
    Known(u32),
    /// The service did not answer, or refused the request.
    Unanswered,
    /// The process died.
    Died,
}

/// A request that a front submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Submission {
    /// The number of the request among all requests of the world.
    pub number: u32,
    /// The lane of the request.
    pub lane: u8,
    /// The kind of the request.
    pub kind: WorkKind,
    attempts: u8,
}

/// A front.
#[derive(Clone, Debug, Default, Hash)]
pub struct Front {
    /// The request that the front submits, `None` while it is idle.
    pub submission: Option<Submission>,
    /// The result of the last submit, `None` before its end.
    pub last_result: Option<SubmitResult>,
    /// The state of the front's calls to the service.
    pub calls: Calls,
}

impl Front {
    /// Starts the submit of a request.
    pub fn start(&mut self, number: u32, lane: u8, kind: WorkKind) {
        self.last_result = None;
        self.submission = Some(Submission { number, lane, kind, attempts: 0 });
    }

    /// Returns true if the front can take a step without waiting for a message.
    pub fn is_ready(&self) -> bool {
        self.submission.is_some() && !self.calls.is_waiting
    }

    /// Sends the submit, and returns the id of the message.
    pub fn step(&mut self, cell: u8, now: u64, network: &mut Network) -> Option<MessageId> {
        let Submission { number, lane, kind, attempts } = self.submission.filter(|_| self.is_ready())?;
        let request = QueueRequest::Submit { number, attempt: attempts, lane, kind };
        self.calls = Calls { made: self.calls.made + 1, is_waiting: true };
        let id = MessageId::request(cell, Process::Front, self.calls.made);
        network.send(id, Payload::Request(Request::Queue(request)), now);
        Some(id)
    }

    /// Passes an answer of the service to the front.
    pub fn answer(&mut self, answer: &Response) {
        self.calls.is_waiting = false;
        let Some(submission) = self.submission else { return };
        match answer {
            Response::Queue(QueueAnswer::Submitted(number)) if *number == submission.number => {
                self.end(SubmitResult::Submitted);
            }
            Response::Queue(QueueAnswer::Submitted(first)) => self.end(SubmitResult::Known(*first)),
            Response::Unavailable => self.retry(submission),
            _ => self.end(SubmitResult::Unanswered),
        }
    }

    /// Ends the wait for an answer.
    pub fn time_out(&mut self) {
        self.calls.is_waiting = false;
        self.submission.into_iter().for_each(|submission| self.retry(submission));
    }

    /// Ends the process, which loses its memory.
    pub fn crash(&mut self) {
        self.calls.is_waiting = false;
        self.end(SubmitResult::Died);
    }

    fn retry(&mut self, submission: Submission) {
        let attempts = submission.attempts + 1;
        if attempts < ATTEMPTS {
            self.submission = Some(Submission { attempts, ..submission });
        } else {
            self.end(SubmitResult::Unanswered);
        }
    }

    fn end(&mut self, result: SubmitResult) {
        self.submission = None;
        self.last_result = Some(result);
    }
}

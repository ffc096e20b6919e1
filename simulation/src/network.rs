//! The messages between the cells and the service. A message can arrive in any order, late, twice
//! or never.

use std::fmt;
use std::sync::Arc;

use leasehold_core::batch::UpdateRequest;
use leasehold_core::claim::SourceId;
use leasehold_core::lease::{Fence, LeaseId, Outcome};
use leasehold_core::query::{LeasePosition, RecordRow};
use leasehold_core::reconcile::{RemoteLease, Settled};
use leasehold_core::rejection::{Place, Reason};
use leasehold_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::lock_message::{LockAnswer, LockRequest};
use crate::process::Process;
use crate::queue_message::{QueueAnswer, QueueRequest};

/// The id of a message: the call it belongs to, its direction and the number of its copy. A message
/// keeps its id when unrelated events are removed from a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(u32);

const COPY_BITS: u32 = 3;
const PROCESS_BITS: u32 = 4;
const CELL_BITS: u32 = 4;
const FIRST_RECONCILER: u32 = 8;
const CLIENT: u32 = 12;
const KEEPALIVE: u32 = 13;
const FRONT: u32 = 14;
const VERIFIER: u32 = 15;

impl From<u32> for MessageId {
    fn from(number: u32) -> Self {
        Self(number)
    }
}

impl MessageId {
    /// Returns the id of the request that a process sends with its call number `call`.
    pub fn request(cell: u8, process: Process, call: u32) -> Self {
        let process = match process {
            Process::Worker(number) => u32::from(number),
            Process::Reconciler(number) => FIRST_RECONCILER + u32::from(number),
            Process::Client => CLIENT,
            Process::Keepalive => KEEPALIVE,
            Process::Front => FRONT,
            Process::Verifier => VERIFIER,
        };
        let caller = (call << CELL_BITS | u32::from(cell)) << PROCESS_BITS | process;
        Self(caller << (COPY_BITS + 1))
    }

    /// Returns the id with another call number.
    #[must_use]
    pub fn with_call(self, call: u32) -> Self {
        let answer = self.0 & ((1 << (COPY_BITS + 1)) - 1);
        Self(Self::request(self.cell(), self.process(), call).0 | answer)
    }

    /// Returns the id of the answer to this request, with the same copy number.
    #[must_use]
    pub fn answer(self) -> Self {
        Self(self.0 | 1 << COPY_BITS)
    }

    /// Returns the id with another copy number, `None` if the number does not fit into three bits.
    pub fn copy(self, number: u8) -> Option<Self> {
        let number = u32::from(number);
        (number < 1 << COPY_BITS).then_some(Self(self.0 & !((1 << COPY_BITS) - 1) | number))
    }

    /// Returns the copy number of the message: 0 for the original.
    pub fn copy_number(self) -> u8 {
        (self.0 & ((1 << COPY_BITS) - 1)) as u8
    }

    /// Returns true if the message goes from the service to the cell.
    pub fn is_answer(self) -> bool {
        self.0 >> COPY_BITS & 1 == 1
    }

    /// Returns the number of the cell whose process made the call.
    pub fn cell(self) -> u8 {
        (self.0 >> (COPY_BITS + 1 + PROCESS_BITS) & ((1 << CELL_BITS) - 1)) as u8
    }

    /// Returns the process that made the call.
    pub fn process(self) -> Process {
        match self.0 >> (COPY_BITS + 1) & ((1 << PROCESS_BITS) - 1) {
            VERIFIER => Process::Verifier,
            CLIENT => Process::Client,
            KEEPALIVE => Process::Keepalive,
            FRONT => Process::Front,
            number @ FIRST_RECONCILER.. => Process::Reconciler((number - FIRST_RECONCILER) as u8),
            number => Process::Worker(number as u8),
        }
    }

    /// Returns the number of the call among the calls of its process.
    pub fn call(self) -> u32 {
        self.0 >> (COPY_BITS + 1 + PROCESS_BITS + CELL_BITS)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.is_answer() { "answer" } else { "request" };
        write!(f, "{way} {} of {:?} of cell {}", self.call(), self.process(), self.cell())?;
        if self.copy_number() == 0 { Ok(()) } else { write!(f, ", copy {}", self.copy_number()) }
    }
}

/// The purpose for which an update was begun. The service does not see the purpose; the checks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The save of a user, by the number of the save.
    Save(u32),
    /// A correction of a claim by verification.
    Correction,
}

/// A request from a cell to the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Begin an update.
    Begin {
        /// The claims that the update creates and destroys.
        update: Arc<UpdateRequest>,
        /// The idempotency key of the begin, `None` if the rule for such keys is off.
        key: Option<Arc<str>>,
        /// The purpose of the update.
        purpose: Purpose,
    },
    /// Commit or roll back a lease.
    Settle {
        /// The id of the lease to settle.
        lease: LeaseId,
        /// Commit the lease or roll it back.
        outcome: Outcome,
    },
    /// List a page of the cell's outstanding leases.
    ListLeases {
        /// The position of the last lease of the previous page, `None` for the first page.
        cursor: Option<LeasePosition>,
    },
    /// List a page of the cell's claims, in the order of the rows that they come from.
    ListRecords {
        /// The exclusive lower bound of the page's source ids; empty for no bound.
        after: SourceId,
        /// The inclusive upper bound of the page's source ids; empty for no bound. The page may end
        /// earlier.
        upto: SourceId,
    },
    /// A request about sessions and locks.
    Lock(LockRequest),
    /// A request about a queue.
    Queue(QueueRequest),
}

/// A response of the service to a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The service has begun the update.
    Begun {
        /// The id of the update's lease.
        lease: LeaseId,
        /// The fence of the lease.
        fence: Fence,
    },
    /// The service refuses the update.
    Refused {
        /// The reason of highest precedence among the refused claims.
        reason: Reason,
        /// The places of the refused claims in the update, each with its reason.
        claims: Arc<[(Place, Reason)]>,
        /// True if a claim was busy because of a lease that the same save had begun. No participant
        /// reads this field; the checks do.
        blocked_by_own_lease: bool,
    },
    /// The service's answer to a commit or rollback.
    Settled(Settled),
    /// A page of the cell's outstanding leases.
    Leases {
        /// The leases of the page.
        leases: Arc<[RemoteLease]>,
        /// The service's time when it answered.
        now: Timestamp,
        /// The position after which the next page begins, `None` on the last page.
        next: Option<LeasePosition>,
    },
    /// A page of the cell's claims.
    Records {
        /// The claims of the page.
        records: Arc<[RecordRow]>,
        /// The service's time when it answered.
        now: Timestamp,
        /// True if more claims remain after this page.
        truncated: bool,
    },
    /// The service's answer to a request about sessions and locks.
    Lock(LockAnswer),
    /// The service's answer to a request about a queue.
    Queue(QueueAnswer),
    /// The service is down, so the request has changed nothing.
    Unavailable,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A request from a cell to the service.
    Request(Request),
    /// A response of the service to a cell.
    Response(Response),
}

impl Payload {
    /// Returns true if the message is an answer after which the request has had no effect, or a
    /// lease has another outcome than its caller requested.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Response(
                Response::Refused { .. } | Response::Unavailable | Response::Lock(LockAnswer::Refused(_)),
            ) => true,
            Self::Response(Response::Settled(settled)) => *settled != Settled::Done,
            _ => false,
        }
    }
}

/// A message in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The id of the message.
    pub id: MessageId,
    /// The content of the message.
    pub payload: Payload,
    /// The time at which the message was sent, by the world's clock in microseconds.
    pub sent_at: u64,
}

/// The messages in flight, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Network {
    messages: Vec<Message>,
}

impl Network {
    /// Sends a message, unless a message with this id is already in flight.
    pub fn send(&mut self, id: MessageId, payload: Payload, sent_at: u64) {
        if self.position(id).is_none() {
            self.messages.push(Message { id, payload, sent_at });
        }
    }

    /// Removes a message from the network and returns it, `None` if it is not in flight.
    pub fn take(&mut self, id: MessageId) -> Option<Message> {
        self.position(id).map(|at| self.messages.remove(at))
    }

    /// Duplicates a message and returns the id of the copy. Returns `None` if the message is not in
    /// flight or has too many copies.
    pub fn duplicate(&mut self, id: MessageId) -> Option<MessageId> {
        let at = self.position(id)?;
        let last = self.messages.iter().filter(|message| message.id.copy(0) == id.copy(0)).map(|m| m.id.copy_number());
        let copy = id.copy(last.max()?.checked_add(1)?)?;
        let message = Message { id: copy, ..self.messages.get(at)?.clone() };
        self.messages.push(message);
        Some(copy)
    }

    /// Removes every request from the network, as a stop of the service does.
    pub fn drop_requests(&mut self) {
        self.messages.retain(|message| message.id.is_answer());
    }

    /// Returns the messages in flight, the oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    fn position(&self, id: MessageId) -> Option<usize> {
        self.messages.iter().position(|message| message.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_id_returns_its_parts() {
        for process in
            [Process::Worker(0), Process::Worker(7), Process::Reconciler(0), Process::Reconciler(3), Process::Verifier]
                .into_iter()
                .chain([Process::Client, Process::Keepalive])
        {
            for (cell, call) in [(1, 1), (8, 9), (3, (1 << 20) - 1)] {
                let request = MessageId::request(cell, process, call);
                let copy = request.answer().copy(5).unwrap();
                for id in [request, request.answer(), copy] {
                    assert_eq!((id.cell(), id.process(), id.call()), (cell, process, call));
                    assert_eq!(id.with_call(1).with_call(call), id);
                }
                let answers = [request, request.answer(), copy].map(MessageId::is_answer);
                assert_eq!((answers, copy.copy_number()), ([false, true, true], 5));
                assert_eq!((copy.copy(0), copy.copy(8)), (Some(request.answer()), None));
            }
        }
    }
}

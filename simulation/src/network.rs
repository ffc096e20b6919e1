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

use crate::process::Process;

/// The id of a message: its call, its direction and the number of its copy. An id stays the same
/// when unrelated events are removed from a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(u32);

const COPY_BITS: u32 = 3;
const PROCESS_BITS: u32 = 4;
const CELL_BITS: u32 = 4;
const FIRST_RECONCILER: u32 = 8;
const VERIFIER: u32 = 15;

impl From<u32> for MessageId {
    fn from(number: u32) -> Self {
        Self(number)
    }
}

impl MessageId {
    /// The id of the request of a process's call.
    pub fn request(cell: u8, process: Process, call: u32) -> Self {
        let process = match process {
            Process::Worker(number) => u32::from(number),
            Process::Reconciler(number) => FIRST_RECONCILER + u32::from(number),
            Process::Verifier => VERIFIER,
        };
        let caller = (call << CELL_BITS | u32::from(cell)) << PROCESS_BITS | process;
        Self(caller << (COPY_BITS + 1))
    }

    /// Returns the id with the number of its call replaced.
    #[must_use]
    pub fn with_call(self, call: u32) -> Self {
        let answer = self.0 & ((1 << (COPY_BITS + 1)) - 1);
        Self(Self::request(self.cell(), self.process(), call).0 | answer)
    }

    /// The id of the answer to this request, with the same copy number.
    #[must_use]
    pub fn answer(self) -> Self {
        Self(self.0 | 1 << COPY_BITS)
    }

    /// Returns the id with the number of its copy replaced; `None` if the number exceeds three
    /// bits.
    pub fn copy(self, number: u8) -> Option<Self> {
        let number = u32::from(number);
        (number < 1 << COPY_BITS).then_some(Self(self.0 & !((1 << COPY_BITS) - 1) | number))
    }

    /// The number of the copy, from 0.
    pub fn copy_number(self) -> u8 {
        (self.0 & ((1 << COPY_BITS) - 1)) as u8
    }

    /// True if the message goes from the service to the cell.
    pub fn is_answer(self) -> bool {
        self.0 >> COPY_BITS & 1 == 1
    }

    /// The cell whose process made the call.
    pub fn cell(self) -> u8 {
        (self.0 >> (COPY_BITS + 1 + PROCESS_BITS) & ((1 << CELL_BITS) - 1)) as u8
    }

    /// The process that made the call.
    pub fn process(self) -> Process {
        match self.0 >> (COPY_BITS + 1) & ((1 << PROCESS_BITS) - 1) {
            VERIFIER => Process::Verifier,
            number @ FIRST_RECONCILER.. => Process::Reconciler((number - FIRST_RECONCILER) as u8),
            number => Process::Worker(number as u8),
        }
    }

    /// The number of the call among the calls of its process.
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

/// The purpose for which an update was begun. The service never sees it; only the checks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A user's save, by its number.
    Save(u32),
    /// A correction by verification.
    Correction,
}

/// A request from a cell to the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Begin an update.
    Begin {
        /// The claims to create and to destroy.
        update: Arc<UpdateRequest>,
        /// The idempotency key.
        key: Option<Arc<str>>,
        /// The purpose of the update.
        purpose: Purpose,
    },
    /// Commit or roll back a lease.
    Settle {
        /// The lease.
        lease: LeaseId,
        /// Commit or rollback.
        outcome: Outcome,
    },
    /// List a page of the cell's outstanding leases.
    ListLeases {
        /// The position after the last lease of the previous page.
        cursor: Option<LeasePosition>,
    },
    /// List a page of the cell's claims in the order of their rows.
    ListRecords {
        /// The page starts after this row.
        after: SourceId,
        /// The page ends with this row.
        upto: SourceId,
    },
}

/// An answer from the service to a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The update has begun.
    Begun {
        /// The lease.
        lease: LeaseId,
        /// Its fence.
        fence: Fence,
    },
    /// The update is refused.
    Refused {
        /// The reason that stands for the whole update.
        reason: Reason,
        /// The refused claims and the reason of each.
        claims: Arc<[(Place, Reason)]>,
        /// True if the obstacle was a lease that the same save had begun. No participant reads this
        /// field; the checks do.
        blocked_by_own_lease: bool,
    },
    /// The outcome of a settle.
    Settled(Settled),
    /// A page of leases.
    Leases {
        /// The leases.
        leases: Arc<[RemoteLease]>,
        /// The service's time.
        now: Timestamp,
        /// The position at which the next page begins; `None` on the last page.
        next: Option<LeasePosition>,
    },
    /// A page of claims.
    Records {
        /// The claims.
        records: Arc<[RecordRow]>,
        /// The service's time.
        now: Timestamp,
        /// True if more claims remain.
        truncated: bool,
    },
    /// The service is down.
    Unavailable,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// From a cell to the service.
    Request(Request),
    /// From the service to a cell.
    Answer(Answer),
}

/// A message in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The id of the message.
    pub id: MessageId,
    /// The content of the message.
    pub payload: Payload,
    /// The time at which it was sent, by the world's clock in microseconds.
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

    /// Removes a message and returns it.
    pub fn take(&mut self, id: MessageId) -> Option<Message> {
        self.position(id).map(|at| self.messages.remove(at))
    }

    /// Duplicates a message and returns the id of the copy.
    pub fn duplicate(&mut self, id: MessageId) -> Option<MessageId> {
        let at = self.position(id)?;
        let last = self.messages.iter().filter(|message| message.id.copy(0) == id.copy(0)).map(|m| m.id.copy_number());
        let copy = id.copy(last.max()?.checked_add(1)?)?;
        let message = Message { id: copy, ..self.messages.get(at)?.clone() };
        self.messages.push(message);
        Some(copy)
    }

    /// Removes every request.
    pub fn drop_requests(&mut self) {
        self.messages.retain(|message| message.id.is_answer());
    }

    /// The messages in flight, the oldest first.
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

//! What is on its way between the cells and the service. Messages arrive in any order, late, twice or never.

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

use crate::event::Process;

/// A message's name: whose call it belongs to, which way it goes, and which copy it is. It stays the same when events
/// that have nothing to do with it are taken out of a trace.
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
    /// The request of a process's call.
    pub fn request(cell: u8, process: Process, call: u32) -> Self {
        let process = match process {
            Process::Worker(number) => u32::from(number),
            Process::Reconciler(number) => FIRST_RECONCILER + u32::from(number),
            Process::Verifier => VERIFIER,
        };
        let caller = (call << CELL_BITS | u32::from(cell)) << PROCESS_BITS | process;
        Self(caller << (COPY_BITS + 1))
    }

    /// The same message of another call.
    #[must_use]
    pub fn of_call(self, call: u32) -> Self {
        let answer = self.0 & ((1 << (COPY_BITS + 1)) - 1);
        Self(Self::request(self.cell(), self.process(), call).0 | answer)
    }

    /// The answer to this request, as the same copy.
    #[must_use]
    pub fn answer(self) -> Self {
        Self(self.0 | 1 << COPY_BITS)
    }

    /// Another copy of this message; none where there are too many.
    pub fn copy(self, number: u8) -> Option<Self> {
        let number = u32::from(number);
        (number < 1 << COPY_BITS).then_some(Self(self.0 & !((1 << COPY_BITS) - 1) | number))
    }

    /// Which copy this is, from 0.
    pub fn copy_number(self) -> u8 {
        (self.0 & ((1 << COPY_BITS) - 1)) as u8
    }

    /// Whether it goes to the cell.
    pub fn is_answer(self) -> bool {
        self.0 >> COPY_BITS & 1 == 1
    }

    /// The cell whose call it belongs to.
    pub fn cell(self) -> u8 {
        (self.0 >> (COPY_BITS + 1 + PROCESS_BITS) & ((1 << CELL_BITS) - 1)) as u8
    }

    /// The process that called.
    pub fn process(self) -> Process {
        match self.0 >> (COPY_BITS + 1) & ((1 << PROCESS_BITS) - 1) {
            VERIFIER => Process::Verifier,
            number @ FIRST_RECONCILER.. => Process::Reconciler((number - FIRST_RECONCILER) as u8),
            number => Process::Worker(number as u8),
        }
    }

    /// Which of the process's calls it belongs to.
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

/// On whose behalf an update is begun. The service never sees it: the checks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A user's save, by its number.
    Save(u32),
    /// A correction by verification.
    Correction,
}

/// What a cell asks of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Begin an update.
    Begin {
        /// What to claim and let go of.
        update: Arc<UpdateRequest>,
        /// The idempotency key.
        key: Option<Arc<str>>,
        /// Why.
        purpose: Purpose,
    },
    /// Commit or roll back a lease.
    Settle {
        /// The lease.
        lease: LeaseId,
        /// Which of the two.
        outcome: Outcome,
    },
    /// List outstanding leases.
    ListLeases {
        /// Where the page before ended.
        cursor: Option<LeasePosition>,
    },
    /// List claims by the rows that they come from.
    ListRecords {
        /// Only beyond this row.
        after: SourceId,
        /// Only up to this row.
        upto: SourceId,
    },
}

/// What the service answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The update is begun.
    Begun {
        /// The lease.
        lease: LeaseId,
        /// Its fence.
        fence: Fence,
    },
    /// The update is refused, because of these claims.
    Refused {
        /// The one reason that speaks for all.
        reason: Reason,
        /// The claims at fault.
        claims: Arc<[(Place, Reason)]>,
        /// Whether what was in the way is a lease that the same save had begun. Nobody is told: the checks look.
        is_own_obstacle: bool,
    },
    /// What became of the lease.
    Settled(Settled),
    /// A page of leases.
    Leases {
        /// The leases.
        leases: Arc<[RemoteLease]>,
        /// The service's time.
        now: Timestamp,
        /// Where the next page begins.
        next: Option<LeasePosition>,
    },
    /// A page of claims.
    Records {
        /// The claims.
        records: Arc<[RecordRow]>,
        /// The service's time.
        now: Timestamp,
        /// Whether more remain.
        truncated: bool,
    },
    /// Nobody serves at that address just now.
    Unavailable,
}

/// What a message carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// To the service.
    Request(Request),
    /// To the cell.
    Answer(Answer),
}

/// A message under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its name.
    pub id: MessageId,
    /// What it carries.
    pub payload: Payload,
    /// When it was sent, by the world's clock in microseconds.
    pub sent_at: u64,
}

/// Everything that is under way, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Network {
    messages: Vec<Message>,
}

impl Network {
    /// Sends a message. One that is under way under this name already is not sent again.
    pub fn send(&mut self, id: MessageId, payload: Payload, sent_at: u64) {
        if self.position(id).is_none() {
            self.messages.push(Message { id, payload, sent_at });
        }
    }

    /// Takes a message out.
    pub fn take(&mut self, id: MessageId) -> Option<Message> {
        self.position(id).map(|at| self.messages.remove(at))
    }

    /// Doubles a message, and says under which name.
    pub fn double(&mut self, id: MessageId) -> Option<MessageId> {
        let at = self.position(id)?;
        let last = self.messages.iter().filter(|message| message.id.copy(0) == id.copy(0)).map(|m| m.id.copy_number());
        let copy = id.copy(last.max()?.checked_add(1)?)?;
        let message = Message { id: copy, ..self.messages.get(at)?.clone() };
        self.messages.push(message);
        Some(copy)
    }

    /// Takes out every request.
    pub fn lose_requests(&mut self) {
        self.messages.retain(|message| message.id.is_answer());
    }

    /// The messages, the oldest first.
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
    fn a_message_id_gives_back_what_it_was_made_of() {
        for process in
            [Process::Worker(0), Process::Worker(7), Process::Reconciler(0), Process::Reconciler(3), Process::Verifier]
        {
            for (cell, call) in [(1, 1), (8, 9), (3, (1 << 20) - 1)] {
                let request = MessageId::request(cell, process, call);
                let copy = request.answer().copy(5).unwrap();
                for id in [request, request.answer(), copy] {
                    assert_eq!((id.cell(), id.process(), id.call()), (cell, process, call));
                    assert_eq!(id.of_call(1).of_call(call), id);
                }
                let answers = [request, request.answer(), copy].map(MessageId::is_answer);
                assert_eq!((answers, copy.copy_number()), ([false, true, true], 5));
                assert_eq!((copy.copy(0), copy.copy(8)), (Some(request.answer()), None));
            }
        }
    }
}

//! The events that can happen to a world. If a crash can separate two effects, each of them is its
//! own event.

use serde::{Deserialize, Deserializer, Serialize};

use crate::integer_fields;
use crate::network::MessageId;
use crate::process::Process;
use crate::queue_message::WorkKind;

/// A change that a user wants to save. Names are given by number, rows by primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// The user's input is invalid, and the cell's own validation refuses it.
    Invalid,
    /// Insert a new row with the name of this number.
    Create(u8),
    /// Insert two new rows with these names, in one transaction.
    CreateTwo([u8; 2]),
    /// Give a row a new name.
    #[serde(deserialize_with = "row_and_name")]
    Rename {
        /// The primary key of the row.
        row: u32,
        /// The number of the row's new name.
        name: u8,
    },
    /// Delete the row with this primary key, which frees the row's name.
    Delete(u32),
    /// Exchange the names of the rows with these primary keys.
    Swap([u32; 2]),
    /// Delete a row and give its name to another row, in one transaction.
    #[serde(deserialize_with = "from_and_to")]
    Transfer {
        /// The primary key of the row that is deleted.
        from: u32,
        /// The primary key of the row that gets the name.
        to: u32,
    },
}

/// A change by plain SQL that bypasses the claims, so that a row and its claim differ. Verification
/// repairs the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Drift {
    /// Insert a new row with the name of this number, without a claim.
    Insert(u8),
    /// Give a row a new name. The claim of the old name stays.
    #[serde(deserialize_with = "row_and_name")]
    Rename {
        /// The primary key of the row.
        row: u32,
        /// The number of the row's new name.
        name: u8,
    },
    /// Delete the row with this primary key. Its claim stays.
    Delete(u32),
}

fn row_and_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(u32, u8), D::Error> {
    integer_fields::pair(deserializer, ["row", "name"])
}

fn from_and_to<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(u32, u32), D::Error> {
    integer_fields::pair(deserializer, ["from", "to"])
}

/// One event of a world. Cells are numbered from 1, as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A user asks an idle worker for a save.
    Save {
        /// The number of the cell that the worker belongs to.
        cell: u8,
        /// The number of the idle worker in its cell, from 0.
        worker: u8,
        /// The change that the user wants to save.
        change: Change,
    },
    /// A process takes its next step: one local effect or one message sent. An idle reconciler or
    /// verifier starts a run.
    Step {
        /// The number of the cell that the process belongs to.
        cell: u8,
        /// The process that takes the step.
        process: Process,
    },
    /// A database performs the COMMIT that a worker has sent, or refuses the COMMIT as too late.
    FinishCommit {
        /// The number of the cell that the database belongs to.
        cell: u8,
        /// The number of the worker that sent the COMMIT. The worker may have crashed since.
        worker: u8,
    },
    /// A database abandons a COMMIT whose worker has lost its connection.
    LoseCommit {
        /// The number of the cell that the database belongs to.
        cell: u8,
        /// The number of the worker that sent the COMMIT.
        worker: u8,
    },
    /// The message with this id arrives.
    Deliver(MessageId),
    /// The message with this id is lost.
    Drop(MessageId),
    /// The message with this id is duplicated.
    Duplicate(MessageId),
    /// The service finds that this answer to a begin without an idempotency key cannot leave: the
    /// call was cancelled, its deadline has passed or its connection is gone. The lease waits in the
    /// service's memory until it is taken back (B25).
    CancelCall(MessageId),
    /// The service rolls back the first lease whose answer could not leave the service (B25).
    /// Before the service decides a begin, it rolls back all such leases.
    TakeBack,
    /// A process stops waiting for the answer to its call.
    TimeOut {
        /// The number of the cell that the process belongs to.
        cell: u8,
        /// The process that stops waiting.
        process: Process,
    },
    /// A process crashes and restarts at once with empty memory.
    Crash {
        /// The number of the cell that the process belongs to.
        cell: u8,
        /// The process that crashes.
        process: Process,
    },
    /// A worker loses its connection to the database.
    Disconnect {
        /// The number of the cell that the worker belongs to.
        cell: u8,
        /// The number of the worker that loses its connection.
        worker: u8,
    },
    /// A database restarts, and every connection to it is lost.
    RestartDatabase {
        /// The number of the cell that the database belongs to.
        cell: u8,
    },
    /// A cell is cut off from the service, so messages between them wait.
    Partition {
        /// The number of the cell that is cut off.
        cell: u8,
    },
    /// The connection between a cell and the service is restored.
    Heal {
        /// The number of the cell that is connected again.
        cell: u8,
    },
    /// The service stops. Requests in flight to the service are lost, and it accepts no new ones.
    StopService,
    /// The service starts again with every change that it had made durable.
    StartService,
    /// A cell's replica applies the next change of its database.
    Replicate {
        /// The number of the cell that the replica belongs to.
        cell: u8,
    },
    /// The service deletes the leases that were settled longer ago than `remember_within_seconds`.
    Forget,
    /// Plain SQL changes a row and bypasses the claims.
    Drift {
        /// The number of the cell whose row changes.
        cell: u8,
        /// The change by plain SQL.
        drift: Drift,
    },
    /// Time passes, and no other event happens.
    Wait {
        /// The duration in seconds.
        seconds: u32,
    },
    /// A cell's program asks its client to work under a lock.
    Work {
        /// The number of the cell whose client works.
        cell: u8,
        /// The number of the lock.
        lock: u8,
    },
    /// A cell's program asks its client to close its session.
    Close {
        /// The number of the cell whose client closes its session.
        cell: u8,
    },
    /// A cell's client is paused with its keepalive. Its clock runs on.
    Pause {
        /// The number of the cell that the client belongs to.
        cell: u8,
    },
    /// A paused client runs again.
    Resume {
        /// The number of the cell that the client belongs to.
        cell: u8,
    },
    /// The service is paused: it receives nothing and counts no tick.
    PauseService,
    /// The paused service runs again.
    ResumeService,
    /// The service counts a tick. If the tick comes early, time passes until it is due; a late tick
    /// counts as one.
    Tick,
    /// The engine decides the first proposal of the last tick.
    Decide,
    /// An operator evicts the session of a cell's client.
    Evict {
        /// The number of the cell that the client belongs to.
        cell: u8,
    },
    /// An operator takes a lock from its holder.
    Force {
        /// The number of the lock.
        lock: u8,
    },
    /// The service's wall clock jumps.
    JumpClock {
        /// The number of seconds by which it jumps ahead, negative if it jumps back.
        seconds: i32,
    },
    /// A cell's program asks its front to submit a request.
    Submit {
        /// The number of the cell whose front submits.
        cell: u8,
        /// The number of the lane.
        lane: u8,
        /// The kind of the request.
        kind: WorkKind,
    },
    /// A cell's program asks its client to take requests of the queue, and to work on them.
    Serve {
        /// The number of the cell whose client works.
        cell: u8,
    },
    /// The work of a cell's client on its requests fails, before it has written anything.
    FailWork {
        /// The number of the cell that the client belongs to.
        cell: u8,
    },
    /// A cell's client gives its requests back, before it has written anything.
    GiveBack {
        /// The number of the cell that the client belongs to.
        cell: u8,
    },
}

impl Event {
    /// Returns true if the event is a fault that no participant requests.
    pub fn is_fault(self) -> bool {
        match self {
            Self::LoseCommit { .. }
            | Self::Drop(_)
            | Self::Duplicate(_)
            | Self::CancelCall(_)
            | Self::TimeOut { .. }
            | Self::Crash { .. }
            | Self::Disconnect { .. }
            | Self::RestartDatabase { .. }
            | Self::Partition { .. }
            | Self::StopService
            | Self::Pause { .. }
            | Self::PauseService
            | Self::JumpClock { .. }
            | Self::FailWork { .. }
            | Self::Drift { .. } => true,
            Self::Save { .. }
            | Self::Step { .. }
            | Self::FinishCommit { .. }
            | Self::Deliver(_)
            | Self::TakeBack
            | Self::Heal { .. }
            | Self::StartService
            | Self::Replicate { .. }
            | Self::Forget
            | Self::Work { .. }
            | Self::Close { .. }
            | Self::Resume { .. }
            | Self::ResumeService
            | Self::Tick
            | Self::Decide
            | Self::Evict { .. }
            | Self::Force { .. }
            | Self::Submit { .. }
            | Self::Serve { .. }
            | Self::GiveBack { .. }
            | Self::Wait { .. } => false,
        }
    }

    /// Returns the message that the event delivers, drops, duplicates or keeps in the service,
    /// `None` for any other event.
    pub fn message(self) -> Option<MessageId> {
        match self {
            Self::Deliver(id) | Self::Drop(id) | Self::Duplicate(id) | Self::CancelCall(id) => Some(id),
            _ => None,
        }
    }

    /// Returns the event with each primary key of a row that a save changes, or that plain SQL
    /// deletes, replaced by the result of `row`. `row` receives the cell and the old key.
    #[must_use]
    pub fn with_rows(self, mut row: impl FnMut(u8, u32) -> u32) -> Self {
        match self {
            Self::Save { cell, worker, change } => {
                let change = match change {
                    Change::Rename { row: id, name } => Change::Rename { row: row(cell, id), name },
                    Change::Delete(id) => Change::Delete(row(cell, id)),
                    Change::Swap(ids) => Change::Swap(ids.map(|id| row(cell, id))),
                    Change::Transfer { from, to } => Change::Transfer { from: row(cell, from), to: row(cell, to) },
                    Change::Invalid | Change::Create(_) | Change::CreateTwo(_) => change,
                };
                Self::Save { cell, worker, change }
            }
            Self::Drift { cell, drift: Drift::Delete(id) } => Self::Drift { cell, drift: Drift::Delete(row(cell, id)) },
            other => other,
        }
    }

    /// Returns the event with another message, if [`message`](Self::message) returns one. Any other
    /// event comes back unchanged.
    #[must_use]
    pub fn with_message(self, id: MessageId) -> Self {
        match self {
            Self::Deliver(_) => Self::Deliver(id),
            Self::Drop(_) => Self::Drop(id),
            Self::Duplicate(_) => Self::Duplicate(id),
            Self::CancelCall(_) => Self::CancelCall(id),
            other => other,
        }
    }
}

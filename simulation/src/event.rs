//! Everything that can happen to a world. Each effect that a crash can separate from the next one
//! is its own event.

use serde::{Deserialize, Deserializer, Serialize};

use crate::integer_fields;
use crate::network::MessageId;
use crate::process::Process;

/// A change that a user wants to save. Rows and names are given by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// Invalid input, which the cell's own validation refuses.
    Invalid,
    /// A new row with this name.
    Create(u8),
    /// Two new rows with these names, in one transaction.
    CreateTwo([u8; 2]),
    /// A new name for a row.
    #[serde(deserialize_with = "row_and_name")]
    Rename {
        /// The primary key of the row.
        row: u32,
        /// The row's new name.
        name: u8,
    },
    /// Deletion of a row, which frees its name.
    Delete(u32),
    /// Two rows exchange their names.
    Swap([u32; 2]),
    /// Deletion of a row, whose name goes to another row in the same transaction.
    #[serde(deserialize_with = "from_and_to")]
    Transfer {
        /// The row that is deleted.
        from: u32,
        /// The row that gets the name.
        to: u32,
    },
}

/// A change by plain SQL that bypasses the claims. Verification repairs the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Drift {
    /// A new row without a claim.
    Insert(u8),
    /// A new name for a row, which keeps the claim of its old name.
    #[serde(deserialize_with = "row_and_name")]
    Rename {
        /// The primary key of the row.
        row: u32,
        /// The row's new name.
        name: u8,
    },
    /// Deletion of a row, which leaves its claim behind.
    Delete(u32),
}

fn row_and_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(u32, u8), D::Error> {
    integer_fields::pair(deserializer, ["row", "name"])
}

fn from_and_to<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(u32, u32), D::Error> {
    integer_fields::pair(deserializer, ["from", "to"])
}

/// One event. Cells are numbered from 1, as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A user asks an idle worker for a save.
    Save {
        /// The number of the cell.
        cell: u8,
        /// The number of the worker.
        worker: u8,
        /// The change to save.
        change: Change,
    },
    /// A process takes its next step: one local effect or one message sent. An idle reconciler or
    /// verifier starts a run.
    Step {
        /// The number of the cell.
        cell: u8,
        /// The process of the cell.
        process: Process,
    },
    /// A database performs the COMMIT that a worker has sent, or refuses it as too late.
    FinishCommit {
        /// The number of the cell.
        cell: u8,
        /// The worker that sent the COMMIT. It may have crashed since.
        worker: u8,
    },
    /// A database abandons a COMMIT whose worker has lost its connection.
    LoseCommit {
        /// The number of the cell.
        cell: u8,
        /// The worker that sent the COMMIT.
        worker: u8,
    },
    /// A message arrives.
    Deliver(MessageId),
    /// A message is lost.
    Drop(MessageId),
    /// A message is duplicated.
    Duplicate(MessageId),
    /// A process stops waiting for the answer to its call.
    TimeOut {
        /// The number of the cell.
        cell: u8,
        /// The process of the cell.
        process: Process,
    },
    /// A process crashes and restarts at once with empty memory.
    Crash {
        /// The number of the cell.
        cell: u8,
        /// The process of the cell.
        process: Process,
    },
    /// A worker loses its connection to the database.
    Disconnect {
        /// The number of the cell.
        cell: u8,
        /// The number of the worker.
        worker: u8,
    },
    /// A database restarts, and every connection to it is lost.
    RestartDatabase {
        /// The number of the cell.
        cell: u8,
    },
    /// A cell is cut off from the service; its messages wait.
    Partition {
        /// The number of the cell.
        cell: u8,
    },
    /// The connection between a cell and the service is restored.
    Heal {
        /// The number of the cell.
        cell: u8,
    },
    /// The service stops: requests in flight to it are lost, and it accepts no new ones.
    StopService,
    /// The service starts again with everything that it had made durable.
    StartService,
    /// A cell's replica applies the next change of its database.
    Replicate {
        /// The number of the cell.
        cell: u8,
    },
    /// The service deletes leases that were settled longer ago than it must remember.
    Forget,
    /// Plain SQL changes a row and bypasses the claims.
    Drift {
        /// The number of the cell.
        cell: u8,
        /// The change.
        drift: Drift,
    },
    /// Time passes.
    Wait {
        /// The duration.
        seconds: u32,
    },
}

impl Event {
    /// True if the event is a fault that no participant requests.
    pub fn is_fault(self) -> bool {
        match self {
            Self::LoseCommit { .. }
            | Self::Drop(_)
            | Self::Duplicate(_)
            | Self::TimeOut { .. }
            | Self::Crash { .. }
            | Self::Disconnect { .. }
            | Self::RestartDatabase { .. }
            | Self::Partition { .. }
            | Self::StopService
            | Self::Drift { .. } => true,
            Self::Save { .. }
            | Self::Step { .. }
            | Self::FinishCommit { .. }
            | Self::Deliver(_)
            | Self::Heal { .. }
            | Self::StartService
            | Self::Replicate { .. }
            | Self::Forget
            | Self::Wait { .. } => false,
        }
    }

    /// The message that the event delivers, drops or duplicates.
    pub fn message(self) -> Option<MessageId> {
        match self {
            Self::Deliver(id) | Self::Drop(id) | Self::Duplicate(id) => Some(id),
            _ => None,
        }
    }

    /// Returns the event with every row number replaced by the result of `row`, which receives the
    /// cell and the old number.
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

    /// Returns the event with its message replaced.
    #[must_use]
    pub fn with_message(self, id: MessageId) -> Self {
        match self {
            Self::Deliver(_) => Self::Deliver(id),
            Self::Drop(_) => Self::Drop(id),
            Self::Duplicate(_) => Self::Duplicate(id),
            other => other,
        }
    }
}

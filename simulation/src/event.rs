//! What can befall a world: every effect that a crash could fall before or after is an event of its own.

use serde::{Deserialize, Deserializer, Serialize};

use crate::network::MessageId;
use crate::numbers;
use crate::written::Written;

/// A process of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Process {
    /// Saves for users, one at a time; by number, from 0.
    Worker(u8),
    /// Settles what was left outstanding; by number, from 0.
    Reconciler(u8),
    /// Compares the table with its claims.
    Verifier,
}

/// What a user wants to be saved. Rows and names go by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// Something that is not valid: it gets no further than the cell's own validation.
    Invalid,
    /// A new row with this name.
    Create(u8),
    /// Two new rows in one transaction.
    CreateTwo([u8; 2]),
    /// Another name for a row.
    #[serde(deserialize_with = "row_and_name")]
    Rename {
        /// The row.
        row: u32,
        /// Its new name.
        name: u8,
    },
    /// A row goes, and its name is free.
    Delete(u32),
    /// Two rows trade their names.
    Swap([u32; 2]),
    /// A row goes, and its name becomes another row's.
    #[serde(deserialize_with = "from_and_to")]
    Transfer {
        /// The row that goes.
        from: u32,
        /// The row that gets its name.
        to: u32,
    },
}

/// A change past the claims, as plain SQL makes it. Verification mends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Drift {
    /// A new row that claims nothing.
    Insert(u8),
    /// Another name for a row, which keeps the claim of its old one.
    #[serde(deserialize_with = "row_and_name")]
    Rename {
        /// The row.
        row: u32,
        /// Its new name.
        name: u8,
    },
    /// A row goes, and leaves its claim behind.
    Delete(u32),
}

fn row_and_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(u32, u8), D::Error> {
    numbers::pair(deserializer, ["row", "name"])
}

fn from_and_to<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(u32, u32), D::Error> {
    numbers::pair(deserializer, ["from", "to"])
}

/// One thing that happens. Cells are numbered from 1, as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub enum Event {
    /// A user asks an idle worker for a save.
    Save {
        /// The cell.
        cell: u8,
        /// Its worker.
        worker: u8,
        /// What to save.
        change: Change,
    },
    /// A process takes its next step: one local effect, or one message sent. An idle reconciler or verifier starts a
    /// run.
    Step {
        /// The cell.
        cell: u8,
        /// Its process.
        process: Process,
    },
    /// A database carries out the COMMIT that a worker has sent, or refuses it as too late.
    FinishCommit {
        /// The cell.
        cell: u8,
        /// The worker, which may have died meanwhile.
        worker: u8,
    },
    /// A database gives up on a COMMIT whose worker is gone.
    LoseCommit {
        /// The cell.
        cell: u8,
        /// The worker that was.
        worker: u8,
    },
    /// A message arrives.
    Deliver(MessageId),
    /// A message is lost.
    Drop(MessageId),
    /// A message is doubled.
    Duplicate(MessageId),
    /// A process waits no longer for the answer to its call.
    TimeOut {
        /// The cell.
        cell: u8,
        /// Its process.
        process: Process,
    },
    /// A process dies, and is there again at once with nothing in its memory.
    Crash {
        /// The cell.
        cell: u8,
        /// Its process.
        process: Process,
    },
    /// A worker loses its connection to the database.
    Disconnect {
        /// The cell.
        cell: u8,
        /// Its worker.
        worker: u8,
    },
    /// A database restarts: every connection to it is lost.
    RestartDatabase {
        /// The cell.
        cell: u8,
    },
    /// A cell is cut off from the service: messages wait.
    Partition {
        /// The cell.
        cell: u8,
    },
    /// A cell is cut off no more.
    Heal {
        /// The cell.
        cell: u8,
    },
    /// The service stops: requests on their way to it are lost, and none is let in.
    StopService,
    /// The service starts with what it had made durable.
    StartService,
    /// A replica takes in the next change of its database.
    Replicate {
        /// The cell.
        cell: u8,
    },
    /// The service forgets what was settled long ago.
    Forget,
    /// A row is changed past the claims.
    Drift {
        /// The cell.
        cell: u8,
        /// The change.
        drift: Drift,
    },
    /// Time passes.
    Wait {
        /// How much.
        seconds: u32,
    },
}

impl Process {
    /// Its number, where it is a worker.
    pub fn worker(self) -> Option<u8> {
        match self {
            Self::Worker(number) => Some(number),
            Self::Reconciler(_) | Self::Verifier => None,
        }
    }
}

impl Event {
    /// Whether it is trouble: what nobody asks for.
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

    /// The message that it is about.
    pub fn message(self) -> Option<MessageId> {
        match self {
            Self::Deliver(id) | Self::Drop(id) | Self::Duplicate(id) => Some(id),
            _ => None,
        }
    }

    /// The same about other rows of its cell: those that `row` puts in the places of its own.
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

    /// The same about another message.
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

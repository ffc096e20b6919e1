//! The processes of a cell.

use serde::{Deserialize, Serialize};

/// A process of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Process {
    /// Saves rows for users, one save at a time. Workers are numbered from 0.
    Worker(u8),
    /// Settles leases that were left outstanding. Reconcilers are numbered from 0.
    Reconciler(u8),
    /// Compares the cell's table with its claims.
    Verifier,
}

impl Process {
    /// The worker's number; `None` for any other process.
    pub fn worker(self) -> Option<u8> {
        match self {
            Self::Worker(number) => Some(number),
            Self::Reconciler(_) | Self::Verifier => None,
        }
    }
}

//! The processes of a cell.

use serde::{Deserialize, Serialize};

/// A process of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Process {
    /// A worker with its number, from 0. It saves rows for users, one save at a time.
    Worker(u8),
    /// A reconciler with its number, from 0. It settles leases that were left outstanding.
    Reconciler(u8),
    /// The verifier of the cell. It compares the cell's table with the cell's claims.
    Verifier,
    /// The client of the cell. It works under locks, one at a time.
    Client,
    /// The keepalive of the cell's client: a thread that renews the client's session.
    Keepalive,
    /// The front of the cell, which submits requests to a queue.
    Front,
}

impl Process {
    /// Returns the number of a worker, `None` for any other process.
    pub fn worker(self) -> Option<u8> {
        match self {
            Self::Worker(number) => Some(number),
            Self::Reconciler(_) | Self::Verifier | Self::Client | Self::Keepalive | Self::Front => None,
        }
    }
}

//! What the world knows and no participant does: why each lease was begun, and what became of it and of its local
//! transaction. The checks compare what participants believe with this.

use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::time::Timestamp;

use crate::names::lease_number;
use crate::network::Purpose;

/// The truth about one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ghost {
    /// Whose it is.
    pub cell: u8,
    /// Why it was begun.
    pub purpose: Purpose,
    /// Whether a local transaction was committed under it.
    pub is_committed: bool,
    /// How and when the service settled it.
    pub settled: Option<(Outcome, Timestamp)>,
}

/// The truth about every lease that was ever begun.
#[derive(Clone, Debug, Default, Hash)]
pub struct Ghosts {
    leases: Vec<Ghost>,
}

impl Ghosts {
    /// How many leases were begun: the number of the last one.
    pub fn len(&self) -> u32 {
        self.leases.len() as u32
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// The truth about a lease.
    pub fn lease(&self, lease: LeaseId) -> Option<&Ghost> {
        self.leases.get(Self::at(lease)?)
    }

    /// Likewise, to be changed.
    pub fn lease_mut(&mut self, lease: LeaseId) -> Option<&mut Ghost> {
        self.leases.get_mut(Self::at(lease)?)
    }

    /// A lease was begun.
    pub fn begun(&mut self, cell: u8, purpose: Purpose) {
        self.leases.push(Ghost { cell, purpose, is_committed: false, settled: None });
    }

    fn at(lease: LeaseId) -> Option<usize> {
        lease_number(lease).checked_sub(1).map(|at| at as usize)
    }
}

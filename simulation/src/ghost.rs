//! What the world knows and no participant does: why each lease was begun, and what became of it and of its local
//! transaction. The checks compare what participants believe with this.

use leasehold_core::claim::{Claim, ClaimState};
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::time::Timestamp;

use crate::names::{lease_number, row_of};
use crate::network::Purpose;

/// The truth about one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ghost {
    /// Whose it is.
    pub cell: u8,
    /// Why it was begun.
    pub purpose: Purpose,
    /// Whether a local transaction was committed under it; of a correction, that which writes the lease's row.
    pub is_committed: bool,
    /// Whether rows of its cell have changed past the claims, which heeds no lease, while it was outstanding.
    pub is_overtaken: bool,
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

    /// The truth about the correction under which a claim is.
    pub fn correction(&self, claim: &Claim) -> Option<&Ghost> {
        self.lease(claim.hold()?.lease).filter(|ghost| ghost.purpose == Purpose::Correction)
    }

    /// The row to which a correction has promised a claim: its lease has its row, so it will be committed.
    pub fn promised(&self, claim: &Claim) -> Option<u32> {
        let is_taken = !matches!(claim.state, ClaimState::Destroying(_, _));
        self.correction(claim).filter(|ghost| ghost.is_committed && is_taken)?;
        row_of(&claim.record().source.id)
    }

    /// Likewise, to be changed.
    pub fn lease_mut(&mut self, lease: LeaseId) -> Option<&mut Ghost> {
        self.leases.get_mut(Self::at(lease)?)
    }

    /// A lease was begun.
    pub fn begun(&mut self, cell: u8, purpose: Purpose) {
        self.leases.push(Ghost { cell, purpose, is_committed: false, is_overtaken: false, settled: None });
    }

    /// Rows of a cell are changed past the claims.
    pub fn overtake(&mut self, cell: u8) {
        let open = self.leases.iter_mut().filter(|ghost| ghost.cell == cell && ghost.settled.is_none());
        open.for_each(|ghost| ghost.is_overtaken = true);
    }

    fn at(lease: LeaseId) -> Option<usize> {
        lease_number(lease).checked_sub(1).map(|at| at as usize)
    }
}

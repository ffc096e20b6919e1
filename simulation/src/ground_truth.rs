//! The true history of every lease, which no participant knows: the purpose of the lease, its
//! outcome at the service and the outcome of its local transaction. The checks compare the
//! participants' beliefs with this history.

use leasehold_core::claim::{Claim, ClaimState};
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::time::Timestamp;

use crate::names::{lease_number, row_id};
use crate::network::Purpose;

/// The true history of one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTruth {
    /// The cell that began the lease.
    pub cell: u8,
    /// The reason for which the lease was begun.
    pub purpose: Purpose,
    /// True if a local transaction was committed under the lease. If the lease belongs to a
    /// correction by verification, this is the transaction that writes the lease row.
    pub is_committed: bool,
    /// True if plain SQL changed rows of the cell while the lease was outstanding. Such changes
    /// respect no lease.
    pub is_overtaken: bool,
    /// The outcome with which the service settled the lease and the time of the settle, `None`
    /// while the lease is outstanding.
    pub settled: Option<(Outcome, Timestamp)>,
}

/// The true history of every lease since the start of the world.
#[derive(Clone, Debug, Default, Hash)]
pub struct GroundTruth {
    leases: Vec<LeaseTruth>,
}

impl GroundTruth {
    /// Returns the number of leases begun so far, which is also the number of the last lease.
    pub fn len(&self) -> u32 {
        self.leases.len() as u32
    }

    /// Returns true if no lease was begun.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Returns the true history of a lease, `None` if no lease with this id was begun.
    pub fn lease(&self, lease: LeaseId) -> Option<&LeaseTruth> {
        self.leases.get(Self::at(lease)?)
    }

    /// Returns the true history of the correction whose lease holds the claim. Returns `None` if a
    /// save's lease holds the claim, or no lease does.
    pub fn correction(&self, claim: &Claim) -> Option<&LeaseTruth> {
        self.lease(claim.hold()?.lease).filter(|truth| truth.purpose == Purpose::Correction)
    }

    /// Returns the primary key of the row for which a correction creates or keeps the claim.
    /// Returns `None` unless the correction's lease row is written: from then on the lease will be
    /// committed.
    pub fn promised(&self, claim: &Claim) -> Option<u32> {
        let is_taken = !matches!(claim.state, ClaimState::Destroying(_, _));
        self.correction(claim).filter(|truth| truth.is_committed && is_taken)?;
        row_id(&claim.record().source.id)
    }

    /// Returns the true history of a lease for changes, `None` if no lease with this id was begun.
    pub fn lease_mut(&mut self, lease: LeaseId) -> Option<&mut LeaseTruth> {
        self.leases.get_mut(Self::at(lease)?)
    }

    /// Adds the history of a lease that has just begun.
    pub fn record_begin(&mut self, cell: u8, purpose: Purpose) {
        self.leases.push(LeaseTruth { cell, purpose, is_committed: false, is_overtaken: false, settled: None });
    }

    /// Marks the histories of a cell's outstanding leases as overtaken, because plain SQL has
    /// changed rows of this cell.
    pub fn mark_overtaken(&mut self, cell: u8) {
        let open = self.leases.iter_mut().filter(|truth| truth.cell == cell && truth.settled.is_none());
        open.for_each(|truth| truth.is_overtaken = true);
    }

    fn at(lease: LeaseId) -> Option<usize> {
        lease_number(lease).checked_sub(1).map(|at| at as usize)
    }
}

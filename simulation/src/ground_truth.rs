//! The true history of every lease, which no participant knows: its purpose, its outcome at the
//! service and the outcome of its local transaction. The checks compare the participants' beliefs
//! with it.

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
    /// True if a local transaction was committed under the lease. For a correction, that is the
    /// transaction which writes the lease row.
    pub is_committed: bool,
    /// True if plain SQL changed rows of the cell while the lease was outstanding. Such changes
    /// respect no lease.
    pub is_overtaken: bool,
    /// The outcome and time at which the service settled the lease.
    pub settled: Option<(Outcome, Timestamp)>,
}

/// The true history of every lease since the start.
#[derive(Clone, Debug, Default, Hash)]
pub struct GroundTruth {
    leases: Vec<LeaseTruth>,
}

impl GroundTruth {
    /// The number of leases begun so far, which is also the number of the last lease.
    pub fn len(&self) -> u32 {
        self.leases.len() as u32
    }

    /// True if no lease was begun.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// The true history of a lease.
    pub fn lease(&self, lease: LeaseId) -> Option<&LeaseTruth> {
        self.leases.get(Self::at(lease)?)
    }

    /// The true history of the correction that holds a claim; `None` if a save holds it or no lease
    /// does.
    pub fn correction(&self, claim: &Claim) -> Option<&LeaseTruth> {
        self.lease(claim.hold()?.lease).filter(|truth| truth.purpose == Purpose::Correction)
    }

    /// The row for which a correction will keep a claim. The correction's lease row is written, so
    /// the lease will be committed.
    pub fn promised(&self, claim: &Claim) -> Option<u32> {
        let is_taken = !matches!(claim.state, ClaimState::Destroying(_, _));
        self.correction(claim).filter(|truth| truth.is_committed && is_taken)?;
        row_id(&claim.record().source.id)
    }

    /// The true history of a lease, to be changed.
    pub fn lease_mut(&mut self, lease: LeaseId) -> Option<&mut LeaseTruth> {
        self.leases.get_mut(Self::at(lease)?)
    }

    /// Records the begin of the next lease.
    pub fn record_begin(&mut self, cell: u8, purpose: Purpose) {
        self.leases.push(LeaseTruth { cell, purpose, is_committed: false, is_overtaken: false, settled: None });
    }

    /// Marks every outstanding lease of a cell, because plain SQL has changed rows of that cell.
    pub fn mark_overtaken(&mut self, cell: u8) {
        let open = self.leases.iter_mut().filter(|truth| truth.cell == cell && truth.settled.is_none());
        open.for_each(|truth| truth.is_overtaken = true);
    }

    fn at(lease: LeaseId) -> Option<usize> {
        lease_number(lease).checked_sub(1).map(|at| at as usize)
    }
}

//! Begun leases that no caller can know, because their answers have not left the service (B25).

use std::collections::VecDeque;

use leasehold_core::lease::LeaseId;

/// The leases of begins without an idempotency key whose answers have not left the service. They
/// are in the service's memory only: after a stop, reconciliation settles these leases.
#[derive(Clone, Debug, Default, Hash)]
pub struct Undelivered {
    answers: Vec<LeaseId>,
    take_backs: VecDeque<LeaseId>,
}

impl Undelivered {
    /// Returns the leases whose answers have not left the service and are not cancelled, the oldest
    /// first.
    pub fn answers(&self) -> &[LeaseId] {
        &self.answers
    }

    /// Returns the leases that wait to be rolled back, in the order in which the service will do
    /// it.
    pub fn take_backs(&self) -> impl ExactSizeIterator<Item = LeaseId> {
        self.take_backs.iter().copied()
    }

    /// Adds a lease that has just begun without an idempotency key.
    pub(crate) fn add(&mut self, lease: LeaseId) {
        self.answers.push(lease);
    }

    /// Removes a lease, because its answer has left the service.
    pub(crate) fn hand_on(&mut self, lease: LeaseId) {
        self.answers.retain(|other| *other != lease);
    }

    /// Queues a lease to be rolled back, because its answer can no longer leave the service.
    pub(crate) fn cancel(&mut self, lease: LeaseId) {
        self.hand_on(lease);
        self.take_backs.push_back(lease);
    }

    /// Removes the first lease that waits to be rolled back and returns it, `None` if none waits.
    pub(crate) fn next_take_back(&mut self) -> Option<LeaseId> {
        self.take_backs.pop_front()
    }
}

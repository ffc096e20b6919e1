//! A time before which no settled lease is left in the store. A scan for old settled leases begins
//! at this time, so it never scans past the deleted rows of forgotten leases (B33).

use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::time::Timestamp;

/// The time before which no settled lease is left. A scan raises it; a lease that is settled at an
/// earlier time lowers it.
#[derive(Debug, Default)]
pub(super) struct SettledPosition(Mutex<Bounds>);

#[derive(Debug)]
struct Bounds {
    // All leases that were settled before this time are forgotten.
    first: Timestamp,
    // The latest time to which any scan has gone.
    scanned_to: Timestamp,
    // The number of leases that were settled at a time before `scanned_to`, so that a scan may have
    // missed them.
    late_settles: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { first: Timestamp::MIN, scanned_to: Timestamp::MIN, late_settles: 0 }
    }
}

/// A running scan.
pub(super) struct SettledScan {
    /// The time at which the scan begins.
    pub(super) from: Timestamp,
    late_settles: u64,
}

impl SettledPosition {
    fn lock(&self) -> MutexGuard<'_, Bounds> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a scan for leases that were settled before `to`. The caller must take the scan's
    /// snapshot after this call.
    pub(super) fn begin(&self, to: Timestamp) -> SettledScan {
        let mut bounds = self.lock();
        bounds.scanned_to = bounds.scanned_to.max(to);
        SettledScan { from: bounds.first, late_settles: bounds.late_settles }
    }

    /// Ends a scan that found no lease settled before `first`. After a jump of the clock, a lease
    /// may have been settled meanwhile at a time that the scan had passed. The position is then not
    /// raised.
    pub(super) fn end(&self, scan: &SettledScan, first: Timestamp) {
        let mut bounds = self.lock();
        if bounds.late_settles == scan.late_settles {
            bounds.first = bounds.first.max(first);
        }
    }

    /// Records that a lease was settled at the time `at`. Call this after the settle was written.
    pub(super) fn settled(&self, at: Timestamp) {
        let mut bounds = self.lock();
        bounds.late_settles += u64::from(at < bounds.scanned_to);
        bounds.first = bounds.first.min(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn a_scan_begins_where_the_last_one_found_its_first_lease() {
        let position = SettledPosition::default();
        let first = position.begin(at(100));
        position.settled(at(200));
        position.end(&first, at(80));
        assert_eq!(position.begin(at(100)).from, at(80));
    }

    #[test]
    fn a_lease_settled_at_an_earlier_time_is_found() {
        let position = SettledPosition::default();
        let scan = position.begin(at(100));
        position.end(&scan, at(80));
        position.settled(at(50));
        assert_eq!(position.begin(at(100)).from, at(50), "after a scan");

        let scan = position.begin(at(100));
        position.settled(at(60));
        position.end(&scan, at(80));
        assert_eq!(position.begin(at(100)).from, at(50), "during a scan");
    }
}

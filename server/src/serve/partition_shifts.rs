//! The shifts of the partitions that keep the history of queues in a shared database, and the warnings about them.

use std::time::{Duration, Instant};

use crate::store::{SharedMaintenance, StoreError};

/// The pause between two shifts. Each waits shortly for a lock that holds up commands, and a partition is there two days
/// before it is needed.
const SHIFT_INTERVAL: Duration = Duration::from_secs(60);
/// The pause after a shift that has failed: a lock of another session is usually over soon.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// The number of failures in a row at which they are logged. Servers that start together lock each other's tables once.
const FAILURES: u32 = 2;
/// The pause between two warnings that the default partitions are too large.
const FULL_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// A reason to warn the operator.
#[derive(Debug, PartialEq, Eq)]
enum Warning {
    Failed,
    Full,
}

/// The state of the shifts of one server.
pub(super) struct PartitionShifts {
    retention: Duration,
    next_at: Instant,
    // The number of shifts that have failed in a row, but for outages.
    failures: u32,
    full_at: Option<Instant>,
}

impl PartitionShifts {
    /// `retention` is the time for which settled requests are remembered.
    pub(super) fn new(retention: Duration) -> Self {
        Self { retention, next_at: Instant::now(), failures: 0, full_at: None }
    }

    /// Shifts the partitions if the last shift was a minute ago, or has failed ten seconds ago. Until a shift succeeds, the partitions stay as they are.
    pub(super) async fn shift_if_due(&mut self, store: &dyn SharedMaintenance) {
        if Instant::now() < self.next_at {
            return;
        }
        let shifted = store.shift_partitions(self.retention).await;
        let now = Instant::now();
        self.next_at = now + if shifted.is_ok() { SHIFT_INTERVAL } else { RETRY_INTERVAL };
        match (self.warning(&shifted, now), &shifted) {
            (Some(Warning::Full), _) => tracing::warn!(
                "new requests have no partitions, because the default partitions of settled_requests and request_bodies \
                 are large: call shift_request_partitions with a larger max_scan in a quiet minute, see the page \
                 `What to do when`"
            ),
            (Some(Warning::Failed), Err(error)) => {
                tracing::warn!(%error, "the partitions of settled requests can't be changed now: retrying");
            }
            (_, Err(error)) => tracing::debug!(%error, "the partitions of settled requests still can't be changed"),
            (_, Ok(_)) => {}
        }
    }

    /// Returns the warning to log after a shift. Of several failures in a row, the second is logged, and large default
    /// partitions at most once an hour.
    fn warning(&mut self, shifted: &Result<bool, StoreError>, now: Instant) -> Option<Warning> {
        let has_failed = shifted.as_ref().is_err_and(|error| !is_outage(error));
        self.failures = if has_failed { self.failures.saturating_add(1) } else { 0 };
        let is_full = matches!(shifted, Ok(true)) && self.full_at.is_none_or(|at| now >= at + FULL_INTERVAL);
        if is_full {
            self.full_at = Some(now);
            return Some(Warning::Full);
        }
        (self.failures == FAILURES).then_some(Warning::Failed)
    }
}

/// True if the probe of the database logs this failure. The statement timeout of a shift is short, and the database may
/// work when it ends one.
fn is_outage(error: &StoreError) -> bool {
    error.is_away() && !matches!(error, StoreError::StatementTimeout(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q16_the_second_failed_shift_in_a_row_is_logged() {
        let mut shifts = PartitionShifts::new(Duration::ZERO);
        let mut warning = |shifted| shifts.warning(&shifted, Instant::now());
        let locked = || Err(StoreError::Locked("locked".into()));
        assert_eq!(warning(locked()), None);
        assert_eq!(warning(Err(StoreError::Unreachable("away".into()))), None);
        assert_eq!([warning(locked()), warning(locked()), warning(locked())], [None, Some(Warning::Failed), None]);
        assert_eq!(warning(Ok(false)), None);
        let slow = || Err(StoreError::StatementTimeout("slow".into()));
        assert_eq!([warning(slow()), warning(slow())], [None, Some(Warning::Failed)]);
    }

    #[test]
    fn q16_large_default_partitions_are_logged_once_an_hour() {
        let (mut shifts, now) = (PartitionShifts::new(Duration::ZERO), Instant::now());
        assert_eq!(shifts.warning(&Ok(false), now), None);
        assert_eq!(shifts.warning(&Ok(true), now), Some(Warning::Full));
        assert_eq!(shifts.warning(&Ok(true), now + Duration::from_secs(3_599)), None);
        assert_eq!(shifts.warning(&Ok(true), now + FULL_INTERVAL), Some(Warning::Full));
    }
}

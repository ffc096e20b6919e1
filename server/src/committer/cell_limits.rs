//! The limits of single cells: how many updates a cell may begin in a second, and how many claims it
//! may have under leases. They bound a cell even while the server has room.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use leasehold_core::cell::CellId;

use crate::shares::LimitReached;

/// The limits of one cell. A limit that is `None` is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellLimits {
    /// The most updates that the cell may begin in a second. After a pause, the cell may begin as
    /// many at once.
    pub begins_per_second: Option<NonZeroU32>,
    /// The most claims that the cell may have under leases.
    pub held_claims: Option<usize>,
}

type Rate = RateLimiter<
    NotKeyed,
    InMemoryState,
    MonotonicClock,
    NoOpMiddleware<<MonotonicClock as governor::clock::Clock>::Instant>,
>;

/// The limits of all cells, and a rate limiter for each cell whose begins are limited.
pub(super) struct CellLimiter {
    limits: BTreeMap<CellId, CellLimits>,
    rates: BTreeMap<CellId, Rate>,
}

impl CellLimiter {
    pub(super) fn new(limits: BTreeMap<CellId, CellLimits>) -> Self {
        let rates = limits.iter().filter_map(|(cell, limits)| Some((*cell, rate(limits.begins_per_second?))));
        Self { rates: rates.collect(), limits }
    }

    /// Changes the limits. If a cell's rate does not change, the begins already counted in this
    /// second still count.
    pub(super) fn replace(&mut self, limits: BTreeMap<CellId, CellLimits>) {
        let mut former = std::mem::replace(self, Self::new(limits));
        for (cell, rate) in &mut self.rates {
            let of = |limits: &BTreeMap<CellId, CellLimits>| limits.get(cell).map(|limits| limits.begins_per_second);
            if of(&former.limits) == of(&self.limits)
                && let Some(kept) = former.rates.remove(cell)
            {
                *rate = kept;
            }
        }
    }

    /// The most claims that a cell may have under leases, if that is limited.
    pub(super) fn held_claims(&self, cell: CellId) -> Option<usize> {
        self.limits.get(&cell)?.held_claims
    }

    /// Counts a begin of a cell.
    ///
    /// # Errors
    /// The cell has begun too many updates in the last second. The delay is the time until the cell
    /// may begin its next update.
    pub(super) fn count(&self, cell: CellId) -> Result<(), (LimitReached, Duration)> {
        let (Some(rate), Some(limits)) = (self.rates.get(&cell), self.limits.get(&cell)) else { return Ok(()) };
        rate.check().map_err(|until| {
            let max = limits.begins_per_second.map_or(0, NonZeroU32::get) as usize;
            (LimitReached::RateOfCell { max }, until.wait_time_from(MonotonicClock.now()))
        })
    }
}

fn rate(begins_per_second: NonZeroU32) -> Rate {
    RateLimiter::direct_with_clock(Quota::per_second(begins_per_second), MonotonicClock)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn limits(begins_per_second: u32) -> BTreeMap<CellId, CellLimits> {
        let limits = CellLimits { begins_per_second: NonZeroU32::new(begins_per_second), held_claims: None };
        [(CellId(1), limits), (CellId(2), CellLimits::default())].into()
    }

    /// Tries ten begins of a cell now, and returns the number that were admitted.
    fn admitted(rates: &CellLimiter, cell: i64) -> usize {
        (0..10).filter(|_| rates.count(CellId(cell)).is_ok()).count()
    }

    #[test]
    fn a_cell_without_a_rate_is_not_limited() {
        let rates = CellLimiter::new(limits(1));
        assert_eq!([1, 2, 3].map(|cell| admitted(&rates, cell)), [1, 10, 10]);
    }

    #[test]
    fn a_refusal_tells_the_time_until_the_next_begin() {
        let rates = CellLimiter::new(limits(1));
        rates.count(CellId(1)).unwrap();
        let (limit, delay) = rates.count(CellId(1)).unwrap_err();
        assert_eq!(limit, LimitReached::RateOfCell { max: 1 });
        assert!(delay <= Duration::from_secs(1) && delay > Duration::from_millis(500), "{delay:?}");
    }

    #[test]
    fn only_a_changed_rate_begins_anew() {
        let mut rates = CellLimiter::new(limits(1));
        assert_eq!(admitted(&rates, 1), 1);
        rates.replace(limits(1));
        assert_eq!(admitted(&rates, 1), 0);
        rates.replace(limits(2));
        assert_eq!(admitted(&rates, 1), 2);
    }
}

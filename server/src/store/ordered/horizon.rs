//! The revisions that were the newest some time ago, by this process's own steady clock. Servers have no
//! common clock, so no server relies on the times of another one.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two revisions that are kept.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(60);
/// The number of revisions that are kept, which are those of more than an hour.
const SAMPLES: usize = 62;

/// Revisions with the times at which they were seen, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Horizon(Mutex<VecDeque<(Instant, u64)>>);

impl Horizon {
    /// Notes the newest revision.
    pub(super) fn note(&self, now: Instant, revision: u64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.back().is_none_or(|(at, _)| now.duration_since(*at) >= SAMPLE_INTERVAL) {
            seen.push_back((now, revision));
        }
        if seen.len() > SAMPLES {
            seen.pop_front();
        }
    }

    /// Returns the newest noted revision that was seen at least `age` ago, of at most an hour.
    pub(super) fn before(&self, now: Instant, age: Duration) -> Option<u64> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = seen.iter().rev().find(|(at, _)| now.duration_since(*at) >= age);
        old.map(|(_, revision)| *revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_as_old_as_it_was_seen() {
        let (horizon, start) = (Horizon::default(), Instant::now());
        let hour = 60 * SAMPLE_INTERVAL;
        for half in 0..=180 {
            let now = start + half * SAMPLE_INTERVAL / 2;
            horizon.note(now, u64::from(half));
            let expected = |age: u32| half.checked_sub(age).map(|seen| u64::from(seen / 2 * 2));
            assert_eq!(horizon.before(now, hour), expected(120));
            assert_eq!(horizon.before(now, 5 * SAMPLE_INTERVAL), expected(10));
        }
        assert!(horizon.0.lock().is_ok_and(|seen| seen.len() <= SAMPLES));
    }
}

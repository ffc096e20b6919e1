//! The clock of a store, which gives the times of leases. Servers that share a database share its
//! clock, so that a lease has the same age on all of them (R03).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold_core::time::Timestamp;

/// The clock of a store: this machine's, or that of the database, as it was last read.
#[derive(Debug, Default)]
pub struct StoreClock(Mutex<State>);

/// The longest round trip of a reading that corrects an earlier one. Each reading is wrong by at
/// most half of its round trip, so two readings of one clock contradict each other by at most this.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct State {
    /// The last reading of the database's clock; None before the first.
    reading: Option<Reading>,
    /// The latest time that [`StoreClock::now`] has returned.
    last: Timestamp,
}

/// The time of the database's clock, and the moment at which it was read.
#[derive(Clone, Copy, Debug)]
struct Reading {
    time: Timestamp,
    at: Instant,
}

impl StoreClock {
    /// Sets the clock to the time that a database was asked for at `asked` and told just now. The
    /// clock goes on by this machine's monotonic clock, which nobody sets. A slow answer is ignored,
    /// except for the first, because it may have been on its way for long.
    pub fn set(&self, time: Timestamp, asked: Instant) {
        let took = asked.elapsed();
        let mut state = self.lock();
        if state.reading.is_none() || took <= MAX_ROUND_TRIP {
            state.reading = Some(Reading { time, at: asked + took / 2 });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current time. It is later than every earlier answer, because cells page through
    /// their leases by the time of the begin (B31), unless somebody set the clock back.
    pub fn now(&self) -> Timestamp {
        let mut state = self.lock();
        let time = match state.reading {
            Some(Reading { time, at }) => plus(time, at.elapsed()),
            None => system_time(),
        };
        let set_back = plus(time, MAX_ROUND_TRIP) < state.last;
        state.last = if set_back { time } else { time.max(plus(state.last, Duration::from_micros(1))) };
        state.last
    }
}

/// Returns the current time of this machine's clock.
pub fn system_time() -> Timestamp {
    Timestamp::from_micros(micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
}

fn plus(time: Timestamp, passed: Duration) -> Timestamp {
    Timestamp::from_micros(time.as_micros().saturating_add(micros(passed)))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn the_clock_is_the_systems_until_it_is_set() {
        let (clock, before) = (StoreClock::default(), system_time());
        let now = clock.now();
        assert!((before..=system_time()).contains(&now));
        let ahead = plus(before, HOUR);
        clock.set(ahead, Instant::now());
        assert!((ahead..plus(ahead, HOUR)).contains(&clock.now()));
    }

    #[test]
    fn b31_an_inexact_reading_does_not_set_the_clock_back() {
        let clock = StoreClock::default();
        clock.set(Timestamp::from_micros(micros(HOUR)), Instant::now());
        let first = clock.now();
        clock.set(Timestamp::from_micros(micros(HOUR) - micros(MAX_ROUND_TRIP) / 2), Instant::now());
        let second = clock.now();
        assert!(first < second && second < clock.now());
    }

    #[test]
    fn only_the_first_answer_may_be_slow() {
        let (clock, late) = (StoreClock::default(), Instant::now().checked_sub(2 * MAX_ROUND_TRIP).unwrap());
        for hours in [1, 2] {
            clock.set(Timestamp::from_micros(hours * micros(HOUR)), late);
        }
        assert!(clock.now() < Timestamp::from_micros(2 * micros(HOUR)));
        clock.set(Timestamp::MIN, Instant::now());
        assert!(clock.now() < Timestamp::from_micros(micros(HOUR)));
    }
}

//! The clock of a store, which gives the times of leases. Servers that share a database use the
//! clock of the database, so that a lease has the same age on all of them (R03). The embedded store
//! follows this machine's wall clock, but never jumps with it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold_core::time::Timestamp;

/// The clock of a store. A shared store has the last reading of the database's clock, plus the time
/// since then. The embedded store begins with this machine's wall clock, advances with the monotonic
/// clock, and corrects its difference from the wall clock by at most one part in [`MAX_CORRECTION`].
///
/// Without this limit, a lease begun just now would look stale after a jump of the wall clock, and
/// be rolled back under a live save (R01). After a restart only the wall clock is left.
#[derive(Debug, Default)]
pub struct StoreClock(Mutex<State>);

/// The embedded store's clock corrects itself by at most the time that has passed, divided by this
/// number. So ages are wrong by at most one half, and the error of a suspended machine ends.
const MAX_CORRECTION: u32 = 2;
/// The time after which the embedded store's clock takes a new reading as its base. After a shorter
/// time, rounding to microseconds would matter.
const BASE_INTERVAL: Duration = Duration::from_secs(1);

/// The longest round trip of a reading that may replace an earlier one. A reading is wrong by at
/// most half of its round trip, so two such readings differ by at most this time.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct State {
    /// The last accepted reading of the database's clock; `None` for the embedded store, and before
    /// the first reading.
    reading: Option<Reading>,
    /// The base from which the clock of the embedded store advances; `None` before its first use.
    base: Option<Reading>,
    /// The latest time that [`StoreClock::now`] has returned.
    last: Timestamp,
}

/// The time of a clock, and the moment at which it was read.
#[derive(Clone, Copy, Debug)]
struct Reading {
    time: Timestamp,
    at: Instant,
}

impl Reading {
    /// Returns the reading at the moment `at`, when the wall clock shows `wall`: this reading's time
    /// plus the time that has passed, corrected towards `wall`.
    fn follow(self, wall: Timestamp, at: Instant) -> Self {
        let passed = at.saturating_duration_since(self.at);
        let (steady, limit) = (plus(self.time, passed), micros(passed / MAX_CORRECTION));
        let earliest = Timestamp::from_micros(steady.as_micros().saturating_sub(limit));
        let latest = Timestamp::from_micros(steady.as_micros().saturating_add(limit));
        Self { time: wall.clamp(earliest, latest), at }
    }
}

impl State {
    /// Returns the time of the embedded store's clock at the moment `at`, when the wall clock shows
    /// `wall`.
    fn follow(&mut self, wall: Timestamp, at: Instant) -> Timestamp {
        let base = *self.base.get_or_insert(Reading { time: wall, at });
        let now = base.follow(wall, at);
        if at.saturating_duration_since(base.at) >= BASE_INTERVAL {
            self.base = Some(now);
        }
        now.time
    }
}

impl StoreClock {
    /// Sets the clock to a time that the database has just returned to a query sent at `asked`.
    /// From then on, the clock advances with this machine's monotonic clock. After the first
    /// reading, a slow one is ignored, because it is inexact.
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

    /// Returns the time of the clock that this clock follows: the database's, or this machine's wall
    /// clock. It may jump.
    pub fn followed(&self) -> Timestamp {
        let reading = self.lock().reading;
        reading.map_or_else(system_time, |Reading { time, at }| plus(time, at.elapsed()))
    }

    /// Returns the current time. Each returned time is later than all before it, unless somebody
    /// set the database's clock back. Cells page through their leases by the time of the begin, and must miss
    /// none (B31).
    pub fn now(&self) -> Timestamp {
        let mut state = self.lock();
        let time = match state.reading {
            Some(Reading { time, at }) => plus(time, at.elapsed()),
            None => state.follow(system_time(), Instant::now()),
        };
        let set_back = plus(time, MAX_ROUND_TRIP) < state.last;
        state.last = if set_back { time } else { time.max(plus(state.last, Duration::from_micros(1))) };
        state.last
    }
}

/// An operator is warned if two clocks differ by more than this.
const WARNED_DIFFERENCE: Duration = Duration::from_secs(5);

/// The difference between this machine's clock and a database's at the last warning.
#[derive(Debug, Default)]
pub(super) struct ClockDifference {
    warned_micros: i128,
}

impl ClockDifference {
    /// Compares this machine's clock with a time that the database has just returned to a query
    /// sent at `asked`. Returns the microseconds by which this machine's clock is ahead, if a
    /// warning is due. A warning is due if this difference has changed by more than
    /// [`WARNED_DIFFERENCE`] since the last warning. A slow answer is ignored, because it is
    /// inexact.
    pub(super) fn observe(&mut self, time: Timestamp, asked: Instant) -> Option<i128> {
        let took = asked.elapsed();
        if took > MAX_ROUND_TRIP {
            return None;
        }
        self.warn(ahead_micros(time, took))
    }

    fn warn(&mut self, ahead_micros: i128) -> Option<i128> {
        let bound = WARNED_DIFFERENCE.as_micros();
        let is_warned_of = ahead_micros.abs_diff(self.warned_micros) <= bound;
        // A warning also reports that the clocks agree again. Their difference then counts as 0.
        let warned_micros = if ahead_micros.unsigned_abs() <= bound { 0 } else { ahead_micros };
        (!is_warned_of).then(|| std::mem::replace(&mut self.warned_micros, warned_micros)).map(|_| warned_micros)
    }
}

/// Returns the microseconds by which this machine's clock is ahead of a database's. The database
/// has just returned `time`, after a round trip of length `took`.
pub(super) fn ahead_micros(time: Timestamp, took: Duration) -> i128 {
    i128::from(system_time().as_micros()) - i128::from(plus(time, took / 2).as_micros())
}

/// Returns the difference of two clocks, in microseconds, without what a round trip of length `took` explains.
pub(super) fn certain_micros(ahead_micros: i128, took: Duration) -> i128 {
    let uncertain = i128::try_from(took.as_micros() / 2).unwrap_or(i128::MAX);
    ahead_micros.signum() * (ahead_micros.abs() - uncertain).max(0)
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
    fn a_long_round_trip_hides_a_difference() {
        let difference = |micros, seconds| certain_micros(micros, Duration::from_secs(seconds));
        assert_eq!([difference(-14_000_000, 40), difference(14_000_000, 40)], [0, 0]);
        assert_eq!([difference(-14_000_000, 2), difference(14_000_000, 2)], [-13_000_000, 13_000_000]);
    }

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
    fn r03_the_clock_of_the_embedded_store_does_not_jump() {
        let (start, mut state) = (Instant::now(), State::default());
        let mut read = |second: u64, wall_ahead: i64| {
            let wall = (1_000_000 + second).saturating_add_signed(wall_ahead) * 1_000_000;
            let time = state.follow(Timestamp::from_micros(wall), start + Duration::from_secs(second));
            i64::try_from(time.as_micros() / 1_000_000).unwrap() - i64::try_from(1_000_000 + second).unwrap()
        };
        assert_eq!([read(0, 0), read(10, 0)], [0, 0]);
        assert_eq!([read(12, 90_000), read(20, 90_000)], [1, 5], "25 hours ahead");
        assert_eq!([read(24, 0), read(40, 0)], [3, 0], "back again");
        assert_eq!([read(60, -3_600), read(80, -3_600)], [-10, -20], "an hour behind");
        assert_eq!(read(20_000, -3_600), -3_600, "a difference that lasts is corrected");
    }

    #[test]
    fn r03_many_readings_lose_no_time() {
        let (start, mut state) = (Instant::now(), State::default());
        let wall = |micros: u64| Timestamp::from_micros(1_000_000 + micros);
        let times = (0..3_000_000).step_by(3).map(|micros| {
            let time = state.follow(wall(micros), start + Duration::from_micros(micros) + Duration::from_nanos(999));
            assert_eq!(time, wall(micros));
        });
        assert_eq!(times.count(), 1_000_000);
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
    fn a_difference_of_clocks_is_warned_of_once_and_again_after_a_change() {
        let mut difference = ClockDifference::default();
        let told: Vec<_> = [0, 4, 7, 9, 8, 20, 3, 0, -4, -3600, -3602]
            .into_iter()
            .filter_map(|seconds| difference.warn(seconds * 1_000_000).map(|micros| micros / 1_000_000))
            .collect();
        assert_eq!(told, [7, 20, 0, -3600]);
        assert_eq!(difference.observe(system_time(), Instant::now()), Some(0));
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

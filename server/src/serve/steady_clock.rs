//! A guard against jumps of the wall clock, for work that can't be undone if the clock was wrong.

use std::time::{Duration, Instant};

use leasehold_core::time::Timestamp;

/// Between two readings, both the wall clock and the monotonic clock advance. If the advances
/// differ by more than this, the wall clock has jumped. A slow correction by NTP stays far below.
const TOLERANCE: Duration = Duration::from_secs(10);

/// The wall clock, which is trusted while it advances at the pace of the monotonic clock.
///
/// A server whose clock is a day ahead for a few seconds would forget every settled lease. A late
/// commit of such a lease would then be answered as not found (B22).
#[derive(Debug)]
pub(super) struct SteadyClock {
    trusted_after: Duration,
    steady_since: Instant,
    last: Option<(Timestamp, Instant)>,
}

impl SteadyClock {
    /// Makes a clock that is trusted after it was steady for `trusted_after`.
    pub(super) fn new(trusted_after: Duration, started: Instant) -> Self {
        Self { trusted_after, steady_since: started, last: None }
    }

    /// Returns the time `wall` if the wall clock has been steady long enough, else `None`. `wall` and
    /// `monotonic` are read at the same moment.
    pub(super) fn trusted(&mut self, wall: Timestamp, monotonic: Instant) -> Option<Timestamp> {
        if let Some((last_wall, last_monotonic)) = self.last.replace((wall, monotonic)) {
            let expected = micros(monotonic.saturating_duration_since(last_monotonic));
            let jump = wall.as_micros().abs_diff(last_wall.as_micros().saturating_add(expected));
            if jump > TOLERANCE.as_micros() as u64 {
                self.steady_since = monotonic;
                let seconds = self.trusted_after.as_secs();
                tracing::warn!(
                    "the clock jumped by {} s: no lease is forgotten for {seconds} s; synchronise it by NTP",
                    jump / 1_000_000
                );
            }
        }
        let steady = monotonic.saturating_duration_since(self.steady_since);
        (steady >= self.trusted_after).then_some(wall)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// Reads the clock every 5 s, from `from` to `to` seconds after its start, while the wall clock is
    /// `offset` seconds ahead. Returns the number of readings that were trusted.
    fn read(clock: &mut SteadyClock, started: Instant, seconds: std::ops::Range<u64>, offset: i64) -> usize {
        let trusted = |second: &u64| {
            let wall = Timestamp::from_micros((1_000_000 + second).saturating_add_signed(offset) * 1_000_000);
            clock.trusted(wall, started + Duration::from_secs(*second)).is_some()
        };
        seconds.step_by(5).filter(trusted).count()
    }

    #[test]
    fn b22_a_steady_clock_is_trusted_after_an_hour() {
        let started = Instant::now();
        let mut clock = SteadyClock::new(HOUR, started);
        assert_eq!(read(&mut clock, started, 0..3_600, 0), 0);
        assert_eq!(read(&mut clock, started, 3_600..4_000, 0), 80);
    }

    #[test]
    fn b22_a_clock_that_jumps_ahead_and_back_is_not_trusted_for_an_hour() {
        let started = Instant::now();
        let mut clock = SteadyClock::new(HOUR, started);
        read(&mut clock, started, 0..4_000, 0);
        assert_eq!(read(&mut clock, started, 4_000..4_010, 90_000), 0, "25 hours ahead");
        assert_eq!(read(&mut clock, started, 4_010..7_610, 0), 0, "back again");
        assert_eq!(read(&mut clock, started, 7_610..7_615, 0), 1);
    }

    #[test]
    fn b22_a_slow_correction_is_no_jump() {
        let started = Instant::now();
        let mut clock = SteadyClock::new(HOUR, started);
        read(&mut clock, started, 0..3_600, 0);
        let corrected =
            (1..=100).map(|step| read(&mut clock, started, 3_600 + step * 5..3_605 + step * 5, step as i64));
        assert_eq!(corrected.sum::<usize>(), 100);
    }
}

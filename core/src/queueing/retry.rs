//! The time until the next attempt of requests that have failed (Q13).

use crate::queue::MAX_DELAY_MICROS;
use crate::rejection::Rejection;
use crate::session::check_limit;

/// The microseconds until the second attempt.
const FIRST_BACKOFF_MICROS: u64 = 1_000_000;
/// The most microseconds until an attempt.
const LONGEST_BACKOFF_MICROS: u64 = 300_000_000;

/// The time until the next attempt of requests that have failed or lost their worker, if they have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// A number of microseconds that the worker chooses.
    After(u64),
    /// A time that doubles with each attempt from 1 s to 300 s. What was taken as one waits for the longest.
    Backoff,
}

impl Retry {
    /// Refuses a time that is longer than [`MAX_DELAY_MICROS`].
    pub(super) fn check(self) -> Result<(), Rejection> {
        match self {
            Self::After(micros) => check_limit("delay_micros", MAX_DELAY_MICROS, micros),
            Self::Backoff => Ok(()),
        }
    }

    /// Returns the microseconds until the next attempt of requests, the largest number of attempts of which is
    /// `attempts`.
    pub(super) fn micros(self, attempts: u32) -> u64 {
        match self {
            Self::After(micros) => micros,
            Self::Backoff => {
                let factor = 2_u64.saturating_pow(attempts.saturating_sub(1));
                FIRST_BACKOFF_MICROS.saturating_mul(factor).min(LONGEST_BACKOFF_MICROS)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q13_the_backoff_doubles_up_to_its_cap() {
        let seconds = [1, 2, 3, 9, 10, 1_000].map(|attempts| Retry::Backoff.micros(attempts) / 1_000_000);
        assert_eq!(seconds, [1, 2, 4, 256, 300, 300]);
    }
}

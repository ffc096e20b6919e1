//! The standing of a session as its own process knows it, without the server (K11).
//!
//! The process counts the silence of its session from the moment at which it *sent* the last call
//! that the server answered, on a clock that runs on while the machine sleeps. Its deadlines are
//! earlier than those of the server by the drift of two clocks.

/// The part of a time by which the clocks of a client and of a server may drift apart: one
/// sixteenth, more than 6 %.
const DRIFT_PART: u64 = 16;
/// The part of the duration after which a session is renewed.
const RENEWAL_PART: u64 = 3;

/// The state of a session as its process knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The session is live for some time: the process may work.
    Safe,
    /// The duration has passed without an answer to a renewal: the process must pause. The locks
    /// have not passed on yet. An answer makes the session safe again.
    Jeopardy,
    /// The session has ended, or its grace has nearly passed: the process must stop its work. The
    /// session never becomes safe again (K02).
    Lost,
}

impl Standing {
    /// Returns the name of the standing, which is the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Jeopardy => "jeopardy",
            Self::Lost => "lost",
        }
    }
}

/// The deadlines of a process that keeps a session, in microseconds of silence.
///
/// ```
/// use leasehold_core::standing::{Deadlines, Standing};
///
/// let deadlines = Deadlines::new(15_000_000, 5_000_000);
/// assert_eq!(deadlines.renewal_micros(), 5_000_000);
/// assert_eq!(deadlines.standing(14_000_000), Standing::Safe);
/// assert_eq!(deadlines.standing(15_000_000), Standing::Jeopardy);
/// assert_eq!(deadlines.standing(18_750_000), Standing::Lost);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deadlines {
    duration_micros: u64,
    grace_micros: u64,
}

impl Deadlines {
    /// Returns the deadlines for the terms of a session.
    pub const fn new(duration_micros: u64, grace_micros: u64) -> Self {
        Self { duration_micros, grace_micros }
    }

    /// Returns the silence after which the process renews the session.
    pub const fn renewal_micros(self) -> u64 {
        self.duration_micros / RENEWAL_PART
    }

    /// Returns the silence from which on the session is in jeopardy.
    pub const fn safe_micros(self) -> u64 {
        less_drift(self.duration_micros)
    }

    /// Returns the silence from which on the session is lost.
    pub const fn held_micros(self) -> u64 {
        less_drift(self.duration_micros.saturating_add(self.grace_micros))
    }

    /// Returns the standing of a session after this silence.
    pub const fn standing(self, silent_micros: u64) -> Standing {
        if silent_micros < self.safe_micros() {
            Standing::Safe
        } else if silent_micros < self.held_micros() {
            Standing::Jeopardy
        } else {
            Standing::Lost
        }
    }
}

const fn less_drift(micros: u64) -> u64 {
    micros - micros / DRIFT_PART
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k11_the_deadlines_of_a_client_lie_before_those_of_the_server() {
        let (duration, grace) = (15_000_000, 5_000_000);
        let deadlines = Deadlines::new(duration, grace);
        assert!(deadlines.renewal_micros() * 2 < deadlines.safe_micros());
        assert!(deadlines.safe_micros() < duration && duration < deadlines.held_micros());
        // The server's clock may be fast by 5 %, and the client's slow by as much.
        assert!(deadlines.held_micros() * 105 < (duration + grace) * 100);
    }

    #[test]
    fn k11_the_standing_changes_at_the_deadlines() {
        let deadlines = Deadlines::new(1_600, 160);
        let standings = [0, 1_499, 1_500, 1_649, 1_650, u64::MAX].map(|silent| deadlines.standing(silent));
        let expected =
            [Standing::Safe, Standing::Safe, Standing::Jeopardy, Standing::Jeopardy, Standing::Lost, Standing::Lost];
        assert_eq!(standings, expected);
    }
}

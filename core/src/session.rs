//! A session: the keepalive of one process for every lock that the process holds or waits for.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::rejection::{Detail, Reason, Rejection};
use crate::time::Timestamp;

/// The shortest duration of a session, in microseconds: 1 second (K21).
pub const MIN_DURATION_MICROS: u64 = 1_000_000;
/// The longest duration of a session, in microseconds: 1 day (K21).
pub const MAX_DURATION_MICROS: u64 = 86_400_000_000;
/// The shortest grace of a session, in microseconds: 100 milliseconds (K21).
pub const MIN_GRACE_MICROS: u64 = 100_000;
/// The longest grace of a session, in microseconds: 1 hour (K21).
pub const MAX_GRACE_MICROS: u64 = 3_600_000_000;
/// The largest number of asks that a session may have at a time, waiting and holding (K21). When
/// the session ends, one write ends all of them.
pub const MAX_ASKS_PER_SESSION: u32 = 1_000;
/// The largest number of bytes in the name of a principal (K21).
pub const MAX_PRINCIPAL_BYTES: usize = 255;

/// The id of a session. The engine takes the ids from outside and only compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub Uuid);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of the service that opened a session, as the service's certificate gives it. Another
/// service can't use the session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Principal(Arc<str>);

impl Principal {
    /// Parses the name of a principal.
    ///
    /// # Errors
    /// The name is empty, has a character that is not printable ASCII, or is too long.
    pub fn parse(name: &str) -> Result<Self, Rejection> {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid("the principal is empty or not printable ascii without spaces"));
        }
        check_limit("principal_bytes", MAX_PRINCIPAL_BYTES as u64, name.len() as u64)?;
        Ok(Self(name.into()))
    }

    /// Returns the name as a text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The terms of a session: how long it may be silent before the server ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    duration_micros: u64,
    grace_micros: u64,
}

impl Terms {
    /// Parses a duration and a grace, in microseconds.
    ///
    /// # Errors
    /// The duration or the grace is outside the published bounds (K21).
    pub fn parse(duration_micros: u64, grace_micros: u64) -> Result<Self, Rejection> {
        if duration_micros < MIN_DURATION_MICROS {
            return Err(invalid("`duration` is shorter than 1 second"));
        }
        if grace_micros < MIN_GRACE_MICROS {
            return Err(invalid("`grace` is shorter than 100 milliseconds"));
        }
        check_limit("duration_micros", MAX_DURATION_MICROS, duration_micros)?;
        check_limit("grace_micros", MAX_GRACE_MICROS, grace_micros)?;
        Ok(Self { duration_micros, grace_micros })
    }

    /// Returns the microseconds after the last renewal for which the holder may work.
    pub const fn duration_micros(self) -> u64 {
        self.duration_micros
    }

    /// Returns the microseconds from the holder's deadline to the later deadline after which the
    /// server ends the session.
    pub const fn grace_micros(self) -> u64 {
        self.grace_micros
    }

    /// Returns the microseconds of silence after which the session expires: duration and grace
    /// (K06).
    pub const fn silence_micros(self) -> u64 {
        self.duration_micros.saturating_add(self.grace_micros)
    }

    /// Returns the microseconds for which a former home of the session may still renew it from memory:
    /// half of the grace (K06, see [`vouch`](crate::vouch)).
    pub const fn window_micros(self) -> u64 {
        self.grace_micros / 2
    }

    /// Returns the microseconds for which the holder of a lock may still believe in it after an
    /// operator took it: the window, in which a former home may renew the session without word of the
    /// force, then duration and grace (K20).
    pub const fn withholding_micros(self) -> u64 {
        self.silence_micros().saturating_add(self.window_micros())
    }
}

/// The way in which a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SessionEnd {
    /// The service closed the session.
    Closed,
    /// The session was silent for its duration and grace.
    Expired,
    /// An operator evicted the session.
    Evicted,
}

/// The state of a session. An unknown or forgotten session has no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SessionState {
    /// The session may hold locks and wait for them.
    Live,
    /// The session has ended and holds nothing. It never becomes live again (K02).
    Ended(SessionEnd),
}

/// The row of a session.
///
/// A renewal writes no row, unless it moves the session to another host: the host that the process
/// is connected to keeps the renewals in memory (K12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// The service that opened the session.
    pub principal: Principal,
    /// The duration and grace of the session.
    pub terms: Terms,
    /// The time at which the session was opened.
    pub opened_at: Timestamp,
    /// The time at which the session ended. While the session is live, the time of its last written
    /// renewal.
    pub updated_at: Timestamp,
    /// The number of written renewals. An observer that has seen fewer renewals can't expire the
    /// session.
    pub renewals: u64,
    /// The number of the session's asks, waiting and holding. Each acquire and each release changes
    /// the number, so that either conflicts with an end of the session that another server writes
    /// at the same time.
    pub asks: u32,
    /// The state of the session: live or ended.
    pub state: SessionState,
}

impl Session {
    /// Returns true if the session is live.
    pub fn is_live(&self) -> bool {
        self.state == SessionState::Live
    }

    pub(crate) fn with_one_ask_more(mut self) -> Self {
        self.asks = self.asks.saturating_add(1);
        self
    }

    pub(crate) fn with_one_ask_less(mut self) -> Self {
        self.asks = self.asks.saturating_sub(1);
        self
    }
}

fn invalid(what: &'static str) -> Rejection {
    Rejection::whole(Reason::InvalidUpdate, Detail::Form(what))
}

/// Checks a value against a published limit (K21).
pub(crate) fn check_limit(name: &'static str, max: u64, actual: u64) -> Result<(), Rejection> {
    if actual <= max {
        return Ok(());
    }
    Err(Rejection::whole(Reason::LimitExceeded, Detail::Limit { name, max, actual }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(duration: u64, grace: u64) -> String {
        Terms::parse(duration, grace).unwrap_err().to_string()
    }

    #[test]
    fn k21_durations_outside_the_bounds_are_refused_with_the_bound() {
        assert!(Terms::parse(MIN_DURATION_MICROS, MIN_GRACE_MICROS).is_ok());
        assert!(Terms::parse(MAX_DURATION_MICROS, MAX_GRACE_MICROS).is_ok());
        assert!(refusal(0, MIN_GRACE_MICROS).ends_with("`duration` is shorter than 1 second"));
        assert!(refusal(MIN_DURATION_MICROS, 0).ends_with("`grace` is shorter than 100 milliseconds"));
        let year = 365 * MAX_DURATION_MICROS;
        assert!(refusal(year, MIN_GRACE_MICROS).contains("31536000000000, at most 86400000000 is allowed"));
        assert!(refusal(MIN_DURATION_MICROS, year).contains("at most 3600000000 is allowed"));
    }

    #[test]
    fn k21_a_principal_is_printable_and_short() {
        assert_eq!(Principal::parse("svc-1").unwrap().as_str(), "svc-1");
        for name in ["", "a b", "é"] {
            assert_eq!(Principal::parse(name).unwrap_err().reason(), Reason::InvalidUpdate);
        }
        assert_eq!(Principal::parse(&"x".repeat(256)).unwrap_err().reason(), Reason::LimitExceeded);
    }
}

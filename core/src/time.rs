//! Time as hosts hand it in. The engine reads no clock.

use serde::{Deserialize, Serialize};

/// A point in time: microseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The earliest time.
    pub const MIN: Self = Self(0);
    /// The latest time.
    pub const MAX: Self = Self(u64::MAX);

    /// The time this many microseconds after 1970-01-01 00:00 UTC.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The microseconds since 1970-01-01 00:00 UTC.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time `micros` microseconds before this one, or the earliest time.
    pub const fn minus_micros(self, micros: u64) -> Self {
        Self(self.0.saturating_sub(micros))
    }

    /// The microseconds from `earlier` to this time, zero if `earlier` is later.
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

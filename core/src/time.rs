//! Time, as hosts hand it in: the engine reads no clock.

use serde::{Deserialize, Serialize};

/// A point in time: microseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The earliest and the latest time that can be said.
    pub const MIN: Self = Self(0);
    /// The latest time that can be said.
    pub const MAX: Self = Self(u64::MAX);

    /// From microseconds since 1970.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This time less `micros`, or the earliest time.
    pub const fn minus_micros(self, micros: u64) -> Self {
        Self(self.0.saturating_sub(micros))
    }

    /// Microseconds from `earlier` to this time; zero where `earlier` is later.
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

//! Points in time, as hosts pass them to the engine. The engine reads no clock.

use serde::{Deserialize, Serialize};

/// A point in time: microseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The earliest time that the type can hold: 1970-01-01 00:00 UTC.
    pub const MIN: Self = Self(0);
    /// The latest time that the type can hold.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the time that is `micros` microseconds after 1970-01-01 00:00 UTC.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns this time as microseconds since 1970-01-01 00:00 UTC.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time `micros` microseconds before this time, at the earliest [`MIN`](Self::MIN).
    pub const fn minus_micros(self, micros: u64) -> Self {
        Self(self.0.saturating_sub(micros))
    }

    /// Returns the time `micros` microseconds after this time, at the latest [`MAX`](Self::MAX).
    pub const fn plus_micros(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Returns the microseconds from `earlier` to this time, 0 if `earlier` is later than this
    /// time.
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

//! The time at which each writer began its current work, so that a supervisor can detect a writer
//! that hangs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// For each writer, the start of its current attempt to write a group.
pub(super) struct Progress {
    base: Instant,
    // The microseconds from `base` to the start of the attempt, plus 1. The value 0 means that the
    // writer waits for commands.
    busy_since: Vec<AtomicU64>,
}

impl Progress {
    pub(super) fn new(writers: usize) -> Self {
        Self { base: Instant::now(), busy_since: (0..writers).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes that a writer begins an attempt.
    pub(super) fn begin(&self, writer: usize) {
        self.set(writer, micros(self.base.elapsed()) + 1);
    }

    /// Notes that a writer waits for commands.
    pub(super) fn end(&self, writer: usize) {
        self.set(writer, 0);
    }

    fn set(&self, writer: usize, since: u64) {
        if let Some(of_writer) = self.busy_since.get(writer) {
            of_writer.store(since, Ordering::Relaxed);
        }
    }

    /// The time for which the longest attempt has been running; 0 if there is none.
    pub(super) fn longest(&self) -> Duration {
        let since = self.busy_since.iter().map(|since| since.load(Ordering::Relaxed)).filter(|since| *since > 0).min();
        since.map_or(Duration::ZERO, |since| self.base.elapsed().saturating_sub(Duration::from_micros(since - 1)))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX - 1)
}

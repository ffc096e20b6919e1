//! The work of each writer, by which a supervisor sees that one hangs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The start of the attempt to write a group that each writer is in.
pub(super) struct Progress {
    base: Instant,
    // In microseconds after `base`, and 1; 0 for a writer that waits for commands.
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

//! The takes of a session: the last one for each queue, and what the worker holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The takes of a session, by queue.
#[derive(Default)]
pub(crate) struct Takes(Mutex<BTreeMap<String, Arc<QueueTakes>>>);

/// The takes of a session for one queue.
#[derive(Default)]
pub(crate) struct QueueTakes {
    // The number of takes so far. The last one counts.
    last: AtomicU64,
    // The fences of the batches that the worker holds. A stream that is opened again names them, so that it
    // sends only those again that were lost on the way.
    held: Mutex<BTreeSet<u64>>,
}

impl QueueTakes {
    /// True if the take with this number is the last one.
    pub(crate) fn is_last(&self, number: u64) -> bool {
        self.last.load(Ordering::Relaxed) == number
    }

    /// Returns the fences of the batches that the worker holds.
    pub(crate) fn held(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Takes {
    /// Begins a take of a queue, and ends the one before. Returns the number of the take.
    pub(crate) fn begin(&self, queue: &str) -> (Arc<QueueTakes>, u64) {
        // INVARIANT: no code panics while it has locked this mutex.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let takes = all.entry(queue.to_owned()).or_default().clone();
        let number = takes.last.fetch_add(1, Ordering::Relaxed) + 1;
        (takes, number)
    }
}

//! Calls for independent worlds, spread over the machine's cores.

use std::fmt::Debug;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Calls `check` for every item and returns the results in the order of the items.
///
/// The calls run on as many threads as the machine has cores. WebAssembly has no threads and
/// reports no cores, so there the calls run one after the other. If a call panics, its item is
/// printed, no further item is started, and the caller panics too.
pub(crate) fn map<I, T>(items: impl IntoIterator<Item = I>, check: impl Fn(I) -> T + Sync) -> Vec<T>
where
    I: Copy + Debug + Sync,
    T: Send,
{
    let items: Vec<I> = items.into_iter().collect();
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    if threads == 1 {
        return items.into_iter().map(check).collect();
    }
    let queue = Queue { items: &items, next: AtomicUsize::new(0) };
    let mut results: Vec<(usize, T)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| queue.drain(&check))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    results.sort_unstable_by_key(|(position, _)| *position);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The items to call `check` for, and the position of the first one that no thread has started yet.
struct Queue<'a, I> {
    items: &'a [I],
    next: AtomicUsize,
}

impl<I: Copy + Debug> Queue<'_, I> {
    /// Calls `check` for items until none is left. Returns each result with the position of its
    /// item.
    fn drain<T>(&self, check: impl Fn(I) -> T) -> Vec<(usize, T)> {
        let mut results = Vec::new();
        loop {
            let position = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = self.items.get(position).copied() else { return results };
            let on_panic = OnPanic { queue: self, item };
            results.push((position, check(item)));
            drop(on_panic);
        }
    }
}

/// A guard of one call. If the call panics, dropping the guard prints the item and empties the
/// queue.
struct OnPanic<'a, 'b, I: Debug> {
    queue: &'a Queue<'b, I>,
    item: I,
}

impl<I: Debug> Drop for OnPanic<'_, '_, I> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.queue.next.store(self.queue.items.len(), Ordering::Relaxed);
            eprintln!("the failing item is {:?}", self.item);
        }
    }
}

#[test]
fn results_come_in_the_order_of_the_items() {
    assert_eq!(map(0..1000_u64, |seed| seed * 2), (0..2000).step_by(2).collect::<Vec<u64>>());
    assert!(map(0..0, |seed: u64| seed).is_empty());
}

/// In WebAssembly a panic ends the program, so the test does nothing there.
#[test]
fn a_panic_in_one_call_reaches_the_caller() {
    if cfg!(panic = "unwind") {
        let failing = || map(0..100_u64, |seed| assert_ne!(seed, 7));
        assert!(std::panic::catch_unwind(failing).is_err());
    }
}

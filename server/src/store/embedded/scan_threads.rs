//! The threads that scan the embedded store.

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// The largest number of threads. A scan keeps a processor or the disk busy, so more threads would
/// finish no scan earlier. Each scan is a short part of a list, so all lists make progress in turn.
const MAX_THREADS: usize = 8;

/// A pool of at most [`MAX_THREADS`] threads, which start when they are needed and end when they
/// are idle for some seconds.
///
/// A tokio runtime of its own provides the pool, with a limit on its blocking threads. The server's
/// main runtime would not do: its limit is 512, and tokio starts a thread whenever no thread is
/// idle. A thread that has just finished a scan is not idle yet when the scan's caller starts the
/// next one. So a busy machine would get several threads for each list.
pub(super) struct ScanThreads(Option<Runtime>);

impl ScanThreads {
    /// Creates the pool, without a thread.
    ///
    /// # Errors
    /// The operating system refuses to create a runtime.
    pub(super) fn new() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().thread_name("scan").max_blocking_threads(MAX_THREADS).build()?;
        Ok(Self(Some(runtime)))
    }

    /// Runs `scan` on a thread as soon as fewer than [`MAX_THREADS`] scans run; `None` if the pool
    /// is being dropped.
    pub(super) fn start<T: Send + 'static>(&self, scan: impl FnOnce() -> T + Send + 'static) -> Option<JoinHandle<T>> {
        self.0.as_ref().map(|runtime| runtime.spawn_blocking(scan))
    }
}

impl Drop for ScanThreads {
    fn drop(&mut self) {
        // An asynchronous task may drop the store. The ordinary drop of a runtime waits for its
        // threads, and tokio forbids that in an asynchronous task.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::HashSet;
    use std::sync::{Arc, Barrier};

    use super::*;

    #[tokio::test]
    async fn scans_share_a_bounded_number_of_threads() {
        let threads = ScanThreads::new().unwrap();
        let all = Arc::new(Barrier::new(MAX_THREADS));
        let scan = || {
            let all = all.clone();
            threads.start(move || {
                all.wait();
                std::thread::current().id()
            })
        };
        // Each round of scans passes the barrier only if MAX_THREADS of them run at the same time.
        let scans: Vec<_> = (0..10 * MAX_THREADS).map(|_| scan().unwrap()).collect();
        let mut used = HashSet::new();
        for scan in scans {
            used.insert(scan.await.unwrap());
        }
        assert_eq!(used.len(), MAX_THREADS);
    }

    #[tokio::test]
    async fn an_asynchronous_task_may_drop_the_threads_while_a_scan_runs() {
        let threads = ScanThreads::new().unwrap();
        let ((begin, begun), (go_on, wait)) = (tokio::sync::oneshot::channel(), std::sync::mpsc::channel());
        let scan = threads.start(move || {
            begin.send(()).unwrap();
            wait.recv().unwrap();
        });
        begun.await.unwrap();
        drop(threads);
        go_on.send(()).unwrap();
        scan.unwrap().await.unwrap();
    }
}

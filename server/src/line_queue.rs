//! A queue of lines of text with a thread that writes them. A pipe that nobody reads, a slow
//! terminal or a full disk delays only this thread, never a caller.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most bytes of lines that wait in one queue, which is some 20,000 lines.
const MAX_WAITING_BYTES: usize = 4 * 1024 * 1024;
/// The longest time that a dropped queue waits until its lines are written.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The destination of a queue's lines. Its methods run on the thread of the queue and may block.
pub trait LineSink: Send + 'static {
    /// Writes whole lines, each with its line end.
    ///
    /// # Errors
    /// Not all of the lines were written. The queue counts all of them as dropped.
    fn write_lines(&mut self, lines: &[u8]) -> io::Result<()>;

    /// Reports the number of lines that were dropped since the last report. The queue calls this
    /// once it can write again.
    fn report_dropped(&mut self, lines: u64);
}

/// The content of a queue, which its mutex protects.
#[derive(Default)]
struct LineBuffer {
    bytes: Vec<u8>,
    lines: u64,
    // The number of dropped lines that the sink has not reported.
    unreported: u64,
    // True while the thread writes lines that it has taken.
    is_writing: bool,
    is_closed: bool,
}

#[derive(Default)]
struct LineChannel {
    buffer: Mutex<LineBuffer>,
    arrived: Condvar,
    written: Condvar,
    dropped: AtomicU64,
}

/// A bounded queue of lines. A line for which it has no room is dropped and counted.
pub struct LineQueue {
    channel: Arc<LineChannel>,
}

impl LineQueue {
    /// Starts a queue with a thread that writes to `sink`.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(name: &str, sink: impl LineSink) -> io::Result<Self> {
        let channel = Arc::<LineChannel>::default();
        let queue = Self { channel: channel.clone() };
        // The thread is not joined: a sink that blocks for ever must not keep the process alive.
        std::thread::Builder::new().name(name.into()).spawn(move || channel.write_all(sink))?;
        Ok(queue)
    }

    /// Adds `count` lines to the queue: all of them, or none if the queue has no room.
    pub fn push(&self, lines: &[u8], count: u64) {
        let mut buffer = self.channel.lock();
        if buffer.bytes.len().saturating_add(lines.len()) > MAX_WAITING_BYTES {
            return self.channel.count_dropped(&mut buffer, count);
        }
        buffer.bytes.extend_from_slice(lines);
        buffer.lines += count;
        drop(buffer);
        self.channel.arrived.notify_one();
    }

    /// The number of lines that were dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.channel.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all lines are written, for at most `timeout`.
    pub fn flush(&self, timeout: Duration) {
        let has_lines = |buffer: &mut LineBuffer| buffer.is_writing || !buffer.bytes.is_empty();
        drop(self.channel.written.wait_timeout_while(self.channel.lock(), timeout, has_lines));
    }
}

/// Writes one line for each call of `write`, which is how the logging library hands lines over.
impl io::Write for &LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line, 1);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LineQueue {
    fn drop(&mut self) {
        self.channel.lock().is_closed = true;
        self.channel.arrived.notify_one();
        self.flush(FLUSH_TIMEOUT);
    }
}

impl LineChannel {
    fn lock(&self) -> MutexGuard<'_, LineBuffer> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_dropped(&self, buffer: &mut LineBuffer, lines: u64) {
        buffer.unreported += lines;
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    /// Writes all lines that arrive, until the queue is closed and empty. No lock is held while the
    /// sink writes.
    fn write_all(&self, mut sink: impl LineSink) {
        let mut batch = Vec::new();
        while let Some(lines) = self.take(&mut batch) {
            let is_written = sink.write_lines(&batch).is_ok();
            let unreported = self.end_write(if is_written { 0 } else { lines });
            if is_written && unreported > 0 {
                sink.report_dropped(unreported);
            }
        }
    }

    /// Waits for lines, exchanges them for the empty `batch`, and returns their number; `None` if
    /// the queue is closed and empty.
    fn take(&self, batch: &mut Vec<u8>) -> Option<u64> {
        batch.clear();
        let is_idle = |buffer: &mut LineBuffer| buffer.bytes.is_empty() && !buffer.is_closed;
        let waited = self.arrived.wait_while(self.lock(), is_idle);
        let mut buffer = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut buffer.bytes, batch);
        buffer.is_writing = !batch.is_empty();
        let lines = std::mem::take(&mut buffer.lines);
        buffer.is_writing.then_some(lines)
    }

    /// Ends a write in which `lost` lines failed. If none failed, returns the number of dropped
    /// lines that are not reported yet, and resets it.
    fn end_write(&self, lost: u64) -> u64 {
        let mut buffer = self.lock();
        buffer.is_writing = false;
        self.count_dropped(&mut buffer, lost);
        let unreported = if lost == 0 { std::mem::take(&mut buffer.unreported) } else { 0 };
        drop(buffer);
        self.written.notify_all();
        unreported
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// A write of the queue, or a report of dropped lines.
    #[derive(Debug, PartialEq)]
    enum Seen {
        Wrote(usize),
        Dropped(u64),
    }

    /// A sink in which each write waits until the test gives its result.
    struct Gate {
        outcomes: Receiver<io::Result<()>>,
        seen: SyncSender<Seen>,
    }

    impl LineSink for Gate {
        fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
            self.seen.send(Seen::Wrote(lines.len())).unwrap();
            self.outcomes.recv().unwrap()
        }

        fn report_dropped(&mut self, lines: u64) {
            self.seen.send(Seen::Dropped(lines)).unwrap();
        }
    }

    fn gate() -> (LineQueue, SyncSender<io::Result<()>>, Receiver<Seen>) {
        let (outcome, outcomes) = sync_channel(10);
        let (sender, seen) = sync_channel(10);
        (LineQueue::start("test", Gate { outcomes, seen: sender }).unwrap(), outcome, seen)
    }

    #[test]
    fn lines_beyond_the_bound_are_dropped_and_reported_once_lines_are_written_again() {
        let (queue, outcome, seen) = gate();
        queue.push(b"1\n", 1);
        assert_eq!(seen.recv(), Ok(Seen::Wrote(2)));
        // While the sink hangs, `push` returns at once.
        for _ in 0..3 {
            queue.push(&vec![b'\n'; MAX_WAITING_BYTES], 7);
        }
        queue.push(b"2\n", 1);
        assert_eq!(queue.dropped(), 15);
        outcome.send(Ok(())).unwrap();
        assert_eq!(seen.recv(), Ok(Seen::Dropped(15)));
        assert_eq!(seen.recv(), Ok(Seen::Wrote(MAX_WAITING_BYTES)));
        outcome.send(Ok(())).unwrap();
        queue.flush(FLUSH_TIMEOUT);
        assert_eq!((seen.try_recv().is_err(), queue.dropped()), (true, 15));
    }

    #[test]
    fn lines_of_failed_writes_are_reported_after_the_next_that_succeeds() {
        let (queue, outcome, seen) = gate();
        for _ in 0..2 {
            queue.push(b"1\n2\n", 2);
            assert_eq!(seen.recv(), Ok(Seen::Wrote(4)));
            outcome.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
            queue.flush(FLUSH_TIMEOUT);
        }
        queue.push(b"3\n", 1);
        outcome.send(Ok(())).unwrap();
        assert_eq!([seen.recv(), seen.recv()], [Ok(Seen::Wrote(2)), Ok(Seen::Dropped(4))]);
        assert_eq!(queue.dropped(), 4);
    }

    #[test]
    fn a_dropped_queue_writes_its_last_lines_first() {
        let (queue, outcome, seen) = gate();
        outcome.send(Ok(())).unwrap();
        queue.push(b"1\n", 1);
        drop(queue);
        assert_eq!(seen.try_recv(), Ok(Seen::Wrote(2)));
    }
}

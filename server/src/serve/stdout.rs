//! Lines on standard output: the banner, and those of a stop. A thread writes them, so that a pipe
//! that nobody reads keeps no server from stopping.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::line_queue::{LineQueue, LineSink};

/// Standard output. Clones share one queue of lines; the last one waits until they are written.
#[derive(Clone)]
pub(super) struct Stdout(Arc<LineQueue>);

impl Stdout {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(super) fn start() -> io::Result<Self> {
        LineQueue::start("stdout", StdoutSink).map(Arc::new).map(Self)
    }

    /// Prints a line. It is lost if standard output is closed, and the server goes on.
    pub(super) fn print(&self, line: &str) {
        self.0.push(format!("{line}\n").as_bytes(), 1);
    }

    /// Waits until all lines are written, for at most `timeout`.
    pub(super) fn flush(&self, timeout: Duration) {
        self.0.flush(timeout);
    }
}

struct StdoutSink;

impl LineSink for StdoutSink {
    fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(lines)?;
        stdout.flush()
    }

    /// A reader of the banner can't use the number of lines that it missed.
    fn report_dropped(&mut self, _: u64) {}
}

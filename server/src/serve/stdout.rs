//! Lines on standard output: the banner, and the lines that report a stop. A thread writes them, so
//! that a pipe that nobody reads can't keep the server from stopping.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::line_queue::{LineQueue, LineSink};

/// Standard output. Clones share one queue of lines. The drop of the last clone waits until the
/// lines are written.
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

    /// Prints a line. If standard output is closed, the line is lost without an error.
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

    /// Does nothing, because a reader of the banner has no use for the number of lost lines.
    fn report_dropped(&mut self, _: u64) {}
}

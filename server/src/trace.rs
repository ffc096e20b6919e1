//! Logs: lines for people or JSON for machines, on standard error. Never a claim's value.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// A log filter that can't be read, or a second start of logging.
#[derive(Debug, thiserror::Error)]
#[error("the log filter `{filter}` can't be used: {error}")]
pub struct TraceError {
    filter: String,
    error: String,
}

/// Starts logging.
///
/// # Errors
/// The filter can't be read.
pub fn start(log: &Log) -> Result<(), TraceError> {
    let unusable = |error: String| TraceError { filter: log.filter.clone(), error };
    // The store's library tells its every step at level info.
    let quiet = format!("fjall=warn,lsm_tree=warn,{}", log.filter);
    let filter = EnvFilter::try_new(quiet).map_err(|error| unusable(error.to_string()))?;
    // Where nobody reads the log any more, there is nobody to tell of it either.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Lines)
        .with_ansi(io::stderr().is_terminal())
        .log_internal_errors(false);
    let started = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| unusable(error.to_string()))
}

thread_local! {
    /// Lines of this thread that are to be written together.
    static HELD: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Writes what `tell` logs in one go: by itself each line costs a system call.
pub fn together(tell: impl FnOnce()) {
    HELD.set(Some(Vec::new()));
    tell();
    let lines = HELD.take().unwrap_or_default();
    let _ = io::stderr().lock().write_all(&lines);
}

/// Standard error, line by line unless they are held.
struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        HELD.with_borrow_mut(|held| match held {
            Some(lines) => lines.write(line),
            None => io::stderr().lock().write(line),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

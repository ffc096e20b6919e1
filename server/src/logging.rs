//! Logs: lines for people or JSON for machines, on standard error. Never a claim's value.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::config::{LogConfig, LogFormat};

/// A log filter that can't be read, or a second start of logging.
#[derive(Debug, thiserror::Error)]
#[error("the log filter `{filter}` can't be used: {error}")]
pub struct LogError {
    filter: String,
    error: String,
}

/// Starts logging.
///
/// # Errors
/// The filter can't be read.
pub fn start(log: &LogConfig) -> Result<(), LogError> {
    let unusable = |error: String| LogError { filter: log.filter.clone(), error };
    check(&log.filter).map_err(unusable)?;
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

/// Refuses what the library takes for a target's name, and what says nothing: either would end all logs, the audit too.
fn check(filter: &str) -> Result<(), String> {
    const ALLOWED: &str = "write a level (`off`, `error`, `warn`, `info`, `debug` or `trace`), `TARGET=LEVEL`, or several of these with commas between";
    // Within brackets are spans and their fields, whose forms are the library's own matter.
    let is_plain = |part: &&str| !part.contains(['=', '[', ']', '{', '}']);
    let mut parts = filter.split(',').filter(|part| !part.is_empty()).peekable();
    if parts.peek().is_none() {
        return Err(format!("it is empty: {ALLOWED}"));
    }
    match parts.filter(is_plain).find(|part| part.parse::<LevelFilter>().is_err()) {
        Some(part) => Err(format!("`{part}` is no level: {ALLOWED}")),
        None => Ok(()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_says_levels_or_targets_with_levels() {
        for filter in ["info", "WARN", "off", "info,audit=off", "audit=info", "info,[span{field=1}]=trace", "info,"] {
            assert_eq!(check(filter), Ok(()), "{filter}");
        }
        for (filter, said) in [
            ("verbose", "`verbose` is no level: write a level"),
            ("info,audit", "`audit` is no level"),
            ("info, debug", "` debug` is no level"),
            ("", "it is empty: write a level"),
            (",", "it is empty"),
            (" ", "` ` is no level"),
        ] {
            assert!(check(filter).unwrap_err().contains(said), "{filter}: {:?}", check(filter));
        }
    }
}

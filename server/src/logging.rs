//! The operational log, on standard error: lines of text for people, or JSON objects for machines.
//! Claims' values never appear in the log.
//!
//! A [`LineQueue`] writes the log. So a reader of standard error that is slow, or does not read at
//! all, never delays a call.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;
use std::sync::{Arc, OnceLock};

use tracing_subscriber::filter::{LevelFilter, ParseError};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, reload};

use crate::config::{LogConfig, LogFormat};
use crate::line_queue::{FLUSH_TIMEOUT, LineQueue, LineSink};

/// The queue of the log's lines; empty until the log of the process is started.
static LINES: OnceLock<Arc<LineQueue>> = OnceLock::new();

/// A function that replaces the log's filter; empty until the log of the process is started. It
/// hides the type of tracing-subscriber's own handle, which depends on the log's format.
static SET_FILTER: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

/// The operational log can't be started: its filter is not valid, the process has a log already, or
/// no thread could be started.
#[derive(Debug, thiserror::Error)]
#[error("the log filter `{filter}` can't be used: {reason}")]
pub struct LogError {
    filter: String,
    reason: Reason,
}

/// The reason why the log can't be started.
#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("it is empty: {ALLOWED}")]
    Empty,
    #[error("`{0}` is not a level: {ALLOWED}")]
    NotALevel(String),
    #[error("{0}")]
    Syntax(#[from] ParseError),
    #[error("the process has a log already: {0}")]
    Started(#[from] TryInitError),
    #[error("its thread can't be started: {0}")]
    Thread(#[from] io::Error),
}

/// The advice of error messages: the forms that `log.filter` may have.
const ALLOWED: &str = "write a level (`off`, `error`, `warn`, `info`, `debug` or `trace`), `TARGET=LEVEL`, or several of these separated by commas";

/// The running log. Dropping it waits until the lines so far are written, for at most a second.
#[must_use]
pub struct Log {
    lines: Arc<LineQueue>,
}

impl Drop for Log {
    fn drop(&mut self) {
        self.lines.flush(FLUSH_TIMEOUT);
    }
}

/// Writes lines to standard error.
struct Stderr;

impl LineSink for Stderr {
    fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        write_to_stderr(lines)
    }

    fn report_dropped(&mut self, lines: u64) {
        tracing::warn!(lines, "lines of the log were dropped: standard error was read too slowly, or not at all");
    }
}

/// Writes whole lines to standard error, between the lines of other threads.
///
/// # Errors
/// Not all of the lines were written.
pub fn write_to_stderr(lines: &[u8]) -> io::Result<()> {
    io::stderr().lock().write_all(lines)
}

/// The number of lines that the log has dropped since its start.
pub fn dropped_lines() -> u64 {
    LINES.get().map_or(0, |lines| lines.dropped())
}

/// Waits until the lines of the log so far are written, for at most a second.
pub fn flush() {
    LINES.get().into_iter().for_each(|lines| lines.flush(FLUSH_TIMEOUT));
}

/// Starts the operational log of this process, with the configured format and filter. Panics are
/// logged too.
///
/// # Errors
/// The log filter is not valid, this process has started a log before, or no thread could be
/// started.
pub fn start(log: &LogConfig) -> Result<Log, LogError> {
    try_start(log).map_err(|reason| LogError { filter: log.filter.clone(), reason })
}

/// A valid filter of the log.
pub struct LogFilter(EnvFilter);

/// Returns the filter with this text.
///
/// # Errors
/// The text is not a valid filter.
pub fn check_filter(filter: &str) -> Result<LogFilter, LogError> {
    parse(filter).map(LogFilter).map_err(|reason| LogError { filter: filter.to_owned(), reason })
}

/// Replaces the filter of the log of this process, if it has one.
pub fn set_filter(LogFilter(filter): LogFilter) {
    if let Some(set) = SET_FILTER.get() {
        set(filter);
    }
}

fn parse(filter: &str) -> Result<EnvFilter, Reason> {
    check(filter)?;
    // The storage libraries fjall and lsm-tree log every flush and compaction at level `info`, so
    // they are limited to `warn`. A filter that names them still wins, because the last directive
    // for a target counts.
    Ok(EnvFilter::try_new(format!("fjall=warn,lsm_tree=warn,{filter}"))?)
}

fn try_start(log: &LogConfig) -> Result<Log, Reason> {
    let filter = parse(&log.filter)?;
    let lines = Arc::new(LineQueue::start("log", Stderr)?);
    // By default, tracing-subscriber reports a failed write of the log with `eprintln!`
    // (fmt_layer.rs). This would wait for the reader of standard error.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(lines.clone())
        .with_ansi(io::stderr().is_terminal())
        .log_internal_errors(false);
    match log.format {
        LogFormat::Text => {
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            builder.finish().try_init()?;
            SET_FILTER.get_or_init(|| Box::new(move |filter| report_kept(handle.reload(filter))));
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.finish().try_init()?;
            SET_FILTER.get_or_init(|| Box::new(move |filter| report_kept(handle.reload(filter))));
        }
    }
    std::panic::set_hook(Box::new(log_panic));
    Ok(Log { lines: LINES.get_or_init(|| lines).clone() })
}

/// Logs an error if the log's filter could not be replaced. This happens only after a panic in the
/// filter itself.
fn report_kept(result: Result<(), reload::Error>) {
    if let Err(error) = result {
        tracing::error!(%error, "the log keeps its filter until a restart");
    }
}

/// Logs a panic. The standard library's hook would write to standard error on the panicking thread,
/// and so wait for the reader of standard error.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then_some(backtrace);
    let backtrace = backtrace.as_ref().map(tracing::field::display);
    tracing::error!(backtrace, "{panic}");
}

/// Checks a log filter. It is an error if the filter has no directive, or a directive without `=`
/// that is not a level.
///
/// `EnvFilter` accepts both of these. It takes a misspelt level for the name of a target. Then it
/// would log no other target, not even the audit trail.
fn check(filter: &str) -> Result<(), Reason> {
    // Braces and brackets enclose spans and their fields, whose syntax `EnvFilter` checks itself.
    let is_level = |directive: &&str| !directive.contains(['=', '[', ']', '{', '}']);
    let mut directives = filter.split(',').filter(|directive| !directive.is_empty()).peekable();
    if directives.peek().is_none() {
        return Err(Reason::Empty);
    }
    match directives.filter(is_level).find(|directive| directive.parse::<LevelFilter>().is_err()) {
        Some(directive) => Err(Reason::NotALevel(directive.to_owned())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_levels_or_targets_with_levels() {
        for filter in ["info", "WARN", "off", "info,audit=off", "audit=info", "info,[span{field=1}]=trace", "info,"] {
            assert!(check(filter).is_ok(), "{filter}");
        }
        for (filter, reason) in [
            ("verbose", "`verbose` is not a level: write a level"),
            ("info,audit", "`audit` is not a level"),
            ("info, debug", "` debug` is not a level"),
            ("", "it is empty: write a level"),
            (",", "it is empty"),
            (" ", "` ` is not a level"),
        ] {
            let error = check(filter).unwrap_err().to_string();
            assert!(error.starts_with(reason), "{filter}: {error}");
        }
    }
}

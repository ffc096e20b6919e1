//! The operational log, on standard error: lines of text for people, or JSON objects for machines.
//! Claims' values never appear in the log.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, ParseError};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config::{LogConfig, LogFormat};

/// The operational log can't be started: its filter is not valid, or the process has a log already.
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
}

/// The advice of error messages: the forms that `log.filter` may have.
const ALLOWED: &str = "write a level (`off`, `error`, `warn`, `info`, `debug` or `trace`), `TARGET=LEVEL`, or several of these separated by commas";

/// Starts the operational log of this process, with the configured format and filter.
///
/// # Errors
/// The log filter is not valid, or this process has started a log before.
pub fn start(log: &LogConfig) -> Result<(), LogError> {
    try_start(log).map_err(|reason| LogError { filter: log.filter.clone(), reason })
}

fn try_start(log: &LogConfig) -> Result<(), Reason> {
    check(&log.filter)?;
    // The storage libraries fjall and lsm-tree log every flush and compaction at level `info`, so
    // they are limited to `warn`. A filter that names them still wins, because the last directive
    // for a target counts.
    let filter = EnvFilter::try_new(format!("fjall=warn,lsm_tree=warn,{}", log.filter))?;
    // By default, tracing-subscriber reports a failed write of the log with `eprintln!`
    // (fmt_layer.rs), which panics if standard error is closed.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .log_internal_errors(false);
    match log.format {
        LogFormat::Text => builder.finish().try_init()?,
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}

/// Checks a log filter. It is an error if the filter has no directive, or a directive without `=`
/// that is not a level.
///
/// `EnvFilter` accepts both of these. It takes a misspelt level for the name of a target, and would
/// then log nothing else, not even the audit trail.
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

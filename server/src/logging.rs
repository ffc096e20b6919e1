//! The operational log, on standard error: lines for people, or JSON objects for machines. Claims'
//! values never appear in it.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, ParseError};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config::{LogConfig, LogFormat};

/// The log can't be started.
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

/// The forms that a filter may have, for messages.
const ALLOWED: &str = "write a level (`off`, `error`, `warn`, `info`, `debug` or `trace`), `TARGET=LEVEL`, or several of these separated by commas";

/// Starts the log of this process.
///
/// # Errors
/// The filter is not valid, or the log was started before.
pub fn start(log: &LogConfig) -> Result<(), LogError> {
    try_start(log).map_err(|reason| LogError { filter: log.filter.clone(), reason })
}

fn try_start(log: &LogConfig) -> Result<(), Reason> {
    check(&log.filter)?;
    // fjall and lsm-tree log every flush and compaction at level info. A filter that names them
    // still wins, because the last directive of a target counts.
    let filter = EnvFilter::try_new(format!("fjall=warn,lsm_tree=warn,{}", log.filter))?;
    // The library reports a failed write with `eprintln!` (fmt_layer.rs), which panics if standard
    // error is gone.
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

/// Refuses a filter without directives, and a directive without `=` that is not a level.
///
/// `EnvFilter` accepts both. It reads the second as the name of a target, so that a misspelt level
/// would switch every other target off, the audit trail included.
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

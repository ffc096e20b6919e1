//! Logs: lines for people or JSON for machines, on standard error. Never a claim's value.

use std::io::IsTerminal;

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
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .log_internal_errors(false);
    let started = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| unusable(error.to_string()))
}

//! The destination of the audit trail: a file, or standard error together with the operational log.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{AuditEvent, TARGET};
use crate::config::{Config, LogFormat};

/// The most audit events kept in memory for the page. 10,000 events take about a megabyte.
const RECENT_EVENTS: usize = 10_000;

/// The error that the audit file can't be opened.
#[derive(Debug, thiserror::Error)]
#[error("the audit file `{}` can't be opened: {error}; let `audit.file` name a file that the server may append to", .path.display())]
pub struct AuditError {
    path: PathBuf,
    error: io::Error,
}

/// Writes audit events. A server that was built with the page also keeps the last `RECENT_EVENTS`
/// in memory.
pub struct AuditSink {
    output: Output,
    recent: Option<Mutex<VecDeque<AuditEvent>>>,
}

/// The destination of audit events.
enum Output {
    /// Events are written nowhere, because `log.filter` switches the target `audit` off.
    Off,
    /// Events go to standard error, in the format of the operational log.
    Stderr(LogFormat),
    /// Events go to the file `audit.file`, as JSON lines.
    File(Mutex<AuditFile>),
}

impl AuditSink {
    /// Opens the audit sink that the configuration asks for: the file `audit.file` if it is set,
    /// otherwise standard error, or nothing if `log.filter` switches the target `audit` off. The
    /// operational log must run already, because the sink asks it for that filter.
    ///
    /// # Errors
    /// The file `audit.file` can't be opened.
    pub fn open(config: &Config) -> Result<Self, AuditError> {
        let output = match &config.audit.file {
            Some(path) => Output::File(Mutex::new(AuditFile::open(path)?)),
            None if tracing::enabled!(target: TARGET, tracing::Level::INFO) => Output::Stderr(config.log.format),
            None => Output::Off,
        };
        // Only the page shows recent events, so a server without the page does not keep them.
        let recent = cfg!(feature = "page").then(Mutex::default);
        Ok(Self { output, recent })
    }

    /// Returns an audit sink that drops every event, for tests.
    #[cfg(test)]
    pub(crate) fn off() -> Self {
        Self { output: Output::Off, recent: None }
    }

    /// Writes the audit events of one group of commands, in the group's order.
    ///
    /// All events of the group are written with one call, because each write to standard error is a
    /// system call. A failed write is logged and refuses no command: the changes are durable and
    /// answered already.
    pub fn record(&self, events: Vec<AuditEvent>) {
        if events.is_empty() {
            return;
        }
        match &self.output {
            Output::Off => {}
            // If standard error can't be written, there is no place left to report that.
            Output::Stderr(format) => drop(io::stderr().lock().write_all(lines(&events, *format).as_bytes())),
            Output::File(file) => lock(file).append(&events),
        }
        if let Some(recent) = &self.recent {
            let mut recent = lock(recent);
            recent.extend(events);
            let surplus = recent.len().saturating_sub(RECENT_EVENTS);
            recent.drain(..surplus);
        }
    }

    /// Returns the last audit events as JSON lines, the oldest first. The text is empty in a server
    /// without the page, which keeps none.
    pub fn recent_json_lines(&self) -> String {
        let recent: Vec<_> =
            self.recent.as_ref().map(|recent| lock(recent).iter().copied().collect()).unwrap_or_default();
        lines(&recent, LogFormat::Json)
    }
}

/// Locks the mutex, also after a thread panicked while it had locked the mutex. The values locked
/// here are valid at every moment, so a panic can't have left one half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lines(events: &[AuditEvent], format: LogFormat) -> String {
    let line = |event: &AuditEvent| match format {
        LogFormat::Text => format!("{event}\n"),
        // An event serialises to strings and numbers in memory, which can't fail.
        LogFormat::Json => serde_json::to_string(event).map(|line| line + "\n").unwrap_or_default(),
    };
    events.iter().map(line).collect()
}

/// The audit file, to which events are appended as JSON lines.
struct AuditFile {
    file: File,
    path: PathBuf,
    // True if the last write to the file failed. Only the first failure and the recovery are
    // logged: a line for each failure could fill the log's disk too.
    is_failing: bool,
}

impl AuditFile {
    /// Opens the audit file in append mode, so that log rotation may truncate it (`copytruncate`)
    /// while the server runs.
    fn open(path: &Path) -> Result<Self, AuditError> {
        // Only the server's user may read the audit file, as with data directories: the events tell
        // which cell changed claims, and when.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = file.map_err(|error| AuditError { path: path.to_owned(), error })?;
        Ok(Self { file, path: path.to_owned(), is_failing: false })
    }

    fn append(&mut self, events: &[AuditEvent]) {
        let written = self.file.write_all(lines(events, LogFormat::Json).as_bytes());
        let path = self.path.display();
        match &written {
            Err(error) if !self.is_failing => {
                tracing::error!(%error, %path, "the audit file can't be written, events are lost: make room, or mend the disk");
            }
            Ok(()) if self.is_failing => tracing::info!(%path, "the audit file can be written again"),
            _ => {}
        }
        self.is_failing = written.is_err();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

    use std::os::unix::fs::PermissionsExt;

    use serde_json::Value;

    use super::super::event::examples;
    use super::*;
    use crate::config::AuditConfig;

    #[test]
    fn the_page_shows_the_last_events() {
        let sink = AuditSink { output: Output::Off, recent: Some(Mutex::default()) };
        for _ in 0..2 * RECENT_EVENTS / 3 + 10 {
            sink.record(examples());
        }
        let lines = sink.recent_json_lines();
        let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert_eq!((lines.lines().count(), &last["outcome"]), (RECENT_EVENTS, &"rolled_back".into()));
    }

    fn config(path: &Path) -> Config {
        Config { audit: AuditConfig { file: Some(path.to_owned()) }, ..Config::default() }
    }

    #[test]
    fn a_file_is_appended_to_and_is_its_users_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        for _ in 0..2 {
            AuditSink::open(&config(&path)).unwrap().record(examples());
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, lines(&[examples(), examples()].concat(), LogFormat::Json));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_was_truncated_goes_on_from_its_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let sink = AuditSink::open(&config(&path)).unwrap();
        sink.record(examples());
        File::create(&path).unwrap();
        sink.record(examples());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), lines(&examples(), LogFormat::Json));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let error = AuditSink::open(&config(Path::new("/nowhere/audit.jsonl"))).err().unwrap().to_string();
        assert!(error.starts_with("the audit file `/nowhere/audit.jsonl` can't be opened: "), "{error}");
    }
}

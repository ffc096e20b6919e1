//! The destination of the audit trail: a file, or standard error together with the operational log.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::{AuditEvent, TARGET};
use crate::config::{AuditConfig, Config, LogFormat};
use crate::line_queue::{LineQueue, LineSink};
use crate::logging;

/// The most audit events kept in memory for the web page. 10,000 events take about a megabyte.
const RECENT_EVENTS: usize = 10_000;

/// The reason why the audit trail can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The audit file can't be opened.
    #[error("the audit file `{}` can't be opened: {error}; let `audit.file` name a file that the server may append to", .path.display())]
    File {
        /// The setting `audit.file`.
        path: PathBuf,
        /// The reason that the operating system gave.
        error: io::Error,
    },
    /// The thread that writes the trail can't be started.
    #[error("the thread of the audit trail can't be started: {0}")]
    Thread(io::Error),
}

/// Writes audit events, on a thread of its own. A server that was built with the page also keeps
/// the last `RECENT_EVENTS` in memory.
pub struct AuditSink {
    // `None` if events are written nowhere.
    output: Option<AuditOutput>,
    // False while `log.filter` switches the target `audit` off; always true for a file.
    is_on: AtomicBool,
    is_file: bool,
    recent: Option<Mutex<VecDeque<AuditEvent>>>,
}

/// The lines of audit events that wait for their destination, and their format.
struct AuditOutput {
    lines: LineQueue,
    format: LogFormat,
}

impl AuditOutput {
    fn start(sink: impl LineSink, format: LogFormat) -> io::Result<Self> {
        Ok(Self { lines: LineQueue::start("audit", sink)?, format })
    }
}

impl AuditSink {
    /// Checks that the audit file can be opened, as a start of the server does.
    ///
    /// # Errors
    /// The file `audit.file` can't be opened.
    pub fn check(config: &AuditConfig) -> Result<(), AuditError> {
        config.file.as_ref().map_or(Ok(()), |path| AuditFile::open(path, config).map(drop))
    }

    /// Opens the audit sink that the configuration asks for: the file `audit.file` if it is set,
    /// otherwise standard error, or nothing if `log.filter` switches the target `audit` off. The
    /// operational log must run already, because the sink asks it for that filter.
    ///
    /// # Errors
    /// The file `audit.file` can't be opened.
    pub fn open(config: &Config) -> Result<Self, AuditError> {
        let output = match &config.audit.file {
            // The file is for machines, so its format is always JSON.
            Some(path) => AuditOutput::start(AuditFile::open(path, &config.audit)?, LogFormat::Json),
            None => AuditOutput::start(StderrTrail, config.log.format),
        };
        let output = Some(output.map_err(AuditError::Thread)?);
        // Only the page shows recent events, so a server without the page does not keep them.
        let recent = cfg!(feature = "page").then(Mutex::default);
        let is_on = config.audit.file.is_some() || is_in_log();
        Ok(Self { output, is_on: is_on.into(), is_file: config.audit.file.is_some(), recent })
    }

    /// Switches the trail on or off as the operational log's new filter says. Call this after the
    /// filter was replaced.
    pub fn follow_filter(&self) {
        self.is_on.store(self.is_file || is_in_log(), Ordering::Relaxed);
    }

    /// Returns an audit sink that drops every event, for tests.
    #[cfg(test)]
    pub(crate) fn off() -> Self {
        Self { output: None, is_on: AtomicBool::new(false), is_file: false, recent: None }
    }

    /// The number of audit events that were dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.output.as_ref().map_or(0, |output| output.lines.dropped())
    }

    /// Queues the audit events of one group of commands, in the group's order. If the destination
    /// does not accept events, they are dropped and counted. This refuses no command, because the
    /// changes are already durable and answered.
    pub fn record(&self, events: Vec<AuditEvent>) {
        if events.is_empty() {
            return;
        }
        if let Some(output) = self.output.as_ref().filter(|_| self.is_on.load(Ordering::Relaxed)) {
            output.lines.push(lines(&events, output.format).as_bytes(), events.len() as u64);
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
            self.recent.as_ref().map(|recent| lock(recent).iter().cloned().collect()).unwrap_or_default();
        lines(&recent, LogFormat::Json)
    }
}

/// True if `log.filter` lets the audit trail into the operational log.
fn is_in_log() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::INFO)
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

/// The audit trail on standard error, together with the operational log.
struct StderrTrail;

impl LineSink for StderrTrail {
    fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        logging::write_to_stderr(lines)
    }

    fn report_dropped(&mut self, events: u64) {
        report_dropped(events);
    }
}

fn report_dropped(events: u64) {
    tracing::error!(events, "events of the audit trail were dropped: it was not written as fast as leases changed");
}

/// The audit file, to which events are appended as JSON lines. A file that has reached its largest
/// size is renamed, and a new one is begun.
struct AuditFile {
    file: File,
    path: PathBuf,
    rotation: Option<Rotation>,
    // True if the last write to the file failed. Only the first failure is logged: a line for each
    // could fill the log's disk too.
    is_failing: bool,
    // True if the file may end within a line, because a write was cut short.
    is_torn: bool,
}

impl AuditFile {
    fn open(path: &Path, config: &AuditConfig) -> Result<Self, AuditError> {
        let file = append_to(path).map_err(|error| AuditError::File { path: path.to_owned(), error })?;
        let rotation =
            config.max_mib.map(|mib| Rotation { max_bytes: mib.saturating_mul(1024 * 1024), kept: config.kept_files });
        Ok(Self { file, path: path.to_owned(), rotation, is_failing: false, is_torn: false })
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let bytes = self.file.metadata()?.len();
        if let Some(rotation) = self.rotation.filter(|rotation| bytes >= rotation.max_bytes) {
            rotation.rename(&self.path)?;
            self.file = append_to(&self.path)?;
            self.is_torn = false;
        }
        if self.is_torn {
            self.file.write_all(b"\n")?;
        }
        self.is_torn = true;
        self.file.write_all(lines)?;
        self.is_torn = false;
        Ok(())
    }
}

impl LineSink for AuditFile {
    fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.append(lines);
        if let Err(error) = &written
            && !self.is_failing
        {
            let path = self.path.display();
            tracing::error!(%error, %path, "the audit file can't be written, events are lost: make room, or mend the disk");
        }
        self.is_failing = written.is_err();
        written
    }

    fn report_dropped(&mut self, events: u64) {
        report_dropped(events);
    }
}

/// Opens the audit file in append mode, so that log rotation may truncate it (`copytruncate`) while
/// the server runs.
fn append_to(path: &Path) -> io::Result<File> {
    // Only the server's user may read the audit file, as with data directories: the events tell
    // which cell changed claims, and when.
    // Without O_NONBLOCK, a pipe that nobody reads would block the start (fifo(7)).
    let flags = OFlag::O_NONBLOCK.bits();
    let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path);
    let file = file.map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::ENXIO as i32 => io::Error::other("it is a pipe or device that nobody reads"),
        _ => error,
    })?;
    // The thread of the trail may wait for a slow reader, so its writes block again.
    fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
    Ok(file)
}

/// The size at which the audit file is renamed, and the most renamed files that are kept.
#[derive(Clone, Copy)]
struct Rotation {
    max_bytes: u64,
    kept: usize,
}

impl Rotation {
    /// Renames the audit file to `PATH.1`, and each older file to the next number. The oldest file
    /// is replaced.
    fn rename(self, path: &Path) -> io::Result<()> {
        let numbered = |number: usize| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..self.kept).rev() {
            rename_if_present(&numbered(number), &numbered(number + 1))?;
        }
        rename_if_present(path, &numbered(1))
    }
}

fn rename_if_present(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

    use std::os::unix::fs::PermissionsExt;

    use serde_json::Value;

    use super::super::event::examples;
    use super::*;
    use crate::line_queue::FLUSH_TIMEOUT;

    #[test]
    fn the_page_shows_the_last_events() {
        let sink = AuditSink { recent: Some(Mutex::default()), ..AuditSink::off() };
        for _ in 0..RECENT_EVENTS / 2 + 10 {
            sink.record(examples());
        }
        let lines = sink.recent_json_lines();
        let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert_eq!((lines.lines().count(), &last["outcome"]), (RECENT_EVENTS, &"rolled_back".into()));
    }

    fn config(path: &Path) -> Config {
        Config { audit: AuditConfig { file: Some(path.to_owned()), ..AuditConfig::default() }, ..Config::default() }
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
        flush(&sink);
        File::create(&path).unwrap();
        sink.record(examples());
        flush(&sink);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), lines(&examples(), LogFormat::Json));
    }

    fn flush(sink: &AuditSink) {
        sink.output.as_ref().unwrap().lines.flush(FLUSH_TIMEOUT);
    }

    #[test]
    fn a_full_file_is_renamed_and_old_files_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let mut file =
            AuditFile::open(&path, &AuditConfig { kept_files: 2, max_mib: Some(1), ..AuditConfig::default() }).unwrap();
        let mib = |number: u8| vec![number; 1024 * 1024];
        for number in 1..=5 {
            file.write_lines(&mib(number)).unwrap();
        }
        let found = ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
            .map(|name| std::fs::read(directory.path().join(name)).unwrap());
        assert!(found == [mib(5), mib(4), mib(3)]);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_line_after_a_torn_one_begins_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let mut file = AuditFile::open(&path, &AuditConfig::default()).unwrap();
        std::fs::write(&path, "{\"torn").unwrap();
        file.is_torn = true;
        file.write_lines(b"{}\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"torn\n{}\n");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let error = AuditSink::open(&config(Path::new("/nowhere/audit.jsonl"))).err().unwrap().to_string();
        assert!(error.starts_with("the audit file `/nowhere/audit.jsonl` can't be opened: "), "{error}");
    }
}

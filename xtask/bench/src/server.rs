//! A server under measurement: its process, its data, and the interface that the load uses.

use std::ffi::OsString;
use std::fs::File;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tokio::process::{ChildStdout, Command};

use super::directory;
use super::load::Peer;
use xtask::process::Group;

/// The time within which a started server must answer. On a busy machine, ZooKeeper's virtual machine
/// takes more than half a minute.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// The number of lines at the end of a server's log that an error shows.
const LOG_LINES: usize = 20;

/// A server or a set of servers that can be measured.
pub(crate) trait Contender: Sized {
    /// The name of the contender in reports of progress.
    const NAME: &'static str;
    /// The type of the contender's clients.
    type Client: Peer;

    /// Starts the contender without data, and returns when it is ready to answer.
    async fn start() -> Result<Self>;

    /// Opens a new connection to the contender, and returns a client on it.
    async fn connect(&self) -> Result<Self::Client>;

    /// Returns a client that shares the connection of another.
    fn share(client: &Self::Client) -> Self::Client;

    /// Stops the contender and removes its data.
    async fn stop(self) -> Result<()>;
}

/// The process of a server, and the directory with its data and its log. When this is dropped, the
/// process ends and the directory is removed.
pub(crate) struct Server {
    // Fields are dropped in order: the process must end before its directory is removed.
    process: Group,
    directory: TempDir,
}

impl Server {
    /// Starts `program` with the arguments for its data directory.
    ///
    /// # Errors
    /// The program cannot be started, or its directory cannot be created.
    pub(crate) fn start(program: &Path, arguments: impl FnOnce(PathBuf) -> Result<Vec<OsString>>) -> Result<Self> {
        let directory = directory::new()?;
        Ok(Self { process: spawn(&directory, program, arguments)?, directory })
    }

    /// Kills the server with SIGKILL.
    ///
    /// # Errors
    /// The process cannot be killed.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.process.kill().await
    }

    /// Starts the server again on its data directory.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(crate) fn start_again(
        &mut self,
        program: &Path,
        arguments: impl FnOnce(PathBuf) -> Result<Vec<OsString>>,
    ) -> Result<()> {
        self.process = spawn(&self.directory, program, arguments)?;
        Ok(())
    }

    /// Returns the resident memory of the server in megabytes.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn resident_megabytes(&self) -> Result<f64> {
        self.process.resident_megabytes()
    }

    /// Returns the processor time that the server has used.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        self.process.processor_time()
    }

    /// Returns the bytes that the server has written to disks.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn written_bytes(&self) -> Result<u64> {
        self.process.written_bytes()
    }

    /// Waits for `ready`, for at most [`READY_WITHIN`] and only while the server runs. Returns the
    /// result of `ready`.
    ///
    /// # Errors
    /// `ready` fails, the server ends, or the time is over. The message shows the end of the
    /// server's log.
    pub(crate) async fn until<T>(&mut self, ready: impl Future<Output = Result<T>>) -> Result<T> {
        let outcome = tokio::select! {
            outcome = tokio::time::timeout(READY_WITHIN, ready) => outcome.context("it is not ready in time").flatten(),
            ended = self.process.wait() => ended.and_then(|status| bail!("it ended: {status}")),
        };
        outcome.with_context(|| format!("the server did not start; its log ends with\n{}", self.log_tail()))
    }

    /// Takes the pipe of the server's standard output; `None` at the second call.
    pub(crate) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.process.take_stdout()
    }

    /// Stops the server and removes its directory.
    ///
    /// # Errors
    /// The process cannot be stopped, or its directory cannot be removed.
    pub(crate) async fn stop(self) -> Result<()> {
        self.process.stop().await?;
        self.directory.close().context("cannot remove the server's data")
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(log_path(&self.directory)).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default().join("\n")
    }
}

fn spawn(
    directory: &TempDir,
    program: &Path,
    arguments: impl FnOnce(PathBuf) -> Result<Vec<OsString>>,
) -> Result<Group> {
    let log = File::create(log_path(directory)).context("cannot create the server's log")?;
    let mut command = Command::new(program);
    command.args(arguments(directory.path().join("data"))?);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    Group::start(&mut command)
}

fn log_path(directory: &TempDir) -> PathBuf {
    directory.path().join("log")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[tokio::test]
    async fn a_server_that_ends_at_once_shows_its_log() {
        let script = "echo the port is taken >&2; exit 3";
        let mut server = Server::start(Path::new("sh"), |_| Ok(vec!["-c".into(), script.into()])).unwrap();
        let never = std::future::pending::<Result<()>>();
        let error = format!("{:#}", server.until(never).await.unwrap_err());
        assert!(error.contains("the port is taken") && error.contains("exit status: 3"), "{error}");
    }

    #[tokio::test]
    async fn a_stopped_server_leaves_no_files() {
        let server = Server::start(Path::new("cat"), |_| Ok(vec!["/dev/zero".into()])).unwrap();
        let path = server.directory.path().to_owned();
        assert!(path.is_dir());
        server.stop().await.unwrap();
        assert!(!path.exists());
    }
}

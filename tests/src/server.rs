//! Runs the real `leasehold` server as a child process, for tests that call it over the network,
//! kill it or restart it.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_client::ClaimServiceClient;
use leasehold_proto::gitlab::cells::topology_service::classify_service_client::ClassifyServiceClient;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

use xtask::process::package_variables;

use crate::suspend::suspend;

/// The longest time that a server may take to start. It is long because a start waits for the disk,
/// on which other tests write. Only a hanging server takes longer.
const START_DEADLINE: Duration = Duration::from_secs(60);
const STOP_DEADLINE: Duration = Duration::from_secs(60);
/// The longest time after which a line of the log reaches a test.
const LOG_DEADLINE: Duration = Duration::from_secs(60);
const LISTENING: &str = "listening on ";

/// The configuration of the development cells, equal to the cells of a server without a
/// configuration file.
pub const DEVELOPMENT_CELLS: &str = r#"
[[cells]]
id = 1
name = "cell-1"
address = "127.0.0.1:3001"
session_prefix = "cell-1-"
sequence_range = { minval = 1, maxval = 1000000000 }

[[cells]]
id = 2
name = "cell-2"
address = "127.0.0.1:3002"
session_prefix = "cell-2-"
sequence_range = { minval = 1000000001, maxval = 2000000000 }
"#;

/// The environment variable with the path of a built `leasehold` binary. Without it, tests build
/// the binary.
const BINARY_VARIABLE: &str = "LEASEHOLD_BINARY";

/// Returns the path of the `leasehold` binary: the value of `LEASEHOLD_BINARY`, or else a binary
/// that cargo builds once for each test process.
///
/// # Errors
/// The binary does not build; the error contains the compiler's output.
pub fn binary() -> Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let given = || std::env::var_os(BINARY_VARIABLE).map(PathBuf::from);
    let find = || given().map_or_else(build, Ok).map_err(|error| format!("{error:#}"));
    match BINARY.get_or_init(find) {
        Ok(path) => Ok(path),
        Err(error) => bail!("{error}"),
    }
}

/// Builds the `leasehold` binary and returns its path. The command and the target directory are
/// those of `cargo test --workspace`, so no crate is compiled twice.
fn build() -> Result<PathBuf> {
    let test = std::env::current_exe().context("the path of the running test is unknown")?;
    // The path of a test has the form TARGET/PROFILE/deps/TEST.
    let directory = test.ancestors().nth(2).context("the test does not run from a target directory")?;
    let target = directory.parent().context("the test does not run from a target directory")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from(env!("CARGO")));
    let mut command = Command::new(cargo);
    command.args(["test", "--workspace", "--no-run", "--message-format=json"]);
    if directory.ends_with("release") {
        command.arg("--release");
    }
    for name in package_variables() {
        command.env_remove(name);
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = command.arg("--target-dir").arg(target).current_dir(workspace).output();
    let output = output.context("cargo cannot be run")?;
    if !output.status.success() {
        bail!("the server does not build:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    output.stdout.split(|byte| *byte == b'\n').find_map(executable).context("cargo built no binary named `leasehold`")
}

fn executable(line: &[u8]) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_slice(line).ok()?;
    let is_leasehold = message.pointer("/target/name")?.as_str()? == "leasehold";
    // The executable with the unit tests of the binary has the same target name, so it must be
    // excluded.
    let is_test = message.pointer("/profile/test")?.as_bool()?;
    let path = message.get("executable")?.as_str()?;
    (is_leasehold && !is_test).then(|| PathBuf::from(path))
}

/// The setup with which a test starts a server. [`Server::builder`] returns the default one.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    binary: Option<PathBuf>,
    data: Option<PathBuf>,
    config: Option<String>,
    listen: Option<String>,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    open_files: Option<u32>,
    ignores_hangup: bool,
    stderr_is_unread: bool,
    expects_store: bool,
    namespace: Option<String>,
}

impl Builder {
    /// Sets the `leasehold` binary that is started, such as one of another version. Without this
    /// call it is the one of [`binary`].
    #[must_use]
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// Sets the server's data directory. Without this call the server gets a temporary directory
    /// that is removed with it.
    #[must_use]
    pub fn data(mut self, path: impl Into<PathBuf>) -> Self {
        self.data = Some(path.into());
        self
    }

    /// Sets the text of the server's configuration file. If the text has no cells,
    /// [`DEVELOPMENT_CELLS`] are added.
    #[must_use]
    pub fn config(mut self, text: impl Into<String>) -> Self {
        let text = text.into();
        let cells = if text.contains("[[cells]]") { "" } else { DEVELOPMENT_CELLS };
        self.config = Some(text + cells);
        self
    }

    /// Sets the address on which the server listens. Without this call it is a free port of the
    /// loopback address.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = Some(address.into());
        self
    }

    /// Adds one argument to the command line `leasehold serve`.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Starts the server on a store that exists already. Without this call the server makes one.
    #[must_use]
    pub fn expect_store(mut self) -> Self {
        self.expects_store = true;
        self
    }

    /// Sets one environment variable of the server.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the limit of open files, which the server can't raise.
    #[must_use]
    pub fn open_files(mut self, limit: u32) -> Self {
        self.open_files = Some(limit);
        self
    }

    /// Starts the server as `nohup` does: SIGHUP is ignored.
    #[must_use]
    pub fn ignore_hangup(mut self) -> Self {
        self.ignores_hangup = true;
        self
    }

    /// Leaves the server's standard error unread until [`Server::read_stderr`] is called.
    #[must_use]
    pub fn leave_stderr_unread(mut self) -> Self {
        self.stderr_is_unread = true;
        self
    }

    /// Starts the server in a network namespace (ip-netns(8)), and lets it listen at a free port of this address there.
    #[must_use]
    pub fn in_namespace(mut self, name: impl Into<String>, address: &str) -> Self {
        self.namespace = Some(name.into());
        self.listen(format!("{address}:0")).arg("--insecure-plaintext")
    }

    /// True if the configuration or the arguments name a PostgreSQL database as the server's store.
    fn names_a_database(&self) -> bool {
        let in_config =
            self.config.as_ref().is_some_and(|text| ["[postgres]", "[etcd]"].iter().any(|table| text.contains(table)));
        in_config || self.arguments.iter().any(|argument| argument == "--store")
    }

    /// Starts the server, and waits until it listens.
    ///
    /// # Errors
    /// The server does not build, ends early, or does not listen in time; the error contains its
    /// output.
    pub fn start(self) -> Result<Server> {
        let scratch = TempDir::new().context("no temporary directory can be made")?;
        let data = self.data.clone().unwrap_or_else(|| scratch.path().join("data"));
        let config = scratch.path().join("leasehold.toml");
        if let Some(text) = &self.config {
            std::fs::write(&config, text).context("the configuration file cannot be written")?;
        }
        let setup = Setup { builder: self, data, config };
        let process = Process::start(&setup)?;
        Ok(Server { process, setup, _scratch: scratch })
    }
}

#[derive(Debug)]
struct Setup {
    builder: Builder,
    data: PathBuf,
    config: PathBuf,
}

impl Setup {
    fn command(&self) -> Result<Command> {
        let mut prelude = String::new();
        if let Some(limit) = self.builder.open_files {
            prelude += &format!("ulimit -n {limit} && ");
        }
        if self.builder.ignores_hangup {
            prelude += "trap '' HUP && ";
        }
        let binary = match &self.builder.binary {
            Some(path) => path,
            None => binary()?,
        };
        let mut command = match &self.builder.namespace {
            Some(name) => in_namespace(name, binary),
            None if prelude.is_empty() => Command::new(binary),
            None => shell(&prelude, binary),
        };
        // Remove the tester's own `LEASEHOLD_*` variables: they would change the server under test.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LEASEHOLD_")) {
            command.env_remove(name);
        }
        let listen = self.builder.listen.as_deref().unwrap_or("127.0.0.1:0");
        command.args(["serve", "--listen", listen]);
        if !self.builder.expects_store {
            command.arg("--create");
        }
        if !self.builder.names_a_database() {
            command.arg("--data").arg(&self.data);
        }
        if self.builder.config.is_some() {
            command.arg("--config").arg(&self.config);
        }
        command.args(&self.builder.arguments).envs(self.builder.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }
}

/// Returns a command that is replaced by the server in a network namespace.
fn in_namespace(name: &str, binary: &Path) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", name]).arg(binary);
    command
}

/// Returns the command of a shell that runs `prelude`, and is then replaced by the server.
fn shell(prelude: &str, binary: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{prelude}exec \"$0\" \"$@\"")).arg(binary);
    shell
}

/// The lines that the server has written to one output stream. `lines` receives each line; the
/// channel closes when the stream ends.
#[derive(Debug)]
struct Output {
    text: Arc<(Mutex<String>, Condvar)>,
    lines: Receiver<String>,
}

impl Output {
    fn collect(stream: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        let text = Arc::<(Mutex<String>, Condvar)>::default();
        let collected = Arc::clone(&text);
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut bytes = Vec::new();
            while matches!(reader.read_until(b'\n', &mut bytes), Ok(1..)) {
                let line = String::from_utf8_lossy(&bytes).into_owned();
                collected.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
                collected.1.notify_all();
                // A send fails only after the test has dropped this `Output`, so the error is
                // ignored.
                let _ = sender.send(line);
                bytes.clear();
            }
        });
        Self { text, lines }
    }

    fn text(&self) -> String {
        self.text.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the collected text contains `expected`, or [`LOG_DEADLINE`] passes. Returns whether
    /// it does.
    fn await_text(&self, expected: &str) -> bool {
        let (text, arrived) = &*self.text;
        let text = text.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = arrived.wait_timeout_while(text, LOG_DEADLINE, |text| !text.contains(expected));
        waited.unwrap_or_else(PoisonError::into_inner).0.contains(expected)
    }

    /// Calls `found` with each line of the stream until `found` returns a value. Returns that
    /// value; `None` if the stream ends or the deadline passes first.
    fn wait_for<T>(&self, deadline: Instant, found: impl Fn(&str) -> Option<T>) -> Option<T> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).ok()?;
            if let Some(value) = found(&line) {
                return Some(value);
            }
        }
    }

    /// Waits until the stream ends or the deadline passes. Returns true if the stream ended before
    /// the deadline.
    fn ends_before(&self, deadline: Instant) -> bool {
        let never = |_: &str| None::<()>;
        self.wait_for(deadline, never);
        Instant::now() < deadline
    }
}

#[derive(Debug)]
struct Process {
    child: Child,
    stdout: Output,
    stderr: Output,
    unread_stderr: Option<ChildStderr>,
    address: SocketAddr,
    status: Option<ExitStatus>,
}

impl Process {
    fn start(setup: &Setup) -> Result<Self> {
        let mut child = setup.command()?.spawn().context("the server cannot be run")?;
        let stdout = Output::collect(child.stdout.take().context("the server has no stdout")?);
        let stderr = child.stderr.take().context("the server has no stderr")?;
        let (stderr, unread_stderr) = match setup.builder.stderr_is_unread {
            false => (Output::collect(stderr), None),
            true => (Output::collect(std::io::empty()), Some(stderr)),
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut process = Self { child, stdout, stderr, unread_stderr, address, status: None };
        match process.stdout.wait_for(Instant::now() + START_DEADLINE, listening_address) {
            Some(address) => {
                process.address = address;
                Ok(process)
            }
            None => Err(process.start_failure()),
        }
    }

    fn start_failure(&mut self) -> anyhow::Error {
        // The exit status of a server that ended by itself, or that of the kill.
        let end = self.kill().map_or_else(|error| error.to_string(), |status| status.to_string());
        self.stderr.ends_before(Instant::now() + START_DEADLINE);
        let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
        anyhow!("the server printed no `{LISTENING}ADDR:PORT` within {START_DEADLINE:?} ({end})\n{stdout}\n{stderr}")
    }

    fn kill(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        self.child.kill().context("the server cannot be killed")?;
        self.reap()
    }

    fn reap(&mut self) -> Result<ExitStatus> {
        let status = self.child.wait().context("the server's end cannot be awaited")?;
        self.status = Some(status);
        Ok(status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The error is ignored: a kill fails only if the child has ended already.
        let _ = self.kill();
    }
}

fn listening_address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(LISTENING)?;
    let end = rest.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

/// A running `leasehold serve` process. Dropping it kills the process.
#[derive(Debug)]
pub struct Server {
    process: Process,
    setup: Setup,
    _scratch: TempDir,
}

impl Server {
    /// Starts a server with the cells [`DEVELOPMENT_CELLS`] and a new data directory.
    ///
    /// # Errors
    /// See [`Builder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// Starts a server as [`start`](Self::start) does, which has the same address after a restart, so that clients
    /// find it again.
    ///
    /// # Errors
    /// See [`Builder::start`].
    pub fn restartable() -> Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        Self::builder().listen(format!("127.0.0.1:{port}")).start()
    }

    /// Returns the default setup of a test server: the cells [`DEVELOPMENT_CELLS`] and a new
    /// data directory.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the TCP address on which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.process.address
    }

    /// Returns the process id of the server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Returns the path of the server's data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.setup.data
    }

    /// Returns the path of the server's configuration file.
    #[must_use]
    pub fn config_path(&self) -> &Path {
        &self.setup.config
    }

    /// Writes another text into the server's configuration file, whole.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_config(&self, text: &str) -> Result<()> {
        std::fs::write(&self.setup.config, text).context("the configuration file cannot be written")
    }

    /// Returns the standard output that the server has written since its last start.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.process.stdout.text()
    }

    /// Returns the standard error that the server has written since its last start.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.process.stderr.text()
    }

    /// Waits until the server has written `expected` to its standard error, since a thread of its
    /// own writes the log: an answer may come before the line about it. Returns whether it has.
    #[must_use]
    pub fn has_logged(&self, expected: &str) -> bool {
        self.process.stderr.await_text(expected)
    }

    /// Begins to read the standard error of a server that was started with
    /// [`Builder::leave_stderr_unread`].
    pub fn read_stderr(&mut self) {
        if let Some(stderr) = self.process.unread_stderr.take() {
            self.process.stderr = Output::collect(stderr);
        }
    }

    /// Kills the server by SIGKILL, so that it cannot clean up. Returns the exit status.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn kill_9(&mut self) -> Result<ExitStatus> {
        self.process.kill()
    }

    /// Sends SIGTERM to the server, and waits for the end of the process. Returns the exit status.
    ///
    /// # Errors
    /// The server does not stop in time, and is killed.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.process.status {
            return Ok(status);
        }
        self.signal(Signal::SIGTERM)?;
        self.wait()
    }

    /// Suspends the server with SIGSTOP. It answers no call until it gets SIGCONT.
    ///
    /// # Errors
    /// The signal cannot be sent, or the process does not stop in time.
    pub fn suspend(&self) -> Result<()> {
        suspend(&[self.process_id()?])
    }

    /// Sends a signal to the server's process.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.process_id()?, signal).context("the server cannot be signalled")
    }

    fn process_id(&self) -> Result<Pid> {
        let pid = i32::try_from(self.pid()).context("the process id is out of range")?;
        Ok(Pid::from_raw(pid))
    }

    /// Waits until the server's process ends. Returns the exit status.
    ///
    /// # Errors
    /// The server does not stop in time, and is killed.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        // The end of the process closes its output streams. A test can wait for a stream with a
        // deadline, but not in `Child::wait`.
        if !self.process.stdout.ends_before(Instant::now() + STOP_DEADLINE) {
            self.process.kill()?;
            bail!("the server does not stop within {STOP_DEADLINE:?}, stderr:\n{}", self.stderr());
        }
        let status = self.process.reap()?;
        self.process.stderr.ends_before(Instant::now() + STOP_DEADLINE);
        Ok(status)
    }

    /// Kills the server if it runs, and starts it again on the same data. Its port may change.
    ///
    /// # Errors
    /// See [`Builder::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.kill_9()?;
        self.process = Process::start(&self.setup)?;
        Ok(())
    }

    /// Returns the server's address as a tonic endpoint. The endpoint uses TLS if `tls` is given.
    ///
    /// # Errors
    /// The TLS configuration is invalid.
    pub fn endpoint(&self, tls: Option<ClientTlsConfig>) -> Result<Endpoint> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.address()))?;
        Ok(match tls {
            Some(tls) => endpoint.tls_config(tls)?,
            None => endpoint,
        })
    }

    /// Opens a gRPC channel to the server. The channel uses TLS if `tls` is given.
    ///
    /// # Errors
    /// No connection can be made.
    pub async fn connect(&self, tls: Option<ClientTlsConfig>) -> Result<Channel> {
        Ok(self.endpoint(tls)?.connect().await?)
    }

    /// Opens a channel to the server, and returns a generated client of its claim service on the
    /// channel.
    ///
    /// # Errors
    /// No connection can be made.
    pub async fn claims(&self, tls: Option<ClientTlsConfig>) -> Result<ClaimServiceClient<Channel>> {
        Ok(ClaimServiceClient::new(self.connect(tls).await?))
    }

    /// Opens a channel to the server, and returns a generated client of its classify service on the
    /// channel.
    ///
    /// # Errors
    /// No connection can be made.
    pub async fn classify(&self, tls: Option<ClientTlsConfig>) -> Result<ClassifyServiceClient<Channel>> {
        Ok(ClassifyServiceClient::new(self.connect(tls).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_at_any_position_of_a_line() {
        let address: SocketAddr = "127.0.0.1:4242".parse().unwrap();
        for line in ["listening on 127.0.0.1:4242\n", "leasehold is listening on 127.0.0.1:4242, data in /d\n"] {
            assert_eq!(listening_address(line), Some(address));
        }
        assert_eq!(listening_address("listening on the loopback\n"), None);
    }

    #[test]
    fn the_binary_is_distinguished_from_its_unit_tests_and_from_others() {
        let line = |name: &str, test: bool| {
            let target = serde_json::json!({"target": {"name": name}, "profile": {"test": test}, "executable": "/x"});
            target.to_string().into_bytes()
        };
        assert_eq!(executable(&line("leasehold", false)), Some(PathBuf::from("/x")));
        assert_eq!(executable(&line("leasehold", true)), None);
        assert_eq!(executable(&line("xtask", false)), None);
        assert_eq!(executable(b"not json"), None);
    }

    #[test]
    fn output_is_collected_and_its_end_is_noticed() {
        let output = Output::collect(&b"one\ntwo"[..]);
        let deadline = Instant::now() + START_DEADLINE;
        assert_eq!(output.wait_for(deadline, |line| (line == "two").then_some(2)), Some(2));
        assert!(output.ends_before(deadline));
        assert_eq!(output.text(), "one\ntwo");
    }
}

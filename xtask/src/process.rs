//! Child processes that never live longer than this process.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};

/// The time that a process gets to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// The unit of processor times in `/proc`, which is the same on all of Linux's common architectures
/// (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// The exit code of this program after Ctrl-C: a shell reports the same code.
const INTERRUPTED: u8 = 130;

/// Returns the root directory of the project.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the directory into which cargo builds the project.
pub fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Returns the names of the environment variables with which cargo describes the running package,
/// and the output of its build script. A nested cargo must not have them: build scripts would see a
/// change, and run again.
pub fn package_variables() -> impl Iterator<Item = String> {
    let describes_package =
        |name: &String| name == "OUT_DIR" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(describes_package)
}

/// Returns a command without the variables of [`package_variables`], so that the program runs as if
/// a person had called it.
pub fn as_a_person(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in package_variables() {
        command.env_remove(name);
    }
    command
}

/// Runs `work` to its end, or to the first SIGINT or SIGTERM. Prints an error of `work`, and
/// returns the exit code for the program.
pub async fn until_interrupted(work: impl Future<Output = Result<()>>) -> ExitCode {
    tokio::select! {
        outcome = work => match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
        // Dropping `work` ends the processes that it started.
        _ = interrupted() => ExitCode::from(INTERRUPTED),
    }
}

/// Returns at the first SIGINT or SIGTERM.
async fn interrupted() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

/// Reads the processor time from the text of `/proc/ID/stat` (proc_pid_stat(5)): in user and in kernel
/// mode, the fields 14 and 15. The second field, the program's name in brackets, may have spaces.
fn ticks(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut times = after_name.split_whitespace().skip(11).map(str::parse::<u32>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

/// A child process that leads its own process group. If this is dropped before the child has ended,
/// the whole group is killed.
pub struct Group {
    child: Child,
    name: String,
}

impl Group {
    /// Starts `command` as the leader of a new process group.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let name = command.as_std().get_program().to_string_lossy().into_owned();
        let child = command.process_group(0).spawn().with_context(|| format!("cannot start `{name}`"))?;
        Ok(Self { child, name })
    }

    /// Waits until the leader ends, and returns its exit status.
    ///
    /// # Errors
    /// The operating system refuses to wait.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().await.with_context(|| format!("cannot wait for `{}`", self.name))
    }

    /// Sends SIGTERM to the leader, waits for it, and kills the group if it has not ended within the grace period.
    ///
    /// # Errors
    /// The operating system refuses to signal or to wait.
    pub async fn stop(mut self) -> Result<()> {
        if let Some(leader) = self.leader() {
            kill(leader, Signal::SIGTERM).with_context(|| format!("cannot end `{}`", self.name))?;
        }
        if let Ok(ended) = tokio::time::timeout(GRACE, self.wait()).await {
            ended?;
        }
        Ok(())
    }

    /// Kills the whole process group at once, and waits for the leader.
    ///
    /// # Errors
    /// The operating system refuses to signal or to wait.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some(leader) = self.leader() {
            killpg(leader, Signal::SIGKILL).with_context(|| format!("cannot kill `{}`", self.name))?;
        }
        self.wait().await.map(drop)
    }

    /// Returns the leader's resident memory in megabytes, read from `/proc`.
    ///
    /// # Errors
    /// The leader has ended.
    pub fn resident_megabytes(&self) -> Result<f64> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no `VmRSS` in the status")?;
        let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse().context("`VmRSS` is not a number")?;
        Ok(kibibytes * 1024.0 / 1e6)
    }

    /// Returns the processor time that all threads of the leader have used, read from `/proc`.
    ///
    /// # Errors
    /// The leader has ended.
    pub fn processor_time(&self) -> Result<Duration> {
        let stat = self.read("stat")?;
        ticks(&stat).map(|ticks| TICK * ticks).context("no processor time in the status")
    }

    /// Returns the bytes that the leader has written to disks, read from `/proc`.
    ///
    /// # Errors
    /// The leader has ended, or belongs to another user.
    pub fn written_bytes(&self) -> Result<u64> {
        let io = self.read("io")?;
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes:")).context("no `write_bytes`")?;
        line.trim().parse().context("`write_bytes` is not a number")
    }

    /// Reads a file about the leader in `/proc`.
    fn read(&self, name: &str) -> Result<String> {
        let id = self.leader().with_context(|| format!("`{}` has ended", self.name))?;
        let path = format!("/proc/{id}/{name}");
        std::fs::read_to_string(&path).with_context(|| format!("cannot read `{path}`"))
    }

    /// Takes the pipe of the leader's standard output; `None` if the output was not piped, or was
    /// taken already.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Returns the id of the leader, which is also that of its group; `None` after the leader has
    /// ended, because the id may be reused.
    fn leader(&self) -> Option<Pid> {
        self.child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.leader()
            && let Err(error) = killpg(leader, Signal::SIGKILL)
        {
            eprintln!("warning: cannot end `{}`: {error}", self.name);
        }
    }
}

/// Runs a command to its end, with empty standard input.
///
/// # Errors
/// The command cannot be started, or fails. The message names the program.
pub async fn run(command: &mut Command) -> Result<()> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let status = Group::start(command.stdin(Stdio::null()))?.wait().await?;
    ensure!(status.success(), "`{name}` failed: {status}");
    Ok(())
}

/// Runs a command to its end, with empty standard input, and returns its standard output. What it writes to standard error
/// is seen at once: tokio's `Command::output` would take that too.
///
/// # Errors
/// The command cannot be started.
pub async fn output(command: &mut Command) -> Result<Output> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let child = command.spawn().with_context(|| format!("cannot start `{name}`"))?;
    child.wait_with_output().await.with_context(|| format!("cannot read what `{name}` prints"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::process::Stdio;

    use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

    use super::*;

    /// Starts a shell whose child keeps standard output open for ten minutes.
    fn shell_with_a_child() -> Group {
        let script = "sleep 600 & echo started; wait";
        Group::start(Command::new("sh").args(["-c", script]).stdout(Stdio::piped())).unwrap()
    }

    #[tokio::test]
    async fn a_dropped_group_leaves_no_grandchild() {
        let mut group = shell_with_a_child();
        let mut output = BufReader::new(group.take_stdout().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).await.unwrap();
        assert_eq!(line, "started\n");
        drop(group);
        let closed = tokio::time::timeout(Duration::from_secs(60), output.read_to_string(&mut line)).await;
        assert_eq!(closed.unwrap().unwrap(), 0, "the output closes once every process that holds it has ended");
    }

    #[test]
    fn the_processor_time_is_read_behind_a_name_with_spaces() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 3 4 20 0 1";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[tokio::test]
    async fn the_output_has_no_errors_which_are_seen_at_once() {
        let printed = output(Command::new("sh").args(["-c", "echo result; echo trouble >&2"])).await.unwrap();
        assert_eq!((&*printed.stdout, &*printed.stderr), (&b"result\n"[..], &b""[..]));
    }

    #[tokio::test]
    async fn stop_lets_the_process_end_in_its_own_way() {
        let script = "trap 'echo ended; exit' TERM; echo started; while :; do read -r line; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut group = Group::start(&mut command).unwrap();
        let mut output = BufReader::new(group.take_stdout().unwrap());
        let mut lines = String::new();
        output.read_line(&mut lines).await.unwrap();
        group.stop().await.unwrap();
        output.read_to_string(&mut lines).await.unwrap();
        assert_eq!(lines, "started\nended\n");
    }
}

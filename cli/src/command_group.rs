//! A command that runs in a process group of its own, with all processes that it starts. Some of
//! them leave the group, as those under `timeout` and `setsid` do; on Linux they are found by their
//! parents.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid};
use tokio::sync::oneshot;

/// The time after which processes that are not dead yet are killed again.
const KILL_AGAIN: Duration = Duration::from_millis(50);

/// A running command with the processes that it starts.
pub(crate) struct CommandGroup {
    group: Pid,
    end: oneshot::Receiver<ExitStatus>,
}

impl CommandGroup {
    /// Starts a command in a new process group.
    ///
    /// On Linux this process adopts every process that the command leaves behind, so that
    /// [`ended`](Self::ended) waits for these as well.
    ///
    /// # Errors
    /// The command could not be started.
    pub(crate) fn start(command: &[OsString], environment: Vec<(&str, String)>) -> io::Result<Self> {
        let [program, arguments @ ..] = command else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no command"));
        };
        #[cfg(target_os = "linux")]
        nix::sys::prctl::set_child_subreaper(true)?;
        let child = Command::new(program).args(arguments).envs(environment).process_group(0).spawn()?;
        // INVARIANT: process ids of the operating system fit into its own type of them.
        let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        let (sender, end) = oneshot::channel();
        std::thread::Builder::new().name("children".into()).spawn(move || {
            // The send fails if nobody waits any more.
            let _ = sender.send(wait_for_all(group));
        })?;
        Ok(Self { group, end })
    }

    /// Sends a signal to every process of the command. Those that have ended get none.
    pub(crate) fn signal(&self, signal: Signal) {
        // The call fails if the group has ended.
        let _ = killpg(self.group, signal);
        let has_left = |pid: &Pid| getpgid(Some(*pid)).is_ok_and(|group| group != self.group);
        descendants().into_iter().filter(has_left).for_each(|pid| _ = kill(pid, signal));
    }

    /// Kills every process of the command, and waits for their end. Returns the exit status of the
    /// command.
    pub(crate) async fn killed(&mut self) -> ExitStatus {
        loop {
            self.signal(Signal::SIGKILL);
            // A process may have started another one while the processes were listed.
            if let Ok(status) = tokio::time::timeout(KILL_AGAIN, self.ended()).await {
                return status;
            }
        }
    }

    /// Waits until the command and all processes that it left behind have ended. Returns the exit
    /// status of the command.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        // INVARIANT: the thread sends before it ends.
        (&mut self.end).await.unwrap_or_default()
    }
}

/// Returns the processes that this process has started, and that these have started. Empty where
/// there is no `/proc`.
fn descendants() -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let parent_of = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may have any character. The state and the parent follow it.
        stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse::<i32>().ok()
    };
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: Vec<(i32, i32)> = ids.filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let children_of = |parent: i32| parents.iter().filter(move |(_, of)| *of == parent).map(|(pid, _)| *pid);
    let mut found: Vec<i32> = children_of(Pid::this().as_raw()).collect();
    let mut seen = 0;
    while let Some(parent) = found.get(seen) {
        let children: Vec<i32> = children_of(*parent).collect();
        found.extend(children);
        seen += 1;
    }
    found.into_iter().map(Pid::from_raw).collect()
}

/// Waits for all children of this process. Returns the status of the child `main`.
fn wait_for_all(main: Pid) -> ExitStatus {
    let mut status = ExitStatus::default();
    loop {
        match waitpid(None::<Pid>, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == main => status = ExitStatus::from_raw(code << 8),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == main => status = ExitStatus::from_raw(signal as i32),
            Ok(_) | Err(Errno::EINTR) => {}
            // No child is left.
            Err(_) => return status,
        }
    }
}

/// Returns the exit code for an exit status, as shells give it: the code of the command, or 128 and
/// the number of the signal that ended it.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(crate::exit::FAILURE)
}

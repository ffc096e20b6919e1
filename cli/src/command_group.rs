//! A command that runs in a process group of its own, with all processes that it starts.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::sync::oneshot;

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
    pub(crate) fn start(command: &[OsString], environment: [(&str, String); 2]) -> io::Result<Self> {
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

    /// Sends a signal to every process of the group. A group that has ended gets none.
    pub(crate) fn signal(&self, signal: Signal) {
        // The call fails if the group has ended.
        let _ = killpg(self.group, signal);
    }

    /// Waits until the command and all processes that it left behind have ended. Returns the exit
    /// status of the command.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        // INVARIANT: the thread sends before it ends.
        (&mut self.end).await.unwrap_or_default()
    }
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

//! A command that runs in a process group of its own, with all processes that it starts. Some of
//! them leave the group, as those under `timeout` and `setsid` do; on Linux they are found by their
//! parents.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid};
use tokio::sync::mpsc;

use crate::terminal::{Foreground, suspend_this_job};
use crate::variables;

/// The time after which processes that are not dead yet are killed again.
const KILL_AGAIN: Duration = Duration::from_millis(50);

/// A running command with the processes that it starts.
pub(crate) struct CommandGroup {
    group: Pid,
    events: mpsc::UnboundedReceiver<CommandEvent>,
    // The terminal of the command, if it has one in the foreground.
    foreground: Option<Foreground>,
}

/// An event of a command.
pub(crate) enum CommandEvent {
    /// The user of its terminal has suspended it, by Ctrl-Z.
    Suspended,
    /// It has ended with all processes that it left behind.
    Ended(ExitStatus),
}

impl CommandGroup {
    /// Starts a command in a new process group. It reads `input` from its standard input, or what this process
    /// would read.
    ///
    /// On Linux this process adopts every process that the command leaves behind, so that
    /// [`ended`](Self::ended) waits for these as well.
    ///
    /// # Errors
    /// The command could not be started.
    pub(crate) fn start(
        command: &[OsString],
        environment: Vec<(&str, String)>,
        input: Option<Vec<u8>>,
    ) -> io::Result<Self> {
        let [program, arguments @ ..] = command else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no command"));
        };
        #[cfg(target_os = "linux")]
        nix::sys::prctl::set_child_subreaper(true)?;
        let mut command = Command::new(program);
        variables::OWN.iter().for_each(|name| _ = command.env_remove(name));
        if input.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.args(arguments).envs(environment).process_group(0).spawn()?;
        if let Some((mut pipe, input)) = child.stdin.take().zip(input) {
            // The command may read late or never, so nobody waits for it. A write fails once it has ended.
            std::thread::Builder::new().name("input".into()).spawn(move || _ = pipe.write_all(&input))?;
        }
        // INVARIANT: process ids of the operating system fit into its own type of them.
        let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        let (sender, events) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("children".into()).spawn(move || {
            // A send fails if nobody waits any more.
            let status = wait_for_all(group, || _ = sender.send(CommandEvent::Suspended));
            let _ = sender.send(CommandEvent::Ended(status));
        })?;
        let mut started = Self { group, events, foreground: None };
        started.resume();
        Ok(started)
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> CommandEvent {
        // INVARIANT: the thread sends an end before it ends itself.
        self.events.recv().await.unwrap_or(CommandEvent::Ended(ExitStatus::default()))
    }

    /// Suspends this process together with its suspended command. Returns once the user lets the job go
    /// on. The command is still suspended then.
    pub(crate) async fn suspend_with(&mut self) -> io::Result<()> {
        // Ctrl-Z does not reach processes that have left the group, and the others may go on already.
        self.send(Signal::SIGSTOP);
        self.foreground = None;
        suspend_this_job().await
    }

    /// Gives the command the terminal if this process has it, and lets the command go on.
    pub(crate) fn resume(&mut self) {
        self.foreground = Foreground::give(self.group);
        // The command may have asked for the terminal already, and have been stopped for it.
        self.send(Signal::SIGCONT);
    }

    /// True if the command was given the terminal of this process.
    pub(crate) fn has_terminal(&self) -> bool {
        self.foreground.is_some()
    }

    /// Sends a signal to every process of the command, and lets those go on that were stopped. They would
    /// not act on the signal before. Those that have ended get none.
    pub(crate) fn signal(&self, signal: Signal) {
        self.send(signal);
        self.send(Signal::SIGCONT);
    }

    fn send(&self, signal: Signal) {
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
        loop {
            if let CommandEvent::Ended(status) = self.next().await {
                return status;
            }
        }
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

/// Waits for all children of this process, and calls `suspended` when a terminal suspends the child
/// `main`. Returns the status of this child.
fn wait_for_all(main: Pid, suspended: impl Fn()) -> ExitStatus {
    let mut status = ExitStatus::default();
    loop {
        match waitpid(None::<Pid>, Some(WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Stopped(pid, Signal::SIGTSTP)) if pid == main => suspended(),
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

//! Suspends processes with SIGSTOP, for tests of servers that hang.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const DEADLINE: Duration = Duration::from_secs(60);

/// Suspends the processes with these ids until they get SIGCONT. Returns when every thread has
/// stopped: a thread could still answer a call for a moment after the signal. Ended processes are
/// ignored.
///
/// # Errors
/// A signal cannot be sent, or a process does not stop in time.
pub fn suspend(pids: &[Pid]) -> Result<()> {
    for pid in pids {
        match kill(*pid, Signal::SIGSTOP) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error).context("a process cannot be suspended"),
        }
    }
    let deadline = Instant::now() + DEADLINE;
    while pids.iter().any(|pid| runs(*pid)) {
        ensure!(Instant::now() < deadline, "the processes {pids:?} are not suspended within {DEADLINE:?}");
        std::thread::yield_now();
    }
    Ok(())
}

/// Returns true if a thread of the process is neither stopped nor ended. The thread's state follows
/// the name in parentheses in `/proc/PID/task/TID/stat`, see proc(5).
fn runs(pid: Pid) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    stats.into_iter().any(|stat| stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['T', 'Z', 'X'])))
}

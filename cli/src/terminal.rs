//! The terminal of a command: its process group has the foreground, as a job of a shell does. So the
//! command can read what its user types, and Ctrl-C, Ctrl-\\ and Ctrl-Z reach it.

use std::fs::File;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use tokio::signal::unix::{SignalKind, signal};

/// The longest time from the signal that suspends this process until the signal takes effect.
const SUSPENDED_WITHIN: Duration = Duration::from_millis(100);

/// The foreground of the terminal, which a process group has until this is dropped.
pub(crate) struct Foreground {
    terminal: File,
    former: Pid,
}

impl Foreground {
    /// Gives the foreground to a process group. Returns `None` if this process has no terminal, or is in
    /// the background.
    pub(crate) fn give(group: Pid) -> Option<Self> {
        let terminal = File::open("/dev/tty").ok()?;
        let former = getpgrp();
        let has_foreground = tcgetpgrp(&terminal).is_ok_and(|foreground| foreground == former);
        (has_foreground && set(&terminal, group).is_ok()).then_some(Self { terminal, former })
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        // The call fails if the terminal is closed.
        let _ = set(&self.terminal, self.former);
    }
}

/// Sets the foreground, from whichever process group. The signal that would stop a background process
/// for it is blocked meanwhile.
fn set(terminal: &File, group: Pid) -> nix::Result<()> {
    let blocked = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let result = tcsetpgrp(terminal, group);
    blocked.thread_set_mask()?;
    result
}

/// Suspends this process with all of its job, as Ctrl-Z does. Returns when it goes on, or soon if no
/// shell could let it go on.
pub(crate) async fn suspend_this_job() -> std::io::Result<()> {
    let mut goes_on = signal(SignalKind::from_raw(Signal::SIGCONT as i32))?;
    killpg(getpgrp(), Signal::SIGTSTP)?;
    let _ = tokio::time::timeout(SUSPENDED_WITHIN, goes_on.recv()).await;
    Ok(())
}

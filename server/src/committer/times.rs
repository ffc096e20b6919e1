//! The times of a command in the committer, for calls that are traced.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The times of one command in the committer.
#[derive(Clone, Copy, Debug)]
pub struct CommandTimes {
    /// The time from the command's arrival until its group was taken from the queue.
    pub queue_wait: Duration,
    /// The time that the store took to load the rows of the group and to commit it, over all
    /// attempts.
    pub store_time: Duration,
    /// The number of commands in the group.
    pub group: usize,
}

/// The slot into which the committer puts the times of one command.
pub type TimesSlot = Arc<OnceLock<CommandTimes>>;

tokio::task_local! {
    /// The slot for the times of the current task's command, set if the call is traced. The slot is
    /// local to the task, so handlers need not pass it on.
    pub static TIMES: TimesSlot;
}

/// A command whose times are wanted.
pub(super) struct Timed {
    arrived: Instant,
    slot: TimesSlot,
}

impl Timed {
    /// Starts the clock for a command that arrives now; `None` if the current task's call is not
    /// traced.
    pub(super) fn of_current_task() -> Option<Self> {
        let slot = TIMES.try_with(Arc::clone).ok()?;
        Some(Self { arrived: Instant::now(), slot })
    }

    /// Puts the times of the command into its slot. The group of the command was taken at `taken`,
    /// and is committed now.
    pub(super) fn committed(&self, taken: Instant, group: usize) {
        let (queue_wait, store_time) = (taken.duration_since(self.arrived), taken.elapsed());
        // INVARIANT: a call has one command, so the slot is empty and `set` succeeds.
        let _ = self.slot.set(CommandTimes { queue_wait, store_time, group });
    }
}

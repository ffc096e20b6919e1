//! The times of a command in the committer, for calls that are traced.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The times of one command in the committer.
#[derive(Clone, Copy, Debug)]
pub struct CommandTimes {
    /// The time from the command's arrival until its group was taken from the queue.
    pub queue_wait: Duration,
    /// The time in which the store loaded the rows of the group and committed it, with all attempts.
    pub store_time: Duration,
    /// The number of commands in the group.
    pub group: usize,
}

/// The place where the committer leaves the times of a command.
pub type TimesSlot = Arc<OnceLock<CommandTimes>>;

tokio::task_local! {
    /// The place for the times of the current task's command, if its call is traced. Like the
    /// current span of a tracer it belongs to the task, so no handler needs to know of traces.
    pub static TIMES: TimesSlot;
}

/// A command whose times are wanted.
pub(super) struct Timed {
    arrived: Instant,
    slot: TimesSlot,
}

impl Timed {
    /// Starts the time of a command that arrives now; `None` if the current task is not traced.
    pub(super) fn of_current_task() -> Option<Self> {
        let slot = TIMES.try_with(Arc::clone).ok()?;
        Some(Self { arrived: Instant::now(), slot })
    }

    /// Leaves the times of a command whose group was taken at `taken`, and is committed now.
    pub(super) fn committed(&self, taken: Instant, group: usize) {
        let (queue_wait, store_time) = (taken.duration_since(self.arrived), taken.elapsed());
        // A call has one command, so the place is empty.
        let _ = self.slot.set(CommandTimes { queue_wait, store_time, group });
    }
}

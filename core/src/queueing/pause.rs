//! Pauses a queue or a lane, and resumes it.

use super::draft::Draft;
use crate::queue::{Lane, LanePath, Queue, QueuePath};
use crate::time::Timestamp;
use crate::transaction::Transaction;

/// A part of a queue that an operator pauses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseScope {
    /// All lanes of a queue.
    Queue(QueuePath),
    /// One lane.
    Lane(LanePath),
}

/// The command to pause or to resume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The queue or the lane.
    pub scope: PauseScope,
    /// True to pause, false to resume.
    pub is_paused: bool,
}

/// Pauses a queue or a lane, or resumes it (Q19). A lane that is paused, or whose queue is, takes requests in and is
/// not taken. What is taken already goes on. A lane is resumed by its own command alone. Returns true if the command
/// changed something.
///
/// # Errors
/// The store failed.
pub fn pause<T: Transaction>(tx: &mut T, command: &Pause, now: Timestamp) -> Result<bool, T::Error> {
    match &command.scope {
        PauseScope::Queue(path) => pause_queue(tx, path, command.is_paused, now),
        PauseScope::Lane(path) => pause_lane(tx, path, command.is_paused, now),
    }
}

fn pause_queue<T: Transaction>(
    tx: &mut T,
    path: &QueuePath,
    is_paused: bool,
    now: Timestamp,
) -> Result<bool, T::Error> {
    let queue = tx.row::<Queue>(path)?.copied().unwrap_or_default();
    if queue.is_paused == is_paused {
        return Ok(false);
    }
    let mut draft = Draft::new(now);
    draft.put_queue(path, Queue { is_paused, ..queue });
    draft.write(tx)?;
    Ok(true)
}

fn pause_lane<T: Transaction>(tx: &mut T, path: &LanePath, is_paused: bool, now: Timestamp) -> Result<bool, T::Error> {
    let lane = tx.row::<Lane>(path)?;
    if lane.is_some_and(|lane| lane.is_paused) == is_paused {
        return Ok(false);
    }
    let lane = lane.cloned().unwrap_or_else(|| Lane::new(now));
    let mut draft = Draft::new(now);
    draft.put_lane(path, Lane { is_paused, ..lane });
    draft.write(tx)?;
    Ok(true)
}

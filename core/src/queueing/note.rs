//! Notes the progress of a worker.

use super::Worker;
use super::draft::Draft;
use super::settle::held;
use crate::lease::Fence;
use crate::locking::own_session;
use crate::queue::{Lane, LanePath, Note, Progress};
use crate::time::Timestamp;
use crate::transaction::Transaction;
use crate::update::Answer;

/// The command to note the progress on the requests that were taken from a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteProgress {
    /// The worker that took them.
    pub worker: Worker,
    /// The lane that the worker holds.
    pub lane: LanePath,
    /// The fence of the hold.
    pub fence: Fence,
    /// The note, which replaces the one before.
    pub progress: Progress,
}

/// Notes the progress of a worker, for the next one should this one fail (Q20). Returns true.
///
/// # Errors
/// The store failed. The inner error is a refusal: the session is unknown, another service's or ended, or the session
/// does not hold the lane under this fence.
pub fn note_progress<T: Transaction>(tx: &mut T, command: &NoteProgress, now: Timestamp) -> Answer<bool, T::Error> {
    let session = match own_session(tx, command.worker.session, &command.worker.principal)? {
        Ok(session) => session,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let lane = tx.row::<Lane>(&command.lane)?;
    let (lane, hold) = match held(lane, &command.worker, &session, command.fence) {
        Ok(held) => held,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let note = Some(Note { progress: command.progress.clone(), last_number: hold.last_number });
    let lane = Lane { note, ..lane.clone() };
    let mut draft = Draft::new(now);
    draft.put_lane(&command.lane, lane);
    draft.write(tx)?;
    Ok(Ok(true))
}

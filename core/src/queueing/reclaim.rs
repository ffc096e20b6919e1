//! Takes a lane back from a worker whose session has ended.

use super::draft::Draft;
use super::retry::Retry;
use crate::lease::Fence;
use crate::locking::refused;
use crate::queue::{HoldEnd, Lane, LaneHold, LanePath};
use crate::rejection::{Reason, Rejection};
use crate::session::{Session, SessionEnd, SessionState};
use crate::time::Timestamp;
use crate::transaction::Transaction;
use crate::update::Answer;

/// The command to take a lane back from a worker whose session has ended. A host proposes one for each lane that
/// [`taken_by`](super::reads::taken_by) finds, so the end of a session with many lanes is done in bounded steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaim {
    /// The lane that the worker held.
    pub lane: LanePath,
    /// The fence of the hold, so that a later hold is not ended by mistake.
    pub fence: Fence,
    /// The microseconds for which a host was awake and saw the session as ended. They count only if an operator
    /// evicted the session: its worker may still be at work.
    pub quiet_micros: u64,
    /// The time until the next attempt, if the request has one.
    pub retry: Retry,
}

/// Ends the hold of a worker that is gone. Its requests are new again, or end in error after the last attempt (Q03).
/// Returns true if the hold ended, false if an earlier run of the command ended it.
///
/// # Errors
/// The store failed. The inner error is a refusal: the lane is not held under this fence, the worker's session is live,
/// was evicted too lately, or the next attempt is too late.
pub fn reclaim<T: Transaction>(tx: &mut T, command: &Reclaim, now: Timestamp) -> Answer<bool, T::Error> {
    if let Err(refusal) = command.retry.check() {
        return Ok(Err(refusal));
    }
    let lane = tx.row::<Lane>(&command.lane)?;
    let held = lane.and_then(|lane| Some((lane, lane.hold()?)));
    let Some((lane, hold)) = held.filter(|(_, hold)| hold.fence == command.fence) else {
        let last = lane.and_then(|lane| lane.last.as_ref());
        let is_repeated = last.is_some_and(|last| (last.hold.fence, last.end) == (command.fence, HoldEnd::Lost));
        return Ok(if is_repeated { Ok(false) } else { Err(refused(Reason::FencePassed)) });
    };
    if let Err(refusal) = check_gone(tx.row::<Session>(&hold.session)?, hold, command.quiet_micros) {
        return Ok(Err(refusal));
    }
    let mut draft = Draft::new(now);
    draft.end_hold(tx, (&command.lane, lane, hold), HoldEnd::Lost, command.retry)?;
    draft.write(tx)?;
    Ok(Ok(true))
}

/// Checks that the worker can't believe any more that it holds the lane. A session that closed or expired is over. One
/// that was evicted may be at work for a while, and one that is forgotten may have been evicted.
fn check_gone(session: Option<&Session>, hold: &LaneHold, quiet_micros: u64) -> Result<(), Rejection> {
    match session.map(|session| session.state) {
        Some(SessionState::Live) => Err(refused(Reason::SessionAlive)),
        Some(SessionState::Ended(SessionEnd::Closed | SessionEnd::Expired)) => Ok(()),
        Some(SessionState::Ended(SessionEnd::Evicted)) | None if quiet_micros >= hold.withholding_micros => Ok(()),
        Some(SessionState::Ended(SessionEnd::Evicted)) | None => Err(refused(Reason::LockWithheld)),
    }
}

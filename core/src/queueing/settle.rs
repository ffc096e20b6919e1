//! Settles the requests that a worker has taken: completes them, fails them or gives them back.

use super::Worker;
use super::draft::Draft;
use super::retry::Retry;
use crate::lease::Fence;
use crate::locking::{own_session, refused};
use crate::queue::{HoldEnd, Lane, LaneHold, LanePath};
use crate::rejection::{Reason, Rejection};
use crate::session::Session;
use crate::time::Timestamp;
use crate::transaction::Transaction;
use crate::update::Answer;

/// The outcome of the work on the requests that were taken as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkOutcome {
    /// The work succeeded.
    Completed,
    /// The work failed.
    Failed {
        /// The time until the next attempt, if the request has one (Q13).
        retry: Retry,
    },
    /// The worker gives the requests back, and the attempt does not count (Q11).
    GivenBack,
}

impl WorkOutcome {
    fn end(self) -> HoldEnd {
        match self {
            Self::Completed => HoldEnd::Completed,
            Self::Failed { .. } => HoldEnd::Failed,
            Self::GivenBack => HoldEnd::GivenBack,
        }
    }

    fn retry(self) -> Retry {
        match self {
            Self::Failed { retry } => retry,
            Self::Completed | Self::GivenBack => Retry::After(0),
        }
    }
}

/// The command to settle the requests that were taken from a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettleWork {
    /// The worker that took them.
    pub worker: Worker,
    /// The lane that the worker holds.
    pub lane: LanePath,
    /// The fence of the hold.
    pub fence: Fence,
    /// The outcome of the work.
    pub outcome: WorkOutcome,
}

/// Settles all requests that were taken under a fence. Those that failed wait for their next attempt in their place
/// of the lane, or end in error after the last (Q13). Returns true if the hold ended, false if an earlier run of the
/// command ended it (Q10).
///
/// # Errors
/// The store failed. The inner error is a refusal: the session is unknown, another service's or ended, the session does
/// not hold the lane under this fence, or the next attempt is too late.
pub fn settle_work<T: Transaction>(tx: &mut T, command: &SettleWork, now: Timestamp) -> Answer<bool, T::Error> {
    let SettleWork { worker, lane: path, fence, outcome } = command;
    if let Err(refusal) = outcome.retry().check() {
        return Ok(Err(refusal));
    }
    let session = match own_session(tx, worker.session, &worker.principal)? {
        Ok(session) => session,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let row = tx.row::<Lane>(path)?;
    let (lane, hold) = match held(row, worker, &session, *fence) {
        Ok(held) => held,
        Err(_) if is_repeated(row, worker, *fence, outcome.end()) => return Ok(Ok(false)),
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut draft = Draft::new(now);
    draft.end_hold(tx, (path, lane, hold), outcome.end(), outcome.retry())?;
    draft.write(tx)?;
    Ok(Ok(true))
}

/// Returns a lane with its hold if a live session holds it under this fence.
pub(super) fn held<'a>(
    lane: Option<&'a Lane>,
    worker: &Worker,
    session: &Session,
    fence: Fence,
) -> Result<(&'a Lane, &'a LaneHold), Rejection> {
    if !session.is_live() {
        return Err(refused(Reason::SessionEnded));
    }
    let held = lane.and_then(|lane| Some((lane, lane.hold()?)));
    let is_meant = |hold: &LaneHold| (hold.session, hold.fence) == (worker.session, fence);
    held.filter(|(_, hold)| is_meant(hold)).ok_or_else(|| refused(Reason::FencePassed))
}

fn is_repeated(lane: Option<&Lane>, worker: &Worker, fence: Fence, end: HoldEnd) -> bool {
    let last = lane.and_then(|lane| lane.last.as_ref());
    last.is_some_and(|last| (last.hold.session, last.hold.fence, last.end) == (worker.session, fence, end))
}

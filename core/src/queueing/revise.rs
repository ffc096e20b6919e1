//! Withdraws a request that waits, and submits again one that failed.

use super::draft::Draft;
use crate::queue::{Lane, Request, RequestId, RequestState};
use crate::time::Timestamp;
use crate::transaction::{BrokenState, Transaction};
use crate::update::Answer;

/// The command to withdraw a request that no worker has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withdraw {
    /// The request to withdraw.
    pub request: RequestId,
}

/// The command to submit a request again that has failed for the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resubmit {
    /// The request to submit again.
    pub request: RequestId,
}

/// Withdraws a request that waits. Returns the state in which the command found the request, `None` if it has no row.
/// The request is withdrawn if it was [new](RequestState::New), and is left as it is otherwise.
///
/// # Errors
/// The store failed.
pub fn withdraw<T: Transaction>(
    tx: &mut T,
    command: &Withdraw,
    now: Timestamp,
) -> Result<Option<RequestState>, T::Error> {
    let Some(request) = tx.row::<Request>(&command.request)?.cloned() else { return Ok(None) };
    if !request.is_new() {
        return Ok(Some(request.state));
    }
    let mut lane = tx.row::<Lane>(&request.lane)?.ok_or(BrokenState::LaneMiscounts)?.clone();
    lane.waiting = lane.waiting.saturating_sub(1);
    lane.create = lane.create.filter(|create| *create != command.request);
    let mut draft = Draft::new(now);
    draft.changes.requests.push((command.request, None));
    draft.changes.bodies.push((command.request, None));
    match lane.hold() {
        Some(_) => draft.put_lane(&request.lane, lane),
        None => draft.rest(tx, &request.lane, lane)?,
    }
    draft.write(tx)?;
    Ok(Some(request.state))
}

/// Submits a failed request again, with all its attempts, at the end of its lane (Q13). Returns the state in which the
/// command found the request, `None` if it has no row. The request is submitted if it was in
/// [error](RequestState::Error), and is left as it is otherwise.
///
/// # Errors
/// The store failed. The inner error is a refusal: a limit is exceeded.
pub fn resubmit<T: Transaction>(
    tx: &mut T,
    command: &Resubmit,
    now: Timestamp,
) -> Answer<Option<RequestState>, T::Error> {
    let Some(request) = tx.row::<Request>(&command.request)?.cloned() else { return Ok(Ok(None)) };
    if request.state != RequestState::Error {
        return Ok(Ok(Some(request.state)));
    }
    // The lane may have been idle for so long that it is forgotten.
    let mut lane = tx.row::<Lane>(&request.lane)?.cloned().unwrap_or_else(|| Lane::new(now));
    let before = request.state;
    // The age of a request that failed long ago must not move the lane before those that have waited since.
    let mut request = Request { state: RequestState::New, attempts: 0, not_before: now, updated_at: now, ..request };
    if let Err(refusal) = lane.add(&mut request) {
        return Ok(Err(refusal));
    }
    let mut draft = Draft::new(now);
    draft.put_lane(&request.lane.clone(), lane);
    draft.changes.requests.push((command.request, Some(request)));
    draft.write(tx)?;
    Ok(Ok(Some(before)))
}

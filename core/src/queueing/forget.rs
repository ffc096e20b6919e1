//! Forgets settled requests and idle lanes, so that their rows do not stay for ever.

use super::draft::Draft;
use crate::queue::{Lane, LanePath, LaneState, Request, RequestId};
use crate::rows::Changes;
use crate::time::Timestamp;
use crate::transaction::Transaction;

/// The command to forget a settled request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForgetRequest {
    /// The request to forget.
    pub request: RequestId,
    /// The time before which the request must have been settled to be forgotten.
    pub settled_before: Timestamp,
}

/// The command to forget an idle lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgetLane {
    /// The lane to forget.
    pub lane: LanePath,
    /// The time before which the lane must have become idle to be forgotten.
    pub idle_before: Timestamp,
}

/// Forgets a request with its body if it was settled before `settled_before`. Returns true if it was forgotten. A create
/// of its resource is then the first again (Q09).
///
/// # Errors
/// The store failed.
pub fn forget_request<T: Transaction>(tx: &mut T, command: &ForgetRequest, now: Timestamp) -> Result<bool, T::Error> {
    let Some(request) = tx.row::<Request>(&command.request)? else { return Ok(false) };
    if !request.is_settled() || request.updated_at >= command.settled_before {
        return Ok(false);
    }
    let path = request.lane.clone();
    let mut draft = Draft::new(now);
    draft.changes.requests.push((command.request, None));
    draft.changes.bodies.push((command.request, None));
    if let Some(lane) = tx.row::<Lane>(&path)?.filter(|lane| lane.create == Some(command.request)) {
        let lane = Lane { create: None, ..lane.clone() };
        draft.put_lane(&path, lane);
    }
    draft.write(tx)?;
    Ok(true)
}

/// Forgets a lane if it became idle before `idle_before`, is not paused and its resource's create is forgotten. Returns
/// true if it was forgotten. Its next fence is still larger, since all lanes and locks take their fences from one
/// counter.
///
/// # Errors
/// The store failed.
pub fn forget_lane<T: Transaction>(tx: &mut T, command: &ForgetLane) -> Result<bool, T::Error> {
    let Some(lane) = tx.row::<Lane>(&command.lane)? else { return Ok(false) };
    let is_idle = lane.state == LaneState::Idle && lane.updated_at < command.idle_before;
    if !is_idle || lane.is_paused || lane.create.is_some() {
        return Ok(false);
    }
    let lanes = vec![(command.lane.clone(), None)];
    tx.write(Changes { lanes, ..Changes::default() })?;
    Ok(true)
}

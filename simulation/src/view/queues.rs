//! The queue and its fronts in the form that a page draws.

use leasehold_core::queue::{Lane, LaneState};
use leasehold_core::table::RequestStatus;
use serde::Serialize;

use crate::front::{Front, SubmitResult};
use crate::lock_names::cell_of;
use crate::message_text::request_text;
use crate::queue_message::WorkKind;
use crate::queue_names::{lane_key, request_number};
use crate::view::variant_name;
use crate::world::{LockWorld, World};

/// A lane of the queue and the resource that it is about, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaneView {
    /// The key of the lane.
    pub lane: String,
    /// The state of the lane: `idle`, `ready`, `delayed` or `taken`.
    pub status: &'static str,
    /// The number of the cell whose client has the lane, `None` if none has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<u8>,
    /// The fence of the hold, `None` if the lane is not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The number of requests that wait.
    pub waiting: u32,
    /// The newest fence that the resource has seen, `None` before the first write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest_fence: Option<u64>,
    /// The number of writes that the resource has accepted.
    pub writes: u32,
    /// The number of writes that the resource has refused.
    pub refused: u32,
}

/// A request of the queue, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestView {
    /// The number of the request among all requests of the world.
    pub number: u32,
    /// The key of the request's lane.
    pub lane: String,
    /// The kind of the request.
    pub kind: WorkKind,
    /// The status of the request, as the engine's table names it.
    pub status: String,
    /// The number of attempts so far.
    pub attempts: u32,
    /// The largest number of attempts.
    pub max_attempts: u32,
}

/// The front of a cell, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FrontView {
    /// The request that the front submits in a few words, `None` while it is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submits: Option<String>,
    /// True if the front waits for the answer to its submit.
    pub is_waiting: bool,
    /// The result of the last submit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told: Option<SubmitResult>,
}

/// Returns the lanes of a world, none in a world of locks.
pub(super) fn lanes(world: &World, locks: &LockWorld) -> Vec<LaneView> {
    (0..locks.terms.lanes).map(|number| lane(world, locks, number)).collect()
}

fn lane(world: &World, locks: &LockWorld, number: u8) -> LaneView {
    let rows = || world.service().lanes().into_iter().filter(|(path, _)| locks.queue.number(path) == Some(number));
    let row = locks.queue.path(number).and_then(|path| world.service().lane(path));
    let hold = rows().find_map(|(_, lane)| lane.hold());
    let resource = locks.resources.all().get(usize::from(number)).copied().unwrap_or_default();
    LaneView {
        lane: lane_key(number).to_owned(),
        status: lane_status(world, row),
        holder: hold.map(|hold| cell_of(hold.session)),
        fence: hold.map(|hold| hold.fence.0),
        waiting: rows().map(|(_, lane)| lane.waiting).sum(),
        newest_fence: resource.newest.map(|newest| newest.fence.0),
        writes: resource.writes,
        refused: resource.refused,
    }
}

fn lane_status(world: &World, lane: Option<&Lane>) -> &'static str {
    match lane.map(|lane| &lane.state) {
        None | Some(LaneState::Idle) => "idle",
        Some(LaneState::Taken(_)) => "taken",
        Some(LaneState::Waiting(head)) if head.not_before > world.wall_clock() => "delayed",
        Some(LaneState::Waiting(_)) => "ready",
    }
}

/// Returns the requests of a world, none in a world of locks.
pub(super) fn requests(world: &World, locks: &LockWorld) -> Vec<RequestView> {
    let view = |(id, row): (_, &leasehold_core::queue::Request)| {
        let number = request_number(id);
        let kind = locks.truth.request(number).map_or(WorkKind::Update, |truth| truth.kind);
        RequestView {
            number,
            lane: locks.queue.number(&row.lane).map(lane_key).unwrap_or_default().to_owned(),
            kind,
            status: variant_name(&RequestStatus::of(Some(row))),
            attempts: row.attempts,
            max_attempts: row.max_attempts,
        }
    };
    world.service().requests().into_iter().map(|(id, row)| view((*id, row))).collect()
}

/// Returns the front of a cell.
pub(super) fn front(front: &Front) -> FrontView {
    FrontView {
        submits: front.submission.map(|submission| {
            format!("{} of {}", request_text(submission.kind, submission.number), lane_key(submission.lane))
        }),
        is_waiting: front.calls.is_waiting,
        told: front.last_result,
    }
}

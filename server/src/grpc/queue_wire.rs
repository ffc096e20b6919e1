//! Conversions of queues, lanes and requests between the engine and the wire.

use leasehold_core::queue::{Lane, LanePath, LaneState, Request, RequestId, RequestKind, RequestState};
use leasehold_proto::leasehold::queues::v1 as wire;
use tonic::Status;

use super::{convert, errors};

/// Parses the kind of a request.
pub(super) fn read_kind(kind: wire::RequestKind) -> Result<RequestKind, Status> {
    match kind {
        wire::RequestKind::Create => Ok(RequestKind::Create),
        wire::RequestKind::Update => Ok(RequestKind::Update),
        wire::RequestKind::Unspecified => Err(errors::invalid("`kind` is neither CREATE nor UPDATE")),
    }
}

pub(super) fn wire_kind(kind: RequestKind) -> wire::RequestKind {
    match kind {
        RequestKind::Create => wire::RequestKind::Create,
        RequestKind::Update => wire::RequestKind::Update,
    }
}

/// Returns the state of a request; `Unspecified` for a request that has no row.
pub(super) fn wire_state(state: Option<RequestState>) -> wire::RequestState {
    match state {
        None => wire::RequestState::Unspecified,
        Some(RequestState::New) => wire::RequestState::New,
        Some(RequestState::InProgress) => wire::RequestState::InProgress,
        Some(RequestState::Complete) => wire::RequestState::Complete,
        Some(RequestState::Error) => wire::RequestState::Error,
    }
}

pub(super) fn wire_request(id: RequestId, request: &Request) -> wire::Request {
    wire::Request {
        request_id: id.0.as_bytes().to_vec(),
        queue: request.lane.queue().as_str().to_owned(),
        key: request.lane.key().to_owned(),
        number: request.number,
        kind: wire_kind(request.kind).into(),
        priority: u8::from(request.priority).into(),
        state: wire_state(Some(request.state)).into(),
        not_before: convert::timestamp(request.not_before),
        attempts: request.attempts,
        max_attempts: request.max_attempts,
        body_bytes: request.body.bytes,
        submitted_at: convert::timestamp(request.submitted_at),
        updated_at: convert::timestamp(request.updated_at),
    }
}

pub(super) fn wire_lane(path: &LanePath, lane: &Lane) -> wire::Lane {
    let hold = lane.hold();
    let not_before = match &lane.state {
        LaneState::Waiting(head) => convert::timestamp(head.not_before),
        LaneState::Idle | LaneState::Taken(_) => None,
    };
    wire::Lane {
        queue: path.queue().as_str().to_owned(),
        key: path.key().to_owned(),
        is_paused: lane.is_paused,
        waiting: lane.waiting,
        not_before,
        session_id: hold.map(|hold| hold.session.0.as_bytes().to_vec()).unwrap_or_default(),
        fence: hold.map_or(0, |hold| hold.fence.0),
        taken_at: hold.and_then(|hold| convert::timestamp(hold.taken_at)),
        updated_at: convert::timestamp(lane.updated_at),
    }
}

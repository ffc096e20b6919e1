//! The texts of the requests and answers between cells and the service.

use leasehold_core::batch::ClaimRequest;
use leasehold_core::lease::Outcome;
use leasehold_core::reconcile::Settled;

use crate::lock_message::{LockAnswer, LockRequest};
use crate::lock_names::lock_key;
use crate::network::{Payload, Request, Response};
use crate::queue_message::{Batch, BatchOutcome, QueueAnswer, QueueRequest, WorkKind};
use crate::queue_names::lane_key;

/// Returns the content of a message in a few words.
pub(crate) fn payload_text(payload: &Payload) -> String {
    match payload {
        Payload::Request(Request::Begin { update, .. }) => {
            let names = |claims: &[ClaimRequest]| {
                claims.iter().map(|claim| claim.value.to_string()).collect::<Vec<_>>().join(", ")
            };
            let parts = [("create", names(&update.creates)), ("destroy", names(&update.destroys))];
            let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
            let parts: Vec<_> = parts.map(|(what, names)| format!("{what} {names}")).collect();
            format!("begin: {}", parts.join("; "))
        }
        Payload::Request(Request::Settle { outcome: Outcome::Committed, .. }) => "commit".into(),
        Payload::Request(Request::Settle { .. }) => "roll back".into(),
        Payload::Request(Request::ListLeases { .. }) => "list leases".into(),
        Payload::Request(Request::ListRecords { .. }) => "list claims".into(),
        Payload::Response(Response::Begun { fence, .. }) => format!("begun, fence {}", fence.0),
        Payload::Response(Response::Refused { reason, .. }) => format!("refused: {}", reason.summary()),
        Payload::Response(Response::Settled(settled)) => settled_text(*settled).into(),
        Payload::Response(Response::Leases { leases, .. }) => counted(leases.len(), "lease"),
        Payload::Response(Response::Records { records, .. }) => counted(records.len(), "claim"),
        Payload::Request(Request::Lock(request)) => lock_request_text(*request),
        Payload::Response(Response::Lock(LockAnswer::Done | LockAnswer::Renewed(None))) => "done".into(),
        Payload::Response(Response::Lock(LockAnswer::Renewed(Some(fence)))) => format!("done, fence {} taken", fence.0),
        Payload::Response(Response::Lock(LockAnswer::Holding(fence))) => format!("granted, fence {}", fence.0),
        Payload::Response(Response::Lock(LockAnswer::Refused(reason))) => format!("refused: {}", reason.summary()),
        Payload::Request(Request::Queue(request)) => queue_request_text(request),
        Payload::Response(Response::Queue(answer)) => queue_answer_text(answer),
        Payload::Response(Response::Unavailable) => "unavailable".into(),
    }
}

fn lock_request_text(request: LockRequest) -> String {
    match request {
        LockRequest::Open(_) => "open session".into(),
        LockRequest::Renew(_) => "renew session".into(),
        LockRequest::Close(_) => "close session".into(),
        LockRequest::Acquire { lock, .. } => format!("acquire {}", lock_key(lock)),
        LockRequest::Release { lock, fence, .. } => format!("release {}, fence {}", lock_key(lock), fence.0),
        LockRequest::Leave { .. } => "leave the queue".into(),
    }
}

fn queue_request_text(request: &QueueRequest) -> String {
    match request {
        QueueRequest::Submit { number, lane, kind, .. } => {
            format!("submit {} of {}", request_text(*kind, *number), lane_key(*lane))
        }
        QueueRequest::Take { waits: true, .. } => "take".into(),
        QueueRequest::Take { waits: false, .. } => "take now".into(),
        QueueRequest::Settle { batch, outcome, .. } => {
            let what = match outcome {
                BatchOutcome::Completed => "complete",
                BatchOutcome::Failed => "fail",
                BatchOutcome::GivenBack => "give back",
            };
            format!("{what} {}, fence {}", batch_text(batch), batch.fence.0)
        }
    }
}

fn queue_answer_text(answer: &QueueAnswer) -> String {
    match answer {
        QueueAnswer::Submitted(number) => format!("request {number} is in its lane"),
        QueueAnswer::Taken(batch) => format!("taken: {}, fence {}", batch_text(batch), batch.fence.0),
        QueueAnswer::Nothing => "no lane is ready".into(),
        QueueAnswer::Settled => "done".into(),
    }
}

/// Describes a request by its kind and its number.
pub(crate) fn request_text(kind: WorkKind, number: u32) -> String {
    match kind {
        WorkKind::Create => format!("create {number}"),
        WorkKind::Update => format!("update {number}"),
        WorkKind::Poison => format!("poison {number}"),
    }
}

/// Describes the requests of a batch.
pub(crate) fn batch_text(batch: &Batch) -> String {
    let lane = lane_key(batch.lane);
    match (batch.kind, batch.count) {
        (WorkKind::Create, _) => format!("the create of {lane}"),
        (WorkKind::Poison, 1) => format!("the poison of {lane}"),
        (WorkKind::Poison, count) => format!("{count} updates of {lane} with a poison"),
        (WorkKind::Update, 1) => format!("an update of {lane}"),
        (WorkKind::Update, count) => format!("{count} updates of {lane}"),
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Describes the service's answer to a settle.
pub(crate) fn settled_text(settled: Settled) -> &'static str {
    match settled {
        Settled::Done => "done",
        Settled::RolledBack => "it was rolled back",
        Settled::Committed => "it was committed",
        Settled::NotFound => "no such lease",
    }
}

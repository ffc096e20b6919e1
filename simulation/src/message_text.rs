//! The texts of the requests and answers between cells and the service.

use leasehold_core::batch::ClaimRequest;
use leasehold_core::lease::Outcome;
use leasehold_core::reconcile::Settled;

use crate::lock_message::{LockAnswer, LockRequest};
use crate::lock_names::lock_key;
use crate::network::{Payload, Request, Response};

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

//! A failed call as a value: the gRPC status, and its decoded `google.rpc` details.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use leasehold_core::rejection::{List, Reason};
use leasehold_proto::leasehold::v1::RejectedClaims;
use leasehold_proto::leasehold::v1::rejected_claims::{Claims, Group};
use prost::{Message, Name};
use tonic::{Code, Status, TimeoutExpired};
use tonic_types::StatusExt;

/// The value of `google.rpc.ErrorInfo.domain` in the server's errors. A proxy may add errors with
/// another domain.
const DOMAIN: &str = "leasehold";

/// The reason of a call that names a grant which its lock does not have any more.
pub(crate) const FENCE_PASSED: &str = "FENCE_PASSED";

/// Kind of a refusal, for a caller to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalKind {
    /// The request has a wrong form, exceeds a limit, has a value that is not allowed, or reuses an
    /// idempotency key for another update.
    Invalid,
    /// A cell owns the bucket, and no lease lists it; no retry helps.
    Taken,
    /// The bucket is under another lease, or the lock is not free; a retry after
    /// [`Refusal::retry_after`] may succeed.
    Busy,
    /// The claim to destroy has another source row than the update says; or the session or lock has
    /// changed.
    Changed,
    /// The claim, lease or session does not exist, or the session has ended; [`Refusal::reason`]
    /// tells which.
    NotFound,
    /// The claim or lease belongs to another cell, or another service opened the session. A service
    /// is a client program, known by its certificate.
    NotOwner,
    /// The lease was rolled back.
    RolledBack,
    /// The lease was committed.
    Committed,
    /// The caller has no client certificate with a role.
    Unauthenticated,
    /// The client certificate does not allow the call.
    Denied,
    /// The server is overloaded and did not start the call.
    Overloaded,
    /// The server cannot be reached, or its store is down.
    Unavailable,
    /// No answer came before the deadline.
    DeadlineExceeded,
    /// Any other failure, which is a defect of the server or of the client.
    Internal,
}

/// A claim that the server refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RejectedClaim {
    /// The list of the update that has the claim: creates or destroys.
    pub list: List,
    /// Position of the claim in its list, from 0.
    pub position: u32,
    /// Number of the claim's bucket type on the wire.
    pub bucket_type: i32,
    /// Code of the reason for this claim, such as `CLAIM_TAKEN`.
    pub reason: String,
}

/// A failed call: the server's refusal, or the failure to get an answer.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The gRPC code of the failure. A broken connection has `Unavailable`, a passed deadline
    /// `DeadlineExceeded`.
    pub code: Code,
    /// Code of the reason for the call's failure, such as `CLAIM_TAKEN`; empty if the server gave
    /// none.
    pub reason: String,
    /// Details that belong to the reason, by name, such as `limit`, `max` and `actual`.
    pub metadata: HashMap<String, String>,
    /// Delay after which the server suggests a retry (`google.rpc.RetryInfo`); `None` if it
    /// suggests none.
    pub retry_after: Option<Duration>,
    /// The refused claims as the server sent them, grouped by reason and bucket type;
    /// [`Refusal::claims`] lists them one by one.
    pub rejected: RejectedClaims,
    /// The explanation of the failure, for people.
    pub message: String,
    /// True if the connection could not be opened, or broke before an answer came.
    pub is_broken: bool,
}

impl Refusal {
    /// Decodes a gRPC status and its details into a refusal.
    #[must_use]
    pub fn of(status: &Status) -> Self {
        let info = status.get_details_error_info().filter(|info| info.domain == DOMAIN);
        let (reason, metadata) = info.map(|info| (info.reason, info.metadata)).unwrap_or_default();
        let (code, message, is_broken) = outcome(status);
        Self {
            code,
            reason,
            metadata,
            retry_after: status.get_details_retry_info().and_then(|info| info.retry_delay),
            rejected: rejected(status),
            message,
            is_broken,
        }
    }

    /// Returns the failure of a call whose answer did not come within `timeout`.
    #[must_use]
    pub fn late(timeout: Duration) -> Self {
        let seconds = (timeout.as_secs_f64() * 10.0).round() / 10.0;
        Self::of(&Status::deadline_exceeded(format!("no answer within {seconds} s")))
    }

    /// Returns the kind of the refusal: by its reason, or by its gRPC code if the reason is missing
    /// or unknown.
    #[must_use]
    pub fn kind(&self) -> RefusalKind {
        self.engine_reason().map(kind_of_reason).unwrap_or_else(|| match self.reason.as_str() {
            "NO_IDENTITY" => RefusalKind::Unauthenticated,
            "RULE_DENIED" => RefusalKind::Denied,
            "OVERLOADED" => RefusalKind::Overloaded,
            "STORE_UNAVAILABLE" => RefusalKind::Unavailable,
            _ => kind_of_code(self.code),
        })
    }

    /// Returns the reason if it is one of the engine's; `None` for any other reason.
    #[must_use]
    pub fn engine_reason(&self) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.code() == self.reason)
    }

    /// Returns the gRPC code and the reason of the refusal.
    #[must_use]
    pub fn code_and_reason(&self) -> (Code, &str) {
        (self.code, &self.reason)
    }

    /// Returns a detail of the reason by its name, such as `limit`; `None` if there is no such
    /// detail.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<&str> {
        self.metadata.get(name).map(String::as_str)
    }

    /// Returns every refused claim (B10): first the creates, then the destroys, in the order of
    /// their positions.
    #[must_use]
    pub fn claims(&self) -> Vec<RejectedClaim> {
        let mut claims: Vec<_> = self.rejected.groups.iter().flat_map(claims_of_group).collect();
        claims.sort_by_key(|claim| (claim.list, claim.position));
        claims
    }

    /// Returns true if the call may have taken effect although it failed, because the server gave
    /// no definite answer.
    #[must_use]
    pub fn outcome_is_unknown(&self) -> bool {
        matches!(
            self.code,
            Code::Cancelled
                | Code::Unknown
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.message.as_str(), self.reason.as_str()) {
            ("", "") => write!(f, "{:?}", self.code),
            ("", reason) => f.write_str(reason),
            (message, "") => f.write_str(message),
            (message, reason) => write!(f, "{message} ({reason})"),
        }
    }
}

/// Returns the gRPC code and the message of a failed call, and true if the connection broke.
///
/// tonic sets `Status::source` only in a status that it made from an error of the transport. It
/// maps most of these errors to `Unknown` or `Cancelled` (tonic 0.14, `status.rs`,
/// `Status::try_from_error`). A status that the server sent has no source.
fn outcome(status: &Status) -> (Code, String, bool) {
    let Some(source) = status.source() else { return (status.code(), status.message().to_owned(), false) };
    if chain(source).any(|error| error.is::<TimeoutExpired>()) {
        return (Code::DeadlineExceeded, "no answer before the deadline".to_owned(), false);
    }
    (Code::Unavailable, format!("the connection broke: {}", root_cause(source)), true)
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Returns the text of the innermost error. The text of tonic's and hyper's outer errors is only
/// "transport error".
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

fn rejected(status: &Status) -> RejectedClaims {
    let details = tonic_types::Status::decode(status.details()).unwrap_or_default().details;
    let name = RejectedClaims::full_name();
    let ours = details.iter().find(|detail| detail.type_url.rsplit('/').next() == Some(name.as_str()));
    ours.and_then(|detail| RejectedClaims::decode(detail.value.as_slice()).ok()).unwrap_or_default()
}

fn claims_of_group(group: &Group) -> impl Iterator<Item = RejectedClaim> {
    group.claims.iter().flat_map(move |claims| claims_of_type(&group.reason, claims))
}

fn claims_of_type(reason: &str, claims: &Claims) -> impl Iterator<Item = RejectedClaim> {
    let lists = [(List::Creates, &claims.create_positions), (List::Destroys, &claims.destroy_positions)];
    lists.into_iter().flat_map(move |(list, positions)| {
        positions.iter().map(move |&position| RejectedClaim {
            list,
            position,
            bucket_type: claims.bucket_type,
            reason: reason.to_owned(),
        })
    })
}

fn kind_of_reason(reason: Reason) -> RefusalKind {
    match reason {
        Reason::InvalidUpdate
        | Reason::LimitExceeded
        | Reason::ValueNotAllowed
        | Reason::IdempotencyKeyReused
        | Reason::SessionReused
        | Reason::AskReused => RefusalKind::Invalid,
        Reason::LeaseNotFound | Reason::ClaimNotFound | Reason::SessionNotFound | Reason::SessionEnded => {
            RefusalKind::NotFound
        }
        Reason::NotOwner | Reason::SessionNotOwned => RefusalKind::NotOwner,
        Reason::LeaseRolledBack => RefusalKind::RolledBack,
        Reason::LeaseCommitted => RefusalKind::Committed,
        Reason::ClaimTaken => RefusalKind::Taken,
        Reason::ClaimChanged | Reason::SessionAlive | Reason::FencePassed | Reason::LockCircle => RefusalKind::Changed,
        Reason::ClaimBusy | Reason::LockHeld | Reason::LockWithheld => RefusalKind::Busy,
    }
}

/// Returns the kind of a failure without a known reason, by its gRPC code. Such a status may come
/// from a proxy.
fn kind_of_code(code: Code) -> RefusalKind {
    match code {
        Code::InvalidArgument | Code::OutOfRange => RefusalKind::Invalid,
        Code::NotFound => RefusalKind::NotFound,
        Code::AlreadyExists => RefusalKind::Taken,
        Code::PermissionDenied => RefusalKind::Denied,
        Code::Unauthenticated => RefusalKind::Unauthenticated,
        Code::ResourceExhausted => RefusalKind::Overloaded,
        Code::Unavailable | Code::Cancelled => RefusalKind::Unavailable,
        Code::DeadlineExceeded => RefusalKind::DeadlineExceeded,
        Code::Ok
        | Code::Unknown
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss => RefusalKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::{ErrorDetails, pb};

    use super::*;

    fn status(code: Code, reason: &str, domain: &str) -> Status {
        let mut details = ErrorDetails::new();
        details.set_error_info(reason, domain, [("limit".to_owned(), "source_id_bytes".to_owned())]);
        details.set_retry_info(Some(Duration::from_millis(250)));
        Status::with_error_details(code, "no", details)
    }

    #[test]
    fn every_reason_of_the_engine_has_its_kind() {
        for reason in Reason::ALL {
            let refusal = Refusal::of(&status(Code::Unknown, reason.code(), DOMAIN));
            assert_eq!(refusal.engine_reason(), Some(reason));
            assert_eq!(refusal.kind(), kind_of_reason(reason));
        }
    }

    #[test]
    fn the_code_decides_if_the_reason_is_missing_or_unknown() {
        for reason in ["", "BRAND_NEW"] {
            assert_eq!(Refusal::of(&status(Code::AlreadyExists, reason, DOMAIN)).kind(), RefusalKind::Taken);
        }
        assert_eq!(Refusal::of(&Status::unimplemented("no")).kind(), RefusalKind::Internal);
    }

    #[test]
    fn a_reason_of_another_domain_is_ignored() {
        let refusal = Refusal::of(&status(Code::Unavailable, "CLAIM_TAKEN", "proxy"));
        assert_eq!((refusal.reason.as_str(), refusal.kind()), ("", RefusalKind::Unavailable));
    }

    #[test]
    fn the_retry_delay_and_the_figures_are_decoded() {
        let refusal = Refusal::of(&status(Code::FailedPrecondition, "CLAIM_BUSY", DOMAIN));
        assert_eq!(refusal.retry_after, Some(Duration::from_millis(250)));
        assert_eq!(refusal.figure("limit"), Some("source_id_bytes"));
        assert_eq!(refusal.to_string(), "no (CLAIM_BUSY)");
        assert!(!refusal.outcome_is_unknown() && !refusal.is_broken);
    }

    #[test]
    fn b10_rejected_claims_are_listed_by_list_and_position() {
        let group = |reason: &str, create: &[u32], destroy: &[u32]| Group {
            reason: reason.to_owned(),
            claims: vec![Claims {
                bucket_type: 4,
                create_positions: create.to_vec(),
                destroy_positions: destroy.to_vec(),
            }],
        };
        let rejected =
            RejectedClaims { groups: vec![group("CLAIM_BUSY", &[], &[0]), group("CLAIM_TAKEN", &[1, 9], &[])] };
        let detail = prost_types::Any { type_url: RejectedClaims::type_url(), value: rejected.encode_to_vec() };
        let rich = pb::Status { details: vec![detail], ..pb::Status::default() };
        let refusal = Refusal::of(&Status::with_details(Code::AlreadyExists, "taken", rich.encode_to_vec().into()));
        let claims: Vec<_> =
            refusal.claims().into_iter().map(|claim| (claim.list, claim.position, claim.reason)).collect();
        assert_eq!(
            claims,
            [
                (List::Creates, 1, "CLAIM_TAKEN".to_owned()),
                (List::Creates, 9, "CLAIM_TAKEN".to_owned()),
                (List::Destroys, 0, "CLAIM_BUSY".to_owned()),
            ]
        );
    }

    #[test]
    fn a_broken_connection_is_unavailable_and_its_outcome_unknown() {
        let broken = std::io::Error::other("reset by peer");
        let refusal = Refusal::of(&Status::from_error(Box::new(broken)));
        assert_eq!((refusal.code, refusal.is_broken), (Code::Unavailable, true));
        assert!(refusal.outcome_is_unknown());
        assert_eq!(refusal.message, "the connection broke: reset by peer");
    }

    #[test]
    fn a_timeout_of_the_transport_is_a_passed_deadline() {
        let refusal = Refusal::of(&Status::from_error(Box::new(TimeoutExpired(()))));
        assert_eq!((refusal.code, refusal.is_broken), (Code::DeadlineExceeded, false));
    }
}

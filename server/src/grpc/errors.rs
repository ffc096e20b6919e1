//! Errors as gRPC statuses: a gRPC code, a reason for machines, and further details in messages of
//! `google.rpc`.
//!
//! Every status that this module makes has a `google.rpc.Status` as its details. The
//! [`middleware`](super::middleware) relies on that: an INTERNAL status without details comes from
//! tonic.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use leasehold_core::bucket::BucketType;
use leasehold_core::claim::SourceType;
use leasehold_core::query::RECORD_BYTES_PER_SOURCE;
use leasehold_core::rejection::{Detail, List, Offence, Reason, Rejection};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::source;
use leasehold_proto::leasehold::v1::{RejectedClaims, rejected_claims};
use prost::{Message, Name};
use prost_types::Any;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tonic_types::pb::{ErrorInfo, RetryInfo};

use super::REQUEST_BYTES;
use crate::budget::BudgetExceeded;
use crate::committer::{CommitterRefusal, RETRY_AFTER};
use crate::config::BusyCreateCode;
use crate::identity::Denied;
use crate::reloads::{NoReload, RefusedConfig};
use crate::store::{Problem, StoreError};

/// The namespace of Leasehold's error reasons (`google.rpc.ErrorInfo.domain`).
const DOMAIN: &str = "leasehold";

/// The gRPC code for the reason of an engine's rejection.
fn code(reason: Reason) -> Code {
    match reason {
        Reason::InvalidUpdate
        | Reason::LimitExceeded
        | Reason::ValueNotAllowed
        | Reason::IdempotencyKeyReused
        | Reason::SessionReused
        | Reason::AskReused => Code::InvalidArgument,
        Reason::ClaimTaken => Code::AlreadyExists,
        Reason::ClaimBusy
        | Reason::ClaimChanged
        | Reason::LeaseRolledBack
        | Reason::LeaseCommitted
        | Reason::SessionEnded
        | Reason::SessionAlive
        | Reason::FencePassed
        | Reason::LockHeld
        | Reason::LockWithheld => Code::FailedPrecondition,
        Reason::LockCircle => Code::Aborted,
        Reason::ClaimNotFound | Reason::LeaseNotFound | Reason::SessionNotFound => Code::NotFound,
        Reason::NotOwner | Reason::SessionNotOwned => Code::PermissionDenied,
    }
}

/// The gRPC status of a request that the engine rejected.
pub(super) fn rejected(rejection: &Rejection) -> Status {
    rejected_as(code(rejection.reason()), rejection)
}

fn rejected_as(code: Code, rejection: &Rejection) -> Status {
    let mut details = vec![error_info(rejection.reason().code(), metadata(rejection))];
    details.extend(rejected_claims(rejection).as_ref().map(any));
    details.extend(rejection.retry_after_micros().map(|micros| retry_info(Duration::from_micros(micros))));
    status(code, rejection.to_string(), details)
}

/// The gRPC status of a command that the engine rejected, with the configured code for a busy create
/// (B03).
pub(super) fn rejected_command(rejection: &Rejection, busy_create: BusyCreateCode) -> Status {
    let is_busy_create = |offence: &Offence| {
        offence.reason == Reason::ClaimBusy && offence.place.is_some_and(|place| place.list == List::Creates)
    };
    let is_busy = rejection.reason() == Reason::ClaimBusy && rejection.offences().iter().any(is_busy_create);
    match busy_create {
        BusyCreateCode::AlreadyExists if is_busy => rejected_as(Code::AlreadyExists, rejection),
        BusyCreateCode::AlreadyExists | BusyCreateCode::FailedPrecondition => rejected(rejection),
    }
}

/// The gRPC status of a command that the committer refused: it was not decided, or its decision
/// could not be written.
pub(super) fn refused(refusal: &CommitterRefusal) -> Status {
    match refusal {
        CommitterRefusal::Overloaded { limit, retry_after } => {
            let (setting, max) = limit.setting();
            let metadata = [("limit".to_owned(), setting.to_owned()), ("max".to_owned(), max.to_string())];
            let details = vec![error_info("OVERLOADED", metadata.into()), retry_info(*retry_after)];
            status(Code::ResourceExhausted, refusal.to_string(), details)
        }
        CommitterRefusal::TooLarge { claims, max } => over_limit("held_claims", *max, Some(*claims)),
        CommitterRefusal::Locked(_) => {
            let cause = HashMap::from([("cause".to_owned(), "locked".to_owned())]);
            status(Code::Unavailable, refusal.to_string(), vec![error_info("STORE_UNAVAILABLE", cause)])
        }
        CommitterRefusal::Broken(_) => {
            status(Code::DataLoss, refusal.to_string(), vec![error_info("STATE_BROKEN", HashMap::new())])
        }
        CommitterRefusal::StoreUnavailable(_) | CommitterRefusal::Stopping => {
            status(Code::Unavailable, refusal.to_string(), vec![error_info("STORE_UNAVAILABLE", HashMap::new())])
        }
    }
}

/// The gRPC code for a failure to open or read the store; `None` if only a person can mend the
/// failure. The code decides the exit code of `leasehold`.
pub fn store_code(error: &StoreError) -> Option<Code> {
    let problem = match error {
        StoreError::Preflight(error) => &error.problem,
        error => return error.is_away().then_some(Code::Unavailable),
    };
    match problem {
        Problem::Unreachable(_)
        | Problem::NotServing(_)
        | Problem::Untrusted(_)
        | Problem::TooManyConnections(_)
        | Problem::StatementTimeout(_)
        | Problem::Standby
        | Problem::ReadOnly => Some(Code::Unavailable),
        Problem::BeingMigrated { .. } | Problem::TablesLocked(_) => Some(Code::DeadlineExceeded),
        Problem::AuthenticationFailed(_) | Problem::CertificateRejected(_) => Some(Code::Unauthenticated),
        Problem::Rights { .. } | Problem::NoConnect { .. } | Problem::PermissionDenied(_) => {
            Some(Code::PermissionDenied)
        }
        _ => None,
    }
}

/// The gRPC status of a request that expects another store. `id` is the id of the server's store.
pub(super) fn other_store(id: &http::HeaderValue) -> Status {
    let id = id.to_str().unwrap_or_default();
    let metadata = HashMap::from([("store_id".to_owned(), id.to_owned())]);
    let message =
        format!("the server has the store {id}, and the request is for another one: check the server's address");
    status(Code::FailedPrecondition, message, vec![error_info("OTHER_STORE", metadata)])
}

/// The gRPC status of a call that the caller may not make.
pub(super) fn denied(denied: Denied) -> Status {
    let (code, reason, message) = match denied {
        Denied::NoIdentity => (
            Code::Unauthenticated,
            "NO_IDENTITY",
            "the call has no client certificate: present one with the `spiffe://` URI of a cell, a router or an admin",
        ),
        Denied::NoRole => (
            Code::Unauthenticated,
            "NO_IDENTITY",
            "the client certificate has no role, or more than one: present one with a single `spiffe://` URI of a cell, a router or an admin, in the trust domain of the server (`tls.trust_domain`)",
        ),
        Denied::NoSubject => (
            Code::Unauthenticated,
            "NO_IDENTITY",
            "the balancer's request names no client: have it send the subject of the client's certificate as `x-client-runway-cc-subject-dn`, in base64 of its DER",
        ),
        Denied::RuleDenied => {
            (Code::PermissionDenied, "RULE_DENIED", "the caller's certificate does not allow this call")
        }
        Denied::NamespaceDenied => (
            Code::PermissionDenied,
            "RULE_DENIED",
            "the configuration does not allow the caller to use locks of this namespace: name both in `[[locks.access]]`",
        ),
    };
    status(code, message.into(), vec![error_info(reason, HashMap::new())])
}

/// The gRPC status of a call whose deadline has passed.
pub(super) fn deadline_exceeded() -> Status {
    status(Code::DeadlineExceeded, "the caller's deadline passed before the answer was ready".into(), Vec::new())
}

/// The status of a call that would exceed a limit on the bytes held at a time.
pub(super) fn over_budget(BudgetExceeded(limit): BudgetExceeded) -> Status {
    let metadata = HashMap::from([("limit".to_owned(), limit.to_owned())]);
    let message = format!("the server holds as many bytes for the caller as `{limit}` allows: try again");
    let details = vec![error_info("OVERLOADED", metadata), retry_info(RETRY_AFTER)];
    status(Code::ResourceExhausted, message, details)
}

/// The gRPC status of a stream of health or reflection on a connection that has `max` of them.
pub(super) fn too_many_watches(max: usize) -> Status {
    let metadata = HashMap::from([("limit".to_owned(), "watches".to_owned()), ("max".to_owned(), max.to_string())]);
    let message = format!("the connection has {max} open streams of health and reflection: end one");
    let details = vec![error_info("OVERLOADED", metadata), retry_info(RETRY_AFTER)];
    status(Code::ResourceExhausted, message, details)
}

/// The status of a request that did not arrive in time.
pub(super) fn incomplete(timeout: Duration) -> Status {
    let message = format!(
        "the request did not arrive within `limits.body_seconds` = {}: send it faster, or split the update",
        timeout.as_secs()
    );
    status(Code::DeadlineExceeded, message, vec![error_info("REQUEST_INCOMPLETE", HashMap::new())])
}

/// The gRPC status of a configuration that a reload refused.
pub(super) fn config_refused(refused: &RefusedConfig) -> Status {
    status(Code::FailedPrecondition, refused.to_string(), vec![error_info("CONFIG_REFUSED", HashMap::new())])
}

/// The gRPC status of a reload that did not begin.
pub(super) fn no_reload(reason: NoReload) -> Status {
    match reason {
        NoReload::Stopping => refused(&CommitterRefusal::Stopping),
        NoReload::Busy => {
            let message = "other calls wait for a reload: try again".to_owned();
            let details = vec![error_info("OVERLOADED", HashMap::new()), retry_info(RETRY_AFTER)];
            status(Code::ResourceExhausted, message, details)
        }
    }
}

/// The gRPC status of a fault in the server itself.
pub(super) fn internal(message: &str) -> Status {
    status(Code::Internal, message.into(), vec![error_info("INTERNAL", HashMap::new())])
}

/// The gRPC status of a call of sessions, locks or queues to a server whose store keeps none.
pub(super) fn claims_only() -> Status {
    let message =
        "the store of this server keeps claims only: sessions, locks and queues need the embedded store or PostgreSQL";
    status(Code::Unimplemented, message.into(), vec![error_info("CLAIMS_ONLY", HashMap::new())])
}

/// The gRPC status of a malformed request.
pub(super) fn invalid(message: &str) -> Status {
    status(Code::InvalidArgument, message.into(), vec![error_info("INVALID_UPDATE", HashMap::new())])
}

/// The gRPC status of a request over a limit (B11). It has the limit's name, the largest allowed
/// number, and the request's own number if it is known.
pub(super) fn over_limit(name: &str, max: usize, actual: Option<usize>) -> Status {
    let found = actual.map(|actual| format!(", not {actual}")).unwrap_or_default();
    let mut metadata = HashMap::from([("limit".into(), name.into()), ("max".into(), max.to_string())]);
    metadata.extend(actual.map(|actual| ("actual".into(), actual.to_string())));
    let message = format!("over the limit `{name}`: at most {max}{found}");
    status(Code::InvalidArgument, message, vec![error_info("LIMIT_EXCEEDED", metadata)])
}

/// The gRPC status of a list in which the records of one source id exceed the largest page. A retry
/// can't help, so the status has no `RetryInfo`.
pub(super) fn source_too_large(source_type: SourceType) -> Status {
    let max = RECORD_BYTES_PER_SOURCE;
    let number = source_type.0;
    let table = source::Type::try_from(number).map_or_else(|_| number.to_string(), |it| it.as_str_name().to_owned());
    let message = format!(
        "a row of the table `{table}` has records of more than {max} bytes: give up some of its claims, or attach less data"
    );
    let metadata = HashMap::from([
        ("limit".to_owned(), "record_bytes_per_source".to_owned()),
        ("max".to_owned(), max.to_string()),
        ("source_type".to_owned(), number.to_string()),
    ]);
    status(Code::ResourceExhausted, message, vec![error_info("LIMIT_EXCEEDED", metadata)])
}

/// The gRPC status of a lock that is not free.
pub(super) fn lock_held() -> Status {
    rejected(&Rejection::whole(Reason::LockHeld, Detail::None))
}

/// The gRPC status of an ask that waited in a circle (K15).
pub(super) fn lock_circle() -> Status {
    rejected(&Rejection::whole(Reason::LockCircle, Detail::None))
}

/// The gRPC status of a call under a session that has ended.
pub(super) fn session_ended() -> Status {
    rejected(&Rejection::whole(Reason::SessionEnded, Detail::None))
}

/// The gRPC status of a call that needs a database which failed.
pub(super) fn away(error: &StoreError) -> Status {
    refused(&CommitterRefusal::StoreUnavailable(error.to_string().into()))
}

/// The gRPC status of a read that found no claim.
pub(super) fn not_found(message: &str) -> Status {
    status(Code::NotFound, message.into(), vec![error_info("CLAIM_NOT_FOUND", HashMap::new())])
}

/// Converts a gRPC status into an HTTP response: the matching HTTP status, and a JSON body with the
/// gRPC code, the reason and the message.
pub(super) fn json(status: &Status) -> axum::response::Response {
    use axum::Extension;
    use axum::response::IntoResponse;
    let info = status.get_details_error_info();
    let is_too_large =
        info.as_ref().is_some_and(|info| info.metadata.get("limit").is_some_and(|it| it == REQUEST_BYTES));
    let http_code = match status.code() {
        _ if is_too_large => http::StatusCode::PAYLOAD_TOO_LARGE,
        Code::DeadlineExceeded => http::StatusCode::REQUEST_TIMEOUT,
        Code::InvalidArgument => http::StatusCode::BAD_REQUEST,
        Code::Unauthenticated => http::StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => http::StatusCode::FORBIDDEN,
        Code::NotFound => http::StatusCode::NOT_FOUND,
        Code::ResourceExhausted => http::StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => http::StatusCode::SERVICE_UNAVAILABLE,
        _ => http::StatusCode::INTERNAL_SERVER_ERROR,
    };
    let reason = info.map(|info| info.reason);
    let body = serde_json::json!({
        "code": status.code() as i32,
        "message": status.message(),
        "reason": reason,
    });
    let headers = [(http::header::CONTENT_TYPE, "application/json")];
    // The middleware reads the gRPC code from this extension, and counts the response under this
    // code.
    (http_code, Extension(status.code()), headers, body.to_string()).into_response()
}

/// The name of a gRPC code as gRPC spells it (`google/rpc/code.proto`). The metrics use it as a
/// label.
pub(super) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

fn status(code: Code, message: String, details: Vec<Any>) -> Status {
    let rich = tonic_types::pb::Status { code: code as i32, message: message.clone(), details };
    Status::with_details(code, message, rich.encode_to_vec().into())
}

fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

fn error_info(reason: &str, metadata: HashMap<String, String>) -> Any {
    let info = ErrorInfo { reason: reason.into(), domain: DOMAIN.into(), metadata };
    Any { type_url: "type.googleapis.com/google.rpc.ErrorInfo".into(), value: info.encode_to_vec() }
}

fn retry_info(delay: Duration) -> Any {
    let delay = prost_types::Duration {
        seconds: i64::try_from(delay.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(delay.subsec_nanos()).unwrap_or(0),
    };
    let info = RetryInfo { retry_delay: Some(delay) };
    Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".into(), value: info.encode_to_vec() }
}

/// The metadata of the `ErrorInfo` for a rejection: the place and the details of the first offence
/// that has the rejection's own reason.
fn metadata(rejection: &Rejection) -> HashMap<String, String> {
    let deciding = rejection.offences().iter().find(|offence| offence.reason == rejection.reason());
    let Some(Offence { place, detail, .. }) = deciding else { return HashMap::new() };
    let mut metadata = HashMap::new();
    if let Some(place) = place {
        metadata.insert("field".into(), place.to_string());
    }
    match detail {
        Detail::None | Detail::Form(_) | Detail::RetryAfterMicros(_) => {}
        Detail::AlsoAt(place) => drop(metadata.insert("also_at".into(), place.to_string())),
        Detail::Differs(what) => drop(metadata.insert("differs".into(), what.clone())),
        Detail::Limit { name, max, actual } => {
            metadata.insert("limit".into(), (*name).into());
            metadata.insert("max".into(), max.to_string());
            metadata.insert("actual".into(), actual.to_string());
        }
    }
    metadata
}

/// Returns every offending claim of a rejection (B10), grouped by reason and bucket type; `None` if
/// the offence concerns the request as a whole.
///
/// Positions within a group are a packed protobuf field. So all 2,000 positions of the largest
/// update fit into the trailers. gRPC clients accept 8 KiB of trailers by default
/// (`GRPC_ARG_MAX_METADATA_SIZE`).
fn rejected_claims(rejection: &Rejection) -> Option<RejectedClaims> {
    let mut groups: BTreeMap<Reason, BTreeMap<BucketType, rejected_claims::Claims>> = BTreeMap::new();
    for offence in rejection.offences() {
        let (Some(place), Some(bucket_type)) = (offence.place, offence.bucket_type) else { continue };
        let claims = groups.entry(offence.reason).or_default().entry(bucket_type).or_default();
        claims.bucket_type = bucket_type.0;
        match place.list {
            List::Creates => claims.create_positions.push(place.position),
            List::Destroys => claims.destroy_positions.push(place.position),
        }
    }
    let group = |(reason, claims): (Reason, BTreeMap<_, rejected_claims::Claims>)| rejected_claims::Group {
        reason: reason.code().into(),
        claims: claims.into_values().collect(),
    };
    let groups: Vec<_> = groups.into_iter().map(group).collect();
    (!groups.is_empty()).then_some(RejectedClaims { groups })
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::rejection::Place;

    #[test]
    fn b10_the_largest_rejection_fits_into_trailer_metadata() {
        // The worst case: every claim of the largest allowed update is refused, with every reason
        // and bucket type that a claim can have.
        let reasons =
            [Reason::NotOwner, Reason::ClaimTaken, Reason::ClaimNotFound, Reason::ClaimChanged, Reason::ClaimBusy];
        let offences = (0..2000_u32).map(|n| {
            let place = if n % 2 == 0 { Place::create(n) } else { Place::destroy(n) };
            let reason = reasons[n as usize % reasons.len()];
            Offence::at(place, BucketType(1 + (n / 7 % 18) as i32), reason, Detail::None)
        });
        let status = rejected(&Rejection::of(offences.collect()).unwrap());
        let base64_bytes = status.details().len().div_ceil(3) * 4;
        assert!(base64_bytes + status.message().len() < 8 * 1024 - 300, "{base64_bytes}");
    }
}

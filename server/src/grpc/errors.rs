//! Errors on the wire: a gRPC code, a reason for machines, and the details of `google.rpc`.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use leasehold_core::bucket::BucketType;
use leasehold_core::rejection::{Detail, List, Offence, Reason, Rejection};
use leasehold_proto::leasehold::v1::RejectedClaims;
use leasehold_proto::leasehold::v1::rejected_claims::{Claims, Group};
use prost::{Message, Name};
use prost_types::Any;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tonic_types::pb::{ErrorInfo, RetryInfo};

use crate::committer::Refusal;
use crate::identity::Denied;

/// Whose reasons these are (`google.rpc.ErrorInfo.domain`).
const DOMAIN: &str = "leasehold";

/// The gRPC code of a reason.
fn code(reason: Reason) -> Code {
    match reason {
        Reason::InvalidUpdate | Reason::LimitExceeded | Reason::ValueNotAllowed | Reason::IdempotencyKeyReused => {
            Code::InvalidArgument
        }
        Reason::ClaimTaken => Code::AlreadyExists,
        Reason::ClaimBusy | Reason::ClaimChanged | Reason::LeaseRolledBack | Reason::LeaseCommitted => {
            Code::FailedPrecondition
        }
        Reason::ClaimNotFound | Reason::LeaseNotFound => Code::NotFound,
        Reason::NotOwner => Code::PermissionDenied,
    }
}

/// A refusal of the engine.
pub(super) fn rejected(rejection: &Rejection) -> Status {
    let mut details = vec![error_info(rejection.reason().code(), metadata(rejection))];
    details.extend(rejected_claims(rejection).as_ref().map(any));
    details.extend(rejection.retry_after_micros().map(|micros| retry_info(Duration::from_micros(micros))));
    status(code(rejection.reason()), rejection.to_string(), details)
}

/// A command that the engine was not asked, or whose outcome was not kept.
pub(super) fn refused(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::Overloaded { retry_after } => {
            let details = vec![error_info("OVERLOADED", HashMap::new()), retry_info(*retry_after)];
            status(Code::ResourceExhausted, refusal.to_string(), details)
        }
        Refusal::TooLarge { claims, max } => over_limit("held_claims", *max, Some(*claims)),
        Refusal::Locked(_) => {
            let cause = HashMap::from([("cause".to_owned(), "locked".to_owned())]);
            status(Code::Unavailable, refusal.to_string(), vec![error_info("STORE_UNAVAILABLE", cause)])
        }
        Refusal::StoreUnavailable(_) | Refusal::Stopping => {
            status(Code::Unavailable, refusal.to_string(), vec![error_info("STORE_UNAVAILABLE", HashMap::new())])
        }
    }
}

/// A caller that may not.
pub(super) fn denied(denied: Denied) -> Status {
    let (code, reason, message) = match denied {
        Denied::NoIdentity => (
            Code::Unauthenticated,
            "NO_IDENTITY",
            "no client certificate says who calls: present one with a `spiffe://` URI of a cell, a router or an admin",
        ),
        Denied::NoRole => (
            Code::Unauthenticated,
            "NO_IDENTITY",
            "the client certificate does not say who calls: present one with a single `spiffe://` URI of a cell, a router or an admin, in the trust domain of the server (`tls.trust_domain`)",
        ),
        Denied::RuleDenied => {
            (Code::PermissionDenied, "RULE_DENIED", "the caller's certificate does not allow this call")
        }
    };
    status(code, message.into(), vec![error_info(reason, HashMap::new())])
}

/// A call whose caller no longer waits.
pub(super) fn late() -> Status {
    status(Code::DeadlineExceeded, "no answer in the time that the caller gave".into(), Vec::new())
}

/// A request whose form is wrong.
pub(super) fn invalid(message: &str) -> Status {
    status(Code::InvalidArgument, message.into(), vec![error_info("INVALID_UPDATE", HashMap::new())])
}

/// A request over a limit (B11): the limit's name, its figure, and the actual one where it is known.
pub(super) fn over_limit(name: &str, max: usize, actual: Option<usize>) -> Status {
    let found = actual.map(|actual| format!(", not {actual}")).unwrap_or_default();
    let mut metadata = HashMap::from([("limit".into(), name.into()), ("max".into(), max.to_string())]);
    metadata.extend(actual.map(|actual| ("actual".into(), actual.to_string())));
    let message = format!("over the limit `{name}`: at most {max}{found}");
    status(Code::InvalidArgument, message, vec![error_info("LIMIT_EXCEEDED", metadata)])
}

/// A read that found nothing.
pub(super) fn not_found(message: &str) -> Status {
    status(Code::NotFound, message.into(), vec![error_info("CLAIM_NOT_FOUND", HashMap::new())])
}

/// A status as an HTTP answer: the code of `google.rpc` and its HTTP twin, the reason, the message.
pub(super) fn json(status: &Status) -> axum::response::Response {
    use axum::Extension;
    use axum::response::IntoResponse;
    let http_code = match status.code() {
        Code::InvalidArgument => http::StatusCode::BAD_REQUEST,
        Code::Unauthenticated => http::StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => http::StatusCode::FORBIDDEN,
        Code::NotFound => http::StatusCode::NOT_FOUND,
        Code::ResourceExhausted => http::StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => http::StatusCode::SERVICE_UNAVAILABLE,
        _ => http::StatusCode::INTERNAL_SERVER_ERROR,
    };
    let reason = status.get_details_error_info().map(|info| info.reason);
    let body = serde_json::json!({
        "code": status.code() as i32,
        "message": status.message(),
        "reason": reason,
    });
    let headers = [(http::header::CONTENT_TYPE, "application/json")];
    // The code, for those who count.
    (http_code, Extension(status.code()), headers, body.to_string()).into_response()
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

/// What the first offence of the deciding reason has to say beside its words.
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

/// Every offending claim (B10); none where the request as a whole offends.
fn rejected_claims(rejection: &Rejection) -> Option<RejectedClaims> {
    let mut groups: BTreeMap<Reason, BTreeMap<BucketType, Claims>> = BTreeMap::new();
    for offence in rejection.offences() {
        let (Some(place), Some(bucket_type)) = (offence.place, offence.bucket_type) else { continue };
        let claims = groups.entry(offence.reason).or_default().entry(bucket_type).or_default();
        claims.bucket_type = bucket_type.0;
        match place.list {
            List::Creates => claims.create_positions.push(place.position),
            List::Destroys => claims.destroy_positions.push(place.position),
        }
    }
    let group = |(reason, claims): (Reason, BTreeMap<_, Claims>)| Group {
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
        // Every claim of the largest update offends, with as many reasons and types as claims can have.
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

//! The middleware in front of every gRPC service and of `POST /v1/classify`.
//!
//! Before a handler runs, the middleware finds the caller's permit, bounds the size of the request
//! and starts the caller's deadline. Afterwards it counts the request, and replaces the status of a
//! request that tonic could not decode.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use leasehold_proto::AccessRules;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::errors;
use super::message_limit::MessageLimit;
use crate::identity::{Denied, Peer};
use crate::metrics::Metrics;

/// The path of `Classify` over HTTP. Its access rules are those of [`CLASSIFY_RPC`], the same
/// method over gRPC.
const CLASSIFY_HTTP: &str = "/v1/classify";
const CLASSIFY_RPC: &str = "/gitlab.cells.topology_service.ClassifyService/Classify";

/// A `tower` layer that puts [`Middleware`] in front of a service.
#[derive(Clone)]
pub struct MiddlewareLayer {
    /// The access rules of each gRPC method.
    pub rules: Arc<AccessRules>,
    /// The metrics, in which the middleware counts requests.
    pub metrics: Arc<Metrics>,
}

impl<S> Layer<S> for MiddlewareLayer {
    type Service = Middleware<S>;

    fn layer(&self, inner: S) -> Middleware<S> {
        Middleware { inner, shared: self.clone() }
    }
}

/// A service that runs the middleware before and after the service `inner`.
#[derive(Clone)]
pub struct Middleware<S> {
    inner: S,
    shared: MiddlewareLayer,
}

type Answer = Result<http::Response<Body>, Infallible>;

impl<S> Service<http::Request<Body>> for Middleware<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let started = Instant::now();
        let method = method_label(request.uri().path());
        let metrics = self.shared.metrics.clone();
        if let Err(denied) = self.shared.authorise(&mut request) {
            let status = errors::denied(denied);
            metrics.answered(method, errors::code_name(status.code()), started.elapsed());
            let is_json = request.uri().path() == CLASSIFY_HTTP;
            let response = if is_json { errors::json(&status).map(Body::new) } else { status.into_http() };
            return Box::pin(std::future::ready(Ok(response)));
        }
        let time_limit = time_limit(request.headers());
        let answer = self.inner.call(with_message_limit(request));
        Box::pin(async move {
            let answer = match time_limit {
                Some(limit) => tokio::time::timeout(limit, answer).await.ok(),
                None => Some(answer.await),
            };
            let (code, response) = match answer {
                Some(answer) => with_code(answer?),
                None => (Code::DeadlineExceeded, errors::deadline_exceeded().into_http()),
            };
            metrics.answered(method, errors::code_name(code), started.elapsed());
            Ok(response)
        })
    }
}

impl MiddlewareLayer {
    /// Adds the caller's [`Permit`](crate::identity::Permit) to the request, or returns the reason
    /// why the call is denied. A path without access rules, such as health and reflection, is open
    /// to all and gets no permit.
    fn authorise(&self, request: &mut http::Request<Body>) -> Result<(), Denied> {
        let path = match request.uri().path() {
            CLASSIFY_HTTP => CLASSIFY_RPC,
            path => path,
        };
        let Some(rules) = self.rules.for_path(path) else { return Ok(()) };
        let caller = request.extensions().get::<Peer>().ok_or(Denied::NoIdentity)?.caller;
        let permit = caller.permit(rules)?;
        request.extensions_mut().insert(permit);
        Ok(())
    }
}

/// Limits the size of the message in a gRPC request. The body of an HTTP request is limited by
/// axum.
fn with_message_limit(request: http::Request<Body>) -> http::Request<Body> {
    let content_type = request.headers().get(http::header::CONTENT_TYPE);
    let is_grpc = content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
    if is_grpc { request.map(|body| Body::new(MessageLimit::new(body))) } else { request }
}

/// The label of a request's method in the metrics. Unknown paths share one label, so that callers
/// can't add labels without bound.
fn method_label(path: &str) -> &'static str {
    match path.rsplit('/').next() {
        Some("BeginUpdate") => "BeginUpdate",
        Some("CommitUpdate") => "CommitUpdate",
        Some("RollbackUpdate") => "RollbackUpdate",
        Some("GetRecord") => "GetRecord",
        Some("GetCells") => "GetCells",
        Some("ListLeases") => "ListLeases",
        Some("ListRecords") => "ListRecords",
        Some("Classify" | "classify") => "Classify",
        Some("Check" | "Watch") => "Health",
        _ => "Other",
    }
}

/// The time in which the server must answer a request: the caller's deadline (`grpc-timeout`) less
/// a millisecond; `None` if the request has no valid deadline.
///
/// A tonic client enforces the same deadline itself, and then reports CANCELLED (tonic's status.rs
/// maps `TimeoutExpired` to it), after which callers do not retry. The millisecond lets the
/// server's DEADLINE_EXCEEDED arrive first.
fn time_limit(headers: &http::HeaderMap) -> Option<Duration> {
    let timeout = parse_timeout(headers.get("grpc-timeout")?.to_str().ok()?)?;
    Some(timeout.saturating_sub(Duration::from_millis(1)))
}

/// Parses the value of `grpc-timeout`, at most 8 digits and a unit (gRPC over HTTP/2, "Timeout");
/// `None` for any other text.
fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 60 * 60),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// The gRPC code under which the metrics count a plain HTTP response whose handler gave no code.
fn code_of_http(status: http::StatusCode) -> Code {
    match status.as_u16() {
        200..400 => Code::Ok,
        404 | 405 => Code::Unimplemented,
        400..500 => Code::InvalidArgument,
        _ => Code::Unknown,
    }
}

/// Returns the gRPC code of a response, and the response. If tonic could not decode the request,
/// both are replaced with those of an invalid request.
///
/// Every status of a handler has details ([`errors`]). An INTERNAL without details is therefore
/// tonic's own, for a request with a malformed frame or message (tonic's codec/decode.rs and
/// server/grpc.rs, tonic-prost's codec.rs). The caller must change the request, so the right code
/// is INVALID_ARGUMENT; INTERNAL would make an operator look for a fault of the server.
fn with_code(response: http::Response<Body>) -> (Code, http::Response<Body>) {
    let Some(status) = Status::from_header_map(response.headers()) else {
        let code = response.extensions().get().copied();
        return (code.unwrap_or_else(|| code_of_http(response.status())), response);
    };
    if status.code() == Code::Internal && status.details().is_empty() {
        let status = errors::invalid("the request is not a message of this method");
        return (status.code(), status.into_http());
    }
    (status.code(), response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_internal_status_without_details_is_replaced_and_one_with_details_is_kept() {
        for (status, code) in [
            (Status::internal("Missing request message."), Code::InvalidArgument),
            (Status::internal("any other text"), Code::InvalidArgument),
            (errors::internal("a fault of the server"), Code::Internal),
            (Status::unimplemented("compression"), Code::Unimplemented),
            (errors::not_found("a claim"), Code::NotFound),
        ] {
            let (found, response) = with_code(status.clone().into_http());
            let sent = Status::from_header_map(response.headers()).unwrap();
            assert_eq!((found, sent.code()), (code, code), "{status}");
            assert_eq!(sent.details().is_empty(), status.code() == Code::Unimplemented, "{status}");
        }
    }

    #[test]
    fn timeouts_have_the_form_that_grpc_specifies() {
        for (text, expected) in [
            ("300m", Some(Duration::from_millis(300))),
            ("2S", Some(Duration::from_secs(2))),
            ("1H", Some(Duration::from_secs(3600))),
            ("99999999M", Some(Duration::from_secs(5_999_999_940))),
            ("250000u", Some(Duration::from_millis(250))),
            ("7n", Some(Duration::from_nanos(7))),
            ("100000000n", None),
            ("", None),
            ("S", None),
            ("1", None),
            ("1s", None),
            ("-1S", None),
            ("1é", None),
        ] {
            assert_eq!(parse_timeout(text), expected, "{text}");
        }
    }
}

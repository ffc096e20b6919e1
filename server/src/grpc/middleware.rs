//! In front of every request: who calls and whether a rule of the method allows it; behind it: metrics, and clear codes
//! for requests that never reached a handler.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use leasehold_core::batch::MAX_REQUEST_BYTES;
use leasehold_proto::AccessRules;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::{REQUEST_BYTES, errors};
use crate::identity::{Denied, Peer};
use crate::metrics::Metrics;

/// The HTTP twin of the classify rpc, and that rpc.
const CLASSIFY_HTTP: &str = "/v1/classify";
const CLASSIFY_RPC: &str = "/gitlab.cells.topology_service.ClassifyService/Classify";

/// Puts the guard in front of a service.
#[derive(Clone)]
pub struct GuardLayer {
    /// The rules of the methods.
    pub rules: Arc<AccessRules>,
    /// Where requests are counted.
    pub metrics: Arc<Metrics>,
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard { inner, shared: self.clone() }
    }
}

/// The guard.
#[derive(Clone)]
pub struct Guard<S> {
    inner: S,
    shared: GuardLayer,
}

type Answer = Result<http::Response<Body>, Infallible>;

impl<S> Service<http::Request<Body>> for Guard<S>
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
        if let Err(denied) = self.shared.admit(&mut request) {
            let status = errors::denied(denied);
            metrics.answered(method, status.code(), started.elapsed());
            let json = request.uri().path() == CLASSIFY_HTTP;
            let response = if json { errors::json(&status).map(Body::new) } else { status.into_http() };
            return Box::pin(std::future::ready(Ok(response)));
        }
        let patience = patience(request.headers());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = match patience {
                Some(patience) => tokio::time::timeout(patience, answer).await.ok(),
                None => Some(answer.await),
            };
            let (code, response) = match answer {
                Some(answer) => clear(answer?),
                None => (Code::DeadlineExceeded, errors::late().into_http()),
            };
            metrics.answered(method, code, started.elapsed());
            Ok(response)
        })
    }
}

impl GuardLayer {
    /// Gives the request its permit. What has no rules (health, reflection) is open.
    fn admit(&self, request: &mut http::Request<Body>) -> Result<(), Denied> {
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

/// A method's name for metrics: bounded, whatever paths are asked for.
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

/// The library's words for a message or a frame around it that can't be read.
fn is_about_the_request(message: &str) -> bool {
    ["decod", "protocol error: received message with", "Missing request message"]
        .iter()
        .any(|words| message.contains(words))
}

/// The library tells the actual size in words only, and first.
fn first_number(message: &str) -> Option<usize> {
    message.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
}

/// How long the caller waits (`grpc-timeout`), less what it takes to answer before the library does: it would say
/// CANCELLED, on which callers do not try again.
fn patience(headers: &http::HeaderMap) -> Option<Duration> {
    let timeout = parse_timeout(headers.get("grpc-timeout")?.to_str().ok()?)?;
    Some(timeout.saturating_sub(Duration::from_millis(1)))
}

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

/// The code that stands for an answer in plain HTTP which says no more.
fn code_of_http(status: http::StatusCode) -> Code {
    match status.as_u16() {
        200..400 => Code::Ok,
        404 | 405 => Code::Unimplemented,
        400..500 => Code::InvalidArgument,
        _ => Code::Unknown,
    }
}

/// The code of an answer; of one that the library gave to an unreadable request, in our own terms.
fn clear(response: http::Response<Body>) -> (Code, http::Response<Body>) {
    let Some(status) = Status::from_header_map(response.headers()) else {
        let code = response.extensions().get().copied();
        return (code.unwrap_or_else(|| code_of_http(response.status())), response);
    };
    let ours = match status.code() {
        Code::OutOfRange => errors::over_limit(REQUEST_BYTES, MAX_REQUEST_BYTES, first_number(status.message())),
        Code::Internal if status.details().is_empty() && is_about_the_request(status.message()) => {
            errors::invalid("the request is not the message that this method takes")
        }
        code => return (code, response),
    };
    (ours.code(), ours.into_http())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_says_of_requests_is_about_them() {
        assert!(is_about_the_request("Missing request message."));
        assert!(!is_about_the_request("the state is broken"));
    }

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
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

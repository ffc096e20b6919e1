//! In front of every request: who calls and whether a rule of the method allows it; behind it: metrics, and clear codes
//! for requests that never reached a handler.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use leasehold_core::batch::MAX_REQUEST_BYTES;
use leasehold_proto::AccessRules;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::errors;
use crate::identity::Denied;
use crate::metrics::Metrics;
use crate::tls::Peer;

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
        let answer = self.inner.call(request);
        Box::pin(async move {
            let (code, response) = clear(answer.await?);
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

/// The code of an answer; of one that the library gave to an unreadable request, in our own terms.
fn clear(response: http::Response<Body>) -> (Code, http::Response<Body>) {
    let Some(status) = Status::from_header_map(response.headers()) else {
        return (Code::Ok, response);
    };
    let ours = match status.code() {
        Code::OutOfRange => errors::too_large(format!("{} (`request_bytes`)", status.message()), MAX_REQUEST_BYTES),
        Code::Internal if status.message().contains("decode") => {
            errors::invalid("the request is not the message that this method takes")
        }
        code => return (code, response),
    };
    (ours.code(), ours.into_http())
}

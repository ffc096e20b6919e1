//! The middleware in front of every gRPC service and of `POST /v1/classify`.
//!
//! Before a handler runs, the layer checks the protocol, finds the caller's permit and receives the
//! whole request, within bounds of size, memory and time. Afterwards it counts the request, and
//! replaces the status of a request that tonic could not decode. A handler that panics fails its
//! own call only.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use http::Extensions;
use leasehold_proto::AccessRules;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::message::{Framing, RequestSize, receive};
use super::protocol::BoundedBody;
use super::{CLASSIFY_HTTP, delivery, errors, protocol};
use crate::active_config::{ActiveConfig, CurrentConfig};
use crate::budget::{BudgetExceeded, Charge, MAX_WATCHES};
use crate::committer::{CommitterRefusal, TIMES};
use crate::identity::{Caller, Denied};
use crate::metrics::Metrics;
use crate::peer::Peer;
use crate::shares::Sharer;
use crate::subject;
use crate::traces::{CallSpan, Traces};
use crate::waiting_calls::REQUEST_SETTING;

/// The path of `Classify` over gRPC. Its access rules also apply to the path over HTTP.
const CLASSIFY_RPC: &str = "/gitlab.cells.topology_service.ClassifyService/Classify";

/// The starts of the paths of sessions, locks and queues.
const OTHER_PACKAGES: [&str; 3] = ["/leasehold.sessions.v1.", "/leasehold.locks.v1.", "/leasehold.queues.v1."];

/// The path of the stream of health.
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";

/// The metadata with a store's id. A response has the id of the server's store; a request may have
/// the id of the store that the caller expects.
const STORE_ID: &str = "leasehold-store-id";

/// The time that a request gets to arrive completely after the server has begun to stop. This is
/// enough for a round trip, and far less than the time for which the server waits for requests
/// under way.
const REST_AFTER_STOP: Duration = Duration::from_secs(2);

/// Puts the middleware in front of a service.
#[derive(Clone)]
pub struct MiddlewareLayer {
    /// The state that all requests share.
    pub shared: Arc<MiddlewareState>,
}

/// The state that the middleware of all requests shares.
pub struct MiddlewareState {
    /// The access rules of each method.
    pub rules: AccessRules,
    /// The configuration in force.
    pub current: Arc<CurrentConfig>,
    /// The counters of requests.
    pub metrics: Arc<Metrics>,
    /// The id of the server's store, in lower case with hyphens.
    pub store_id: http::HeaderValue,
    /// The traces of calls, if they are on.
    pub traces: Option<Arc<Traces>>,
    /// True if calls of sessions, locks and queues are refused, because the store keeps none.
    pub keeps_claims_only: bool,
    /// Becomes true when the server stops.
    pub stopping: watch::Receiver<bool>,
}

impl<S> Layer<S> for MiddlewareLayer {
    type Service = Middleware<S>;

    fn layer(&self, inner: S) -> Middleware<S> {
        Middleware { inner, shared: self.shared.clone() }
    }
}

/// A service that runs the middleware before and after the service `inner`.
#[derive(Clone)]
pub struct Middleware<S> {
    inner: S,
    shared: Arc<MiddlewareState>,
}

/// The answer to an HTTP request. An error of gRPC is an answer too.
type HttpResult = Result<http::Response<Body>, Infallible>;

impl<S> Service<http::Request<Body>> for Middleware<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = HttpResult> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (inner, shared, started) = (self.inner.clone(), self.shared.clone(), Instant::now());
        let method = method_label(request.uri().path());
        // The count is made outside of the future, so that a call is counted even if it is
        // cancelled before its first poll.
        let span = shared.traces.as_ref().and_then(|traces| traces.begin(method, request.headers()));
        let count = CallCount { metrics: shared.metrics.clone(), method, started, code: Code::Cancelled, span };
        Box::pin(async move {
            let mut count = count;
            let framing = if protocol::is_grpc(&request) { Framing::Grpc } else { Framing::Plain };
            let answer = AssertUnwindSafe(shared.answer(inner, request, framing, started)).catch_unwind();
            let answer = match &count.span {
                Some(span) => TIMES.scope(span.times(), answer).await,
                None => answer.await,
            };
            let answer = answer.unwrap_or_else(|_| {
                tracing::error!(method, "a handler panicked, its caller is answered INTERNAL: report this fault");
                Err(errors::internal("the server has a fault in this method: see its log"))
            });
            let (code, response) = match answer {
                Ok(response) => with_code(response),
                Err(status) => (status.code(), refusal(framing, &status)),
            };
            count.code = code;
            let mut response = delivery::guard(response);
            response.headers_mut().insert(STORE_ID, shared.store_id.clone());
            Ok(response)
        })
    }
}

/// A call. Dropping the value counts the call and ends its span, when the call is answered or its
/// caller is gone.
struct CallCount {
    metrics: Arc<Metrics>,
    method: &'static str,
    started: Instant,
    code: Code,
    // `None` if the call is not traced.
    span: Option<CallSpan>,
}

impl Drop for CallCount {
    fn drop(&mut self) {
        let code = errors::code_name(self.code);
        self.metrics.answered(self.method, code, self.started.elapsed());
        self.span.take().into_iter().for_each(|span| span.end(code));
    }
}

impl MiddlewareState {
    /// Checks a request and runs its handler. Returns the handler's response, or the status of a
    /// refusal or of a passed deadline.
    async fn answer<S>(
        &self,
        mut inner: S,
        mut request: http::Request<Body>,
        framing: Framing,
        started: Instant,
    ) -> Result<http::Response<Body>, Status>
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    {
        if let Some(response) = protocol::refuse(&request) {
            return Ok(response);
        }
        self.check_store(request.headers())?;
        self.check_kept(request.uri().path())?;
        let config = self.current.load();
        let sharer = self.authorise(&mut request, &config, started).map_err(errors::denied)?;
        let body_timeout = Duration::from_secs(config.config.limits.body_seconds.into());
        request.extensions_mut().insert(config);
        let time_limit = time_limit(request.headers());
        let answer = async {
            let held = self.hold(&request, framing, sharer)?;
            request.extensions_mut().extend(held.clone());
            // The charge is kept until the answer, because the handler holds the request's bytes
            // until then.
            let (request, _charge) = self.receive(request, framing, body_timeout, sharer).await?;
            let Ok(mut response) = inner.call(request).await;
            response.extensions_mut().extend(held);
            Ok(response)
        };
        match time_limit {
            Some(limit) => {
                tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(errors::deadline_exceeded()))
            }
            None => answer.await,
        }
    }

    /// Refuses a call of sessions, locks or queues if the store keeps none.
    fn check_kept(&self, path: &str) -> Result<(), Status> {
        let is_other = self.keeps_claims_only && OTHER_PACKAGES.iter().any(|package| path.starts_with(package));
        if is_other { Err(errors::claims_only()) } else { Ok(()) }
    }

    /// Refuses a request that expects another store, before anything is decided. Otherwise its
    /// caller could claim names that have owners in that other store.
    fn check_store(&self, headers: &http::HeaderMap) -> Result<(), Status> {
        let is_expected = headers.get_all(STORE_ID).iter().all(|expected| expected == self.store_id);
        if is_expected { Ok(()) } else { Err(errors::other_store(&self.store_id)) }
    }

    /// Charges the answer of a request before it is read, and counts an open stream of health or
    /// reflection. Returns what the response must keep until the caller has taken it: an
    /// `Arc<Charge>`, and the permit of a stream.
    ///
    /// # Errors
    /// The caller leaves so many answers that no room is left, or has too many streams.
    fn hold(&self, request: &http::Request<Body>, framing: Framing, sharer: Sharer) -> Result<Extensions, Status> {
        let mut held = Extensions::new();
        // Only tests have no peer.
        let Some(peer) = request.extensions().get::<Peer>() else { return Ok(held) };
        let path = request.uri().path();
        let shed = |status| {
            self.metrics.shed(method_label(path));
            status
        };
        if is_watch(path, framing) {
            let watch = peer.budgets().watch().ok_or_else(|| shed(errors::too_many_watches(MAX_WATCHES)))?;
            held.insert(Arc::new(watch));
        }
        let charge = Arc::new(Charge::new(peer.budgets().answers.clone(), sharer));
        if READS.contains(&method_label(path)) {
            charge.add(READ_BYTES).map_err(|exceeded| shed(errors::over_budget(exceeded)))?;
        }
        held.insert(charge);
        Ok(held)
    }

    /// Finds the request's caller, and adds the caller's permit to the request. Returns the caller's
    /// part in shared limits. A path without access rules, such as health and reflection, is open to
    /// all.
    ///
    /// The headers in which balancers name a subject are removed on every path, so that no handler
    /// can trust them.
    fn authorise(
        &self,
        request: &mut http::Request<Body>,
        config: &Arc<ActiveConfig>,
        now: Instant,
    ) -> Result<Sharer, Denied> {
        let peer = request.extensions().get::<Peer>().map_or(Caller::Anonymous, |peer| peer.caller(config, now));
        let identified = subject::identify(peer, request.headers_mut(), &config.config.subjects);
        if identified.has_removed {
            self.metrics.subject_header_removed();
        }
        let path = match request.uri().path() {
            CLASSIFY_HTTP => CLASSIFY_RPC,
            path => path,
        };
        let sharer = Sharer::of(&identified.caller);
        let Some(rules) = self.rules.for_path(path) else { return Ok(sharer) };
        let permit = identified.caller.permit(rules)?;
        request.extensions_mut().insert(permit);
        Ok(sharer)
    }

    /// Receives the body of a request. Returns the request with the complete body, and the charge
    /// for its bytes.
    async fn receive(
        &self,
        request: http::Request<Body>,
        framing: Framing,
        timeout: Duration,
        sharer: Sharer,
    ) -> Result<(http::Request<Body>, Option<Charge>), Status> {
        let (parts, body) = request.into_parts();
        let peer = parts.extensions.get::<Peer>();
        let (size, budgets) = match (request_kind(parts.uri.path(), framing), peer) {
            (RequestKind::Whole(size), Some(peer)) => (size, peer.budgets().clone()),
            (RequestKind::Stream, _) => {
                let body = Body::new(BoundedBody::new(body, self.arrival(timeout)));
                return Ok((http::Request::from_parts(parts, body), None));
            }
            // The handler reads no body.
            (RequestKind::Bodiless, _) | (_, None) => {
                return Ok((http::Request::from_parts(parts, Body::empty()), None));
            }
        };
        let charge = Charge::new(budgets.requests, sharer);
        let body = tokio::select! {
            biased;
            received = receive(body, framing, size, &charge) => received,
            // This branch is first polled if the body has not arrived completely. So a body that is
            // there already starts no timer, and its call never gives way to another.
            status = async {
                let mut call = budgets.waiting.add(sharer);
                tokio::select! {
                    status = self.arrival(timeout) => status,
                    () = call.gives_way() => errors::over_budget(BudgetExceeded(REQUEST_SETTING)),
                }
            } => Err(status),
        };
        let body = body.inspect_err(|status| {
            if status.code() == Code::ResourceExhausted {
                self.metrics.shed(method_label(parts.uri.path()));
            }
        });
        Ok((http::Request::from_parts(parts, body?), Some(charge)))
    }

    /// Completes when the rest of a request is too late: after `timeout`, or shortly after the
    /// server began to stop. Returns the status for the caller.
    fn arrival(&self, timeout: Duration) -> impl Future<Output = Status> + Send + 'static {
        let mut stopping = self.stopping.clone();
        async move {
            let stopped = async {
                let _ = stopping.wait_for(|stop| *stop).await;
                tokio::time::sleep(REST_AFTER_STOP).await;
            };
            tokio::select! {
                () = tokio::time::sleep(timeout) => errors::incomplete(timeout),
                () = stopped => errors::refused(&CommitterRefusal::Stopping),
            }
        }
    }
}

/// The methods that only read, and whose answers are small: each is charged [`READ_BYTES`] before it
/// is read. A list reserves the bytes of a page itself. A take is charged so before it is decided, and
/// charges the bodies that it has taken itself; so does the read of a request. Probes, begins and settles are charged once
/// their answers exist, because they are never refused for answers that nobody takes.
const READS: [&str; 9] =
    ["GetRecord", "GetCell", "GetCells", "Classify", "ClassifyPages", "GetLock", "TakeNow", "GetRequest", "GetQueue"];

/// The estimate of the bytes of a read's answer.
const READ_BYTES: usize = 2048;

/// True if the call is a stream that stays open for as long as the caller wants, and that needs no
/// permit.
fn is_watch(path: &str, framing: Framing) -> bool {
    path == HEALTH_WATCH || matches!(request_kind(path, framing), RequestKind::Stream)
}

/// The way in which a handler takes its request.
enum RequestKind {
    /// The whole body at once.
    Whole(RequestSize),
    /// Message by message.
    Stream,
    /// No body: the handler reads the head alone.
    Bodiless,
}

fn request_kind(path: &str, framing: Framing) -> RequestKind {
    match (framing, method_label(path)) {
        (
            Framing::Grpc,
            "CommitUpdate"
            | "RollbackUpdate"
            | "GetCell"
            | "GetCells"
            | "ListTables"
            | "DropClaims"
            | "ReloadConfiguration"
            | "Health",
        ) => RequestKind::Whole(RequestSize::Small),
        (Framing::Grpc, method) if LOCK_METHODS.contains(&method) || QUEUE_METHODS.contains(&method) => {
            RequestKind::Whole(RequestSize::Small)
        }
        (Framing::Grpc, "Other") if path.starts_with("/grpc.reflection.") => RequestKind::Stream,
        (Framing::Grpc, "Other") => RequestKind::Bodiless,
        (Framing::Grpc, _) => RequestKind::Whole(RequestSize::Large),
        (Framing::Plain, _) if path == CLASSIFY_HTTP => RequestKind::Whole(RequestSize::Large),
        (Framing::Plain, _) => RequestKind::Bodiless,
    }
}

/// The response to a request that no handler answered.
fn refusal(framing: Framing, status: &Status) -> http::Response<Body> {
    match framing {
        Framing::Grpc => status.clone().into_http(),
        Framing::Plain => errors::json(status).map(Body::new),
    }
}

/// The rpcs of sessions and locks, and those between servers, whose requests are small. `AcquireLocks`
/// names several locks, so it is none of them.
const LOCK_METHODS: [&str; 15] = [
    "OpenSession",
    "RenewSession",
    "CloseSession",
    "WatchSession",
    "EvictSession",
    "TryAcquireLock",
    "AcquireLock",
    "LeaveLock",
    "ReleaseLock",
    "GetLock",
    "ListLocks",
    "ForceLock",
    "ReapLock",
    "ResolveOrphan",
    "Ring",
];

/// The rpcs of queues, whose requests are small. `Submit` has the bodies of requests, so it is none of
/// them.
const QUEUE_METHODS: [&str; 12] = [
    "TakeNow",
    "Take",
    "Settle",
    "NoteProgress",
    "Withdraw",
    "Resubmit",
    "Pause",
    "SetLimit",
    "GetRequest",
    "GetQueue",
    "ListRequests",
    "ListLanes",
];

/// The label of a request's method in the metrics. Unknown paths share one label, so that callers
/// can't add labels without bound.
fn method_label(path: &str) -> &'static str {
    match path.rsplit('/').next() {
        Some("AcquireLocks") => "AcquireLocks",
        Some("Submit") => "Submit",
        Some("BeginUpdate") => "BeginUpdate",
        Some("CommitUpdate") => "CommitUpdate",
        Some("RollbackUpdate") => "RollbackUpdate",
        Some("GetRecord") => "GetRecord",
        Some("GetCell") => "GetCell",
        Some("GetCells") => "GetCells",
        Some("ListLeases") => "ListLeases",
        Some("ListRecords") => "ListRecords",
        Some("ListTables") => "ListTables",
        Some("DropClaims") => "DropClaims",
        Some("ReloadConfiguration") => "ReloadConfiguration",
        Some("ListOutstandingLeases") => "ListOutstandingLeases",
        Some("ClassifyPages") => "ClassifyPages",
        Some("Classify" | "classify") => "Classify",
        Some("Check" | "Watch") => "Health",
        Some(method) => LOCK_METHODS.into_iter().chain(QUEUE_METHODS).find(|known| *known == method).unwrap_or("Other"),
        None => "Other",
    }
}

/// The time within which the server must answer a request: the caller's deadline (`grpc-timeout`)
/// minus a millisecond. `None` if the request has no valid deadline.
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
/// both are replaced by INVALID_ARGUMENT and its response.
///
/// Every status of a handler has details ([`errors`]). So an INTERNAL status without details comes
/// from tonic, for a request with a malformed frame or message (tonic's codec/decode.rs and
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
    use leasehold_proto::{Kind, MessageDescriptor};

    use super::super::lists::PAGES;
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
    fn every_rpc_of_the_contract_has_a_label_and_a_body() {
        let pool = leasehold_proto::descriptor_pool().unwrap();
        let methods: Vec<_> = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()).collect();
        assert!(!methods.is_empty());
        for method in methods {
            let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
            assert_ne!(method_label(&path), "Other", "{path}");
            assert!(matches!(request_kind(&path, Framing::Grpc), RequestKind::Whole(_)), "{path}");
        }
    }

    /// True if a message may have more bytes than a few fields of fixed size: it repeats a field, or
    /// has a record of a cell's own data.
    fn may_be_large(message: &MessageDescriptor) -> bool {
        let is_large = |kind: Kind| match kind {
            Kind::Message(message) => message.full_name() == "google.protobuf.Any" || may_be_large(&message),
            _ => false,
        };
        message.fields().any(|field| field.is_list() || field.is_map() || is_large(field.kind()))
    }

    #[test]
    fn every_rpc_with_a_large_answer_is_charged_before_it_is_read() {
        let pool = leasehold_proto::descriptor_pool().unwrap();
        let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
        let mut large: Vec<_> =
            methods.filter(|method| may_be_large(&method.output())).map(|method| method.name().to_owned()).collect();
        // A reload names each setting once at most, and few calls may wait for one. A renewal names the
        // locks that an operator took from the session, and is never refused for load. An acquire of locks
        // answers one grant for each of at most 16 locks. A submit answers an id for each of its requests,
        // and has more bytes itself. A stream of takes reads a batch once its client has taken the one before. A ring
        // answers a number for each of its queues, of which it has a few.
        let small = ["ReloadConfiguration", "RenewSession", "AcquireLocks", "Submit", "Take", "Ring"];
        large.retain(|method| !small.contains(&&**method));
        assert!(large.len() >= 8, "{large:?}");
        for method in large {
            let is_charged = READS.contains(&&*method) || PAGES.iter().any(|(listed, _)| *listed == method);
            assert!(is_charged, "{method}");
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

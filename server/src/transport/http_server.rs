//! The HTTP server: it accepts connections, and runs each connection with all its requests in one
//! task.
//!
//! By default, hyper spawns a task for each request. The committer answers many requests of a
//! connection at the same moment, and each task would then write to the socket separately. In a
//! single task, all answers of a group are written with one system call.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Sleep;
use tonic::body::Body;
use tower::{Service, ServiceExt};

use super::idle_timeout::IdleTimeout;
use super::places::{Place, Places};
use super::strangers::{Stranger, Strangers};
use super::tls::{self, Accepted, Certificates, ClientStream};
use crate::active_config::CurrentConfig;
use crate::budget::ServerBudgets;
use crate::config::Limits;
use crate::descriptors;
use crate::identity::Caller;
use crate::metrics::Metrics;
use crate::peer::Peer;
use crate::shares::{LimitReached, Sharer};

/// The most streams, and the window in bytes, of a connection whose client has no identity. Such a
/// client may call only health and reflection, so small limits suffice and save memory.
const ANONYMOUS_STREAMS: u32 = 16;
const ANONYMOUS_WINDOW: u32 = 65_535;

/// The longest time for which a closing connection waits for its open requests. There must be a
/// limit, because a health watch never ends by itself.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The time between two checks if a closing connection may be dropped. A connection without open
/// requests is dropped then, because h2 waits for the client's answer to a ping, which may never
/// come.
const CLOSE_TICK: Duration = Duration::from_secs(3);

/// The connections beyond the limit that may be open while their clients show their identity: nobody
/// knows before the handshake who has a place.
const HANDSHAKES: usize = 16;

/// The longest time for which the listener waits for the end of a connection that has given way.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The shortest time between two log lines about refused connections.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// An HTTP server for the connections of one listener. Each connection gets a clone.
#[derive(Clone)]
pub struct HttpServer<S> {
    /// The service that answers every request.
    pub service: S,
    /// The certificates for TLS; `None` if the listener speaks plain text.
    pub certificates: Option<Arc<Certificates>>,
    /// The configuration in force: the bounds on streams, idle time and age of a connection.
    pub current: Arc<CurrentConfig>,
    /// The bounds of a listener for probes and metrics; `None` if it follows `[limits]`.
    pub probe_limits: Option<ProbeLimits>,
    /// The budgets for the requests and answers of all connections.
    pub budgets: ServerBudgets,
    /// The counters of connections.
    pub metrics: Arc<Metrics>,
    /// A flag that becomes true when the server must stop.
    pub stopping: watch::Receiver<bool>,
}

/// The bounds on the connections of probes and metrics. They are few and short, so anybody who can
/// reach the listener finds a place.
#[derive(Clone, Copy, Debug)]
pub struct ProbeLimits {
    /// The most connections at a time. The one that is unused the longest gives way to a new one.
    pub connections: usize,
    /// The longest time from the begin of a connection to its first complete request head.
    pub head: Duration,
}

/// The connections of one listener.
#[derive(Clone)]
struct Admission {
    strangers: Arc<Strangers>,
    places: Arc<Places>,
    warned_at: Arc<Mutex<Option<Instant>>>,
}

impl Admission {
    fn new() -> Self {
        Self { strangers: Arc::default(), places: Places::new(), warned_at: Arc::default() }
    }

    /// Counts a connection that is closed or gives way, and returns true if a line in the log is due.
    fn refuse(&self, metrics: &Metrics) -> bool {
        metrics.connection_refused();
        // INVARIANT: the value is replaced as a whole, so a panic leaves none half changed.
        let mut warned_at = self.warned_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL);
        if is_due {
            *warned_at = Some(Instant::now());
        }
        is_due
    }
}

type Infallible = std::convert::Infallible;

impl<S> HttpServer<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    /// Accepts and serves connections until `stopping` becomes true. Returns when every open
    /// request is answered.
    pub async fn serve(mut self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        let admission = Admission::new();
        loop {
            tokio::select! {
                // Ended connections are handled first, so that they make room for new ones.
                biased;
                Some(_) = connections.join_next() => self.metrics.connection_closed(),
                () = stopped(&mut self.stopping) => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        if self.make_room(&mut connections, &admission).await {
                            self.metrics.connection_opened();
                            self.clone().spawn(&mut connections, &admission, stream, address);
                        }
                    }
                    Err(error) => {
                        // The usual error is EMFILE: no file descriptor is left. `accept` would
                        // fail again at once, so the pause lets some connections close.
                        tracing::warn!(%error, "a connection can't be accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {
            self.metrics.connection_closed();
        }
    }

    /// Starts the task of a connection. A client in plain text has no identity to show, so its
    /// connection gives way to none.
    fn spawn(self, connections: &mut JoinSet<()>, admission: &Admission, stream: TcpStream, address: SocketAddr) {
        let of_task = admission.clone();
        if self.certificates.is_some() {
            let strangers = &admission.strangers;
            strangers.spawn(connections, |stranger| self.connection(stream, address, Some(stranger), of_task));
        } else {
            connections.spawn(self.connection(stream, address, None, of_task));
        }
    }

    fn max_connections(&self) -> usize {
        match self.probe_limits {
            Some(limits) => limits.connections,
            None => descriptors::max_connections(&self.current.load().config).0,
        }
    }

    /// True if the connections of this listener have places, which give way by [`Places`].
    fn has_places(&self) -> bool {
        self.certificates.is_some() || self.probe_limits.is_some()
    }

    /// Returns true if one more connection may open. At the limit, the oldest connection whose client
    /// has not shown an identity gives way, so that such clients can't take all places. If all clients
    /// have places, a few more connections may open: [`place`](Self::place) decides once the server
    /// knows who the client is.
    async fn make_room(&self, connections: &mut JoinSet<()>, admission: &Admission) -> bool {
        let max = self.max_connections();
        if connections.len() < max {
            return true;
        }
        let spare = if self.has_places() { HANDSHAKES } else { 0 };
        let has_room = admission.strangers.end_one(spare);
        if has_room && connections.join_next().await.is_some() {
            self.metrics.connection_closed();
        }
        let may_open = has_room || connections.len() < max + spare || (spare > 0 && self.one_ends(connections).await);
        if (has_room || !may_open) && admission.refuse(&self.metrics) {
            tracing::warn!(
                open = max,
                "new connections are closed at once, or the oldest of clients without an identity: as many are open as `limits.connections` and the limit of open files allow"
            );
        }
        may_open
    }

    /// Waits briefly until a connection has ended, because one that has given way may not have run since.
    async fn one_ends(&self, connections: &mut JoinSet<()>) -> bool {
        let has_ended = tokio::time::timeout(END_TIMEOUT, connections.join_next()).await.is_ok();
        if has_ended {
            self.metrics.connection_closed();
        }
        has_ended
    }

    /// Returns the place of a connection of this caller; `None` if it needs none.
    ///
    /// # Errors
    /// The connection must close, because the caller's share is used up, or all places are taken.
    fn place(&self, caller: &Caller, admission: &Admission) -> Result<Option<Place>, LimitReached> {
        let Admission { places, .. } = admission;
        let max = self.max_connections();
        places.resize(max, Sharer::of_connections(&self.current.load().config));
        if self.probe_limits.is_none() && is_anonymous(caller) {
            return match places.are_taken() {
                true => Err(LimitReached::OfServer { setting: "limits.connections", max }),
                false => Ok(None),
            };
        }
        let found = places.take(Sharer::of_connection(caller));
        let gave_way = found.as_ref().is_ok_and(|found| found.another_gave_way);
        if (gave_way || found.is_err()) && admission.refuse(&self.metrics) && self.probe_limits.is_none() {
            tracing::warn!(
                %caller,
                "a caller has as many connections as its share of `limits.connections` allows: the one that is unused the longest is closed, or the new one if each runs a call"
            );
        }
        found.map(|found| Some(found.place))
    }

    async fn connection(
        mut self,
        stream: TcpStream,
        address: SocketAddr,
        stranger: Option<Stranger>,
        admission: Admission,
    ) {
        let has_places = self.has_places();
        let certificates = self.certificates.take();
        // The subscription begins before the handshake, so that a reload during the handshake is
        // not missed.
        let changes = certificates.as_ref().map(|certificates| certificates.changes());
        let handshake = tokio::select! {
            handshake = tls::accept(stream, certificates.as_deref()) => handshake,
            () = stopped(&mut self.stopping) => return,
        };
        let accepted = match handshake {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::info!(%error, %address, "a client failed the TLS handshake");
                return;
            }
        };
        let config = self.current.load();
        let limits = config.config.limits;
        let peer = accepted.peer(config, self.budgets.of_connection());
        let caller = peer.caller(&self.current.load(), Instant::now());
        let place = if has_places { self.place(&caller, &admission) } else { Ok(None) };
        let Ok(place) = place else { return };
        let is_anonymous = is_anonymous(&caller);
        let stranger = stranger.filter(|_| is_anonymous);
        stranger.iter().for_each(Stranger::opened);
        let Accepted { stream, chain, .. } = accepted;
        let rejected = async {
            match (&certificates, changes) {
                (Some(certificates), Some(changes)) => certificates.reject(&chain, changes).await,
                _ => std::future::pending().await,
            }
        };
        let end = end_of_life(self.stopping.clone(), max_age(&limits), &peer, rejected);
        self.requests(stream, peer.clone(), limits, is_anonymous, (place, end)).await;
    }

    /// Serves the requests of a connection. After `end` has completed, the connection takes no new
    /// requests. If its place is given to another connection, it ends.
    async fn requests(
        self,
        stream: ClientStream,
        peer: Peer,
        limits: Limits,
        is_anonymous: bool,
        (mut place, end): (Option<Place>, impl Future<Output = ()>),
    ) {
        let (executor, mut requests) = request_tasks();
        let answers = peer.budgets().answers.clone();
        let builder = builder(executor, limits, is_anonymous);
        let (open, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
        let idle = Duration::from_secs(limits.idle_seconds.into());
        let first = self.probe_limits.map_or(idle, |limits| limits.head.min(idle));
        let mut unused = (is_anonymous || self.probe_limits.is_some()).then(|| Unused::new(calls.clone(), first, idle));
        let count = open.clone();
        let service = self.service.map_future(move |answer| {
            calls.fetch_add(1, Ordering::Relaxed);
            let request = OpenRequest::new(count.clone());
            answer.inspect(move |_| drop(request))
        });
        let service = service.map_request(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            request.map(Body::new)
        });
        let stream = TokioIo::new(IdleTimeout::new(stream, idle));
        let mut connection = pin!(builder.serve_connection(stream, TowerToHyperService::new(service)));
        let mut end = pin!(end);
        let mut stalled = pin!(answers.stalled(Duration::from_secs(limits.answer_seconds.into())));
        let mut closing: Option<Closing> = None;
        let served = std::future::poll_fn(|cx| {
            if stalled.as_mut().poll(cx).is_ready() {
                tracing::info!("a client left an answer untaken for `limits.answer_seconds`: its connection ends");
                return Poll::Ready(Ok(()));
            }
            // hyper polls the requests of HTTP/1 itself, so they are not in `requests`, but in the
            // count `open`.
            let is_busy = !requests.running.is_empty() || open.load(Ordering::Relaxed) > 0;
            let is_unused = unused.as_mut().is_some_and(|unused| unused.poll_over(cx).is_ready());
            let gives_way = place.as_mut().is_some_and(|place| place.poll_gives_way(cx).is_ready());
            // A client of probes that has sent no request has nothing to lose.
            if gives_way || (is_unused && self.probe_limits.is_some()) {
                return Poll::Ready(Ok(()));
            }
            if closing.is_none() && (is_unused || end.as_mut().poll(cx).is_ready()) {
                closing = Some(Closing::new());
                connection.as_mut().graceful_shutdown();
            }
            if closing.as_mut().is_some_and(|closing| closing.poll_over(cx, is_busy).is_ready()) {
                return Poll::Ready(Ok(()));
            }
            // The order matters. Requests that were answered run first, so that the connection then
            // writes all their responses at once. Requests that the connection has just read start
            // last.
            requests.run(cx);
            let served = connection.as_mut().poll(cx);
            requests.start(cx);
            let is_busy = !requests.running.is_empty() || open.load(Ordering::Relaxed) > 0;
            place.iter().for_each(|place| place.note(is_busy));
            served
        });
        if let Err(error) = served.await {
            tracing::debug!(%error, "a connection failed");
        }
    }
}

/// True if the client has no identity that the server knows.
fn is_anonymous(caller: &Caller) -> bool {
    matches!(caller, Caller::Anonymous | Caller::Unrecognised)
}

/// One request in a connection's count of open requests. Dropping the value subtracts it.
struct OpenRequest(Arc<AtomicUsize>);

impl OpenRequest {
    fn new(count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The timer of a connection whose client has no identity, or of a connection for probes. If such a
/// client begins no call, neither pings nor an open stream keep its connection, since it takes the
/// place of another client.
struct Unused {
    // The number of calls so far.
    calls: Arc<AtomicU64>,
    calls_before: u64,
    timeout: Duration,
    tick: Pin<Box<Sleep>>,
}

impl Unused {
    /// Allows the time `first` for the first call, and `timeout` for each further one.
    fn new(calls: Arc<AtomicU64>, first: Duration, timeout: Duration) -> Self {
        Self { calls, calls_before: 0, timeout, tick: Box::pin(tokio::time::sleep(first)) }
    }

    /// Ready when no call has begun for the timeout.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.tick.as_mut().poll(cx).is_ready() {
            let calls = self.calls.load(Ordering::Relaxed);
            if calls == self.calls_before {
                return Poll::Ready(());
            }
            self.calls_before = calls;
            self.tick.as_mut().reset((Instant::now() + self.timeout).into());
        }
        Poll::Pending
    }
}

/// The timers of a connection that is closing and takes no new requests.
struct Closing {
    since: Instant,
    tick: Pin<Box<Sleep>>,
}

impl Closing {
    fn new() -> Self {
        Self { since: Instant::now(), tick: Box::pin(tokio::time::sleep(CLOSE_TICK)) }
    }

    /// Ready when the closing connection must be dropped. `is_busy` is true if it has open
    /// requests.
    fn poll_over(&mut self, cx: &mut Context<'_>, is_busy: bool) -> Poll<()> {
        while self.tick.as_mut().poll(cx).is_ready() {
            if !is_busy || self.since.elapsed() >= CLOSE_TIMEOUT {
                return Poll::Ready(());
            }
            self.tick.as_mut().reset((Instant::now() + CLOSE_TICK).into());
        }
        Poll::Pending
    }
}

/// The age at which a connection ends. It differs from connection to connection by up to a tenth,
/// so that clients that connected at the same time do not reconnect at the same time.
fn max_age(limits: &Limits) -> Duration {
    Duration::from_secs(limits.connection_age_seconds.into()).mul_f64(rand::random_range(0.9..=1.0))
}

/// Completes when a connection must end: the server stops, the connection is old, or its client's
/// certificates have expired or were rejected. `rejected` completes when a reload of the
/// certificates rejects them.
async fn end_of_life(
    mut stopping: watch::Receiver<bool>,
    max_age: Duration,
    peer: &Peer,
    rejected: impl Future<Output = ()>,
) {
    let old = Instant::now() + max_age;
    let end = peer.valid_until().map_or(old, |until| until.min(old));
    tokio::select! {
        () = stopped(&mut stopping) => {}
        () = tokio::time::sleep_until(end.into()) => {}
        () = rejected => peer.revoke(),
    }
}

/// Returns hyper's settings for a connection.
fn builder(executor: RequestExecutor, limits: Limits, is_anonymous: bool) -> Builder<RequestExecutor> {
    let idle = Duration::from_secs(limits.idle_seconds.into());
    let streams = match is_anonymous {
        true => limits.streams_per_connection.min(ANONYMOUS_STREAMS),
        false => limits.streams_per_connection,
    };
    let mut builder = Builder::new(executor);
    // `IdleTimeout` does not end a connection whose client sends the head of a request byte by byte
    // and never completes it.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(idle);
    builder
        .http2()
        .timer(TokioTimer::new())
        // The HTTP/2 library of a living client answers pings (RFC 9113, 6.7), so a living client
        // never reaches the idle time. A client that does not answer is disconnected by hyper after
        // two thirds of the idle time.
        .keep_alive_interval(idle / 3)
        .keep_alive_timeout(idle / 3)
        .max_concurrent_streams(streams)
        // By default, h2 allows 20 streams that the client reset before the server accepted them,
        // and treats more as a rapid-reset attack (RFC 9113, 10.5). A client whose deadlines pass
        // while this server is paused may reset all its streams, and must not lose the connection
        // for that.
        .max_pending_accept_reset_streams(usize::try_from(streams).ok());
    if is_anonymous {
        builder.http2().initial_connection_window_size(ANONYMOUS_WINDOW).initial_stream_window_size(ANONYMOUS_WINDOW);
    }
    builder
}

/// Completes when the server must stop, or if the sender of the flag was dropped.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

type RequestTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The executor to which hyper gives the HTTP/2 requests of a connection: a channel to the
/// connection's own task. hyper polls HTTP/1 requests itself.
#[derive(Clone)]
struct RequestExecutor(mpsc::UnboundedSender<RequestTask>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for RequestExecutor {
    fn execute(&self, request: F) {
        // A panic ends only its own request, whose stream is then reset. Sending fails only after
        // the connection has ended, when nobody waits for the answer.
        let _ = self.0.send(Box::pin(AssertUnwindSafe(request).catch_unwind().map(drop)));
    }
}

/// The open requests of one connection: new ones in the channel, and running ones.
struct RequestTasks {
    new: mpsc::UnboundedReceiver<RequestTask>,
    running: FuturesUnordered<RequestTask>,
}

fn request_tasks() -> (RequestExecutor, RequestTasks) {
    let (sender, new) = mpsc::unbounded_channel();
    (RequestExecutor(sender), RequestTasks { new, running: FuturesUnordered::new() })
}

impl RequestTasks {
    /// Polls every running request that was woken.
    fn run(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(())) = self.running.poll_next_unpin(cx) {}
    }

    /// Takes the new requests from the channel and polls them for the first time.
    fn start(&mut self, cx: &mut Context<'_>) {
        let before = self.running.len();
        while let Ok(task) = self.new.try_recv() {
            self.running.push(task);
        }
        if self.running.len() > before {
            self.run(cx);
        }
    }
}

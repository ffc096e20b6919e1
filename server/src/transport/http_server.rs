//! The HTTP server: it accepts connections, and runs each connection with all its requests in one
//! task.
//!
//! By default, hyper spawns a task for each request. The committer answers many requests of a
//! connection at the same moment, and each task would then write to the socket separately. In a
//! single task, all answers of a group are written with one system call.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tonic::body::Body;
use tower::{Service, ServiceExt};

use super::idle_timeout::IdleTimeout;
use super::tls::{self, Certificates, ClientStream};
use crate::config::Limits;

/// An HTTP server for the connections of one listener. Each connection gets a clone.
#[derive(Clone)]
pub struct HttpServer<S> {
    /// The service that answers every request.
    pub service: S,
    /// The certificates for TLS; `None` if the listener speaks plain text.
    pub certificates: Option<Arc<Certificates>>,
    /// The bounds on streams and idle time of a connection.
    pub limits: Limits,
    /// A flag that becomes true when the server must stop.
    pub stopping: watch::Receiver<bool>,
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
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => drop(connections.spawn(self.clone().connection(stream, address))),
                    Err(error) => {
                        // The usual error is EMFILE: no file descriptor is left. `accept` would
                        // fail again at once, so the pause lets some connections close.
                        tracing::warn!(%error, "a connection can't be accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                () = stopped(&mut self.stopping) => break,
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    async fn connection(mut self, stream: TcpStream, address: SocketAddr) {
        let handshake = tokio::select! {
            handshake = tls::accept(stream, self.certificates.take()) => handshake,
            () = stopped(&mut self.stopping) => return,
        };
        match handshake {
            Ok(stream) => self.requests(stream).await,
            Err(error) => tracing::info!(%error, %address, "a client failed the TLS handshake"),
        }
    }

    async fn requests(mut self, stream: ClientStream) {
        let peer = stream.peer();
        let service = self.service.map_request(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(peer);
            request.map(Body::new)
        });
        let (executor, mut requests) = request_tasks();
        let builder = builder(executor, self.limits);
        let idle = Duration::from_secs(self.limits.idle_seconds.into());
        let stream = TokioIo::new(IdleTimeout::new(stream, idle));
        let mut connection = pin!(builder.serve_connection(stream, TowerToHyperService::new(service)));
        let mut stopped = pin!(stopped(&mut self.stopping));
        let mut stopping = false;
        let served = std::future::poll_fn(|cx| {
            if !stopping && stopped.as_mut().poll(cx).is_ready() {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            // The order matters. Requests that were answered run first, so that the connection then
            // writes all their responses at once. Requests that the connection has just read start
            // last.
            requests.run(cx);
            let served = connection.as_mut().poll(cx);
            requests.start(cx);
            served
        });
        if let Err(error) = served.await {
            tracing::debug!(%error, "a connection failed");
        }
    }
}

/// Returns hyper's settings for a connection.
fn builder(executor: RequestExecutor, limits: Limits) -> Builder<RequestExecutor> {
    let idle = Duration::from_secs(limits.idle_seconds.into());
    let mut builder = Builder::new(executor);
    // `IdleTimeout` does not end a connection whose client sends the head of a request byte by byte
    // and never completes it.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(idle);
    builder
        .http2()
        .timer(TokioTimer::new())
        // The HTTP/2 library of a living client answers pings (RFC 9113, 6.7), so only a dead
        // client reaches the idle time.
        .keep_alive_interval(idle / 3)
        .keep_alive_timeout(idle / 3)
        .max_concurrent_streams(limits.streams_per_connection)
        // By default, h2 allows 20 streams that the client reset before the server accepted them,
        // and treats more as a rapid-reset attack (RFC 9113, 10.5). A client whose deadlines pass
        // while this server is paused may reset all its streams, and must not lose the connection
        // for that.
        .max_pending_accept_reset_streams(usize::try_from(limits.streams_per_connection).ok());
    builder
}

/// Returns when the server must stop. It also returns if the sender of the flag was dropped.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

type RequestTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The executor to which hyper gives the requests of a connection: a channel to the connection's
/// own task.
#[derive(Clone)]
struct RequestExecutor(mpsc::UnboundedSender<RequestTask>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for RequestExecutor {
    fn execute(&self, request: F) {
        // Sending fails only after the connection has ended, when no client waits for the answer.
        let _ = self.0.send(Box::pin(request));
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

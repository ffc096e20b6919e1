//! Connections: accepts them, and serves each with all of its requests in one task.
//!
//! The committer answers many requests at a time. In one task, what is answered together is written to the connection
//! together, and a group costs a wake-up and a system call a connection instead of one a request.

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
use super::tls::{Certificates, Stream, greet};
use crate::config::Limits;

/// What connections are served with.
#[derive(Clone)]
pub struct Connections<S> {
    /// Answers requests.
    pub service: S,
    /// For TLS.
    pub certificates: Option<Arc<Certificates>>,
    /// What one connection may have open, and how long it may be silent.
    pub limits: Limits,
    /// True once the server stops.
    pub stopping: watch::Receiver<bool>,
}

type Infallible = std::convert::Infallible;

impl<S> Connections<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    /// Accepts and serves until the server stops and every request under way is answered.
    pub async fn serve(mut self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => drop(connections.spawn(self.clone().connection(stream, address))),
                    Err(error) => {
                        // Out of file descriptors, mostly: let some close before the next try.
                        tracing::warn!(%error, "a connection could not be accepted");
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
        let greeted = tokio::select! {
            greeted = greet(stream, self.certificates.take()) => greeted,
            () = stopped(&mut self.stopping) => return,
        };
        match greeted {
            Ok(stream) => self.requests(stream).await,
            Err(error) => tracing::info!(%error, %address, "a client failed the TLS handshake"),
        }
    }

    async fn requests(mut self, stream: Stream) {
        let peer = stream.peer();
        let service = self.service.map_request(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(peer);
            request.map(Body::new)
        });
        let (spawner, mut tasks) = tasks();
        let idle = Duration::from_secs(self.limits.idle_seconds.into());
        let mut builder = Builder::new(spawner);
        // A head that comes byte by byte is not silence.
        builder.http1().timer(TokioTimer::new()).header_read_timeout(idle);
        builder
            .http2()
            .timer(TokioTimer::new())
            // A client that lives is heard of in time: it answers pings by itself.
            .keep_alive_interval(idle / 3)
            .keep_alive_timeout(idle / 3)
            .max_concurrent_streams(self.limits.streams_per_connection)
            // All that one may have open can be given up while this server stands still; that is no attack (RFC 9113, 10.5).
            .max_pending_accept_reset_streams(usize::try_from(self.limits.streams_per_connection).ok());
        let stream = TokioIo::new(IdleTimeout::new(stream, idle));
        let mut connection = pin!(builder.serve_connection(stream, TowerToHyperService::new(service)));
        let mut stopped = pin!(stopped(&mut self.stopping));
        let mut stopping = false;
        let served = std::future::poll_fn(|cx| {
            if !stopping && stopped.as_mut().poll(cx).is_ready() {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            // First what was answered, so that the connection writes all of it at once, then what it read.
            tasks.run(cx);
            let served = connection.as_mut().poll(cx);
            tasks.start(cx);
            served
        });
        if let Err(error) = served.await {
            tracing::debug!(%error, "a connection failed");
        }
    }
}

/// Returns when the server stops; a sender that is gone means stop, too.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where hyper puts a connection's requests.
#[derive(Clone)]
struct Spawner(mpsc::UnboundedSender<Task>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Spawner {
    fn execute(&self, request: F) {
        // A connection that has gone needs no answers.
        let _ = self.0.send(Box::pin(request));
    }
}

/// The requests of one connection.
struct Tasks {
    new: mpsc::UnboundedReceiver<Task>,
    running: FuturesUnordered<Task>,
}

fn tasks() -> (Spawner, Tasks) {
    let (sender, new) = mpsc::unbounded_channel();
    (Spawner(sender), Tasks { new, running: FuturesUnordered::new() })
}

impl Tasks {
    /// Goes on with those that can.
    fn run(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(())) = self.running.poll_next_unpin(cx) {}
    }

    /// Takes up the new ones.
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

//! One HTTP/2 connection, without the queue, reconnection and load balancing of a tonic channel.
//! The clients share the machine with the measured servers, so they should use little processor
//! time, for Leasehold and for the peer alike.

use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use http::uri::{Authority, Scheme};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tonic::body::Body;
use tower::Service;

/// A connection to a server under measurement. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Channel {
    requests: SendRequest<Body>,
    authority: Authority,
}

impl Channel {
    /// Connects to a server in plain text.
    ///
    /// # Errors
    /// No server answers at `address`.
    pub(crate) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to `{address}`"))?;
        stream.set_nodelay(true)?;
        let (requests, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // An error of the connection is ignored here, because the connection's requests then fail
        // too.
        tokio::spawn(connection);
        Ok(Self { requests, authority: address.parse()? })
    }
}

impl Service<http::Request<Body>> for Channel {
    type Response = http::Response<Body>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.requests.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(self.authority.clone());
        // The parts are a valid URI: every request has a path, and scheme and authority were just
        // added.
        *request.uri_mut() = http::Uri::from_parts(parts).unwrap_or_default();
        let response = self.requests.send_request(request);
        Box::pin(async move { Ok(response.await?.map(Body::new)) })
    }
}

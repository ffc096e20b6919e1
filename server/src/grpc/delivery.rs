//! The moment at which a response counts as handed on, so that its lease is not rolled back (B25).
//!
//! hyper hands the head of a response to HTTP/2 and then polls the body, which has the lease's id
//! (hyper's proto/h2/server.rs, `poll2`). If the client reset the call before that, hyper drops the
//! body without a poll. Then the caller can't know the lease.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use crate::committer::Undelivered;

/// Moves the undelivered lease, if the response has one, from the response's extensions into its
/// body.
pub(super) fn guard(mut response: http::Response<Body>) -> http::Response<Body> {
    let undelivered = response.extensions_mut().remove::<Arc<Undelivered>>().and_then(Arc::into_inner);
    match undelivered {
        Some(undelivered) => response.map(|body| Body::new(GuardedBody { body, undelivered: Some(undelivered) })),
        None => response,
    }
}

/// The body of a response with a begun lease. The first poll marks the lease as handed on.
struct GuardedBody {
    body: Body,
    undelivered: Option<Undelivered>,
}

impl hyper::body::Body for GuardedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.undelivered.take().into_iter().for_each(Undelivered::hand_on);
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! The bodies of two kinds of responses. That of a begun lease tells the moment at which it counts
//! as handed on, so that the lease is not rolled back (B25). That of a list keeps the charge for its
//! bytes until they are sent.
//!
//! hyper hands the head of a response to HTTP/2 and then polls the body, which has the lease's id
//! (hyper's proto/h2/server.rs, `poll2`). If the client reset the call before that, hyper drops the
//! body without a poll. Then the caller can't know the lease.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use crate::budget::Charge;
use crate::committer::Undelivered;

/// Moves the undelivered lease or the charge, if the response has one, from the response's
/// extensions into its body.
pub(super) fn guard(mut response: http::Response<Body>) -> http::Response<Body> {
    if let Some(charge) = response.extensions_mut().remove::<Arc<Charge>>().and_then(Arc::into_inner) {
        return response.map(|body| Body::new(ChargedBody { body, charge: Some(charge) }));
    }
    let undelivered = response.extensions_mut().remove::<Arc<Undelivered>>().and_then(Arc::into_inner);
    match undelivered {
        Some(undelivered) => response.map(|body| Body::new(GuardedBody { body, undelivered: Some(undelivered) })),
        None => response,
    }
}

/// The body of an answer that is charged to a budget. The answer is one frame, with which the charge
/// goes.
struct ChargedBody {
    body: Body,
    charge: Option<Charge>,
}

/// The bytes of an answer. h2 keeps them until it has sent the last one, long after it has taken the
/// body to its end, so the charge must live as long as the bytes do.
struct ChargedBytes {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl ChargedBody {
    fn charge(&mut self, bytes: Bytes) -> Bytes {
        let Some(mut charge) = self.charge.take() else { return bytes };
        charge.ready(bytes.len());
        Bytes::from_owner(ChargedBytes { bytes, _charge: charge })
    }
}

impl hyper::body::Body for ChargedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| self.charge(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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

//! The bodies of responses. That of a begun lease tells the moment at which it counts as handed on,
//! so that the lease is not rolled back (B25). Every answer keeps the charge for its bytes until they
//! are sent.
//!
//! hyper hands the head of a response to HTTP/2 and then polls the body, which has the lease's id
//! (hyper's proto/h2/server.rs, `poll2`). If the client reset the call before that, hyper drops the
//! body without a poll. Then the caller can't know the lease.
//!
//! An answer is encoded before hyper gets it, and tonic's body is dropped. hyper keeps a body until
//! the client has given it a window, and tonic's body keeps the buffer for as long.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::noop_waker_ref;
use http::Extensions;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;
use tonic::body::Body;

use crate::budget::{Charge, ReadyAnswer};
use crate::committer::Undelivered;

/// The memory of an answer besides its bytes: its stream and its trailers.
const ANSWER_BYTES: usize = 1024;

/// Answers below this size are copied out of tonic's buffer, which has 8 KiB.
const SMALL_ANSWER_BYTES: usize = 4096;

/// Moves the undelivered lease, the charge and the permit, as far as the response has them, from its
/// extensions into its body. If the answer is complete, it is encoded at once.
pub(super) fn guard(mut response: http::Response<Body>) -> http::Response<Body> {
    let extensions = response.extensions_mut();
    let undelivered = take::<Undelivered>(extensions);
    let permit = extensions.remove::<Arc<OwnedSemaphorePermit>>();
    let charge = extensions.remove::<Arc<Charge>>();
    response.map(|body| match body.is_end_stream() {
        true => body,
        false => Body::new(GuardedBody { undelivered, ..GuardedBody::new(body, charge, permit) }),
    })
}

/// Removes a value that only the response has.
fn take<T: Send + Sync + 'static>(extensions: &mut Extensions) -> Option<T> {
    extensions.remove::<Arc<T>>().and_then(Arc::into_inner)
}

/// The body of a response: its first frames, which were there at once, and the rest.
struct GuardedBody {
    frames: VecDeque<Result<Frame<Bytes>, Status>>,
    // `None` if the first frames are all.
    rest: Option<Body>,
    size_hint: SizeHint,
    // The first poll marks the lease as handed on.
    undelivered: Option<Undelivered>,
    _permit: Option<Arc<OwnedSemaphorePermit>>,
}

/// The bytes of an answer. h2 keeps them until it has sent the last one, long after it has taken the
/// body to its end, so the charge must live as long as the bytes do.
struct ChargedBytes {
    bytes: Bytes,
    _answer: ReadyAnswer,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the bytes of an answer, which keep its charge.
fn charged(bytes: Bytes, charge: Arc<Charge>) -> Bytes {
    // tonic encodes into a buffer that doubles, and h2 keeps all of it.
    let (bytes, taken) = match bytes.len() {
        small @ ..SMALL_ANSWER_BYTES => (Bytes::copy_from_slice(&bytes), small),
        large => (bytes, large.next_power_of_two()),
    };
    Bytes::from_owner(ChargedBytes { bytes, _answer: charge.ready(taken + ANSWER_BYTES) })
}

impl GuardedBody {
    fn new(mut body: Body, mut charge: Option<Arc<Charge>>, permit: Option<Arc<OwnedSemaphorePermit>>) -> Self {
        let size_hint = body.size_hint();
        let mut frames = VecDeque::with_capacity(2);
        let mut is_end = false;
        // The two frames of an answer are there without a wait. hyper polls a stream that waits
        // again, with its own waker.
        let mut cx = Context::from_waker(noop_waker_ref());
        while !is_end
            && frames.len() < 2
            && let Poll::Ready(frame) = Pin::new(&mut body).poll_frame(&mut cx)
        {
            // Nothing follows the trailers (RFC 9113, 8.1).
            is_end = !matches!(&frame, Some(Ok(frame)) if frame.is_data());
            frames.extend(frame.map(|frame| {
                frame.map(|frame| {
                    frame.map_data(|bytes| match charge.take() {
                        Some(charge) => charged(bytes, charge),
                        None => bytes,
                    })
                })
            }));
        }
        let rest = (!is_end).then_some(body);
        Self { frames, rest, size_hint, undelivered: None, _permit: permit }
    }
}

impl hyper::body::Body for GuardedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.undelivered.take().into_iter().for_each(Undelivered::hand_on);
        match (self.frames.pop_front(), &mut self.rest) {
            (Some(frame), _) => Poll::Ready(Some(frame)),
            (None, Some(rest)) => Pin::new(rest).poll_frame(cx),
            (None, None) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.size_hint
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    /// A body of given frames, with trailers after them.
    struct Frames(VecDeque<Frame<Bytes>>);

    impl hyper::body::Body for Frames {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    /// Guards a body of these data frames. Returns how many frames it has at once, and all its data.
    fn guarded(frames: &[&'static [u8]]) -> (usize, Vec<Bytes>) {
        let data = frames.iter().map(|bytes| Frame::data(Bytes::from_static(bytes)));
        let frames = data.chain([Frame::trailers(HeaderMap::new())]).collect();
        let mut body = GuardedBody::new(Body::new(Frames(frames)), None, None);
        let (mut cx, first, mut found) = (Context::from_waker(noop_waker_ref()), body.frames.len(), Vec::new());
        while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut cx) {
            found.extend(frame.unwrap().into_data());
        }
        (first, found)
    }

    #[test]
    fn a_body_keeps_its_frames_and_an_answer_is_encoded_at_once() {
        let all: [&[u8]; 3] = [b"one", b"two", b"three"];
        for count in 0..=all.len() {
            let (first, found) = guarded(&all[..count]);
            assert_eq!(first, (count + 1).min(2));
            assert_eq!(found, &all[..count]);
        }
    }
}

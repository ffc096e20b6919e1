//! Receives the whole request of a unary call before its handler runs, within bounds of size and
//! memory (B11).
//!
//! tonic allocates as many bytes as the length prefix of a message announces (codec/decode.rs). A
//! sender may announce far more than it sends. So this module allocates memory only for bytes that
//! have arrived, and gives a message to tonic when it is complete.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Frame, SizeHint};
use leasehold_core::batch::MAX_REQUEST_BYTES;
use tonic::body::Body;
use tonic::{Code, Status};

use super::{REQUEST_BYTES, errors};
use crate::budget::Charge;

/// The bytes before a message: a flag, and the length as a big-endian number (gRPC over HTTP/2,
/// "Length-Prefixed-Message").
const PREFIX_BYTES: usize = 5;

/// The largest message of a method that needs no more than a few fields: health, reflection,
/// commits, rollbacks, `GetCell`, `GetCells`, and the calls of administrators.
pub const MAX_SMALL_REQUEST_BYTES: usize = 4096;

/// The bounds on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestSize {
    /// At most [`MAX_SMALL_REQUEST_BYTES`]. The bytes are not charged to the budget, because a
    /// commit is never refused for load.
    Small,
    /// At most [`MAX_REQUEST_BYTES`]. The bytes are charged to the budget.
    Large,
}

impl RequestSize {
    fn max(self) -> usize {
        match self {
            Self::Small => MAX_SMALL_REQUEST_BYTES,
            Self::Large => MAX_REQUEST_BYTES,
        }
    }
}

/// The framing of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// One message with its prefix.
    Grpc,
    /// Bytes without a prefix.
    Plain,
}

/// Receives a body to its end, and charges the bytes of a large request. Trailers are dropped,
/// because no method reads them.
///
/// # Errors
/// The body is too large, is not one message, breaks off, or does not fit into the budget.
pub(super) async fn receive(
    mut body: Body,
    framing: Framing,
    size: RequestSize,
    charge: &Charge,
) -> Result<Body, Status> {
    // A frame is a slice of h2's read buffer, and would keep the whole buffer in memory. So frames
    // are copied into one buffer.
    let mut received = BytesMut::new();
    while let Some(frame) = next_frame(&mut body).await {
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        if size == RequestSize::Large {
            charge.add(data.len()).map_err(errors::over_budget)?;
        }
        // Most bodies are a single frame, which is not copied.
        if received.is_empty() && body.is_end_stream() {
            return whole(data, framing, size);
        }
        received.extend_from_slice(&data);
        check(&received, framing, size, false)?;
    }
    whole(received.freeze(), framing, size)
}

/// Checks the complete bytes of a body, and returns them as a body of one frame.
fn whole(bytes: Bytes, framing: Framing, size: RequestSize) -> Result<Body, Status> {
    check(&bytes, framing, size, true)?;
    Ok(Body::new(Whole(Some(bytes))))
}

async fn next_frame(body: &mut Body) -> Option<Result<Frame<Bytes>, Status>> {
    std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

/// Checks the size of a body as soon as the size is known. At the end, checks that the message is
/// complete. tonic itself refuses compressed messages.
fn check(bytes: &[u8], framing: Framing, size: RequestSize, is_end: bool) -> Result<(), Status> {
    let over = |actual| errors::over_limit(REQUEST_BYTES, size.max(), actual);
    let announced = match framing {
        Framing::Plain if bytes.len() > size.max() => return Err(over(None)),
        Framing::Plain => return Ok(()),
        Framing::Grpc => bytes.first_chunk::<PREFIX_BYTES>(),
    };
    let Some([_, length @ ..]) = announced else {
        // tonic refuses a body without any byte, and the middleware replaces tonic's status.
        return if is_end && !bytes.is_empty() { Err(malformed()) } else { Ok(()) };
    };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > size.max() {
        return Err(over(Some(length)));
    }
    let arrived = bytes.len() - PREFIX_BYTES;
    if arrived > length || (is_end && arrived < length) { Err(malformed()) } else { Ok(()) }
}

/// The status of a call whose body breaks off. If the caller has cancelled the call, the status
/// stays CANCELLED.
fn broken(status: Status) -> Status {
    if status.code() == Code::Cancelled { status } else { errors::invalid("the body can't be read to its end") }
}

fn malformed() -> Status {
    errors::invalid("the request is not a message of this method")
}

/// A body whose bytes have all arrived.
struct Whole(Option<Bytes>);

impl hyper::body::Body for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, Bytes::len) as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::budget::{BudgetSettings, ConnectionBudget, ServerBudget};
    use crate::shares::Sharer;

    /// A body of given frames.
    struct Frames(VecDeque<Bytes>);

    impl hyper::body::Body for Frames {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop_front().map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    /// Receives a body of these frames. Returns the bytes that tonic would get, or the text of the
    /// refusal.
    async fn receive_frames(frames: &[&[u8]], framing: Framing, size: RequestSize) -> Result<Vec<u8>, String> {
        let frames = frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect();
        let server = ServerBudget::new(BudgetSettings::REQUESTS, 1 << 20, 1 << 20);
        let charge = Charge::new(ConnectionBudget::new(server), Sharer::CELL_ONE);
        let body = receive(Body::new(Frames(frames)), framing, size, &charge).await;
        let mut body = body.map_err(|status| status.message().to_owned())?;
        let mut bytes = Vec::new();
        while let Some(frame) = next_frame(&mut body).await {
            bytes.extend(frame.unwrap().into_data().unwrap());
        }
        Ok(bytes)
    }

    #[tokio::test]
    async fn a_message_is_passed_on_whole_however_it_is_split() {
        let message: &[u8] = &[0, 0, 0, 0, 3, 7, 8, 9];
        for frames in
            [&[message][..], &[&message[..1], &[], &message[1..6], &message[6..]], &[&message[..5], &[7, 8, 9]]]
        {
            assert_eq!(
                receive_frames(frames, Framing::Grpc, RequestSize::Small).await,
                Ok(message.to_vec()),
                "{frames:?}"
            );
        }
        assert_eq!(receive_frames(&[], Framing::Grpc, RequestSize::Small).await, Ok(Vec::new()));
        assert_eq!(receive_frames(&[b"{", b"}"], Framing::Plain, RequestSize::Large).await, Ok(b"{}".to_vec()));
    }

    #[tokio::test]
    async fn a_body_that_is_not_one_message_is_refused() {
        for frames in [&[&[0, 0, 0, 0][..]][..], &[&[0, 0, 0, 0, 3, 7]], &[&[0, 0, 0, 0, 1], &[7, 8]]] {
            let refusal = receive_frames(frames, Framing::Grpc, RequestSize::Small).await.unwrap_err();
            assert!(refusal.contains("not a message"), "{frames:?}: {refusal}");
        }
    }

    #[tokio::test]
    async fn a_size_over_the_limit_is_refused_at_its_announcement() {
        let announced = receive_frames(&[&[0, 0, 0, 0x10], &[1]], Framing::Grpc, RequestSize::Small).await.unwrap_err();
        assert!(announced.contains("at most 4096, not 4097"), "{announced}");
        let sent = receive_frames(&[&[b' '; 4096], b" "], Framing::Plain, RequestSize::Small).await.unwrap_err();
        assert!(sent.contains("at most 4096"), "{sent}");
    }
}

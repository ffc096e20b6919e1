//! The size limit of a gRPC request (B11), checked as soon as the length prefix of the message
//! arrives.
//!
//! tonic has a limit too (codec/decode.rs), but reports the actual size only inside an English
//! sentence. The length prefix has the size as a number. If a request body fails with a `Status`,
//! tonic returns this status to the caller (`Status::try_from_error`).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use leasehold_core::batch::MAX_REQUEST_BYTES;
use tonic::Status;
use tonic::body::Body;

use super::{REQUEST_BYTES, errors};

/// The number of bytes before a message: one flag, and the length as a four-byte big-endian number
/// (gRPC over HTTP/2, "Length-Prefixed-Message").
const PREFIX_BYTES: usize = 5;

/// A request body that fails if its first message, the only one of a unary call, is larger than the
/// limit.
pub(super) struct MessageLimit {
    body: Body,
    prefix: Prefix,
}

impl MessageLimit {
    pub(super) fn new(body: Body) -> Self {
        Self { body, prefix: Prefix::default() }
    }
}

impl hyper::body::Body for MessageLimit {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let data = polled.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        let length = data.and_then(|data| self.prefix.read(data));
        Poll::Ready(match length {
            Some(length) if length > MAX_REQUEST_BYTES => {
                Some(Err(errors::over_limit(REQUEST_BYTES, MAX_REQUEST_BYTES, Some(length))))
            }
            _ => polled,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The bytes of a message's length prefix that have arrived.
#[derive(Default)]
struct Prefix {
    bytes: [u8; PREFIX_BYTES],
    arrived: usize,
}

impl Prefix {
    /// Reads the next bytes of a request body. Returns the length of the message when its prefix is
    /// complete; `None` before and afterwards.
    ///
    /// The result is also `None` if the flag marks a compressed message: this server supports no
    /// compression, and tonic refuses the message by its flag.
    fn read(&mut self, data: &[u8]) -> Option<usize> {
        let missing = self.bytes.get_mut(self.arrived..).filter(|missing| !missing.is_empty())?;
        let read = missing.iter_mut().zip(data).map(|(byte, new)| *byte = *new).count();
        self.arrived += read;
        let [flag, length @ ..] = self.bytes;
        let is_complete = self.arrived == PREFIX_BYTES && flag == 0;
        is_complete.then(|| usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(parts: &[&[u8]]) -> Vec<Option<usize>> {
        let mut prefix = Prefix::default();
        parts.iter().map(|part| prefix.read(part)).collect()
    }

    #[test]
    fn the_length_is_read_once_however_the_prefix_is_split() {
        assert_eq!(read_all(&[&[0, 0, 0, 1, 2, 9, 9], &[0, 0, 0, 0, 1]]), [Some(258), None]);
        assert_eq!(read_all(&[&[0], &[], &[0, 0], &[1, 2, 9], &[9]]), [None, None, None, Some(258), None]);
        assert_eq!(read_all(&[&[0, 255, 255, 255, 255]]), [Some(4_294_967_295)]);
        assert_eq!(read_all(&[&[0, 0, 0, 1]]), [None]);
    }

    #[test]
    fn a_message_with_a_flag_is_left_to_tonic() {
        assert_eq!(read_all(&[&[1, 255, 255, 255, 255]]), [None]);
    }
}

//! HTTP/2 frames written by hand, for requests that no client library sends.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// The first bytes of a connection, with empty settings (RFC 9113, 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The type of a frame with the bytes of a body.
pub const DATA: u8 = 0;
/// The type of a frame with headers or trailers.
pub const HEADERS: u8 = 1;
/// The type of a frame that ends a stream.
pub const RST_STREAM: u8 = 3;
/// The type of a frame that ends a connection.
pub const GOAWAY: u8 = 7;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const DEADLINE: Duration = Duration::from_secs(60);

/// A frame that the server sent.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The type.
    pub kind: u8,
    /// The stream; 0 for the connection.
    pub stream: u32,
    /// The content.
    pub payload: Vec<u8>,
}

/// Returns a frame.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the head of a gRPC call, whose body follows.
#[must_use]
pub fn grpc_head(stream: u32, path: &str) -> Vec<u8> {
    grpc_head_with(stream, path, &[])
}

/// Returns the head of a gRPC call with further fields.
#[must_use]
pub fn grpc_head_with(stream: u32, path: &str, further: &[(&str, &str)]) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    frame(
        HEADERS,
        END_HEADERS,
        stream,
        &fields.iter().chain(further).flat_map(|(name, value)| field(name, value)).collect::<Vec<_>>(),
    )
}

/// Returns a field that is not compressed (RFC 7541, 6.2.2). Both texts are shorter than 127 bytes.
fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap_or(u8::MAX)], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

/// Returns a part of a body.
#[must_use]
pub fn data(stream: u32, bytes: &[u8]) -> Vec<u8> {
    frame(DATA, 0, stream, bytes)
}

/// Returns the last part of a body.
#[must_use]
pub fn last_data(stream: u32, bytes: &[u8]) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, bytes)
}

/// Returns the prefix of a gRPC message of `length` bytes.
#[must_use]
pub fn prefix(length: u32) -> Vec<u8> {
    [&[0], &length.to_be_bytes()[..]].concat()
}

/// Begins a connection, and waits until the server's larger windows are in force.
///
/// # Errors
/// The connection breaks, or the server's window update does not come in time.
pub async fn begin(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<()> {
    let (settings, ack, window_update) = (4, 1, 8);
    send(stream, PREFACE).await?;
    read_until(stream, |frame| frame.kind == settings).await?;
    send(stream, &frame(settings, ack, 0, &[])).await?;
    read_until(stream, |frame| frame.kind == window_update).await?;
    Ok(())
}

/// Writes bytes to the end.
///
/// # Errors
/// The connection breaks.
pub async fn send(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<()> {
    writer.write_all(bytes).await?;
    Ok(writer.flush().await?)
}

/// Reads one frame; `None` at the end of the connection.
///
/// # Errors
/// No frame comes in time.
pub async fn read_frame(reader: &mut (impl AsyncRead + Unpin)) -> Result<Option<Frame>> {
    let mut head = [0; 9];
    if timeout(DEADLINE, reader.read_exact(&mut head)).await.context("no frame comes")?.is_err() {
        return Ok(None);
    }
    let [a, b, c, kind, _, stream @ ..] = head;
    let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c]))?];
    if reader.read_exact(&mut payload).await.is_err() {
        return Ok(None);
    }
    Ok(Some(Frame { kind, stream: u32::from_be_bytes(stream), payload }))
}

/// Reads frames up to one that `found` accepts, and returns that one.
///
/// # Errors
/// The connection ends, or no frame comes in time.
pub async fn read_until(reader: &mut (impl AsyncRead + Unpin), mut found: impl FnMut(&Frame) -> bool) -> Result<Frame> {
    while let Some(frame) = read_frame(reader).await? {
        if found(&frame) {
            return Ok(frame);
        }
    }
    bail!("the connection ended")
}

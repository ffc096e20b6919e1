//! Helpers for tests that call a running server: updates and raw bytes to send, the content of
//! refusals, and the server's whole state.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::{Output, Stdio};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context, Result};
use http::uri::PathAndQuery;
use leasehold_client::Stub;
use leasehold_proto::gitlab::cells::topology_service::AuthorizationRule;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{
    BeginUpdateRequest, Bucket, LeaseRecord, ListLeasesRequest, ListRecordsRequest, Metadata, Record, Source, Subject,
};
use leasehold_proto::gitlab::cells::topology_service::types::v1::Uuid;
use leasehold_proto::{AccessRules, descriptor_pool};
use prost_reflect::MessageDescriptor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, timeout};
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::server::binary;

pub use leasehold_client::Refusal;

const DEADLINE: Duration = Duration::from_secs(60);
/// The wire number of the bucket type for usernames.
pub const USERNAMES: i32 = 4;
/// The wire number of a source table that has no name in the contract.
pub const UNNAMED_TABLE: i32 = 99;

/// Returns a claim of the username `name`. Its source is row 7 of the table of users.
#[must_use]
pub fn username(name: &str) -> Metadata {
    Metadata {
        bucket: Some(Bucket { r#type: USERNAMES, value: name.to_owned() }),
        subject: Some(Subject { r#type: 4, id: 7 }),
        source: Some(Source { r#type: 1, rails_primary_key_id: 7_u64.to_be_bytes().to_vec() }),
        ..Metadata::default()
    }
}

/// Returns a begin request of `cell` that creates these usernames.
#[must_use]
pub fn creates(cell: i64, names: &[&str]) -> BeginUpdateRequest {
    let create_records = names.iter().copied().map(username).collect();
    BeginUpdateRequest { create_records, destroy_records: Vec::new(), cell_id: cell, organization_id: 0 }
}

/// One rpc of the server, as the service descriptors define it.
#[derive(Clone, Debug)]
pub struct Rpc {
    /// The path of the rpc in requests: `/package.Service/Method`.
    pub path: String,
    /// The type of the rpc's request message.
    pub input: MessageDescriptor,
    /// The authorization rules of the rpc. A caller needs to satisfy one of them.
    pub rules: Vec<AuthorizationRule>,
}

/// Returns every rpc of the server's services.
///
/// # Errors
/// The embedded descriptors are inconsistent, or an rpc has no authorization rules.
pub fn rpcs() -> Result<Vec<Rpc>> {
    let rules = AccessRules::from_descriptors()?;
    let services = descriptor_pool()?;
    let methods = services.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    let rpc = |method: prost_reflect::MethodDescriptor| {
        let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
        let rules = rules.for_path(&path).context("an rpc has no rules")?.to_vec();
        Ok(Rpc { path, input: method.input(), rules })
    };
    methods.map(rpc).collect()
}

/// A gRPC codec that sends bytes unchanged, so that a test can send bytes that are no valid
/// message.
#[derive(Clone, Copy, Debug)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl Decoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; bytes::Buf::remaining(buffer)];
        bytes::Buf::copy_to_slice(buffer, &mut bytes);
        Ok(Some(bytes))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

/// Calls the rpc of this path with raw bytes instead of an encoded message.
///
/// # Errors
/// The status of the server's answer, or `UNKNOWN` if the server cannot be reached.
pub async fn call_raw(channel: &Channel, path: &str, message: Vec<u8>) -> Result<Response<Vec<u8>>, Status> {
    let path = PathAndQuery::try_from(path).map_err(|error| Status::unknown(error.to_string()))?;
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    client.unary(Request::new(message), path, RawCodec).await
}

/// A call whose headers the server has got, and whose message the test sends later.
#[derive(Debug)]
pub struct SlowCall {
    /// Sends the one message of the call. Dropping the sender afterwards ends the request.
    pub message: mpsc::Sender<Vec<u8>>,
    /// The task that returns the server's answer, once the server has got the message.
    pub answer: JoinHandle<Result<Response<Vec<u8>>, Status>>,
}

/// Sends the headers of a call to the rpc of this path, without a message. The server gets the
/// headers before any call that is made afterwards on the same channel.
///
/// # Errors
/// The server cannot be reached.
pub async fn call_slowly(channel: &Channel, path: &'static str) -> Result<SlowCall> {
    let (message, messages) = mpsc::channel(1);
    let (begun, is_begun) = oneshot::channel();
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await?;
    let request = Request::new(DelayedMessages { begun: Some(begun), messages });
    let call = async move { client.client_streaming(request, PathAndQuery::from_static(path), RawCodec).await };
    let answer = tokio::spawn(call);
    is_begun.await.context("the call ended before it began")?;
    Ok(SlowCall { message, answer })
}

/// The stream of messages that the test gives to a [`SlowCall`]. Its first poll signals that tonic
/// has sent the headers of the request.
struct DelayedMessages {
    begun: Option<oneshot::Sender<()>>,
    messages: mpsc::Receiver<Vec<u8>>,
}

impl Stream for DelayedMessages {
    type Item = Vec<u8>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Vec<u8>>> {
        if let Some(begun) = self.begun.take() {
            // The result is ignored: the send fails only if the caller has stopped waiting.
            let _ = begun.send(());
        }
        self.messages.poll_recv(cx)
    }
}

/// The state of a server, as its lists show it: the outstanding leases and the records of some
/// cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The outstanding leases, each with the id of its cell.
    pub leases: Vec<(i64, LeaseRecord)>,
    /// The records of these cells that come from tables 1 to 14 or from `UNNAMED_TABLE`.
    pub records: Vec<Record>,
}

/// Reads the outstanding leases and the records of these cells. Each list must fit on one page.
///
/// # Errors
/// The server refuses a list, or a list has more than one page.
pub async fn kept(channel: &Channel, cells: &[i64]) -> Result<Kept> {
    let mut stub = Stub::new(channel.clone());
    let mut kept = Kept { leases: Vec::new(), records: Vec::new() };
    for cell_id in cells.iter().copied() {
        let request = ListLeasesRequest { cell_id, limit: Some(1000), ..ListLeasesRequest::default() };
        let page = stub.list_leases(request).await?.into_inner();
        anyhow::ensure!(page.next.is_none(), "there are more leases than fit on a page");
        kept.leases.extend(page.leases.into_iter().map(|lease| (cell_id, lease)));
        for source_type in (1..=15).chain([UNNAMED_TABLE]) {
            let request = ListRecordsRequest { cell_id, source_type, ..ListRecordsRequest::default() };
            let page = stub.list_records(request).await?.into_inner();
            anyhow::ensure!(!page.truncated, "there are more records than fit on a page");
            kept.records.extend(page.records);
        }
    }
    Ok(kept)
}

/// Returns a lease's id as the value of a request's field.
#[must_use]
pub fn lease(uuid: &str) -> Option<Uuid> {
    Some(Uuid { value: uuid.to_owned() })
}

/// Sends an HTTP/1.1 request with these header lines and this body. Returns the status code and
/// body of the answer. `head` must not contain the empty line that ends the headers.
///
/// # Errors
/// The connection breaks, or no HTTP answer comes in time.
pub async fn http<S>(stream: S, head: &str, body: &[u8]) -> Result<(u16, String)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let head = format!("{head}\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    let (reader, mut writer) = tokio::io::split(stream);
    let write = async {
        writer.write_all(head.as_bytes()).await?;
        writer.write_all(body).await?;
        writer.flush().await
    };
    // The result of the write is ignored: a server may answer and close the connection before it
    // has read the whole request.
    let (_, answer) = tokio::join!(write, read_http(reader));
    answer
}

/// Reads an HTTP/1.1 answer until the connection is closed. Returns its status code and body.
///
/// # Errors
/// The connection breaks, or no HTTP answer comes in time.
pub async fn read_http(mut stream: impl AsyncRead + Unpin) -> Result<(u16, String)> {
    let mut answer = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut answer)).await.context("the connection stays open")??;
    let answer = String::from_utf8(answer).context("the answer is not text")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let code = head.split(' ').nth(1).context("the answer has no code")?.parse()?;
    Ok((code, body.to_owned()))
}

/// Sends a GET request for `path` by HTTP without TLS. Returns the status code and body of the
/// answer.
///
/// # Errors
/// The connection breaks, or no HTTP answer comes in time.
pub async fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    http(TcpStream::connect(address).await?, &format!("GET {path} HTTP/1.1"), b"").await
}

/// Calls `poll` again and again until it returns a value. Returns that value.
///
/// # Errors
/// `poll` returns no value within the deadline; the error contains `description`.
pub async fn eventually<T>(description: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + DEADLINE;
    let mut ticks = interval(Duration::from_millis(20));
    while Instant::now() < deadline {
        ticks.tick().await;
        if let Some(value) = poll().await {
            return Ok(value);
        }
    }
    anyhow::bail!("not within {DEADLINE:?}: {description}")
}

/// Runs the `leasehold` binary with these arguments, and waits for its end.
///
/// # Errors
/// The binary does not build, cannot be run, or does not end in time.
pub async fn leasehold<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Result<Output> {
    let mut command = command()?;
    command.args(arguments);
    let output = timeout(DEADLINE, command.output()).await;
    output.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.context("the binary cannot be run")
}

/// Returns a command that runs the `leasehold` binary without the tester's `LEASEHOLD_*` variables.
/// Dropping the process kills it.
///
/// # Errors
/// The binary does not build.
pub fn command() -> Result<Command> {
    let mut command = Command::new(binary()?);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LEASEHOLD_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    Ok(command)
}

//! Helpers of tests against a running server: updates and raw bytes to send, the content of a refusal,
//! and the whole state of the server.

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

const DEADLINE: Duration = Duration::from_secs(30);
/// The bucket type of usernames.
pub const USERNAMES: i32 = 4;
/// The number of a table that has no name in the contract.
pub const UNNAMED_TABLE: i32 = 99;

/// Returns a claim of a username, with row 7 of the users as its source.
#[must_use]
pub fn username(name: &str) -> Metadata {
    Metadata {
        bucket: Some(Bucket { r#type: USERNAMES, value: name.to_owned() }),
        subject: Some(Subject { r#type: 4, id: 7 }),
        source: Some(Source { r#type: 1, rails_primary_key_id: 7_u64.to_be_bytes().to_vec() }),
        ..Metadata::default()
    }
}

/// Returns an update of `cell` that creates usernames.
#[must_use]
pub fn creates(cell: i64, names: &[&str]) -> BeginUpdateRequest {
    let create_records = names.iter().copied().map(username).collect();
    BeginUpdateRequest { create_records, destroy_records: Vec::new(), cell_id: cell }
}

/// An rpc of the server, from the descriptors of the services.
#[derive(Clone, Debug)]
pub struct Rpc {
    /// The path: `/package.Service/Method`.
    pub path: String,
    /// The type of the request.
    pub input: MessageDescriptor,
    /// The rules that allow a caller to call it.
    pub rules: Vec<AuthorizationRule>,
}

/// Returns every rpc of the server's services.
///
/// # Errors
/// The embedded descriptors do not fit together, or an rpc has no rules.
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

/// A codec that leaves bytes as they are, so that a test can send bytes that no message encodes to.
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

/// Calls an rpc with raw bytes instead of an encoded message.
///
/// # Errors
/// The status of the server's answer, or `UNKNOWN` if the server could not be reached.
pub async fn call_raw(channel: &Channel, path: &str, message: Vec<u8>) -> Result<Response<Vec<u8>>, Status> {
    let path = PathAndQuery::try_from(path).map_err(|error| Status::unknown(error.to_string()))?;
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    client.unary(Request::new(message), path, RawCodec).await
}

/// A call that is open because its message has not been sent yet.
#[derive(Debug)]
pub struct SlowCall {
    /// Sends the one message. Dropping it afterwards ends the request.
    pub message: mpsc::Sender<Vec<u8>>,
    /// The server's later answer.
    pub answer: JoinHandle<Result<Response<Vec<u8>>, Status>>,
}

/// Opens a call without sending its message. Calls made afterwards on the same channel reach the server
/// later.
///
/// # Errors
/// The server could not be reached.
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

/// A stream of the messages of [`SlowCall`]. It signals its first poll, at which the head of the request
/// has been sent.
struct DelayedMessages {
    begun: Option<oneshot::Sender<()>>,
    messages: mpsc::Receiver<Vec<u8>>,
}

impl Stream for DelayedMessages {
    type Item = Vec<u8>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Vec<u8>>> {
        if let Some(begun) = self.begun.take() {
            // Sending fails if the caller has given up, which is no error.
            let _ = begun.send(());
        }
        self.messages.poll_recv(cx)
    }
}

/// The state of a server: the outstanding leases and the records of its cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The outstanding leases, with their cells.
    pub leases: Vec<(i64, LeaseRecord)>,
    /// The records of every table.
    pub records: Vec<Record>,
}

/// Reads the state of a server for these cells, each list in one page.
///
/// # Errors
/// A list is refused, or has more than one page.
pub async fn kept(channel: &Channel, cells: &[i64]) -> Result<Kept> {
    let mut stub = Stub::new(channel.clone());
    let mut kept = Kept { leases: Vec::new(), records: Vec::new() };
    for cell_id in cells.iter().copied() {
        let request = ListLeasesRequest { cell_id, limit: Some(1000), ..ListLeasesRequest::default() };
        let page = stub.list_leases(request).await?.into_inner();
        anyhow::ensure!(page.next.is_none(), "there are more leases than fit on a page");
        kept.leases.extend(page.leases.into_iter().map(|lease| (cell_id, lease)));
        for source_type in (1..=14).chain([UNNAMED_TABLE]) {
            let request = ListRecordsRequest { cell_id, source_type, ..ListRecordsRequest::default() };
            let page = stub.list_records(request).await?.into_inner();
            anyhow::ensure!(!page.truncated, "there are more records than fit on a page");
            kept.records.extend(page.records);
        }
    }
    Ok(kept)
}

/// Returns a lease's id in the form of a request's field.
#[must_use]
pub fn lease(uuid: &str) -> Option<Uuid> {
    Some(Uuid { value: uuid.to_owned() })
}

/// Sends an HTTP/1.1 request, and returns the answer's code and body. `head` has no empty line at its
/// end.
///
/// # Errors
/// The connection breaks, or no HTTP answer comes in time.
pub async fn http<S>(stream: S, head: &str, body: &[u8]) -> Result<(u16, String)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let head = format!("{head}\r\nhost: test\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    let (reader, mut writer) = tokio::io::split(stream);
    let write = async {
        writer.write_all(head.as_bytes()).await?;
        writer.write_all(body).await?;
        writer.flush().await
    };
    // A server may answer and close the connection before it has read the whole request, so a failed
    // write is no error.
    let (_, answer) = tokio::join!(write, read_http(reader));
    answer
}

/// Reads an HTTP/1.1 answer up to the end of the connection, and returns its code and body.
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

/// Sends a GET request in plain HTTP, and returns the answer's code and body.
///
/// # Errors
/// The same as of [`http`].
pub async fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    http(TcpStream::connect(address).await?, &format!("GET {path} HTTP/1.1"), b"").await
}

/// Polls until `poll` returns a value, and returns that value.
///
/// # Errors
/// There is no value within the deadline; the error contains `description`.
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

/// Runs the binary to its end.
///
/// # Errors
/// The binary does not build, can't be run, or does not end in time.
pub async fn leasehold<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Result<Output> {
    let mut command = command()?;
    command.args(arguments);
    let output = timeout(DEADLINE, command.output()).await;
    output.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.context("the binary cannot be run")
}

/// Returns a command that runs the binary without the environment variables `LEASEHOLD_*`. The process is
/// killed when dropped.
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

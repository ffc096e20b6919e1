//! Tests that the server's memory grows with the bytes that have arrived, not with those that a
//! client announces.

use leasehold_proto::gitlab::cells::topology_service::claims::v1::{CommitUpdateRequest, Metadata};
use leasehold_tests::certificates::Authority;
use leasehold_tests::http2::{
    self, HEADERS, PREFACE, RST_STREAM, data, grpc_head, last_data, prefix, read_until, send,
};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{Refusal, call_raw, creates, eventually, lease, username};
use prost::Message;
use prost_types::Any;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::Code;

use super::{BEGIN, COMMIT, GET_CELLS, HEALTH, answered, growth, memory, metric, tls_server};

const MIB: u64 = 1024 * 1024;

/// Opens `calls` calls that announce a message of `length` bytes each and send one of them. Then
/// sends a ping and waits for its answer, which shows that the server has read everything before.
/// Returns the open connection.
async fn announce<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, calls: u32, path: &str, length: u32) -> S {
    let (ping, ack) = (6, 6);
    send(&mut stream, PREFACE).await.unwrap();
    for n in 0..calls {
        let call = [grpc_head(2 * n + 1, path), data(2 * n + 1, &prefix(length)), data(2 * n + 1, b"\n")].concat();
        send(&mut stream, &call).await.unwrap();
    }
    send(&mut stream, &http2::frame(ping, 0, 0, &[7; 8])).await.unwrap();
    read_until(&mut stream, |frame| frame.kind == ack && frame.payload == [7; 8]).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_bytes_take_no_memory() {
    let server = Server::start().unwrap();
    let before = memory(&server, "VmHWM");
    let _open = announce(TcpStream::connect(server.address()).await.unwrap(), 1000, BEGIN, 10 << 20).await;
    let grown = growth(&server, before);
    assert!(grown < 32 * MIB, "{} MiB for 1,000 announcements", grown / MIB);
    assert!(metric(server.address(), "leasehold_request_bytes").await < 10_000.0);
    let channel = server.connect(None).await.unwrap();
    call_raw(&channel, GET_CELLS, vec![]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_without_bodies_are_bounded() {
    let server = Server::builder().config("[limits]\nrequest_mib = 8\n").start().unwrap();
    let before = memory(&server, "VmHWM");
    let mut open = Vec::new();
    for path in [BEGIN, COMMIT].into_iter().cycle().take(20) {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        http2::begin(&mut stream).await.unwrap();
        let heads: Vec<_> = (0..1000).flat_map(|n| grpc_head(2 * n + 1, path)).collect();
        send(&mut stream, &heads).await.unwrap();
        open.push(stream);
    }
    eventually("heads are refused", async || {
        (answered(server.address(), "CommitUpdate").await > 7_000.0).then_some(())
    })
    .await
    .unwrap();
    let grown = growth(&server, before);
    // Without the charge it is 118 MiB and more.
    assert!(grown < 96 * MIB, "{} MiB for 20,000 heads", grown / MIB);
    let mut claims = server.claims(None).await.unwrap();
    let lease_uuid = claims.begin_update(creates(1, &["other"])).await.unwrap().into_inner().lease_uuid;
    claims.commit_update(CommitUpdateRequest { cell_id: 1, lease_uuid }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_passes_calls_that_wait_for_their_bodies() {
    let server = Server::builder().config("[limits]\nrequest_mib = 1\n").start().unwrap();
    let mut claims = server.claims(None).await.unwrap();
    let lease_uuid = claims.begin_update(creates(1, &["first"])).await.unwrap().into_inner().lease_uuid;
    let commit = CommitUpdateRequest { cell_id: 1, lease_uuid }.encode_to_vec();
    let commit = [prefix(u32::try_from(commit.len()).unwrap()), commit].concat();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    http2::begin(&mut stream).await.unwrap();
    // A MiB has room for 170 of these calls, so the oldest ones give way.
    let heads: Vec<_> = (0..400).flat_map(|n| grpc_head(2 * n + 1, BEGIN)).collect();
    send(&mut stream, &[heads, grpc_head(801, COMMIT)].concat()).await.unwrap();
    eventually("heads are refused", async || (answered(server.address(), "BeginUpdate").await > 200.0).then_some(()))
        .await
        .unwrap();
    send(&mut stream, &last_data(801, &commit)).await.unwrap();
    read_until(&mut stream, |frame| frame.kind == HEADERS && frame.stream == 801).await.unwrap();
    assert_eq!(metric(server.address(), "leasehold_requests_total{method=\"CommitUpdate\",code=\"OK\"}").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_certificate_takes_little_memory() {
    let (directory, authority) = (TempDir::new().unwrap(), Authority::new("first").unwrap());
    let server = tls_server(directory.path(), &authority, "").start().unwrap();
    let before = memory(&server, "VmHWM");
    let mut open = Vec::new();
    for _ in 0..50 {
        let stream = authority.connect(server.address(), None, "h2").await.unwrap();
        open.push(announce(stream, 16, HEALTH, 4 << 20).await);
    }
    let grown = growth(&server, before);
    assert!(grown < 32 * MIB, "{} MiB for 800 announcements", grown / MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_certificate_has_few_streams() {
    let (directory, authority) = (TempDir::new().unwrap(), Authority::new("first").unwrap());
    let server = tls_server(directory.path(), &authority, "").start().unwrap();
    let mut stream = authority.connect(server.address(), None, "h2").await.unwrap();
    send(&mut stream, PREFACE).await.unwrap();
    for n in 0..17 {
        send(&mut stream, &grpc_head(2 * n + 1, HEALTH)).await.unwrap();
    }
    let refused = read_until(&mut stream, |frame| frame.kind == RST_STREAM).await.unwrap();
    // 7 is REFUSED_STREAM (RFC 9113, 7).
    assert_eq!((refused.stream, refused.payload.as_slice()), (33, &[0, 0, 0, 7][..]));
}

/// Returns an encoded begin of one name with `bytes` bytes of the cell's own data.
fn large_begin(name: &str, bytes: usize) -> Vec<u8> {
    let user_data = Some(Any { type_url: "example.com/data".to_owned(), value: vec![7; bytes] });
    let mut update = creates(1, &[]);
    update.create_records = vec![Metadata { user_data, ..username(name) }];
    update.encode_to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_have_a_budget_that_leaves_commits_alone() {
    let limits = "[limits]\nrequest_mib = 1\nrequest_mib_per_connection = 1\nuser_data_bytes = 1_000_000\n";
    let server = Server::builder().config(limits).start().unwrap();
    let channel = server.connect(None).await.unwrap();
    let held = async || metric(server.address(), "leasehold_request_bytes").await;
    let mut claims = server.claims(None).await.unwrap();
    let begun = claims.begin_update(creates(1, &["small"])).await.unwrap().into_inner();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let begin = large_begin("large", 700_000);
    let begin = [prefix(u32::try_from(begin.len()).unwrap()), begin].concat();
    let mut parts: Vec<_> = begin.chunks(16_384).collect();
    let last = parts.pop().unwrap();
    http2::begin(&mut stream).await.unwrap();
    send(&mut stream, &grpc_head(1, BEGIN)).await.unwrap();
    for part in parts {
        send(&mut stream, &data(1, part)).await.unwrap();
    }
    eventually("the bytes are counted", async || (held().await > 650_000.0).then_some(())).await.unwrap();
    let refused = call_raw(&channel, BEGIN, large_begin("other", 700_000)).await.unwrap_err();
    let refusal = Refusal::of(&refused);
    assert_eq!(refusal.code_and_reason(), (Code::ResourceExhausted, "OVERLOADED"));
    assert!(refusal.message.contains("`limits.request_mib`"), "{}", refusal.message);
    let commit = CommitUpdateRequest { cell_id: 1, lease_uuid: begun.lease_uuid };
    claims.commit_update(commit).await.unwrap();
    send(&mut stream, &last_data(1, last)).await.unwrap();
    read_until(&mut stream, |frame| frame.kind == HEADERS && frame.stream == 1).await.unwrap();
    eventually("the bytes are returned", async || (held().await == 0.0).then_some(())).await.unwrap();
    call_raw(&channel, BEGIN, large_begin("other", 700_000)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_methods_with_few_fields_take_4_kib() {
    let server = Server::start().unwrap();
    let channel = server.connect(None).await.unwrap();
    // An unknown field of 5,000 bytes.
    let padding = [&[0xfa, 0x01, 0x88, 0x27], &[0; 5000][..]].concat();
    let commit = CommitUpdateRequest { cell_id: 1, lease_uuid: lease("no-lease") }.encode_to_vec();
    for (path, message) in [(COMMIT, commit), (GET_CELLS, Vec::new()), (HEALTH, Vec::new())] {
        let refused = call_raw(&channel, path, [message, padding.clone()].concat()).await.unwrap_err();
        let refusal = Refusal::of(&refused);
        assert_eq!(refusal.code_and_reason(), (Code::InvalidArgument, "LIMIT_EXCEEDED"), "{path}");
        assert_eq!(refusal.figure("max"), Some("4096"), "{path}");
    }
}

//! Tests of clients that leave answers untaken: the memory for them is bounded, and other callers are
//! served meanwhile.

use std::time::Duration;

use leasehold_client::{SessionTerms, WorkOutcome};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{GetRecordRequest, ListRecordsRequest};
use leasehold_proto::leasehold::locks::v1::ListLocksRequest;
use leasehold_tests::certificates::Authority;
use leasehold_tests::client::Client;
use leasehold_tests::http2::{PREFACE, frame, grpc_head, last_data, prefix, read_frame, send};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{eventually, get, username};
use prost::Message;
use tempfile::TempDir;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tonic::Request;

use super::lists::{claim_users, claim_users_over, full_list, pages};
use super::{LIST_RECORDS, answered, growth, memory, metric, metrics_address, tls_server};

const GET_RECORD: &str = "/gitlab.cells.topology_service.claims.v1.ClaimService/GetRecord";
const LIST_LOCKS: &str = "/leasehold.locks.v1.LockService/ListLocks";
const MIB: u64 = 1024 * 1024;

/// The setting `SETTINGS_INITIAL_WINDOW_SIZE` = 0.
const NO_WINDOW: &[u8] = &[0, 4, 0, 0, 0, 0];

/// Begins a connection with further settings, sends a request `calls` times, and reads no answer.
async fn call_without_reading<S: AsyncWrite + Unpin>(
    mut stream: S,
    path: &str,
    message: &impl Message,
    calls: u32,
    settings: &[u8],
) -> S {
    let message = message.encode_to_vec();
    let message = [prefix(u32::try_from(message.len()).unwrap()), message].concat();
    send(&mut stream, &[PREFACE, &frame(4, 0, 0, settings)].concat()).await.unwrap();
    for n in 0..calls {
        send(&mut stream, &[grpc_head(2 * n + 1, path), last_data(2 * n + 1, &message)].concat()).await.unwrap();
    }
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_takes_are_bounded() {
    let server = Server::builder().config("[limits]\nuser_data_bytes = 1_048_576\n").start().unwrap();
    claim_users(&server, 1..3, 1_000_000).await;
    let before = memory(&server, "VmHWM");
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let stream = call_without_reading(stream, LIST_RECORDS, &full_list(), 100, &[]).await;
    eventually("all lists are answered or refused", async || {
        (answered(server.address(), "ListRecords").await >= 100.0).then_some(())
    })
    .await
    .unwrap();
    let grown = growth(&server, before);
    assert!(grown < 96 * MIB, "{} MiB for 100 answers of 2 MiB, of which 32 MiB may wait", grown / MIB);
    assert!(metric(server.address(), "leasehold_shed_total{method=\"ListRecords\"}").await >= 80.0);
    let found = pages(&server.connect(None).await.unwrap()).await.unwrap();
    assert_eq!(found.iter().map(|page| page.records.len()).sum::<usize>(), 2);
    drop(stream);
    eventually("the bytes are returned", async || {
        (metric(server.address(), "leasehold_answer_bytes").await == 0.0).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_client_takes_no_answer_ends() {
    let settings = "[limits]\nuser_data_bytes = 1_048_576\nanswer_seconds = 1\n";
    let server = Server::builder().config(settings).start().unwrap();
    claim_users(&server, 1..3, 1_000_000).await;
    // The test reads frames, but gives the server no window for more of them, or none at all (RFC
    // 9113, 5.2 and 6.5.2).
    for settings in [&[][..], NO_WINDOW] {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let mut stream = call_without_reading(stream, LIST_RECORDS, &full_list(), 1, settings).await;
        while read_frame(&mut stream).await.unwrap().is_some() {}
        assert_eq!(metric(server.address(), "leasehold_answer_bytes").await, 0.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_to_reads_that_nobody_takes_are_bounded() {
    let settings = "[limits]\nuser_data_bytes = 1_048_576\nanswer_mib = 4\n";
    let server = Server::builder().config(settings).start().unwrap();
    claim_users(&server, 1..2, 500_000).await;
    let before = memory(&server, "VmHWM");
    let request = GetRecordRequest { bucket: username("user-1").bucket, ..GetRecordRequest::default() };
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let stream = call_without_reading(stream, GET_RECORD, &request, 200, NO_WINDOW).await;
    eventually("all reads are answered or refused", async || {
        (answered(server.address(), "GetRecord").await >= 200.0).then_some(())
    })
    .await
    .unwrap();
    let grown = growth(&server, before);
    assert!(grown < 48 * MIB, "{} MiB for 200 answers of half a MiB, of which 4 MiB may wait", grown / MIB);
    assert!(metric(server.address(), "leasehold_shed_total{method=\"GetRecord\"}").await >= 100.0);
    // A client that takes its answers is served.
    let mut claims = server.claims(None).await.unwrap();
    assert!(claims.get_record(request).await.unwrap().into_inner().record.is_some());
    drop(stream);
    // The connection of the client that has taken its answer is still open.
    eventually("the bytes are returned", async || {
        (metric(server.address(), "leasehold_answer_bytes").await == 0.0).then_some(())
    })
    .await
    .unwrap();
    drop(claims);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_locks_that_nobody_takes_are_bounded() {
    let server = Server::builder().config("[limits]\nanswer_mib = 16\n").start().unwrap();
    let client = leasehold_client::Client::builder(format!("http://{}", server.address())).build().unwrap();
    let long = SessionTerms { duration: Duration::from_secs(3_600), grace: Duration::from_secs(60) };
    let session = client.lock_session(long).await.unwrap();
    let mut locks = Vec::new();
    for n in 0..300 {
        let key = format!("key-{n}");
        let lock = async || session.lock("stock", &key, Duration::ZERO).await.unwrap().unwrap();
        session.release(&lock().await, WorkOutcome::Succeeded, &[7; 2_000]).await.unwrap();
        locks.push(lock().await);
    }
    let request = ListLocksRequest { limit: 1_000, ..ListLocksRequest::default() };
    let mut open = Vec::new();
    for _ in 0..10 {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        open.push(call_without_reading(stream, LIST_LOCKS, &request, 10, NO_WINDOW).await);
    }
    eventually("a list is refused", async || {
        let (_, text) = get(server.address(), "/metrics").await.ok()?;
        text.contains("leasehold_shed_total{method=\"ListLocks\"}").then_some(())
    })
    .await
    .unwrap();
    let held = metric(server.address(), "leasehold_answer_bytes").await;
    assert!(held <= 16e6 * 1.05, "{held} bytes of answers, of which 16 MiB may wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_one_cell_leaves_keep_no_other_from_its_lists() {
    let (directory, authority) = (TempDir::new().unwrap(), Authority::new("first").unwrap());
    let limits = "user_data_bytes = 1_048_576\nanswer_mib = 16\nanswer_mib_per_connection = 8\n";
    let settings = format!("metrics_listen = \"127.0.0.1:0\"\n[limits]\n{limits}");
    let server = tls_server(directory.path(), &authority, &settings).start().unwrap();
    let [one, two] = [1, 2].map(|cell| authority.client(&[&format!("spiffe://leasehold/cell/{cell}")]).unwrap());
    let channel = server.connect(Some(authority.client_config(Some(&one)))).await.unwrap();
    claim_users_over(&mut Client::over(channel, 1), 1..3, 1_000_000).await;
    let mut open = Vec::new();
    for _ in 0..4 {
        let stream = authority.connect(server.address(), Some(&one), "h2").await.unwrap();
        open.push(call_without_reading(stream, LIST_RECORDS, &full_list(), 20, &[]).await);
    }
    // Each list reserves 4 MiB and has 2, so the last ones of a budget of 16 do not fit.
    let metrics = metrics_address(&server).await;
    eventually("the cell has used up its share", async || {
        (metric(metrics, "leasehold_answer_bytes").await >= 7e6).then_some(())
    })
    .await
    .unwrap();
    let mut claims = server.claims(Some(authority.client_config(Some(&two)))).await.unwrap();
    for _ in 0..3 {
        let mut request = Request::new(ListRecordsRequest { cell_id: 2, ..full_list() });
        request.set_timeout(Duration::from_secs(40));
        claims.list_records(request).await.unwrap();
    }
}

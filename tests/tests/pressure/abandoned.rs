//! Begins whose callers are gone hold no name for long (B25).

use leasehold_tests::http2::{HEADERS, begin, grpc_head_with, last_data, prefix, read_until, send};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{creates, eventually, kept};
use prost::Message;
use tokio::net::TcpStream;

use super::{BEGIN, metric};

/// The most calls, for a disk that syncs within every deadline but the shortest.
const MOST_CALLS: u32 = 8000;
/// Deadlines of which the server leaves 50 µs to 1 ms for the begin. A sync takes about as long.
const DEADLINES: [&str; 6] = ["20S", "1050u", "1100u", "1200u", "1500u", "2000u"];

fn requests(code: &str) -> String {
    format!("leasehold_requests_total{{method=\"BeginUpdate\",code=\"{code}\"}}")
}

/// The number of begins whose leases the server took back.
async fn taken_back(server: &Server) -> f64 {
    metric(server.address(), "leasehold_abandoned_begins_total{effect=\"taken_back\"}").await
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_a_begin_that_is_answered_too_late_leaves_no_lease() {
    let server = Server::start().unwrap();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    begin(&mut stream).await.unwrap();
    let mut calls = 0;
    for (call, deadline) in (0..MOST_CALLS).zip(DEADLINES.into_iter().cycle()) {
        if call % 120 == 0 && taken_back(&server).await >= 5.0 {
            break;
        }
        calls = call + 1;
        let id = 2 * call + 1;
        let message = creates(1, &[&format!("name-{call}")]).encode_to_vec();
        let body = [prefix(u32::try_from(message.len()).unwrap()), message].concat();
        let head = grpc_head_with(id, BEGIN, &[("grpc-timeout", deadline)]);
        send(&mut stream, &[head, last_data(id, &body)].concat()).await.unwrap();
        read_until(&mut stream, |frame| frame.stream == id && frame.kind == HEADERS).await.unwrap();
    }
    let late = metric(server.address(), &requests("DeadlineExceeded")).await;
    let begun = metric(server.address(), &requests("Ok")).await;
    assert_eq!(late + begun, f64::from(calls));
    assert!(late > 0.0 && begun > 0.0, "{late} were late, {begun} began");

    let channel = server.connect(None).await.unwrap();
    eventually("only leases that a caller knows are outstanding", async || {
        let leases = kept(&channel, &[1]).await.unwrap().leases.len();
        (leases as f64 == begun).then_some(())
    })
    .await
    .unwrap();
    let taken_back = taken_back(&server).await;
    assert!(taken_back >= 5.0 && taken_back <= late, "{taken_back} of {late} were taken back");
    eventually("each rollback is audited", async || {
        let audited = server.stderr().matches("lease settled caller=server cell=1").count();
        (audited as f64 == taken_back).then_some(())
    })
    .await
    .unwrap();
}

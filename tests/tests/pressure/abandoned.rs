//! Begins whose callers are gone hold no name for long (B25).

use std::time::{Duration, Instant};

use leasehold_tests::http2::{HEADERS, begin, data, grpc_head_with, last_data, prefix, read_until, send};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{creates, eventually};
use prost::Message;
use tokio::net::TcpStream;

use super::{BEGIN, metric};

/// The number of claims in a begin. The write of so many takes longer than a millisecond, which is
/// the resolution of timers.
const CLAIMS: u32 = 1000;
const MOST_CALLS: u32 = 200;
/// The largest content of a frame that every HTTP/2 server accepts (RFC 9113, 4.2).
const FRAME_BYTES: usize = 16_384;
/// Deadlines in percent of the time that a begin takes. Some of them pass while the begin is
/// written.
const DEADLINE_PERCENT: [u32; 8] = [500, 90, 80, 70, 60, 50, 40, 30];

fn requests(code: &str) -> String {
    format!("leasehold_requests_total{{method=\"BeginUpdate\",code=\"{code}\"}}")
}

/// Returns the number of begins whose leases the server took back.
async fn taken_back(server: &Server) -> f64 {
    metric(server.address(), "leasehold_abandoned_begins_total{effect=\"taken_back\"}").await
}

/// Begins an update of new names and waits for the head of the response. Returns the time that this
/// took.
async fn begin_many(stream: &mut TcpStream, call: u32, deadline: Duration) -> Duration {
    let id = 2 * call + 1;
    let names: Vec<_> = (0..CLAIMS).map(|number| format!("name-{call}-{number}")).collect();
    let message = creates(1, &names.iter().map(String::as_str).collect::<Vec<_>>()).encode_to_vec();
    let body = [prefix(u32::try_from(message.len()).unwrap()), message].concat();
    let timeout = format!("{}u", deadline.as_micros());
    let mut frames = grpc_head_with(id, BEGIN, &[("grpc-timeout", &timeout)]);
    body.chunks(FRAME_BYTES).for_each(|part| frames.extend(data(id, part)));
    frames.extend(last_data(id, &[]));
    let start = Instant::now();
    send(stream, &frames).await.unwrap();
    read_until(stream, |frame| frame.stream == id && frame.kind == HEADERS).await.unwrap();
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_a_begin_that_is_answered_too_late_leaves_no_lease() {
    let server = Server::start().unwrap();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    begin(&mut stream).await.unwrap();
    let mut usual = Duration::from_secs(20);
    for call in 0..3 {
        usual = begin_many(&mut stream, call, Duration::from_secs(20)).await;
    }
    let mut calls = 3;
    for percent in DEADLINE_PERCENT.into_iter().cycle() {
        if calls == MOST_CALLS || taken_back(&server).await >= 5.0 {
            break;
        }
        let took = begin_many(&mut stream, calls, usual * percent / 100).await;
        calls += 1;
        // The speed of a machine may change, so a call that has time enough is measured again.
        if percent == DEADLINE_PERCENT[0] {
            usual = took;
        }
    }
    let late = metric(server.address(), &requests("DEADLINE_EXCEEDED")).await;
    let begun = metric(server.address(), &requests("OK")).await;
    assert_eq!(late + begun, f64::from(calls));
    assert!(late > 0.0 && begun > 0.0, "{late} were late, {begun} began");

    eventually("only leases that a caller knows are outstanding", async || {
        (metric(server.address(), "leasehold_outstanding_leases").await == begun).then_some(())
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

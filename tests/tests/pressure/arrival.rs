//! Tests of slow requests: the server refuses a request that does not arrive completely in time,
//! and such a request does not delay a stop.

use std::time::{Duration, Instant};

use leasehold_tests::http2::{HEADERS, PREFACE, data, grpc_head, prefix, read_frame, read_until, send};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{eventually, read_http};
use nix::sys::signal::Signal;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{BEGIN, REFLECTION, metric};

/// Half of the time for which a stop waits for requests under way.
const HALF_A_DRAIN: Duration = Duration::from_secs(5);

/// Sends a byte every 200 ms, until the connection ends.
async fn drip(mut writer: impl AsyncWriteExt + Unpin, byte: impl Fn() -> Vec<u8>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    loop {
        ticks.tick().await;
        if send(&mut writer, &byte()).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_byte_by_byte_is_refused() {
    let server = Server::builder().config("[limits]\nbody_seconds = 1\n").start().unwrap();
    let (mut reader, mut writer) = TcpStream::connect(server.address()).await.unwrap().into_split();
    send(&mut writer, &[PREFACE, &grpc_head(1, BEGIN), &data(1, &prefix(1000))].concat()).await.unwrap();
    let since = Instant::now();
    tokio::select! {
        answer = read_until(&mut reader, |frame| frame.kind == HEADERS) => drop(answer.unwrap()),
        () = drip(writer, || data(1, b"x")) => {}
    }
    assert!(since.elapsed() < HALF_A_DRAIN, "{:?}", since.elapsed());
    let counted = "leasehold_requests_total{method=\"BeginUpdate\",code=\"DEADLINE_EXCEEDED\"}";
    assert_eq!(metric(server.address(), counted).await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_http_that_comes_byte_by_byte_is_refused() {
    let server = Server::builder().config("[limits]\nbody_seconds = 1\n").start().unwrap();
    let (reader, mut writer) = TcpStream::connect(server.address()).await.unwrap().into_split();
    let head = "POST /v1/classify HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 1000\r\n\r\n";
    send(&mut writer, head.as_bytes()).await.unwrap();
    let (code, body) = tokio::select! {
        answer = read_http(reader) => answer.unwrap(),
        () = drip(writer, || b" ".to_vec()) => panic!("the drip never ends"),
    };
    assert_eq!(code, 408, "{body}");
    assert!(body.contains("REQUEST_INCOMPLETE"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_do_not_arrive_hold_up_no_stop() {
    let mut server = Server::start().unwrap();
    let (mut reader, mut writer) = TcpStream::connect(server.address()).await.unwrap().into_split();
    let calls = [PREFACE, &grpc_head(1, BEGIN), &data(1, &prefix(1000)), &grpc_head(3, REFLECTION)].concat();
    send(&mut writer, &calls).await.unwrap();
    // Reflection answers with headers at once, so the server has read both calls.
    read_until(&mut reader, |frame| frame.kind == HEADERS && frame.stream == 3).await.unwrap();
    server.signal(Signal::SIGTERM).unwrap();
    let asked = Instant::now();
    tokio::select! {
        () = drip(writer, || data(1, b"x")) => {}
        () = async { while read_frame(&mut reader).await.unwrap().is_some() {} } => {}
    }
    eventually("it is stopping", async || server.stdout().contains("\nstopping: ").then_some(())).await.unwrap();
    assert!(server.wait().unwrap().success());
    assert!(asked.elapsed() < HALF_A_DRAIN, "{:?}", asked.elapsed());
}

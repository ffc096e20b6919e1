//! Connections that nobody uses: the silent are closed, at whatever they have stopped, and those that live are kept.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use leasehold_tests::server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{BEGIN, started};

const IDLE: Duration = Duration::from_secs(1);
/// Far below what the server waits for where it is not told to wait for a second only.
const DEADLINE: Duration = Duration::from_secs(15);

async fn patient_for_a_second() -> (Server, SocketAddr) {
    let config = "metrics_listen = \"127.0.0.1:0\"\n[limits]\nidle_seconds = 1\n";
    let server = Server::builder().config(config).start().unwrap();
    let greeting = started(&server).await;
    let metrics = greeting.split("http://").nth(1).unwrap().split("/metrics").next().unwrap().parse().unwrap();
    (server, metrics)
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_fall_silent_are_closed() {
    let (server, metrics) = patient_for_a_second().await;
    let half_a_body =
        format!("POST {BEGIN} HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc\r\ncontent-length: 50\r\n\r\nhalf");
    let mut silent = tokio::task::JoinSet::new();
    for address in [server.address(), metrics] {
        for sent in [
            "",
            "PRI * HTTP/2.0\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
            "GET /metrics HTTP/1.1\r\nhost",
            "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n",
            &half_a_body,
        ] {
            let sent = sent.to_owned();
            silent.spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                let since = Instant::now();
                stream.write_all(sent.as_bytes()).await.unwrap();
                let closed = timeout(DEADLINE, stream.read_to_end(&mut Vec::new())).await;
                assert!(closed.is_ok(), "{address} stays open after {sent:?}");
                (sent, since.elapsed())
            });
        }
    }
    for (sent, elapsed) in silent.join_all().await {
        // The metrics' own address has no such method, and answers at once.
        assert!(elapsed >= IDLE / 3 || sent.starts_with("POST"), "closed {elapsed:?} after {sent:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_comes_byte_by_byte_has_its_time_too() {
    let (server, metrics) = patient_for_a_second().await;
    for address in [server.address(), metrics] {
        let (mut reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
        writer.write_all(b"GET /metrics HTTP/1.1\r\nx: ").await.unwrap();
        let drip = async {
            let mut ticks = tokio::time::interval(IDLE / 4);
            loop {
                ticks.tick().await;
                if writer.write_all(b"x").await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let mut answer = Vec::new();
        tokio::select! {
            closed = timeout(DEADLINE, reader.read_to_end(&mut answer)) => assert!(closed.is_ok(), "{address}"),
            () = drip => {}
        }
    }
}

/// A client that waits, for a health watch or for its next call, is asked and answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_answers_pings_is_kept() {
    let (server, _) = patient_for_a_second().await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let since = Instant::now();
    while since.elapsed() < 3 * IDLE {
        let mut head = [0; 9];
        timeout(DEADLINE, stream.read_exact(&mut head)).await.unwrap().expect("the connection is open");
        let mut body = vec![0; usize::from(head[2])];
        stream.read_exact(&mut body).await.unwrap();
        let (ping, ack, goaway) = (6, 1, 7);
        assert_ne!(head[3], goaway);
        if (head[3], head[4]) == (ping, 0) {
            head[4] = ack;
            stream.write_all(&[&head, body.as_slice()].concat()).await.unwrap();
        }
    }
}

//! Tests of idle connections: the server closes a silent connection in any state, and keeps a
//! connection that answers pings.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use leasehold_tests::server::Server;
use leasehold_tests::wire::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{BEGIN, await_banner};

const IDLE: Duration = Duration::from_secs(1);
/// The longest time that a test waits for the server to close a connection. It is far below the
/// default idle limit, so that only the test's limit of one second can be the cause.
const DEADLINE: Duration = Duration::from_secs(15);

async fn server_with_idle_limit() -> (Server, SocketAddr) {
    let config = "metrics_listen = \"127.0.0.1:0\"\n[limits]\nidle_seconds = 1\n";
    let server = Server::builder().config(config).start().unwrap();
    let banner = await_banner(&server).await;
    let metrics = banner.split("http://").nth(1).unwrap().split("/metrics").next().unwrap().parse().unwrap();
    (server, metrics)
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_closed_after_the_idle_limit() {
    let (server, metrics) = server_with_idle_limit().await;
    let half_a_body = format!(
        "POST {BEGIN} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/grpc\r\ncontent-length: 50\r\n\r\nhalf"
    );
    let mut silent = tokio::task::JoinSet::new();
    for address in [server.address(), metrics] {
        for sent in [
            "",
            "PRI * HTTP/2.0\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
            "GET /metrics HTTP/1.1\r\nhost",
            "GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n",
            &half_a_body,
        ] {
            let sent = sent.to_owned();
            silent.spawn(async move {
                let since = Instant::now();
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(sent.as_bytes()).await.unwrap();
                let closed = timeout(DEADLINE, stream.read_to_end(&mut Vec::new())).await;
                assert!(closed.is_ok(), "{address} stays open after {sent:?}");
                (sent, since.elapsed())
            });
        }
    }
    for (sent, elapsed) in silent.join_all().await {
        // The metrics address answers a POST with an error and closes the connection at once.
        assert!(elapsed >= IDLE / 3 || sent.starts_with("POST"), "closed {elapsed:?} after {sent:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_head_sent_byte_by_byte_is_cut_off_at_the_idle_limit() {
    let (server, metrics) = server_with_idle_limit().await;
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

/// The server pings an idle client. A client that answers is alive, and may wait for a call or a
/// health watch. On a machine that stalls an answer may be late, and then another connection is tried.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_answers_pings_stays_open() {
    let (server, _) = server_with_idle_limit().await;
    let stays_open = async || answer_pings(&server).await.then_some(());
    eventually("a connection that answers pings stays open", stays_open).await.unwrap();
}

/// Answers pings for three times the idle limit. Returns false if the connection ends before.
async fn answer_pings(server: &Server) -> bool {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let since = Instant::now();
    while since.elapsed() < 3 * IDLE {
        let mut head = [0; 9];
        let read = timeout(DEADLINE, stream.read_exact(&mut head)).await.unwrap();
        let mut body = vec![0; usize::from(head[2])];
        let (ping, ack, goaway) = (6, 1, 7);
        if read.is_err() || stream.read_exact(&mut body).await.is_err() || head[3] == goaway {
            return false;
        }
        if (head[3], head[4]) == (ping, 0) {
            head[4] = ack;
            if stream.write_all(&[&head, body.as_slice()].concat()).await.is_err() {
                return false;
            }
        }
    }
    true
}

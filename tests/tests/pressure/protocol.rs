//! Requests that a web page can send from the browser of a person near the server.

use leasehold_tests::http2::prefix;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{creates, http, kept};
use prost::Message;
use tokio::net::TcpStream;

use super::BEGIN;

async fn send(server: &Server, head: &str, body: &[u8]) -> u16 {
    let stream = TcpStream::connect(server.address()).await.unwrap();
    http(stream, head, body).await.unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_begins_no_update() {
    let server = Server::start().unwrap();
    let message = creates(1, &["page"]).encode_to_vec();
    let body = [prefix(u32::try_from(message.len()).unwrap()), message].concat();
    for (headers, expected) in [
        ("content-type: text/plain\r\norigin: http://page.example", 415),
        ("content-type: text/plain", 415),
        ("content-type: application/grpc-web", 415),
        ("te: trailers", 415),
        // If the DNS name of a page's site is changed to the server's address, the browser sends
        // the page's request without a CORS preflight.
        ("content-type: application/grpc\r\norigin: http://page.example", 403),
        ("content-type: application/grpc\r\norigin: null", 403),
    ] {
        let status = send(&server, &format!("POST {BEGIN} HTTP/1.1\r\n{headers}"), &body).await;
        assert_eq!(status, expected, "{headers}");
    }
    let channel = server.connect(None).await.unwrap();
    let kept = kept(&channel, &[1, 2]).await.unwrap();
    assert_eq!((kept.leases.len(), kept.records.len()), (0, 0));
}

/// Sends a GET request with this host name and the header lines `origin`. Returns the status code.
async fn get_as(server: &Server, host: &str, origin: &str) -> u16 {
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let (reader, mut writer) = stream.into_split();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\n{origin}connection: close\r\n\r\n");
    leasehold_tests::http2::send(&mut writer, request.as_bytes()).await.unwrap();
    leasehold_tests::wire::read_http(reader).await.unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn http_is_served_under_own_names_to_own_pages() {
    let server = Server::builder().config("http_hosts = [\"claims.example\"]\n").start().unwrap();
    let port = server.address().port();
    for (host, origin, expected) in [
        (format!("127.0.0.1:{port}"), "", 200),
        (format!("localhost:{port}"), "", 200),
        ("claims.example".to_owned(), "", 200),
        ("claims.example".to_owned(), "origin: http://claims.example\r\n", 200),
        ("claims.example".to_owned(), "origin: http://page.example\r\n", 403),
        (format!("page.example:{port}"), "", 403),
    ] {
        assert_eq!(get_as(&server, &host, origin).await, expected, "{host} {origin}");
    }
    let head = "POST /v1/classify HTTP/1.1\r\ncontent-type: text/plain\r\norigin: http://page.example";
    assert_eq!(send(&server, head, br#"{"type": "FIRST_CELL"}"#).await, 403);
    let head = "POST /v1/classify HTTP/1.1\r\ncontent-type: application/json";
    assert_eq!(send(&server, head, br#"{"type": "FIRST_CELL"}"#).await, 200);
}

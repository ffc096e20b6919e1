//! Tests that open connections leave enough file descriptors to the store, and that clients without
//! an identity do not keep connections that they do not use.

use std::time::Duration;

use leasehold_core::lease::Outcome;
use leasehold_tests::certificates::{Authority, Pair};
use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::http2::{PREFACE, frame, grpc_head, last_data, prefix, read_frame, read_until, send};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{call_raw, creates, eventually, get};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{GET_CELLS, HEALTH_WATCH, metric, metrics_address, tls_server};

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_are_closed_and_saves_go_on() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let server = Server::builder().config("metrics_listen = \"127.0.0.1:0\"\n").open_files(1024).start().unwrap();
    let said = "the limit of 1024 open files allows 768 connections only";
    let stdout = eventually(said, async || Some(server.stdout()).filter(|text| text.contains(said))).await.unwrap();
    let metrics = stdout.split("http://").nth(1).unwrap().split("/metrics").next().unwrap().parse().unwrap();
    let mut claims = server.claims(None).await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..1074 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        // The result is ignored: the server may have closed the connection already.
        let _ = stream.write_all(PREFACE).await;
        idle.push(stream);
    }
    eventually("the limit is reached", async || {
        (metric(metrics, "leasehold_connections_refused_total").await >= 307.0).then_some(())
    })
    .await
    .unwrap();
    // The connection that reads the metrics counts too.
    assert_eq!(metric(metrics, "leasehold_connections").await, 769.0);
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    assert!(open < 900, "{open} descriptors are open");
    for n in 0..20 {
        claims.begin_update(creates(1, &[&format!("name-{n}")])).await.unwrap();
    }
    assert!(server.has_logged("new connections are closed at once"), "{}", server.stderr());
    drop(idle);
    eventually("new clients are served", async || {
        let mut claims = server.claims(None).await.ok()?;
        claims.begin_update(creates(2, &["later"])).await.ok()
    })
    .await
    .unwrap();
}

/// fjall's worker opens files when it flushes and merges tables. Its first failure would be final,
/// so descriptors must remain for the worker however many connections are open.
#[tokio::test(flavor = "multi_thread")]
async fn the_store_flushes_and_merges_while_all_connections_are_taken() {
    let settings = "metrics_listen = \"127.0.0.1:0\"\n[limits]\nrequest_mib_per_connection = 64\n";
    let server = Server::builder().config(settings).open_files(256).start().unwrap();
    let said = "the limit of 256 open files allows 96 connections only";
    eventually(said, async || Some(()).filter(|()| server.stdout().contains(said))).await.unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let _ = stream.write_all(PREFACE).await;
        idle.push(stream);
    }
    // Tables are flushed at 16 MiB, so this makes several of them.
    for update in 0..20 {
        let creates = (0..1_000).map(|n| user(format!("flushed-{update}-{n}"), 1 + update * 1_000 + n, vec![7; 3_500]));
        let begun = client.begin(Update { creates: creates.collect(), ..Update::default() }).await.unwrap();
        client.settle(&begun.lease, Outcome::Committed).await.unwrap();
    }
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    assert!((97..240).contains(&open), "{open} descriptors are open");
    drop(idle);
}

/// Opens a connection, sends the frames of some calls, and answers the server's pings until the
/// server ends it.
async fn lurk(server: &Server, authority: &Authority, certificate: Option<&Pair>, calls: &[u8]) {
    let (settings, ping, ack) = (4, 6, 1);
    let mut stream = authority.connect(server.address(), certificate, "h2").await.unwrap();
    send(&mut stream, &[PREFACE, calls].concat()).await.unwrap();
    while let Some(found) = read_frame(&mut stream).await.unwrap() {
        let answer = match found.kind {
            kind if kind == settings && found.payload.is_empty() => continue,
            kind if kind == settings => frame(settings, ack, 0, &[]),
            kind if kind == ping => frame(ping, ack, 0, &found.payload),
            _ => continue,
        };
        // The result is ignored: the server may have closed the connection already.
        let _ = send(&mut stream, &answer).await;
    }
}

/// A stream of health that stays open.
fn watch(stream: u32) -> Vec<u8> {
    [grpc_head(stream, HEALTH_WATCH), last_data(stream, &prefix(0))].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_role_keeps_no_connection_that_it_does_not_use() {
    let (directory, authority) = (TempDir::new().unwrap(), Authority::new("first").unwrap());
    let server = tls_server(directory.path(), &authority, "[limits]\nidle_seconds = 3\n").start().unwrap();
    let [cell, other] = ["spiffe://leasehold/cell/1", "spiffe://elsewhere/cell/1"];
    let [cell, other] = [cell, other].map(|uri| authority.client(&[uri]).unwrap());
    let watch = watch(1);
    let others = async {
        let calls = [&[][..], &watch];
        let [silent, watching] = calls.map(|calls| lurk(&server, &authority, None, calls));
        tokio::join!(silent, watching, lurk(&server, &authority, Some(&other), &watch))
    };
    tokio::select! {
        () = lurk(&server, &authority, Some(&cell), &[]) => panic!("the connection of a cell ended"),
        ended = tokio::time::timeout(Duration::from_secs(50), others) => drop(ended.unwrap()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_limit_connections_of_clients_without_a_role_give_way() {
    let (directory, authority) = (TempDir::new().unwrap(), Authority::new("first").unwrap());
    let server = tls_server(directory.path(), &authority, "[limits]\nconnections = 4\n").start().unwrap();
    let cell = authority.client(&["spiffe://leasehold/cell/1"]).unwrap();
    let config = authority.client_config(Some(&cell));
    let kept = server.connect(Some(config.clone())).await.unwrap();
    call_raw(&kept, GET_CELLS, vec![]).await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..3 {
        let mut stream = authority.connect(server.address(), None, "h2").await.unwrap();
        send(&mut stream, PREFACE).await.unwrap();
        // The server's settings come after it has judged the client's certificate.
        read_frame(&mut stream).await.unwrap();
        idle.push(stream);
    }
    let mut channels = Vec::new();
    for _ in 0..3 {
        let channel = server.connect(Some(config.clone())).await.unwrap();
        call_raw(&channel, GET_CELLS, vec![]).await.unwrap();
        channels.push(channel);
    }
    // Four connections of a cell are open, so nobody gives way to a client without a role.
    let closed = async {
        let Ok(mut stream) = authority.connect(server.address(), None, "h2").await else { return true };
        let _ = send(&mut stream, PREFACE).await;
        !matches!(read_frame(&mut stream).await, Ok(Some(_)))
    };
    assert!(closed.await);
    for channel in channels.iter().chain([&kept]) {
        call_raw(channel, GET_CELLS, vec![]).await.unwrap();
    }
}

/// Opens a connection of this client until the server has answered with its settings; `None` if the
/// server closes it.
async fn open(server: &Server, authority: &Authority, pair: &Pair) -> Option<TlsStream<TcpStream>> {
    let mut stream = authority.connect(server.address(), Some(pair), "h2").await.ok()?;
    send(&mut stream, PREFACE).await.ok()?;
    read_frame(&mut stream).await.ok().flatten().map(|_| stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_cell_leaves_connections_to_other_cells_and_to_administrators() {
    let (directory, authority) = (TempDir::new().unwrap(), Authority::new("first").unwrap());
    // Each of two cells, a service and two other roles has two places of its own.
    let access = "[[locks.access]]\ncaller = \"service/billing\"\nnamespaces = [\"user\"]\n";
    let settings = format!("metrics_listen = \"127.0.0.1:0\"\n[limits]\nconnections = 20\n{access}");
    let settings = settings.as_str();
    let server = tls_server(directory.path(), &authority, settings).start().unwrap();
    let role = |role: &str| authority.client(&[&format!("spiffe://leasehold/{role}")]).unwrap();
    let [one, two, admin] = ["cell/1", "cell/2", "admin"].map(role);
    let mut kept = Vec::new();
    for _ in 0..40 {
        kept.extend(open(&server, &authority, &one).await);
    }
    let metrics = metrics_address(&server).await;
    eventually("the cell has its share of connections", async || {
        // The connection that reads the metrics counts too.
        (metric(metrics, "leasehold_connections").await <= 13.0).then_some(())
    })
    .await
    .unwrap();
    assert!(metric(metrics, "leasehold_connections_refused_total").await >= 28.0);
    assert!(server.stderr().contains("caller=cell/1"), "{}", server.stderr());
    for pair in [&two, &admin] {
        let channel = server.connect(Some(authority.client_config(Some(pair)))).await.unwrap();
        call_raw(&channel, GET_CELLS, vec![]).await.unwrap();
    }
    // Connections that run a call give way to administrators only.
    drop(kept);
    let mut streams = Vec::new();
    for pair in [&one; 12].into_iter().chain([&two; 2]) {
        let mut stream = open(&server, &authority, pair).await.unwrap();
        send(&mut stream, &watch(1)).await.unwrap();
        read_until(&mut stream, |frame| frame.stream == 1).await.unwrap();
        streams.push(stream);
    }
    let mut admins = Vec::new();
    for _ in 0..10 {
        let channel = server.connect(Some(authority.client_config(Some(&admin)))).await.unwrap();
        call_raw(&channel, GET_CELLS, vec![]).await.unwrap();
        admins.push(channel);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_has_few_streams_of_health() {
    let server = Server::start().unwrap();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let watches: Vec<_> = (0..9).flat_map(|n| watch(2 * n + 1)).collect();
    send(&mut stream, &[PREFACE, &watches].concat()).await.unwrap();
    let refused = "leasehold_shed_total{method=\"Health\"}";
    eventually("the ninth is refused", async || {
        let (_, text) = get(server.address(), "/metrics").await.ok()?;
        text.contains(&format!("{refused} 1")).then_some(())
    })
    .await
    .unwrap();
}

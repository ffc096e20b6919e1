//! Tests of the probes `/livez` and `/readyz`, and of the metrics of the process.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use leasehold_tests::server::Server;
use leasehold_tests::wire::{SlowCall, creates, eventually, get};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::Signal;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Scrape, await_banner, begin_slowly};

const READY: &str =
    "[+]shutdown ok\n[+]store ok\n[+]reads ok\n[+]writes ok\n[+]database ok\n[+]maintenance ok\nreadyz check passed\n";

/// Starts a server with an address for metrics, and returns that address.
async fn with_metrics_address() -> (Server, SocketAddr) {
    let server = Server::builder().config("metrics_listen = \"127.0.0.1:0\"\n").start().unwrap();
    let banner = await_banner(&server).await;
    let address = banner.split("http://").nth(1).unwrap().split("/metrics").next().unwrap().parse().unwrap();
    (server, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_tell_that_a_server_lives_and_is_ready() {
    let (server, metrics) = with_metrics_address().await;
    for address in [server.address(), metrics] {
        for (path, text) in [
            ("/livez", "ok\n"),
            ("/livez?verbose", "[+]ping ok\nlivez check passed\n"),
            ("/readyz", "ok\n"),
            ("/readyz?verbose", READY),
        ] {
            assert_eq!(get(address, path).await.unwrap(), (200, text.to_owned()), "{address} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_lives_and_is_not_ready() {
    let (mut server, metrics) = with_metrics_address().await;
    let channel = server.connect(None).await.unwrap();
    let SlowCall { message, answer } = begin_slowly(&channel).await;
    server.signal(Signal::SIGTERM).unwrap();
    let text = eventually("the server is not ready", async || {
        let (code, text) = get(metrics, "/readyz").await.unwrap();
        (code == 503).then_some(text)
    });
    let text = text.await.unwrap();
    assert!(text.starts_with("[-]shutdown failed: the server is stopping\n[+]store ok\n"), "{text}");
    assert!(text.ends_with("\nreadyz check failed\n"), "{text}");
    assert_eq!(get(metrics, "/livez").await.unwrap().0, 200);
    message.send(creates(1, &["under-way"]).encode_to_vec()).await.unwrap();
    drop(message);
    answer.await.unwrap().unwrap();
    drop(channel);
    assert!(server.wait().unwrap().success());
}

/// A liveness probe restarts a server that does not answer, so silent connections must not keep it
/// from answering.
#[tokio::test(flavor = "multi_thread")]
async fn probes_are_answered_while_others_hold_connections() {
    let (_server, metrics) = with_metrics_address().await;
    let mut held = Vec::new();
    for sent in ["", "GET /metrics HTTP/1.1\r\nhost"].into_iter().cycle().take(130) {
        let mut stream = TcpStream::connect(metrics).await.unwrap();
        // The result is ignored: the connection may have given way already.
        let _ = stream.write_all(sent.as_bytes()).await;
        held.push(stream);
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(metrics, path).await.unwrap().0, 200, "{path}");
    }
    let since = Instant::now();
    for mut stream in held {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    // Far below the default of `limits.idle_seconds`.
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_describe_the_build_and_the_process() {
    let server = Server::builder().open_files(1_000).start().unwrap();
    let scrape = Scrape::of(server.address()).await;
    let version = env!("CARGO_PKG_VERSION");
    let build = format!("leasehold_build_info{{version=\"{version}\",commit=\"unknown\",store=\"embedded\"}}");
    assert_eq!(scrape.get(&build), 1.0);
    assert_eq!(scrape.get("process_max_fds"), 1_000.0);
    assert!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0 != 1_000, "the test itself has this limit");

    let counted = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count() as f64;
    assert!((scrape.get("process_open_fds") - counted).abs() <= 4.0, "{} {counted}", scrape.get("process_open_fds"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<f64>().unwrap()
    };
    let resident = scrape.get("process_resident_memory_bytes") / 1024.0 / field("VmRSS:");
    assert!((0.5..2.0).contains(&resident), "{resident}");
    assert!(scrape.get("process_virtual_memory_bytes") > scrape.get("process_resident_memory_bytes"));
    assert!((scrape.get("process_threads") - field("Threads:")).abs() <= 8.0);
    assert!(scrape.get("process_cpu_seconds_total") > 0.0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((0.0..60.0).contains(&(now - scrape.get("process_start_time_seconds"))));
}

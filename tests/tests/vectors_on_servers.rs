//! Plays the golden vectors on running servers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_tests::etcd::{EtcdCluster, LIMITS};
use leasehold_tests::postgres::{Bouncer, Cluster};
use leasehold_tests::server::Server;
use leasehold_tests::vectors::{Mismatch, ServerHost, VectorFile, golden_files};

/// Plays all files of golden vectors, each on servers that `open` starts. The files run in
/// parallel, because a server mostly waits for the disk.
fn play_all(open: impl Fn() -> anyhow::Result<ServerHost> + Sync) {
    let play = &|(name, text): (String, String)| {
        let file = VectorFile::parse(&name, &text).unwrap();
        file.play(&open).unwrap_or_else(|error| panic!("{name}: {error:#}")).mismatches
    };
    let mismatches: Vec<_> = std::thread::scope(|scope| {
        let files = golden_files().unwrap().into_iter();
        let running: Vec<_> = files.map(|file| scope.spawn(move || play(file))).collect();
        running.into_iter().flat_map(|file| file.join().unwrap()).collect()
    });
    let texts: Vec<_> = mismatches.iter().map(Mismatch::to_string).collect();
    assert!(texts.is_empty(), "{} steps went otherwise:\n\n{}", texts.len(), texts.join("\n"));
}

#[test]
fn the_server_matches_every_golden_vector() {
    play_all(ServerHost::start);
}

#[test]
fn the_server_on_etcd_matches_every_golden_vector() {
    let cluster = EtcdCluster::start(1, LIMITS).unwrap();
    let count = AtomicU32::new(0);
    play_all(|| {
        let url = cluster.url(&format!("vectors/{}", count.fetch_add(1, Ordering::Relaxed)));
        let server = Server::builder().arg("--store").arg(url).env("XDG_STATE_HOME", cluster.state_directory());
        ServerHost::of(server).map(ServerHost::with_gaps)
    });
}

/// Cluster settings with enough connections for one server per file, and for servers that are still
/// stopping.
const CONNECTIONS: &[&str] = &["max_connections=400", "fsync=off"];

#[test]
fn the_server_on_postgres_matches_every_golden_vector() {
    let cluster = Cluster::start(CONNECTIONS).unwrap();
    play_all(|| ServerHost::on(&cluster.url(&cluster.store()?)));
}

#[test]
fn the_server_behind_pgbouncer_matches_every_golden_vector() {
    let cluster = Cluster::start(CONNECTIONS).unwrap();
    let bouncer = Bouncer::start(&cluster, 3).unwrap();
    play_all(|| ServerHost::on(&bouncer.url(&cluster.store()?)));
}

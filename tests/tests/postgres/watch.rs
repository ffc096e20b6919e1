//! What operators see of a database that is in trouble, and of one that is not.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use tokio::runtime::Runtime;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::{NO_SYNC, await_condition, cells, connect, metric};

/// How soon operators expect to hear of a database that hangs: two seconds of silence, a look beforehand, and some slack.
const SOON: Duration = Duration::from_secs(4);
/// Of a TCP connection that the other end has closed, and of one that is open, in `/proc/net/tcp`.
const CLOSE_WAIT: &str = "08";
const ESTABLISHED: &str = "01";

fn server(url: &str) -> Server {
    Server::builder().config(cells(1)).arg("--store").arg(url).start().unwrap()
}

pub(crate) fn is_serving(runtime: &Runtime, server: &Server) -> bool {
    let channel = runtime.block_on(server.connect(None)).unwrap();
    let asked = runtime.block_on(HealthClient::new(channel).check(HealthCheckRequest::default()));
    asked.unwrap().into_inner().status == ServingStatus::Serving as i32
}

#[test]
fn each_cause_of_retries_is_counted_from_the_start() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let server = server(&cluster.url(&cluster.database().unwrap()));
    let runtime = Runtime::new().unwrap();
    for cause in ["changed", "mistaken", "away"] {
        let name = format!("leasehold_retries_total{{cause=\"{cause}\"}}");
        assert_eq!(metric(&runtime, &server, &name).as_deref(), Some("0"), "{cause}");
    }
}

#[test]
fn a_database_that_hangs_is_told_of_soon_and_so_is_that_it_goes_on() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let server = server(&cluster.url(&cluster.database().unwrap()));
    let runtime = Runtime::new().unwrap();
    let is_told = |failed: &str| {
        let metric = metric(&runtime, &server, "leasehold_store_failed");
        metric.as_deref() == Some(failed) && is_serving(&runtime, &server) == (failed == "0")
    };
    assert!(is_told("0"));
    let frozen = cluster.freeze().unwrap();
    let asked = Instant::now();
    await_condition("the silence is told of", || is_told("1"));
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    drop(frozen);
    await_condition("the return is told of", || is_told("0"));
    await_condition("the log says so", || server.stderr().lines().any(|line| line.ends_with("the store is back")));
}

/// Reads that take all of the pool, or wait for a lock, say nothing of the database's health.
#[test]
fn rows_that_are_locked_where_a_server_tidies_up_are_no_outage() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let config = format!("settled_retention_seconds = 1\n{}", cells(1));
    let server = Server::builder().config(config).arg("--store").arg(cluster.url(&database)).start().unwrap();
    let runtime = Runtime::new().unwrap();
    let mut client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let update = Update { creates: vec![user("alice", 7, Vec::new())], key: Some("k".into()), ..Update::default() };
    let lease = runtime.block_on(client.begin(update)).unwrap().lease;
    let foreign = connect(&runtime, &cluster.url(&database));
    runtime.block_on(foreign.batch_execute("BEGIN; SELECT FROM idempotency_keys FOR UPDATE")).unwrap();
    runtime.block_on(client.settle(&lease, leasehold_core::lease::Outcome::Committed)).unwrap();
    let mut seen = BTreeSet::new();
    await_condition("the server gives up tidying", || {
        seen.extend(metric(&runtime, &server, "leasehold_store_failed"));
        server.stderr().contains("settled leases can't be forgotten now")
    });
    seen.extend(metric(&runtime, &server, "leasehold_store_failed"));
    assert_eq!(seen, BTreeSet::from(["0".to_owned()]));
    runtime.block_on(foreign.batch_execute("COMMIT")).unwrap();
    let left = || cluster.execute(&database, "SELECT count(*) FROM settled_leases").unwrap();
    await_condition("it tidies up", || left() == ["0"]);
}

/// The connections of this machine to a port, by their own ports, in one of these states.
fn connections(port: u16, states: &[&str]) -> BTreeSet<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = format!(":{port:04X}");
    let connection = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        (words[2].ends_with(&remote) && states.contains(&words[3])).then(|| words[1].to_owned())
    };
    table.lines().skip(1).filter_map(connection).collect()
}

#[test]
fn a_connection_that_dies_is_dropped_before_anybody_writes() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    // One writer: what rests must be what goes on to write.
    let config = format!("[postgres]\nurl = \"{}\"\nwrite_connections = 1\n{}", cluster.url(&database), cells(1));
    let server = Server::builder().config(config).start().unwrap();
    let runtime = Runtime::new().unwrap();
    let mut client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let update = Update { creates: vec![user("alice", 7, Vec::new())], ..Update::default() };
    let lease = runtime.block_on(client.begin(update)).unwrap().lease;
    let open = connections(cluster.port(), &[ESTABLISHED]);
    assert!(!open.is_empty());
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    cluster.execute(&database, end).unwrap();
    await_condition("the dead connections are dropped", || {
        connections(cluster.port(), &[ESTABLISHED, CLOSE_WAIT]).is_disjoint(&open)
    });
    runtime.block_on(client.settle(&lease, leasehold_core::lease::Outcome::Committed)).unwrap();
    let retries = metric(&runtime, &server, "leasehold_retries_total{cause=\"away\"}");
    assert_eq!(retries.as_deref(), Some("0"), "the write has found a dead connection");
}

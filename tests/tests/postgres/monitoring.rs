//! Tests of a server's metrics, health and log: a failing database is reported within seconds, and
//! a working database is never reported as failed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use leasehold_core::lease::Outcome;
use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use tokio::runtime::Runtime;

use crate::{
    NO_SYNC, StoreStatus, await_condition, await_report, cells, client_of, create, metric, open_session, reports, serve,
};

/// The longest time until a server must report a hanging database: two seconds after which its
/// probe gives up, the interval between probes, and a margin. A statement of a write gives up much later.
const REPORT_LIMIT: Duration = Duration::from_secs(4);
/// The code in `/proc/net/tcp` of a TCP connection that the other end has closed.
const CLOSE_WAIT: &str = "08";
/// The code in `/proc/net/tcp` of an established TCP connection.
const ESTABLISHED: &str = "01";

#[test]
fn every_cause_of_retries_has_a_counter_that_starts_at_zero() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let server = serve(&cluster.url(&cluster.database().unwrap()), "");
    let runtime = Runtime::new().unwrap();
    for cause in ["changed", "misspeculated", "away"] {
        let name = format!("leasehold_retries_total{{cause=\"{cause}\"}}");
        assert_eq!(metric(&runtime, &server, &name).as_deref(), Some("0"), "{cause}");
    }
}

#[test]
fn a_hanging_database_is_reported_soon_and_so_is_its_recovery() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let server = serve(&cluster.url(&cluster.database().unwrap()), "");
    let runtime = Runtime::new().unwrap();
    assert!(reports(&runtime, &server, StoreStatus::Working));
    // On a machine that stalls a report may be late, and then another one is timed.
    await_condition("a hanging database is reported soon", || {
        let frozen = cluster.freeze().unwrap();
        let start = Instant::now();
        await_report(&runtime, &server, StoreStatus::Failed);
        let took = start.elapsed();
        drop(frozen);
        await_report(&runtime, &server, StoreStatus::Working);
        took < REPORT_LIMIT
    });
    await_condition("the log has the recovery", || {
        server.stderr().lines().any(|line| line.ends_with("the database answers again"))
    });
}

/// The claims that a cell holds through one server count against its share on another.
#[test]
fn a_cell_has_one_share_on_all_servers_of_a_database() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let limits = "[limits]\nheld_claims = 12\n";
    let runtime = Runtime::new().unwrap();
    let first = serve(&url, "");
    let update =
        Update { creates: (1..=8).map(|n| user(format!("held-{n}"), n, Vec::new())).collect(), ..Update::default() };
    runtime.block_on(client_of(&runtime, &first).begin(update)).unwrap();
    let second = serve(&url, limits);
    let refused = runtime.block_on(client_of(&runtime, &second).begin(create("one-more"))).unwrap_err();
    assert!(refused.message().contains("its share of `limits.held_claims` = 12"), "{refused:?}");
    let mut other = runtime.block_on(Client::connect(&second, 2)).unwrap();
    runtime.block_on(other.begin(create("of-another-cell"))).unwrap();
}

/// A maintenance task that waits for a lock does not show that the database has failed.
#[test]
fn rows_locked_during_maintenance_are_not_reported_as_an_outage() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let config = format!("settled_retention_seconds = 1\n{}", cells(1));
    let server = Server::builder().config(config).arg("--store").arg(cluster.url(&database)).start().unwrap();
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &server);
    let update = Update { creates: vec![user("alice", 7, Vec::new())], key: Some("k".into()), ..Update::default() };
    let lease = runtime.block_on(client.begin(update)).unwrap().lease;
    let foreign = open_session(&runtime, &cluster.url(&database));
    runtime.block_on(foreign.batch_execute("BEGIN; SELECT FROM idempotency_keys FOR UPDATE")).unwrap();
    runtime.block_on(client.settle(&lease, Outcome::Committed)).unwrap();
    let mut reported = BTreeSet::new();
    await_condition("maintenance gives up", || {
        reported.extend(metric(&runtime, &server, "leasehold_store_unavailable"));
        server.stderr().contains("settled leases can't be forgotten now")
    });
    reported.extend(metric(&runtime, &server, "leasehold_store_unavailable"));
    assert_eq!(reported, BTreeSet::from(["0".to_owned()]));
    runtime.block_on(foreign.batch_execute("COMMIT")).unwrap();
    let remembered = || cluster.execute(&database, "SELECT count(*) FROM settled_leases").unwrap();
    await_condition("settled leases are forgotten", || remembered() == ["0"]);
}

/// Returns the local addresses of TCP connections from this machine to a port, if their state is in
/// `states`.
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
fn a_terminated_connection_is_dropped_before_the_next_write() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    // The server has one writer. It must notice the closed connection while it is idle, and open
    // another before it writes.
    let server = serve(&cluster.url(&database), "write_connections = 1");
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &server);
    let lease = runtime.block_on(client.begin(create("alice"))).unwrap().lease;
    let open = connections(cluster.port(), &[ESTABLISHED]);
    assert!(!open.is_empty());
    let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    cluster.execute(&database, terminate).unwrap();
    await_condition("the dead connections are dropped", || {
        connections(cluster.port(), &[ESTABLISHED, CLOSE_WAIT]).is_disjoint(&open)
    });
    runtime.block_on(client.settle(&lease, Outcome::Committed)).unwrap();
    let retries = metric(&runtime, &server, "leasehold_retries_total{cause=\"away\"}");
    assert_eq!(retries.as_deref(), Some("0"), "the write used a dead connection");
}

//! Tests of database calls that time out: they occupy a limited number of connections, and delay no
//! other call.

use std::time::{Duration, Instant};

use leasehold_tests::postgres::Cluster;
use leasehold_tests::wire::Refusal;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::{
    NO_SYNC, STORE_UNAVAILABLE, StoreStatus, await_condition, await_report, client_of, create, open_session, serve,
};

/// The most connections that a server may hold open while commits hang. Each of the two writers has
/// three: one whose commit hangs, one that waits for the end of this commit, and one that is being
/// closed. Reads have one more, and the probe has one more.
const MAX_CONNECTIONS: usize = 8;

/// Settings under which the server gives up a database call after one second, and all reads share
/// one connection.
const SETTINGS: &str = "statement_timeout_seconds = 1\npatience_seconds = 1\nread_connections = 1";

/// The database waits for a synchronous standby that does not exist, so every COMMIT hangs.
#[test]
fn commits_that_hang_use_a_bounded_number_of_connections() {
    let cluster = Cluster::start(&[]).unwrap();
    let database = cluster.database().unwrap();
    let server = serve(&cluster.url(&database), SETTINGS);
    let runtime = Runtime::new().unwrap();
    let client = client_of(&runtime, &server);
    let set_standbys = |standbys: &str| {
        cluster.execute("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")).unwrap();
        cluster.execute("postgres", "SELECT pg_reload_conf()").unwrap();
        await_condition("the setting is in force", || {
            cluster.execute("postgres", "SHOW synchronous_standby_names").unwrap() == [standbys]
        });
    };
    runtime.block_on(client.clone().begin(create("before"))).unwrap();
    set_standbys("missing");
    let mut most = 0;
    for round in 0..6 {
        let mut begins = JoinSet::new();
        for number in 0..4 {
            let mut client = client.clone();
            let update = create(format!("hangs-{round}-{number}"));
            begins.spawn_on(async move { client.begin(update).await }, runtime.handle());
        }
        for answer in runtime.block_on(begins.join_all()) {
            let refused = answer.unwrap_err();
            assert_eq!(Refusal::of(&refused).code_and_reason(), STORE_UNAVAILABLE, "{refused:?}");
        }
        let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
        most = most.max(cluster.execute("postgres", open).unwrap()[0].parse().unwrap());
    }
    assert!(most <= MAX_CONNECTIONS, "{most} connections");
    await_report(&runtime, &server, StoreStatus::Failed);
    assert!(!server.stderr().contains("the store is back"), "{}", server.stderr());
    set_standbys("");
    await_report(&runtime, &server, StoreStatus::Working);
    runtime.block_on(client.clone().begin(create("after"))).unwrap();
    runtime.block_on(client.clone().get("after")).unwrap();
}

#[test]
fn a_read_that_times_out_delays_no_other_read() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let server = serve(&cluster.url(&database), SETTINGS);
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &server);
    let lease = runtime.block_on(client.begin(create("alice"))).unwrap().lease;
    let foreign = open_session(&runtime, &cluster.url(&database));
    runtime.block_on(foreign.batch_execute("BEGIN; LOCK TABLE claims IN ACCESS EXCLUSIVE MODE")).unwrap();
    // A read that is repeated takes two seconds at least. On a machine that stalls any read may take so
    // long, and then another one is timed.
    await_condition("a read times out and is not repeated", || {
        let start = Instant::now();
        let refused = runtime.block_on(client.get("alice")).unwrap_err();
        assert_eq!(Refusal::of(&refused).code_and_reason(), STORE_UNAVAILABLE, "{refused:?}");
        start.elapsed() < Duration::from_millis(1_900)
    });
    // The list reads a table that is not locked. It must get the only read connection although the
    // first read timed out.
    assert_eq!(runtime.block_on(client.leases()).unwrap(), [lease]);
    let reading = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%FROM claims c WHERE%'
        AND pid <> pg_backend_pid()";
    await_condition("the database has cancelled the first read", || {
        cluster.execute("postgres", reading).unwrap() == ["0"]
    });
    runtime.block_on(foreign.batch_execute("COMMIT")).unwrap();
    runtime.block_on(client.get("alice")).unwrap();
}

//! What a server gives up waiting for: it costs the database no more than one connection each, and nobody else his time.

use std::time::{Duration, Instant};

use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::Refusal;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::Code;

use crate::watch::is_serving;
use crate::{NO_SYNC, await_condition, cells, connect, metric};

const AWAY: (Code, &str) = (Code::Unavailable, "STORE_UNAVAILABLE");
/// Two that write, each with one that hangs, one that waits for its end, and one that is being closed; one that reads; one that
/// looks. There were twenty after six rounds, and more after each.
const CONNECTIONS: usize = 8;

fn server(url: &str) -> Server {
    let settings = "statement_timeout_seconds = 1\npatience_seconds = 1\nread_connections = 1";
    let config = format!("[postgres]\nurl = \"{url}\"\n{settings}\n{}", cells(1));
    Server::builder().config(config).start().unwrap()
}

fn create(name: impl Into<String>) -> Update {
    Update { creates: vec![user(name, 7, Vec::new())], ..Update::default() }
}

/// A synchronous standby that is gone makes every COMMIT wait for it, and for ever.
#[test]
fn commits_that_hang_do_not_use_up_the_databases_connections() {
    let cluster = Cluster::start(&[]).unwrap();
    let database = cluster.database().unwrap();
    let server = server(&cluster.url(&database));
    let runtime = Runtime::new().unwrap();
    let client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let set = |standbys: &str| {
        cluster.execute("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")).unwrap();
        cluster.execute("postgres", "SELECT pg_reload_conf()").unwrap();
        await_condition("it is set", || {
            cluster.execute("postgres", "SHOW synchronous_standby_names").unwrap() == [standbys]
        });
    };
    runtime.block_on(client.clone().begin(create("before"))).unwrap();
    set("nobody");
    let mut most = 0;
    for round in 0..6 {
        let mut asking = JoinSet::new();
        for number in 0..4 {
            let mut client = client.clone();
            let update = create(format!("hangs-{round}-{number}"));
            asking.spawn_on(async move { client.begin(update).await }, runtime.handle());
        }
        for answer in runtime.block_on(asking.join_all()) {
            let refused = answer.unwrap_err();
            assert_eq!(Refusal::of(&refused).code_and_reason(), AWAY, "{refused:?}");
        }
        let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
        most = most.max(cluster.execute("postgres", open).unwrap()[0].parse().unwrap());
    }
    assert!(most <= CONNECTIONS, "{most} connections");
    let is_told = |failed: &str| {
        let metric = metric(&runtime, &server, "leasehold_store_failed");
        metric.as_deref() == Some(failed) && is_serving(&runtime, &server) == (failed == "0")
    };
    await_condition("it is told of", || is_told("1"));
    assert!(!server.stderr().contains("the store is back"), "{}", server.stderr());
    set("");
    await_condition("the return is told of", || is_told("0"));
    runtime.block_on(client.clone().begin(create("after"))).unwrap();
    runtime.block_on(client.clone().get("after")).unwrap();
}

#[test]
fn a_read_that_takes_too_long_holds_up_no_other() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let server = server(&cluster.url(&database));
    let runtime = Runtime::new().unwrap();
    let mut client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let lease = runtime.block_on(client.begin(create("alice"))).unwrap().lease;
    let foreign = connect(&runtime, &cluster.url(&database));
    runtime.block_on(foreign.batch_execute("BEGIN; LOCK TABLE claims IN ACCESS EXCLUSIVE MODE")).unwrap();
    let asked = Instant::now();
    let refused = runtime.block_on(client.get("alice")).unwrap_err();
    assert_eq!(Refusal::of(&refused).code_and_reason(), AWAY, "{refused:?}");
    assert!(asked.elapsed() < Duration::from_millis(1_900), "it was tried once: {:?}", asked.elapsed());
    // Over another table, by the only connection for reads that there may be.
    assert_eq!(runtime.block_on(client.leases()).unwrap(), [lease]);
    let reading = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%FROM claims c WHERE%'
        AND pid <> pg_backend_pid()";
    await_condition("the database has ended it", || cluster.execute("postgres", reading).unwrap() == ["0"]);
    runtime.block_on(foreign.batch_execute("COMMIT")).unwrap();
    runtime.block_on(client.get("alice")).unwrap();
}

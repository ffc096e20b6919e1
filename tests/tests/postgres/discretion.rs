//! What the database writes into its own log: no names, and no complaints about what is usual.

use leasehold_core::lease::Outcome;
use leasehold_tests::client::{Client, Update, reason, user};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::get;
use tokio::runtime::Runtime;

use crate::{NO_SYNC, cells};

#[test]
fn the_databases_log_has_no_names_of_conflicts() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let server = || Server::builder().config(cells(1)).arg("--store").arg(&url).start().unwrap();
    let (first_server, second_server) = (server(), server());
    let runtime = Runtime::new().unwrap();
    let client = |server: &Server| Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let (mut first, mut second) = (client(&first_server), client(&second_server));
    // The second server does not know what the first has begun, and presumes too much; it grows cautious in between.
    for number in 0..4 {
        let name = format!("alice-{number}");
        let creates = vec![user(&name, 7, Vec::new())];
        let update = |key: Option<String>| Update { creates: creates.clone(), key, ..Update::default() };
        let begun = runtime.block_on(first.begin(update(Some(name.clone())))).unwrap();
        let busy = runtime.block_on(second.begin(update(None))).unwrap_err();
        assert_eq!(reason(&busy), "CLAIM_BUSY");
        assert_eq!(runtime.block_on(second.begin(update(Some(name.clone())))).unwrap(), begun);
        runtime.block_on(second.settle(&begun.lease, Outcome::RolledBack)).unwrap();
        let fresh = Update { creates: vec![user(format!("bob-{number}"), 7, Vec::new())], ..Update::default() };
        assert!(runtime.block_on(second.begin(fresh)).is_ok());
    }
    let (_, metrics) = runtime.block_on(get(second_server.address(), "/metrics")).unwrap();
    let mistaken = metrics.lines().find_map(|line| line.strip_prefix("leasehold_retries_total{cause=\"mistaken\"} "));
    assert_ne!(mistaken, Some("0"), "nothing was presumed wrongly");
    let log = cluster.log().unwrap();
    assert!(!log.contains("alice") && !log.contains("DETAIL"), "{log}");
    // Who comes second is nobody's trouble: an operator has nothing to look into.
    assert!(!log.contains("ERROR") && !log.contains("WARNING"), "{log}");

    // Connections that break say why.
    let server = server();
    let mut client = client(&server);
    assert!(runtime.block_on(client.get("alice-0")).is_err());
    cluster.crash().unwrap();
    crate::await_condition("the cause is named", || {
        let stderr = server.stderr();
        stderr.contains("a connection to the database broke") && !stderr.contains("db error")
    });
}

#[test]
fn a_database_that_logs_the_values_of_statements_is_warned_of() {
    for (setting, is_told) in [("log_parameter_max_length=0", false), ("log_parameter_max_length=-1", true)] {
        let cluster = Cluster::start(&["fsync=off", "log_min_duration_statement=0", setting]).unwrap();
        let url = cluster.url(&cluster.database().unwrap());
        let server = Server::builder().config(cells(1)).arg("--store").arg(url).start().unwrap();
        assert_eq!(server.stderr().contains("log_parameter_max_length"), is_told, "{}", server.stderr());
    }
}

//! Tests of PostgreSQL's own log: it contains no claimed names, and no errors for ordinary
//! conflicts.

use leasehold_core::lease::Outcome;
use leasehold_tests::client::{Update, reason, user};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use tokio::runtime::Runtime;

use crate::{NO_SYNC, await_condition, cells, client_of, create, metric, serve};

#[test]
fn conflicts_leave_no_names_and_no_errors_in_the_database_log() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let (first_server, second_server) = (serve(&url, ""), serve(&url, ""));
    let runtime = Runtime::new().unwrap();
    let (mut first, mut second) = (client_of(&runtime, &first_server), client_of(&runtime, &second_server));
    // The second server has not seen the leases of the first, so it assumes that their rows are
    // absent. The server stops assuming for some groups after each failure, hence four rounds.
    for number in 0..4 {
        let name = format!("alice-{number}");
        let creates = vec![user(&name, 7, Vec::new())];
        let update = |key: Option<String>| Update { creates: creates.clone(), key, ..Update::default() };
        let begun = runtime.block_on(first.begin(update(Some(name.clone())))).unwrap();
        let busy = runtime.block_on(second.begin(update(None))).unwrap_err();
        assert_eq!(reason(&busy), "CLAIM_BUSY");
        assert_eq!(runtime.block_on(second.begin(update(Some(name.clone())))).unwrap(), begun);
        runtime.block_on(second.settle(&begun.lease, Outcome::RolledBack)).unwrap();
        assert!(runtime.block_on(second.begin(create(format!("bob-{number}")))).is_ok());
    }
    let misspeculated = metric(&runtime, &second_server, "leasehold_retries_total{cause=\"misspeculated\"}");
    assert_ne!(misspeculated.as_deref(), Some("0"), "no assumption was wrong");
    let log = cluster.log().unwrap();
    assert!(!log.contains("alice") && !log.contains("DETAIL"), "{log}");
    // Two servers that claim the same name are no fault. An error in the log would mislead
    // operators.
    assert!(!log.contains("ERROR") && !log.contains("WARNING"), "{log}");

    // The log of the Leasehold server must name the cause of a broken connection.
    let server = serve(&url, "");
    let mut client = client_of(&runtime, &server);
    assert!(runtime.block_on(client.get("alice-0")).is_err());
    cluster.crash().unwrap();
    await_condition("the log names the cause", || {
        let stderr = server.stderr();
        stderr.contains("a connection to the database broke") && !stderr.contains("db error")
    });
}

#[test]
fn a_database_that_logs_the_values_of_statements_causes_a_warning() {
    for (setting, is_warned) in [("log_parameter_max_length=0", false), ("log_parameter_max_length=-1", true)] {
        let cluster = Cluster::start(&["fsync=off", "log_min_duration_statement=0", setting]).unwrap();
        let url = cluster.url(&cluster.database().unwrap());
        let mut server = Server::builder().config(cells(1)).arg("--store").arg(url).start().unwrap();
        assert!(server.terminate().unwrap().success());
        assert_eq!(server.stderr().contains("log_parameter_max_length"), is_warned, "{}", server.stderr());
    }
}

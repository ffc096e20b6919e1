//! Whatever the operator's default isolation is, what was given up does nothing when it arrives late.

use leasehold_core::lease::Outcome;
use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use tokio::runtime::Runtime;

use crate::{NO_SYNC, await_condition, cells, connect, final_state, writer};

#[test]
fn a_late_group_that_waits_for_its_tombstone_is_turned_away() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let name = cluster.database().unwrap();
    let url = cluster.url(&name);
    drop(writer(&url));
    let runtime = Runtime::new().unwrap();
    for (number, isolation) in ["read committed", "repeatable read", "serializable"].into_iter().enumerate() {
        cluster
            .execute(&name, &format!("ALTER ROLE leasehold SET default_transaction_isolation = '{isolation}'"))
            .unwrap();
        let (retry, late) = (connect(&runtime, &url), connect(&runtime, &url));
        runtime.block_on(retry.batch_execute(&format!("BEGIN; SELECT abandon_group({number})"))).unwrap();
        let group = format!("SELECT * FROM try_write_rows({number}{})", ", '{}'".repeat(9));
        let arriving = runtime.spawn(async move { late.simple_query(&group).await });
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        await_condition("it has arrived", || {
            arriving.is_finished() || cluster.execute(&name, waiting).unwrap() == ["1"]
        });
        runtime.block_on(retry.batch_execute("COMMIT")).unwrap();
        let refused = runtime.block_on(arriving).unwrap().expect_err(isolation);
        // At READ COMMITTED it may have lost its patience first.
        let code = refused.code().unwrap().code().to_owned();
        assert!(code == "40001" || number == 0 && code == "55P03", "{isolation}: {refused:?}");
    }
}

#[test]
fn a_server_goes_on_under_other_defaults_and_says_so() {
    let cluster = Cluster::start(&["fsync=off", "default_transaction_isolation=serializable"]).unwrap();
    let database = cluster.database().unwrap();
    let mut server = Server::builder().config(cells(1)).arg("--store").arg(cluster.url(&database)).start().unwrap();
    let runtime = Runtime::new().unwrap();
    let mut client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    for number in 0..20 {
        let creates = vec![user(format!("serial-{number}"), 7, Vec::new())];
        let lease = runtime.block_on(client.begin(Update { creates, ..Update::default() })).unwrap().lease;
        runtime.block_on(client.settle(&lease, Outcome::Committed)).unwrap();
    }
    assert!(server.terminate().unwrap().success());
    let warned = server.stderr().contains("`default_transaction_isolation` of the database is `serializable`");
    assert!(warned, "{}", server.stderr());
    assert!(server.stderr().contains("`fsync` of the database is `off`: a power cut"), "{}", server.stderr());
    assert_eq!(final_state(&cluster, &database).claims.len(), 20);
}

//! Tests of the database's default isolation level: under every level, an abandoned group that
//! arrives late has no effect.

use leasehold_core::lease::Outcome;
use leasehold_tests::postgres::Cluster;
use tokio::runtime::Runtime;

use crate::{NO_SYNC, await_condition, client_of, create, final_state, open_session, open_store, serve};

#[test]
fn a_late_group_is_refused_at_every_isolation_level() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let url = cluster.url(&database);
    drop(open_store(&url));
    let runtime = Runtime::new().unwrap();
    for (number, isolation) in ["read committed", "repeatable read", "serializable"].into_iter().enumerate() {
        cluster
            .execute(&database, &format!("ALTER ROLE leasehold SET default_transaction_isolation = '{isolation}'"))
            .unwrap();
        let (retry, late) = (open_session(&runtime, &url), open_session(&runtime, &url));
        // The session `retry` abandons the group of this number. The session `late` sends the group
        // and must wait until `retry` commits.
        runtime.block_on(retry.batch_execute(&format!("BEGIN; SELECT abandon_group({number})"))).unwrap();
        let group = format!("SELECT * FROM try_write_group({number}{})", ", '{}'".repeat(9));
        let arriving = runtime.spawn(async move { late.simple_query(&group).await });
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        await_condition("the late group has arrived", || {
            arriving.is_finished() || cluster.execute(&database, waiting).unwrap() == ["1"]
        });
        runtime.block_on(retry.batch_execute("COMMIT")).unwrap();
        let refused = runtime.block_on(arriving).unwrap().expect_err(isolation);
        // SQLSTATE 40001 is serialization_failure. At READ COMMITTED, 55P03 (lock_not_available) is
        // possible if the group's lock timeout ends first.
        let code = refused.code().unwrap().code().to_owned();
        assert!(code == "40001" || number == 0 && code == "55P03", "{isolation}: {refused:?}");
    }
}

#[test]
fn a_server_works_under_another_default_isolation_and_logs_a_warning() {
    let cluster = Cluster::start(&["fsync=off", "default_transaction_isolation=serializable"]).unwrap();
    let database = cluster.database().unwrap();
    let mut server = serve(&cluster.url(&database), "");
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &server);
    for number in 0..20 {
        let lease = runtime.block_on(client.begin(create(format!("serial-{number}")))).unwrap().lease;
        runtime.block_on(client.settle(&lease, Outcome::Committed)).unwrap();
    }
    assert!(server.terminate().unwrap().success());
    let warned = server.stderr().contains("`default_transaction_isolation` of the database is `serializable`");
    assert!(warned, "{}", server.stderr());
    assert!(server.has_logged("`fsync` of the database is `off`: a power cut"), "{}", server.stderr());
    assert_eq!(final_state(&cluster, &database).claims.len(), 20);
}

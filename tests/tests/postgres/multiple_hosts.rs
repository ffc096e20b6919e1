//! Tests of a database URL with several hosts: reads and writes go only to the host that accepts
//! writes.

use leasehold_tests::postgres::Cluster;
use leasehold_tests::wire::{Refusal, leasehold};
use tokio::runtime::Runtime;

use crate::{NO_SYNC, STORE_UNAVAILABLE, StoreStatus, await_report, client_of, create, serve};

/// The read-only cluster `lagging` stands for a standby that has not yet received the primary's
/// rows.
#[test]
fn b30_reads_never_go_to_a_host_that_lags_behind() {
    let mut primary = Cluster::start(NO_SYNC).unwrap();
    let lagging = Cluster::start(NO_SYNC).unwrap();
    let database = primary.database().unwrap();
    assert_eq!(lagging.database().unwrap(), database);
    let runtime = Runtime::new().unwrap();
    assert!(runtime.block_on(leasehold(["init", "--store", &lagging.url(&database)])).unwrap().status.success());
    lagging.execute("postgres", "ALTER SYSTEM SET default_transaction_read_only = on").unwrap();
    lagging.execute("postgres", "SELECT pg_reload_conf()").unwrap();

    let (first, second) = (primary.port(), lagging.port());
    let url = format!("postgres://leasehold@127.0.0.1:{first},127.0.0.1:{second}/{database}");
    let server = serve(&url, "patience_seconds = 1");
    let mut client = client_of(&runtime, &server);
    runtime.block_on(client.begin(create("before"))).unwrap();

    primary.crash().unwrap();
    let refused = runtime.block_on(client.get("before")).unwrap_err();
    assert_eq!(Refusal::of(&refused).code_and_reason(), STORE_UNAVAILABLE, "{refused:?}");
    let refused = runtime.block_on(client.begin(create("during"))).unwrap_err();
    assert_eq!(Refusal::of(&refused).code_and_reason(), STORE_UNAVAILABLE, "{refused:?}");
    await_report(&runtime, &server, StoreStatus::Failed);

    primary.restart().unwrap();
    await_report(&runtime, &server, StoreStatus::Working);
    runtime.block_on(client.begin(create("after"))).unwrap();
    for name in ["before", "after"] {
        runtime.block_on(client.get(name)).unwrap();
    }
}

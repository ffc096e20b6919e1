//! Several hosts in one URL: only one that can be written is asked, whatever there is to ask.

use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{Refusal, leasehold};
use tokio::runtime::Runtime;
use tonic::Code;

use crate::{NO_SYNC, await_condition, cells, metric};

/// A primary that is away for a moment, and a host beside it that shows what was, as a standby does.
#[test]
fn b30_reads_do_not_stay_with_a_host_that_shows_what_was() {
    let mut primary = Cluster::start(NO_SYNC).unwrap();
    let behind = Cluster::start(NO_SYNC).unwrap();
    let database = primary.database().unwrap();
    assert_eq!(behind.database().unwrap(), database);
    let runtime = Runtime::new().unwrap();
    assert!(runtime.block_on(leasehold(["migrate", "--store", &behind.url(&database)])).unwrap().status.success());
    behind.execute("postgres", "ALTER SYSTEM SET default_transaction_read_only = on").unwrap();
    behind.execute("postgres", "SELECT pg_reload_conf()").unwrap();

    let (first, second) = (primary.port(), behind.port());
    let url = format!("postgres://leasehold@127.0.0.1:{first},127.0.0.1:{second}/{database}");
    let config = format!("[postgres]\nurl = \"{url}\"\npatience_seconds = 1\n{}", cells(1));
    let server = Server::builder().config(config).start().unwrap();
    let mut client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let create = |name| Update { creates: vec![user(name, 7, Vec::new())], ..Update::default() };
    runtime.block_on(client.begin(create("before"))).unwrap();

    primary.crash().unwrap();
    let refused = runtime.block_on(client.get("before")).unwrap_err();
    assert_eq!(Refusal::of(&refused).code_and_reason(), (Code::Unavailable, "STORE_UNAVAILABLE"), "{refused:?}");
    let refused = runtime.block_on(client.begin(create("during"))).unwrap_err();
    assert_eq!(Refusal::of(&refused).code_and_reason(), (Code::Unavailable, "STORE_UNAVAILABLE"), "{refused:?}");
    await_condition("it is told of", || metric(&runtime, &server, "leasehold_store_failed").as_deref() == Some("1"));

    primary.start_again().unwrap();
    await_condition("the return is told of", || {
        metric(&runtime, &server, "leasehold_store_failed").as_deref() == Some("0")
    });
    runtime.block_on(client.begin(create("after"))).unwrap();
    for name in ["before", "after"] {
        runtime.block_on(client.get(name)).unwrap();
    }
}

//! Servers whose clocks differ give a lease the same age (R03).

use leasehold_proto::gitlab::cells::topology_service::claims::v1::ListLeasesRequest;
use leasehold_tests::false_clock::FalseClock;
use leasehold_tests::lists::ages;
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{NO_SYNC, await_condition, cells, client_of, create, serve};

/// The seconds by which a server's clock is wrong. A lease is stale after an hour, so with an error
/// of two hours every lease would be stale.
const AHEAD_SECONDS: i64 = 7_200;
const MAX_AGE_SECONDS: f64 = 60.0;

/// Starts a server with this clock.
fn serve_by(clock: &FalseClock, url: &str) -> Server {
    let config = format!("[postgres]\nurl = \"{url}\"\n{}", cells(3));
    clock.given_to(Server::builder().config(config)).start().unwrap()
}

/// Returns the age of cell 1's only lease: the difference between its time and the time that the
/// server reports.
fn age(runtime: &Runtime, server: &Server) -> f64 {
    let listed = runtime.block_on(async {
        let request = ListLeasesRequest { cell_id: 1, ..Default::default() };
        server.claims(None).await.unwrap().list_leases(request).await.unwrap()
    });
    ages(&listed).unwrap()[0]
}

#[test]
fn r03_a_lease_has_the_same_age_on_servers_whose_clocks_differ() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let (runtime, directory) = (Runtime::new().unwrap(), TempDir::new().unwrap());
    let two_hours_ahead = FalseClock::new(directory.path(), AHEAD_SECONDS).unwrap();
    for is_ahead_first in [false, true] {
        let url = cluster.url(&cluster.database().unwrap());
        let (right, ahead) = (serve(&url, ""), serve_by(&two_hours_ahead, &url));
        let first = if is_ahead_first { &ahead } else { &right };
        runtime.block_on(client_of(&runtime, first).begin(create("alice"))).unwrap();
        let told = |server: &Server| server.stderr().matches(" the database's: synchronise both").count();
        await_condition("the difference is told", || told(&ahead) == 1);
        assert!(
            ahead.stderr().contains("this machine's clock is 7200 s ahead of the database's"),
            "{}",
            ahead.stderr()
        );
        assert_eq!(told(&right), 0, "{}", right.stderr());
        for server in [&right, &ahead] {
            let age = age(&runtime, server);
            assert!(age.abs() < MAX_AGE_SECONDS, "{age} s");
        }
    }
}

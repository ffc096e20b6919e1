//! Tests that a jump of the wall clock makes no lease of the embedded store old, and no settled lease
//! forgotten.

use leasehold_proto::gitlab::cells::topology_service::claims::v1::ListLeasesRequest;
use leasehold_tests::false_clock::FalseClock;
use leasehold_tests::lists::ages;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{creates, eventually};
use tempfile::TempDir;

use super::{Claims, begin, commit, refused};

/// With this setting, the server remembers settled leases for 72 seconds. After a jump, it trusts
/// the clock again once it was steady for a 24th of that time, three seconds.
const CONFIG: &str = "settled_retention_seconds = 72\n";
const HOUR: i64 = 3_600;
const MAX_AGE_SECONDS: f64 = 60.0;

async fn save(claims: &Claims, name: &str) -> String {
    let uuid = begin(claims, creates(1, &[name])).await.unwrap();
    commit(claims, &uuid).await.unwrap();
    uuid
}

/// Sets the clock, and waits until the server has seen the jump.
async fn jump(server: &Server, clock: &FalseClock, ahead: i64) {
    let jumps = || server.stderr().matches("the clock jumped by ").count();
    let before = jumps();
    clock.set(ahead).unwrap();
    eventually("the jump is seen", async || (jumps() > before).then_some(())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn b22_a_clock_that_is_ahead_for_a_while_forgets_no_lease() {
    let directory = TempDir::new().unwrap();
    let clock = FalseClock::new(directory.path(), -HOUR).unwrap();
    let mut server = clock.given_to(Server::builder().config(CONFIG)).start().unwrap();
    let old = save(&server.claims(None).await.unwrap(), "old").await;
    clock.set(0).unwrap();
    server.restart().unwrap();
    let claims = server.claims(None).await.unwrap();
    // By the time of the new start, the lease was settled an hour ago. The server forgets the lease
    // once it trusts the clock.
    let forgotten = async || commit(&claims, &old).await.err();
    let refusal = refused(Err::<(), _>(eventually("the old lease is forgotten", forgotten).await.unwrap()));
    assert_eq!(refusal.reason, "LEASE_NOT_FOUND");

    let new = save(&claims, "new").await;
    jump(&server, &clock, 25 * HOUR).await;
    commit(&claims, &new).await.unwrap();
    jump(&server, &clock, 0).await;
    commit(&claims, &new).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r03_a_jump_of_the_clock_makes_no_lease_old() {
    let directory = TempDir::new().unwrap();
    let clock = FalseClock::new(directory.path(), 0).unwrap();
    let server = clock.given_to(Server::builder().config(CONFIG)).start().unwrap();
    let claims = server.claims(None).await.unwrap();
    for (name, ahead) in [("alice", 0), ("bob", 25 * HOUR), ("carol", -25 * HOUR), ("dave", 0)] {
        if name != "alice" {
            jump(&server, &clock, ahead).await;
        }
        begin(&claims, creates(1, &[name])).await.unwrap();
        let listed = claims.clone().list_leases(ListLeasesRequest { cell_id: 1, ..Default::default() }).await.unwrap();
        let ages = ages(&listed).unwrap();
        assert!(ages.iter().all(|age| (0.0..MAX_AGE_SECONDS).contains(age)), "with {name}: {ages:?}");
    }
}

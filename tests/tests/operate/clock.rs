//! A test that a jump of the wall clock does not make the server forget a settled lease.

use leasehold_tests::false_clock::FalseClock;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{creates, eventually};
use tempfile::TempDir;

use super::{Claims, begin, commit, refused};

/// With this setting, the server remembers settled leases for 72 seconds. After a jump, it trusts
/// the clock again once it was steady for a 24th of that time, three seconds.
const CONFIG: &str = "settled_retention_seconds = 72\n";
const HOUR: i64 = 3_600;

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
    let server = clock.given_to(Server::builder().config(CONFIG)).start().unwrap();
    let claims = server.claims(None).await.unwrap();
    let old = save(&claims, "old").await;
    jump(&server, &clock, 0).await;
    // By the new time, the lease was settled an hour ago. The server forgets the lease once it
    // trusts the clock again.
    let forgotten = async || commit(&claims, &old).await.err();
    let refusal = refused(Err::<(), _>(eventually("the old lease is forgotten", forgotten).await.unwrap()));
    assert_eq!(refusal.reason, "LEASE_NOT_FOUND");

    let new = save(&claims, "new").await;
    jump(&server, &clock, 25 * HOUR).await;
    commit(&claims, &new).await.unwrap();
    jump(&server, &clock, 0).await;
    commit(&claims, &new).await.unwrap();
}

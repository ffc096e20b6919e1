//! Releases whose first answer is lost, so that the client repeats them.

use leasehold_client::{Client, LockSession, WorkOutcome};
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_tests::server::Server;
use leasehold_tests::wire::eventually;

use super::relay::Relay;
use super::{LONG, NOW, PATIENT, path, session, stub, take, wait_for_waiters};

async fn session_through(relay: &Relay) -> LockSession {
    let client = Client::builder(format!("http://{}", relay.address())).build().unwrap();
    client.lock_session(LONG).await.unwrap()
}

/// K19: a lock remembers only its last ended grant, and the repeated release comes after a later one.
#[tokio::test(flavor = "multi_thread")]
async fn k19_a_repeated_release_succeeds_after_the_next_holder_has_ended() {
    let server = Server::start().unwrap();
    let relay = Relay::start(server.address()).await;
    let (holder, other) = (session_through(&relay).await, session(&server, LONG).await);
    let held = take(&holder, "q", NOW).await.unwrap();
    let next = async {
        let next = take(&other, "q", PATIENT).await.unwrap();
        other.release(&next, WorkOutcome::Succeeded, b"").await.unwrap();
        relay.cut();
    };
    let release = async {
        wait_for_waiters(&server, "q", 1).await;
        relay.keep_answers_back();
        holder.release(&held, WorkOutcome::Succeeded, b"").await
    };
    let ((), released) = tokio::join!(next, release);
    released.unwrap();
}

/// K20: the first attempt of the release was refused, because an operator had taken the lock.
#[tokio::test(flavor = "multi_thread")]
async fn k20_a_repeated_release_of_a_forced_lock_is_refused_after_the_next_holder_has_ended() {
    let server = Server::start().unwrap();
    let relay = Relay::start(server.address()).await;
    let (holder, other) = (session_through(&relay).await, session(&server, LONG).await);
    let held = take(&holder, "q", NOW).await.unwrap();
    // The holder's keepalive does not learn of the force either.
    relay.keep_answers_back();
    let force = wire::ForceLockRequest { lock: Some(path("q")), fence: held.fence(), at_once: true };
    stub(&server).await.force_lock(force).await.unwrap();
    let next = take(&other, "q", NOW).await.unwrap();
    other.release(&next, WorkOutcome::Succeeded, b"").await.unwrap();
    let sent_before = relay.sent();
    let cut = async {
        eventually("the release is sent", async || (relay.sent() > sent_before).then_some(())).await.unwrap();
        relay.cut();
    };
    let ((), released) = tokio::join!(cut, holder.release(&held, WorkOutcome::Succeeded, b""));
    assert_eq!(released.unwrap_err().refusal().unwrap().reason, "FENCE_PASSED");
}

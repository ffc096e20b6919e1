//! Several locks that are granted together (K14).

use std::time::Duration;

use leasehold_client::{HeldLock, LockSession, WantedLock, WorkOutcome};
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::locks::v1::acquire_locks_response::News;
use leasehold_proto::leasehold::locks::v1::lock::State;
use leasehold_tests::server::Server;
use leasehold_tests::wire::Refusal;
use tokio::task::JoinSet;

use super::{LONG, NOW, PATIENT, get, path, session, stub, take, wait_for_waiters};

fn alone(key: &str) -> WantedLock {
    WantedLock::alone("user.update", key)
}

async fn take_all(session: &LockSession, keys: &[&str], wait: Duration) -> Option<Vec<HeldLock>> {
    let wanted: Vec<_> = keys.iter().map(|key| alone(key)).collect();
    session.lock_all(&wanted, wait).await.unwrap()
}

async fn release_all(session: &LockSession, held: &[HeldLock]) {
    for lock in held {
        session.release(lock, WorkOutcome::Succeeded, b"").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k14_several_locks_are_granted_all_or_none() {
    let server = Server::start().unwrap();
    let (holder, other) = (session(&server, LONG).await, session(&server, LONG).await);
    let held = take(&holder, "b", NOW).await.unwrap();
    // Without a wait, or when the wait is over, nothing is held.
    for wait in [NOW, Duration::from_millis(50)] {
        assert_eq!(take_all(&other, &["a", "b", "c"], wait).await, None);
        let states = [get(&server, "a").await, get(&server, "b").await, get(&server, "c").await];
        assert_eq!(
            states.map(|lock| (lock.state(), lock.waiting)),
            [(State::Free, 0), (State::Held, 0), (State::Free, 0)]
        );
    }
    let waiting = tokio::spawn(async move {
        let held = take_all(&other, &["a", "b", "c"], PATIENT).await.unwrap();
        (other, held)
    });
    wait_for_waiters(&server, "b", 1).await;
    // The locks that came first are kept for the caller.
    assert_eq!(take(&holder, "a", NOW).await, None);
    holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    let (other, all) = waiting.await.unwrap();
    let fences = [get(&server, "a").await.fence, get(&server, "b").await.fence, get(&server, "c").await.fence];
    assert_eq!(all.iter().map(HeldLock::fence).collect::<Vec<_>>(), fences);
    release_all(&other, &all).await;
    // Each lock is shared in its own way.
    let wanted = [alone("a"), WantedLock::shared("user.update", "s")];
    let all = other.lock_all(&wanted, NOW).await.unwrap().unwrap();
    assert_eq!(all.iter().map(HeldLock::slot).collect::<Vec<_>>(), [0, 1]);
    release_all(&other, &all).await;
}

/// Callers that name the same locks in opposite orders would wait for each other for ever if they took one
/// lock after the other.
#[tokio::test(flavor = "multi_thread")]
async fn k14_callers_with_opposite_orders_are_all_served() {
    let server = Server::start().unwrap();
    let mut callers = JoinSet::new();
    for keys in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["a", "c", "b"]] {
        let session = session(&server, LONG).await;
        callers.spawn(async move {
            for _ in 0..10 {
                let held = take_all(&session, &keys, PATIENT).await.unwrap();
                release_all(&session, &held).await;
            }
        });
    }
    callers.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k09_a_caller_that_goes_away_leaves_every_lock() {
    let server = Server::start().unwrap();
    let (holder, gone) = (session(&server, LONG).await, session(&server, LONG).await);
    take(&holder, "b", NOW).await.unwrap();
    let wanted = [alone("a"), alone("b")];
    tokio::select! {
        granted = gone.lock_all(&wanted, PATIENT) => panic!("{granted:?}"),
        () = wait_for_waiters(&server, "b", 1) => {}
    }
    // The future was dropped, and the session lives on.
    wait_for_waiters(&server, "b", 0).await;
    assert!(take(&holder, "a", PATIENT).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn k20_a_force_of_a_kept_lock_ends_the_wait_for_all() {
    let server = Server::start().unwrap();
    let (holder, other) = (session(&server, LONG).await, session(&server, LONG).await);
    take(&holder, "b", NOW).await.unwrap();
    let waiting = tokio::spawn(async move { take_all(&other, &["a", "b"], PATIENT).await });
    wait_for_waiters(&server, "b", 1).await;
    let force = wire::ForceLockRequest { lock: Some(path("a")), fence: get(&server, "a").await.fence, at_once: true };
    stub(&server).await.force_lock(force).await.unwrap();
    assert_eq!(waiting.await.unwrap(), None);
    assert_eq!((get(&server, "a").await.state(), get(&server, "b").await.waiting), (State::Free, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn k07_k22_the_wait_for_several_locks_outlives_a_restart_of_the_server() {
    let mut server = Server::restartable().unwrap();
    let (holder, other) = (session(&server, LONG).await, session(&server, LONG).await);
    let held = take(&holder, "b", NOW).await.unwrap();
    let waiting = tokio::spawn(async move { take_all(&other, &["a", "b"], PATIENT).await });
    wait_for_waiters(&server, "b", 1).await;
    let kept = get(&server, "a").await.fence;
    server.kill_9().unwrap();
    server.restart().unwrap();
    holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    let all = waiting.await.unwrap().unwrap();
    assert_eq!(all[0].fence(), kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn k05_k21_a_repeated_call_gets_the_same_grants_and_wrong_ones_are_refused() {
    let server = Server::start().unwrap();
    let holder = session(&server, LONG).await;
    let ask = |id: u8, key: &str| wire::LockAsk { ask_id: vec![id; 16], lock: Some(path(key)), ..Default::default() };
    let call = |asks: Vec<wire::LockAsk>, wait_micros| {
        let session_id = holder.id().as_bytes().to_vec();
        let request = wire::AcquireLocksRequest { session_id, asks, wait_micros, ..Default::default() };
        let stub = stub(&server);
        async move { stub.await.acquire_locks(request).await }
    };
    let pair = || vec![ask(1, "a"), ask(2, "b")];
    let mut grants = Vec::new();
    for _ in 0..2 {
        let mut stream = call(pair(), 0).await.unwrap().into_inner();
        let Some(News::Granted(granted)) = stream.message().await.unwrap().unwrap().news else { panic!("no grants") };
        assert_eq!(stream.message().await.unwrap(), None);
        grants.push(granted);
    }
    assert!(grants[0] == grants[1] && grants[0].locks.len() == 2, "{grants:?}");
    let many = (0..17).map(|id| ask(id, &format!("{id}"))).collect();
    let slot = wire::LockAsk { lock: Some(wire::LockPath { slot: 1, ..path("a") }), ..ask(3, "a") };
    let year = 365 * 86_400_000_000;
    for (asks, wait, reason, text) in [
        (Vec::new(), 0, "INVALID_UPDATE", "no lock is named"),
        (many, 0, "LIMIT_EXCEEDED", "17"),
        (vec![ask(3, "c"), ask(4, "c")], 0, "INVALID_UPDATE", "a lock is named twice"),
        (vec![ask(3, "c"), ask(3, "d")], 0, "INVALID_UPDATE", "two asks have the same id"),
        (vec![slot], 0, "INVALID_UPDATE", "`lock.slot` is not 0"),
        (vec![ask(3, "c")], year, "LIMIT_EXCEEDED", "wait_micros"),
        (vec![ask(3, "c"), ask(4, "")], 0, "INVALID_UPDATE", "`key` is empty"),
        // One of the asks is another call's, and the other one new.
        (vec![ask(1, "a"), ask(4, "c")], 0, "ASK_REUSED", ""),
        (vec![ask(3, "c"), ask(4, "a")], 0, "LOCK_HELD", ""),
    ] {
        let refusal = Refusal::of(&call(asks, wait).await.unwrap_err());
        assert!(refusal.reason == reason && refusal.message.contains(text), "{refusal:?}");
    }
    assert_eq!(get(&server, "c").await.state(), State::Free);
}

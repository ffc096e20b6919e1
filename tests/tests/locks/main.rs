//! Tests of sessions and locks over the network: real servers, which are killed, suspended and
//! stopped, and several clients.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod circles;
mod commands;
mod guard;
mod guard_slots;
mod input;
mod reap;
mod relay;
mod release;
mod rights;
mod shared;
mod time;
mod together;
mod use_cases;

use std::time::Duration;

use leasehold_client::{Client, HeldLock, LockSession, SessionTerms, Standing, Stub, WorkOutcome};
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::locks::v1::acquire_lock_response::News;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{Refusal, eventually};
use tonic::transport::Channel;

/// Terms that pass in a test which waits for it, and outlast a machine that stalls.
const SHORT: SessionTerms = SessionTerms { duration: Duration::from_secs(2), grace: Duration::from_secs(6) };
/// Terms that never pass in a test.
const LONG: SessionTerms = SessionTerms { duration: Duration::from_secs(3_600), grace: Duration::from_secs(60) };
/// A wait that no test reaches.
const PATIENT: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::ZERO;

fn client(server: &Server) -> Client {
    Client::builder(format!("http://{}", server.address())).build().unwrap()
}

async fn session(server: &Server, terms: SessionTerms) -> LockSession {
    client(server).lock_session(terms).await.unwrap()
}

async fn take(session: &LockSession, key: &str, wait: Duration) -> Option<HeldLock> {
    session.lock("user.update", key, wait).await.unwrap()
}

async fn stub(server: &Server) -> Stub<Channel> {
    Stub::new(server.connect(None).await.unwrap())
}

fn path(key: &str) -> wire::LockPath {
    wire::LockPath { namespace: "user.update".into(), key: key.into(), slot: 0 }
}

async fn get(server: &Server, key: &str) -> wire::Lock {
    let request = wire::GetLockRequest { lock: Some(path(key)) };
    stub(server).await.get_lock(request).await.unwrap().into_inner().lock.unwrap()
}

/// Waits until this many asks wait for a lock.
async fn wait_for_waiters(server: &Server, key: &str, count: u32) {
    let waiting = async || (get(server, key).await.waiting == count).then_some(());
    eventually("the asks wait", waiting).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn k01_k05_a_lock_has_one_holder_and_each_grant_a_larger_fence() {
    let server = Server::start().unwrap();
    let (one, other) = (session(&server, LONG).await, session(&server, LONG).await);
    let first = take(&one, "7", NOW).await.unwrap();
    assert_eq!(take(&other, "7", NOW).await, None);
    assert_eq!(take(&one, "7", NOW).await, None, "another ask of the holder waits like anybody's");
    assert!(take(&other, "8", NOW).await.is_some());
    one.release(&first, WorkOutcome::Succeeded, b"done").await.unwrap();
    one.release(&first, WorkOutcome::Succeeded, b"done").await.unwrap();
    let second = take(&other, "7", NOW).await.unwrap();
    assert!(second.fence() > first.fence());
    let lock = get(&server, "7").await;
    let last = lock.last.clone().unwrap();
    assert_eq!((lock.state(), lock.fence), (wire::lock::State::Held, second.fence()));
    assert_eq!(
        (last.fence, last.end(), &last.value[..]),
        (first.fence(), wire::ended_grant::End::Succeeded, &b"done"[..])
    );
    // Under the passed fence nothing changes (K19).
    let refused = one.release(&first, WorkOutcome::Failed, b"").await.unwrap_err();
    assert_eq!(refused.refusal().unwrap().reason, "FENCE_PASSED");
    assert_eq!(get(&server, "7").await, lock);
}

#[tokio::test(flavor = "multi_thread")]
async fn k08_k09_a_release_hands_the_lock_to_the_first_of_those_that_wait() {
    let server = Server::start().unwrap();
    let holder = session(&server, LONG).await;
    let mut held = take(&holder, "q", NOW).await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..5 {
        let waiting = session(&server, LONG).await;
        waiters.push(tokio::spawn(async move {
            let lock = take(&waiting, "q", PATIENT).await.unwrap();
            (waiting, lock)
        }));
        wait_for_waiters(&server, "q", number + 1).await;
    }
    let mut holder = holder;
    for (number, waiter) in waiters.into_iter().enumerate() {
        holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
        let (next, lock) = waiter.await.unwrap();
        assert!(lock.fence() > held.fence(), "{number}");
        (holder, held) = (next, lock);
    }
    assert_eq!(get(&server, "q").await.fence, held.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn k10_who_leaves_the_queue_costs_those_behind_nothing() {
    let server = Server::start().unwrap();
    let (holder, hasty, patient) =
        (session(&server, LONG).await, session(&server, LONG).await, session(&server, LONG).await);
    let held = take(&holder, "q", NOW).await.unwrap();
    let hasty = tokio::spawn(async move { take(&hasty, "q", Duration::from_secs(10)).await });
    wait_for_waiters(&server, "q", 1).await;
    let patient = tokio::spawn(async move { take(&patient, "q", PATIENT).await });
    wait_for_waiters(&server, "q", 2).await;
    assert_eq!(hasty.await.unwrap(), None);
    assert_eq!(get(&server, "q").await.waiting, 1);
    holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    assert!(patient.await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn k09_a_grant_that_nobody_takes_up_passes_on() {
    let server = Server::start().unwrap();
    let (holder, gone, patient) =
        (session(&server, LONG).await, session(&server, LONG).await, session(&server, LONG).await);
    let held = take(&holder, "q", NOW).await.unwrap();
    let request = wire::AcquireLockRequest {
        session_id: gone.id().as_bytes().to_vec(),
        ask_id: vec![7; 16],
        lock: Some(path("q")),
        wait_micros: 60_000_000,
        ..Default::default()
    };
    let mut stream = stub(&server).await.acquire_lock(request).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().news, Some(News::Waiting(0)));
    drop(stream);
    let patient = tokio::spawn(async move { take(&patient, "q", PATIENT).await });
    wait_for_waiters(&server, "q", 2).await;
    holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    // The session of the first ask is live all the time, and never tells that it wants the lock.
    let lock = patient.await.unwrap().unwrap();
    let last = get(&server, "q").await;
    assert_eq!(last.fence, lock.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn k05_a_repeated_ask_gets_its_place_and_its_grant_again() {
    let server = Server::start().unwrap();
    let (holder, other) = (session(&server, LONG).await, session(&server, LONG).await);
    let held = take(&holder, "q", NOW).await.unwrap();
    let request = wire::AcquireLockRequest {
        session_id: other.id().as_bytes().to_vec(),
        ask_id: vec![9; 16],
        lock: Some(path("q")),
        wait_micros: 60_000_000,
        ..Default::default()
    };
    let mut stub = stub(&server).await;
    let mut first = stub.acquire_lock(request.clone()).await.unwrap().into_inner();
    assert_eq!(first.message().await.unwrap().unwrap().news, Some(News::Waiting(0)));
    let mut second = stub.acquire_lock(request.clone()).await.unwrap().into_inner();
    assert_eq!(second.message().await.unwrap().unwrap().news, Some(News::Waiting(0)));
    drop(first);
    holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    let Some(News::Fence(fence)) = second.message().await.unwrap().unwrap().news else { panic!("no grant") };
    drop(second);
    let mut third = stub.acquire_lock(request).await.unwrap().into_inner();
    assert_eq!(third.message().await.unwrap().unwrap().news, Some(News::Fence(fence)));
    assert_eq!(third.message().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn k11_a_closed_or_evicted_session_is_lost_at_once_and_passes_its_locks_on() {
    let server = Server::start().unwrap();
    let (evicted, other) = (session(&server, SHORT).await, session(&server, LONG).await);
    let held = take(&evicted, "q", NOW).await.unwrap();
    assert_eq!(*evicted.standing().borrow(), Standing::Safe);
    let request =
        leasehold_proto::leasehold::sessions::v1::EvictSessionRequest { session_id: evicted.id().as_bytes().to_vec() };
    stub(&server).await.evict_session(request).await.unwrap();
    evicted.lost().await;
    // The evicted process may still work, so its lock is withheld for its time (K20).
    let lock = get(&server, "q").await;
    assert_eq!((lock.state(), lock.fence), (wire::lock::State::Withheld, held.fence()));
    let next = take(&other, "q", PATIENT).await.unwrap();
    assert!(next.fence() > held.fence());
    other.close().await.unwrap();
    assert_eq!(get(&server, "q").await.state(), wire::lock::State::Free);
}

#[tokio::test(flavor = "multi_thread")]
async fn k20_a_holder_is_told_of_a_forced_lock_and_keeps_its_other_locks() {
    let server = Server::start().unwrap();
    let (holder, other) = (session(&server, SHORT).await, session(&server, LONG).await);
    let taken = take(&holder, "q", NOW).await.unwrap();
    let kept = take(&holder, "kept", NOW).await.unwrap();
    let force = wire::ForceLockRequest { lock: Some(path("q")), fence: taken.fence(), at_once: false };
    stub(&server).await.force_lock(force.clone()).await.unwrap();
    tokio::time::timeout(PATIENT, holder.forced(&taken)).await.unwrap();
    // The deadline of the taken lock moves no more; that of the session does.
    let next = take(&other, "q", PATIENT).await.unwrap();
    assert!(next.fence() > taken.fence());
    assert!(holder.remaining(&taken).is_zero());
    assert!(!holder.remaining(&kept).is_zero());
    holder.release(&kept, WorkOutcome::Succeeded, b"").await.unwrap();

    // A force that is told not to wait passes the lock on at once; the holder is told, too.
    let waiting = session(&server, LONG).await;
    let waiting = tokio::spawn(async move { take(&waiting, "q", PATIENT).await });
    wait_for_waiters(&server, "q", 1).await;
    let force = wire::ForceLockRequest { fence: next.fence(), at_once: true, ..force };
    stub(&server).await.force_lock(force.clone()).await.unwrap();
    assert_eq!(get(&server, "q").await.state(), wire::lock::State::Held);
    tokio::time::timeout(PATIENT, other.forced(&next)).await.unwrap();
    assert!(waiting.await.unwrap().unwrap().fence() > next.fence());
    assert_eq!(Refusal::of(&stub(&server).await.force_lock(force).await.unwrap_err()).reason, "FENCE_PASSED");
}

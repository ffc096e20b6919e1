//! Locks that several holders share, and permits (K13).

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use leasehold_client::{HeldLock, LockSession, WorkOutcome};
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::locks::v1::lock::State;
use leasehold_tests::server::Server;
use leasehold_tests::wire::Refusal;
use tokio::task::JoinSet;

use super::{LONG, NOW, PATIENT, SHORT, get, path, session, stub, take, wait_for_waiters};

const TWO: NonZeroU32 = NonZeroU32::new(2).unwrap();

async fn share(session: &LockSession, key: &str) -> Option<HeldLock> {
    session.lock_shared("user.update", key, NOW).await.unwrap()
}

async fn permit(session: &LockSession, key: &str, wait: std::time::Duration) -> Option<HeldLock> {
    session.lock_permit("user.update", key, TWO, wait).await.unwrap()
}

async fn release(session: &LockSession, held: &HeldLock) {
    session.release(held, WorkOutcome::Succeeded, b"").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn k13_who_wants_the_lock_alone_is_not_starved_by_those_who_share_it() {
    let server = Server::start().unwrap();
    let (readers, writer) = (session(&server, LONG).await, Arc::new(session(&server, LONG).await));
    let (first, second) = (share(&readers, "s").await.unwrap(), share(&readers, "s").await.unwrap());
    assert!(first.fence() < second.fence() && (first.slot(), second.slot()) == (1, 2));
    let lock = get(&server, "s").await;
    assert_eq!((lock.state(), lock.taken_slots, lock.permits), (State::Shared, 2, 0));
    let waiting = tokio::spawn({
        let writer = writer.clone();
        async move { take(&writer, "s", PATIENT).await.unwrap() }
    });
    wait_for_waiters(&server, "s", 1).await;
    // A slot is free, but a later reader waits behind the writer.
    assert_eq!(share(&readers, "s").await, None);
    release(&readers, &first).await;
    assert_eq!(get(&server, "s").await.taken_slots, 1);
    release(&readers, &second).await;
    let alone = waiting.await.unwrap();
    assert_eq!((alone.slot(), get(&server, "s").await.state()), (0, State::Held));
    assert_eq!(share(&readers, "s").await, None);
    release(&writer, &alone).await;
    assert_eq!(share(&readers, "s").await.unwrap().slot(), 1);
}

/// Many processes work under two permits. Each checks that nobody else works under its permit, and that
/// its fence is above that of the permit's holder before.
#[tokio::test(flavor = "multi_thread")]
async fn k13_permits_keep_their_bound_and_each_has_fences_of_its_own() {
    let server = Server::start().unwrap();
    let working: Arc<Mutex<BTreeMap<u32, Option<u64>>>> = Arc::default();
    let fences: Arc<Mutex<BTreeMap<u32, u64>>> = Arc::default();
    let mut workers = JoinSet::new();
    for _ in 0..6 {
        let (session, working, fences) = (session(&server, LONG).await, working.clone(), fences.clone());
        workers.spawn(async move {
            for _ in 0..15 {
                let held = permit(&session, "p", PATIENT).await.unwrap();
                let (slot, fence) = (held.slot(), held.fence());
                assert!((1..=2).contains(&slot), "{slot}");
                let former = working.lock().unwrap().insert(slot, Some(fence)).flatten();
                assert_eq!(former, None, "two hold permit {slot}");
                let before = fences.lock().unwrap().insert(slot, fence);
                assert!(before.is_none_or(|before| before < fence));
                tokio::task::yield_now().await;
                working.lock().unwrap().insert(slot, None);
                release(&session, &held).await;
            }
        });
    }
    workers.join_all().await;
    let lock = get(&server, "p").await;
    assert_eq!((lock.state(), lock.waiting), (State::Free, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn k06_k20_the_death_or_the_force_of_one_holder_leaves_the_other_permits() {
    let server = Server::start().unwrap();
    let (dying, kept) = (session(&server, SHORT).await, session(&server, LONG).await);
    let lost = permit(&dying, "p", NOW).await.unwrap();
    let held = permit(&kept, "p", NOW).await.unwrap();
    assert_eq!(permit(&kept, "p", NOW).await, None);
    drop(dying);
    let next = permit(&kept, "p", PATIENT).await.unwrap();
    assert_eq!((lost.slot(), next.slot()), (1, 1));
    // An operator takes one permit: it is withheld, and the other one is free again after its release.
    let slot = Some(wire::LockPath { slot: held.slot(), ..path("p") });
    let force = wire::ForceLockRequest { lock: slot.clone(), fence: held.fence(), at_once: false };
    stub(&server).await.force_lock(force).await.unwrap();
    kept.forced(&held).await;
    assert_eq!(
        kept.release(&held, WorkOutcome::Succeeded, b"").await.unwrap_err().refusal().unwrap().reason,
        "FENCE_PASSED"
    );
    release(&kept, &next).await;
    let again = permit(&kept, "p", NOW).await.unwrap();
    assert_eq!((again.slot(), permit(&kept, "p", NOW).await), (1, None));
    let withheld =
        stub(&server).await.get_lock(wire::GetLockRequest { lock: slot }).await.unwrap().into_inner().lock.unwrap();
    assert_eq!((withheld.state(), withheld.fence), (State::Withheld, held.fence()));
}

#[tokio::test(flavor = "multi_thread")]
async fn k07_k22_shares_outlive_a_restart_of_the_server() {
    let mut server = Server::restartable().unwrap();
    let holder = session(&server, LONG).await;
    let held = [permit(&holder, "p", NOW).await.unwrap(), permit(&holder, "p", NOW).await.unwrap()];
    server.kill_9().unwrap();
    server.restart().unwrap();
    assert_eq!(permit(&holder, "p", NOW).await, None);
    let lock = get(&server, "p").await;
    assert_eq!((lock.state(), lock.taken_slots, lock.permits), (State::Shared, 2, 2));
    release(&holder, &held[0]).await;
    assert_eq!(permit(&holder, "p", NOW).await.unwrap().slot(), held[0].slot());
}

#[tokio::test(flavor = "multi_thread")]
async fn k21_a_wrong_share_is_refused_with_its_reason() {
    let server = Server::start().unwrap();
    let holder = session(&server, LONG).await;
    let ask = |lock: wire::LockPath, shared, permits| wire::TryAcquireLockRequest {
        session_id: holder.id().as_bytes().to_vec(),
        ask_id: vec![7; 16],
        lock: Some(lock),
        shared,
        permits,
    };
    let slot = wire::LockPath { slot: 1, ..path("k") };
    for (request, reason, text) in [
        (ask(path("k"), true, 2), "INVALID_UPDATE", "both `shared` and `permits` are set"),
        (ask(path("k"), false, 257), "LIMIT_EXCEEDED", "257"),
        (ask(slot, false, 2), "INVALID_UPDATE", "`lock.slot` is not 0"),
    ] {
        let refusal = Refusal::of(&stub(&server).await.try_acquire_lock(request).await.unwrap_err());
        assert!(refusal.reason == reason && refusal.message.contains(text), "{refusal:?}");
    }
    // The same ask in another way is another ask.
    let first = stub(&server).await.try_acquire_lock(ask(path("k"), true, 0)).await.unwrap().into_inner();
    assert_eq!(stub(&server).await.try_acquire_lock(ask(path("k"), true, 0)).await.unwrap().into_inner(), first);
    let other = stub(&server).await.try_acquire_lock(ask(path("k"), false, 2)).await.unwrap_err();
    assert_eq!(Refusal::of(&other).reason, "ASK_REUSED");
    assert_eq!(get(&server, "k").await.taken_slots, 1);
}

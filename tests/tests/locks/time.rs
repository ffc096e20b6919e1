//! Sessions that end by silence, and servers that are killed, suspended or stopped.

use std::time::{Duration, Instant};

use leasehold_client::WorkOutcome;
use leasehold_proto::leasehold::locks::v1::{AcquireLockRequest, acquire_lock_response::News};
use leasehold_proto::leasehold::sessions::v1::{OpenSessionRequest, RenewSessionRequest};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{Refusal, eventually};
use nix::sys::signal::Signal;
use uuid::Uuid;

use super::{LONG, NOW, PATIENT, SHORT, get, path, session, stub, take, wait_for_waiters};

/// Opens a session that nobody renews.
async fn silent_session(server: &Server, duration: Duration, grace: Duration) -> Vec<u8> {
    let id = Uuid::from_u128(u128::from(server.pid()) << 64 | 77).as_bytes().to_vec();
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap();
    let request =
        OpenSessionRequest { session_id: id.clone(), duration_micros: micros(duration), grace_micros: micros(grace) };
    stub(server).await.open_session(request).await.unwrap();
    id
}

async fn hold(server: &Server, session: &[u8], key: &str) -> u64 {
    let request = AcquireLockRequest {
        session_id: session.to_vec(),
        ask_id: vec![1; 16],
        lock: Some(path(key)),
        wait_micros: 1,
        ..Default::default()
    };
    let mut stream = stub(server).await.acquire_lock(request).await.unwrap().into_inner();
    match stream.message().await.unwrap().unwrap().news {
        Some(News::Fence(fence)) => fence,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k06_a_silent_session_passes_its_lock_on_after_duration_and_grace_and_not_before() {
    let server = Server::start().unwrap();
    let other = session(&server, LONG).await;
    let opened = Instant::now();
    let silent = silent_session(&server, SHORT.duration, SHORT.grace).await;
    let fence = hold(&server, &silent, "q").await;
    let next = take(&other, "q", PATIENT).await.unwrap();
    assert!(opened.elapsed() >= SHORT.duration + SHORT.grace, "{:?}", opened.elapsed());
    assert!(next.fence() > fence);
    // A lost lock can't be revived (K02).
    let renewal = stub(&server).await.renew_session(RenewSessionRequest { session_id: silent }).await.unwrap_err();
    assert_eq!(Refusal::of(&renewal).code_and_reason().1, "SESSION_ENDED");
}

#[tokio::test(flavor = "multi_thread")]
async fn k06_a_server_that_is_suspended_expires_nobody() {
    let server = Server::start().unwrap();
    let kept = session(&server, SHORT).await;
    let long = silent_session(&server, Duration::from_secs(8), Duration::from_secs(2)).await;
    let held = hold(&server, &long, "q").await;
    // Longer than the terms: the server counts the ticks while it is awake.
    server.suspend().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let waited = tokio::task::spawn_blocking(move || receiver.recv_timeout(Duration::from_secs(12)));
    assert!(waited.await.unwrap().is_err());
    drop(sender);
    server.signal(Signal::SIGCONT).unwrap();
    stub(&server).await.renew_session(RenewSessionRequest { session_id: long }).await.unwrap();
    assert_eq!(get(&server, "q").await.fence, held);
    // The client of the short session gave up its work long ago, as it must.
    kept.lost().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k07_after_a_crash_every_hold_stays_and_every_session_has_its_whole_duration_again() {
    let mut server = Server::restartable().unwrap();
    let silent = silent_session(&server, SHORT.duration, SHORT.grace).await;
    let fence = hold(&server, &silent, "q").await;
    let kept = session(&server, LONG).await;
    let held = take(&kept, "kept", NOW).await.unwrap();
    server.kill_9().unwrap();
    let killed = Instant::now();
    server.restart().unwrap();
    assert_eq!((get(&server, "q").await.fence, get(&server, "kept").await.fence), (fence, held.fence()));
    let other = session(&server, LONG).await;
    assert_eq!(take(&other, "kept", NOW).await, None);
    let next = take(&other, "q", PATIENT).await.unwrap();
    assert!(killed.elapsed() >= SHORT.duration + SHORT.grace, "{:?}", killed.elapsed());
    assert!(next.fence() > held.fence());
    kept.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn k22_a_stop_moves_those_that_wait_and_loses_no_hold() {
    let mut server = Server::restartable().unwrap();
    let (holder, waiting) = (session(&server, LONG).await, session(&server, LONG).await);
    let held = take(&holder, "q", NOW).await.unwrap();
    let raw = session(&server, LONG).await;
    let request = AcquireLockRequest {
        session_id: raw.id().as_bytes().to_vec(),
        ask_id: vec![3; 16],
        lock: Some(path("q")),
        wait_micros: 60_000_000,
        ..Default::default()
    };
    let mut stream = stub(&server).await.acquire_lock(request).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().news, Some(News::Waiting(0)));
    let waiting = tokio::spawn(async move { take(&waiting, "q", PATIENT).await });
    wait_for_waiters(&server, "q", 2).await;
    assert!(server.terminate().unwrap().success());
    assert!(matches!(stream.message().await.unwrap().unwrap().news, Some(News::Moving(_))));
    server.restart().unwrap();
    assert_eq!(get(&server, "q").await.fence, held.fence());
    holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    // The first ask gets a grant that nobody takes up, so the lock passes on to the second, whose client has
    // connected again by itself.
    let lock = waiting.await.unwrap().unwrap();
    eventually("the lock is held", async || (get(&server, "q").await.fence == lock.fence()).then_some(()))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_sessions_and_free_locks_are_forgotten_after_the_retention() {
    let server = Server::builder().config("settled_retention_seconds = 1\n").start().unwrap();
    let (holder, closed) = (session(&server, LONG).await, session(&server, LONG).await);
    let (held, kept) = (take(&holder, "q", NOW).await.unwrap(), take(&holder, "kept", NOW).await.unwrap());
    let id = closed.id().as_bytes().to_vec();
    closed.close().await.unwrap();
    holder.release(&held, WorkOutcome::Succeeded, b"value").await.unwrap();
    assert!(get(&server, "q").await.last.is_some());
    let mut stub = stub(&server).await;
    eventually("the session and the lock are forgotten", async || {
        let renewal = stub.renew_session(RenewSessionRequest { session_id: id.clone() }).await.unwrap_err();
        let is_forgotten = Refusal::of(&renewal).reason == "SESSION_NOT_FOUND";
        (is_forgotten && get(&server, "q").await.last.is_none()).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(get(&server, "kept").await.fence, kept.fence());
    // Fences go on beyond those of a forgotten lock.
    assert!(take(&holder, "q", NOW).await.unwrap().fence() > kept.fence());
}

/// A process that has waited in silence for longer than its client would repeat a call keeps its place
/// when the server crashes (K06).
#[tokio::test(flavor = "multi_thread")]
async fn k06_a_long_wait_goes_on_after_a_crash_of_the_server() {
    let mut server = Server::restartable().unwrap();
    let (holder, waiter) = (session(&server, LONG).await, session(&server, LONG).await);
    let held = take(&holder, "q", NOW).await.unwrap();
    let waiting = tokio::spawn(async move { take(&waiter, "q", 2 * PATIENT).await });
    wait_for_waiters(&server, "q", 1).await;
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    for _ in 0..=31 {
        seconds.tick().await;
    }
    server.restart().unwrap();
    holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    assert!(waiting.await.unwrap().is_some());
}

//! Asks that wait for each other in a circle (K15).

use std::time::Duration;

use leasehold_client::{HeldLock, LockSession, WantedLock};
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_tests::server::Server;
use leasehold_tests::wire::Refusal;

use super::{LONG, NOW, PATIENT, get, path, session, stub, take, wait_for_waiters};

async fn while_holding(session: &LockSession, held: &HeldLock, key: &str, wait: Duration) -> Result<HeldLock, String> {
    let (held, wanted) = ([held.clone()], [WantedLock::alone("user.update", key)]);
    match session.lock_all_while_holding(&held, &wanted, wait).await {
        Ok(Some(locks)) => Ok(locks[0].clone()),
        Ok(None) => Err("LOCK_HELD".to_owned()),
        Err(error) => Err(error.refusal().unwrap().reason.clone()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k15_who_closes_a_circle_is_told_so_and_the_others_are_served() {
    let server = Server::start().unwrap();
    let sessions = [session(&server, LONG).await, session(&server, LONG).await, session(&server, LONG).await];
    let mut held = Vec::new();
    for (session, key) in sessions.iter().zip(["a", "b", "c"]) {
        held.push(take(session, key, NOW).await.unwrap());
    }
    let [first, second, third] = sessions;
    let (of_first, of_second) = (held[0].clone(), held[1].clone());
    let first =
        tokio::spawn(async move { while_holding(&first, &of_first, "b", PATIENT).await.map(|lock| (first, lock)) });
    wait_for_waiters(&server, "b", 1).await;
    let second = tokio::spawn(async move {
        let lock = while_holding(&second, &of_second, "c", PATIENT).await;
        second.close().await.unwrap();
        lock
    });
    wait_for_waiters(&server, "c", 1).await;
    // A wait of half a minute would end as LOCK_HELD.
    let refused = tokio::time::timeout(Duration::from_secs(10), while_holding(&third, &held[2], "a", PATIENT)).await;
    assert_eq!(refused.unwrap(), Err("LOCK_CIRCLE".to_owned()));
    assert_eq!(get(&server, "a").await.waiting, 0);
    // The caller gives up its own lock, as the message says.
    third.close().await.unwrap();
    assert!(second.await.unwrap().is_ok());
    assert!(first.await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn k15_two_that_close_a_circle_at_once_are_not_both_refused() {
    let server = Server::start().unwrap();
    for _ in 0..5 {
        let (one, other) = (session(&server, LONG).await, session(&server, LONG).await);
        let (a, b) = (take(&one, "a", NOW).await.unwrap(), take(&other, "b", NOW).await.unwrap());
        let both = [(one, a, "b"), (other, b, "a")].map(|(session, held, key)| {
            tokio::spawn(async move {
                let found = while_holding(&session, &held, key, PATIENT).await.map(drop);
                session.close().await.unwrap();
                found
            })
        });
        let [one, other] = both;
        let mut found = [one.await.unwrap(), other.await.unwrap()];
        found.sort_unstable();
        assert_eq!(found, [Ok(()), Err("LOCK_CIRCLE".to_owned())]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k15_an_ask_for_a_lock_that_its_own_caller_holds_is_a_circle() {
    let server = Server::start().unwrap();
    let holder = session(&server, LONG).await;
    let held = take(&holder, "a", NOW).await.unwrap();
    assert_eq!(while_holding(&holder, &held, "a", PATIENT).await, Err("LOCK_CIRCLE".to_owned()));
    // Another task of the same session only waits.
    assert_eq!(take(&holder, "a", Duration::from_millis(600)).await, None);
}

/// The wire alone, as clients in other languages use it.
#[tokio::test(flavor = "multi_thread")]
async fn k15_k21_the_call_for_one_lock_names_held_asks_too() {
    let server = Server::start().unwrap();
    let holder = session(&server, LONG).await;
    let request = |id: u8, held: Vec<Vec<u8>>| wire::AcquireLockRequest {
        session_id: holder.id().as_bytes().to_vec(),
        ask_id: vec![id; 16],
        lock: Some(path("a")),
        wait_micros: 60_000_000,
        held_ask_ids: held,
        ..Default::default()
    };
    stub(&server).await.acquire_lock(request(1, Vec::new())).await.unwrap().into_inner().message().await.unwrap();
    let mut stream = stub(&server).await.acquire_lock(request(2, vec![vec![1; 16]])).await.unwrap().into_inner();
    stream.message().await.unwrap();
    let refused = tokio::time::timeout(PATIENT, stream.message()).await.unwrap().unwrap_err();
    let refusal = Refusal::of(&refused);
    assert_eq!((refused.code(), &*refusal.reason), (tonic::Code::Aborted, "LOCK_CIRCLE"));
    for (held, reason, text) in [
        (vec![vec![1; 15]], "INVALID_UPDATE", "`held_ask_ids` does not have 16 bytes"),
        (vec![vec![1; 16]; 65], "LIMIT_EXCEEDED", "held_asks"),
    ] {
        let refusal = Refusal::of(&stub(&server).await.acquire_lock(request(3, held)).await.unwrap_err());
        assert!(refusal.reason == reason && refusal.message.contains(text), "{refusal:?}");
    }
}

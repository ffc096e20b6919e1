//! Reaped namespaces: after a holder has died, nobody gets its lock before the cleanup has succeeded
//! (K17).

use std::num::NonZeroU32;
use std::process::Stdio;
use std::time::{Duration, Instant};

use leasehold_client::{LockSession, WorkOutcome};
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::locks::v1::lock::State;
use leasehold_proto::leasehold::locks::v1::reap_lock_response::News;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{Refusal, command, eventually, leasehold};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::guard::Database;
use super::{LONG, NOW, PATIENT, SHORT, get, session, stub, take, wait_for_waiters};

/// A server whose locks of `user` have at most two cleanups. It has the same address after a restart.
fn server() -> Server {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = "[[locks.reaped]]\nnamespaces = [\"user\"]\nattempts = 2\n";
    Server::builder().config(config).listen(format!("127.0.0.1:{port}")).start().unwrap()
}

/// Lets a session die while it holds a lock. Returns the fence of its grant.
async fn die_holding(server: &Server, key: &str) -> u64 {
    let holder = session(server, LONG).await;
    let fence = take(&holder, key, PATIENT).await.unwrap().fence();
    holder.close().await.unwrap();
    fence
}

async fn release(cleaner: &LockSession, orphan: &leasehold_client::Orphan, outcome: WorkOutcome) {
    cleaner.release(orphan.lock(), outcome, b"").await.unwrap();
}

async fn run(server: &Server, arguments: &[&str]) -> (Option<i32>, String, String) {
    let url = format!("http://{}", server.address());
    let arguments = [&arguments[..1], &["--server", &url], &arguments[1..]].concat();
    let output = leasehold(arguments).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn k17_a_dead_holders_lock_passes_on_only_after_its_cleanup() {
    let mut server = server();
    let cleaner = session(&server, LONG).await;
    let silent = super::client(&server).lock_session(SHORT).await.unwrap();
    let held = take(&silent, "7", NOW).await.unwrap();
    // The session is not renewed any more.
    drop(silent);
    let waiter = session(&server, LONG).await;
    let waiting = tokio::spawn(async move { take(&waiter, "7", PATIENT).await.map(|lock| (waiter, lock)) });
    wait_for_waiters(&server, "7", 1).await;
    let orphan = cleaner.reap("user").await.unwrap();
    assert_eq!((orphan.lock().namespace(), orphan.lock().key()), ("user.update", "7"));
    assert_eq!((orphan.former_fence(), orphan.attempt(), orphan.most_attempts()), (held.fence(), 1, 2));
    assert!(orphan.lock().fence() > held.fence());
    let row = get(&server, "7").await;
    assert_eq!((row.state(), row.waiting, row.fence), (State::Held, 1, orphan.lock().fence()));
    assert_eq!(row.obituary.unwrap().fence, held.fence());
    // The cleanup is the cleaner's, whatever happens to the server.
    server.restart().unwrap();
    assert_eq!((get(&server, "7").await.waiting, waiting.is_finished()), (1, false));
    release(&cleaner, &orphan, WorkOutcome::Succeeded).await;
    let (waiter, next) = waiting.await.unwrap().unwrap();
    assert!(next.fence() > orphan.lock().fence());
    // A release needs no cleanup, even of work that has failed.
    waiter.release(&next, WorkOutcome::Failed, b"").await.unwrap();
    let row = get(&server, "7").await;
    assert_eq!((row.state(), row.obituary), (State::Free, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn k17_a_cleanup_that_fails_too_often_is_set_aside_for_an_operator() {
    let server = server();
    let cleaner = session(&server, LONG).await;
    let fence = die_holding(&server, "7").await;
    let first = cleaner.reap("user.update").await.unwrap();
    let failed = Instant::now();
    release(&cleaner, &first, WorkOutcome::Failed).await;
    let second = cleaner.reap("user.update").await.unwrap();
    assert!(failed.elapsed() > Duration::from_millis(900), "a failed cleanup is offered after a pause");
    assert_eq!((second.former_fence(), second.attempt()), (fence, 2));
    // A cleaner that dies has failed, too.
    cleaner.close().await.unwrap();
    assert_eq!(get(&server, "7").await.state(), State::SetAside);
    let (code, shown, _) = run(&server, &["locks"]).await;
    assert!(code == Some(0) && shown.contains("set-aside") && shown.contains(&format!(" {fence} ")), "{shown}");

    let cleaner = session(&server, LONG).await;
    let fence = fence.to_string();
    let (code, _, stderr) = run(&server, &["resolve-orphan", "user.update/7", "--fence", "1000000", "--retry"]).await;
    assert!(code == Some(3) && stderr.contains("FENCE_PASSED"), "{code:?} {stderr}");
    assert_eq!(run(&server, &["resolve-orphan", "user.update/7", "--fence", &fence, "--retry"]).await.0, Some(0));
    let third = cleaner.reap("user").await.unwrap();
    assert_eq!((third.former_fence().to_string(), third.attempt()), (fence.clone(), 1));
    release(&cleaner, &third, WorkOutcome::Failed).await;
    assert_eq!(run(&server, &["resolve-orphan", "user.update/7", "--fence", &fence, "--cleaned"]).await.0, Some(0));
    assert_eq!(get(&server, "7").await.state(), State::Free);
    // Other namespaces are not reaped.
    let holder = session(&server, LONG).await;
    assert!(holder.lock("cron", "7", NOW).await.unwrap().is_some());
    holder.close().await.unwrap();
    assert!(cleaner.lock("cron", "7", NOW).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn k17_a_repeated_ask_gets_the_same_lock_and_a_waiting_one_is_woken() {
    let server = server();
    let gone = session(&server, LONG).await;
    let request = |ask| wire::ReapLockRequest {
        session_id: gone.id().as_bytes().to_vec(),
        ask_id: vec![ask; 16],
        namespace: "user".into(),
    };
    let reap = async |ask| stub(&server).await.reap_lock(request(ask)).await.unwrap().into_inner();
    let orphan = |message: wire::ReapLockResponse| match message.news {
        Some(News::Orphan(orphan)) => orphan,
        other => panic!("{other:?}"),
    };
    die_holding(&server, "told").await;
    let told = orphan(reap(1).await.message().await.unwrap().unwrap());
    let again = orphan(reap(1).await.message().await.unwrap().unwrap());
    assert_eq!(told, again, "a repeated ask gets the same lock");
    assert_eq!(told.obituary.unwrap().attempts, 1);
    // A stream that is dropped while it waits takes nothing, and one that waits is woken.
    drop(reap(2).await);
    let mut waiting = reap(3).await;
    die_holding(&server, "woken").await;
    let woken = orphan(waiting.message().await.unwrap().unwrap());
    assert_eq!(woken.lock.unwrap().key, "woken");
}

#[tokio::test(flavor = "multi_thread")]
async fn k16_a_cleaner_names_a_namespace_and_has_a_live_session() {
    let server = server();
    let cleaner = session(&server, LONG).await;
    let reason = async |session: &[u8], namespace: &str| {
        let request =
            wire::ReapLockRequest { session_id: session.to_vec(), ask_id: vec![1; 16], namespace: namespace.into() };
        match stub(&server).await.reap_lock(request).await {
            Ok(stream) => Refusal::of(&stream.into_inner().message().await.unwrap_err()).reason,
            Err(status) => Refusal::of(&status).reason,
        }
    };
    let own = cleaner.id().as_bytes().to_vec();
    assert_eq!(reason(&own, "").await, "INVALID_UPDATE");
    assert_eq!(reason(&own, "a..b").await, "INVALID_UPDATE");
    assert_eq!(reason(&own[1..], "user").await, "INVALID_UPDATE");
    assert_eq!(reason(&[7; 16], "user").await, "SESSION_ENDED");
    // The end of the session ends its wait.
    let waiting = tokio::spawn(async move { cleaner.reap("user").await.map(drop) });
    let evict = leasehold_proto::leasehold::sessions::v1::EvictSessionRequest { session_id: own };
    let reaped = async || {
        stub(&server).await.evict_session(evict.clone()).await.unwrap();
        waiting.is_finished().then_some(())
    };
    eventually("the wait is over", reaped).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().refusal().unwrap().reason, "SESSION_ENDED");
}

#[tokio::test(flavor = "multi_thread")]
async fn k17_a_command_cleans_up_after_each_lock_until_it_is_stopped() {
    let server = server();
    let url = format!("http://{}", server.address());
    let script = "echo $LEASEHOLD_LOCK_NAMESPACE $LEASEHOLD_LOCK_KEY $LEASEHOLD_FORMER_FENCE $LEASEHOLD_ATTEMPT; \
                  test $LEASEHOLD_FENCE -gt $LEASEHOLD_FORMER_FENCE && test $LEASEHOLD_LOCK_KEY != bad";
    let fence = die_holding(&server, "one").await;
    let (code, shown, _) = run(&server, &["reap", "user", "--once", "--", "sh", "-c", script]).await;
    assert_eq!((code, shown), (Some(0), format!("user.update one {fence} 1\n")));
    // A dead permit is cleaned up under its own number, so that the guard lets the others go on.
    let (dead, alive) = (session(&server, LONG).await, session(&server, LONG).await);
    let two = NonZeroU32::new(2).unwrap();
    dead.lock_permit("user", "shared", two, NOW).await.unwrap().unwrap();
    let other = alive.lock_permit("user", "shared", two, NOW).await.unwrap().unwrap();
    dead.close().await.unwrap();
    let slot = "echo $LEASEHOLD_LOCK_KEY $LEASEHOLD_SLOT";
    let (code, shown, _) = run(&server, &["reap", "user", "--once", "--", "sh", "-c", slot]).await;
    assert_eq!((code, shown), (Some(0), "shared 1\n".to_owned()));
    alive.release(&other, WorkOutcome::Succeeded, b"").await.unwrap();
    let mut reaper = command().unwrap();
    let reaper = reaper
        .args(["reap", "user", "--server", &url, "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    die_holding(&server, "bad").await;
    die_holding(&server, "two").await;
    let cleaned = async || (get(&server, "two").await.state() == State::Free).then_some(());
    eventually("the second lock is cleaned up", cleaned).await.unwrap();
    let set_aside = async || (get(&server, "bad").await.state() == State::SetAside).then_some(());
    eventually("the bad lock is set aside", set_aside).await.unwrap();
    kill(Pid::from_raw(reaper.id().unwrap().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let output = tokio::time::timeout(PATIENT, reaper.wait_with_output()).await.unwrap().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("cleanup 2 of at most 2 of user.update/bad has failed"), "{stderr}");
    let (code, ..) = run(&server, &["resolve-orphan", "user.update/bad", "--fence", "1"]).await;
    assert_eq!(code, Some(2), "one of the two decisions is required");
}

/// K17, K18: a holder stops in the middle of its transaction. The cleanup waits for the end of that
/// transaction, which can't commit any more; and a note of the former fence makes it happen once.
#[tokio::test(flavor = "multi_thread")]
async fn k17_k18_a_cleanup_follows_a_holder_that_stops_in_its_transaction() {
    let server = server();
    let database = Database::new().await;
    let (stopped, cleaning) = (database.connect().await, database.connect().await);
    cleaning.run("CREATE TABLE cleanups (former_fence bigint PRIMARY KEY)").await.unwrap();
    let holder = session(&server, SHORT).await;
    let held = take(&holder, "7", NOW).await.unwrap();
    stopped.run("BEGIN").await.unwrap();
    stopped.guard(held.fence(), holder.remaining(&held)).await.unwrap();
    stopped.run("INSERT INTO writes (fence) VALUES (1)").await.unwrap();
    drop(holder);
    let cleaner = session(&server, LONG).await;
    let orphan = cleaner.reap("user").await.unwrap();
    let clean_up = async {
        cleaning.run("BEGIN").await?;
        cleaning.guard(orphan.lock().fence(), cleaner.remaining(orphan.lock())).await?;
        cleaning.run(&format!("INSERT INTO cleanups VALUES ({})", orphan.former_fence())).await?;
        cleaning.run("COMMIT").await
    };
    let commit = async {
        database.await_a_waiting_statement().await;
        stopped.run("COMMIT").await
    };
    let (cleaned, committed) = tokio::join!(clean_up, commit);
    assert_eq!((cleaned, committed), (Ok(()), Err("LH002".to_owned())));
    release(&cleaner, &orphan, WorkOutcome::Succeeded).await;
    assert_eq!(stopped.guard(held.fence(), PATIENT).await, Err("LH001".to_owned()));
}

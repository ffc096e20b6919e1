//! The use cases for which seed 004 was written, each as its user would write it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_client::{HeldLock, LockSession, WorkOutcome};
use leasehold_tests::server::Server;
use leasehold_tests::wire::eventually;
use tokio::task::JoinSet;

use super::guard::{Database, Holder};
use super::{LONG, NOW, PATIENT, SHORT, session};

/// A controller reserves a runner for as long as the runner takes to answer. Its session renews, so
/// a reservation outlives the terms of the session; a controller that dies loses it.
#[tokio::test(flavor = "multi_thread")]
async fn k02_a_runner_stays_reserved_while_its_controller_renews() {
    let server = Server::start().unwrap();
    let reserve = async |controller: &LockSession, wait| controller.lock("runner.reserve", "r1", wait).await.unwrap();
    let (controller, other) = (session(&server, SHORT).await, session(&server, LONG).await);
    let reserved = reserve(&controller, NOW).await.unwrap();
    assert_eq!(reserve(&other, 2 * (SHORT.duration + SHORT.grace)).await, None, "the runner has not answered yet");
    controller.release(&reserved, WorkOutcome::Succeeded, b"deployment 7").await.unwrap();

    let reserved = reserve(&controller, NOW).await.unwrap();
    drop(controller);
    assert!(reserve(&other, PATIENT).await.unwrap().fence() > reserved.fence());
}

/// Calls that are executed asynchronously: a row for each in the user's own database.
struct Calls(Database);

impl Calls {
    async fn new() -> Self {
        let database = Database::new().await;
        let table = "CREATE TABLE calls (id bigint PRIMARY KEY, completions int NOT NULL DEFAULT 0);
                     INSERT INTO calls VALUES (7)";
        database.connect().await.run(table).await.unwrap();
        Self(database)
    }

    async fn completions(&self) -> i32 {
        let holder = self.0.connect().await;
        holder.0.query_one("SELECT completions FROM calls WHERE id = 7", &[]).await.unwrap().get(0)
    }
}

async fn lock_call(coordinator: &LockSession, wait: Duration) -> HeldLock {
    coordinator.lock("async.call", "7", wait).await.unwrap().unwrap()
}

/// Begins the transaction that completes the call if it is not complete yet.
async fn complete(holder: &Holder, coordinator: &LockSession, held: &HeldLock) -> Result<(), String> {
    holder.run("BEGIN").await?;
    holder.guard(held.fence(), coordinator.remaining(held)).await?;
    holder.run("UPDATE calls SET completions = completions + 1 WHERE id = 7 AND completions = 0").await
}

/// The transaction that completes the call is the one that ends the right to do so: whoever comes
/// later can't complete the call a second time, wherever the first coordinator stopped.
#[tokio::test(flavor = "multi_thread")]
async fn k18_an_asynchronous_call_is_completed_once_wherever_its_coordinator_stops() {
    let (server, calls) = (Server::start().unwrap(), Calls::new().await);
    let (stopped, crashed, last) =
        (session(&server, SHORT).await, session(&server, SHORT).await, session(&server, LONG).await);

    // The first coordinator stops inside its transaction, before the COMMIT.
    let held = lock_call(&stopped, NOW).await;
    let (open, next) = (calls.0.connect().await, calls.0.connect().await);
    complete(&open, &stopped, &held).await.unwrap();
    drop(stopped);
    let held = lock_call(&crashed, PATIENT).await;
    assert!(open.run("COMMIT").await.is_err());
    assert_eq!(calls.completions().await, 0);

    // The second one commits, and crashes before its release.
    complete(&next, &crashed, &held).await.unwrap();
    next.run("COMMIT").await.unwrap();
    drop(crashed);
    let held = lock_call(&last, PATIENT).await;
    complete(&next, &last, &held).await.unwrap();
    next.run("COMMIT").await.unwrap();
    last.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    assert_eq!(calls.completions().await, 1);
}

/// Calls a second function under the lock of the first, as modules do. Counts the running calls.
async fn update_user(running: Arc<AtomicU64>) {
    struct Running(Arc<AtomicU64>);
    impl Drop for Running {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let start = |running: &Arc<AtomicU64>| {
        running.fetch_add(1, Ordering::SeqCst);
        Running(running.clone())
    };
    let _outer = start(&running);
    let inner = start(&running);
    let mut calls = JoinSet::new();
    calls.spawn(async move {
        let _inner = inner;
        std::future::pending::<()>().await;
    });
    calls.join_all().await;
}

/// A module's function ends at the deadline of its lock, with every call that it has made, although
/// no server tells it anything.
#[tokio::test(flavor = "multi_thread")]
async fn k11_a_module_is_cancelled_at_its_deadline_with_all_calls_that_it_made() {
    let mut server = Server::start().unwrap();
    let module = session(&server, SHORT).await;
    let held = module.lock("module.user.update", "7", NOW).await.unwrap().unwrap();
    let running = Arc::new(AtomicU64::new(0));
    let work = tokio::spawn({
        let running = running.clone();
        async move {
            tokio::select! {
                () = update_user(running) => unreachable!("the work never ends by itself"),
                () = module.lost() => module.remaining(&held),
            }
        }
    });
    let count = async |expected| (running.load(Ordering::SeqCst) == expected).then_some(());
    eventually("both functions run", async || count(2).await).await.unwrap();
    let killed = Instant::now();
    server.kill_9().unwrap();
    assert!(work.await.unwrap().is_zero());
    // An answer that arrived right before the kill is the last one. The deadline lies three seconds before the end
    // of the terms, which a machine that stalls may take.
    assert!(killed.elapsed() < SHORT.duration + SHORT.grace, "{:?}", killed.elapsed());
    eventually("all calls end", async || count(0).await).await.unwrap();
}

//! Tests of sessions and locks on two servers of one database, which are killed, suspended, stopped
//! and restarted.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_client::{Client, HeldLock, LockSession, SessionTerms, Stub, WantedLock, WorkOutcome};
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::locks::v1::acquire_lock_response::News;
use leasehold_proto::leasehold::sessions::v1::{EvictSessionRequest, OpenSessionRequest, RenewSessionRequest};
use leasehold_tests::postgres::{Bouncer, Cluster};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{Refusal, eventually};
use nix::sys::signal::Signal;
use tokio::runtime::Runtime;
use tokio::time::interval;
use tonic::Status;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::{NO_SYNC, cells};

pub(crate) const LONG: SessionTerms =
    SessionTerms { duration: Duration::from_secs(3_600), grace: Duration::from_secs(60) };
pub(crate) const PATIENT: Duration = Duration::from_secs(60);
pub(crate) const NOW: Duration = Duration::ZERO;
/// The time between two renewals of a test.
const OFTEN: Duration = Duration::from_millis(400);

/// Two servers of one database. Each has the same address after a restart.
struct Pair {
    one: Server,
    two: Server,
    _database: (Cluster, Option<Bouncer>),
}

pub(crate) fn server(url: &str) -> Server {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let reaped = "[[locks.reaped]]\nnamespaces = [\"reaped\"]\n";
    let config = format!("[postgres]\nurl = \"{url}\"\n{}{reaped}", cells(1));
    Server::builder().config(config).listen(format!("127.0.0.1:{port}")).start().unwrap()
}

impl Pair {
    fn start() -> Self {
        let cluster = Cluster::start(NO_SYNC).unwrap();
        let url = cluster.url(&cluster.database().unwrap());
        Self { one: server(&url), two: server(&url), _database: (cluster, None) }
    }

    /// Starts two servers behind a pgbouncer in transaction mode.
    fn behind_pgbouncer() -> Self {
        let cluster = Cluster::start(NO_SYNC).unwrap();
        let bouncer = Bouncer::start(&cluster, 6).unwrap();
        let url = bouncer.url(&cluster.database().unwrap());
        Self { one: server(&url), two: server(&url), _database: (cluster, Some(bouncer)) }
    }
}

/// Plays a test on two servers. A cluster may be dropped only outside of a runtime.
fn play(Pair { one, two, _database }: Pair, test: impl AsyncFnOnce(Server, Server)) {
    Runtime::new().unwrap().block_on(test(one, two));
}

pub(crate) async fn session(server: &Server, terms: SessionTerms) -> LockSession {
    let client = Client::builder(format!("http://{}", server.address())).build().unwrap();
    client.lock_session(terms).await.unwrap()
}

pub(crate) async fn take(session: &LockSession, key: &str, wait: Duration) -> Option<HeldLock> {
    session.lock("user.update", key, wait).await.unwrap()
}

pub(crate) async fn stub(server: &Server) -> Stub<Channel> {
    Stub::new(server.connect(None).await.unwrap())
}

pub(crate) fn path(key: &str) -> wire::LockPath {
    wire::LockPath { namespace: "user.update".into(), key: key.into(), slot: 0 }
}

pub(crate) async fn get(server: &Server, key: &str) -> wire::Lock {
    let request = wire::GetLockRequest { lock: Some(path(key)) };
    stub(server).await.get_lock(request).await.unwrap().into_inner().lock.unwrap()
}

pub(crate) async fn wait_for_waiters(server: &Server, key: &str, count: u32) {
    let waiting = async || (get(server, key).await.waiting == count).then_some(());
    eventually("the asks wait", waiting).await.unwrap();
}

/// Opens a session that only the test renews.
pub(crate) async fn open(server: &Server, duration: u64, grace: u64) -> Vec<u8> {
    let session_id = Uuid::from_u128(rand::random()).as_bytes().to_vec();
    let (duration_micros, grace_micros) = (duration * 1_000_000, grace * 1_000_000);
    let request = OpenSessionRequest { session_id: session_id.clone(), duration_micros, grace_micros };
    stub(server).await.open_session(request).await.unwrap();
    session_id
}

pub(crate) async fn renew(server: &Server, session: &[u8]) -> Result<Vec<u64>, Status> {
    let request = RenewSessionRequest { session_id: session.to_vec() };
    Ok(stub(server).await.renew_session(request).await?.into_inner().forced_fences)
}

pub(crate) fn asked(session: &[u8], ask: u8, key: &str, wait: Duration) -> wire::AcquireLockRequest {
    let wait_micros = u64::try_from(wait.as_micros()).unwrap();
    wire::AcquireLockRequest {
        session_id: session.to_vec(),
        ask_id: vec![ask; 16],
        lock: Some(path(key)),
        wait_micros,
        ..Default::default()
    }
}

/// Takes a free lock.
pub(crate) async fn hold(server: &Server, session: &[u8], ask: u8, key: &str) -> u64 {
    let mut stream = stub(server).await.acquire_lock(asked(session, ask, key, NOW)).await.unwrap().into_inner();
    match stream.message().await.unwrap().unwrap().news {
        Some(News::Fence(fence)) => fence,
        other => panic!("{other:?}"),
    }
}

/// Renews a session at these servers in turn for a time.
pub(crate) async fn renew_for(time: Duration, servers: &[&Server], session: &[u8]) {
    let (mut ticks, until) = (interval(OFTEN), Instant::now() + time);
    for server in servers.iter().cycle() {
        ticks.tick().await;
        if Instant::now() > until {
            return;
        }
        renew(server, session).await.unwrap();
    }
}

#[test]
fn k08_k09_a_waiter_at_one_server_gets_what_is_released_at_another() {
    play(Pair::start(), pass_a_lock_on);
}

#[test]
fn k08_k09_a_lock_passes_between_servers_behind_pgbouncer() {
    play(Pair::behind_pgbouncer(), pass_a_lock_on);
}

async fn pass_a_lock_on(one: Server, two: Server) {
    let holder = session(&one, LONG).await;
    let mut held = take(&holder, "q", NOW).await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..4 {
        let waiting = session(if number % 2 == 0 { &two } else { &one }, LONG).await;
        waiters.push(tokio::spawn(async move {
            let lock = take(&waiting, "q", PATIENT).await.unwrap();
            (waiting, lock)
        }));
        wait_for_waiters(&one, "q", number + 1).await;
    }
    let mut holder = holder;
    for waiter in waiters {
        holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
        let (next, lock) = waiter.await.unwrap();
        assert!(lock.fence() > held.fence());
        (holder, held) = (next, lock);
    }
    // A session's calls may go to any server: here the waiter's session lives at the other one.
    let elsewhere = open(&one, 60, 5).await;
    let mut stream = stub(&two).await.acquire_lock(asked(&elsewhere, 9, "q", PATIENT)).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().news, Some(News::Waiting(0)));
    holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    let Some(News::Fence(fence)) = stream.message().await.unwrap().unwrap().news else { panic!("no grant") };
    assert!(fence > held.fence());
}

#[test]
fn k08_k13_permits_pass_between_servers() {
    play(Pair::start(), pass_permits_on);
}

/// Two permits are held at one server. At the other one, three asks wait: for a permit, alone, and for a
/// permit behind.
async fn pass_permits_on(one: Server, two: Server) {
    let two_permits = NonZeroU32::new(2).unwrap();
    let holder = session(&one, LONG).await;
    let permit =
        async |session: &LockSession, wait| session.lock_permit("user.update", "q", two_permits, wait).await.unwrap();
    let held = [permit(&holder, NOW).await.unwrap(), permit(&holder, NOW).await.unwrap()];
    let waiting = Arc::new(session(&two, LONG).await);
    let mut waiters = Vec::new();
    for number in 0..3 {
        let waiting = waiting.clone();
        waiters.push(tokio::spawn(async move {
            match number {
                1 => take(&waiting, "q", PATIENT).await.unwrap(),
                _ => waiting.lock_permit("user.update", "q", two_permits, PATIENT).await.unwrap().unwrap(),
            }
        }));
        wait_for_waiters(&one, "q", number + 1).await;
    }
    let [first, alone, behind] = <[_; 3]>::try_from(waiters).unwrap();
    holder.release(&held[1], WorkOutcome::Succeeded, b"").await.unwrap();
    let first = first.await.unwrap();
    assert_eq!((first.slot(), get(&two, "q").await.waiting), (held[1].slot(), 2));
    holder.release(&held[0], WorkOutcome::Succeeded, b"").await.unwrap();
    waiting.release(&first, WorkOutcome::Succeeded, b"").await.unwrap();
    let alone = alone.await.unwrap();
    assert_eq!((alone.slot(), get(&one, "q").await.state()), (0, wire::lock::State::Held));
    waiting.release(&alone, WorkOutcome::Succeeded, b"").await.unwrap();
    let behind = behind.await.unwrap();
    assert!(behind.slot() == 1 && behind.fence() > alone.fence());
    assert_eq!(permit(&holder, NOW).await.unwrap().slot(), 2);
    assert_eq!(permit(&holder, NOW).await, None);
}

#[test]
fn k08_k14_locks_are_granted_together_at_two_servers() {
    play(Pair::start(), async |one: Server, two: Server| {
        let (holder, other) = (session(&one, LONG).await, session(&two, LONG).await);
        let held = take(&holder, "b", NOW).await.unwrap();
        let waiting =
            tokio::spawn(async move { take_all(&other, ["a", "b", "c"], PATIENT).await.map(|all| (other, all)) });
        wait_for_waiters(&one, "b", 1).await;
        holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
        let (other, all) = waiting.await.unwrap().unwrap();
        assert_eq!(take_all(&holder, ["c", "d", "e"], NOW).await, None);
        for lock in &all {
            other.release(lock, WorkOutcome::Succeeded, b"").await.unwrap();
        }
        // Commands of two servers that join the same queues conflict, and one of them is repeated.
        let callers = [(holder, ["a", "b", "c"]), (other, ["c", "b", "a"])].map(|(session, keys)| {
            tokio::spawn(async move {
                for _ in 0..10 {
                    for lock in take_all(&session, keys, PATIENT).await.unwrap() {
                        session.release(&lock, WorkOutcome::Succeeded, b"").await.unwrap();
                    }
                }
            })
        });
        for caller in callers {
            caller.await.unwrap();
        }
    });
}

async fn take_all(session: &LockSession, keys: [&str; 3], wait: Duration) -> Option<Vec<HeldLock>> {
    session.lock_all(&keys.map(|key| WantedLock::alone("user.update", key)), wait).await.unwrap()
}

#[test]
fn k15_one_of_the_callers_at_two_servers_that_close_a_circle_is_refused() {
    play(Pair::start(), async |one: Server, two: Server| {
        for _ in 0..3 {
            let (first, second) = (session(&one, LONG).await, session(&two, LONG).await);
            let (a, b) = (take(&first, "a", NOW).await.unwrap(), take(&second, "b", NOW).await.unwrap());
            let callers = [(first, a, "b"), (second, b, "a")].map(|(session, held, key)| {
                tokio::spawn(async move {
                    let wanted = [WantedLock::alone("user.update", key)];
                    let found = session.lock_all_while_holding(&[held], &wanted, PATIENT).await;
                    session.close().await.unwrap();
                    found.map_err(|error| error.refusal().unwrap().reason.clone()).map(|locks| locks.is_some())
                })
            });
            let [first, second] = callers;
            let mut found = [first.await.unwrap(), second.await.unwrap()];
            found.sort_unstable();
            assert_eq!(found, [Ok(true), Err("LOCK_CIRCLE".to_owned())]);
        }
    });
}

#[test]
fn k02_k06_a_session_may_renew_at_any_server() {
    play(Pair::start(), async |one: Server, two: Server| {
        let renewed = open(&one, 2, 8).await;
        let fence = hold(&one, &renewed, 1, "q").await;
        renew_for(Duration::from_secs(5), &[&one, &two], &renewed).await;
        // The last home is `two`. It must not end the session while the client renews at `one` alone.
        renew(&two, &renewed).await.unwrap();
        renew_for(Duration::from_secs(14), &[&one], &renewed).await;
        assert_eq!(get(&two, "q").await.fence, fence);
        // A silence is noticed, wherever the session renewed last.
        let (other, silent_since) = (session(&two, LONG).await, Instant::now());
        renew(&one, &renewed).await.unwrap();
        assert!(take(&other, "q", PATIENT).await.unwrap().fence() > fence);
        assert!(silent_since.elapsed() >= Duration::from_secs(10), "{:?}", silent_since.elapsed());
        for server in [&one, &two] {
            assert_eq!(Refusal::of(&renew(server, &renewed).await.unwrap_err()).reason, "SESSION_ENDED");
        }
    });
}

#[test]
fn k06_k07_the_sessions_of_a_killed_server_are_adopted_with_their_whole_duration() {
    play(Pair::start(), async |mut one: Server, two: Server| {
        let silent = open(&one, 3, 7).await;
        let fence = hold(&one, &silent, 1, "q").await;
        let kept = open(&one, 3_600, 60).await;
        let held = hold(&one, &kept, 2, "kept").await;
        let other = session(&two, LONG).await;
        one.kill_9().unwrap();
        let killed = Instant::now();
        assert!(take(&other, "q", PATIENT).await.unwrap().fence() > fence);
        assert!(killed.elapsed() >= Duration::from_secs(10), "{:?}", killed.elapsed());
        assert_eq!(get(&two, "kept").await.fence, held);
        assert_eq!(take(&other, "kept", NOW).await, None);
        // The session goes on at the other server.
        renew(&two, &kept).await.unwrap();
        let (_, metrics) = leasehold_tests::wire::get(two.address(), "/metrics").await.unwrap();
        assert!(metrics.contains("\nleasehold_sessions_adopted_total 2\n"), "{metrics}");
    });
}

#[test]
fn k06_a_server_that_was_suspended_renews_nothing_from_memory() {
    play(Pair::start(), async |one: Server, two: Server| {
        let (lost, moved) = (open(&one, 1, 7).await, open(&one, 2, 10).await);
        let (fence, kept) = (hold(&one, &lost, 1, "q").await, hold(&one, &moved, 2, "moved").await);
        let other = session(&two, LONG).await;
        one.suspend().unwrap();
        // One session moves, the other one expires at the server that adopts it.
        let taken = async { take(&other, "q", PATIENT).await.unwrap() };
        let servers = [&two];
        let (taken, ()) = tokio::join!(taken, renew_for(Duration::from_secs(18), &servers, &moved));
        assert!(taken.fence() > fence);
        one.signal(Signal::SIGCONT).unwrap();
        assert_eq!(Refusal::of(&renew(&one, &lost).await.unwrap_err()).reason, "SESSION_ENDED");
        renew_for(Duration::from_secs(14), &[&one], &moved).await;
        assert_eq!(get(&one, "moved").await.fence, kept);
        assert_eq!(get(&one, "q").await.fence, taken.fence());
    });
}

#[test]
fn k07_a_restart_of_the_only_server_loses_no_hold_and_gives_whole_durations() {
    play(Pair::start(), async |mut only: Server, mut two: Server| {
        assert!(two.terminate().unwrap().success());
        let silent = open(&only, 3, 7).await;
        let fence = hold(&only, &silent, 1, "q").await;
        let kept = session(&only, LONG).await;
        let held = take(&kept, "kept", NOW).await.unwrap();
        only.kill_9().unwrap();
        let killed = Instant::now();
        only.restart().unwrap();
        assert_eq!((get(&only, "q").await.fence, get(&only, "kept").await.fence), (fence, held.fence()));
        let other = session(&only, LONG).await;
        assert_eq!(take(&other, "kept", NOW).await, None);
        assert!(take(&other, "q", PATIENT).await.unwrap().fence() > held.fence());
        assert!(killed.elapsed() >= Duration::from_secs(10), "{:?}", killed.elapsed());
        kept.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    });
}

#[test]
fn k22_a_server_that_stops_hands_its_sessions_over_at_once() {
    play(Pair::start(), async |mut one: Server, two: Server| {
        let silent = open(&one, 2, 1).await;
        hold(&one, &silent, 1, "q").await;
        let waiting = open(&one, 60, 5).await;
        let mut stream = stub(&one).await.acquire_lock(asked(&waiting, 2, "q", PATIENT)).await.unwrap().into_inner();
        assert_eq!(stream.message().await.unwrap().unwrap().news, Some(News::Waiting(0)));
        assert!(one.terminate().unwrap().success());
        assert!(matches!(stream.message().await.unwrap().unwrap().news, Some(News::Moving(_))));
        let stopped = Instant::now();
        let mut stream = stub(&two).await.acquire_lock(asked(&waiting, 2, "q", PATIENT)).await.unwrap().into_inner();
        assert_eq!(stream.message().await.unwrap().unwrap().news, Some(News::Waiting(0)), "the ask keeps its place");
        assert!(matches!(stream.message().await.unwrap().unwrap().news, Some(News::Fence(_))));
        // Duration and grace are 3 s. A server that is killed is noticed 5 s later than one that stops.
        let passed = stopped.elapsed();
        assert!(passed >= Duration::from_millis(2_500) && passed < Duration::from_secs(7), "{passed:?}");
    });
}

#[test]
fn k20_each_home_of_a_session_tells_which_grants_were_taken() {
    play(Pair::start(), async |one: Server, two: Server| {
        let holder = open(&one, 60, 5).await;
        let fence = hold(&one, &holder, 1, "q").await;
        let force = wire::ForceLockRequest { lock: Some(path("q")), fence, at_once: true };
        stub(&two).await.force_lock(force).await.unwrap();
        eventually("the home tells it", async || (renew(&one, &holder).await.unwrap() == [fence]).then_some(()))
            .await
            .unwrap();
        assert_eq!(renew(&two, &holder).await.unwrap(), [fence], "the next home tells it too");
        // An eviction at one server ends the session at the other.
        stub(&one).await.evict_session(EvictSessionRequest { session_id: holder.clone() }).await.unwrap();
        eventually("the home knows the end", async || renew(&two, &holder).await.err()).await.unwrap();
    });
}

#[test]
fn k06_k09_a_call_that_ends_late_at_one_server_takes_no_lock_from_its_holder() {
    play(Pair::start(), async |one: Server, two: Server| {
        let (holder, other) = (session(&one, LONG).await, session(&one, LONG).await);
        let held = take(&holder, "q", NOW).await.unwrap();
        let moving = open(&one, 60, 5).await;
        let mut first = stub(&one).await.acquire_lock(asked(&moving, 5, "q", PATIENT)).await.unwrap().into_inner();
        assert_eq!(first.message().await.unwrap().unwrap().news, Some(News::Waiting(0)));
        let mut second = stub(&two).await.acquire_lock(asked(&moving, 5, "q", PATIENT)).await.unwrap().into_inner();
        assert_eq!(second.message().await.unwrap().unwrap().news, Some(News::Waiting(0)));
        drop(first);
        // An ask whose only call has ended does leave.
        let gone = stub(&one).await.acquire_lock(asked(&moving, 6, "q", PATIENT)).await.unwrap();
        drop(gone);
        let patient = tokio::spawn(async move { (take(&other, "q", PATIENT).await.unwrap(), other) });
        wait_for_waiters(&one, "q", 3).await;
        holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
        let Some(News::Fence(fence)) = second.message().await.unwrap().unwrap().news else { panic!("no grant") };
        wait_for_waiters(&one, "q", 1).await;
        renew_for(Duration::from_secs(14), &[&two], &moving).await;
        assert_eq!(get(&one, "q").await.fence, fence);
        let release =
            wire::ReleaseLockRequest { session_id: moving, lock: Some(path("q")), fence, failed: false, value: vec![] };
        stub(&two).await.release_lock(release).await.unwrap();
        assert!(patient.await.unwrap().0.fence() > fence);
    });
}

/// The client repeats its ask at another server, since the first one is suspended. The wait of the first
/// call ends there when the client holds the lock already.
#[test]
fn k06_k09_a_wait_that_ends_late_at_one_server_takes_no_lock_from_its_holder() {
    play(Pair::start(), async |one: Server, two: Server| {
        let (holder, moving) = (session(&two, LONG).await, open(&two, 60, 5).await);
        let held = take(&holder, "q", NOW).await.unwrap();
        let short = asked(&moving, 5, "q", Duration::from_secs(1));
        let mut first = stub(&one).await.acquire_lock(short).await.unwrap().into_inner();
        assert_eq!(first.message().await.unwrap().unwrap().news, Some(News::Waiting(0)));
        one.suspend().unwrap();
        let suspended = Instant::now();
        let mut second = stub(&two).await.acquire_lock(asked(&moving, 5, "q", PATIENT)).await.unwrap().into_inner();
        assert_eq!(second.message().await.unwrap().unwrap().news, Some(News::Waiting(0)));
        holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
        let Some(News::Fence(fence)) = second.message().await.unwrap().unwrap().news else { panic!("no grant") };
        let is_over = async || (suspended.elapsed() > Duration::from_secs(1)).then_some(());
        eventually("the first wait is over", is_over).await.unwrap();
        one.signal(Signal::SIGCONT).unwrap();
        match first.message().await {
            Ok(message) => assert_eq!(message.unwrap().news, Some(News::Fence(fence))),
            Err(status) => assert_eq!(Refusal::of(&status).reason, "LOCK_HELD"),
        }
        assert_eq!(get(&two, "q").await.fence, fence);
    });
}

/// The observations of the workers of a fight.
#[derive(Default)]
struct Fight {
    // The fence of the newest worker, and the moment until which it may work if it works.
    inside: Mutex<(u64, Option<Instant>)>,
    grants: AtomicU64,
    is_over: AtomicBool,
}

impl Fight {
    /// Works under a lock while its client says that the lock is held. A machine that stalls may delay the
    /// work until the lock has passed on rightly.
    async fn work(&self, session: &LockSession, lock: &HeldLock) {
        let until = Instant::now() + session.remaining(lock);
        if !self.enter(lock.fence(), until) {
            return;
        }
        let mut steps = interval(Duration::from_millis(5));
        for _ in 0..4 {
            steps.tick().await;
            let newest = self.inside.lock().unwrap().0;
            assert!(newest == lock.fence() || until <= Instant::now(), "two holders at once");
        }
        self.leave(lock.fence());
        self.grants.fetch_add(1, Ordering::SeqCst);
    }

    /// Begins the work under a fence. Returns false if the time for it is over.
    fn enter(&self, fence: u64, until: Instant) -> bool {
        let (mut inside, now) = (self.inside.lock().unwrap(), Instant::now());
        if until <= now {
            return false;
        }
        assert!(inside.1.is_none_or(|until| until <= now), "two holders at once");
        assert!(inside.0 < fence, "a fence came twice");
        *inside = (fence, Some(until));
        true
    }

    fn leave(&self, fence: u64) {
        let mut inside = self.inside.lock().unwrap();
        if inside.0 == fence {
            inside.1 = None;
        }
    }

    async fn run(&self, client: Client) {
        let terms = SessionTerms { duration: Duration::from_secs(4), grace: Duration::from_secs(2) };
        while !self.is_over.load(Ordering::SeqCst) {
            let Ok(session) = client.lock_session(terms).await else { continue };
            for _ in 0..20 {
                let Ok(Some(lock)) = session.lock("fight", "one", Duration::from_secs(5)).await else { break };
                // A grant that arrives late may have no time left for the work.
                if session.remaining(&lock) > Duration::from_secs(2) {
                    self.work(&session, &lock).await;
                }
                if session.release(&lock, WorkOutcome::Succeeded, b"").await.is_err() {
                    break;
                }
            }
        }
    }
}

#[test]
fn k06_k08_in_a_fight_with_kills_and_suspensions_a_lock_has_one_holder() {
    play(Pair::start(), async |mut one: Server, two: Server| {
        let fight = Arc::new(Fight::default());
        let workers: Vec<_> = (0..6)
            .map(|number| {
                let address = if number % 2 == 0 { one.address() } else { two.address() };
                let client = Client::builder(format!("http://{address}")).build().unwrap();
                let fight = fight.clone();
                tokio::spawn(async move { fight.run(client).await })
            })
            .collect();
        let mut rounds = interval(Duration::from_secs(3));
        for _ in 0..3 {
            rounds.tick().await;
            one.kill_9().unwrap();
            rounds.tick().await;
            one.restart().unwrap();
            rounds.tick().await;
            two.suspend().unwrap();
            rounds.tick().await;
            rounds.tick().await;
            two.signal(Signal::SIGCONT).unwrap();
        }
        let grants = fight.grants.load(Ordering::SeqCst);
        eventually("the lock passes on after the fight", async || {
            (fight.grants.load(Ordering::SeqCst) > grants + 20).then_some(())
        })
        .await
        .unwrap();
        fight.is_over.store(true, Ordering::SeqCst);
        for worker in workers {
            worker.await.unwrap();
        }
        println!("{} grants", fight.grants.load(Ordering::SeqCst));
    });
}

#[test]
fn k17_a_cleaner_at_one_server_cleans_up_after_a_holder_of_another() {
    play(Pair::start(), async |one, two| {
        let (holder, waiter, cleaner) =
            (session(&one, LONG).await, session(&one, LONG).await, session(&two, LONG).await);
        let held = holder.lock("reaped", "q", NOW).await.unwrap().unwrap();
        let waiting = tokio::spawn(async move { waiter.lock("reaped", "q", PATIENT).await.unwrap().unwrap() });
        // The cleaner may wait before the holder dies.
        let reaping = tokio::spawn(async move { cleaner.reap("reaped").await.map(|orphan| (cleaner, orphan)) });
        holder.close().await.unwrap();
        let (cleaner, orphan) = reaping.await.unwrap().unwrap();
        assert_eq!((orphan.former_fence(), orphan.attempt()), (held.fence(), 1));
        cleaner.release(orphan.lock(), WorkOutcome::Failed, b"").await.unwrap();
        let again = cleaner.reap("reaped").await.unwrap();
        assert_eq!((again.former_fence(), again.attempt()), (held.fence(), 2));
        assert!(!waiting.is_finished());
        cleaner.release(again.lock(), WorkOutcome::Succeeded, b"").await.unwrap();
        assert!(waiting.await.unwrap().fence() > again.lock().fence());
    });
}

//! A soak: mixed load on one server. The server is killed and runs out of disk space, its clock
//! jumps, and nobody reads its log. Every acknowledged save must be in place at the end. A long run
//! also checks that memory does not grow and that no save stalls.
//!
//! Each start of the server begins with little memory, so a leak shows only in one long-lived
//! process. All restarts are therefore in the first tenth, but for a kill at the end. The process
//! then has its settled leases and full caches before the second quarter begins.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_client::{
    Bucket, BucketType, Claim, Client, Error, Lease, LeaseQuery, RecordQuery, RefusalKind, RetryPolicy, SourceType,
    SubjectType,
};
use leasehold_core::cell::CellId;
use leasehold_tests::disk::Disk;
use leasehold_tests::false_clock::FalseClock;
use leasehold_tests::server::Server;
use leasehold_tests::transfer::{export, state};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::memory;

/// The variable that sets the length of the soak in seconds.
const SECONDS: &str = "LEASEHOLD_SOAK_SECONDS";
/// The shortest soak whose memory and stalls are checked. In a shorter one the caches are not full.
const LONG: Duration = Duration::from_secs(3_600);
const DISK_MIB: u64 = 2_048;
const SAVERS: u64 = 4;
/// The number of names that a saver holds at most.
const NAMES: usize = 200;
/// The cell of the savers.
const SAVED: i64 = 1;
/// The cell of callers that give up. Nobody commits its leases.
const GONE: i64 = 2;
/// The longest time that a save may take, not counting a stall of the machine itself.
const STALL: Duration = Duration::from_millis(250);
/// The time after an interruption in which clients connect again and repeat their calls.
const RECOVERY: Duration = Duration::from_secs(10);

/// An interruption of the server.
#[derive(Clone, Copy)]
enum Turn {
    Kill,
    FullDisk,
    Jump,
}

/// The turns of a soak, each with the share of the soak's length at which it begins.
const TURNS: [(f64, Turn); 9] = [
    (0.01, Turn::Kill),
    (0.02, Turn::FullDisk),
    (0.03, Turn::Jump),
    (0.04, Turn::Kill),
    (0.05, Turn::FullDisk),
    (0.07, Turn::Kill),
    (0.40, Turn::Jump),
    (0.65, Turn::Jump),
    (1.00, Turn::Kill),
];

/// The events of a soak, as its parts record them.
struct Log {
    start: Instant,
    stopping: AtomicBool,
    saves: AtomicU64,
    cancelled: AtomicU64,
    /// The times in which the server was interrupted on purpose.
    interruptions: Mutex<Vec<(Instant, Instant)>>,
    /// The saves that took longer than [`STALL`]: from, to.
    slow: Mutex<Vec<(Instant, Instant)>>,
    /// The moments at which the machine itself ran a thread too late, and by how much.
    late: Mutex<Vec<(Instant, Duration)>>,
    /// The resident memory of the server in bytes, some twenty times a second.
    memory: Mutex<Vec<(Duration, u64)>>,
}

impl Log {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            stopping: AtomicBool::new(false),
            saves: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            interruptions: Mutex::default(),
            slow: Mutex::default(),
            late: Mutex::default(),
            memory: Mutex::default(),
        }
    }

    fn goes_on(&self) -> bool {
        !self.stopping.load(Relaxed)
    }

    fn interruption<T>(&self, work: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        let done = work();
        self.interruptions.lock().unwrap().push((from, Instant::now() + RECOVERY));
        done
    }

    /// Returns the slow saves that neither an interruption nor the machine explains, with the time
    /// that each took beyond the machine's own stall.
    fn stalls(&self) -> Vec<Duration> {
        let (interruptions, late) = (self.interruptions.lock().unwrap(), self.late.lock().unwrap());
        let unexplained = |&(from, to): &(Instant, Instant)| {
            let meets = |&(start, end): &(Instant, Instant)| from < end && start < to;
            let own = late.iter().filter(|(at, _)| (from..=to).contains(at)).map(|(_, late)| *late).max();
            let stall = (to - from).saturating_sub(own.unwrap_or_default());
            (stall > STALL && !interruptions.iter().any(meets)).then_some(stall)
        };
        self.slow.lock().unwrap().iter().filter_map(unexplained).collect()
    }

    /// Returns the mean resident memory between two parts of the soak, in bytes.
    fn mean_memory(&self, from: f64, to: f64, length: Duration) -> f64 {
        let samples = self.memory.lock().unwrap();
        let within = |at: &Duration| (from..to).contains(&(at.as_secs_f64() / length.as_secs_f64()));
        let values: Vec<_> = samples.iter().filter(|(at, _)| within(at)).map(|(_, bytes)| *bytes as f64).collect();
        values.iter().sum::<f64>() / values.len() as f64
    }
}

/// The running server, its disk, and its clock.
struct World {
    server: Server,
    disk: Disk,
    clock: FalseClock,
}

impl World {
    fn new(scratch: &Path) -> Self {
        let (disk, clock) = (Disk::new(DISK_MIB).unwrap(), FalseClock::new(scratch, 0).unwrap());
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Server::builder()
            .data(disk.path().join("data"))
            .config("settled_retention_seconds = 300\nmin_free_disk_mib = 0\n")
            .listen(format!("127.0.0.1:{port}"))
            .leave_stderr_unread();
        Self { server: clock.given_to(server).start().unwrap(), disk, clock }
    }

    /// Kills the server and starts it again.
    fn kill(&mut self) {
        self.server.restart().unwrap();
    }

    /// Fills the disk until the server can't write, makes room and starts the server again.
    fn run_out_of_disk_space(&mut self, log: &Log) {
        self.disk.fill(0).unwrap();
        // `fill` leaves less than a MiB, which the savers use up. Then no save succeeds any more.
        let (mut saves, mut unchanged_since) = (log.saves.load(Relaxed), Instant::now());
        wait(Duration::from_secs(20), || {
            let previous = std::mem::replace(&mut saves, log.saves.load(Relaxed));
            if saves != previous {
                unchanged_since = Instant::now();
            }
            unchanged_since.elapsed() >= Duration::from_secs(1)
        });
        self.disk.empty().unwrap();
        self.server.restart().unwrap();
    }

    /// Sets the server's clock ahead by more than a day, and back.
    fn jump(&self) {
        self.clock.set(90_000).unwrap();
        wait(Duration::from_secs(8), || false);
        self.clock.set(0).unwrap();
        wait(Duration::from_secs(2), || false);
    }
}

/// Waits for a condition, at most for `time`.
fn wait(time: Duration, mut is_met: impl FnMut() -> bool) {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let end = Instant::now() + time;
    while Instant::now() < end && !is_met() {
        // The channel has no message, so this waits for its timeout.
        let _ = receiver.recv_timeout(Duration::from_millis(50).min(time));
    }
    drop(sender);
}

fn claim(name: &str, id: u64) -> Claim {
    let claim = Claim::new(BucketType::Usernames, name).with_subject(SubjectType::User, 7);
    claim.with_source(SourceType::RailsTableUsers, id)
}

/// Repeats a call until it is answered. Each call has a deadline; a begin keeps its key, and commits
/// may be repeated.
async fn until_answered<T, F: Future<Output = Result<T, Error>>>(mut call: impl FnMut() -> F) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(Error::Unanswered(_)) => {}
            Err(Error::Refused(refusal))
                if matches!(refusal.kind(), RefusalKind::Overloaded | RefusalKind::Unavailable | RefusalKind::Busy) => {
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Saves until the soak ends. Returns the names that the server has acknowledged and the saver has
/// not given up.
async fn save_names(client: Client, number: u64, log: Arc<Log>) -> BTreeSet<String> {
    let (mut names, mut next, mut pace) = (BTreeSet::new(), 0, interval(Duration::from_millis(20)));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while log.goes_on() {
        pace.tick().await;
        let created: Vec<_> = (0..1 + next % 3).map(|at| format!("saver-{number}-{}", next + at)).collect();
        next += 3;
        let given_up: Vec<String> = names.iter().take(names.len().saturating_sub(NAMES)).cloned().collect();
        let key = format!("{number}-{next}");
        let from = Instant::now();
        let begin = || {
            let update = client.update(SAVED).idempotency_key(&key);
            let update = update.creates(created.iter().map(|name| claim(name, number)));
            update.destroys(given_up.iter().map(|name| claim(name, number))).begin()
        };
        let Lease { uuid, .. } = until_answered(begin).await;
        if next % 10 == 0 {
            until_answered(|| client.rollback(SAVED, uuid)).await;
        } else {
            until_answered(|| client.commit(SAVED, uuid)).await;
            names.extend(created);
            given_up.iter().for_each(|name| _ = names.remove(name));
        }
        if from.elapsed() > STALL {
            log.slow.lock().unwrap().push((from, Instant::now()));
        }
        log.saves.fetch_add(1, Relaxed);
    }
    names
}

/// Lists records and leases of all cells, some with deadlines that are too short.
async fn list(client: Client, log: Arc<Log>) {
    let hasty = client.clone().with_timeout(Duration::from_millis(3)).with_retry(RetryPolicy::default().once());
    let table = RecordQuery { source_type: SourceType::RailsTableUsers.into(), ..RecordQuery::default() };
    let mut pace = interval(Duration::from_millis(250));
    while log.goes_on() {
        pace.tick().await;
        for cell in [SAVED, GONE] {
            let _ = hasty.list_records(cell, &table).await;
            let _ = client.list_records(cell, &table).await;
            let _ = client.list_leases(cell, &LeaseQuery::default()).await;
        }
    }
}

/// Begins updates and gives up waiting for the answer. If the server has begun a lease
/// nevertheless, rolls it back, as reconciliation does.
async fn begin_and_leave(client: Client, log: Arc<Log>) {
    let hasty = client.clone().with_timeout(Duration::from_millis(1)).with_retry(RetryPolicy::default().once());
    let (mut next, mut pace) = (0, interval(Duration::from_millis(20)));
    while log.goes_on() {
        pace.tick().await;
        next += 1;
        let update = hasty.update(GONE).create(claim(&format!("gone-{next}"), next));
        log.cancelled.fetch_add(u64::from(update.begin().await.is_err()), Relaxed);
        if next % 100 == 0 {
            roll_back_all(&client).await;
        }
    }
    roll_back_all(&client).await;
}

async fn roll_back_all(client: &Client) {
    let query = LeaseQuery::default();
    let page = until_answered(|| client.list_leases(GONE, &query)).await;
    for lease in page.leases {
        until_answered(|| client.rollback(GONE, lease.uuid)).await;
    }
}

/// Records how late the machine runs a thread that asks to be run every five milliseconds.
fn watch_the_machine(log: &Log) {
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    let pause = Duration::from_millis(5);
    while log.goes_on() {
        let from = Instant::now();
        let _ = receiver.recv_timeout(pause);
        let late = from.elapsed().saturating_sub(pause);
        if late > Duration::from_millis(20) {
            log.late.lock().unwrap().push((Instant::now(), late));
        }
    }
}

/// Interrupts the server in each turn of [`TURNS`], and records its memory until the soak ends. A
/// soak that is too short for all turns leaves the last of them out, but for the kill at the end.
fn interrupt(world: &mut World, log: &Log, length: Duration) {
    for (at, turn) in TURNS {
        let begin = log.start + length.mul_f64(at);
        if at < 1.0 && log.start.elapsed() >= length {
            continue;
        }
        wait(begin.saturating_duration_since(Instant::now()), || {
            log.memory.lock().unwrap().push((log.start.elapsed(), memory(&world.server, "VmRSS")));
            false
        });
        log.interruption(|| match turn {
            Turn::Kill => world.kill(),
            Turn::FullDisk => world.run_out_of_disk_space(log),
            Turn::Jump => world.jump(),
        });
    }
}

fn load(client: &Client, log: &Arc<Log>) -> (JoinSet<BTreeSet<String>>, JoinSet<()>) {
    let (mut savers, mut others) = (JoinSet::new(), JoinSet::new());
    for number in 0..SAVERS {
        savers.spawn(save_names(client.clone(), number, log.clone()));
    }
    for _ in 0..2 {
        others.spawn(list(client.clone(), log.clone()));
    }
    others.spawn(begin_and_leave(client.clone(), log.clone()));
    (savers, others)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soak_loses_no_acknowledged_save() {
    let length = std::env::var(SECONDS).map_or(15, |text| text.parse().unwrap());
    let length = Duration::from_secs(length);
    let (scratch, log) = (tempfile::TempDir::new().unwrap(), Arc::new(Log::new()));
    let mut world = World::new(scratch.path());
    let client = Client::builder(format!("http://{}", world.server.address())).build().unwrap();
    let (savers, others) = load(&client, &log);
    let machine = std::thread::spawn({
        let log = log.clone();
        move || watch_the_machine(&log)
    });
    let mut world = tokio::task::spawn_blocking({
        let log = log.clone();
        move || {
            interrupt(&mut world, &log, length);
            world
        }
    })
    .await
    .unwrap();
    log.stopping.store(true, Relaxed);
    let expected: BTreeSet<_> = savers.join_all().await.into_iter().flatten().collect();
    others.join_all().await;
    machine.join().unwrap();
    let shown = client.get(&Bucket::new(BucketType::Usernames, expected.first().unwrap())).await.unwrap();
    assert_eq!(shown.record.lease_uuid, None);

    world.server.read_stderr();
    assert!(world.server.terminate().unwrap().success());
    let state = state(&export(world.server.data()).unwrap()).unwrap();
    let owned = state.claims.iter().filter(|(_, claim)| claim.owner == CellId(SAVED));
    let found: BTreeSet<_> = owned.map(|(key, _)| key.canonical.to_string()).collect();
    assert_eq!(found.symmetric_difference(&expected).collect::<Vec<_>>(), Vec::<&String>::new());
    report(&log, length);
}

/// Returns the mean resident memory of each twelfth of the soak, in MiB.
fn memory_series(log: &Log, length: Duration) -> Vec<u64> {
    let part = |at: u32| (f64::from(at) / 12.0, f64::from(at + 1) / 12.0);
    let mib = |(from, to)| (log.mean_memory(from, to, length) / f64::from(1 << 20)) as u64;
    (0..12).map(part).map(mib).collect()
}

/// Prints the counts of the soak. Checks the stalls and the memory of a long soak.
fn report(log: &Log, length: Duration) {
    let stalls = log.stalls();
    let growth = log.mean_memory(0.75, 1.0, length) / log.mean_memory(0.25, 0.5, length);
    println!("stalls beyond the machine's own: {stalls:?}; memory of the last quarter to the second: {growth:.3}");
    println!("memory in MiB by twelfths: {:?}", memory_series(log, length));
    let counts = BTreeMap::from([
        ("saves", log.saves.load(Relaxed)),
        ("cancelled_begins", log.cancelled.load(Relaxed)),
        ("interruptions", log.interruptions.lock().unwrap().len() as u64),
        ("stalls", stalls.len() as u64),
    ]);
    println!("counts: {}", serde_json::to_string(&counts).unwrap());
    if length >= LONG {
        assert!(stalls.is_empty() && growth <= 1.05, "see the line above");
    }
}

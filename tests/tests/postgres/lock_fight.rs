//! A fight for few locks on two servers, which a seeded script kills, suspends and cuts off from
//! their database. Each client keeps the history of what it was told. One order of all grants of a
//! lock must explain the histories, and guarded transactions commit in this order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_client::Stub;
use leasehold_core::guard;
use leasehold_core::standing::Deadlines;
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::locks::v1::acquire_lock_response::News;
use leasehold_proto::leasehold::sessions::v1::{OpenSessionRequest, RenewSessionRequest};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{Refusal, eventually};
use nix::sys::signal::Signal;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Runtime;
use tokio::task::{AbortHandle, JoinSet, block_in_place};
use tokio::time::{interval, timeout};
use tonic::transport::Channel;

use crate::NO_SYNC;
use crate::link::{Fault, Link};
use crate::lock_servers::server;

const KEYS: usize = 6;
const CLIENTS: u64 = 12;
/// The least duration of the fight in seconds, unless `LEASEHOLD_LOCK_FIGHT_SECONDS` is set.
const SECONDS: u64 = 3;
/// The longest time by which slow clients extend a fight.
const LONGEST_EXTENSION: Duration = Duration::from_secs(60);
/// The numbers of grants and of committed transactions below which a fight proves little.
const ENOUGH_GRANTS: u64 = 30;
const ENOUGH_COMMITS: u64 = 20;
const DURATION_MICROS: u64 = 1_000_000;
const GRACE_MICROS: u64 = 600_000;
/// The longest time that a client waits for an answer.
const IMPATIENT: Duration = Duration::from_millis(300);
/// The longest time that a client waits for a lock.
const WAIT_MICROS: u64 = 1_000_000;
/// The time between two looks of a holder at its deadline.
const LOOK: Duration = Duration::from_millis(5);
/// The longest pause of a client that comes back to its work.
const PAUSE: Duration = Duration::from_secs(8);
/// The step of the script of faults.
const STEP: Duration = Duration::from_millis(100);

/// A grant, as a client was told of it.
#[derive(Clone, Debug)]
struct Grant {
    key: usize,
    fence: u64,
    told_at: Instant,
    // The last moment at which the client could work under the lock, by its own clock.
    believed_until: Instant,
}

/// Returns the first two grants of one lock, in the order of their fences, whose holders overlap.
fn overlap(grants: &[Grant]) -> Option<(Grant, Grant)> {
    let mut grants = grants.to_vec();
    grants.sort_by_key(|grant| (grant.key, grant.fence));
    let pairs = grants.windows(2).filter(|pair| pair[0].key == pair[1].key);
    let overlaps = |pair: &[Grant]| pair[0].fence == pair[1].fence || pair[1].told_at < pair[0].believed_until;
    pairs.into_iter().find(|pair| overlaps(pair)).map(|pair| (pair[0].clone(), pair[1].clone()))
}

#[test]
fn k05_k06_overlapping_holders_and_fences_that_fall_are_found() {
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    let grant = |fence, told, until| Grant { key: 0, fence, told_at: at(told), believed_until: at(until) };
    assert!(overlap(&[grant(1, 0, 5), grant(3, 8, 9), grant(2, 5, 8)]).is_none());
    assert!(overlap(&[grant(1, 0, 6), grant(2, 5, 8)]).is_some(), "two holders at once");
    assert!(overlap(&[grant(2, 0, 5), grant(1, 5, 8)]).is_some(), "a later grant with a smaller fence");
    assert!(overlap(&[grant(1, 0, 5), grant(1, 5, 8)]).is_some(), "a fence that came twice");
    let other = Grant { key: 1, ..grant(2, 1, 2) };
    assert!(overlap(&[grant(1, 0, 5), other]).is_none(), "locks are independent");
}

/// The state that all clients share.
struct Arena {
    stubs: [Stub<Channel>; 2],
    is_over: AtomicBool,
    grants: AtomicU64,
    committed: AtomicU64,
    refused: AtomicU64,
    // The newest fence of a committed transaction, by key.
    written: [AtomicU64; KEYS],
    // What a client was told against its own deadline.
    lies: Mutex<Vec<String>>,
}

impl Arena {
    fn note_lie(&self, text: String) {
        self.lies.lock().unwrap().push(text);
    }

    /// Returns true if enough locks were granted and enough transactions committed.
    fn has_enough(&self) -> bool {
        let [grants, commits] = [&self.grants, &self.committed].map(|count| count.load(Ordering::SeqCst));
        grants > ENOUGH_GRANTS && commits > ENOUGH_COMMITS
    }

    fn stub(&self, rng: &mut SmallRng) -> Stub<Channel> {
        self.stubs[rng.random_range(0..2)].clone()
    }
}

/// A session that renews itself at any server. Dropping it ends the renewals.
struct Session {
    id: Vec<u8>,
    // The time from which on the client knows that the session is lost.
    lost_at: Arc<Mutex<Instant>>,
    renewals: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.renewals.abort();
    }
}

fn deadlines() -> Deadlines {
    Deadlines::new(DURATION_MICROS, GRACE_MICROS)
}

/// Returns the time at which a session is lost that was renewed by a call sent at this time.
fn held_until(sent_at: Instant) -> Instant {
    sent_at + Duration::from_micros(deadlines().held_micros())
}

impl Session {
    async fn open(arena: &Arc<Arena>, rng: &mut SmallRng) -> Option<Self> {
        let id = rng.random::<[u8; 16]>().to_vec();
        let sent_at = Instant::now();
        let (duration_micros, grace_micros) = (DURATION_MICROS, GRACE_MICROS);
        let request = OpenSessionRequest { session_id: id.clone(), duration_micros, grace_micros };
        timeout(IMPATIENT, arena.stub(rng).open_session(request)).await.ok()?.ok()?;
        let lost_at = Arc::new(Mutex::new(held_until(sent_at)));
        let (arena, rng) = (arena.clone(), SmallRng::seed_from_u64(rng.random()));
        let renewals = tokio::spawn(keep(arena, rng, id.clone(), lost_at.clone())).abort_handle();
        Some(Self { id, lost_at, renewals })
    }

    fn lost_at(&self) -> Instant {
        *self.lost_at.lock().unwrap()
    }
}

/// Renews a session at any server until it is lost.
async fn keep(arena: Arc<Arena>, mut rng: SmallRng, id: Vec<u8>, lost_at: Arc<Mutex<Instant>>) {
    let mut pauses = interval(Duration::from_micros(deadlines().renewal_micros()));
    loop {
        pauses.tick().await;
        let sent_at = Instant::now();
        let request = RenewSessionRequest { session_id: id.clone() };
        let answer = timeout(IMPATIENT, arena.stub(&mut rng).renew_session(request)).await;
        let mut lost_at = lost_at.lock().unwrap();
        // A session that its client knows as lost never comes back (K02).
        if *lost_at <= Instant::now() {
            return;
        }
        match answer {
            Ok(Ok(_)) => *lost_at = held_until(sent_at),
            Ok(Err(status)) if Refusal::of(&status).reason == "SESSION_ENDED" => {
                arena.note_lie(format!("a session has ended {:?} before its deadline", *lost_at - Instant::now()));
                return;
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

/// A client with a connection to its own database, which has the guard.
struct Fighter {
    arena: Arc<Arena>,
    rng: SmallRng,
    database: tokio_postgres::Client,
    history: Vec<Grant>,
}

/// The end of a client's work under a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The client releases the lock.
    Release,
    /// The client ends, and its session with it.
    Die,
    /// The client is paused until a later holder has written, and then writes as if it still held the
    /// lock.
    Pause,
}

impl Fighter {
    async fn run(mut self) -> Vec<Grant> {
        while !self.arena.is_over.load(Ordering::SeqCst) {
            let Some(session) = Session::open(&self.arena, &mut self.rng).await else { continue };
            for _ in 0..self.rng.random_range(2..12) {
                if !self.fight(&session).await {
                    break;
                }
            }
        }
        self.history
    }

    /// Acquires a lock and works under it. Returns false if the session must be given up.
    async fn fight(&mut self, session: &Session) -> bool {
        let key = self.rng.random_range(0..KEYS);
        let Some(fence) = self.acquire(session, key).await else { return false };
        let told_at = Instant::now();
        if session.lost_at() <= told_at {
            return false;
        }
        self.arena.grants.fetch_add(1, Ordering::SeqCst);
        let mut believed_until = self.work(session, key, fence).await;
        let fate = match self.rng.random_range(0..20) {
            0 => Fate::Die,
            1 => Fate::Pause,
            _ => Fate::Release,
        };
        if fate != Fate::Release {
            session.renewals.abort();
            believed_until = session.lost_at();
        }
        self.history.push(Grant { key, fence, told_at, believed_until });
        match fate {
            Fate::Release => self.release(session, key, fence).await,
            Fate::Die => false,
            Fate::Pause => {
                self.write_late(key, fence).await;
                false
            }
        }
    }

    /// Waits until a later holder has written, and writes as if the lock were still held.
    async fn write_late(&self, key: usize, fence: u64) {
        let (mut looks, begin) = (interval(LOOK), Instant::now());
        let is_passed = || self.arena.written[key].load(Ordering::SeqCst) > fence;
        while !is_passed() && begin.elapsed() < PAUSE && !self.arena.is_over.load(Ordering::SeqCst) {
            looks.tick().await;
        }
        let must_fail = is_passed();
        let answer = self.write(key, fence, Duration::from_secs(60)).await;
        if must_fail && answer != Err(guard::FENCE_PASSED) {
            self.arena.note_lie(format!("a transaction under the passed fence {fence}: {answer:?}"));
        }
    }

    /// Works under a lock for a while, or until the session is lost. Returns the last moment at which
    /// the client believed in the lock.
    async fn work(&mut self, session: &Session, key: usize, fence: u64) -> Instant {
        let until = Instant::now() + Duration::from_millis(self.rng.random_range(0..100));
        let writes = self.rng.random_ratio(3, 4);
        let mut looks = interval(LOOK);
        loop {
            let now = Instant::now();
            let remaining = session.lost_at().saturating_duration_since(now);
            if remaining.is_zero() || now >= until {
                return now.min(session.lost_at());
            }
            let is_passed = writes && self.write(key, fence, remaining).await == Err(guard::FENCE_PASSED);
            if is_passed && Instant::now() < session.lost_at() {
                self.arena.note_lie(format!("the fence {fence} has passed in the time of its holder"));
            }
            looks.tick().await;
        }
    }

    /// Writes in a guarded transaction. An error is the guard's SQLSTATE.
    async fn write(&self, key: usize, fence: u64, remaining: Duration) -> Result<(), &'static str> {
        let micros = remaining.as_micros();
        let guarded = format!(
            "BEGIN; SELECT leasehold_guard('key-{key}', {fence}, interval '{micros} microseconds');
             INSERT INTO writes (key, fence) VALUES ({key}, {fence}); COMMIT"
        );
        let Err(error) = self.database.batch_execute(&guarded).await else {
            self.arena.committed.fetch_add(1, Ordering::SeqCst);
            self.arena.written[key].fetch_max(fence, Ordering::SeqCst);
            return Ok(());
        };
        self.database.batch_execute("ROLLBACK").await.unwrap();
        self.arena.refused.fetch_add(1, Ordering::SeqCst);
        let state = error.code().map(|code| code.code().to_owned());
        let states = [guard::FENCE_PASSED, guard::SESSION_LOST];
        Err(states.into_iter().find(|known| state.as_deref() == Some(known)).unwrap_or_else(|| panic!("{error:?}")))
    }

    /// Acquires a lock at any server. An acquire without an answer is repeated under the same ask.
    async fn acquire(&mut self, session: &Session, key: usize) -> Option<u64> {
        let ask_id = self.rng.random::<[u8; 16]>().to_vec();
        while Instant::now() < session.lost_at() {
            let request = wire::AcquireLockRequest {
                session_id: session.id.clone(),
                ask_id: ask_id.clone(),
                lock: Some(wire::LockPath { namespace: "fight".into(), key: key.to_string(), slot: 0 }),
                wait_micros: WAIT_MICROS,
                ..Default::default()
            };
            let mut stub = self.arena.stub(&mut self.rng);
            let asked = async {
                let mut stream = stub.acquire_lock(request).await?.into_inner();
                while let Some(message) = stream.message().await? {
                    if let Some(News::Fence(fence)) = message.news {
                        return Ok(Some(fence));
                    }
                }
                Ok::<_, tonic::Status>(None)
            };
            match timeout(IMPATIENT + Duration::from_micros(WAIT_MICROS), asked).await {
                Ok(Ok(Some(fence))) => return Some(fence),
                Ok(Err(status)) if ["LOCK_HELD", "SESSION_ENDED"].contains(&&*Refusal::of(&status).reason) => break,
                _ => {}
            }
        }
        None
    }

    /// Releases a lock at any server. Returns true if a server has answered.
    async fn release(&mut self, session: &Session, key: usize, fence: u64) -> bool {
        let lock = Some(wire::LockPath { namespace: "fight".into(), key: key.to_string(), slot: 0 });
        let session_id = session.id.clone();
        let request = wire::ReleaseLockRequest { session_id, lock, fence, failed: false, value: Vec::new() };
        for _ in 0..3 {
            let mut stub = self.arena.stub(&mut self.rng);
            if let Ok(Ok(_)) = timeout(IMPATIENT, stub.release_lock(request.clone())).await {
                return true;
            }
        }
        false
    }
}

/// A server of the fight, with the script of its faults.
struct Target {
    server: Server,
    link: Link,
    rng: SmallRng,
}

impl Target {
    /// Kills, suspends or cuts off the server again and again, until the time is over and the clients
    /// have done enough. Returns the number of faults.
    async fn torment(&mut self, arena: &Arena, fight_for: Duration) -> u64 {
        let (mut steps, mut faults, begin) = (interval(STEP), 0, Instant::now());
        let longest = fight_for + LONGEST_EXTENSION;
        while begin.elapsed() < fight_for || (!arena.has_enough() && begin.elapsed() < longest) {
            for _ in 0..self.rng.random_range(3..12) {
                steps.tick().await;
            }
            let fault = self.rng.random_range(0..6);
            match fault {
                0 => _ = self.server.kill_9().unwrap(),
                1 => self.server.suspend().unwrap(),
                fault => self.link.cut(Fault::ALL[fault - 2]),
            }
            for _ in 0..self.rng.random_range(2..16) {
                steps.tick().await;
            }
            match fault {
                0 => block_in_place(|| self.server.restart().unwrap()),
                1 => self.server.signal(Signal::SIGCONT).unwrap(),
                _ => self.link.heal(),
            }
            faults += 1;
        }
        faults
    }
}

/// Installs the guard in the clients' own database. Returns a connection for each client.
async fn databases(url: &str) -> Vec<tokio_postgres::Client> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        clients.push(client);
    }
    clients[0].batch_execute(guard::SQL).await.unwrap();
    let table = "CREATE TABLE writes (number bigserial PRIMARY KEY, key int NOT NULL, fence bigint NOT NULL)";
    clients[0].batch_execute(table).await.unwrap();
    clients
}

/// Asserts that the committed transactions of each lock took the guard in the order of their fences.
async fn check_writes(url: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let disorder =
        "SELECT FROM (SELECT fence, lag(fence) OVER (PARTITION BY key ORDER BY number) AS former FROM writes)
        AS w WHERE fence < former";
    assert!(client.query(disorder, &[]).await.unwrap().is_empty(), "a transaction committed under a passed fence");
}

#[test]
fn k05_k06_k18_a_fight_under_kills_stops_and_cuts_is_linearizable() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let seed = number("SEED").unwrap_or_else(rand::random);
    let fight_for = Duration::from_secs(number("LEASEHOLD_LOCK_FIGHT_SECONDS").unwrap_or(SECONDS));
    println!("SEED={seed}");
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let [database, own] = [0; 2].map(|_| cluster.database().unwrap());
    let mut targets = [1, 2].map(|number| {
        let link = Link::start(cluster.port());
        let server = server(&link.url(&database));
        Target { server, link, rng: SmallRng::seed_from_u64(seed.wrapping_add(number)) }
    });
    let url = cluster.url(&own);
    Runtime::new().unwrap().block_on(fight(&mut targets, &url, seed, fight_for));
}

async fn fight([one, two]: &mut [Target; 2], url: &str, seed: u64, fight_for: Duration) {
    let channel = |target: &Target| target.server.endpoint(None).unwrap().connect_lazy();
    let (is_over, [grants, committed, refused]) = (AtomicBool::new(false), Default::default());
    let stubs = [channel(one), channel(two)].map(Stub::new);
    let arena = Arc::new(Arena {
        stubs,
        is_over,
        grants,
        committed,
        refused,
        written: Default::default(),
        lies: Mutex::default(),
    });
    let mut fighters = JoinSet::new();
    for (number, database) in (3..).zip(databases(url).await) {
        let rng = SmallRng::seed_from_u64(seed.wrapping_add(number));
        fighters.spawn(Fighter { arena: arena.clone(), rng, database, history: Vec::new() }.run());
    }
    let (first, second) = tokio::join!(one.torment(&arena, fight_for), two.torment(&arena, fight_for));
    let grants = || arena.grants.load(Ordering::SeqCst);
    let before = grants();
    eventually("locks pass on after the fight", async || (grants() > before + 5).then_some(())).await.unwrap();
    arena.is_over.store(true, Ordering::SeqCst);
    let history: Vec<Grant> = fighters.join_all().await.concat();
    let (committed, refused) = (arena.committed.load(Ordering::SeqCst), arena.refused.load(Ordering::SeqCst));
    println!(
        "counts: {{\"grants\":{},\"faults\":{},\"committed\":{committed},\"refused\":{refused}}}",
        history.len(),
        first + second
    );
    assert!(arena.has_enough(), "{} grants, {committed} transactions", history.len());
    assert_eq!(*arena.lies.lock().unwrap(), [""; 0]);
    if let Some((former, later)) = overlap(&history) {
        panic!("two holders of one lock: {former:?} and {later:?}");
    }
    check_writes(url).await;
}

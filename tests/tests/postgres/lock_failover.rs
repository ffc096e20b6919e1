//! Tests of a failover: the database of two servers ends under a thousand held locks. It starts again, or
//! its standby takes its place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_client::{Stub, WorkOutcome};
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::sessions::v1::RenewSessionRequest;
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::Refusal;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tonic::transport::Channel;

use crate::lock_servers::{LONG, PATIENT, open, path, server, session, stub, take};
use crate::{NO_SYNC, await_condition};

const SESSIONS: usize = 50;
const LOCKS_PER_SESSION: usize = 20;
/// The sessions whose clients end with the database.
const SILENT: usize = 10;
const DURATION: u64 = 3;
/// The clients that renew outlast a machine that stalls.
const GRACE: u64 = 9;
/// The silence after which a session may expire.
const SILENCE: Duration = Duration::from_secs(DURATION + GRACE);
const PAUSE: Duration = Duration::from_millis(300);

/// A client that holds locks, and renews its session until it is told to be silent.
struct Holder {
    number: usize,
    session: Vec<u8>,
    stub: Stub<Channel>,
    // The time at which the last renewal was sent that was answered.
    renewed_at: Mutex<Instant>,
    is_silent: AtomicBool,
}

impl Holder {
    async fn open(number: usize, server: &Server) -> Self {
        let session = open(server, DURATION, GRACE).await;
        let (renewed_at, is_silent) = (Mutex::new(Instant::now()), AtomicBool::new(false));
        Self { number, session, stub: stub(server).await, renewed_at, is_silent }
    }

    fn key(&self, lock: usize) -> String {
        format!("{}-{lock}", self.number)
    }

    async fn hold_all(&self) {
        for lock in 0..LOCKS_PER_SESSION {
            let ask_id = [vec![u8::try_from(lock).unwrap()], self.session[1..].to_vec()].concat();
            self.try_acquire(ask_id, &self.key(lock)).await.unwrap();
        }
    }

    /// Acquires a lock now or never. Returns the reason of a refusal.
    async fn try_acquire(&self, ask_id: Vec<u8>, key: &str) -> Result<u64, String> {
        let session_id = self.session.clone();
        let request = wire::TryAcquireLockRequest { session_id, ask_id, lock: Some(path(key)), ..Default::default() };
        let answer = self.stub.clone().try_acquire_lock(request).await;
        answer.map(|answer| answer.into_inner().fence).map_err(|status| Refusal::of(&status).reason)
    }

    async fn keep(&self) {
        let mut pauses = interval(PAUSE);
        while !self.is_silent.load(Ordering::SeqCst) {
            pauses.tick().await;
            let sent_at = Instant::now();
            let request = RenewSessionRequest { session_id: self.session.clone() };
            match timeout(SILENCE, self.stub.clone().renew_session(request)).await {
                Ok(Ok(_)) => *self.renewed_at.lock().unwrap() = sent_at,
                Ok(Err(status)) => assert_eq!(Refusal::of(&status).reason, "STORE_UNAVAILABLE", "{}", self.number),
                Err(_) => {}
            }
        }
    }

    fn silence(&self) -> Duration {
        self.renewed_at.lock().unwrap().elapsed()
    }
}

/// The fence and the session of each held lock.
async fn held(server: &Server) -> BTreeMap<String, (u64, Vec<u8>)> {
    let (mut stub, mut held, mut after) = (stub(server).await, BTreeMap::new(), None);
    loop {
        let request = wire::ListLocksRequest { namespace: "user.update".into(), limit: 500, after };
        let page = stub.list_locks(request).await.unwrap().into_inner();
        after = page.locks.last().and_then(|lock| lock.path.clone());
        held.extend(page.locks.into_iter().map(|lock| (lock.path.unwrap().key, (lock.fence, lock.session_id))));
        if !page.truncated {
            return held;
        }
    }
}

/// Acquires and releases one lock again and again, until the test is over.
async fn work(server: &Server, is_over: Arc<AtomicBool>) -> JoinSet<u64> {
    let (session, mut work) = (session(server, LONG).await, JoinSet::new());
    work.spawn(async move {
        let (mut newest, mut grants) = (0, 0);
        while !is_over.load(Ordering::SeqCst) {
            let Ok(Some(lock)) = session.lock("fight", "busy", PATIENT).await else { continue };
            assert!(lock.fence() > newest, "the fence {} came after {newest}", lock.fence());
            (newest, grants) = (lock.fence(), grants + 1);
            // A release without an answer is repeated: the session outlives the test.
            while session.release(&lock, WorkOutcome::Succeeded, b"").await.is_err() {}
        }
        grants
    });
    work
}

/// Waits at the other server for one lock of each silent session. Returns the times of the grants.
async fn heirs(server: &Server, holders: &[Arc<Holder>]) -> JoinSet<Instant> {
    let mut heirs = JoinSet::new();
    for holder in holders {
        let (session, key) = (session(server, LONG).await, holder.key(0));
        heirs.spawn(async move {
            take(&session, &key, PATIENT).await.unwrap();
            Instant::now()
        });
    }
    heirs
}

/// Asserts that a stranger gets none of the locks of these sessions, a few of each.
async fn try_all(stranger: Arc<Holder>, holders: &[Arc<Holder>]) {
    let mut tries = JoinSet::new();
    for holder in holders {
        let (stranger, holder) = (stranger.clone(), holder.clone());
        tries.spawn(async move {
            for lock in (0..LOCKS_PER_SESSION).step_by(5) {
                let ask_id = rand::random::<[u8; 16]>().to_vec();
                let refused = stranger.try_acquire(ask_id, &holder.key(lock)).await.unwrap_err();
                assert_eq!(refused, "LOCK_HELD", "{}", holder.key(lock));
            }
        });
    }
    tries.join_all().await;
}

#[test]
fn k06_k07_a_crash_of_the_database_loses_none_of_a_thousand_locks_and_grants_none_twice() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    lose_none(&url, cluster, |cluster| cluster.restart().unwrap());
}

#[test]
fn k06_k07_a_failover_to_a_standby_loses_none_of_a_thousand_locks_and_grants_none_twice() {
    let primary = Cluster::start(NO_SYNC).unwrap();
    let database = primary.database().unwrap();
    let standby = primary.standby().unwrap();
    let url = format!("postgres://leasehold@127.0.0.1:{},127.0.0.1:{}/{database}", primary.port(), standby.port());
    lose_none(&url, primary, |_| standby.promote().unwrap());
}

/// Crashes a cluster under a thousand locks of two servers, and lets `recover` bring a database back.
fn lose_none(url: &str, mut cluster: Cluster, recover: impl FnOnce(&mut Cluster)) {
    let (servers, runtime) = ([server(url), server(url)], Runtime::new().unwrap());
    let opened = async {
        let mut opening = JoinSet::new();
        for number in 0..SESSIONS {
            let holder = Arc::new(Holder::open(number, &servers[number % 2]).await);
            opening.spawn(async move {
                let keep = holder.clone();
                tokio::select! { () = holder.hold_all() => {}, () = keep.keep() => {} }
                holder
            });
        }
        opening.join_all().await
    };
    let mut holders = runtime.block_on(opened);
    holders.sort_by_key(|holder| holder.number);
    let mut keeping = JoinSet::new();
    for holder in holders.clone() {
        keeping.spawn_on(async move { holder.keep().await }, runtime.handle());
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let [work, other_work] = servers.each_ref().map(|server| runtime.block_on(work(server, is_over.clone())));
    let (silent, kept) = holders.split_at(SILENT);
    let heirs = runtime.block_on(heirs(&servers[1], silent));
    let before = runtime.block_on(held(&servers[0]));

    silent.iter().for_each(|holder| holder.is_silent.store(true, Ordering::SeqCst));
    cluster.crash().unwrap();
    await_condition("each session is silent for longer than its terms", || {
        holders.iter().all(|holder| holder.silence() > SILENCE)
    });
    let restored_at = Instant::now();
    recover(&mut cluster);
    await_condition("each client has renewed its session", || kept.iter().all(|holder| holder.silence() < SILENCE));
    runtime.block_on(async {
        let stranger = Arc::new(Holder::open(SESSIONS, &servers[1]).await);
        let keep = stranger.clone();
        tokio::select! { () = try_all(stranger, kept) => {}, () = keep.keep() => {} }
    });
    for granted_at in runtime.block_on(heirs.join_all()) {
        assert!(granted_at >= restored_at + SILENCE, "granted {:?} after the database", granted_at - restored_at);
    }
    is_over.store(true, Ordering::SeqCst);
    let grants = runtime.block_on(async { [work.join_all().await[0], other_work.join_all().await[0]] });
    println!("{grants:?} grants of the busy lock");
    let after = runtime.block_on(held(&servers[1]));
    for key in kept.iter().flat_map(|holder| (0..LOCKS_PER_SESSION).map(|lock| holder.key(lock))) {
        assert_eq!(after.get(&key), before.get(&key), "{key}");
        assert!(before.contains_key(&key), "{key}");
    }
    holders.iter().for_each(|holder| holder.is_silent.store(true, Ordering::SeqCst));
    runtime.block_on(keeping.join_all());
}

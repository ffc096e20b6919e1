//! Tests of an upgrade of servers that serve sessions and locks: a former version with the same
//! tables and the present one share a database. `LEASEHOLD_FORMER_LOCKS_BINARY` names the former
//! version's binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test stops at what it does not expect"
)]

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use leasehold_client::{Client, LockSession, SessionTerms, Stub, WorkOutcome};
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::sessions::v1::{OpenSessionRequest, RenewSessionRequest};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::{DEVELOPMENT_CELLS, Server};
use leasehold_tests::wire::{Refusal, eventually};
use tokio::runtime::Runtime;
use tokio::time::interval;
use tonic::Status;

/// Terms that never pass in a test.
const LONG: SessionTerms = SessionTerms { duration: Duration::from_secs(3_600), grace: Duration::from_secs(60) };
/// A wait that no test reaches.
const PATIENT: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::ZERO;
/// The positions of the versions among two servers.
const FORMER: usize = 0;
const PRESENT: usize = 1;
/// The duration, and the grace, of a session that its test renews, in seconds.
const SHORT: u64 = 1;

/// A server of each version. Each has the same address after a restart.
struct Versions {
    former: Server,
    present: Server,
}

impl Versions {
    /// The former version makes the tables, and the present one finds them.
    fn start(cluster: &Cluster) -> Self {
        let former: PathBuf =
            std::env::var_os("LEASEHOLD_FORMER_LOCKS_BINARY").expect("the former version is named").into();
        let config =
            format!("[postgres]\nurl = \"{}\"\n{DEVELOPMENT_CELLS}", cluster.url(&cluster.database().unwrap()));
        let server = || {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            Server::builder().config(config.clone()).listen(format!("127.0.0.1:{port}"))
        };
        let (former, present) = (server().binary(former), server());
        let reaped = "[[locks.reaped]]\nnamespaces = [\"reaped\"]\n";
        let present = present.config(format!("{config}{reaped}"));
        Self { former: former.start().unwrap(), present: present.start().unwrap() }
    }

    /// Returns the two servers in both orders.
    fn both_ways(&self) -> [[&Server; 2]; 2] {
        [[&self.former, &self.present], [&self.present, &self.former]]
    }
}

/// Plays a test on two versions. A cluster may be dropped only outside of a runtime.
fn play(test: impl AsyncFnOnce(Versions)) {
    let cluster = Cluster::start(&["fsync=off"]).unwrap();
    let versions = Versions::start(&cluster);
    Runtime::new().unwrap().block_on(test(versions));
}

async fn session(server: &Server) -> LockSession {
    let client = Client::builder(format!("http://{}", server.address())).build().unwrap();
    client.lock_session(LONG).await.unwrap()
}

fn path(key: &str) -> wire::LockPath {
    wire::LockPath { namespace: "upgrade".into(), key: key.into(), slot: 0 }
}

async fn get(server: &Server, key: &str) -> wire::Lock {
    let mut stub = Stub::new(server.connect(None).await.unwrap());
    stub.get_lock(wire::GetLockRequest { lock: Some(path(key)) }).await.unwrap().into_inner().lock.unwrap()
}

/// A session that only the test renews, and the fence of the lock that it holds.
struct Holder {
    id: Vec<u8>,
    key: String,
    fence: u64,
}

impl Holder {
    async fn open(server: &Server, key: &str, seconds: u64) -> Self {
        let mut stub = Stub::new(server.connect(None).await.unwrap());
        let (id, micros) = (rand::random::<[u8; 16]>().to_vec(), seconds * 1_000_000);
        let open = OpenSessionRequest { session_id: id.clone(), duration_micros: micros, grace_micros: micros };
        stub.open_session(open).await.unwrap();
        let ask_id = rand::random::<[u8; 16]>().to_vec();
        let ask =
            wire::TryAcquireLockRequest { session_id: id.clone(), ask_id, lock: Some(path(key)), ..Default::default() };
        let fence = stub.try_acquire_lock(ask).await.unwrap().into_inner().fence;
        Self { id, key: key.to_owned(), fence }
    }

    async fn renew(&self, server: &Server) -> Result<(), Status> {
        let mut stub = Stub::new(server.connect(None).await.unwrap());
        stub.renew_session(RenewSessionRequest { session_id: self.id.clone() }).await.map(drop)
    }

    /// Renews the session at these servers in turn, several times at each.
    async fn renew_in_turn(&self, servers: [&Server; 2]) {
        let mut pauses = interval(Duration::from_millis(400));
        for turn in 0..12 {
            pauses.tick().await;
            self.renew(servers[turn / 3 % 2]).await.unwrap();
        }
    }

    async fn is_held(&self, server: &Server) -> bool {
        get(server, &self.key).await.fence == self.fence
    }
}

/// Passes a lock from a holder at one server to those that wait at both.
async fn hand_over([from, to]: [&Server; 2], key: &str) {
    let (holder, next, last) = (session(from).await, session(to).await, session(from).await);
    let held = holder.lock("upgrade", key, NOW).await.unwrap().unwrap();
    let wait = async |session: &LockSession| session.lock("upgrade", key, PATIENT).await.unwrap().unwrap();
    let until_waiting = async |count| {
        let is_waiting = async || (get(to, key).await.waiting == count).then_some(());
        eventually("the asks wait", is_waiting).await.unwrap();
    };
    let release = async {
        until_waiting(2).await;
        holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    };
    let pass_on = async {
        let lock = wait(&next).await;
        assert!(lock.fence() > held.fence());
        next.release(&lock, WorkOutcome::Succeeded, b"").await.unwrap();
        lock.fence()
    };
    let receive = async {
        until_waiting(1).await;
        wait(&last).await.fence()
    };
    let (former, later, ()) = tokio::join!(pass_on, receive, release);
    assert!(later > former, "{later} after {former}");
}

#[test]
fn k05_k08_locks_pass_between_two_versions_in_the_order_of_arrival() {
    play(async |versions: Versions| {
        for (number, servers) in versions.both_ways().into_iter().enumerate() {
            hand_over(servers, &format!("passes-{number}")).await;
        }
    });
}

#[test]
fn k02_k06_a_session_renews_at_two_versions_and_expires_at_either() {
    play(async |versions: Versions| {
        for (number, servers) in versions.both_ways().into_iter().enumerate() {
            let holder = Holder::open(servers[0], &format!("moves-{number}"), SHORT).await;
            holder.renew_in_turn(servers).await;
            for server in servers {
                assert!(holder.is_held(server).await);
            }
            // The last home is the second server. An heir waits at the first one.
            let (heir, silent_since) = (session(servers[0]).await, Instant::now());
            holder.renew(servers[1]).await.unwrap();
            let lock = heir.lock("upgrade", &holder.key, PATIENT).await.unwrap().unwrap();
            assert!(lock.fence() > holder.fence);
            assert!(silent_since.elapsed() >= Duration::from_secs(2 * SHORT), "{:?}", silent_since.elapsed());
            for server in servers {
                assert_eq!(Refusal::of(&holder.renew(server).await.unwrap_err()).reason, "SESSION_ENDED");
            }
        }
    });
}

/// The server at the position `stops` stops or is killed, and the other one adopts its sessions.
async fn adopt(mut servers: [Server; 2], stops: usize, kills: bool) {
    let stays = 1 - stops;
    let kept = Holder::open(&servers[stops], "kept", 600).await;
    let silent = Holder::open(&servers[stops], "silent", SHORT).await;
    let heir = session(&servers[stays]).await;
    let since = Instant::now();
    match kills {
        true => _ = servers[stops].kill_9().unwrap(),
        false => assert!(servers[stops].terminate().unwrap().success()),
    }
    let lock = heir.lock("upgrade", &silent.key, PATIENT).await.unwrap().unwrap();
    assert!(lock.fence() > silent.fence);
    assert!(since.elapsed() >= Duration::from_secs(2 * SHORT), "{:?}", since.elapsed());
    assert!(kept.is_held(&servers[stays]).await);
    kept.renew(&servers[stays]).await.unwrap();
    let restarted = servers[stops].restart();
    if stops == FORMER {
        let refusal = restarted.unwrap_err().to_string();
        assert!(refusal.contains("newer than the"), "{refusal}");
        return;
    }
    restarted.unwrap();
    kept.renew(&servers[stops]).await.unwrap();
    assert!(kept.is_held(&servers[stops]).await);
}

/// A server of the former version that has stopped does not start any more: the present one has
/// changed the tables.
#[test]
fn k06_k22_each_version_adopts_the_sessions_of_the_other_that_stops_or_is_killed() {
    for (stops, kills) in [(FORMER, false), (PRESENT, false), (FORMER, true), (PRESENT, true)] {
        play(async |Versions { former, present }: Versions| adopt([former, present], stops, kills).await);
    }
}

/// A lock that waits for its cleanup, or is held by its cleaner, is not granted by a server that knows
/// no cleanups (K17).
#[test]
fn k17_the_former_version_grants_no_lock_before_its_cleanup() {
    play(async |Versions { former, present }| {
        let (holder, cleaner, next) = (session(&present).await, session(&present).await, session(&former).await);
        holder.lock("reaped", "q", NOW).await.unwrap().unwrap();
        holder.close().await.unwrap();
        let refused = |taken: Result<Option<_>, leasehold_client::Error>| assert!(!matches!(taken, Ok(Some(_))));
        refused(next.lock("reaped", "q", NOW).await);
        let orphan = cleaner.reap("reaped").await.unwrap();
        refused(next.lock("reaped", "q", NOW).await);
        cleaner.release(orphan.lock(), WorkOutcome::Succeeded, b"").await.unwrap();
        assert!(next.lock("reaped", "q", NOW).await.unwrap().is_some());
    });
}

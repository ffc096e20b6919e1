//! A test of a server that loses the answer to its own write of sessions and locks.

use std::time::{Duration, Instant};

use leasehold_proto::leasehold::locks::v1::ForceLockRequest;
use leasehold_proto::leasehold::sessions::v1::EvictSessionRequest;
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{Refusal, eventually};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tonic::Status;

use crate::NO_SYNC;
use crate::cuts::{Heir, IMPATIENT, adopted};
use crate::lock_servers::{hold, open, path, renew, server, stub};
use crate::proxy::{Cut, Proxy};

/// Returns the answer to a renewal; `None` if it does not arrive in time.
async fn renew_in_time(server: &Server, session: &[u8]) -> Option<Result<Vec<u64>, String>> {
    let answer = timeout(IMPATIENT, renew(server, session)).await.ok()?;
    Some(answer.map_err(|status| Refusal::of(&status).reason))
}

/// A server behind a proxy, which takes the answers to commits from it.
struct Home {
    proxy: Proxy,
    server: Server,
}

impl Home {
    fn start(cluster: &Cluster, database: &str) -> Self {
        let proxy = Proxy::start(cluster.port());
        let server = server(&proxy.url(database));
        Self { proxy, server }
    }

    /// Takes the answer to the next commit, and evicts a session.
    async fn evict(&self, cut: Cut, session_id: Vec<u8>) -> Result<(), Status> {
        self.proxy.cut_next(cut);
        stub(&self.server).await.evict_session(EvictSessionRequest { session_id }).await.map(drop)
    }

    /// Renews an evicted session until its client is told of the end. Asserts that the lock of the session
    /// passed on only when the client knew of its loss. `silence` is the sum of its duration and grace.
    async fn check_eviction(&self, session: &[u8], heir: Heir, fence: u64, silence: Duration) {
        let mut last = Instant::now();
        let told = eventually("the home knows that the session was evicted", async || {
            let sent_at = Instant::now();
            let answer = renew_in_time(&self.server, session).await?;
            answer.map(|_| last = sent_at).err()
        });
        assert_eq!(told.await.unwrap(), "SESSION_ENDED");
        let granted_at = heir.granted_after(fence).await;
        // The client counts the silence, less one sixteenth for the drift of clocks.
        assert!(granted_at >= last + silence - silence / 16, "granted {:?} after a renewal", granted_at - last);
    }
}

/// The connection of a writer breaks after a COMMIT, while the connections for vouches stay. The
/// writer finds the changes made when it tries again, so they are no changes of its own.
async fn lose_answers(home: &Home, other: &Server) {
    let Home { proxy, server } = home;
    // The silent session outlasts the commits before its end on a machine that stalls, too.
    let [evicted, forced, silent] = [open(server, 1, 6).await, open(server, 60, 5).await, open(server, 1, 6).await];
    let fences = [
        hold(server, &evicted, 1, "evicted").await,
        hold(server, &forced, 2, "forced").await,
        hold(server, &silent, 3, "silent").await,
    ];
    let evicted_heir = Heir::wait_at(other, "evicted".into()).await;
    let silent_heir = Heir::wait_at(other, "silent".into()).await;
    renew(server, &silent).await.unwrap();

    home.evict(Cut::After, evicted.clone()).await.unwrap();
    proxy.cut_next(Cut::After);
    let force = ForceLockRequest { lock: Some(path("forced")), fence: fences[1], at_once: true };
    // The second attempt finds that the fence holds no lock any more.
    let forced_again = stub(server).await.force_lock(force).await.unwrap_err();
    assert_eq!(Refusal::of(&forced_again).reason, "FENCE_PASSED");
    // The next commit is the end of the silent session.
    proxy.cut_next(Cut::After);

    home.check_eviction(&evicted, evicted_heir, fences[0], Duration::from_secs(7)).await;
    let is_told = async || (renew_in_time(server, &forced).await? == Ok(vec![fences[1]])).then_some(());
    eventually("the home tells the holder that its lock was taken", is_told).await.unwrap();
    silent_heir.granted_after(fences[2]).await;
    let told = eventually("the home knows of the silence", async || renew_in_time(server, &silent).await?.err());
    assert_eq!((told.await.unwrap().as_str(), proxy.cuts()), ("SESSION_ENDED", 3));
    assert_eq!(adopted(other).await, 0, "a server that vouches keeps its sessions");
}

/// The answer to a COMMIT never arrives. The writer waits for it, much longer than a window.
async fn wait_for_an_answer(home: &Home, other: &Server) {
    let evicted = open(&home.server, 1, 1).await;
    let fence = hold(&home.server, &evicted, 4, "unanswered").await;
    let heir = Heir::wait_at(other, "unanswered".into()).await;
    let sent_at = Instant::now();
    let eviction = async {
        home.evict(Cut::SilenceAfter, evicted.clone()).await.unwrap();
        sent_at.elapsed()
    };
    let check = home.check_eviction(&evicted, heir, fence, Duration::from_secs(2));
    let (waited, ()) = tokio::join!(eviction, check);
    assert!(waited > Duration::from_secs(2), "the writer waited for {waited:?} alone");
}

#[test]
fn k06_k20_a_server_that_lost_the_answer_to_its_own_write_learns_what_it_wrote() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let [losing, waiting] = [0; 2].map(|_| Home::start(&cluster, &database));
    let other = server(&cluster.url(&database));
    Runtime::new().unwrap().block_on(async {
        tokio::join!(lose_answers(&losing, &other), wait_for_an_answer(&waiting, &other));
    });
}

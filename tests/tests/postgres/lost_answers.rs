//! A test of a server that loses the answer to its own write of sessions and locks.

use std::time::{Duration, Instant};

use leasehold_proto::leasehold::locks::v1::ForceLockRequest;
use leasehold_proto::leasehold::sessions::v1::EvictSessionRequest;
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{Refusal, eventually};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::NO_SYNC;
use crate::cuts::{Heir, IMPATIENT, adopted};
use crate::lock_servers::{hold, open, path, renew, server, stub};
use crate::proxy::{Cut, Proxy};

/// Returns the answer to a renewal; `None` if it does not arrive in time.
async fn renew_in_time(server: &Server, session: &[u8]) -> Option<Result<Vec<u64>, String>> {
    let answer = timeout(IMPATIENT, renew(server, session)).await.ok()?;
    Some(answer.map_err(|status| Refusal::of(&status).reason))
}

/// Plays a test on a server whose commits can lose their answers, and on a server beside it.
fn play_with_lost_answers(test: impl AsyncFnOnce(&Proxy, &Server, &Server)) {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let (database, proxy) = (cluster.database().unwrap(), Proxy::start(cluster.port()));
    let (home, other) = (server(&proxy.url(&database)), server(&cluster.url(&database)));
    Runtime::new().unwrap().block_on(test(&proxy, &home, &other));
}

/// The connection of a writer breaks after a COMMIT, while the connections for vouches stay. The
/// writer finds the changes made when it tries again, so they are no changes of its own.
#[test]
fn k06_k20_a_server_that_lost_the_answer_to_its_own_write_learns_what_it_wrote() {
    play_with_lost_answers(async |proxy, home, other| {
        let [evicted, forced, silent] = [open(home, 1, 1).await, open(home, 60, 5).await, open(home, 1, 1).await];
        let fences = [
            hold(home, &evicted, 1, "evicted").await,
            hold(home, &forced, 2, "forced").await,
            hold(home, &silent, 3, "silent").await,
        ];
        let evicted_heir = Heir::wait_at(other, "evicted".into()).await;
        let silent_heir = Heir::wait_at(other, "silent".into()).await;
        renew(home, &silent).await.unwrap();

        proxy.cut_next(Cut::After);
        let evict = EvictSessionRequest { session_id: evicted.clone() };
        stub(home).await.evict_session(evict).await.unwrap();
        proxy.cut_next(Cut::After);
        let force = ForceLockRequest { lock: Some(path("forced")), fence: fences[1], at_once: true };
        // The second attempt finds that the fence holds no lock any more.
        let forced_again = stub(home).await.force_lock(force).await.unwrap_err();
        assert_eq!(Refusal::of(&forced_again).reason, "FENCE_PASSED");
        // The next commit is the end of the silent session.
        proxy.cut_next(Cut::After);

        let mut last = Instant::now();
        let told = eventually("the home knows that the session was evicted", async || {
            let sent_at = Instant::now();
            let answer = renew_in_time(home, &evicted).await?;
            answer.map(|_| last = sent_at).err()
        });
        assert_eq!(told.await.unwrap(), "SESSION_ENDED");
        let granted_at = evicted_heir.granted_after(fences[0]).await;
        // The client counts two seconds, less one sixteenth for the drift of clocks.
        assert!(granted_at >= last + Duration::from_millis(1_875), "granted {:?} after a renewal", granted_at - last);
        let is_told = async || (renew_in_time(home, &forced).await? == Ok(vec![fences[1]])).then_some(());
        eventually("the home tells the holder that its lock was taken", is_told).await.unwrap();
        silent_heir.granted_after(fences[2]).await;
        let told = eventually("the home knows of the silence", async || renew_in_time(home, &silent).await?.err());
        assert_eq!((told.await.unwrap().as_str(), proxy.cuts()), ("SESSION_ENDED", 3));
        for server in [home, other] {
            assert_eq!(adopted(server).await, 0, "a server that vouches keeps its sessions");
        }
    });
}

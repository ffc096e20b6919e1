//! Tests of servers that are cut off from their database, in both directions or in one, while their
//! clients still reach them.

use std::time::{Duration, Instant};

use leasehold_client::{LockSession, SessionTerms, Standing, Stub, WorkOutcome};
use leasehold_proto::leasehold::sessions::v1::{OpenSessionRequest, RenewSessionRequest};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{self, Refusal, eventually};
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, timeout};
use tonic::transport::Channel;

use crate::NO_SYNC;
use crate::link::{Fault, Link};
use crate::lock_servers::{LONG, NOW, PATIENT, get, hold, open, renew, renew_for, server, session, stub, take};

/// The terms of the sessions whose server is cut off, in seconds. The grace is long: their
/// server answers renewals from memory for a while, and a machine that stalls ends none of them.
const DURATION: u64 = 1;
const GRACE: u64 = 10;
const TERMS: SessionTerms = SessionTerms { duration: Duration::from_secs(DURATION), grace: Duration::from_secs(GRACE) };
/// The age from which on a vouch covers no renewal: half of the grace.
const WINDOW: Duration = Duration::from_secs(GRACE / 2);
/// The silence after which a session may expire.
const SILENCE: Duration = Duration::from_secs(DURATION + GRACE);
/// The time between two renewals of a client that knows of no fault.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest time that such a client waits for an answer.
pub(crate) const IMPATIENT: Duration = Duration::from_millis(300);

/// A server behind a link that is cut, and the fault of the link.
struct CutServer {
    fault: Fault,
    link: Link,
    server: Server,
}

impl CutServer {
    fn start(cluster: &Cluster, database: &str, fault: Fault) -> Self {
        let link = Link::start(cluster.port());
        let server = server(&link.url(database));
        Self { fault, link, server }
    }

    fn key(&self, name: &str) -> String {
        format!("{:?}-{name}", self.fault)
    }

    /// Opens a session at this server, which holds a lock. Returns the session and the lock's fence.
    async fn hold(&self, ask: u8, name: &str) -> (Vec<u8>, u64) {
        let session = open(&self.server, DURATION, GRACE).await;
        let fence = hold(&self.server, &session, ask + 10 * self.fault as u8, &self.key(name)).await;
        (session, fence)
    }
}

/// Another client's ask for a lock, at a server that is not cut off.
pub(crate) struct Heir(JoinHandle<(Instant, u64)>);

impl Heir {
    pub(crate) async fn wait_at(server: &Server, key: String) -> Self {
        let session = session(server, LONG).await;
        Self(tokio::spawn(async move {
            let lock = take(&session, &key, PATIENT).await.unwrap();
            (Instant::now(), lock.fence())
        }))
    }

    /// Waits for the grant, and returns its time.
    pub(crate) async fn granted_after(self, former: u64) -> Instant {
        let (granted_at, fence) = self.0.await.unwrap();
        assert!(fence > former, "{fence} after {former}");
        granted_at
    }
}

/// Renews a session until its server has given no answer for longer than a window. Returns the time
/// at which the last call was sent that was answered, if one was.
async fn renew_until_unanswered(server: &Server, session: &[u8]) -> Option<Instant> {
    let (mut stub, mut last, begin) = (stub(server).await, None, Instant::now());
    let mut pauses = interval(PAUSE);
    while last.unwrap_or(begin).elapsed() < WINDOW + IMPATIENT {
        pauses.tick().await;
        let sent_at = Instant::now();
        let request = RenewSessionRequest { session_id: session.to_vec() };
        if let Ok(Ok(_)) = timeout(IMPATIENT, stub.renew_session(request)).await {
            assert!(sent_at < begin + 3 * WINDOW, "the server answers renewals without a vouch");
            last = Some(sent_at);
        }
    }
    last
}

/// Waits until the client knows that its session is lost. Returns the times at which it was told of
/// its jeopardy and of the loss.
async fn told_of_loss(session: &LockSession) -> (Instant, Instant) {
    session.standing().wait_for(|standing| *standing != Standing::Safe).await.unwrap();
    let jeopardy_at = Instant::now();
    session.lost().await;
    (jeopardy_at, Instant::now())
}

#[test]
fn k06_k11_no_lock_has_two_holders_when_servers_are_cut_off_from_the_database() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let [whole, other] = [0; 2].map(|_| server(&cluster.url(&database)));
    let [frozen, deaf, mute, closed] = Fault::ALL.map(|fault| CutServer::start(&cluster, &database, fault));
    Runtime::new().unwrap().block_on(async {
        let [frozen, deaf, mute, closed] = [&frozen, &deaf, &mute, &closed].map(|cut| cut_and_heal(cut, &whole));
        tokio::join!(frozen, deaf, mute, closed, move_many(&whole, &other));
        assert!(adopted(&whole).await + adopted(&other).await >= 4, "each session that stays is adopted");
    });
}

/// Returns the number of sessions that the server has adopted.
pub(crate) async fn adopted(server: &Server) -> u64 {
    let (_, metrics) = wire::get(server.address(), "/metrics").await.unwrap();
    let count = metrics.lines().find_map(|line| line.strip_prefix("leasehold_sessions_adopted_total "));
    count.unwrap().parse().unwrap()
}

/// Plays the fault of one server. Each of its sessions has a client of another kind:
///
/// - one stays, and renews at the cut server alone,
/// - one moves, and renews at the other server from then on,
/// - one renews at the other server once, and then at the cut server alone,
/// - one is the client of the library.
async fn cut_and_heal(cut: &CutServer, whole: &Server) {
    let server = &cut.server;
    let ((stays, stay_fence), (moves, move_fence), (strays, stray_fence)) =
        (cut.hold(1, "stays").await, cut.hold(2, "moves").await, cut.hold(3, "strays").await);
    let told = session(server, TERMS).await;
    let told_fence = take(&told, &cut.key("told"), NOW).await.unwrap().fence();
    let [stay_heir, stray_heir, told_heir] = [
        Heir::wait_at(whole, cut.key("stays")).await,
        Heir::wait_at(whole, cut.key("strays")).await,
        Heir::wait_at(whole, cut.key("told")).await,
    ];
    for session in [&stays, &moves, &strays] {
        renew(server, session).await.unwrap();
    }

    cut.link.cut(cut.fault);
    let cut_at = Instant::now();
    // The answers of both sessions are from memory. They end with the window of the last vouch.
    let check_last = async |session: &[u8], heir: Heir, fence: u64| {
        let last = renew_until_unanswered(server, session).await.expect("a young vouch covers renewals");
        assert!(last < cut_at + WINDOW, "{:?}: answered {:?} after the cut", cut.fault, last - cut_at);
        let granted_at = heir.granted_after(fence).await;
        assert!(granted_at >= last + SILENCE, "{:?}: granted {:?} after a renewal", cut.fault, granted_at - last);
    };
    let stay = check_last(&stays, stay_heir, stay_fence);
    let stray = async {
        renew(whole, &strays).await.unwrap();
        check_last(&strays, stray_heir, stray_fence).await;
    };
    let tell = async {
        let (jeopardy_at, lost_at) = told_of_loss(&told).await;
        // The client judges its session at each eighth of the grace.
        let latest = cut_at + WINDOW + TERMS.duration + TERMS.grace / 8 + IMPATIENT;
        assert!(jeopardy_at < latest, "{:?}: told {:?} after the cut", cut.fault, jeopardy_at - cut_at);
        assert!(lost_at < told_heir.granted_after(told_fence).await, "{:?}", cut.fault);
    };
    let others = async { tokio::join!(stay, stray, tell) };
    tokio::pin!(others);
    let whole_alone = [whole];
    loop {
        tokio::select! {
            _ = &mut others => break,
            () = renew_for(Duration::from_secs(1), &whole_alone, &moves) => {},
        }
    }
    assert_eq!(get(whole, &cut.key("moves")).await.fence, move_fence, "{:?}", cut.fault);

    cut.link.heal();
    let both = [server, whole];
    eventually("the cut server serves again", async || renew(server, &moves).await.ok()).await.unwrap();
    for server in both {
        assert_eq!(get(server, &cut.key("moves")).await.fence, move_fence);
        for lost in [&stays, &strays] {
            assert_eq!(Refusal::of(&renew(server, lost).await.unwrap_err()).reason, "SESSION_ENDED");
        }
        let next = session(server, LONG).await;
        let lock = take(&next, &cut.key("next"), NOW).await.unwrap();
        next.release(&lock, WorkOutcome::Succeeded, b"").await.unwrap();
    }
}

/// The number of sessions that move at different moments between two vouches of their former home.
const MOVING: u64 = 20;
/// The silence after which such a session may expire.
const BRIEF: Duration = Duration::from_millis(1_500);

/// Opens a session of a second and a half at one server, and lets it move to the other one just before
/// it expires. Returns true if it moved in time, and was then renewed in time.
async fn move_late([mut from, mut to]: [Stub<Channel>; 2], number: u64) -> bool {
    let mut moments = interval(Duration::from_millis(50));
    for _ in 0..=number {
        moments.tick().await;
    }
    let session_id = rand::random::<[u8; 16]>().to_vec();
    let (duration_micros, grace_micros) = (1_000_000, 500_000);
    let request = OpenSessionRequest { session_id: session_id.clone(), duration_micros, grace_micros };
    from.open_session(request).await.unwrap();
    for _ in 0..26 {
        moments.tick().await;
    }
    let renewal = RenewSessionRequest { session_id };
    let mut sent_at = Instant::now();
    if to.renew_session(renewal.clone()).await.is_err() {
        return false;
    }
    for _ in 0..24 {
        moments.tick().await;
        let last = std::mem::replace(&mut sent_at, Instant::now());
        let is_renewed = to.renew_session(renewal.clone()).await.is_ok();
        let silence = last.elapsed();
        if !is_renewed && silence >= BRIEF {
            return false;
        }
        assert!(is_renewed, "session {number} has ended {silence:?} after a renewal");
    }
    true
}

/// The former home proposes the end of most of these sessions before it learns that they have moved. On
/// a machine that stalls they move too late, and further ones are tried.
async fn move_many(from: &Server, to: &Server) {
    let stubs = [stub(from).await, stub(to).await];
    let (begin, mut moved) = (Instant::now(), 0);
    while moved <= MOVING / 2 {
        assert!(begin.elapsed() < PATIENT, "{moved} of {MOVING} sessions moved in time");
        let mut moving = JoinSet::new();
        (0..MOVING).for_each(|number| _ = moving.spawn(move_late(stubs.clone(), number)));
        moved = moving.join_all().await.into_iter().filter(|has_moved| *has_moved).count() as u64;
    }
}

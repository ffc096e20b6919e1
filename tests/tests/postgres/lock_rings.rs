//! Tests of rings: a server that writes a grant calls the server where the next process waits. The
//! servers are real, and other servers are suspended, unreachable or without rights.

use std::time::{Duration, Instant};

use leasehold_client::Stub;
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::locks::v1::acquire_lock_response::News;
use leasehold_proto::leasehold::peers::v1::RingRequest;
use leasehold_proto::leasehold::peers::v1::peer_service_client::PeerServiceClient;
use leasehold_proto::leasehold::sessions::v1::OpenSessionRequest;
use leasehold_tests::certificates::{Authority, Pair};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::rung::{RungServer, in_plain_text};
use leasehold_tests::wire::{Refusal, eventually};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::{interval, timeout};
use tonic::transport::{Channel, ClientTlsConfig};
use tonic::{Code, Streaming};
use uuid::Uuid;

use crate::NO_SYNC;

/// The longest time in which a hand-over must be over, whatever happens to its ring.
const PATIENT: Duration = Duration::from_secs(30);
/// The time for which a process has waited before its lock is released. The pause between two reads
/// is the longest by then.
const LONG_ENOUGH: Duration = Duration::from_millis(1_100);
const HAND_OVERS: usize = 20;

/// A server with a session of the test.
struct Node {
    rung: RungServer,
    stub: Stub<Channel>,
    session: Vec<u8>,
}

fn random_id() -> Vec<u8> {
    Uuid::from_u128(rand::random()).as_bytes().to_vec()
}

impl Node {
    async fn of(rung: RungServer, tls: Option<ClientTlsConfig>) -> Self {
        let stub = Stub::new(rung.server.connect(tls).await.unwrap());
        let session = random_id();
        let (duration_micros, grace_micros) = (3_600_000_000, 60_000_000);
        let request = OpenSessionRequest { session_id: session.clone(), duration_micros, grace_micros };
        stub.clone().open_session(request).await.unwrap();
        Self { rung, stub, session }
    }

    /// Acquires a lock under a session of this or another server. Returns the first news, and the rest.
    async fn acquire(&self, session: &[u8], key: &str) -> (News, Streaming<wire::AcquireLockResponse>) {
        let lock = Some(wire::LockPath { namespace: "user.update".into(), key: key.into(), slot: 0 });
        let wait_micros = u64::try_from(PATIENT.as_micros()).unwrap();
        let request = wire::AcquireLockRequest {
            session_id: session.to_vec(),
            ask_id: random_id(),
            lock,
            wait_micros,
            ..Default::default()
        };
        let mut stream = self.stub.clone().acquire_lock(request).await.unwrap().into_inner();
        (stream.message().await.unwrap().unwrap().news.unwrap(), stream)
    }

    /// Takes a free lock, and returns its fence.
    async fn hold(&self, key: &str) -> u64 {
        match self.acquire(&self.session, key).await.0 {
            News::Fence(fence) => fence,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for a lock that another process holds, under a session of this or another server.
    async fn wait(&self, session: &[u8], key: &str) -> Streaming<wire::AcquireLockResponse> {
        let (news, stream) = self.acquire(session, key).await;
        assert_eq!(news, News::Waiting(0));
        stream
    }

    async fn release(&self, key: &str, fence: u64) {
        let lock = Some(wire::LockPath { namespace: "user.update".into(), key: key.into(), slot: 0 });
        let session_id = self.session.clone();
        let request = wire::ReleaseLockRequest { session_id, lock, fence, failed: false, value: vec![] };
        self.stub.clone().release_lock(request).await.unwrap();
    }

    /// Returns the number of rings with this outcome.
    async fn rings(&self, outcome: &str) -> u64 {
        self.rung.rings("lock", outcome).await.unwrap()
    }

    async fn await_rings(&self, outcome: &str, count: u64) {
        self.rung.await_rings("lock", outcome, count).await.unwrap();
    }
}

async fn granted(mut stream: Streaming<wire::AcquireLockResponse>) -> u64 {
    match timeout(PATIENT, stream.message()).await.unwrap().unwrap().unwrap().news {
        Some(News::Fence(fence)) => fence,
        other => panic!("{other:?}"),
    }
}

/// Passes a lock on from one server to another. Returns the time from the release to the grant.
async fn hand_over(from: &Node, to: &Node, waits_for: Duration) -> Duration {
    let key = Uuid::from_u128(rand::random()).to_string();
    let fence = from.hold(&key).await;
    let stream = to.wait(&to.session, &key).await;
    let (began, mut ticks) = (Instant::now(), interval(Duration::from_millis(10)));
    while began.elapsed() < waits_for {
        ticks.tick().await;
    }
    let released = Instant::now();
    let ((), next) = tokio::join!(from.release(&key, fence), granted(stream));
    let took = released.elapsed();
    assert!(next > fence);
    to.release(&key, next).await;
    took
}

/// Passes locks on until the servers know each other's addresses.
async fn await_first_ring(from: &Node, to: &Node) {
    let rung = async || {
        hand_over(from, to, Duration::ZERO).await;
        (from.rings("sent").await > 0).then_some(())
    };
    eventually("a server is rung", rung).await.unwrap();
}

async fn median(from: &Node, to: &Node) -> Duration {
    let mut times = Vec::new();
    for _ in 0..HAND_OVERS {
        times.push(hand_over(from, to, LONG_ENOUGH).await);
    }
    times.sort();
    times[HAND_OVERS / 2]
}

/// Plays a test on two servers of one database. A cluster may be dropped only outside of a runtime.
fn play(settings: [&dyn Fn(u16) -> String; 2], test: impl AsyncFnOnce(Node, Node, &str)) {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let [one, two] = settings.map(|settings| RungServer::start(&url, settings).unwrap());
    Runtime::new().unwrap().block_on(async { test(Node::of(one, None).await, Node::of(two, None).await, &url).await });
}

#[test]
fn k08_k09_a_hand_over_between_servers_is_rung_and_faster_than_the_reads() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let urls = [cluster.url(&cluster.database().unwrap()), cluster.url(&cluster.database().unwrap())];
    let ringing =
        [RungServer::start(&urls[0], in_plain_text).unwrap(), RungServer::start(&urls[0], in_plain_text).unwrap()];
    let reading = [
        RungServer::start(&urls[1], |_| String::new()).unwrap(),
        RungServer::start(&urls[1], |_| String::new()).unwrap(),
    ];
    Runtime::new().unwrap().block_on(async {
        let [one, two] = ringing.map(|rung| Node::of(rung, None));
        let (one, two) = (one.await, two.await);
        let [three, four] = reading.map(|rung| Node::of(rung, None));
        let (three, four) = (three.await, four.await);
        await_first_ring(&one, &two).await;
        let received = two.rings("received").await;
        let (rung, read) = tokio::join!(median(&one, &two), median(&three, &four));
        println!("median of a hand-over: {rung:?} with rings, {read:?} without");
        assert!(rung * 3 < read, "{rung:?} with rings, {read:?} without");
        // On a busy machine a ring may be late, and the server is then left alone for some of them.
        two.await_rings("received", received + u64::try_from(HAND_OVERS / 2).unwrap()).await;
        assert_eq!(two.rings("sent").await, 0, "only the server that grants a lock rings");
        assert_eq!((three.rings("sent").await, three.rings("failed").await), (0, 0));
    });
}

#[test]
fn k08_the_server_of_the_waiting_call_is_rung_and_a_local_hand_over_rings_nobody() {
    play([&in_plain_text, &in_plain_text], async |one, two, url| {
        await_first_ring(&one, &two).await;
        let (sent, received) = (one.rings("sent").await, two.rings("received").await);
        let fence = one.hold("local").await;
        let stream = one.wait(&one.session, "local").await;
        one.release("local", fence).await;
        granted(stream).await;
        // The waiter's session lives at the server that releases, and its call is elsewhere.
        let fence = one.hold("elsewhere").await;
        let stream = two.wait(&one.session, "elsewhere").await;
        one.release("elsewhere", fence).await;
        granted(stream).await;
        one.await_rings("sent", sent + 1).await;
        // A server of version 8 does not note which server's call waits. Then the session's home is rung.
        let fence = one.hold("older").await;
        let stream = two.wait(&two.session, "older").await;
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let older = "UPDATE lock_asks SET attendant = NULL WHERE key = 'older'";
        assert_eq!(client.execute(older, &[]).await.unwrap(), 2);
        drop(client);
        connection.await.unwrap().unwrap();
        one.release("older", fence).await;
        granted(stream).await;
        one.await_rings("sent", sent + 2).await;
        assert_eq!((one.rings("sent").await, two.rings("received").await), (sent + 2, received + 2));
    });
}

#[test]
fn k09_a_wrong_address_costs_the_delay_of_a_read_only() {
    // No program listens on port 1.
    let wrong = |_| in_plain_text(1);
    play([&in_plain_text, &wrong], async |one, two, _| {
        let failed = async || {
            assert!(hand_over(&one, &two, Duration::ZERO).await < PATIENT);
            (one.rings("failed").await > 0).then_some(())
        };
        eventually("a ring fails", failed).await.unwrap();
        assert!(one.rung.server.has_logged("another server can't be rung at its `locks.peer_address`"));
        hand_over(&one, &two, LONG_ENOUGH).await;
        assert_eq!((one.rings("sent").await, two.rings("received").await), (0, 0));
    });
}

#[test]
fn k09_a_server_that_hangs_delays_no_release() {
    play([&in_plain_text, &in_plain_text], async |one, two, _| {
        await_first_ring(&one, &two).await;
        let mut waits = Vec::new();
        for number in 0..10 {
            let key = format!("{number}");
            waits.push((one.hold(&key).await, two.wait(&two.session, &key).await, key));
        }
        two.rung.server.suspend().unwrap();
        let started = Instant::now();
        for (fence, _, key) in &waits {
            one.release(key, *fence).await;
        }
        let took = started.elapsed();
        // A ring takes a second until it fails, and there are ten.
        assert!(took < Duration::from_secs(5), "{took:?}");
        one.await_rings("failed", 1).await;
        two.rung.server.signal(Signal::SIGCONT).unwrap();
        for (fence, stream, _) in waits {
            assert!(granted(stream).await > fence);
        }
        // The server was left alone meanwhile.
        assert!(one.rings("failed").await <= 2, "{}", one.rings("failed").await);
    });
}

/// The files of two servers with TLS on the loopback address, with one certificate.
struct Files {
    directory: TempDir,
    authority: Authority,
}

impl Files {
    fn new(authority: Authority, server: &Pair) -> Self {
        let files = Self { directory: TempDir::new().unwrap(), authority };
        let write = |name: &str, text: &str| std::fs::write(files.directory.path().join(name), text).unwrap();
        write("server.pem", &server.certificate);
        write("server.key", &server.key);
        write("ca.pem", &files.authority.pem());
        files
    }

    fn settings(&self, port: u16) -> String {
        let path = |name: &str| self.directory.path().join(name);
        format!(
            "[locks]\npeer_address = \"https://127.0.0.1:{port}\"\n\
             [[locks.access]]\ncaller = \"service/billing\"\nnamespaces = [\"user\"]\n\
             [tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n",
            path("server.pem"),
            path("server.key"),
            path("ca.pem"),
        )
    }

    fn client(&self, uri: &str) -> ClientTlsConfig {
        self.authority.client_config(Some(&self.authority.client(&[uri]).unwrap()))
    }

    /// Plays a test on two servers of one database. The test's calls are those of a service.
    fn play(&self, test: impl AsyncFnOnce(Node, Node)) {
        let cluster = Cluster::start(NO_SYNC).unwrap();
        let url = cluster.url(&cluster.database().unwrap());
        let [one, two] = [0, 1].map(|_| RungServer::start(&url, |port| self.settings(port)).unwrap());
        let billing = || Some(self.client("spiffe://leasehold/service/billing"));
        Runtime::new()
            .unwrap()
            .block_on(async { test(Node::of(one, billing()).await, Node::of(two, billing()).await).await });
    }
}

#[test]
fn servers_ring_each_other_by_mutual_tls_and_no_service_may_ring() {
    let authority = Authority::new("servers").unwrap();
    let server = authority.server_named("spiffe://leasehold/server").unwrap();
    let files = Files::new(authority, &server);
    files.play(async |one, two| {
        await_first_ring(&one, &two).await;
        two.await_rings("received", 1).await;
        let received = two.rings("received").await;
        let service = two.rung.server.connect(Some(files.client("spiffe://leasehold/service/billing"))).await.unwrap();
        let refused = PeerServiceClient::new(service).ring(RingRequest::default()).await.unwrap_err();
        assert_eq!(Refusal::of(&refused).code_and_reason(), (Code::PermissionDenied, "RULE_DENIED"));
        let anonymous = two.rung.server.connect(Some(files.authority.client_config(None))).await.unwrap();
        let refused = PeerServiceClient::new(anonymous).ring(RingRequest::default()).await.unwrap_err();
        assert_eq!(Refusal::of(&refused).code_and_reason(), (Code::Unauthenticated, "NO_IDENTITY"));
        assert_eq!(two.rings("received").await, received);
    });
}

#[test]
fn a_server_whose_certificate_does_not_say_so_rings_nobody() {
    let authority = Authority::new("servers").unwrap();
    let server = authority.server().unwrap();
    Files::new(authority, &server).play(async |one, two| {
        let failed = async || {
            hand_over(&one, &two, Duration::ZERO).await;
            (one.rings("failed").await > 0).then_some(())
        };
        eventually("a ring is refused", failed).await.unwrap();
        assert_eq!((one.rings("sent").await, two.rings("received").await), (0, 0));
    });
}

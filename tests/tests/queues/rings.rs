//! Tests of rings for workers: lanes become ready at one server of a database, and the workers wait at another one.

use std::time::{Duration, Instant};

use leasehold_proto::leasehold::peers::v1::peer_service_client::PeerServiceClient;
use leasehold_proto::leasehold::peers::v1::{ReadyLanes, RingRequest};
use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_tests::postgres::Cluster;
use leasehold_tests::rung::{RungServer, in_plain_text};
use leasehold_tests::wire::{Refusal, eventually};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tonic::{Code, Streaming};
use wire::settle_request::Outcome;

use super::streams::next;
use super::{Client, QUEUE, numbers, update};

/// The longest time in which a worker must start, whatever happens to its ring.
const PATIENT: Duration = Duration::from_secs(30);
/// The time for which workers have waited before requests are submitted. Each looks by itself once a second by then.
const LONG_ENOUGH: Duration = Duration::from_secs(2);
/// The pause of a server after a ring that has woken no call.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// The queues with one worker each.
const QUEUES: u128 = 41;

/// A server of the database, and a client of it.
struct Node {
    rung: RungServer,
    client: Client,
}

impl Node {
    async fn of(rung: RungServer) -> Self {
        let client = Client::of(&rung.server).await;
        Self { rung, client }
    }

    async fn rings(&self, outcome: &str) -> u64 {
        self.rung.rings("queue", outcome).await.unwrap()
    }

    /// Submits requests for which no worker waits, until a ring has this outcome.
    async fn await_first_ring(&self, outcome: &str) {
        self.submit_until(async || self.rings(outcome).await > 0).await;
    }

    /// Submits requests for which no worker waits, until another server is rung.
    async fn await_first_ring_at(&self, other: &Self) {
        self.submit_until(async || other.rings("received").await > 0).await;
    }

    async fn submit_until(&self, is_rung: impl AsyncFn() -> bool) {
        let rung = async || {
            let number = rand::random();
            self.client.submit_to("unattended", vec![update(number, &number.to_string())]).await;
            is_rung().await.then_some(())
        };
        eventually("a server is rung", rung).await.unwrap();
    }
}

/// Plays a test on servers of one database. A cluster may be dropped only outside of a runtime.
fn play<const N: usize>(settings: [&dyn Fn(u16) -> String; N], test: impl AsyncFnOnce([Node; N])) {
    let cluster = Cluster::start(&["fsync=off"]).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let servers = settings.map(|settings| RungServer::start(&url, settings).unwrap());
    Runtime::new().unwrap().block_on(async {
        let mut nodes = Vec::new();
        for server in servers {
            nodes.push(Node::of(server).await);
        }
        test(nodes.try_into().ok().unwrap()).await;
    });
}

async fn next_in_time(stream: &mut Streaming<wire::TakeResponse>) -> wire::Batch {
    timeout(PATIENT, next(stream)).await.unwrap()
}

#[test]
fn q04_q18_a_submit_at_one_server_wakes_a_worker_at_another() {
    play([&in_plain_text, &in_plain_text], async |[one, two]| {
        let mut streams = Vec::new();
        for number in 1..=QUEUES {
            let (queue, worker) = (format!("sheets{number}"), two.client.worker(number).await);
            let stream = two.client.stream_of(&queue, &worker, (1, Vec::new())).await;
            streams.push((number, queue, stream));
        }
        let began = Instant::now();
        one.await_first_ring("sent").await;
        let (received, mut ticks) = (two.rings("received").await, interval(Duration::from_millis(10)));
        while began.elapsed() < LONG_ENOUGH {
            ticks.tick().await;
        }
        let mut waits = Vec::new();
        for (number, queue, stream) in &mut streams {
            let since = Instant::now();
            one.client.submit_to(queue, vec![update(*number, "7")]).await;
            assert_eq!(numbers(&next_in_time(stream).await), [(*number, 1)]);
            waits.push(since.elapsed());
        }
        waits.sort_unstable();
        let (median, slowest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
        println!("from a submit to a start at another server: median {median:?}, at most {slowest:?}");
        // Workers that only look by themselves would wait for half a second.
        assert!(median < Duration::from_millis(200), "{waits:?}");
        assert!(two.rings("received").await > received);
        assert_eq!(two.rings("sent").await, 0, "only the server at which lanes become ready rings");
    });
}

#[test]
fn q18_a_ring_wakes_one_idle_worker_a_lane() {
    play([&in_plain_text, &in_plain_text], async |[_, two]| {
        let mut peer = PeerServiceClient::new(two.rung.server.connect(None).await.unwrap());
        let ready = |queue: &str, lanes| ReadyLanes { queue: queue.into(), lanes };
        let mut streams = Vec::new();
        for number in 1..=3 {
            let worker = two.client.worker(number).await;
            streams.push(two.client.stream_of(QUEUE, &worker, (1, Vec::new())).await);
        }
        // A worker that was woken is idle again once it has found no lane.
        for (lanes, woken) in [(8, 3), (2, 2), (1, 1), (u32::MAX, 3)] {
            let ring = RingRequest { ready_lanes: vec![ready("mails", 5), ready(QUEUE, lanes), ready("", 1)] };
            let all = async || {
                let woken_calls = peer.ring(ring.clone()).await.unwrap().into_inner().woken_calls;
                (woken_calls == [0, woken, 0]).then_some(())
            };
            eventually(&format!("{woken} workers are woken"), all).await.unwrap();
        }
        let many = RingRequest { ready_lanes: vec![ready(QUEUE, 1); 13] };
        let refused = peer.ring(many).await.unwrap_err();
        assert_eq!(Refusal::of(&refused).code_and_reason(), (Code::InvalidArgument, "LIMIT_EXCEEDED"));
        // A ring without lanes, as a server of the version before sends it, is for locks.
        let (for_locks, received) = (two.rung.rings("lock", "received").await.unwrap(), two.rings("received").await);
        assert!(peer.ring(RingRequest::default()).await.unwrap().into_inner().woken_calls.is_empty());
        assert_eq!(two.rung.rings("lock", "received").await.unwrap(), for_locks + 1);
        assert_eq!(two.rings("received").await, received);
    });
}

#[test]
fn q18_the_lanes_that_one_server_leaves_wake_workers_of_the_next() {
    play([&in_plain_text, &in_plain_text, &in_plain_text], async |[one, two, three]| {
        let mut streams = Vec::new();
        for (number, node) in [(1, &two), (2, &three)] {
            one.await_first_ring_at(node).await;
            let worker = node.client.worker(number).await;
            streams.push(node.client.stream_of(QUEUE, &worker, (1, Vec::new())).await);
        }
        let received = [two.rings("received").await, three.rings("received").await];
        one.client.submit(vec![update(1, "7"), update(2, "8")]).await;
        for stream in &mut streams {
            next_in_time(stream).await;
        }
        // Either server has one worker, so one of two lanes is left for the other.
        for (node, received) in [&two, &three].into_iter().zip(received) {
            node.rung.await_rings("queue", "received", received + 1).await.unwrap();
        }
    });
}

#[test]
fn q18_busy_workers_are_rung_seldom() {
    play([&in_plain_text, &in_plain_text], async |[one, two]| {
        let worker = two.client.worker(1).await;
        let mut stream = two.client.stream_of(QUEUE, &worker, (1, Vec::new())).await;
        one.client.submit(vec![update(1, "7")]).await;
        let batch = next_in_time(&mut stream).await;
        one.await_first_ring("sent").await;
        let (began, sent, mut fronts) = (Instant::now(), one.rings("sent").await, JoinSet::new());
        for front in 1..=8 {
            let client = one.client.clone();
            fronts.spawn(async move {
                for number in 1..=25 {
                    let number = 100 * front + number;
                    client.submit(vec![update(number, &number.to_string())]).await;
                }
            });
        }
        fronts.join_all().await;
        let rings = u128::from(one.rings("sent").await - sent);
        let pauses = began.elapsed().as_millis() / BUSY_PAUSE.as_millis();
        println!("200 submits beside busy workers: {rings} rings in {pauses} pauses");
        assert!(rings <= pauses + 2, "{rings} rings in {pauses} pauses");
        two.client.settle(&worker, &batch, Outcome::Completed).await.unwrap();
        next_in_time(&mut stream).await;
    });
}

#[test]
fn q04_a_worker_whose_server_cannot_be_rung_finds_its_lane() {
    // No program listens on port 1.
    let wrong = |_| in_plain_text(1);
    play([&in_plain_text, &wrong], async |[one, two]| {
        let worker = two.client.worker(1).await;
        let mut stream = two.client.stream_of(QUEUE, &worker, (1, Vec::new())).await;
        one.await_first_ring("failed").await;
        for number in 1..=3 {
            one.client.submit(vec![update(number, "7")]).await;
            let batch = next_in_time(&mut stream).await;
            assert_eq!(numbers(&batch), [(number, 1)]);
            two.client.settle(&worker, &batch, Outcome::Completed).await.unwrap();
        }
        assert!(one.rung.server.has_logged("another server can't be rung at its `locks.peer_address`"));
        assert_eq!((one.rings("sent").await, two.rings("received").await), (0, 0));
    });
}

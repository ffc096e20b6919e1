//! Servers on a cluster of three nodes, called by clients.

use std::time::{Duration, Instant};

use leasehold_core::lease::Outcome;
use leasehold_proto::leasehold::sessions::v1::OpenSessionRequest;
use leasehold_proto::leasehold::sessions::v1::session_service_client::SessionServiceClient;
use leasehold_tests::client::{Client, Update, lease_of, reason, user};
use leasehold_tests::etcd::{EtcdCluster, LIMITS};
use leasehold_tests::server::Server;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::{Code, Status};

use crate::server;

/// The longest time of a proof while no node answers.
const PROOF: Duration = Duration::from_secs(10);
/// The most attempts of a call while a node is away. Each waits for some seconds inside of the server.
const ATTEMPTS: usize = 10;

fn serve(cluster: &EtcdCluster) -> Server {
    server(cluster, "served", "").start().unwrap()
}

/// Returns an update that creates one username, with an idempotency key.
fn create(name: &str, number: u64) -> Update {
    let creates = vec![user(name, number, Vec::new())];
    Update { creates, key: Some(format!("key-{name}")), ..Update::default() }
}

/// B01, B02, B20, B30 to B32: what one server has answered, the other one shows.
#[test]
fn a_claim_is_saved_at_one_server_and_read_at_another() {
    let cluster = EtcdCluster::start(3, LIMITS).unwrap();
    let servers = [(); 2].map(|()| serve(&cluster));
    Runtime::new().unwrap().block_on(async {
        let mut one = Client::connect(&servers[0], 1).await.unwrap();
        let mut two = Client::connect(&servers[1], 1).await.unwrap();
        let begun = one.begin(create("alice", 7)).await.unwrap();
        assert_eq!(lease_of(&two.get("alice").await.unwrap()), Some(&*begun.lease));
        assert_eq!(two.leases().await.unwrap(), std::slice::from_ref(&begun.lease));
        let again = two.begin(create("alice", 7)).await.unwrap();
        assert_eq!(again, begun);
        two.settle(&begun.lease, Outcome::Committed).await.unwrap();
        one.settle(&begun.lease, Outcome::Committed).await.unwrap();
        assert_eq!(lease_of(&one.get("alice").await.unwrap()), None);
        assert_eq!(one.records().await.unwrap().len(), 1);
        assert!(one.leases().await.unwrap().is_empty());
        let mut other = Client::connect(&servers[1], 2).await.unwrap();
        let taken = other.begin(Update { key: None, ..create("Alice", 8) }).await.unwrap_err();
        assert_eq!((taken.code(), &*reason(&taken)), (Code::AlreadyExists, "CLAIM_TAKEN"));
        let later = other.begin(create("bob", 8)).await.unwrap();
        assert!(later.fence > begun.fence);
    });
}

/// Sessions, locks and queues are refused by name, and not half kept.
#[test]
fn sessions_are_refused() {
    let cluster = EtcdCluster::start(1, LIMITS).unwrap();
    let server = serve(&cluster);
    Runtime::new().unwrap().block_on(async {
        let mut sessions = SessionServiceClient::new(server.connect(None).await.unwrap());
        let refused = sessions.open_session(OpenSessionRequest::default()).await.unwrap_err();
        assert_eq!((refused.code(), &*reason(&refused)), (Code::Unimplemented, "CLAIMS_ONLY"));
        assert!(refused.message().contains("keeps claims only"), "{refused:?}");
    });
}

/// B01, B20: every save that was answered is there after the death of a node, and saves go on.
#[test]
fn saves_go_on_without_a_node() {
    let mut cluster = EtcdCluster::start(3, LIMITS).unwrap();
    let server = serve(&cluster);
    let runtime = Runtime::new().unwrap();
    let mut client = runtime.block_on(Client::connect(&server, 1)).unwrap();
    for dead in 0..3 {
        cluster.kill(dead).unwrap();
        for number in 0..5 {
            let number = dead as u64 * 5 + number + 1;
            runtime.block_on(save(&mut client, number)).unwrap();
        }
        cluster.restart(dead).unwrap();
    }
    let records = runtime.block_on(client.records()).unwrap();
    assert_eq!(records.len(), 15);
    assert!(records.iter().all(|record| lease_of(record).is_none()));
}

/// Begins and commits an update, as often as its answers are lost.
async fn save(client: &mut Client, number: u64) -> Result<(), Status> {
    let mut failure = Status::ok("");
    for _ in 0..ATTEMPTS {
        let saved = async {
            let begun = client.begin(create(&format!("name-{number}"), number)).await?;
            client.settle(&begun.lease, Outcome::Committed).await
        };
        match saved.await {
            Ok(()) => return Ok(()),
            Err(status) if status.code() == Code::Unavailable => failure = status,
            Err(status) => return Err(status),
        }
    }
    Err(failure)
}

/// Near the quota, begins are refused, and what was begun can be committed. Other users of the cluster may use
/// the quota up all the same, and the refusal says what to look at.
#[test]
fn begins_are_refused_near_the_quota() {
    let quota = ["--quota-backend-bytes=33554432"];
    let cluster = EtcdCluster::start(1, &[LIMITS, &quota].concat()).unwrap();
    let runtime = Runtime::new().unwrap();
    let usual = server(&cluster, "quota", "quota_mib = 512").start().unwrap();
    let mut client = runtime.block_on(Client::connect(&usual, 1)).unwrap();
    let begun = runtime.block_on(client.begin(create("alice", 7))).unwrap();
    // Less than the default of `min_free_disk_mib`.
    let strict = server(&cluster, "quota", "quota_mib = 32").start().unwrap();
    let mut other = runtime.block_on(Client::connect(&strict, 1)).unwrap();
    let refused = runtime.block_on(other.begin(create("bob", 8))).unwrap_err();
    assert!(refused.message().contains("left of its quota"), "{refused:?}");
    runtime.block_on(other.settle(&begun.lease, Outcome::Committed)).unwrap();
    while cluster.put(rand::random(), 1 << 20).is_ok() {}
    let refusal = std::iter::from_fn(|| Some(runtime.block_on(client.begin(create("carol", 9))).unwrap_err()));
    let told = refusal.take(ATTEMPTS).find(|status| status.message().contains("`etcdctl alarm list`"));
    assert!(told.is_some());
}

/// A member that has become a cluster of its own, as a replacement that was started wrongly does, answers no call.
#[test]
fn b01_a_member_of_another_cluster_is_not_used() {
    let mut cluster = EtcdCluster::start(3, LIMITS).unwrap();
    let server = serve(&cluster);
    let runtime = Runtime::new().unwrap();
    let mut client = runtime.block_on(Client::connect(&server, 1)).unwrap();
    runtime.block_on(save(&mut client, 1)).unwrap();
    cluster.kill(1).unwrap();
    cluster.restart_alone(1).unwrap();
    // The server leaves the first member, and meets the second one.
    let frozen = cluster.freeze(0).unwrap();
    runtime.block_on(client.get("name-1")).unwrap_err();
    drop(frozen);
    runtime.block_on(save(&mut client, 2)).unwrap();
    assert_eq!(runtime.block_on(client.records()).unwrap().len(), 2);
}

/// The rows of groups are only those whose outcome somebody may still ask for: the last one of each writer.
#[test]
fn the_rows_of_groups_leave_with_the_next_group() {
    let cluster = EtcdCluster::start(1, LIMITS).unwrap();
    let server = serve(&cluster);
    let runtime = Runtime::new().unwrap();
    let mut client = runtime.block_on(Client::connect(&server, 1)).unwrap();
    (1..20).for_each(|number| runtime.block_on(save(&mut client, number)).unwrap());
    assert_eq!(cluster.count("served", "c/").unwrap(), 19);
    let groups = cluster.count("served", "g/").unwrap();
    assert!((1..=4).contains(&groups), "{groups} rows of groups");
}

/// B09: etcd makes transactions that were under way when its quota was reached, and refuses them all the same. No
/// begin is refused because of its own claim.
#[test]
fn b09_a_begin_at_the_end_of_the_quota_does_not_meet_itself() {
    let quota = ["--quota-backend-bytes=25165824"];
    let cluster = EtcdCluster::start(1, &[LIMITS, &quota].concat()).unwrap();
    let server = server(&cluster, "quota", "quota_mib = 512").start().unwrap();
    let runtime = Runtime::new().unwrap();
    let refusals = runtime.block_on(async {
        let channel = server.connect(None).await.unwrap();
        let mut fronts = JoinSet::new();
        (0..64).for_each(|front| drop(fronts.spawn(fill(Client::over(channel.clone(), 1), front))));
        fronts.join_all().await
    });
    let reasons: Vec<_> = refusals.iter().map(reason).collect();
    assert!(reasons.iter().all(|reason| reason == "STORE_UNAVAILABLE"), "{reasons:?}");
}

/// Begins updates until one is refused, and returns the refusal.
async fn fill(mut client: Client, front: u64) -> Status {
    for number in 1.. {
        let creates = vec![user(format!("name-{front}-{number}"), number, vec![7; 4_000])];
        if let Err(status) = client.begin(Update { creates, ..Update::default() }).await {
            return status;
        }
    }
    unreachable!("the quota is reached")
}

/// The reads of an outage share a proof, and are refused together.
#[test]
fn b30_many_reads_in_an_outage_are_refused_together() {
    let cluster = EtcdCluster::start(3, LIMITS).unwrap();
    let server = serve(&cluster);
    Runtime::new().unwrap().block_on(async {
        let channel = server.connect(None).await.unwrap();
        let frozen: Vec<_> = (0..3).map(|at| cluster.freeze(at).unwrap()).collect();
        let started = Instant::now();
        let mut reads = JoinSet::new();
        for number in 0..50 {
            let mut client = Client::over(channel.clone(), 1);
            reads.spawn(async move { client.get(&format!("name-{number}")).await.unwrap_err() });
        }
        let refused = reads.join_all().await;
        assert!(refused.iter().all(|status| status.code() == Code::Unavailable), "{refused:?}");
        // One proof may have begun before some of the reads.
        assert!(started.elapsed() < 3 * PROOF, "{:?}", started.elapsed());
        drop(frozen);
    });
}

//! Tests of the embedded store on a disk that becomes full: the server ends, and keeps every answered
//! change.

use std::error::Error;
use std::time::{Duration, Instant};

use leasehold_core::invariant;
use leasehold_core::lease::Outcome::{Committed, RolledBack};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::record::Status as RecordStatus;
use leasehold_tests::client::{Begun, Client, lease_of, reason};
use leasehold_tests::disk::Disk;
use leasehold_tests::server::Server;
use leasehold_tests::transfer::{export, state};
use tokio::task::JoinSet;
use tonic::{Code, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{creates, name};

const DEADLINE: Duration = Duration::from_secs(60);
/// The longest time from a failed write until the health status reports it.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The exit code of a server whose store failed.
const STORE_FAILED: i32 = 8;

fn unavailable(status: &Status) -> &str {
    assert_eq!((status.code(), reason(status).as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"), "{status:?}");
    status.message()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nearly_full_disk_stops_begins_but_not_settles() {
    let disk = Disk::new(300).unwrap();
    let server = Server::builder().data(disk.path().join("data")).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    let committed = client.begin(creates(1..4, 10)).await.unwrap();
    let rolled_back = client.begin(creates(4..6, 10)).await.unwrap();
    disk.fill(200).unwrap();

    let begun = begin_until(&mut client, 100, |begun| begun.is_err()).await;
    let refused = begun.unwrap_err();
    let message = unavailable(&refused);
    assert!(
        message.starts_with("the disk has ") && message.contains("`min_free_disk_mib` = 256: make room"),
        "{message}"
    );
    client.settle(&committed.lease, Committed).await.unwrap();
    client.settle(&rolled_back.lease, RolledBack).await.unwrap();
    assert_eq!(client.get(&name(1)).await.unwrap().status(), RecordStatus::Active);
    assert_eq!(client.get(&name(4)).await.unwrap_err().code(), Code::NotFound);

    disk.empty().unwrap();
    begin_until(&mut client, 1_000_000, |begun| begun.is_ok()).await.unwrap();
}

/// Begins small updates until one is answered as expected, and returns that answer. The server
/// checks the free space only once a second.
async fn begin_until(
    client: &mut Client,
    from: u64,
    expected: impl Fn(&Result<Begun, Status>) -> bool,
) -> Result<Begun, Status> {
    let deadline = Instant::now() + DEADLINE;
    for number in from.. {
        let begun = client.begin(creates(number..number + 1, 10)).await;
        if expected(&begun) {
            return begun;
        }
        assert!(Instant::now() < deadline, "the server does not notice the disk");
    }
    unreachable!("numbers do not run out")
}

/// The updates of one writer that the server acknowledged, each by the number of its first claim.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    committed: Vec<u64>,
    /// Updates that were begun and not committed: their commit was refused, or never requested.
    begun: Vec<(u64, String)>,
}

const CLAIMS_PER_UPDATE: u64 = 50;
const CLAIM_BYTES: usize = 4000;

/// Begins updates and commits every second one, until the server refuses a call. Returns the
/// acknowledged updates and the refusal.
async fn write(mut client: Client, writer: u64) -> (Acknowledged, Status) {
    let mut acknowledged = Acknowledged::default();
    for first in (writer << 32..).step_by(usize::try_from(CLAIMS_PER_UPDATE).unwrap()) {
        let begun = match client.begin(creates(first..first + CLAIMS_PER_UPDATE, CLAIM_BYTES)).await {
            Ok(begun) => begun,
            Err(status) => return (acknowledged, status),
        };
        // Every second lease stays outstanding, so that the check covers active claims and claims
        // under a lease.
        let settled = if acknowledged.committed.len() <= acknowledged.begun.len() {
            client.settle(&begun.lease, Committed).await.map(|()| true)
        } else {
            Ok(false)
        };
        match settled {
            Ok(true) => acknowledged.committed.push(first),
            Ok(false) => acknowledged.begun.push((first, begun.lease)),
            Err(status) => {
                acknowledged.begun.push((first, begun.lease));
                return (acknowledged, status);
            }
        }
    }
    unreachable!("numbers do not run out")
}

/// Writes from several tasks until the store fails. Returns the updates that each of them got
/// acknowledged.
pub(super) async fn write_until_refused(client: &Client) -> Vec<Acknowledged> {
    let mut writers = JoinSet::new();
    for writer in 1..=4 {
        writers.spawn(write(client.clone(), writer));
    }
    let (all, refusals): (_, Vec<_>) = writers.join_all().await.into_iter().unzip();
    // A later call may find that the server has gone. The client makes the status of a broken
    // connection itself, with a source and one of several codes.
    let is_expected = |status: &Status| status.code() == Code::Unavailable || status.source().is_some();
    assert!(refusals.iter().all(is_expected), "{refusals:?}");
    let first = refusals.iter().find(|status| reason(status) == "STORE_UNAVAILABLE").expect("a writer met the failure");
    println!("    refused: {}", unavailable(first));
    all
}

/// Watches the health of the server and of its service of claims. The task ends once both are
/// `NOT_SERVING`.
async fn watch_health(server: &Server) -> JoinSet<()> {
    let channel = server.connect(None).await.unwrap();
    let service = "gitlab.cells.topology_service.claims.v1.ClaimService".to_owned();
    let mut watches = JoinSet::new();
    for service in [String::new(), service] {
        let watched = HealthClient::new(channel.clone()).watch(HealthCheckRequest { service }).await;
        let mut statuses = watched.unwrap().into_inner();
        watches.spawn(async move {
            while let Some(status) = statuses.message().await.unwrap() {
                if status.status == ServingStatus::NotServing as i32 {
                    return;
                }
            }
            panic!("the watch ends");
        });
    }
    watches
}

/// Waits until the server has ended by itself because its store failed, and has told why.
pub(super) fn ends_by_itself(server: &mut Server) {
    let status = server.wait().unwrap();
    let stderr = server.stderr();
    assert_eq!(status.code(), Some(STORE_FAILED), "{stderr}");
    assert!(
        stderr.contains("the store failed, and nothing is written any more: the server stops; its next start "),
        "{stderr}"
    );
    assert!(stderr.contains("error: the server stopped, because its store failed: "), "{stderr}");
    assert!(stderr.contains("hint: start it again, unless a supervisor does"), "{stderr}");
}

pub(super) async fn everything_is_there(client: &mut Client, all: &[Acknowledged]) {
    for acknowledged in all {
        for first in &acknowledged.committed {
            for number in [*first, first + CLAIMS_PER_UPDATE - 1] {
                let record = client.get(&name(number)).await.expect("what was committed is there");
                assert_eq!(record.status(), RecordStatus::Active);
            }
        }
        for (first, lease) in &acknowledged.begun {
            let record = client.get(&name(*first)).await.expect("what was begun is there");
            // A commit that was refused may have been stored nevertheless, so both states are
            // correct.
            assert!(record.status() == RecordStatus::Active || lease_of(&record) == Some(lease), "{record:?}");
        }
    }
}

/// The disk sizes range from one that is full soon after the start to one that is full only after
/// fjall has written tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_writes_and_loses_no_acknowledged_change() {
    for mib in [2, 9, 17, 35, 50] {
        println!("a disk of {mib} MiB");
        full_disk(mib).await;
    }
}

async fn full_disk(mib: u64) {
    let mut disk = Disk::new(mib).unwrap();
    let config = "min_free_disk_mib = 0";
    let mut server =
        Server::builder().data(disk.path().join("data")).config(config).arg("--log").arg("error").start().unwrap();
    let client = Client::connect(&server, 1).await.unwrap();
    let watches = watch_health(&server).await;
    let all = write_until_refused(&client).await;
    tokio::time::timeout(AT_ONCE, watches.join_all()).await.expect("the health says NOT_SERVING");
    println!("    {} committed", all.iter().map(|one| one.committed.len()).sum::<usize>());
    ends_by_itself(&mut server);
    println!("    {}", server.stderr().lines().next().unwrap_or_default());
    // A supervisor starts the server while the disk is still full. It then serves reads.
    server.restart().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    everything_is_there(&mut client, &all).await;
    client.page(Vec::new()).await.expect("lists are served");
    drop(client);

    disk.resize(mib + 300).unwrap();
    server.restart().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    everything_is_there(&mut client, &all).await;
    client.begin(creates(1..2, 10)).await.expect("writes are taken again");
    server.terminate().unwrap();
    invariant::check(&state(&export(server.data()).unwrap()).unwrap()).unwrap();
}

//! Snapshots of a cluster that are restored, under servers and between their starts.

use std::process::Command;

use leasehold_core::lease::{Fence, Outcome};
use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::etcd::{EtcdCluster, LIMITS};
use leasehold_tests::server::{Server, binary};
use tokio::runtime::Runtime;
use tonic::Status;

use crate::server;

/// Begins and commits an update at a server, and returns the fence of its lease.
fn save(server: &Server, name: &str, number: u64) -> Result<Fence, Status> {
    Runtime::new().unwrap().block_on(async {
        let mut client = Client::connect(server, 1).await.unwrap();
        let begun = client.begin(Update { creates: vec![user(name, number, Vec::new())], ..Update::default() }).await?;
        client.settle(&begun.lease, Outcome::Committed).await?;
        Ok(Fence(begun.fence))
    })
}

/// Returns the text of the state file.
fn state(cluster: &EtcdCluster) -> String {
    let mut files = std::fs::read_dir(cluster.state_directory()).unwrap().map(|file| file.unwrap().path());
    let path = files.find(|path| path.extension().is_some_and(|extension| extension == "json")).unwrap();
    std::fs::read_to_string(path).unwrap()
}

/// B13: a restored snapshot lacks what servers have answered, and would give its fences out again. A server
/// that runs refuses it, and so does the next start, until it is adopted.
#[test]
fn a_restored_snapshot_is_refused_until_it_is_adopted() {
    let mut cluster = EtcdCluster::start(1, LIMITS).unwrap();
    let mut running = server(&cluster, "s", "").start().unwrap();
    save(&running, "alice", 1).unwrap();
    let snapshot = cluster.snapshot().unwrap();
    let at_snapshot = state(&cluster);
    let fence = save(&running, "bob", 2).unwrap();
    while state(&cluster) == at_snapshot {
        std::thread::yield_now();
    }
    cluster.restore(&snapshot, None).unwrap();
    let refused = save(&running, "carol", 3).unwrap_err();
    assert!(refused.message().contains("a snapshot was restored"), "{refused:?}");
    assert_eq!(cluster.count("s", "c/").unwrap(), 1, "the refused begin was made");
    running.terminate().unwrap();
    let refused = server(&cluster, "s", "").start().map(drop).unwrap_err().to_string();
    assert!(refused.contains("an older snapshot was restored"), "{refused}");
    assert!(refused.contains("leasehold migrate --adopt"), "{refused}");
    adopt(&cluster);
    let again = server(&cluster, "s", "").start().unwrap();
    assert!(save(&again, "bob", 2).unwrap() > fence);
}

/// A copy that is a cluster of its own is refused without a state file too.
#[test]
fn a_copy_in_another_cluster_is_refused_until_it_is_adopted() {
    let mut cluster = EtcdCluster::start(1, LIMITS).unwrap();
    let first = server(&cluster, "s", "").start().unwrap();
    let fence = save(&first, "alice", 1).unwrap();
    drop(first);
    let snapshot = cluster.snapshot().unwrap();
    cluster.restore(&snapshot, Some("copy")).unwrap();
    std::fs::remove_dir_all(cluster.state_directory()).unwrap();
    let refused = server(&cluster, "s", "").start().map(drop).unwrap_err().to_string();
    assert!(refused.contains("two copies would give the same names out twice"), "{refused}");
    adopt(&cluster);
    let again = server(&cluster, "s", "").start().unwrap();
    assert!(save(&again, "bob", 2).unwrap() > fence);
}

fn adopt(cluster: &EtcdCluster) {
    let url = cluster.url("s");
    let output = Command::new(binary().unwrap()).args(["migrate", "--adopt", "--store", &url]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("adopted the copy"), "{text}");
}

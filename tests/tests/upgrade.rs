//! Tests of an upgrade: the former version of the server and the present one serve one store.
//! `cargo xtask test --deep upgrade` compiles the former version and names its binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test stops at what it does not expect"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use leasehold_core::lease::Outcome::{Committed, RolledBack};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::Record;
use leasehold_tests::client::{Begun, Client, Update, lease_of, name_of, reason, user};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::{DEVELOPMENT_CELLS, Server};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// The names for which both servers get a begin at the same time.
const CONTESTED: u64 = 200;

/// Returns the path of the former version's binary.
fn former() -> PathBuf {
    std::env::var_os("LEASEHOLD_FORMER_BINARY").expect("run `cargo xtask test --deep upgrade`").into()
}

fn create(name: &str, key: Option<&str>) -> Update {
    Update { creates: vec![user(name, 7, vec![7; 3])], key: key.map(Into::into), ..Update::default() }
}

fn destroy(name: &str) -> Update {
    Update { destroys: vec![user(name, 7, Vec::new())], ..Update::default() }
}

/// Returns the name, the status and the lease of each record.
fn shown(records: &[Record]) -> BTreeSet<(String, i32, Option<String>)> {
    let shown = |record: &Record| {
        let lease = lease_of(record).map(str::to_owned);
        (name_of(record.metadata.as_ref().unwrap()).to_owned(), record.status, lease)
    };
    records.iter().map(shown).collect()
}

/// Begins updates of cell 1 with one name each on both servers at the same time, and commits those
/// that were begun. Returns the fences.
async fn contest(servers: [&Client; 2]) -> Vec<u64> {
    let mut fences = Vec::new();
    for number in 0..CONTESTED {
        let mut begins = JoinSet::new();
        for client in servers {
            let mut client = client.clone();
            begins.spawn(async move { (client.begin(create(&format!("contested-{number}"), None)).await, client) });
        }
        let mut won = 0;
        for (begun, mut client) in begins.join_all().await {
            match begun {
                Ok(Begun { lease, fence }) => {
                    won += 1;
                    fences.push(fence);
                    client.settle(&lease, Committed).await.unwrap();
                }
                Err(refused) => {
                    let reason = reason(&refused);
                    assert!(["CLAIM_BUSY", "CLAIM_TAKEN"].contains(&reason.as_str()), "{reason}");
                }
            }
        }
        assert_eq!(won, 1, "contested-{number}");
    }
    fences
}

#[test]
fn b13_b15_two_versions_serve_one_database() {
    let cluster = Cluster::start(&["fsync=off"]).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    Runtime::new().unwrap().block_on(serve_together(&url));
}

async fn serve_together(url: &str) {
    let config = format!("[postgres]\nurl = \"{url}\"\n{DEVELOPMENT_CELLS}");
    let start = || Server::builder().config(config.clone()).expect_store();
    let mut old_server = start().binary(former()).start().unwrap();
    let mut old = Client::connect(&old_server, 1).await.unwrap();
    let kept = old.begin(create("kept", Some("key-of-kept"))).await.unwrap();
    let given_up = old.begin(create("given-up", None)).await.unwrap();

    // The present version migrates the tables while the former one serves them.
    let new_server = start().start().unwrap();
    let mut new = Client::connect(&new_server, 1).await.unwrap();
    assert_eq!(new.begin(create("kept", Some("key-of-kept"))).await.unwrap(), kept, "B09");
    new.settle(&kept.lease, Committed).await.unwrap();
    old.settle(&kept.lease, Committed).await.unwrap();
    assert_eq!(reason(&old.settle(&kept.lease, RolledBack).await.unwrap_err()), "LEASE_COMMITTED");
    new.settle(&given_up.lease, RolledBack).await.unwrap();
    assert_eq!(reason(&old.settle(&given_up.lease, Committed).await.unwrap_err()), "LEASE_ROLLED_BACK");

    let outstanding = new.begin(create("outstanding", Some("key-of-new"))).await.unwrap();
    assert_eq!(old.begin(create("outstanding", Some("key-of-new"))).await.unwrap(), outstanding, "B09");
    for client in [&mut old, &mut new] {
        assert_eq!(client.leases().await.unwrap(), std::slice::from_ref(&outstanding.lease));
        assert_eq!(reason(&client.begin(destroy("outstanding")).await.unwrap_err()), "CLAIM_BUSY");
    }

    let fences = contest([&old, &new]).await;
    assert!(fences.is_sorted_by(|one, next| one < next) && fences[0] > outstanding.fence, "B13: {fences:?}");
    let records = shown(&old.records().await.unwrap());
    assert_eq!(records, shown(&new.records().await.unwrap()));
    assert_eq!(records.len() as u64, CONTESTED + 2);

    // The present version continues alone.
    assert!(old_server.terminate().unwrap().success());
    new.settle(&outstanding.lease, Committed).await.unwrap();
    assert_eq!(new.records().await.unwrap().len() as u64, CONTESTED + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn b18_the_present_version_serves_a_data_directory_of_the_former_one() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let start = || Server::builder().config(DEVELOPMENT_CELLS).data(&data).expect_store();
    let mut old_server = start().binary(former()).start().unwrap();
    let mut old = Client::connect(&old_server, 1).await.unwrap();
    let kept = old.begin(create("kept", None)).await.unwrap();
    old.settle(&kept.lease, Committed).await.unwrap();
    let outstanding = old.begin(create("outstanding", Some("key"))).await.unwrap();
    let records = shown(&old.records().await.unwrap());
    assert!(old_server.terminate().unwrap().success());

    let new_server = start().start().unwrap();
    let mut new = Client::connect(&new_server, 1).await.unwrap();
    assert_eq!(shown(&new.records().await.unwrap()), records);
    assert_eq!(new.begin(create("outstanding", Some("key"))).await.unwrap(), outstanding, "B09");
    new.settle(&outstanding.lease, Committed).await.unwrap();
    let next = new.begin(destroy("kept")).await.unwrap();
    assert!(next.fence > outstanding.fence, "B13");
}

//! Tests of one damaged row: reads of the row fail, lists and metrics count it, and all other rows
//! are served.

use std::ops::Range;
use std::path::Path;

use leasehold_core::lease::Outcome::Committed;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::ListRecordsRequest;
use leasehold_tests::client::{Client, name_of, reason};
use leasehold_tests::server::Server;
use leasehold_tests::transfer::run;
use leasehold_tests::wire::get;
use tempfile::TempDir;
use tonic::Code;

use super::{creates, name};

const CLAIMS: u64 = 20;
const DAMAGED: u64 = 13;

/// Returns a data directory with settled claims, one of which has a row that can't be read.
async fn damaged_store() -> TempDir {
    store_with(1..CLAIMS + 1, 1, DAMAGED).await
}

/// Returns a data directory with settled claims of these numbers, `per_update` of them in each
/// update. The row of the claim `damaged` can't be read.
async fn store_with(numbers: Range<u64>, per_update: u64, damaged: u64) -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut server = Server::builder().data(dir.path()).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    for first in numbers.step_by(per_update as usize) {
        let begun = client.begin(creates(first..first + per_update, 10)).await.unwrap();
        client.settle(&begun.lease, Committed).await.unwrap();
    }
    drop(client);
    assert!(server.terminate().unwrap().success());
    damage(dir.path(), &name(damaged));
    dir
}

/// Replaces the row of a claim with bytes that are no claim.
fn damage(data: &Path, name: &str) {
    let database = fjall::Database::builder(data.join("fjall")).open().unwrap();
    let claims = database.keyspace("claims", fjall::KeyspaceCreateOptions::default).unwrap();
    let mut keys = claims.iter().map(|row| row.into_inner().unwrap().0);
    let key = keys.find(|key| key.ends_with(name.as_bytes())).unwrap();
    claims.insert(key, [0xff; 3]).unwrap();
    database.persist(fjall::PersistMode::SyncAll).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn b32_a_damaged_claim_is_told_and_the_rest_is_served() {
    let dir = damaged_store().await;
    let server = Server::builder().data(dir.path()).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    let refused = client.get(&name(DAMAGED)).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"));
    assert!(refused.message().contains("`claims`"), "{}", refused.message());
    // The name is not granted to anyone else.
    let refused = client.begin(creates(DAMAGED..DAMAGED + 1, 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let request = ListRecordsRequest { cell_id: 1, source_type: 1, ..ListRecordsRequest::default() };
    let answer = server.claims(None).await.unwrap().list_records(request).await.unwrap();
    assert_eq!(answer.metadata().get("leasehold-damaged-records").unwrap(), "1");
    let names: Vec<_> =
        answer.get_ref().records.iter().map(|record| name_of(record.metadata.as_ref().unwrap()).to_owned()).collect();
    assert_eq!(names, (1..=CLAIMS).filter(|number| *number != DAMAGED).map(name).collect::<Vec<_>>());
    let (_, metrics) = get(server.address(), "/metrics").await.unwrap();
    assert!(metrics.contains("\nleasehold_damaged_rows_total 2\n"), "{metrics}");
    assert!(metrics.contains("\nleasehold_store_failed 0\n"), "{metrics}");
    assert!(server.has_logged("a list leaves out damaged rows"), "{}", server.stderr());
    client.begin(creates(CLAIMS + 1..CLAIMS + 2, 1)).await.unwrap();
    assert!(client.get(&name(1)).await.is_ok());
}

/// A page of 1,000 records ends before claims that were read for it. Only the page that reaches a
/// damaged claim counts it.
#[tokio::test(flavor = "multi_thread")]
async fn b32_a_damaged_claim_beyond_the_end_of_a_page_is_counted_once() {
    let dir = store_with(10_000..11_010, 101, 11_005).await;
    let server = Server::builder().data(dir.path()).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    let first = client.page(Vec::new()).await.unwrap();
    assert!(first.truncated);
    assert_eq!((first.records.len(), client.damaged_records), (1_000, 0));
    assert_eq!((client.records().await.unwrap().len(), client.damaged_records), (1_009, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_salvage_exports_all_rows_but_the_damaged_ones() {
    let (dir, out) = (damaged_store().await, TempDir::new().unwrap());
    let (file, copy) = (out.path().join("rows.jsonl"), out.path().join("copy"));
    let refused = run("export", dir.path(), &["--output", file.to_str().unwrap()]).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(!file.exists());
    let salvaged = run("export", dir.path(), &["--salvage", "--output", file.to_str().unwrap()]).unwrap();
    let stderr = String::from_utf8_lossy(&salvaged.stderr);
    assert_eq!(salvaged.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: 1 damaged row can't be read"), "{stderr}");
    assert!(stderr.contains("exported 39 rows"), "{stderr}");
    let imported = run("import", &copy, &["--input", file.to_str().unwrap()]).unwrap();
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    let server = Server::builder().data(&copy).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    assert_eq!(client.records().await.unwrap().len() as u64, CLAIMS - 1);
    // A store without damage is salvaged whole.
    drop((client, server));
    let whole = run("export", &copy, &["--salvage", "--output", file.to_str().unwrap()]).unwrap();
    assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));
}

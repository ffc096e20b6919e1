//! Tests of damaged blocks: a salvage has every row outside them, and its count is true. A server with
//! a damaged index of claims answers whole lists.

use std::path::{Path, PathBuf};

use fjall::KeyspaceCreateOptions;
use leasehold_core::lease::Outcome::Committed;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::Record;
use leasehold_tests::client::{Client, name_of};
use leasehold_tests::server::Server;
use leasehold_tests::transfer::run;
use leasehold_tests::wire::{get, leasehold};
use tempfile::TempDir;

use super::{creates, name};

const UPDATES: u64 = 4;
pub(super) const CLAIMS: u64 = UPDATES * 1_000;

/// Returns a data directory with settled claims. A block in the middle of each keyspace is damaged.
async fn damaged_store(keyspaces: &[&str]) -> TempDir {
    let dir = settled_claims().await;
    keyspaces.iter().for_each(|keyspace| change_bytes(&flushed_table(dir.path(), keyspace), 0.5, 2));
    dir
}

/// Returns a data directory with settled claims.
pub(super) async fn settled_claims() -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut server = Server::builder().data(dir.path()).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    for update in 0..UPDATES {
        let begun = client.begin(creates(update * 1_000 + 1..(update + 1) * 1_000 + 1, 10)).await.unwrap();
        client.settle(&begun.lease, Committed).await.unwrap();
    }
    drop(client);
    assert!(server.terminate().unwrap().success());
    dir
}

/// Writes a keyspace to its table, and returns the table's path.
pub(super) fn flushed_table(data: &Path, keyspace: &str) -> PathBuf {
    let database = fjall::Database::builder(data.join("fjall")).open().unwrap();
    let rows = database.keyspace(keyspace, KeyspaceCreateOptions::default).unwrap();
    rows.rotate_memtable_and_wait().unwrap();
    let tables = rows.path().join("tables");
    drop((rows, database));
    let files = std::fs::read_dir(tables).unwrap().map(|file| file.unwrap().path());
    files.max_by_key(|file| file.metadata().unwrap().len()).unwrap()
}

/// Flips a bit in each of `count` bytes of a file, from this share of its length on. One byte can be
/// corrected, two can't.
pub(super) fn change_bytes(path: &Path, share: f64, count: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let from = (bytes.len() as f64 * share) as usize;
    bytes[from..from + count].iter_mut().for_each(|byte| *byte ^= 1);
    std::fs::write(path, bytes).unwrap();
}

pub(super) fn listed_name(record: &Record) -> String {
    name_of(record.metadata.as_ref().unwrap()).to_owned()
}

/// Salvages the data. Returns the number of rows that the message says are missing, with the
/// words before it, and the number of claims in the file, which is also imported.
pub(super) fn salvage(data: &Path) -> (Option<(String, u64)>, u64) {
    let out = TempDir::new().unwrap();
    let (file, copy) = (out.path().join("rows.jsonl"), out.path().join("copy"));
    let salvaged = run("export", data, &["--salvage", "--output", file.to_str().unwrap()]).unwrap();
    let stderr = String::from_utf8_lossy(&salvaged.stderr);
    let message = stderr.lines().find_map(|line| line.strip_prefix("error: "));
    let missing = message.map(|message| {
        let (front, _) = message.split_once(" damaged row").unwrap_or_else(|| panic!("{message}"));
        let (words, count) = front.rsplit_once(' ').unwrap_or(("", front));
        (words.to_owned(), count.parse().unwrap())
    });
    assert_eq!(salvaged.status.code(), Some(i32::from(missing.is_some())), "{stderr}");
    let imported = run("import", &copy, &["--input", file.to_str().unwrap()]).unwrap();
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    let lines = std::fs::read_to_string(file).unwrap();
    (missing, lines.lines().filter(|line| line.starts_with(r#"{"claim""#)).count() as u64)
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_salvage_has_every_claim_of_a_store_with_a_damaged_index() {
    let dir = damaged_store(&["sources"]).await;
    assert_eq!(salvage(dir.path()), (None, CLAIMS));
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_salvage_counts_the_claims_of_a_damaged_block() {
    let dir = damaged_store(&["claims"]).await;
    let (missing, claims) = salvage(dir.path());
    let (words, missing) = missing.unwrap();
    assert_eq!((words.as_str(), missing + claims), ("", CLAIMS));
    assert!((1..CLAIMS / 4).contains(&missing), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_salvage_says_that_its_count_is_a_lower_bound() {
    let dir = damaged_store(&["claims", "sources"]).await;
    let (missing, claims) = salvage(dir.path());
    let (words, missing) = missing.unwrap();
    assert_eq!(words, "at least");
    assert!(claims < CLAIMS && claims + missing <= CLAIMS + 1, "{claims} and {missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_lists_and_a_decommission_pass_a_damaged_index() {
    let dir = damaged_store(&["sources"]).await;
    let server = Server::builder().data(dir.path()).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    let mut names: Vec<_> = client.records().await.unwrap().iter().map(listed_name).collect();
    names.sort();
    let mut expected: Vec<_> = (1..=CLAIMS).map(name).collect();
    expected.sort();
    assert!(names == expected, "{} records of {CLAIMS}", names.len());
    assert!(server.has_logged("an index of claims is damaged"), "{}", server.stderr());
    let (_, metrics) = get(server.address(), "/metrics").await.unwrap();
    assert!(!metrics.contains("\nleasehold_damaged_rows_total 0\n"), "{metrics}");

    let url = format!("http://{}", server.address());
    let decommission = ["decommission", "--json", "--server", &url, "--cell", "1"];
    let dropped = leasehold(decommission.into_iter().chain(["--drop", "cell-1"])).await.unwrap();
    let stdout = String::from_utf8_lossy(&dropped.stdout);
    assert!(dropped.status.success(), "{}", String::from_utf8_lossy(&dropped.stderr));
    assert!(stdout.contains(&format!(r#""USERS":{CLAIMS}"#)), "{stdout}");
    let left = leasehold(decommission).await.unwrap();
    assert!(String::from_utf8_lossy(&left.stdout).contains(r#""claims":{}"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_deep_doctor_names_a_damaged_index() {
    for (keyspaces, code, words) in [
        (&[][..], 0, "ok    rows           all "),
        (&["sources"], 1, "fail  rows           `sources`: "),
        (&["claims"], 1, "fail  rows           `claims`: "),
    ] {
        let dir = damaged_store(keyspaces).await;
        let found = run("doctor", dir.path(), &["--deep"]).unwrap();
        let stdout = String::from_utf8_lossy(&found.stdout);
        assert_eq!(found.status.code(), Some(code), "{keyspaces:?}: {stdout}");
        assert!(stdout.contains(words), "{stdout}");
    }
}

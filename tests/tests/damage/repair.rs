//! Tests of repairs: a changed byte is corrected, and a start after a compaction has met a damaged
//! block makes the index anew, or refuses to lose claims by silence.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fjall::KeyspaceCreateOptions;
use leasehold_tests::client::Client;
use leasehold_tests::disk::Disk;
use leasehold_tests::server::{Server, binary};
use leasehold_tests::transfer::run;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::blocks::{CLAIMS, change_bytes, flushed_table, listed_name, salvage, settled_claims};
use super::disk::ends_by_itself;
use super::{creates, name};

/// The number of leases that are not settled.
const LEASES: u64 = 100;

/// Asserts that the server lists the settled claims; `others` is true if it may have others too.
async fn lists_all(server: &Server, others: bool) {
    let mut client = Client::connect(server, 1).await.unwrap();
    let names: Vec<_> = client.records().await.unwrap().iter().map(listed_name).collect();
    let missing = (1..=CLAIMS).map(name).filter(|name| !names.contains(name)).count();
    assert_eq!(missing, 0, "of {CLAIMS}; {} are listed", names.len());
    assert!(others || names.len() as u64 == CLAIMS, "{} are listed", names.len());
}

/// Returns the largest file in a folder.
fn largest(folder: &Path) -> std::path::PathBuf {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_salvage_corrects_a_flipped_bit_anywhere() {
    for keyspace in ["claims", "sources", "outstanding", "settled"] {
        for share in [0.5, 0.985, 0.9999] {
            let dir = settled_claims().await;
            change_bytes(&flushed_table(dir.path(), keyspace), share, 1);
            assert_eq!(salvage(dir.path()), (None, CLAIMS), "{keyspace} at {share}");
        }
    }
    for share in [0.1, 0.4, 0.7] {
        let dir = settled_claims().await;
        change_bytes(&largest(&dir.path().join("fjall/keyspaces/0/tables")), share, 1);
        assert_eq!(salvage(dir.path()), (None, CLAIMS), "fjall's own keyspace at {share}");
    }
}

/// The row of the update has more than 256 KiB, and so has its block.
#[tokio::test(flavor = "multi_thread")]
async fn s12_a_salvage_corrects_a_changed_byte_of_a_large_update() {
    const LARGE: u64 = 1_500;
    for share in [0.3, 0.6] {
        let dir = TempDir::new().unwrap();
        let mut server = Server::builder().data(dir.path()).start().unwrap();
        let mut client = Client::connect(&server, 1).await.unwrap();
        client.begin(creates(1..LARGE + 1, 200)).await.unwrap();
        drop(client);
        assert!(server.terminate().unwrap().success());
        let table = flushed_table(dir.path(), "outstanding");
        assert!(table.metadata().unwrap().len() > 300_000, "{:?}", table.metadata().unwrap().len());
        change_byte(&table, |end| (end as f64 * share) as usize);
        assert_eq!(salvage(dir.path()), (None, LARGE), "at {share}");
    }
}

/// One damage each that keeps fjall from opening the store.
#[tokio::test(flavor = "multi_thread")]
async fn s12_a_server_starts_after_a_flipped_bit() {
    for file in ["journal", "first entry", "last entry", "version", "no version", "index", "outstanding", "fjall"] {
        let dir = settled_claims().await;
        match file {
            "journal" => flip_in_journal(dir.path(), usize::midpoint),
            "first entry" => change_byte(&dir.path().join("fjall/0.jnl"), |_| 60),
            "last entry" => change_byte(&dir.path().join("fjall/0.jnl"), |end| end - 1),
            "version" => change_byte(&dir.path().join("fjall/version"), |_| 0),
            "no version" => std::fs::remove_file(dir.path().join("fjall/version")).unwrap(),
            "index" => change_bytes(&flushed_table(dir.path(), "claims"), 0.985, 1),
            "outstanding" => change_bytes(&flushed_table(dir.path(), "outstanding"), 0.5, 1),
            _ => change_bytes(&largest(&dir.path().join("fjall/keyspaces/0/tables")), 0.5, 1),
        }
        let mut server = Server::builder().data(dir.path()).start().unwrap();
        lists_all(&server, false).await;
        assert!(server.stderr().contains("a byte had changed"), "{file}: {}", server.stderr());
        assert!(server.terminate().unwrap().success());
    }
}

/// Flips a bit of the byte at a place, which `at` chooses by the number of bytes before the zeros at
/// the end.
fn change_byte(path: &Path, at: impl FnOnce(usize) -> usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let written = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    bytes[at(written)] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Without its watermark, a store does not know whether its journal ends with damage or with a write
/// that was cut short. A journal that can't be read is never taken for an empty store.
#[tokio::test(flavor = "multi_thread")]
async fn s12_a_lost_watermark_loses_no_journal() {
    for at in [60, 200_000] {
        for lost in ["", "not a number, and long"] {
            let dir = settled_claims().await;
            std::fs::write(dir.path().join("acknowledged"), lost).unwrap();
            change_byte(&dir.path().join("fjall/0.jnl"), |_| at);
            let server = Server::builder().data(dir.path()).start().unwrap();
            lists_all(&server, false).await;
        }
    }
    let dir = settled_claims().await;
    let whole = std::fs::read(dir.path().join("fjall/0.jnl")).unwrap();
    std::fs::remove_file(dir.path().join("acknowledged")).unwrap();
    [60, 61].into_iter().for_each(|at| change_byte(&dir.path().join("fjall/0.jnl"), |_| at));
    for _ in 0..2 {
        let refused = run("serve", dir.path(), &["--create", "--listen", "127.0.0.1:0"]).unwrap();
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(10), "{stderr}");
        assert!(stderr.contains("lacks a batch, from byte 0"), "{stderr}");
    }
    // The whole entries after the damage show that nothing was cut short.
    let left = std::fs::read(dir.path().join("fjall/0.jnl")).unwrap();
    assert_eq!(left.iter().zip(&whole).filter(|(left, whole)| left != whole).count(), 2);
}

/// A search for a changed byte may take minutes. Two changed bytes of a batch are searched in vain.
#[tokio::test(flavor = "multi_thread")]
async fn s12_a_search_says_what_it_does_and_ends_at_a_signal() {
    let dir = settled_claims().await;
    flip_in_journal(dir.path(), usize::midpoint);
    flip_in_journal(dir.path(), |begin, end| usize::midpoint(begin, end) + 1);
    let before = std::fs::read(dir.path().join("fjall/0.jnl")).unwrap();
    let mut server = std::process::Command::new(binary().unwrap());
    server.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path()).stderr(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("a changed byte is searched in a damaged part of the file")));
    let begin = Instant::now();
    kill(Pid::from_raw(server.id() as i32), Signal::SIGTERM).unwrap();
    assert!(server.wait().unwrap().success());
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert!(std::fs::read(dir.path().join("fjall/0.jnl")).unwrap() == before);
}

/// Flips a bit of a byte of the journal's batch of at least 1,000 bytes that begins first. The byte
/// is at the place that `at` chooses between the batch's beginning and end.
fn flip_in_journal(data: &Path, at: impl FnOnce(usize, usize) -> usize) {
    let path = data.join("fjall/0.jnl");
    let mut bytes = std::fs::read(&path).unwrap();
    let ends: Vec<_> = (4..bytes.len()).filter(|end| bytes[..*end].ends_with(b"FJL\x03")).collect();
    let batch = ends.windows(2).find(|ends| (1_000..250_000).contains(&(ends[1] - ends[0]))).unwrap();
    bytes[at(batch[0], batch[1])] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_salvage_passes_damaged_outstanding_leases() {
    let dir = settled_claims().await;
    let mut server = Server::builder().data(dir.path()).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    for number in CLAIMS + 1..=CLAIMS + LEASES {
        client.begin(creates(number..number + 1, 200)).await.unwrap();
    }
    drop(client);
    assert!(server.terminate().unwrap().success());
    change_bytes(&flushed_table(dir.path(), "outstanding"), 0.4, 2);
    let (missing, claims) = salvage(dir.path());
    assert_eq!(missing, Some(("at least".into(), 1)));
    assert!((CLAIMS + LEASES / 2..CLAIMS + LEASES).contains(&claims), "{claims}");
}

/// Returns a store whose next compaction meets damaged bytes in a keyspace. fjall moves the first
/// table to the last level, and compacts it with the fourth table of the first level.
async fn store_before_compaction(keyspace: &str, bytes: usize) -> TempDir {
    let dir = settled_claims().await;
    add_table(dir.path(), keyspace, |rows| rows.l0_table_count() == 0);
    change_bytes(&flushed_table(dir.path(), keyspace), 0.5, bytes);
    for _ in 0..4 {
        add_table(dir.path(), keyspace, |_| true);
    }
    dir
}

/// Writes the first and last row of a keyspace again, into a table of their own, and waits for a
/// condition.
fn add_table(data: &Path, keyspace: &str, is_done: impl Fn(&fjall::Keyspace) -> bool) {
    let database = fjall::Database::builder(data.join("fjall")).open().unwrap();
    let rows = database.keyspace(keyspace, KeyspaceCreateOptions::default).unwrap();
    for row in [rows.first_key_value().unwrap(), rows.last_key_value().unwrap()] {
        let (key, value) = row.into_inner().unwrap();
        rows.insert(key, value).unwrap();
    }
    rows.rotate_memtable_and_wait().unwrap();
    while !is_done(&rows) {
        std::thread::yield_now();
    }
}

/// Starts a server on the store, and writes until the compaction has ended the server.
async fn run_into_damage(data: &Path) {
    let mut server = Server::builder().data(data).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    let mut number = CLAIMS;
    while client.begin(creates(number + 1..number + 2, 10)).await.is_ok() {
        number += 1;
    }
    drop(client);
    ends_by_itself(&mut server);
    assert!(server.stderr().contains("the next start checks every row"), "{}", server.stderr());
    assert!(data.join("check-rows").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_damaged_index_is_made_anew_after_a_compaction() {
    let dir = store_before_compaction("sources", 2).await;
    run_into_damage(dir.path()).await;
    let mut server = Server::builder().data(dir.path()).start().unwrap();
    assert!(server.stderr().contains("damaged indexes are made anew"), "{}", server.stderr());
    lists_all(&server, true).await;
    assert!(!dir.path().join("check-rows").exists());
    for round in 0..2 {
        assert!(server.terminate().unwrap().success(), "{round}");
        let found = run("doctor", dir.path(), &["--deep"]).unwrap();
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stdout));
        server.restart().unwrap();
        lists_all(&server, true).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_flipped_bit_of_claims_is_corrected_after_a_compaction() {
    let dir = store_before_compaction("claims", 1).await;
    run_into_damage(dir.path()).await;
    let server = Server::builder().data(dir.path()).start().unwrap();
    lists_all(&server, true).await;
}

/// The names of lost claims are free in a new store, so a person must decide on it.
#[tokio::test(flavor = "multi_thread")]
async fn s12_damaged_claims_refuse_the_start_after_a_compaction() {
    let dir = store_before_compaction("claims", 2).await;
    run_into_damage(dir.path()).await;
    for _ in 0..2 {
        let refused = run("serve", dir.path(), &["--listen", "127.0.0.1:0"]).unwrap();
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(10), "{stderr}");
        let error = stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
        assert!(error.contains("`claims`: ") && error.contains("`leasehold export --salvage`"), "{stderr}");
    }
    let (missing, claims) = salvage(dir.path());
    let (words, missing) = missing.unwrap();
    assert!(words.is_empty() && missing < CLAIMS / 4 && claims + missing >= CLAIMS, "{missing} and {claims}");
}

/// Makes the state of a repair that was cut short: the index has lost all keys but the first.
fn begin_to_fill(data: &Path, index: &str) {
    let database = fjall::Database::builder(data.join("fjall")).open().unwrap();
    let rows = database.keyspace(index, KeyspaceCreateOptions::default).unwrap();
    let first = rows.first_key_value().unwrap().key().unwrap();
    rows.clear().unwrap();
    let mut batch = database.batch();
    batch.insert(&rows, first, "");
    let meta = database.keyspace("meta", KeyspaceCreateOptions::default).unwrap();
    batch.insert(&meta, "format", meta.get("format").unwrap().unwrap());
    batch.commit().unwrap();
    database.persist(fjall::PersistMode::SyncAll).unwrap();
    drop((rows, meta, database));
    std::fs::write(data.join("check-rows"), index).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_repair_goes_on_after_a_full_disk() {
    let (dir, disk) = (settled_claims().await, Disk::new(200).unwrap());
    begin_to_fill(dir.path(), "sources");
    let data = disk.path().join("data");
    assert!(std::process::Command::new("cp").arg("-r").arg(dir.path()).arg(&data).status().unwrap().success());
    for _ in 0..2 {
        disk.fill_up().unwrap();
        let refused = run("serve", &data, &["--listen", "127.0.0.1:0"]).unwrap();
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && stderr.contains("No space left on device"), "{stderr}");
    }
    disk.empty().unwrap();
    let server = Server::builder().data(&data).start().unwrap();
    lists_all(&server, false).await;
}

/// A start that was cut short has emptied the index and has written some of its keys.
#[tokio::test(flavor = "multi_thread")]
async fn s12_a_repair_that_was_cut_short_begins_again() {
    for index in ["sources", "settled_order"] {
        let dir = settled_claims().await;
        begin_to_fill(dir.path(), index);
        let mut server = Server::builder().data(dir.path()).start().unwrap();
        lists_all(&server, false).await;
        assert!(server.terminate().unwrap().success());
        let database = fjall::Database::builder(dir.path().join("fjall")).open().unwrap();
        let rows = |name| database.keyspace(name, KeyspaceCreateOptions::default).unwrap().len().unwrap();
        assert_eq!((rows("sources"), rows("settled_order")), (rows("claims"), rows("settled")), "{index}");
    }
}

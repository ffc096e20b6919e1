//! Tests of damage to the data directory: a power cut, a full or broken disk, changed bytes, a newer
//! format, and a missing lock file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it does not expect"
)]

mod blocks;
mod corruption;
mod disk;
mod failed_store;
mod one_row;
mod power_cut;
mod repair;

use leasehold_tests::client::{Update, user};
use leasehold_tests::server::Server;
use leasehold_tests::transfer::run;
use tempfile::TempDir;

/// Returns an update that creates the claims with these numbers, each with `bytes` bytes of
/// attached data.
fn creates(numbers: std::ops::Range<u64>, bytes: usize) -> Update {
    let creates = numbers.map(|number| user(name(number), number, vec![number.to_le_bytes()[0]; bytes])).collect();
    Update { creates, ..Update::default() }
}

fn name(number: u64) -> String {
    format!("user-{number}")
}

#[test]
fn data_of_a_newer_format_is_refused() {
    let dir = TempDir::new().unwrap();
    let mut server = Server::builder().data(dir.path()).start().unwrap();
    assert!(server.terminate().unwrap().success());
    let database = fjall::Database::builder(dir.path().join("fjall")).open().unwrap();
    let meta = database.keyspace("meta", fjall::KeyspaceCreateOptions::default).unwrap();
    meta.insert("format", 7_u64.to_be_bytes()).unwrap();
    database.persist(fjall::PersistMode::SyncAll).unwrap();
    drop((meta, database));
    for verb in ["serve", "export"] {
        let output = run(verb, dir.path(), if verb == "serve" { &["--listen", "127.0.0.1:0"] } else { &[] }).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.starts_with("error: ") && stderr.contains("has format 7, this version reads formats up to 6"),
            "{stderr}"
        );
    }
}

#[test]
fn a_data_directory_without_its_lock_file_is_refused() {
    let dir = TempDir::new().unwrap();
    let mut server = Server::builder().data(dir.path()).start().unwrap();
    assert!(server.terminate().unwrap().success());
    let lock = dir.path().join("fjall/lock");
    std::fs::remove_file(&lock).unwrap();
    let output = run("export", dir.path(), &[]).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let message = format!("error: the lock file `{}` is missing", lock.display());
    assert!(stderr.starts_with(&message) && stderr.contains("create an empty file there"), "{stderr}");
    std::fs::write(&lock, "").unwrap();
    assert!(run("export", dir.path(), &[]).unwrap().status.success());
}

//! Runs the engine's conformance suite on the embedded store, with real files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use leasehold_core::conformance::{Harness, run};
use leasehold_server::store::{BlockingStore, Creation, EmbeddedStore, StoreError};
use tempfile::TempDir;

/// A harness that opens each store in a directory of its own.
struct Directories(Vec<TempDir>);

impl Directories {
    fn last(&self) -> BlockingStore {
        let directory = self.0.last().unwrap().path();
        BlockingStore::open(std::future::ready(EmbeddedStore::open(directory, Creation::Allowed))).unwrap()
    }
}

impl Harness for Directories {
    type Store = BlockingStore;

    fn open(&mut self) -> BlockingStore {
        self.0.push(tempfile::tempdir().unwrap());
        self.last()
    }

    fn reopen(&mut self, store: BlockingStore) -> BlockingStore {
        drop(store);
        self.last()
    }
}

#[test]
fn the_embedded_store_conforms() {
    run(&mut Directories(Vec::new()));
}

#[test]
fn a_data_directory_can_be_open_once_only() {
    let directory = tempfile::tempdir().unwrap();
    let _first = EmbeddedStore::open(directory.path(), Creation::Allowed).unwrap();
    assert!(matches!(EmbeddedStore::open(directory.path(), Creation::Allowed), Err(StoreError::InUse(_))));
}

/// Returns the number of commits that the store in a directory has acknowledged.
fn acknowledged(directory: &TempDir) -> u64 {
    let file = std::fs::read(directory.path().join(EmbeddedStore::WRITTEN)).unwrap();
    u64::from_be_bytes(*file.first_chunk().unwrap())
}

/// A reload of the configuration stores bucket types while the committer commits groups. If both
/// took one number, the last number on disk could be lower than the acknowledged one. The next start
/// would then refuse the store as damaged.
#[test]
fn commits_of_two_threads_have_numbers_of_their_own() {
    const COMMITS: u64 = 200;
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), Creation::Allowed).unwrap();
    let before = acknowledged(&directory);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..COMMITS).for_each(|_| store.remember_bucket_types(&[]).unwrap()));
        }
    });
    assert_eq!(acknowledged(&directory), before + 2 * COMMITS);
    drop(store);
    EmbeddedStore::open(directory.path(), Creation::Refused).unwrap();
}

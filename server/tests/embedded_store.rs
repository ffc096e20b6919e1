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

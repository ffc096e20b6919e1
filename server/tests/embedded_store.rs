//! The embedded store under the suite that every store passes, on real files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use leasehold_core::conformance::{Harness, run};
use leasehold_server::store::{EmbeddedStore, StoreError};
use tempfile::TempDir;

struct Embedded(Vec<TempDir>);

impl Harness for Embedded {
    type Store = EmbeddedStore;

    fn open(&mut self) -> EmbeddedStore {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path()).unwrap();
        self.0.push(directory);
        store
    }

    fn reopen(&mut self, store: EmbeddedStore) -> EmbeddedStore {
        drop(store);
        EmbeddedStore::open(self.0.last().unwrap().path()).unwrap()
    }
}

#[test]
fn it_conforms() {
    run(&mut Embedded(Vec::new()));
}

#[test]
fn a_second_opening_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let _first = EmbeddedStore::open(directory.path()).unwrap();
    assert!(matches!(EmbeddedStore::open(directory.path()), Err(StoreError::Locked(_))));
}

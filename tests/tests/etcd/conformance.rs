//! Runs the conformance suite of stores on the store in etcd.

use leasehold_core::conformance::{Harness, run};
use leasehold_server::store::{BlockingStore, Creation};
use leasehold_tests::etcd::{EtcdCluster, LIMITS};

use crate::open;

/// Gives each test of the suite a store with a new prefix.
struct Prefixes {
    cluster: EtcdCluster,
    count: u32,
}

impl Prefixes {
    fn store(&self) -> BlockingStore {
        open(&self.cluster, &format!("suite/{}", self.count), Creation::Allowed).unwrap()
    }
}

impl Harness for Prefixes {
    type Store = BlockingStore;

    fn open(&mut self) -> BlockingStore {
        self.count += 1;
        self.store()
    }

    fn reopen(&mut self, store: BlockingStore) -> BlockingStore {
        drop(store);
        self.store()
    }
}

#[test]
fn the_store_in_etcd_conforms() {
    run(&mut Prefixes { cluster: EtcdCluster::start(1, LIMITS).unwrap(), count: 0 });
}

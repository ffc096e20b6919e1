//! Tests of the server with etcd as its store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it does not expect"
)]

mod conformance;
mod guards;
mod serving;
mod start;

use leasehold_server::config::EtcdConfig;
use leasehold_server::store::{BlockingStore, Creation, OrderedStore, StoreError};
use leasehold_tests::etcd::EtcdCluster;

/// Opens the store with this prefix, as a server does at its start.
fn open(cluster: &EtcdCluster, prefix: &str, creation: Creation) -> Result<BlockingStore, StoreError> {
    let settings = EtcdConfig::at(cluster.url(prefix));
    BlockingStore::open(async move { OrderedStore::on_etcd(&settings, creation).await })
}

//! Tests of the server with etcd as its store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it does not expect"
)]

mod conformance;
mod failovers;
mod guards;
mod restored;
mod serving;
mod start;
mod tls;
mod transfer;
mod writers;

use leasehold_server::config::EtcdConfig;
use leasehold_server::store::{BlockingStore, Creation, OrderedStore, StoreError};
use leasehold_tests::etcd::EtcdCluster;
use leasehold_tests::server::{Builder, Server};

/// Opens the store with this prefix, as a server does at its start.
fn open(cluster: &EtcdCluster, prefix: &str, creation: Creation) -> Result<BlockingStore, StoreError> {
    let state_directory = Some(cluster.state_directory());
    let settings = EtcdConfig { state_directory, ..EtcdConfig::at(cluster.url(prefix)) };
    BlockingStore::open(async move { OrderedStore::on_etcd(&settings, creation).await })
}

/// Returns a server on the store with this prefix. `settings` are lines of `[etcd]`.
fn server(cluster: &EtcdCluster, prefix: &str, settings: &str) -> Builder {
    let (url, directory) = (cluster.url(prefix), cluster.state_directory());
    let table = format!("[etcd]\nurl = \"{url}\"\nstate_directory = \"{}\"\n{settings}\n", directory.display());
    Server::builder().config(table)
}

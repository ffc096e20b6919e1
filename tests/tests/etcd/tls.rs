//! Encrypted connections to a cluster that demands certificates of its clients.

use leasehold_core::store::Store;
use leasehold_server::config::EtcdConfig;
use leasehold_server::store::{BlockingStore, Creation, OrderedStore, StoreError};
use leasehold_tests::certificates::Authority;
use leasehold_tests::etcd::{ClientPems, EtcdCluster, LIMITS};

/// Opens the store with the files of a client.
fn open(cluster: &EtcdCluster, ClientPems { ca, certificate, key }: ClientPems) -> Result<BlockingStore, StoreError> {
    let [ca, certificate, key] = [ca, certificate, key].map(Some);
    open_with(EtcdConfig { ca, certificate, key, ..plain(cluster) })
}

fn plain(cluster: &EtcdCluster) -> EtcdConfig {
    EtcdConfig { state_directory: Some(cluster.state_directory()), ..EtcdConfig::at(cluster.url("tls")) }
}

fn open_with(settings: EtcdConfig) -> Result<BlockingStore, StoreError> {
    BlockingStore::open(async move { OrderedStore::on_etcd(&settings, Creation::Allowed).await })
}

#[test]
fn a_cluster_with_certificates_is_a_store() {
    let cluster = EtcdCluster::start_with_tls(3, LIMITS).unwrap();
    let store = open(&cluster, cluster.client_pems()).unwrap();
    assert_eq!(store.state().unwrap().claims.len(), 0);
}

/// Neither side talks to somebody whose certificate is not of its authority.
#[test]
fn both_sides_check_certificates() {
    let cluster = EtcdCluster::start_with_tls(1, LIMITS).unwrap();
    let pems = cluster.client_pems();
    let directory = tempfile::TempDir::new().unwrap();
    let other = Authority::new("other").unwrap();
    let foreign = directory.path().join("ca.pem");
    std::fs::write(&foreign, other.pem()).unwrap();
    let unchecked = open(&cluster, ClientPems { ca: foreign, ..pems.clone() }).map(drop).unwrap_err().to_string();
    assert!(unchecked.contains("UnknownIssuer"), "{unchecked}");
    let without = EtcdConfig { ca: Some(pems.ca), ..plain(&cluster) };
    let refused = open_with(without).map(drop).unwrap_err().to_string();
    assert!(refused.contains("received fatal alert: BadCertificate"), "{refused}");
    let plain = open_with(plain(&cluster)).map(drop).unwrap_err().to_string();
    assert!(plain.contains("can't be reached"), "{plain}");
}

/// Files are read for each connection: renewed certificates need no restart of the server.
#[test]
fn renewed_certificates_are_used() {
    let mut cluster = EtcdCluster::start_with_tls(1, LIMITS).unwrap();
    let store = open(&cluster, cluster.client_pems()).unwrap();
    cluster.kill(0).unwrap();
    cluster.renew_certificates().unwrap();
    cluster.restart(0).unwrap();
    assert_eq!(store.state().unwrap().claims.len(), 0);
}

//! Tests of TLS between server and database: the server verifies the database's certificate, and
//! never falls back to plain text.

use leasehold_server::config::PostgresConfig;
use leasehold_server::serve::ServeError;
use leasehold_server::store::{Creation, PostgresStore, SharedMaintenance, StoreError};
use leasehold_tests::certificates::{Authority, Pair};
use leasehold_tests::postgres::Cluster;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::Code;

use crate::{NO_SYNC, await_condition};

/// A cluster that accepts TLS, and the directory into which the test writes the authority's
/// certificate.
struct TlsCluster {
    cluster: Cluster,
    files: TempDir,
    runtime: Runtime,
}

impl TlsCluster {
    fn new(certificate: &Pair) -> Self {
        let cluster = Cluster::start_with(
            &["fsync=off", "ssl=on"],
            &[("server.crt", &certificate.certificate), ("server.key", &certificate.key)],
        );
        Self { cluster: cluster.unwrap(), files: TempDir::new().unwrap(), runtime: Runtime::new().unwrap() }
    }

    fn open(&self, authority: Option<&Authority>, host: &str) -> Result<PostgresStore, StoreError> {
        let path = self.files.path().join("ca.pem");
        let ca = authority.map(|authority| {
            std::fs::write(&path, authority.pem()).unwrap();
            path
        });
        let url = self.cluster.url("postgres").replace("127.0.0.1", host);
        self.runtime.block_on(PostgresStore::open(&PostgresConfig { ca, ..PostgresConfig::at(url) }, Creation::Allowed))
    }

    /// Returns `true` or `false` for "all server connections are encrypted", followed by the number
    /// of these connections.
    fn encryption(&self) -> String {
        let ssl = "SELECT coalesce(bool_and(ssl), false)::text || ' ' || count(*) FROM pg_stat_ssl
                   JOIN pg_stat_activity USING (pid) WHERE application_name = 'leasehold'";
        self.cluster.execute("postgres", ssl).unwrap().join("")
    }
}

#[test]
fn connections_are_encrypted_if_an_authority_is_configured() {
    let authority = Authority::new("database authority").unwrap();
    let tls_cluster = TlsCluster::new(&authority.server().unwrap());
    let store = tls_cluster.open(Some(&authority), "localhost").unwrap();
    tls_cluster.runtime.block_on(store.refresh_occupancy()).unwrap();
    // The session that checked the database may still be ending.
    await_condition("one encrypted connection", || tls_cluster.encryption() == "true 1");
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let (authority, other) = (Authority::new("database authority").unwrap(), Authority::new("another").unwrap());
    let tls_cluster = TlsCluster::new(&authority.server().unwrap());
    let error = tls_cluster.open(Some(&other), "localhost").err().unwrap().to_string();
    assert!(error.contains("certificate"), "{error}");
    assert_eq!(tls_cluster.encryption(), "false 0");
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let authority = Authority::new("database authority").unwrap();
    let tls_cluster = TlsCluster::new(&authority.server_elsewhere().unwrap());
    let error = tls_cluster.open(Some(&authority), "localhost").err().unwrap().to_string();
    assert!(error.contains("certificate"), "{error}");
}

#[test]
fn a_database_without_tls_is_refused_if_an_authority_is_configured() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let tls_cluster = TlsCluster { cluster, files: TempDir::new().unwrap(), runtime: Runtime::new().unwrap() };
    let authority = Authority::new("database authority").unwrap();
    let error = tls_cluster.open(Some(&authority), "localhost").err().unwrap().to_string();
    assert!(error.contains("TLS"), "{error}");
}

#[test]
fn a_client_certificate_that_the_database_rejects_is_reported_with_a_hint() {
    let (authority, other) = (Authority::new("database authority").unwrap(), Authority::new("another").unwrap());
    let server = authority.server().unwrap();
    let cluster = Cluster::start_with(
        &["fsync=off", "ssl=on", "ssl_ca_file=ca.crt"],
        &[("server.crt", &server.certificate), ("server.key", &server.key), ("ca.crt", &authority.pem())],
    );
    let cluster = cluster.unwrap();
    let files = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let rejected = other.client(&[]).unwrap();
    let settings = PostgresConfig {
        ca: Some(write("ca.pem", &authority.pem())),
        certificate: Some(write("rejected.pem", &rejected.certificate)),
        key: Some(write("rejected.key", &rejected.key)),
        ..PostgresConfig::at(cluster.url("postgres").replace("127.0.0.1", "localhost"))
    };
    let error = Runtime::new().unwrap().block_on(PostgresStore::open(&settings, Creation::Allowed)).err().unwrap();
    assert!(error.to_string().contains("does not accept this server's certificate"), "{error}");
    let error = ServeError::from(error);
    assert_eq!(error.code(), Some(Code::Unauthenticated));
    let hint = error.hint().unwrap();
    assert!(hint.contains("`postgres.certificate`") && hint.contains("`ssl_ca_file`"), "{hint}");
}

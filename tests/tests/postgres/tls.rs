//! TLS between server and database: its certificate is checked, and plain text is never a way out.

use leasehold_server::config::PostgresConfig;
use leasehold_server::serve::ServeError;
use leasehold_server::store::{PostgresStore, SharedMaintenance, StoreError};
use leasehold_tests::certificates::{Authority, Pair};
use leasehold_tests::postgres::Cluster;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::Code;

struct Secured {
    cluster: Cluster,
    files: TempDir,
    runtime: Runtime,
}

impl Secured {
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
        self.runtime.block_on(PostgresStore::open(&PostgresConfig { ca, ..PostgresConfig::at(url) }))
    }

    fn encrypted(&self) -> String {
        let ssl = "SELECT coalesce(bool_and(ssl), false)::text || ' ' || count(*) FROM pg_stat_ssl
                   JOIN pg_stat_activity USING (pid) WHERE application_name = 'leasehold'";
        self.cluster.execute("postgres", ssl).unwrap().join("")
    }
}

#[test]
fn connections_are_encrypted_where_an_authority_is_named() {
    let authority = Authority::new("database authority").unwrap();
    let secured = Secured::new(&authority.server().unwrap());
    let store = secured.open(Some(&authority), "localhost").unwrap();
    secured.runtime.block_on(store.refresh_occupancy()).unwrap();
    assert_eq!(secured.encrypted(), "true 1");
}

#[test]
fn another_authoritys_certificate_is_refused() {
    let (authority, other) = (Authority::new("database authority").unwrap(), Authority::new("another").unwrap());
    let secured = Secured::new(&authority.server().unwrap());
    let error = secured.open(Some(&other), "localhost").err().unwrap().to_string();
    assert!(error.contains("certificate"), "{error}");
    assert_eq!(secured.encrypted(), "false 0");
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::new("database authority").unwrap();
    let secured = Secured::new(&authority.server_elsewhere().unwrap());
    let error = secured.open(Some(&authority), "localhost").err().unwrap().to_string();
    assert!(error.contains("certificate"), "{error}");
}

#[test]
fn a_database_without_tls_is_not_spoken_to_in_plain_text() {
    let cluster = Cluster::start(&["fsync=off"]).unwrap();
    let secured = Secured { cluster, files: TempDir::new().unwrap(), runtime: Runtime::new().unwrap() };
    let authority = Authority::new("database authority").unwrap();
    let error = secured.open(Some(&authority), "localhost").err().unwrap().to_string();
    assert!(error.contains("TLS"), "{error}");
}

#[test]
fn a_certificate_that_the_database_does_not_accept_is_told_as_such() {
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
    let stranger = other.client(&[]).unwrap();
    let settings = PostgresConfig {
        ca: Some(write("ca.pem", &authority.pem())),
        certificate: Some(write("stranger.pem", &stranger.certificate)),
        key: Some(write("stranger.key", &stranger.key)),
        ..PostgresConfig::at(cluster.url("postgres").replace("127.0.0.1", "localhost"))
    };
    let error = Runtime::new().unwrap().block_on(PostgresStore::open(&settings)).err().unwrap();
    assert!(error.to_string().contains("does not accept this server's certificate"), "{error}");
    let error = ServeError::from(error);
    assert_eq!(error.code(), Some(Code::Unauthenticated));
    let hint = error.hint().unwrap();
    assert!(hint.contains("`postgres.certificate`") && hint.contains("`ssl_ca_file`"), "{hint}");
}

//! The book's examples of a database over TLS and of pgbouncer work, with other hosts, ports and paths.

use leasehold_tests::certificates::Authority;
use leasehold_tests::postgres::{Bouncer, Cluster};
use leasehold_tests::wire::command;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{NO_SYNC, TABLES};

/// The role of the book's example; the cluster's own user has the name that the book uses.
const ROLE: &str = "CREATE ROLE app LOGIN PASSWORD 'secret'";
const HBA: &str = "host all leasehold 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";

/// The first block in this language that contains these words.
fn example(language: &str, words: &str) -> String {
    let chapter =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/deploy/postgresql.md")).unwrap();
    let opening = format!("```{language}\n");
    let mut blocks = chapter.split(&opening).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.find(|block| block.contains(words)).unwrap_or_else(|| panic!("no `{words}` in {language}")).to_owned()
}

/// Replaces texts, each of which must be there.
fn with(text: String, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "no `{from}` in: {text}");
        text.replace(from, to)
    })
}

/// Migrates with this configuration in this directory, and returns the output.
fn migrate(directory: &TempDir, config: &str) -> String {
    std::fs::write(directory.path().join("leasehold.toml"), config).unwrap();
    let mut command = command().unwrap();
    command.args(["migrate", "--config", "leasehold.toml"]).current_dir(directory.path());
    let output = Runtime::new().unwrap().block_on(async { command.output().await }).unwrap();
    String::from_utf8(output.stderr).unwrap()
}

/// A cluster with a database that a role with a password owns, named as in the book except for the role.
fn cluster(settings: &[&str], files: &[(&str, &str)]) -> Cluster {
    let cluster = Cluster::start_with(settings, &[&[("pg_hba.conf", HBA)], files].concat()).unwrap();
    cluster.execute("postgres", ROLE).unwrap();
    cluster.execute("postgres", "CREATE DATABASE claims OWNER app").unwrap();
    cluster
}

#[test]
fn its_database_over_tls_is_reached() {
    let authority = Authority::new("database authority").unwrap();
    let pair = authority.server().unwrap();
    let files = [("server.crt", &*pair.certificate), ("server.key", &*pair.key)];
    let cluster = cluster(&["fsync=off", "ssl=on"], &files);
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("db-ca.pem"), authority.pem()).unwrap();
    let host = format!("localhost:{}", cluster.port());
    let config = with(example("toml", "db-ca.pem"), &[("leasehold:", "app:"), ("db.example.com:5432", &host)]);
    let said = migrate(&directory, &config);
    assert!(
        said.contains(&format!("migrated the tables in `postgres://{host}/claims` from version 0 to {TABLES}")),
        "{said}"
    );
}

#[test]
fn its_pgbouncer_stands_between() {
    let cluster = cluster(NO_SYNC, &[]);
    let port = format!("port={}", cluster.port());
    let bouncer = Bouncer::start_with("\"app\" \"secret\"\n", |listen, users| {
        let listen = format!("listen_port = {listen}");
        let paths = [("port=5432", &*port), ("listen_port = 6432", &listen), ("/etc/pgbouncer/userlist.txt", users)];
        with(example("ini", "pgbouncer"), &paths)
    });
    let bouncer = bouncer.unwrap();
    let host = format!("127.0.0.1:{}", bouncer.port());
    let config = with(example("toml", "127.0.0.1:5432"), &[("leasehold:", "app:"), ("127.0.0.1:5432", &host)]);
    let said = migrate(&TempDir::new().unwrap(), &config);
    assert!(
        said.contains(&format!("migrated the tables in `postgres://{host}/claims` from version 0 to {TABLES}")),
        "{said}"
    );
}

//! Tests that the book's configurations for a database over TLS and for pgbouncer work. The
//! tests replace the role, the hosts, the ports and the paths.

use leasehold_tests::certificates::Authority;
use leasehold_tests::postgres::{Bouncer, Cluster};
use leasehold_tests::wire::command;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::NO_SYNC;

/// Creates the role `app`. It replaces the book's role `leasehold`, which is the superuser in test
/// clusters.
const ROLE: &str = "CREATE ROLE app LOGIN PASSWORD 'secret'";
const HBA: &str = "host all leasehold 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";

/// Returns the first code block of the chapter on PostgreSQL that is in `language` and contains
/// `words`.
fn example(language: &str, words: &str) -> String {
    let chapter =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/deploy/postgresql.md")).unwrap();
    let opening = format!("```{language}\n");
    let mut blocks = chapter.split(&opening).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.find(|block| block.contains(words)).unwrap_or_else(|| panic!("no `{words}` in {language}")).to_owned()
}

/// Applies replacements to a text: each is an old and a new word.
///
/// # Panics
/// The text does not contain an old word.
fn replace(text: String, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "no `{from}` in: {text}");
        text.replace(from, to)
    })
}

/// Runs `leasehold init` in a directory, with this text as its configuration. Returns its
/// stderr.
fn init(directory: &TempDir, config: &str) -> String {
    std::fs::write(directory.path().join("leasehold.toml"), config).unwrap();
    let mut command = command().unwrap();
    command.args(["init", "--config", "leasehold.toml"]).current_dir(directory.path());
    let output = Runtime::new().unwrap().block_on(async { command.output().await }).unwrap();
    String::from_utf8(output.stderr).unwrap()
}

/// Returns a cluster with the book's database `claims`. The owner is the role `app`, which needs
/// its password.
fn cluster(settings: &[&str], files: &[(&str, &str)]) -> Cluster {
    let cluster = Cluster::start_with(settings, &[&[("pg_hba.conf", HBA)], files].concat()).unwrap();
    cluster.execute("postgres", ROLE).unwrap();
    cluster.execute("postgres", "CREATE DATABASE claims OWNER app").unwrap();
    cluster
}

#[track_caller]
fn expect_made(messages: &str, host: &str) {
    let made = format!(" in `postgres://{host}/claims`\n");
    assert!(messages.starts_with("made the store ") && messages.ends_with(&made), "{messages}");
}

#[test]
fn the_example_of_a_database_over_tls_works() {
    let authority = Authority::new("database authority").unwrap();
    let pair = authority.server().unwrap();
    let files = [("server.crt", &*pair.certificate), ("server.key", &*pair.key)];
    let cluster = cluster(&["fsync=off", "ssl=on"], &files);
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("db-ca.pem"), authority.pem()).unwrap();
    let host = format!("localhost:{}", cluster.port());
    let config = replace(example("toml", "db-ca.pem"), &[("leasehold:", "app:"), ("db.example.com:5432", &host)]);
    expect_made(&init(&directory, &config), &host);
}

#[test]
fn the_example_of_pgbouncer_works() {
    let cluster = cluster(NO_SYNC, &[]);
    let port = format!("port={}", cluster.port());
    let bouncer = Bouncer::start_with("\"app\" \"secret\"\n", |listen, users| {
        let listen = format!("listen_port = {listen}");
        let paths = [("port=5432", &*port), ("listen_port = 6432", &listen), ("/etc/pgbouncer/userlist.txt", users)];
        replace(example("ini", "pgbouncer"), &paths)
    });
    let bouncer = bouncer.unwrap();
    let host = format!("127.0.0.1:{}", bouncer.port());
    let config = replace(example("toml", "127.0.0.1:5432"), &[("leasehold:", "app:"), ("127.0.0.1:5432", &host)]);
    expect_made(&init(&TempDir::new().unwrap(), &config), &host);
}

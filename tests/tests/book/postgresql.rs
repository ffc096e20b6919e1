//! Runs the commands of the chapter on PostgreSQL with the role `app`: in test clusters the
//! chapter's role `leasehold` is the superuser.

use leasehold_tests::book::{Shell, blocks, document, examples};
use leasehold_tests::postgres::Cluster;

const CHAPTER: &str = "docs/src/deploy/postgresql.md";
const ROLE: &str = "CREATE ROLE app LOGIN PASSWORD 'secret'";
const HBA: &str = "host all leasehold 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";

fn cluster() -> Cluster {
    // `fsync` is not needed: pages that a killed process has written survive in the operating
    // system's cache.
    let cluster = Cluster::start_with(&["fsync=off"], &[("pg_hba.conf", HBA)]).unwrap();
    cluster.execute("postgres", ROLE).unwrap();
    cluster.execute("postgres", "CREATE DATABASE claims OWNER app").unwrap();
    cluster
}

/// Returns a text of the chapter in which URLs name the role `app` instead of `leasehold`.
fn with_role(text: &str) -> String {
    text.replace("postgres://leasehold:", "postgres://app:")
}

/// Returns the configuration of the chapter on the embedded store, with the PostgreSQL database in
/// place of the data directory.
fn config(shell: &Shell, chapter: &str) -> String {
    let embedded = blocks(&document("docs/src/deploy/embedded.md").unwrap(), "toml").remove(0);
    let database = shell.as_actual(&with_role(&blocks(chapter, "toml")[0]));
    assert!(database.contains("postgres://app:secret@127.0.0.1:"), "{database}");
    let config = embedded.replace("data = \"data\"\n", "").replace("127.0.0.1:9090", "127.0.0.1:0");
    format!("{config}\n{database}")
}

#[test]
fn the_chapter_on_postgresql_can_be_followed() {
    let cluster = cluster();
    let mut shell = Shell::start().unwrap();
    shell.replace_port(5432, cluster.port());
    for script in blocks(&document("docs/src/deploy/tls.md").unwrap(), "sh") {
        shell.run(&script).unwrap();
    }
    let chapter = document(CHAPTER).unwrap();
    std::fs::write(shell.directory().join("leasehold.toml"), config(&shell, &chapter)).unwrap();
    let mut ports = [7443, 7444].into_iter();
    for mut example in examples(&chapter) {
        example.command = with_role(&example.command);
        match example.command.strip_suffix(" &") {
            Some(serve) => drop(shell.serve(&serve.replace(":9091", ":0"), ports.next().unwrap()).unwrap()),
            None => shell.compare(&example).unwrap(),
        }
    }
    assert_eq!(ports.next(), None);
}

//! Runs the commands of the README, the tutorial, and the chapters on queues, the embedded store, TLS
//! and backup.

use std::time::{Duration, Instant};

use leasehold_tests::book::{Example, Shell, blocks, document, examples};
use leasehold_tests::postgres::Cluster;

const TUTORIAL: &str = "docs/src/tutorial.md";
const EMBEDDED: &str = "docs/src/deploy/embedded.md";
const TLS: &str = "docs/src/deploy/tls.md";
const QUEUES: &str = "docs/src/concepts/queues.md";
const BACKUP: &str = "docs/src/operate/backup.md";

/// The command with which the README and the tutorial start a server from a clone of the
/// repository.
const CARGO_SERVE: &str = "cargo leasehold serve\n";

/// Starts a server as the document at `path` does, then runs each command of the document and
/// compares its output.
fn follow(path: &str) {
    let text = document(path).unwrap();
    assert_eq!(blocks(&text, "sh")[0], CARGO_SERVE);
    let mut shell = Shell::start().unwrap();
    let banner = shell.serve("leasehold serve", 7171).unwrap();
    shell.compare_output(CARGO_SERVE, &blocks(&text, "text")[0], &banner).unwrap();
    // The documents give no server address: their server listens on the default port, but the
    // test's server does not.
    let server = shell.as_actual("export LEASEHOLD_SERVER=http://127.0.0.1:7171");
    shell.run(&server).unwrap();
    let examples = examples(&text);
    assert!(examples.len() >= 4, "{path} has {} examples", examples.len());
    for example in &examples {
        shell.compare(example).unwrap();
    }
}

#[test]
fn the_readme_can_be_followed() {
    follow("README.md");
}

#[test]
fn the_tutorial_can_be_followed() {
    follow(TUTORIAL);
}

#[test]
fn the_chapter_on_queues_can_be_followed() {
    let chapter = document(QUEUES).unwrap();
    let mut shell = Shell::start().unwrap();
    shell.serve("leasehold serve", 7171).unwrap();
    let server = shell.as_actual("export LEASEHOLD_SERVER=http://127.0.0.1:7171");
    shell.run(&server).unwrap();
    let examples = examples(&chapter);
    assert!(examples.len() >= 9, "the chapter has {} examples", examples.len());
    for example in &examples {
        shell.compare(example).unwrap();
    }
}

/// Runs the section on replication in a test cluster, whose superuser is the section's role.
#[test]
fn q06_q21_the_section_on_replication_can_be_followed() {
    let cluster = Cluster::start(&["fsync=off"]).unwrap();
    for database in ["shop", "copy"] {
        cluster.execute("postgres", &format!("CREATE DATABASE {database}")).unwrap();
    }
    let chapter = document(QUEUES).unwrap();
    let (_, section) = chapter.split_once("\n## Replicate tables\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut shell = Shell::start().unwrap();
    shell.replace_port(5432, cluster.port());
    let scripts = blocks(section, "sh");
    let [databases, capture, copy, work, changes] = &scripts[..] else { panic!("the section has {scripts:?}") };
    for script in [databases, capture, copy] {
        shell.run(&shell.as_actual(script)).unwrap();
    }
    let shown = blocks(section, "text");
    let [serve, result] = &shown[..] else { panic!("the section has {shown:?}") };
    std::fs::write(shell.directory().join("leasehold.toml"), shell.as_actual(&blocks(section, "toml")[0])).unwrap();
    shell.serve(serve.trim().strip_prefix("$ ").unwrap(), 7171).unwrap();
    let server = shell.as_actual("export LEASEHOLD_SERVER=http://127.0.0.1:7171");
    shell.run(&server).unwrap();
    std::fs::write(shell.directory().join("apply_change.sql"), &blocks(section, "sql")[0]).unwrap();
    // What the worker prints would stand between the outputs of the commands.
    let work = work.trim_end().strip_suffix('&').unwrap();
    shell.run(&format!("{work} >/dev/null 2>&1 & worker=$!")).unwrap();
    shell.run(changes).unwrap();
    let (command, output) = result.split_once('\n').unwrap();
    let lines = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut found = String::new();
    while lines(found.trim_end()) != lines(output.trim_end()) {
        assert!(Instant::now() < deadline, "{found}");
        found = shell.run(command.strip_prefix("$ ").unwrap()).unwrap();
    }
    shell.run("kill $worker; wait $worker || true").unwrap();
}

#[test]
fn cargo_leasehold_runs_the_server() {
    let config = document(".cargo/config.toml").unwrap();
    assert!(
        config.contains("leasehold = \"run --profile trial --package leasehold-server --bin leasehold --\""),
        "{config}"
    );
}

/// Runs the commands of the chapter on TLS, which create certificates, then those of the chapter on
/// the embedded store.
fn deploy() -> Shell {
    let mut shell = Shell::start().unwrap();
    for script in blocks(&document(TLS).unwrap(), "sh") {
        shell.run(&script).unwrap();
    }
    let chapter = document(EMBEDDED).unwrap();
    let config = blocks(&chapter, "toml")[0].replace("127.0.0.1:9090", "127.0.0.1:0");
    std::fs::write(shell.directory().join("leasehold.toml"), config).unwrap();
    let examples = examples(&chapter);
    let [init, start, calls @ ..] = &examples[..] else { panic!("the chapter has no start") };
    shell.compare(init).unwrap();
    let Example { command, output } = start;
    assert_eq!(output, "");
    shell.serve(command.strip_suffix(" &").unwrap(), 7443).unwrap();
    assert!(calls.len() >= 4, "the chapter has {} calls", calls.len());
    for example in calls {
        shell.compare(example).unwrap();
    }
    shell
}

#[test]
fn the_chapter_on_the_embedded_store_can_be_followed() {
    deploy();
}

#[test]
fn the_chapter_on_backup_can_be_followed() {
    let mut shell = deploy();
    shell.stop_servers().unwrap();
    let chapter = document(BACKUP).unwrap();
    let commands = blocks(&chapter, "sh").concat();
    let (serves, others): (Vec<_>, Vec<_>) = commands.lines().partition(|line| line.starts_with("leasehold serve"));
    for command in others {
        shell.run(command).unwrap();
    }
    assert!(shell.directory().join("new-data").is_dir());
    let [restored] = serves[..] else { panic!("the chapter starts {serves:?}") };
    let banner = shell.serve(restored, 7443).unwrap();
    assert!(banner.contains("the store is a restored copy"), "{banner}");
}

//! `leasehold export` and `leasehold import`: everything goes over, and nothing that is not whole.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it does not expect"
)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use leasehold_core::invariant;
use leasehold_core::lease::Outcome::{Committed, RolledBack};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::Metadata;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::record::Status;
use leasehold_tests::client::{Begun, Client, Update, lease_of, name_of, reason, user};
use leasehold_tests::server::{Server, binary};
use leasehold_tests::transfer::{export, import, run, state};
use leasehold_tests::wire::eventually;
use tempfile::TempDir;

fn names(names: &[&str], from: u64) -> Vec<Metadata> {
    names.iter().zip(from..).map(|(name, number)| user(*name, number, vec![7; 3])).collect()
}

/// Data of every kind: at rest, created, destroyed and replaced under a lease, settled either way, with keys and without.
struct World {
    update: Update,
    outstanding: Begun,
    committed: Begun,
    rolled_back: Begun,
}

async fn fill(client: &mut Client) -> World {
    let first = Update {
        creates: names(&["Alice", "bob", "carol", "dora"], 1),
        key: Some("first".into()),
        ..Update::default()
    };
    let committed = client.begin(first).await.unwrap();
    client.settle(&committed.lease, Committed).await.unwrap();
    let rolled_back = client.begin(Update { creates: names(&["eve"], 10), ..Update::default() }).await.unwrap();
    client.settle(&rolled_back.lease, RolledBack).await.unwrap();
    let update = Update {
        creates: [names(&["ALICE"], 21), names(&["frank"], 22)].concat(),
        destroys: [names(&["Alice"], 1), names(&["bob"], 2)].concat(),
        key: Some("outstanding".into()),
    };
    let outstanding = client.begin(update.clone()).await.unwrap();
    World { update, outstanding, committed, rolled_back }
}

async fn shown(client: &mut Client) -> Vec<(String, Status, bool)> {
    let records = client.records().await.unwrap();
    let shown = |record: &_| {
        let record: &leasehold_proto::gitlab::cells::topology_service::claims::v1::Record = record;
        (name_of(record.metadata.as_ref().unwrap()).to_owned(), record.status(), lease_of(record).is_some())
    };
    records.iter().map(shown).collect()
}

fn rows(expected: &[(&str, Status, bool)]) -> Vec<(String, Status, bool)> {
    expected.iter().map(|(name, status, held)| ((*name).to_owned(), *status, *held)).collect()
}

fn refused(output: &Output, message: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.lines().any(|line| line.starts_with("error: ") && line.contains(message)), "{stderr}");
}

/// The lines of a world's data, written to a file.
async fn exported(dir: &Path) -> (World, String) {
    let mut server = Server::start().unwrap();
    let world = fill(&mut Client::connect(&server, 1).await.unwrap()).await;
    assert!(server.terminate().unwrap().success());
    let lines = export(server.data()).unwrap();
    std::fs::write(dir.join("lines"), &lines).unwrap();
    (world, lines)
}

#[tokio::test]
async fn an_import_is_what_was_exported() {
    let dir = TempDir::new().unwrap();
    let (world, lines) = exported(dir.path()).await;
    invariant::check(&state(&lines).unwrap()).unwrap();
    let data = dir.path().join("imported");
    import(&data, &dir.path().join("lines")).unwrap();
    assert_eq!(export(&data).unwrap(), lines, "the export of the import differs");

    let mut server = Server::builder().data(&data).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    let before = [
        ("bob", Status::LeaseDestroying, true),
        ("carol", Status::Active, false),
        ("dora", Status::Active, false),
        ("ALICE", Status::LeaseCreating, true),
        ("frank", Status::LeaseCreating, true),
    ];
    assert_eq!(shown(&mut client).await, rows(&before));
    assert_eq!(client.leases().await.unwrap(), std::slice::from_ref(&world.outstanding.lease));
    assert_eq!(client.begin(world.update).await.unwrap(), world.outstanding, "the idempotency key is forgotten");
    client.settle(&world.committed.lease, Committed).await.unwrap();
    assert_eq!(reason(&client.settle(&world.rolled_back.lease, Committed).await.unwrap_err()), "LEASE_ROLLED_BACK");
    assert_eq!(reason(&client.settle(&world.committed.lease, RolledBack).await.unwrap_err()), "LEASE_COMMITTED");

    client.settle(&world.outstanding.lease, Committed).await.unwrap();
    let after = ["carol", "dora", "ALICE", "frank"].map(|name| (name, Status::Active, false));
    assert_eq!(shown(&mut client).await, rows(&after));
    let next = client.begin(Update { creates: names(&["bob"], 30), ..Update::default() }).await.unwrap();
    assert!(next.fence > world.outstanding.fence, "the fence starts over");
    server.terminate().unwrap();
    invariant::check(&state(&export(&data).unwrap()).unwrap()).unwrap();
}

#[tokio::test]
async fn a_rollback_after_an_import_restores_what_was() {
    let dir = TempDir::new().unwrap();
    let (world, _) = exported(dir.path()).await;
    let data = dir.path().join("imported");
    import(&data, &dir.path().join("lines")).unwrap();
    let server = Server::builder().data(&data).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    client.settle(&world.outstanding.lease, RolledBack).await.unwrap();
    let rest = ["Alice", "bob", "carol", "dora"].map(|name| (name, Status::Active, false));
    assert_eq!(shown(&mut client).await, rows(&rest));
}

#[tokio::test]
async fn a_running_server_keeps_its_data_to_itself() {
    let server = Server::start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    fill(&mut client).await;
    let message = "is in use by another process: stop it";
    refused(&run("export", server.data(), &[]).unwrap(), message);
    refused(&run("serve", server.data(), &["--listen", "127.0.0.1:0"]).unwrap(), message);
    refused(&run("import", server.data(), &["--input", "/dev/null"]).unwrap(), "is not empty: import into a new one");
    client.begin(Update { creates: names(&["zoe"], 99), ..Update::default() }).await.expect("the server still serves");
}

#[tokio::test]
async fn an_import_needs_a_new_directory_and_whole_lines() {
    let dir = TempDir::new().unwrap();
    let (_, lines) = exported(dir.path()).await;
    let path = |name: &str| dir.path().join(name);
    let used = path("used");
    import(&used, &path("lines")).unwrap();
    let again = run("import", &used, &["--input", path("lines").to_str().unwrap()]).unwrap();
    refused(&again, "is not empty: import into a new one");
    assert_eq!(export(&used).unwrap(), lines, "the refused import has changed something");

    let cut_in_a_row = lines.len() - lines.len() / 3;
    let last_row = lines.trim_end().rfind('\n').unwrap() + 1;
    let first_row = lines.find('\n').unwrap() + 1;
    let second_row = first_row + lines[first_row..].find('\n').unwrap() + 1;
    let cases = [
        ("nothing", String::new(), "the export is cut short"),
        ("a cut in a row", lines[..cut_in_a_row].to_owned(), "is not a row of an export"),
        ("no end", lines[..last_row].to_owned(), ""),
        ("a row less", lines[..first_row].to_owned() + &lines[second_row..], ""),
        ("an end twice", lines.clone() + &lines[last_row..], "is not a row of an export"),
        ("another format", lines.replacen("\"format\":1", "\"format\":2", 1), "format 2 is not known here"),
    ];
    for (name, text, message) in cases {
        std::fs::write(path("bad"), text).unwrap();
        let output = run("import", &path("new"), &["--input", path("bad").to_str().unwrap()]).unwrap();
        println!("{name}: {}", String::from_utf8_lossy(&output.stderr));
        refused(&output, message);
        assert!(!path("new").exists(), "{name}: something is left behind");
    }
}

#[tokio::test]
async fn an_import_that_was_killed_is_not_served() {
    let dir = TempDir::new().unwrap();
    let (_, lines) = exported(dir.path()).await;
    let new = dir.path().join("new");
    let mut import = Command::new(binary().unwrap());
    import.arg("import").arg("--data").arg(&new).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut import = import.spawn().unwrap();
    // Without its last line the export is not over: the import waits for more.
    let last_row = lines.trim_end().rfind('\n').unwrap() + 1;
    import.stdin.as_mut().unwrap().write_all(&lines.as_bytes()[..last_row]).unwrap();
    eventually("the import begins", async || new.join("fjall").exists().then_some(())).await.unwrap();
    import.kill().unwrap();
    import.wait().unwrap();
    for verb in ["serve", "export"] {
        let arguments: &[&str] = if verb == "serve" { &["--listen", "127.0.0.1:0"] } else { &[] };
        refused(&run(verb, &new, arguments).unwrap(), "was cut short: remove the directory and import again");
    }
}

#[tokio::test]
async fn an_export_that_fails_keeps_the_copy_that_was_there() {
    let dir = TempDir::new().unwrap();
    let (_, lines) = exported(dir.path()).await;
    let copy = dir.path().join("copy");
    std::fs::write(&copy, &lines).unwrap();
    let missing = dir.path().join("missing");
    let failed = run("export", &missing, &["--output", copy.to_str().unwrap()]).unwrap();
    println!("{}", String::from_utf8_lossy(&failed.stderr));
    assert!(!failed.status.success());
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), lines);
    assert!(!dir.path().join("copy.part").exists());
}

#[test]
fn an_export_of_nothing_makes_nothing() {
    let dir = TempDir::new().unwrap();
    let missing = dir.path().join("missing");
    refused(&run("export", &missing, &[]).unwrap(), "there is no data directory");
    assert!(!missing.exists());
}

//! Tests of `leasehold export` and `leasehold import`: an import restores every row, and refuses an
//! incomplete or invalid export.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it does not expect"
)]

use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
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
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use tempfile::TempDir;

fn names(names: &[&str], from: u64) -> Vec<Metadata> {
    names.iter().zip(from..).map(|(name, number)| user(*name, number, vec![7; 3])).collect()
}

/// The leases that the exported server has begun, and the outstanding update. The export contains
/// active claims, claims that a lease creates, destroys or replaces, and settled leases of both
/// outcomes, with keys and without.
struct ExportedData {
    update: Update,
    outstanding: Begun,
    committed: Begun,
    rolled_back: Begun,
}

/// The update of the committed lease.
fn first() -> Update {
    Update {
        creates: names(&["Alice", "bob", "carol", "dora"], 1),
        key: Some("first".into()),
        organization_id: 300,
        ..Update::default()
    }
}

async fn fill(client: &mut Client) -> ExportedData {
    let committed = client.begin(first()).await.unwrap();
    client.settle(&committed.lease, Committed).await.unwrap();
    let rolled_back = Update { creates: names(&["eve"], 10), organization_id: i64::MAX, ..Update::default() };
    let rolled_back = client.begin(rolled_back).await.unwrap();
    client.settle(&rolled_back.lease, RolledBack).await.unwrap();
    let update = Update {
        creates: [names(&["ALICE"], 21), names(&["frank"], 22)].concat(),
        destroys: [names(&["Alice"], 1), names(&["bob"], 2)].concat(),
        key: Some("outstanding".into()),
        ..Update::default()
    };
    let outstanding = client.begin(update.clone()).await.unwrap();
    ExportedData { update, outstanding, committed, rolled_back }
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
    failed(output, 1, message);
}

fn failed(output: &Output, code: i32, message: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.lines().any(|line| line.starts_with("error: ") && line.contains(message)), "{stderr}");
}

/// Starts a server, fills it with rows, and exports them. Returns the begun leases and the exported
/// lines.
async fn exported(dir: &Path) -> (ExportedData, String) {
    let mut server = Server::start().unwrap();
    let world = fill(&mut Client::connect(&server, 1).await.unwrap()).await;
    assert!(server.terminate().unwrap().success());
    let lines = export(server.data()).unwrap();
    std::fs::write(dir.join("lines"), &lines).unwrap();
    (world, lines)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_restores_all_data_of_an_export() {
    let dir = TempDir::new().unwrap();
    let (world, lines) = exported(dir.path()).await;
    let rows_before = state(&lines).unwrap();
    invariant::check(&rows_before).unwrap();
    let organizations: Vec<_> = rows_before.leases.values().map(|lease| lease.organization.map(i64::from)).collect();
    assert_eq!(organizations, [Some(300), Some(i64::MAX), None], "in the order of begins");
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
    // B09: the organization of the first begin is known.
    assert_eq!(client.begin(first()).await.unwrap(), world.committed);
    let of_another = Update { organization_id: 301, ..first() };
    assert_eq!(reason(&client.begin(of_another).await.unwrap_err()), "IDEMPOTENCY_KEY_REUSED");
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

#[tokio::test(flavor = "multi_thread")]
async fn b21_a_rollback_after_an_import_restores_the_old_records() {
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

#[tokio::test(flavor = "multi_thread")]
async fn the_data_of_a_running_server_cannot_be_exported_or_served() {
    let server = Server::start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    fill(&mut client).await;
    let message = "is in use by another process: stop it";
    refused(&run("export", server.data(), &[]).unwrap(), message);
    refused(&run("serve", server.data(), &["--listen", "127.0.0.1:0"]).unwrap(), message);
    refused(&run("import", server.data(), &["--input", "/dev/null"]).unwrap(), "is not empty: import into a new one");
    client.begin(Update { creates: names(&["zoe"], 99), ..Update::default() }).await.expect("the server still serves");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_requires_a_new_directory_and_a_complete_export() {
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
        ("a cut in a row", lines[..cut_in_a_row].to_owned(), "the export is cut short"),
        (
            "a cut row within",
            format!("{}\n{}", &lines[..cut_in_a_row], &lines[last_row..]),
            "is not a row of an export",
        ),
        ("no end", lines[..last_row].to_owned(), ""),
        ("a row less", lines[..first_row].to_owned() + &lines[second_row..], ""),
        ("an end twice", lines.clone() + &lines[last_row..], "is not a row of an export"),
        ("another format", lines.replacen("\"format\":2", "\"format\":7", 1), "format 7 is not known here"),
    ];
    for (name, text, message) in cases {
        std::fs::write(path("bad"), text).unwrap();
        let output = run("import", &path("new"), &["--input", path("bad").to_str().unwrap()]).unwrap();
        println!("{name}: {}", String::from_utf8_lossy(&output.stderr));
        refused(&output, message);
        assert!(!path("new").exists(), "{name}: something is left behind");
    }
}

/// The rows of an export, each as parsed JSON.
struct Rows(Vec<Value>);

impl Rows {
    fn of(lines: &str) -> Self {
        Self(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    /// Returns the index of the first row of this kind (such as `claim`) whose JSON contains
    /// `text`.
    fn find(&self, kind: &str, text: &str) -> usize {
        let found = |row: &Value| row.get(kind).is_some_and(|row| row.to_string().contains(text));
        self.0.iter().position(found).unwrap_or_else(|| panic!("no {kind} has {text}"))
    }

    /// Changes one value of the row that [`find`](Self::find) returns. Returns the row's line
    /// number, from 1.
    fn set(&mut self, kind: &str, text: &str, pointer: &str, value: Value) -> usize {
        let at = self.find(kind, text);
        *self.0[at].pointer_mut(pointer).unwrap() = value;
        at + 1
    }

    /// Inserts a copy of the row that [`find`](Self::find) returns before the last row. Returns the
    /// copy's line number, from 1.
    fn repeat(&mut self, kind: &str, text: &str) -> usize {
        let (row, end) = (self.0[self.find(kind, text)].clone(), self.0.len() - 1);
        self.0.insert(end, row);
        end + 1
    }

    fn lines(self) -> String {
        self.0.into_iter().map(|row| format!("{row}\n")).collect()
    }
}

const NIL: &str = "00000000-0000-0000-0000-000000000000";
const AFTER_9999: u64 = 253_402_300_800_000_000;

/// A function that makes an export invalid. It returns the number of the line that the import's
/// error must name.
type Spoil = fn(&mut Rows) -> usize;

/// Returns changes that make one row invalid by itself or a duplicate, each with the expected error
/// text.
fn bad_rows() -> Vec<(Spoil, &'static str)> {
    vec![
        (|rows| rows.repeat("claim", "carol"), "the claim is in the export twice"),
        (|rows| rows.repeat("claim", "frank"), "the claim is in the export twice"),
        (|rows| rows.repeat("lease", "Committed"), "the lease is in the export twice"),
        (|rows| rows.repeat("lease", "Outstanding"), "the lease is in the export twice"),
        (|rows| rows.repeat("replay", "first"), "the idempotency key is in the export twice"),
        (
            |rows| rows.set("claim", "carol", "/claim/key/canonical", "Carol".into()),
            "the key `4:Carol` is not the canonical form of the record's value, which is `4:carol`",
        ),
        (
            |rows| rows.set("claim", "ALICE", "/claim/claim/state/Replacing/1/old/spelling", "Zoe".into()),
            "the key `4:alice` is not the canonical form of the record's value, which is `4:zoe`",
        ),
        (|rows| rows.set("claim", "carol", "/claim/key/bucket_type", 99.into()), "bucket type 99 is neither built in"),
        (|rows| rows.set("claim", "carol", "/claim/claim/owner", 0.into()), "cell 0 is not 1 or more"),
        (|rows| rows.set("lease", "Committed", "/lease/lease/cell", (-1).into()), "cell -1 is not 1 or more"),
        (
            |rows| rows.set("claim", "carol", "/claim/claim/state/Active/source/id", "".into()),
            "`source.rails_primary_key_id` is empty",
        ),
        (
            |rows| rows.set("claim", "carol", "/claim/claim/state/Active/subject/id", 0.into()),
            "`subject.id` is not 1 or more",
        ),
        (
            |rows| rows.set("claim", "carol", "/claim/claim/state/Active/uuid", NIL.into()),
            "the record of claim `4:carol` has no uuid",
        ),
        (
            |rows| rows.set("claim", "ALICE", "/claim/claim/state/Replacing/1/old/uuid", NIL.into()),
            "the record of claim `4:alice` has no uuid",
        ),
        (
            |rows| rows.set("claim", "carol", "/claim/claim/state/Active/created_at", AFTER_9999.into()),
            "the time 253402300800000000, in microseconds since 1970, is beyond the year 9999",
        ),
        (
            |rows| rows.set("claim", "frank", "/claim/claim/state/Creating/0/since", AFTER_9999.into()),
            "is beyond the year 9999",
        ),
        (|rows| rows.set("lease", "Committed", "/lease/lease/updated_at", u64::MAX.into()), "is beyond the year 9999"),
        (|rows| rows.set("lease", "RolledBack", "/lease/lease/fence", 0.into()), "fence 0 is out of range"),
        (|rows| rows.set("end", "fence", "/end/fence", u64::MAX.into()), "fence 18446744073709551615 is out of range"),
        (|rows| rows.set("end", "fence", "/end/fence", i64::MAX.into()), "fence 9223372036854775807 is out of range"),
    ]
}

/// Returns changes that make two rows contradict each other, each with the expected error text.
fn contradictions() -> Vec<(Spoil, &'static str)> {
    vec![
        (
            |rows| {
                rows.set("claim", "frank", "/claim/claim/state/Creating/0/lease", NIL.into());
                rows.find("lease", "Outstanding") + 1
            },
            "lists claim `4:frank`, which it does not hold",
        ),
        (
            |rows| {
                rows.set("claim", "frank", "/claim/claim/owner", 2.into());
                rows.find("lease", "Outstanding") + 1
            },
            "lists claim `4:frank`, which it does not hold",
        ),
        (
            |rows| rows.set("lease", "Outstanding", "/lease/lease/state/Outstanding", serde_json::json!([])),
            "lists no claim, or one twice",
        ),
        (
            |rows| {
                let unlisted = serde_json::json!([{"bucket_type": 4, "canonical": "alice"}]);
                rows.set("lease", "Outstanding", "/lease/lease/state/Outstanding", unlisted);
                rows.find("claim", "bob") + 1
            },
            "claim `4:bob` is held by lease",
        ),
        (
            |rows| {
                let fence = rows.0[rows.find("lease", "Committed")].pointer("/lease/lease/fence").unwrap().clone();
                rows.set("lease", "RolledBack", "/lease/lease/fence", fence);
                rows.find("lease", "Committed").max(rows.find("lease", "RolledBack")) + 1
            },
            "is doubled or above the newest",
        ),
        (|rows| rows.set("end", "fence", "/end/fence", 2.into()), "is doubled or above the newest"),
        (
            |rows| rows.set("replay", "first", "/replay/replay/lease", NIL.into()),
            "the idempotency key `1:first` names a lease that was not begun with it",
        ),
        (
            |rows| rows.set("replay", "first", "/replay/key/cell", 2.into()),
            "the idempotency key `2:first` names a lease that was not begun with it",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_refuses_rows_that_violate_an_invariant() {
    let dir = TempDir::new().unwrap();
    let (_, lines) = exported(dir.path()).await;
    let (data, bad) = (dir.path().join("new"), dir.path().join("bad"));
    for (spoil, message) in bad_rows().into_iter().chain(contradictions()) {
        let mut rows = Rows::of(&lines);
        let line = spoil(&mut rows);
        let count = rows.0.len() - 2;
        rows.set("end", "fence", "/end/rows", count.into());
        std::fs::write(&bad, rows.lines()).unwrap();
        let output = run("import", &data, &["--input", bad.to_str().unwrap()]).unwrap();
        println!("{message}: {}", String::from_utf8_lossy(&output.stderr));
        refused(&output, &format!("line {line} can't be imported: "));
        refused(&output, message);
        assert!(!data.exists(), "{message}: something is left behind");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_refuses_unknown_fields() {
    let dir = TempDir::new().unwrap();
    let (_, lines) = exported(dir.path()).await;
    let (data, bad) = (dir.path().join("new"), dir.path().join("bad"));
    for (kind, text, pointer) in [
        ("header", "format", "/header"),
        ("claim", "carol", "/claim"),
        ("claim", "carol", "/claim/key"),
        ("claim", "carol", "/claim/claim"),
        ("claim", "carol", "/claim/claim/state/Active"),
        ("claim", "carol", "/claim/claim/state/Active/source"),
        ("claim", "carol", "/claim/claim/state/Active/subject"),
        ("claim", "ALICE", "/claim/claim/state/Replacing/0"),
        ("claim", "ALICE", "/claim/claim/state/Replacing/1"),
        ("lease", "Committed", "/lease"),
        ("lease", "Committed", "/lease/lease"),
        ("lease", "Committed", "/lease/lease/idempotency_key"),
        ("replay", "first", "/replay/replay"),
        ("replay", "first", "/replay/replay/fingerprint"),
        ("end", "fence", "/end"),
    ] {
        let mut rows = Rows::of(&lines);
        let at = rows.find(kind, text);
        let fields = rows.0[at].pointer_mut(pointer).unwrap().as_object_mut().unwrap();
        fields.insert("surprise".into(), Value::Null);
        std::fs::write(&bad, rows.lines()).unwrap();
        let output = run("import", &data, &["--input", bad.to_str().unwrap()]).unwrap();
        refused(&output, &format!("line {} is not a row of an export: unknown field `surprise`", at + 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_refuses_lines_out_of_their_place() {
    let dir = TempDir::new().unwrap();
    let (_, lines) = exported(dir.path()).await;
    let (data, bad) = (dir.path().join("new"), dir.path().join("bad"));
    let rows = Rows::of(&lines).0;
    let (header, end) = (rows.first().unwrap(), rows.last().unwrap());
    let count = rows.len();
    for (line, order) in [
        (count + 1, [rows.as_slice(), rows.as_slice()].concat()),
        (2, [std::slice::from_ref(header), rows.as_slice()].concat()),
        (1, rows.iter().skip(1).cloned().collect()),
        (count + 1, [rows.as_slice(), std::slice::from_ref(end)].concat()),
    ] {
        std::fs::write(&bad, Rows(order).lines()).unwrap();
        let output = run("import", &data, &["--input", bad.to_str().unwrap()]).unwrap();
        let message = "is not a row of an export: a row must be between the header and the end";
        refused(&output, &format!("line {line} {message}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_about_a_long_line_is_short() {
    let dir = TempDir::new().unwrap();
    let (_, lines) = exported(dir.path()).await;
    let (data, bad) = (dir.path().join("new"), dir.path().join("bad"));
    let long = "é".repeat(100_000);
    let header = lines.lines().next().unwrap();
    let mut key = Rows::of(&lines);
    key.set("claim", "carol", "/claim/key/canonical", long.clone().into());
    for text in [format!("{header}\n{{\"{long}\":1}}\n"), key.lines()] {
        std::fs::write(&bad, text).unwrap();
        let output = run("import", &data, &["--input", bad.to_str().unwrap()]).unwrap();
        refused(&output, "…");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("line ") && stderr.chars().count() < 300, "{} characters", stderr.chars().count());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_accepts_rows_in_any_order() {
    let dir = TempDir::new().unwrap();
    let (_, lines) = exported(dir.path()).await;
    let mut rows = Rows::of(&lines).0;
    let of_kind = |kind: &str| rows.iter().filter(|row| row.get(kind).is_some()).cloned().rev().collect::<Vec<_>>();
    let kinds = ["header", "claim", "lease", "replay", "end"].map(of_kind);
    rows = kinds.concat();
    std::fs::write(dir.path().join("other"), Rows(rows).lines()).unwrap();
    import(&dir.path().join("new"), &dir.path().join("other")).unwrap();
    assert_eq!(export(&dir.path().join("new")).unwrap(), lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_checks_claims_against_the_configuration() {
    let dir = TempDir::new().unwrap();
    let (_, lines) = exported(dir.path()).await;
    let path = |name: &str| dir.path().join(name);
    let mut rows = Rows::of(&lines);
    rows.set("claim", "carol", "/claim/key/bucket_type", 100.into());
    let line = rows.find("claim", "carol") + 1;
    std::fs::write(path("custom"), rows.lines()).unwrap();
    let rule = "[[bucket_types]]\nnumber = 100\nname = \"TEAMS\"\nform = \"word\"\nfold_case = true\n";
    let cell = |id| format!("[[cells]]\nid = {id}\nname = \"a\"\naddress = \"a.example\"\n");
    for (name, config, message) in [
        ("types", rule.to_owned(), None),
        ("types and the cell", format!("{}{rule}", cell(1)), None),
        // The address without TLS settings is invalid for `serve`, but options could complete it,
        // so an import accepts it.
        ("types and an address", format!("listen = \"0.0.0.0:7171\"\n{rule}"), None),
        ("no types", cell(1), Some((1, format!("line {line} can't be imported: bucket type 100 is neither")))),
        ("another cell", format!("{}{rule}", cell(2)), Some((1, "cell 1 is not among the `[[cells]]`".to_owned()))),
        ("no configuration", "limit = 1".to_owned(), Some((2, "is not valid".to_owned()))),
        ("a bad one", format!("{}{}", cell(1), cell(1)), Some((2, "cell id 1 is used twice".to_owned()))),
    ] {
        std::fs::write(path("config"), config).unwrap();
        let [config, lines] = ["config", "custom"].map(|name| path(name).to_str().unwrap().to_owned());
        let output = run("import", &path(name), &["--config", &config, "--input", &lines]).unwrap();
        match message {
            Some((code, message)) => failed(&output, code, &message),
            None => assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr)),
        }
        assert_eq!(path(name).exists(), output.status.success(), "{name}");
    }
}

/// An earlier version allowed characters that are refused today.
#[tokio::test(flavor = "multi_thread")]
async fn b12_a_claim_with_a_character_that_is_refused_today_is_imported_found_and_given_up() {
    let dir = TempDir::new().unwrap();
    let (_, lines) = exported(dir.path()).await;
    let name = "car\u{2800}ol";
    std::fs::write(dir.path().join("lines"), lines.replace("carol", name)).unwrap();
    let data = dir.path().join("imported");
    import(&data, &dir.path().join("lines")).unwrap();

    let server = Server::builder().data(&data).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    let found = client.get(name).await.unwrap();
    assert_eq!(name_of(found.metadata.as_ref().unwrap()), name);
    let begun = client.begin(Update { destroys: names(&[name], 3), ..Update::default() }).await.unwrap();
    client.settle(&begun.lease, Committed).await.unwrap();
    assert_eq!(reason(&client.get(name).await.unwrap_err()), "CLAIM_NOT_FOUND");
    let again = client.begin(Update { creates: names(&[name], 3), ..Update::default() }).await.unwrap_err();
    assert_eq!(reason(&again), "VALUE_NOT_ALLOWED");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_keeps_the_mode_of_an_existing_directory_and_makes_a_new_one_private() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = TempDir::new().unwrap();
    exported(dir.path()).await;
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    std::fs::create_dir(&old).unwrap();
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o750)).unwrap();
    refused(&run("import", &old, &["--input", "/dev/null"]).unwrap(), "the export is cut short");
    assert_eq!((mode(&old), std::fs::read_dir(&old).unwrap().count()), (0o750, 0));
    for (data, expected) in [(&old, 0o750), (&new, 0o700)] {
        import(data, &dir.path().join("lines")).unwrap();
        assert_eq!(mode(data), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_import_is_not_served() {
    let dir = TempDir::new().unwrap();
    let (_, lines) = exported(dir.path()).await;
    let new = dir.path().join("new");
    let mut import = Command::new(binary().unwrap());
    import.arg("import").arg("--data").arg(&new).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut import = import.spawn().unwrap();
    // The import waits for the rest of the lines, because an export without its last line is
    // incomplete.
    let last_row = lines.trim_end().rfind('\n').unwrap() + 1;
    import.stdin.as_mut().unwrap().write_all(&lines.as_bytes()[..last_row]).unwrap();
    eventually("the import begins", async || new.join("fjall").exists().then_some(())).await.unwrap();
    import.kill().unwrap();
    import.wait().unwrap();
    for verb in ["serve", "export"] {
        let arguments: &[&str] = if verb == "serve" { &["--listen", "127.0.0.1:0"] } else { &[] };
        refused(&run(verb, &new, arguments).unwrap(), "did not finish: remove the directory and import again");
    }
    let again = run("import", &new, &["--input", dir.path().join("lines").to_str().unwrap()]).unwrap();
    refused(&again, "did not finish: remove the directory and import again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_replaces_files_and_writes_into_pipes() {
    let dir = TempDir::new().unwrap();
    let mut server = Server::start().unwrap();
    fill(&mut Client::connect(&server, 1).await.unwrap()).await;
    assert!(server.terminate().unwrap().success());
    let lines = export(server.data()).unwrap();
    let path = |name: &str| dir.path().join(name);
    let export_to = |name: &str| run("export", server.data(), &["--output", path(name).to_str().unwrap()]).unwrap();

    let file = path("file");
    std::fs::write(&file, "old").unwrap();
    std::os::unix::fs::symlink("file", path("link")).unwrap();
    assert!(export_to("link").status.success());
    assert!(path("link").is_symlink() && !file.is_symlink());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), lines);

    mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("pipe", path("link to a pipe")).unwrap();
    for name in ["pipe", "link to a pipe"] {
        let pipe = path(name);
        // The test itself keeps the pipe open for writing, so reading never ends. The reader must
        // stop at the known length.
        let mut reader = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
        let length = lines.len();
        let reader = std::thread::spawn(move || {
            let mut read = vec![0; length];
            reader.read_exact(&mut read).map(|()| read)
        });
        let output = export_to(name);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(std::fs::symlink_metadata(path("pipe")).unwrap().file_type().is_fifo(), "{name} is no pipe any more");
        assert_eq!(String::from_utf8(reader.join().unwrap().unwrap()).unwrap(), lines);
    }
    std::os::unix::fs::symlink("nowhere", path("dangling")).unwrap();
    for name in ["dangling", ""] {
        refused(&export_to(name), &format!("`{}`: ", path(name).display()));
    }
    assert!(path("dangling").is_symlink() && !path("nowhere").exists());
    let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["dangling", "file", "link", "link to a pipe", "pipe"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn export_and_import_find_the_data_directory_in_the_configuration() {
    let dir = TempDir::new().unwrap();
    let (_, lines) = exported(dir.path()).await;
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("config"), format!("data = {:?}\n", path("configured"))).unwrap();
    let [config, input, flag] = ["config", "lines", "flag"].map(|name| path(name).to_str().unwrap().to_owned());
    let run = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = Command::new(binary().unwrap());
        command.env_remove("LEASEHOLD_DATA").env_remove("LEASEHOLD_CONFIG").envs(environment.iter().copied());
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["import", "--config", &config, "--input", &input, "--data", &flag], &[]);
    assert!(path("flag").exists() && !path("configured").exists());
    run(&["import", "--input", &input], &[("LEASEHOLD_CONFIG", &config)]);
    assert!(path("configured").exists());
    assert_eq!(run(&["export", "--config", &config], &[]), lines);
    assert_eq!(run(&["export"], &[("LEASEHOLD_CONFIG", &config)]), lines);
    std::fs::remove_dir_all(path("configured")).unwrap();
    assert_eq!(run(&["export", "--config", &config, "--data", &flag], &[]), lines);
    assert_eq!(run(&["export", "--config", &config], &[("LEASEHOLD_DATA", &flag)]), lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_json_export_and_import_report_one_object() {
    let dir = TempDir::new().unwrap();
    let (_, lines) = exported(dir.path()).await;
    let rows = lines.lines().count() - 2;
    let path = |name: &str| dir.path().join(name);
    let [input, copy, new] = ["lines", "copy", "new"].map(|name| path(name).to_str().unwrap().to_owned());
    let told = |output: Output| -> Value {
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let imported = told(run("import", &path("new"), &["--json", "--input", &input]).unwrap());
    assert_eq!(imported, json!({ "done": "imported", "rows": rows, "data": new }));
    let exported = told(run("export", &path("new"), &["--json", "--output", &copy]).unwrap());
    assert_eq!(exported, json!({ "done": "exported", "rows": rows, "data": new, "output": copy }));
    let output = run("export", &path("new"), &["--json"]).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), lines);
}

#[test]
fn export_and_import_use_a_database_that_is_configured() {
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("state");
    let url = "postgres://me:secret@127.0.0.1:1/claims";
    std::fs::write(dir.path().join("config"), format!("[postgres]\nurl = {url:?}\n")).unwrap();
    let config = dir.path().join("config").to_str().unwrap().to_owned();
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(binary().unwrap());
        for name in ["LEASEHOLD_DATA", "LEASEHOLD_CONFIG", "LEASEHOLD_STORE"] {
            command.env_remove(name);
        }
        command.env("XDG_STATE_HOME", &state).envs(variables.iter().copied()).args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    };
    for verb in ["export", "import"] {
        for variable in [("LEASEHOLD_STORE", url), ("LEASEHOLD_CONFIG", &config)] {
            let output = run(&[verb], &[variable]);
            failed(&output, 5, "the database `postgres://127.0.0.1:1/claims` can't be reached: ");
            assert!(!state.exists());
        }
    }
    // An empty `LEASEHOLD_STORE` counts as not set, and a flag has precedence over the variables and the file.
    refused(&run(&["export"], &[("LEASEHOLD_STORE", "")]), "there is no data directory `");
    let directory = dir.path().join("data").to_str().unwrap().to_owned();
    let [store, data, file] = [("LEASEHOLD_STORE", url), ("LEASEHOLD_DATA", &directory), ("LEASEHOLD_CONFIG", &config)];
    for variables in [&[store][..], &[file], &[store, data, file]] {
        let output = run(&["export", "--data", &directory], variables);
        refused(&output, &format!("there is no data directory `{directory}`"));
    }
    failed(&run(&["export", "--store", url], &[data, store]), 5, "can't be reached: ");
    failed(&run(&["export"], &[data, store]), 2, "are configured as the store: leave one of them out");
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_an_import_records_the_rules_of_the_bucket_types() {
    let dir = TempDir::new().unwrap();
    exported(dir.path()).await;
    let path = |name: &str| dir.path().join(name);
    let teams = |fold_case: bool| {
        let rule = format!("number = 100\nname = \"TEAMS\"\nform = \"word\"\nfold_case = {fold_case}\n");
        format!("[[bucket_types]]\n{rule}")
    };
    std::fs::write(path("config"), teams(true)).unwrap();
    let [config, lines] = ["config", "lines"].map(|name| path(name).to_str().unwrap().to_owned());
    let output = run("import", &path("new"), &["--config", &config, "--input", &lines]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let server = |fold_case| Server::builder().data(path("new")).config(teams(fold_case)).start();
    let error = server(false).unwrap_err().to_string();
    assert!(
        error.contains("bucket type 100 (`TEAMS`) has been served with form `word` and `fold_case` true"),
        "{error}"
    );
    server(true).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_export_keeps_the_previous_file() {
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
fn an_export_of_a_missing_directory_creates_none() {
    let dir = TempDir::new().unwrap();
    let missing = dir.path().join("missing");
    refused(&run("export", &missing, &[]).unwrap(), "there is no data directory");
    assert!(!missing.exists());
}

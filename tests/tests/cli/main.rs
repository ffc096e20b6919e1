//! Tests of the command line against a running server: the output of each subcommand as text and as
//! JSON, exit codes, help, shell completions and client certificates.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod decommission;
mod edge_cases;
mod former_server;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use leasehold_tests::certificates::{Authority, Pair};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{command, get, leasehold};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::process::Command;

const VERBS: [&str; 16] = [
    "cells",
    "begin",
    "commit",
    "rollback",
    "get",
    "classify",
    "leases",
    "records",
    "decommission",
    "bench",
    "reload",
    "lock",
    "locks",
    "force-lock",
    "reap",
    "resolve-orphan",
];
/// The verbs of `leasehold queue`.
const QUEUE_VERBS: [&str; 12] = [
    "submit", "take", "list", "requests", "history", "show", "status", "resubmit", "withdraw", "pause", "resume",
    "limit",
];
const UNKNOWN_LEASE: &str = "00000000-0000-7000-8000-000000000000";

/// The exit code and the output of one finished `leasehold` command.
#[derive(Debug)]
struct CommandOutput {
    code: i32,
    stdout: String,
    stderr: String,
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl CommandOutput {
    /// Asserts that the command succeeded and wrote nothing to stderr. Returns its standard output.
    #[track_caller]
    fn expect_success(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{self:?}");
        self.stdout
    }

    /// Asserts that the command failed with this exit code, that stderr contains all `words`, and
    /// that stdout is empty.
    #[track_caller]
    fn expect_failure(&self, code: i32, words: &[&str]) {
        assert_eq!((self.code, self.stdout.as_str()), (code, ""), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no `{word}` in: {}", self.stderr);
        }
    }

    /// Asserts that the command succeeded. Returns each line of its output, parsed as JSON.
    #[track_caller]
    fn expect_json_lines(self) -> Vec<Value> {
        self.expect_success().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Asserts that the command failed with this exit code. Returns the JSON error object that it
    /// wrote to stderr.
    #[track_caller]
    fn expect_json_error(&self, code: i32) -> Value {
        self.expect_failure(code, &[]);
        let object: Value = serde_json::from_str(&self.stderr).unwrap();
        assert_eq!(object["error"]["exitCode"], code, "{object}");
        object["error"].clone()
    }
}

async fn run<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> CommandOutput {
    leasehold(arguments).await.unwrap().into()
}

/// A running server, and the URL at which the tests' commands call it.
struct CliFixture {
    server: Server,
    url: String,
}

impl CliFixture {
    fn new() -> Self {
        Self::of(Server::start().unwrap())
    }

    fn of(server: Server) -> Self {
        let url = format!("http://{}", server.address());
        Self { server, url }
    }

    /// Runs `leasehold` with the words of `line`, separated by spaces, and with the option
    /// `--server`.
    async fn run(&self, line: &str) -> CommandOutput {
        run(line.split(' ').chain(["--server", &self.url])).await
    }

    async fn begin(&self, cell: i64, claims: &str) -> String {
        let line = format!("begin --json --cell {cell} {claims} --subject USER:7 --source USERS:7");
        self.run(&line).await.expect_json_lines()[0]["leaseUuid"]["value"].as_str().unwrap().to_owned()
    }

    async fn commit(&self, lease: &str) {
        self.run(&format!("commit --cell 1 {lease}")).await.expect_success();
    }
}

/// Returns the cells of each line of a printed table, in which two or more spaces separate columns.
fn table(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_lists_the_configured_cells() {
    let world = CliFixture::new();
    let text = world.run("cells").await.expect_success();
    let expected = [
        vec!["CELL", "NAME", "ADDRESS", "SESSION PREFIX", "IDS"],
        vec!["1", "cell-1", "127.0.0.1:3001", "cell-1-", "1-1000000000"],
        vec!["2", "cell-2", "127.0.0.1:3002", "cell-2-", "1000000001-2000000000"],
    ];
    assert_eq!(table(&text), expected);
    let json = world.run("cells --json").await.expect_json_lines();
    assert_eq!(json.len(), 2);
    assert_eq!((&json[1]["id"], &json[1]["name"]), (&json!("2"), &json!("cell-2")));
    assert_eq!(json[1]["sequenceRange"]["maxval"], "2000000000");
}

#[tokio::test(flavor = "multi_thread")]
async fn begin_prints_commands_that_commit_or_roll_back() {
    let world = CliFixture::new();
    for (name, next, status) in [("alice", "next: leasehold ", "ACTIVE"), ("bob", "  or: leasehold ", "")] {
        let line = format!("begin --cell 1 --create USERNAMES:{name} --subject USER:7 --source USERS:7");
        let text = world.run(&line).await.expect_success();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("begun lease ") && lines[0].contains(" of cell 1, fence "), "{text}");
        let command = lines.iter().find_map(|line| line.strip_prefix(next)).unwrap();
        let done = run(command.split(' ')).await.expect_success();
        let verb = if status.is_empty() { "rolled back lease " } else { "committed lease " };
        assert!(done.starts_with(verb), "{done}");
        let found = world.run(&format!("get USERNAMES:{name}")).await;
        if status.is_empty() {
            found.expect_failure(3, &["CLAIM_NOT_FOUND"]);
        } else {
            assert!(found.expect_success().contains(status));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b09_begin_repeated_under_its_key_prints_the_same_json() {
    let world = CliFixture::new();
    let line = "begin --json --cell 1 --create USERNAMES:alice --create EMAILS:a@example.com \
                --subject USER:7 --source USERS:7 --idempotency-key once";
    let first = world.run(line).await.expect_json_lines();
    assert_eq!((first.len(), &first[0]["cellId"]), (1, &json!("1")));
    assert!(first[0]["fence"].as_str().unwrap().parse::<u64>().unwrap() > 0, "{first:?}");
    assert_eq!(world.run(line).await.expect_json_lines(), first);
    let other = world.run(&line.replace("alice", "bob")).await.expect_json_error(3);
    assert_eq!(other["reason"], "IDEMPOTENCY_KEY_REUSED");
    let lease = first[0]["leaseUuid"]["value"].as_str().unwrap();
    assert_eq!(world.run(&format!("commit --json --cell 1 {lease}")).await.expect_json_lines(), [json!({})]);
    assert_eq!(world.run(&format!("commit --json --cell 1 {lease}")).await.expect_json_lines(), [json!({})]);
    let replace = world.begin(1, "--create USERNAMES:Alice --destroy USERNAMES:alice --destroy EMAILS:a@example.com");
    let replace = replace.await;
    assert_eq!(world.run(&format!("rollback --json --cell 1 {replace}")).await.expect_json_lines(), [json!({})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn begin_reads_an_update_from_a_file_or_stdin() {
    let world = CliFixture::new();
    let update = |name: &str| {
        json!({
            "cellId": "2",
            "createRecords": [{
                "bucket": {"type": "USERNAMES", "value": name},
                "subject": {"type": "USER", "id": "7"},
                "source": {"type": "RAILS_TABLE_USERS", "railsPrimaryKeyId": "AAAAAAAAAAc="},
            }],
        })
        .to_string()
    };
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("update.json");
    std::fs::write(&path, update("from-file")).unwrap();
    world.run(&format!("begin --file {}", path.display())).await.expect_success();
    world.run(&format!("begin --cell 1 --file {}", path.display())).await.expect_failure(2, &["`cellId`", "--cell"]);
    world.run("begin --file /nowhere.json").await.expect_failure(2, &["`/nowhere.json`"]);
    let mut child = command().unwrap();
    child.args(["begin", "--file", "-", "--server", &world.url]).stdin(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(update("from-stdin").as_bytes()).await.unwrap();
    CommandOutput::from(child.wait_with_output().await.unwrap()).expect_success();
    let records = world.run("records --cell 2 --source USERS").await.expect_success();
    assert!(records.contains("USERNAMES:from-file") && records.contains("USERNAMES:from-stdin"), "{records}");
}

#[tokio::test(flavor = "multi_thread")]
async fn get_shows_a_record_and_its_cell() {
    let world = CliFixture::new();
    let lease = world.begin(1, "--create USERNAMES:Alice").await;
    let shown =
        |text: &str, field: &str| table(text).into_iter().find(|row| row[0] == field).map(|row| row[1].to_owned());
    let text = world.run("get username:ALICE").await.expect_success();
    for (field, value) in [
        ("claim", "USERNAMES:Alice"),
        ("cell", "1 (cell-1, 127.0.0.1:3001)"),
        ("status", "LEASE_CREATING"),
        ("lease", &lease),
        ("subject", "USER:7"),
        ("source", "USERS:7"),
    ] {
        assert_eq!(shown(&text, field).as_deref(), Some(value), "{text}");
    }
    world.commit(&lease).await;
    let text = world.run("get USERNAMES:alice").await.expect_success();
    assert_eq!((shown(&text, "status").as_deref(), shown(&text, "lease")), (Some("ACTIVE"), None));
    let json = &world.run("get --json 4:alice").await.expect_json_lines()[0];
    assert_eq!(json["record"]["metadata"]["bucket"]["value"], "Alice");
    assert_eq!((&json["record"]["status"], &json["cellInfo"]["id"]), (&json!("ACTIVE"), &json!("1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn classify_prints_the_address_of_the_cell() {
    let world = CliFixture::new();
    world.begin(2, "--create USERNAMES:alice --create PROJECT_IDS:77").await;
    for line in
        ["classify USERNAMES:nobody username:ALICE", "classify PROJECT_IDS:77", "classify --type cell_id --value 2"]
    {
        let text = world.run(line).await.expect_success();
        assert!(text.contains("PROXY") && text.contains("127.0.0.1:3002"), "{line}: {text}");
        assert_eq!(text.contains("matched"), !line.contains("--type"), "{line}: {text}");
    }
    let json = world.run("classify --json --type SESSION_PREFIX --value cell-1-").await.expect_json_lines();
    assert_eq!(json, [json!({"action": "PROXY", "proxy": {"address": "127.0.0.1:3001"}})]);
    world.run("classify USERNAMES:nobody").await.expect_failure(3, &["error: ", "CLAIM_NOT_FOUND"]);
    world.run("classify --type cell_id --value 9").await.expect_failure(3, &["error: "]);
    world.run("classify --type first_cell USERNAMES:nobody").await.expect_success();
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_listed_oldest_first() {
    let world = CliFixture::new();
    let none = world.run("leases --cell 1").await;
    assert_eq!((none.code, none.stdout.as_str()), (0, ""));
    assert!(none.stderr.contains("cell 1 has no outstanding leases"), "{}", none.stderr);
    assert_eq!(world.run("leases --cell 1 --json").await.expect_json_lines(), Vec::<Value>::new());
    let mut expected = Vec::new();
    for name in ["a", "b", "c"] {
        expected.push(world.begin(1, &format!("--create USERNAMES:{name}")).await);
    }
    world.begin(2, "--create USERNAMES:d --organization-id 300").await;
    let text = world.run("leases --cell 1").await.expect_success();
    let rows = table(&text);
    assert_eq!(rows[0], ["LEASE", "BEGUN", "ORGANIZATION"]);
    assert_eq!(rows[1..].iter().map(|row| row[0]).collect::<Vec<_>>(), expected);
    let since = format!("leases --cell 1 --json --created-after {}", rows[2][1]);
    let json = world.run(&since).await.expect_json_lines();
    assert_eq!(json.iter().map(|lease| &lease["uuid"]["value"]).collect::<Vec<_>>(), [&expected[1], &expected[2]]);
    let of_organization = world.run("leases --cell 2").await.expect_success();
    assert_eq!(table(&of_organization)[1][2], "300");
    let json = world.run("leases --cell 2 --json").await.expect_json_lines();
    assert_eq!(json[0]["organizationId"], "300");
    world.run("begin --cell 1 --organization-id 0").await.expect_failure(2, &["--organization-id"]);
    let two = world.run("leases --cell 1 --limit 2").await;
    assert_eq!((two.code, table(&two.stdout).len()), (0, 3));
    assert!(two.stderr.contains("there are more"), "{}", two.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn b32_records_are_listed_in_key_order_across_pages() {
    let world = CliFixture::new();
    // 3,000 records need more than one page of the server's list.
    let claims: Vec<_> = (0..3000).map(|n| (n, format!("name-{n}"))).collect();
    let directory = TempDir::new().unwrap();
    for (part, claims) in claims.chunks(1500).enumerate() {
        let record = |(n, name): &(u64, String)| {
            let id = base64(&n.to_be_bytes());
            json!({
                "bucket": {"type": "USERNAMES", "value": name},
                "subject": {"type": "USER", "id": "7"},
                "source": {"type": "RAILS_TABLE_USERS", "railsPrimaryKeyId": id},
            })
        };
        let update = json!({"cellId": "1", "createRecords": claims.iter().map(record).collect::<Vec<_>>()});
        let path = directory.path().join(format!("{part}.json"));
        std::fs::write(&path, update.to_string()).unwrap();
        world.run(&format!("begin --file {}", path.display())).await.expect_success();
    }
    let text = world.run("records --cell 1 --source USERS").await.expect_success();
    let rows = table(&text);
    assert_eq!(rows[0], ["SOURCE", "CLAIM", "SUBJECT", "STATUS", "UPDATED", "LEASE"]);
    let listed: Vec<_> = rows[1..].iter().map(|row| row[0].parse::<u64>().unwrap()).collect();
    assert_eq!(listed, (0..3000).collect::<Vec<_>>());
    assert_eq!(rows[8][..4], ["7", "USERNAMES:name-7", "USER:7", "LEASE_CREATING"]);
    let some = world.run("records --cell 1 --source users --after 10 --up-to 12 --bucket-type USERNAMES --json").await;
    let values: Vec<_> =
        some.expect_json_lines().iter().map(|record| record["metadata"]["bucket"]["value"].clone()).collect();
    assert_eq!(values, ["name-11", "name-12"]);
    for line in ["records --cell 2 --source USERS", "records --cell 1 --source USERS --bucket-type EMAILS"] {
        let none = world.run(line).await;
        assert_eq!((none.code, none.stdout.as_str()), (0, ""), "{line}");
        assert!(none.stderr.contains("no such records"), "{line}: {}", none.stderr);
    }
}

/// Returns eight bytes as base 64 text, which is how the JSON form of proto3 writes bytes.
fn base64(bytes: &[u8; 8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = u128::from(u64::from_be_bytes(*bytes)) << 2;
    let digit = |at: u32| char::from(DIGITS[usize::try_from(bits >> (60 - 6 * at) & 63).unwrap()]);
    (0..11).map(digit).chain(['=']).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b26_decommission_counts_the_data_of_a_cell_and_drops_it() {
    let world = CliFixture::new();
    world.commit(&world.begin(1, "--create USERNAMES:alice --create USERNAMES:bob").await).await;
    world.begin(1, "--create USERNAMES:carol").await;

    let counted = world.run("decommission --cell 1").await;
    assert_eq!(counted.code, 0, "{counted:?}");
    let expected = [vec!["DATA", "COUNT"], vec!["leases", "1"], vec!["claims from USERS", "3"]];
    assert_eq!(table(&counted.stdout), expected);
    let next = counted.stderr.lines().find_map(|line| line.trim().strip_prefix("leasehold ")).unwrap();
    assert!(next.starts_with("decommission --cell 1 --drop cell-1"), "{next}");

    world.run("decommission --cell 1 --drop cell-2").await.expect_failure(2, &["named `cell-1`"]);
    world.run("decommission --cell 99").await.expect_failure(2, &["no cell 99"]);
    // The proposed command is accepted as it is printed. It then fails only because the cell has
    // just begun a lease.
    run(next.split(' ')).await.expect_failure(2, &["began a lease", "--even-if-active"]);
    let dropped = world.run("decommission --json --cell 1 --drop cell-1 --even-if-active").await.expect_json_lines();
    assert_eq!(dropped, [json!({ "leases": 1, "claims": { "USERS": 2 }, "dropped": true })]);
    let left = world.run("decommission --json --cell 1").await.expect_json_lines();
    assert_eq!(left, [json!({ "leases": 0, "claims": {}, "dropped": false })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_measures_saves() {
    let world = CliFixture::new();
    let text = world.run("bench --cell 1 --seconds 1 --clients 4 --connections 2").await.expect_success();
    let rows = table(&text);
    assert!(rows[0][0].contains(" saves/s: ") && rows[0][0].ends_with(", 0 errors"), "{text}");
    assert_eq!(rows[2], ["CALL", "P50 MS", "P90 MS", "P99 MS"]);
    assert_eq!([rows[3][0], rows[4][0]], ["begin", "commit"]);
    let json =
        world.run("bench --json --cell 2 --seconds 1 --clients 2 --connections 1 --claims 3").await.expect_json_lines();
    let saves = json[0]["saves"].as_u64().unwrap();
    assert!(saves > 0 && json[0]["savesPerSecond"].as_f64().unwrap() > 0.0, "{json:?}");
    assert_eq!((&json[0]["claimsPerSave"], &json[0]["errors"]), (&json!(3), &json!([])));
    assert!(json[0]["beginMilliseconds"]["p99"].as_f64().unwrap() > 0.0);
    // The server must list exactly the records that the bench command reports as saved.
    let records = world.run("records --json --cell 2 --source USERS").await.expect_json_lines();
    assert_eq!(records.len() as u64, saves * 3);
    let refused = world.run("bench --cell 9 --seconds 1 --clients 1 --connections 1").await;
    refused.expect_failure(3, &["INVALID_UPDATE"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_1_is_any_other_failure() {
    // `--metrics-listen` gives the server a second address, which serves HTTP but no gRPC.
    let server = Server::builder().arg("--metrics-listen").arg("127.0.0.1:0").start().unwrap();
    let stdout = leasehold_tests::wire::eventually("the banner", async || {
        Some(server.stdout()).filter(|text| text.contains("/metrics\n"))
    });
    let stdout = stdout.await.unwrap();
    let other = stdout.split("metrics   ").nth(1).unwrap().split("/metrics").next().unwrap();
    run(["cells", "--server", other])
        .await
        .expect_failure(1, &["error: ", "hint: check that --server is a Leasehold server"]);
    let world = CliFixture::of(server);
    let mut full = command().unwrap();
    full.args(["cells", "--server", &world.url]);
    full.stdout(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let ended = full.spawn().unwrap().wait_with_output().await.unwrap();
    CommandOutput::from(ended).expect_failure(1, &["error: cannot write the output"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_2_is_a_usage_error() {
    let world = CliFixture::new();
    for (line, words) in [
        ("", "Usage: "),
        ("fly", "'fly'"),
        ("cells --colour", "'--colour'"),
        ("begin --cell 1 --subject USER:7 --source USERS:7", "--create"),
        ("begin --cell 1 --create alice --subject USER:7 --source USERS:7", "TYPE:VALUE"),
        ("begin --cell 1 --create PEOPLE:alice --subject USER:7 --source USERS:7", "USERNAMES"),
        ("begin --cell 1 --create USERNAMES:alice --source USERS:7", "--subject"),
        ("begin --cell one --create USERNAMES:alice --subject USER:7 --source USERS:7", "'one'"),
        ("commit --cell 1", "LEASE_UUID"),
        ("commit --cell 1 not-a-uuid", "not-a-uuid"),
        ("rollback 00000000-0000-7000-8000-000000000000", "--cell"),
        ("get", "TYPE:VALUE"),
        ("get USERNAMES", "USERNAMES:alice"),
        ("classify", "--type"),
        ("classify 99:x", "99:x"),
        ("classify PROJECT_IDS:seven", "PROJECT_IDS:seven"),
        ("leases --cell 1 --limit 0", "--limit"),
        ("leases --cell 1 --created-after yesterday", "yesterday"),
        ("records --cell 1", "--source"),
        ("records --cell 1 --source PEOPLE", "PEOPLE"),
        ("records --cell 1 --source USERS --after 0xf", "`0xf`"),
        ("begin --cell 1 --create USERNAMES:a --subject USER:7 --source USERS:0xzz", "two hexadecimal digits"),
        ("bench --cell 1 --clients 0", "--clients"),
        ("cells --timeout-seconds 0", "--timeout-seconds"),
    ] {
        let said = if line.is_empty() { run([""; 0]).await } else { world.run(line).await };
        said.expect_failure(2, &[words]);
    }
    for (url, words) in [("http://", "http://HOST:PORT"), ("not a url", "http://HOST:PORT"), ("https://a:1", "--ca")] {
        run(["cells", "--server", url]).await.expect_failure(2, &["error: ", words]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_3_is_a_permanent_refusal() {
    let world = CliFixture::new();
    let lease = world.begin(1, "--create USERNAMES:alice").await;
    world.commit(&lease).await;
    let undone = world.begin(1, "--create USERNAMES:bob").await;
    world.run(&format!("rollback --cell 1 {undone}")).await.expect_success();
    let rest = "--subject USER:7 --source USERS:7";
    for (line, reason, hint) in [
        (
            format!("begin --cell 2 --create USERNAMES:ALICE {rest}"),
            "CLAIM_TAKEN",
            "leasehold classify USERNAMES:ALICE",
        ),
        (
            format!("begin --cell 1 --destroy USERNAMES:bob {rest}"),
            "CLAIM_NOT_FOUND",
            "check the type and the spelling",
        ),
        (format!("begin --cell 2 --destroy USERNAMES:alice {rest}"), "NOT_OWNER", "check --cell"),
        (
            "begin --cell 1 --destroy USERNAMES:alice --subject USER:7 --source USERS:8".to_owned(),
            "CLAIM_CHANGED",
            "leasehold get USERNAMES:alice",
        ),
        (format!("commit --cell 1 {undone}"), "LEASE_ROLLED_BACK", "begin the update again"),
        (format!("rollback --cell 1 {lease}"), "LEASE_COMMITTED", "destroys what it created"),
        (format!("commit --cell 1 {UNKNOWN_LEASE}"), "LEASE_NOT_FOUND", "leasehold leases --cell N"),
        (format!("begin --cell 9 --create USERNAMES:carol {rest}"), "INVALID_UPDATE", ""),
        (
            format!("begin --cell 1 --create USERNAMES:{} {rest}", "x".repeat(1025)),
            "LIMIT_EXCEEDED",
            "shorten the value",
        ),
    ] {
        let said = world.run(&line).await;
        said.expect_failure(3, &["error: ", &format!("({reason})"), hint]);
        let error = world.run(&format!("{line} --json")).await.expect_json_error(3);
        assert_eq!(error["reason"], reason, "{line}");
        if line.starts_with("begin") && !line.contains("--cell 9") {
            let claim = &error["claims"][0];
            assert_eq!((&claim["position"], &claim["reason"]), (&json!(0), &json!(reason)), "{line}");
            assert!(said.stderr.contains(&format!(": {reason}")), "{}", said.stderr);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_4_is_a_temporary_refusal() {
    let world = CliFixture::new();
    world.begin(1, "--create USERNAMES:alice").await;
    let line = "begin --cell 2 --create USERNAMES:alice --subject USER:7 --source USERS:7";
    world.run(line).await.expect_failure(4, &["(CLAIM_BUSY)", "hint: another update is under way: try again in "]);
    let error = world.run(&format!("{line} --json")).await.expect_json_error(4);
    assert!(error["retryAfterSeconds"].as_f64().unwrap() > 0.0, "{error}");

    let full = CliFixture::of(Server::builder().config("[limits]\nheld_claims = 1\n").start().unwrap());
    full.begin(1, "--create USERNAMES:bob").await;
    full.run(line).await.expect_failure(4, &["(OVERLOADED)", "hint: try again in "]);

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let late = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        run(words.into_iter().chain(["--timeout-seconds".into(), "1".into(), "--server".into(), url.clone()]))
    };
    let (read, begun) = tokio::join!(late("get USERNAMES:alice"), late(line));
    read.expect_failure(4, &["no answer within 1 s (DEADLINE_EXCEEDED)", "--timeout-seconds"]);
    begun.expect_failure(4, &["(DEADLINE_EXCEEDED)", "repeat it with `--idempotency-key "]);
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_5_is_an_unavailable_server_or_store() {
    // Take the address of a port that was free a moment ago, so that no program listens on it.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{address}");
    for line in [
        "cells",
        "begin --cell 1 --create USERNAMES:alice --subject USER:7 --source USERS:7",
        "commit --cell 1 00000000-0000-7000-8000-000000000000",
        "rollback --cell 1 00000000-0000-7000-8000-000000000000",
        "get USERNAMES:alice",
        "classify USERNAMES:alice",
        "leases --cell 1",
        "records --cell 1 --source USERS",
        "bench --cell 1 --seconds 1",
    ] {
        let words = || line.split(' ').chain(["--server", &url]);
        run(words()).await.expect_failure(5, &["error: cannot reach ", &url, "hint: start one with `leasehold serve`"]);
        let error = run(words().chain(["--json"])).await.expect_json_error(5);
        assert!(error["message"].as_str().unwrap().contains(&url), "{error}");
    }
    let full = CliFixture::of(Server::builder().config("min_free_disk_mib = 1_000_000_000_000\n").start().unwrap());
    let line = "begin --cell 1 --create USERNAMES:alice --subject USER:7 --source USERS:7";
    full.run(line).await.expect_failure(
        5,
        &[
            "(STORE_UNAVAILABLE)",
            "`min_free_disk_mib`",
            "hint: when the store is back, repeat it with `--idempotency-key ",
        ],
    );
}

/// A server that requires client certificates, and a directory with the certificates' files.
struct TlsFixture {
    world: CliFixture,
    directory: TempDir,
    authority: Authority,
}

impl TlsFixture {
    fn new() -> Self {
        let authority = Authority::new("clients").unwrap();
        let pair = authority.server().unwrap();
        Self::showing(&pair, authority)
    }

    /// Starts a server that presents the certificate `pair`, and trusts client certificates of
    /// `authority`.
    fn showing(pair: &Pair, authority: Authority) -> Self {
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        for (name, text) in [("ca.pem", &authority.pem()), ("server.pem", &pair.certificate), ("server.key", &pair.key)]
        {
            std::fs::write(path(name), text).unwrap();
        }
        let config = format!(
            "[tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n",
            path("server.pem"),
            path("server.key"),
            path("ca.pem")
        );
        let server = Server::builder().config(config).start().unwrap();
        let url = format!("https://{}", server.address());
        Self { world: CliFixture { server, url }, directory, authority }
    }

    fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Returns the options `--cert` and `--key` for a client certificate of this role, such as
    /// `admin`.
    fn identity(&self, role: &str) -> Vec<OsString> {
        let pair = self.authority.client(&[&format!("spiffe://leasehold/{role}")]).unwrap();
        self.shown(&role.replace('/', "-"), &pair)
    }

    /// Writes the certificate `pair` to `NAME.pem` and `NAME.key`. Returns the options `--cert` and
    /// `--key`.
    fn shown(&self, name: &str, pair: &Pair) -> Vec<OsString> {
        let write = |suffix: &str, text: &str| {
            let path = self.directory.path().join(name.to_owned() + suffix);
            std::fs::write(&path, text).unwrap();
            path.into_os_string()
        };
        let (certificate, key) = (write(".pem", &pair.certificate), write(".key", &pair.key));
        vec!["--cert".into(), certificate, "--key".into(), key]
    }

    async fn run(&self, line: &str, options: &[OsString]) -> CommandOutput {
        let words = line.split(' ').map(OsString::from).chain(options.iter().cloned());
        let server = ["--server".into(), OsString::from(&self.world.url), "--ca".into(), self.ca().into_os_string()];
        run(words.chain(server)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_6_is_a_denied_caller() {
    let secured = TlsFixture::new();
    let line = "begin --cell 1 --create USERNAMES:alice --subject USER:7 --source USERS:7";
    secured.run(line, &[]).await.expect_failure(6, &["(NO_IDENTITY)", "hint: say who you are with --cert and --key"]);
    let cell_2 = secured.identity("cell/2");
    secured.run(line, &cell_2).await.expect_failure(6, &["(RULE_DENIED)", "hint: use the certificate of that cell"]);
    let error = secured.run(&format!("{line} --json"), &cell_2).await.expect_json_error(6);
    assert_eq!((&error["code"], &error["reason"]), (&json!("PERMISSION_DENIED"), &json!("RULE_DENIED")));
    secured.run("leases --cell 1", &secured.identity("router")).await.expect_failure(6, &["(RULE_DENIED)"]);
    secured
        .run("get USERNAMES:alice", &cell_2)
        .await
        .expect_failure(6, &["(RULE_DENIED)", "hint: use the certificate of an admin"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_identifies_the_caller() {
    let secured = TlsFixture::new();
    let (cell, admin, router) = (secured.identity("cell/1"), secured.identity("admin"), secured.identity("router"));
    let line = "begin --cell 1 --create USERNAMES:alice --subject USER:7 --source USERS:7";
    let begun = secured.run(line, &cell).await.expect_success();
    let next = begun.lines().find_map(|line| line.strip_prefix("next: leasehold ")).unwrap();
    assert!(next.contains("--ca ") && next.contains("--cert ") && next.contains("--key "), "{next}");
    run(next.split(' ')).await.expect_success();
    secured.run("get USERNAMES:alice", &admin).await.expect_success();
    assert!(secured.run("classify USERNAMES:alice", &router).await.expect_success().contains("USERNAMES:alice"));
    assert_eq!(table(&secured.run("cells", &router).await.expect_success()).len(), 3);

    // The `LEASEHOLD_*` environment variables have the same effect as the options.
    let mut by_environment = command().unwrap();
    by_environment.arg("cells").env("LEASEHOLD_SERVER", &secured.world.url).env("LEASEHOLD_CA", secured.ca());
    by_environment.env("LEASEHOLD_CERT", &cell[1]).env("LEASEHOLD_KEY", &cell[3]);
    CommandOutput::from(by_environment.output().await.unwrap()).expect_success();

    // The client must refuse a server whose certificate comes from an authority that it does not
    // trust.
    let foreign = Authority::new("foreign").unwrap();
    let path = secured.directory.path().join("foreign.pem");
    std::fs::write(&path, foreign.pem()).unwrap();
    let path = path.to_str().unwrap();
    run(["cells", "--server", &secured.world.url, "--ca", path])
        .await
        .expect_failure(5, &["error: cannot reach ", "ertificate"]);
    let plain = format!("http://{}", secured.world.server.address());
    let said = run(["cells", "--server", &plain]).await;
    assert_eq!((said.code, said.stdout.as_str()), (5, ""), "{said:?}");
    let key = Path::new(&cell[3]).to_str().unwrap();
    for (options, words) in [
        (vec!["--key", key], "--cert"),
        (vec!["--cert", path], "--key"),
        (vec!["--cert", "/nowhere.pem", "--key", key], "`/nowhere.pem`"),
    ] {
        let options: Vec<OsString> = options.into_iter().map(OsString::from).collect();
        secured.run("cells", &options).await.expect_failure(2, &["error: ", words]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_client_certificate_is_not_reported_as_an_unreachable_server() {
    let secured = TlsFixture::new();
    let admin = ["spiffe://leasehold/admin"];
    let foreign = Authority::new("foreign").unwrap().client(&admin).unwrap();
    let namesake = Authority::new("clients").unwrap().client(&admin).unwrap();
    let expired = secured.authority.expired(&admin).unwrap();
    let begin = "begin --cell 1 --create USERNAMES:alice --subject USER:7 --source USERS:7";
    for (name, pair, why, hint) in [
        ("foreign", foreign, "it is signed by an authority that the server does not know", "`tls.client_ca`"),
        ("namesake", namesake, "it is signed by an authority that the server does not know", "`tls.client_ca`"),
        ("expired", expired, "it has expired", "new certificate in --cert"),
    ] {
        let options = secured.shown(name, &pair);
        // The connection breaks at another point of the handshake in each run, but the error is
        // always the same.
        for line in [begin, "cells", "cells", "cells", "bench --cell 1 --seconds 1 --clients 1"] {
            let said = secured.run(line, &options).await;
            said.expect_failure(
                6,
                &["error: the server does not accept the certificate `", &format!("{name}.pem"), why, hint],
            );
            assert_eq!(said.stderr.lines().count(), 2, "{}", said.stderr);
        }
        let error = secured.run("cells --json", &options).await.expect_json_error(6);
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_server_certificate_is_reported_with_the_file_to_check() {
    let authority = || Authority::new("clients").unwrap();
    let (elsewhere, expired) = (authority(), authority());
    let elsewhere = TlsFixture::showing(&elsewhere.server_elsewhere().unwrap(), elsewhere);
    let expired = TlsFixture::showing(&expired.expired_server().unwrap(), expired);
    let foreign = TlsFixture::showing(&authority().server().unwrap(), Authority::new("foreign").unwrap());
    let namesake = TlsFixture::showing(&authority().server().unwrap(), authority());
    for (secured, cause, hint) in [
        (elsewhere, "elsewhere.example.com", "hint: use a name"),
        (expired, "is not valid now", "hint: give the server a new certificate"),
        (foreign, "ca.pem` did not sign", "hint: name the authority that signed the server's certificate in --ca"),
        (namesake, "ca.pem` did not sign", "hint: name the authority that signed the server's certificate in --ca"),
    ] {
        secured.run("cells", &[]).await.expect_failure(5, &["error: cannot reach https://", cause, hint]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_url_scheme_is_recognized() {
    let (secured, open) = (TlsFixture::new(), CliFixture::new());
    let plain = format!("http://{}", secured.world.server.address());
    let begin = "begin --cell 1 --create USERNAMES:alice --subject USER:7 --source USERS:7";
    for line in [begin, "cells", "cells", "cells"] {
        let said = run(line.split(' ').chain(["--server", &plain])).await;
        said.expect_failure(5, &["error: cannot reach ", "the server speaks TLS", "hint: use https:// in --server"]);
    }
    let ca = secured.ca();
    let encrypted = format!("https://{}", open.server.address());
    let said = run(["cells", "--server", &encrypted, "--ca", ca.to_str().unwrap()]).await;
    said.expect_failure(5, &["does not answer in TLS", "use http:// in --server"]);
    // Start a listener that closes each connection once it receives bytes that are no TLS
    // handshake.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let encrypted = format!("https://{}", listener.local_addr().unwrap());
    let hang_up = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 16384]).await.unwrap();
        }
    });
    let said = run(["cells", "--server", &encrypted, "--ca", ca.to_str().unwrap()]).await;
    said.expect_failure(5, &["does not answer in TLS", "use http:// in --server"]);
    hang_up.abort();
    run(["cells", "--server", &encrypted]).await.expect_failure(2, &["name the PEM file", "--ca"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_is_json_with_the_json_option() {
    let directory = TempDir::new().unwrap();
    let nowhere = directory.path().join("nowhere");
    let nowhere = nowhere.to_str().unwrap();
    for (line, code) in [
        (format!("serve --json --config {nowhere}"), 2),
        (format!("--json export --data {nowhere}"), 1),
        (format!("import --data {nowhere} --input {nowhere} --json"), 1),
        (format!("begin --file {nowhere} --json"), 2),
    ] {
        let error = run(line.split(' ')).await.expect_json_error(code);
        assert!(error["message"].as_str().unwrap().contains(nowhere), "{line}: {error}");
    }
    for (line, words) in [
        ("fly --json", "'fly'"),
        ("--json", "subcommand"),
        ("cells --json --colour", "'--colour'"),
        ("begin --json --cell one", "'one'"),
        ("commit --json", "--cell"),
        ("serve --json --listen here", "'here'"),
    ] {
        let error = run(line.split(' ')).await.expect_json_error(2);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(words) && !message.starts_with("error"), "{line}: {error}");
        assert!(!message.contains("Usage") && error["hint"].as_str().unwrap().contains("--help"), "{line}: {error}");
    }
    run(["get", "--", "--json"]).await.expect_failure(2, &["error: ", "TYPE:VALUE"]);
    for line in ["--json --help", "cells --json --help", "--json --version"] {
        assert!(run(line.split(' ')).await.expect_success().contains("leasehold"), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bench_with_errors_exits_with_their_code() {
    let world = CliFixture::of(Server::builder().config("[limits]\nqueued_begins = 1\n").start().unwrap());
    for json in [false, true] {
        let line = "bench --cell 1 --seconds 1 --clients 64 --connections 8";
        let said = world.run(&if json { format!("{line} --json") } else { line.to_owned() }).await;
        assert_eq!(said.code, 4, "{said:?}");
        if json {
            let result: Value = serde_json::from_str(&said.stdout).unwrap();
            assert!(result["saves"].as_u64().unwrap() > 0 && result["errors"][0]["reason"] == "OVERLOADED", "{result}");
            let error: Value = serde_json::from_str(&said.stderr).unwrap();
            assert_eq!(error["error"]["reason"], "OVERLOADED");
        } else {
            assert!(said.stdout.contains(" saves/s: ") && said.stdout.contains("OVERLOADED"), "{said:?}");
            assert!(said.stderr.starts_with("error: ") && said.stderr.contains("(OVERLOADED)"), "{said:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_name_the_option_to_shorten() {
    let world = CliFixture::new();
    let begin = "begin --cell 1 --create USERNAMES:alice --subject USER:7";
    for (line, hint) in [
        (format!("{begin} --source USERS:{}", "x".repeat(200)), "hint: shorten the source id"),
        (format!("{begin} --source USERS:7 --idempotency-key {}", "k".repeat(300)), "hint: shorten --idempotency-key"),
    ] {
        world.run(&line).await.expect_failure(3, &["(LIMIT_EXCEEDED)", hint]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_environment_variable_counts_as_unset() {
    let server = ["LEASEHOLD_CONFIG", "LEASEHOLD_DATA", "LEASEHOLD_LISTEN", "LEASEHOLD_LOG"];
    let builder = server.into_iter().fold(Server::builder(), |builder, name| builder.env(name, ""));
    let world = CliFixture::of(builder.start().unwrap());
    let ask = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = command().unwrap();
        command.args(words).envs(variables.iter().copied());
        async move { CommandOutput::from(command.output().await.unwrap()) }
    };
    let client = ["LEASEHOLD_CA", "LEASEHOLD_CERT", "LEASEHOLD_KEY"].map(|name| (name, ""));
    ask(&["cells", "--server", &world.url], &client).await.expect_success();
    // The command calls the default address. The test passes whether or not a server listens there.
    let said = ask(&["cells", "--timeout-seconds", "1"], &[("LEASEHOLD_SERVER", "")]).await;
    assert_ne!(said.code, 2, "{said:?}");
    let state = TempDir::new().unwrap();
    let state = state.path().to_str().unwrap();
    let said = ask(&["export"], &[("LEASEHOLD_DATA", ""), ("XDG_STATE_HOME", state)]).await;
    said.expect_failure(1, &["error: ", state]);
}

#[tokio::test(flavor = "multi_thread")]
async fn export_and_import_use_a_configured_database() {
    let dir = TempDir::new().unwrap();
    let config = dir.path().join("leasehold.toml");
    std::fs::write(&config, "[postgres]\nurl = \"postgres://me:secret@db/claims\"").unwrap();
    for verb in ["export", "import"] {
        let said = run([verb, "--config", config.to_str().unwrap()]).await;
        // The URL names no way to trust the database, so that no connection is tried.
        said.expect_failure(2, &["postgres://db:5432/claims", "set `postgres.ca`"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_subcommand_has_help() {
    let help = run(["--help"]).await.expect_success();
    // The code 7 is of `leasehold-py verify` alone.
    for code in (0..=6).chain([8, 9]) {
        assert!(help.lines().any(|line| line.starts_with(&format!("  {code}  "))), "exit code {code}: {help}");
    }
    for verb in
        VERBS.into_iter().chain(["serve", "export", "import", "guard", "outbox", "capture", "queue", "completions"])
    {
        assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("{verb} "))), "{verb}: {help}");
        let long = run([verb, "--help"]).await.expect_success();
        let usage = format!(" {verb} ");
        assert!(long.lines().any(|line| line.starts_with("Usage: ") && line.contains(&usage)), "{verb}: {long}");
        assert_eq!(run(["help", verb]).await.expect_success(), long);
        let short = run([verb, "-h"]).await.expect_success();
        if VERBS.contains(&verb) {
            for text in [&short, &long] {
                assert!(text.contains("--server") && text.contains("--json"), "{verb}: {text}");
            }
        } else {
            for option in ["--server", "--cert", "--timeout-seconds"] {
                assert!(!long.contains(option) && long.contains("--json"), "{verb}: {long}");
            }
            run([verb, "--server", "http://127.0.0.1:7171"]).await.expect_failure(2, &["'--server'"]);
        }
    }
    let help = run(["queue", "--help"]).await.expect_success();
    for verb in QUEUE_VERBS {
        assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("{verb} "))), "{verb}: {help}");
        let text = run(["queue", verb, "-h"]).await.expect_success();
        assert!(text.contains("--server") && text.contains("--json"), "{verb}: {text}");
    }
    let version = run(["--version"]).await.expect_success();
    assert_eq!(version, format!("leasehold {}\n", env!("CARGO_PKG_VERSION")));
}

#[tokio::test(flavor = "multi_thread")]
async fn shell_completions_cover_subcommands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(["completions", shell]).await.expect_success();
        for word in VERBS.into_iter().chain(QUEUE_VERBS).chain(["timeout-seconds", "idempotency-key"]) {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
    }
    run(["completions", "abacus"]).await.expect_failure(2, &["abacus"]);
    let script = run(["completions", "bash"]).await.expect_success();
    let ask = "\nCOMP_WORDS=(leasehold c); COMP_CWORD=1; _leasehold leasehold c leasehold; echo ${COMPREPLY[@]}";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &(script + ask)]).stderr(Stdio::null());
    let output = bash.output().await.unwrap();
    let offered = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        offered.split_whitespace().collect::<Vec<_>>(),
        ["capture", "completions", "cells", "commit", "classify"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_output_pipe_is_not_an_error() {
    let world = CliFixture::new();
    for name in ["a", "b", "c"] {
        world.begin(1, &format!("--create USERNAMES:{name}")).await;
    }
    let mut child = command().unwrap();
    child.args(["leases", "--cell", "1", "--json", "--server", &world.url]);
    let mut child = child.spawn().unwrap();
    drop(child.stdout.take());
    CommandOutput::from(child.wait_with_output().await.unwrap()).expect_success();
}

//! Edge cases of the command line: values without a JSON form, truncated lists, a server that never
//! answers, a closed output pipe, and hints that repeat the options of the failed command.

use std::time::{Duration, Instant};

use leasehold_proto::gitlab::cells::topology_service::claims::v1::{
    BeginUpdateRequest, BeginUpdateResponse, ListLeasesRequest, Metadata,
};
use leasehold_tests::wire::username;
use prost::{Message, Name};
use prost_types::{Any, Timestamp};
use tonic::Request;

use super::*;

const BEGIN: &str = "begin --cell 1 --create USERNAMES:alice --subject USER:7 --source USERS:7";

impl CliFixture {
    /// Begins an update of cell 1 with these creates, for updates that the command line cannot
    /// express.
    async fn begin_message(&self, records: Vec<Metadata>) -> BeginUpdateResponse {
        let update = BeginUpdateRequest { create_records: records, cell_id: 1, ..BeginUpdateRequest::default() };
        let mut claims = self.server.claims(None).await.unwrap();
        claims.begin_update(Request::new(update)).await.unwrap().into_inner()
    }
}

/// Returns a claim of the username `name` with attached data of this type and value.
fn with_data(name: &str, type_url: &str, value: Vec<u8>) -> Metadata {
    Metadata { user_data: Some(Any { type_url: type_url.to_owned(), value }), ..username(name) }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_data_of_any_type_is_shown_in_json() {
    let world = CliFixture::new();
    let late = Timestamp { seconds: 253_402_300_800, nanos: 0 };
    let known = Timestamp { seconds: 0, nanos: 0 };
    let time = Timestamp::type_url();
    world
        .begin_message(vec![
            with_data("a", "type.googleapis.com/my.app.UserExtra", vec![0xfb, 0xff]),
            with_data("b", &time, late.encode_to_vec()),
            with_data("c", &time, known.encode_to_vec()),
            username("d"),
        ])
        .await;
    let expected = [
        ("a", json!({"@type": "type.googleapis.com/my.app.UserExtra", "value": "+/8="})),
        ("b", json!({"@type": time, "value": "CICD0f+vBw=="})),
        ("c", json!({"@type": time, "value": "1970-01-01T00:00:00Z"})),
        ("d", Value::Null),
    ];
    let records = world.run("records --json --cell 1 --source USERS").await.expect_json_lines();
    assert_eq!(records.len(), expected.len());
    for (name, data) in expected {
        let found = world.run(&format!("get --json USERNAMES:{name}")).await.expect_json_lines();
        let metadata = &found[0]["record"]["metadata"];
        assert_eq!((&metadata["bucket"]["value"], &metadata["userData"]), (&json!(name), &data));
        assert!(records.contains(&found[0]["record"]), "{records:?}");
    }
    for verb in ["get", "records"] {
        let help = run([verb, "--help"]).await.expect_success();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(r#"{"@type": ..., "value": <base64>}"#), "{verb}: {help}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_json_list_ends_with_its_cursor() {
    let world = CliFixture::new();
    for name in ["a", "b", "c"] {
        world.begin(1, &format!("--create USERNAMES:{name}")).await;
    }
    let all = world.run("leases --cell 1 --json").await.expect_json_lines();
    assert_eq!(all.len(), 3);
    assert_eq!(world.run("leases --cell 1 --json --limit 3").await.expect_json_lines(), all);
    let some = world.run("leases --cell 1 --json --limit 2").await.expect_json_lines();
    assert_eq!(some[..2], all[..2]);
    // The cursor that the command prints must equal the field `next` of the server's own answer.
    let mut claims = world.server.claims(None).await.unwrap();
    let request = ListLeasesRequest { cell_id: 1, limit: Some(2), ..ListLeasesRequest::default() };
    let next = claims.list_leases(Request::new(request)).await.unwrap().into_inner().next.unwrap();
    assert_eq!((some.len(), &some[2]["next"]["@type"]), (3, &json!(next.type_url)));
    assert_eq!(some[2].as_object().unwrap().len(), 1);
    let last = all[1]["uuid"]["value"].as_str().unwrap().replace('-', "");
    let named = base64_bytes(some[2]["next"]["leaseUuid"].as_str().unwrap());
    assert_eq!(named.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), last);
    assert!(run(["leases", "--help"]).await.expect_success().contains(r#"{"next": ...}"#));
}

/// Returns the bytes that a base 64 text encodes.
fn base64_bytes(text: &str) -> Vec<u8> {
    let json = json!({"source": {"railsPrimaryKeyId": text}}).to_string();
    let pool = leasehold_proto::descriptor_pool().unwrap();
    let metadata: Metadata = leasehold_proto::from_json(&pool, &Metadata::full_name(), json.as_bytes()).unwrap();
    metadata.source.unwrap().rails_primary_key_id
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_since_a_time_names_that_time() {
    let world = CliFixture::new();
    world.begin(1, "--create USERNAMES:alice").await;
    let none = world.run("leases --cell 1 --created-after 2999-01-31T12:00:00Z").await;
    assert_eq!((none.code, none.stdout.as_str()), (0, ""));
    assert_eq!(none.stderr, "cell 1 has no outstanding leases begun at 2999-01-31T12:00:00Z or later\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_handshake_without_an_answer_times_out() {
    let directory = TempDir::new().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, Authority::new("servers").unwrap().pem()).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let rest = ["--server", &url, "--ca", ca.to_str().unwrap(), "--timeout-seconds", "1"];
    for line in ["cells", BEGIN, "bench --cell 1 --seconds 1"] {
        let start = Instant::now();
        let said = run(line.split(' ').chain(rest)).await;
        // The connection never opened, so no request was sent and the hint can say that a
        // repetition is safe.
        said.expect_failure(
            4,
            &["no answer within 1 s (DEADLINE_EXCEEDED)", "hint: repeating it is safe; --timeout-seconds"],
        );
        assert!(start.elapsed() < Duration::from_secs(10), "{line}: {:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_without_a_role_is_named_in_the_hint() {
    let secured = TlsFixture::new();
    let nobody = secured.authority.client(&["spiffe://elsewhere/admin"]).unwrap();
    let options = secured.shown("nobody", &nobody);
    let hint = "nobody.pem` does not name one cell, router or admin of the server's trust domain";
    for line in ["cells", BEGIN, "get USERNAMES:alice"] {
        let said = secured.run(line, &options).await;
        said.expect_failure(6, &["(NO_IDENTITY)", "hint: the certificate `", hint]);
        assert!(!said.stderr.contains("--cert"), "{}", said.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_store_does_not_claim_that_nothing_was_changed() {
    let full = CliFixture::of(Server::builder().config("min_free_disk_mib = 1_000_000_000_000\n").start().unwrap());
    let said = full.run(&format!("{BEGIN} --idempotency-key once")).await;
    said.expect_failure(
        5,
        &["(STORE_UNAVAILABLE)", "hint: when the store is back, repeat it with `--idempotency-key once`"],
    );
    assert!(!said.stderr.contains("nothing was changed"), "{}", said.stderr);
}

/// Runs a command whose output goes to the file `stdout`, or to a closed pipe if no file is given.
async fn run_into(words: &[&str], stdout: Option<&str>) -> CommandOutput {
    let mut command = command().unwrap();
    command.args(words);
    if let Some(path) = stdout {
        command.stdout(OpenOptions::new().write(true).open(path).unwrap());
    }
    let mut child = command.spawn().unwrap();
    // Close the reading end of the pipe, so that the command's writes fail.
    drop(child.stdout.take());
    CommandOutput::from(child.wait_with_output().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_that_cannot_be_written_fail() {
    for shell in ["bash", "zsh", "fish"] {
        let words = ["completions", shell];
        run_into(&words, Some("/dev/full")).await.expect_failure(1, &["error: cannot write the output: No space left"]);
        run_into(&words, None).await.expect_success();
    }
    let error = run_into(&["completions", "bash", "--json"], Some("/dev/full")).await.expect_json_error(1);
    assert!(error["message"].as_str().unwrap().contains("No space left"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_whose_output_breaks_off_fails() {
    let mut world = CliFixture::new();
    world.begin(1, "--create USERNAMES:alice").await;
    world.server.terminate().unwrap();
    let words = ["export", "--data", world.server.data().to_str().unwrap()];
    for stdout in [None, Some("/dev/full")] {
        let said = run_into(&words, stdout).await;
        said.expect_failure(1, &["error: "]);
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_url_or_pem_file_is_a_usage_error() {
    for url in ["ftp://127.0.0.1:1", "http://127.0.0.1:1/foo", "http://127.0.0.1:1/?a=b", "http://me@127.0.0.1:1"] {
        run(["cells", "--server", url])
            .await
            .expect_failure(2, &["error: ", url, "http://HOST:PORT or https://HOST:PORT"]);
    }
    let secured = TlsFixture::new();
    let admin = secured.identity("admin");
    let [ca, cert, key] = [secured.ca().into_os_string(), admin[1].clone(), admin[3].clone()];
    let path = |name: &str, text: &str| {
        let path = secured.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.into_os_string()
    };
    let (empty, garbage) = (path("empty.pem", ""), path("garbage.pem", &pem_of_nothing()));
    for (option, [ca, cert, key], file, words) in [
        ("--ca", [&empty, &cert, &key], &empty, "holds no certificate"),
        ("--ca", [&garbage, &cert, &key], &garbage, "holds no certificate"),
        ("--ca", [&key, &cert, &key], &key, "holds no certificate"),
        ("--cert", [&ca, &empty, &key], &empty, "holds no certificate"),
        ("--cert", [&ca, &key, &key], &key, "holds no certificate"),
        ("--key", [&ca, &cert, &cert], &cert, "holds no private key"),
    ] {
        let mut command = command().unwrap();
        command.args(["cells", "--server", &secured.world.url]);
        command.arg("--ca").arg(ca).arg("--cert").arg(cert).arg("--key").arg(key);
        let said = CommandOutput::from(command.output().await.unwrap());
        said.expect_failure(2, &["error: ", file.to_str().unwrap(), option, words]);
    }
}

/// Returns a PEM file with the header of a certificate, but without a valid certificate.
fn pem_of_nothing() -> String {
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_json_error_has_the_same_members() {
    let world = CliFixture::new();
    let refused = world.run("get --json USERNAMES:nobody").await.expect_json_error(3);
    let members = |error: &Value| error.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for (line, code) in [
        ("cells --json --colour", 2),
        ("cells --json --server ftp://127.0.0.1:1", 2),
        ("export --json --data /nowhere", 1),
        ("begin --json --file /nowhere", 2),
    ] {
        let error = run(line.split(' ')).await.expect_json_error(code);
        assert_eq!(members(&error), members(&refused), "{line}");
        let ours = [&error["code"], &error["reason"], &error["retryAfterSeconds"], &error["claims"]];
        assert_eq!(ours, [&Value::Null, &Value::Null, &Value::Null, &json!([])], "{line}");
    }
}

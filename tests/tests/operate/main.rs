//! Tests of the server's side for operators: metrics, logs without claimed values, audit lines,
//! load shedding, a graceful stop, health, reflection, and the messages of a start.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod clock;
mod doctor;
mod idle;
mod pause;
mod probes;
mod reload;
mod start;
mod stores;
mod supervisor;
mod traces;
mod unicode;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_client::ClaimServiceClient;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{
    BeginUpdateRequest, BeginUpdateResponse, Bucket, CommitUpdateRequest, GetRecordRequest, ListLeasesRequest,
    ListRecordsRequest, Metadata, RollbackUpdateRequest, Source, Subject,
};
use leasehold_proto::gitlab::cells::topology_service::classify_service_client::ClassifyServiceClient;
use leasehold_proto::gitlab::cells::topology_service::types::v1::Claim;
use leasehold_proto::gitlab::cells::topology_service::{
    CellInfo, ClassifyRequest, ClassifyResponse, GetCellsRequest, SequenceRange,
};
use leasehold_proto::{descriptor_pool, from_json, to_json};
use leasehold_tests::certificates::Authority;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{
    Refusal, SlowCall, USERNAMES, call_raw, call_slowly, command, creates, eventually, get, http, kept, lease, username,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prost::Message;
use prost_types::{Any, FileDescriptorProto};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::codegen::tokio_stream;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

const CLAIM_SERVICE: &str = "gitlab.cells.topology_service.claims.v1.ClaimService";
const CLASSIFY_SERVICE: &str = "gitlab.cells.topology_service.ClassifyService";
const BEGIN: &str = "/gitlab.cells.topology_service.claims.v1.ClaimService/BeginUpdate";
const GET_CELLS: &str = "/gitlab.cells.topology_service.claims.v1.ClaimService/GetCells";
const CLASSIFY_HEAD: &str = "POST /v1/classify HTTP/1.1\r\ncontent-type: application/json";
const HALF_A_DRAIN: Duration = Duration::from_secs(5);
const OVERLOADED: (Code, &str) = (Code::ResourceExhausted, "OVERLOADED");

type Claims = ClaimServiceClient<Channel>;

async fn begin(claims: &Claims, update: BeginUpdateRequest) -> Result<String, Status> {
    let begun = claims.clone().begin_update(update).await?.into_inner();
    Ok(begun.lease_uuid.unwrap().value)
}

async fn commit(claims: &Claims, uuid: &str) -> Result<(), Status> {
    let request = CommitUpdateRequest { cell_id: 1, lease_uuid: lease(uuid) };
    claims.clone().commit_update(request).await.map(|_| ())
}

async fn roll_back(claims: &Claims, uuid: &str) -> Result<(), Status> {
    let request = RollbackUpdateRequest { cell_id: 1, lease_uuid: lease(uuid) };
    claims.clone().rollback_update(request).await.map(|_| ())
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> Refusal {
    Refusal::of(&answer.unwrap_err())
}

fn named(name: &str) -> Claim {
    Claim::text(4, name)
}

fn get_username(name: &str) -> GetRecordRequest {
    GetRecordRequest { bucket: None, claim: Some(named(name)) }
}

// ---- metrics ----

/// The samples of one scrape of `/metrics`: the value of each by its name and labels.
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    async fn of(address: std::net::SocketAddr) -> Self {
        let (code, text) = get(address, "/metrics").await.unwrap();
        assert_eq!(code, 200, "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        };
        Self(text.lines().filter(|line| !line.starts_with('#')).map(sample).collect())
    }

    fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    fn requests(&self, method: &str, code: &str) -> f64 {
        self.get(&format!("leasehold_requests_total{{method=\"{method}\",code=\"{code}\"}}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_requests_by_method_and_code() {
    let server = Server::start().unwrap();
    let claims = server.claims(None).await.unwrap();
    assert_eq!(Scrape::of(server.address()).await.requests("BeginUpdate", "OK"), 0.0);
    let first = begin(&claims, creates(1, &["first"])).await.unwrap();
    commit(&claims, &first).await.unwrap();
    begin(&claims, creates(1, &["second"])).await.unwrap();
    assert_eq!(refused(begin(&claims, creates(1, &["first"])).await).reason, "CLAIM_TAKEN");
    assert_eq!(refused(begin(&claims, creates(2, &["second"])).await).reason, "CLAIM_BUSY");
    assert_eq!(refused(begin(&claims, creates(1, &[])).await).reason, "INVALID_UPDATE");
    assert_eq!(refused(claims.clone().get_record(get_username("third")).await).reason, "CLAIM_NOT_FOUND");
    let mut classify = server.classify(None).await.unwrap();
    classify.classify(ClassifyRequest { r#type: 1, ..ClassifyRequest::default() }).await.unwrap();
    for (body, code) in [("{\"type\": \"FIRST_CELL\"}", 200), ("{\"type\": \"CELL_ID\", \"value\": \"9\"}", 404)] {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        assert_eq!(http(stream, CLASSIFY_HEAD, body.as_bytes()).await.unwrap().0, code);
    }
    let after = Scrape::of(server.address()).await;
    for (method, code, times) in [
        ("BeginUpdate", "OK", 2.0),
        ("BeginUpdate", "ALREADY_EXISTS", 1.0),
        ("BeginUpdate", "FAILED_PRECONDITION", 1.0),
        ("BeginUpdate", "INVALID_ARGUMENT", 1.0),
        ("CommitUpdate", "OK", 1.0),
        ("GetRecord", "NOT_FOUND", 1.0),
        ("GetRecord", "OK", 0.0),
        ("Classify", "OK", 2.0),
        ("Classify", "NOT_FOUND", 1.0),
    ] {
        assert_eq!(after.requests(method, code), times, "{method} {code}");
    }
    for (reason, times) in [("CLAIM_TAKEN", 1.0), ("CLAIM_BUSY", 1.0), ("INVALID_UPDATE", 1.0), ("NOT_OWNER", 0.0)] {
        let name = format!("leasehold_rejections_total{{reason=\"{reason}\"}}");
        assert_eq!(after.get(&name), times, "{reason}");
    }
}

/// Asserts that the cumulative buckets of a histogram never fall and end at its count. Returns the
/// count.
fn check_histogram(scrape: &Scrape, name: &str, labels: &str) -> f64 {
    let suffixed = |suffix: &str| {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        scrape.get(&format!("{name}_{suffix}{labels}"))
    };
    let (sum, count) = (suffixed("sum"), suffixed("count"));
    let prefix = format!("{name}_bucket{{");
    let ours = scrape.0.iter().filter(|(key, _)| key.starts_with(&prefix) && key.contains(labels));
    let bound = |key: &str| key.split("le=\"").nth(1).unwrap().split('"').next().unwrap().replace("+Inf", "inf");
    let mut buckets: Vec<(f64, f64)> = ours.map(|(key, n)| (bound(key).parse().unwrap(), *n)).collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(buckets.len() > 5 && buckets.is_sorted_by(|a, b| a.1 <= b.1), "{name}: {buckets:?}");
    assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)), "{name}");
    assert!(count > 0.0 && sum > 0.0, "{name}: {count} {sum}");
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_report_latency_group_sizes_and_the_store() {
    let server = Server::start().unwrap();
    let claims = server.claims(None).await.unwrap();
    for n in 0..3 {
        let uuid = begin(&claims, creates(1, &[&format!("alone-{n}")])).await.unwrap();
        commit(&claims, &uuid).await.unwrap();
    }
    let alone = Scrape::of(server.address()).await;
    assert_eq!(check_histogram(&alone, "leasehold_request_duration_seconds", "method=\"BeginUpdate\""), 3.0);
    assert_eq!(check_histogram(&alone, "leasehold_request_duration_seconds", "method=\"CommitUpdate\""), 3.0);
    assert_eq!(check_histogram(&alone, "leasehold_group_commands", ""), 6.0);
    assert_eq!(alone.get("leasehold_group_commands_sum"), 6.0);
    assert_eq!(check_histogram(&alone, "leasehold_group_decide_seconds", ""), 6.0);
    assert_eq!(check_histogram(&alone, "leasehold_store_save_seconds", ""), 6.0);

    let mut begins = JoinSet::new();
    for n in 0..64 {
        let claims = claims.clone();
        begins.spawn(async move { begin(&claims, creates(1, &[&format!("together-{n}")])).await.unwrap() });
    }
    begins.join_all().await;
    let together = Scrape::of(server.address()).await;
    assert_eq!(together.get("leasehold_group_commands_sum"), 6.0 + 64.0);
    let groups = together.get("leasehold_group_commands_count") - 6.0;
    assert!((1.0..64.0).contains(&groups), "64 begins at a time went one by one: {groups} groups");
    assert!(together.get("leasehold_disk_bytes") > 0.0);
    assert_eq!(["leasehold_store_failed", "leasehold_store_unavailable"].map(|name| together.get(name)), [0.0; 2]);
    assert_eq!(together.get("leasehold_waiting_commands"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_report_outstanding_leases_and_the_age_of_the_oldest() {
    let server = Server::start().unwrap();
    let claims = server.claims(None).await.unwrap();
    let gauges = async || {
        let scrape = Scrape::of(server.address()).await;
        ["outstanding_leases", "held_claims", "oldest_lease_age_seconds"].map(|n| scrape.get(&format!("leasehold_{n}")))
    };
    assert_eq!(gauges().await, [0.0, 0.0, 0.0]);
    let older = begin(&claims, creates(1, &["a", "b", "c"])).await.unwrap();
    eventually("the lease is a second old", async || (gauges().await[2] >= 1.0).then_some(())).await.unwrap();
    let newer = begin(&claims, creates(1, &["d"])).await.unwrap();
    let [leases, held, age] = gauges().await;
    assert!(leases == 2.0 && held == 4.0 && age >= 1.0, "{leases} {held} {age}");
    commit(&claims, &older).await.unwrap();
    let [leases, held, _] = gauges().await;
    assert_eq!([leases, held], [1.0, 1.0]);
    roll_back(&claims, &newer).await.unwrap();
    assert_eq!(gauges().await, [0.0, 0.0, 0.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_openmetrics_and_have_a_plain_address_beside_tls() {
    let server = Server::start().unwrap();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"), "{answer}");

    let (authority, directory) = (Authority::new("metrics").unwrap(), TempDir::new().unwrap());
    let pair = authority.server().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).unwrap();
        directory.path().join(name)
    };
    let (certificate, key) = (file("cert.pem", &pair.certificate), file("key.pem", &pair.key));
    let client_ca = file("ca.pem", &authority.pem());
    let tls = format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {client_ca:?}\n");
    let config = format!("metrics_listen = \"127.0.0.1:0\"\n{tls}");
    let server = Server::builder().config(config).start().unwrap();
    let stdout = await_banner(&server).await;
    let address = stdout.split("http://").nth(1).unwrap().split("/metrics").next().unwrap().parse().unwrap();
    assert_ne!(address, server.address());
    assert_eq!(Scrape::of(address).await.get("leasehold_outstanding_leases"), 0.0);
}

/// Waits for the whole banner that the server prints at its start, and returns it.
async fn await_banner(server: &Server) -> String {
    let printed = async || Some(server.stdout()).filter(|text| text.contains("\ntry: ") && text.ends_with('\n'));
    eventually("the banner", printed).await.unwrap()
}

// ---- logs ----

/// A text that each claim of these tests has in its value, source and attached data. No log line
/// may contain it.
const VALUE: &str = "unmistakable9value";
const SUBJECT: i64 = 7_316_402_958_116;

fn secret(suffix: &str) -> Metadata {
    let value = format!("{VALUE}-{suffix}");
    Metadata {
        bucket: Some(Bucket { r#type: USERNAMES, value: value.clone() }),
        subject: Some(Subject { r#type: 4, id: SUBJECT }),
        source: Some(Source { r#type: 1, rails_primary_key_id: value.clone().into_bytes() }),
        user_data: Some(Any { type_url: value.clone(), value: value.into_bytes() }),
        claim: None,
    }
}

fn update(create_records: Vec<Metadata>, destroy_records: Vec<Metadata>) -> BeginUpdateRequest {
    BeginUpdateRequest { create_records, destroy_records, cell_id: 1, organization_id: 0 }
}

/// Makes calls of each kind, accepted and refused, whose requests contain the text [`VALUE`].
async fn call_everything(server: &Server) {
    let channel = server.connect(None).await.unwrap();
    let claims = ClaimServiceClient::new(channel.clone());
    let at_rest = begin(&claims, update(vec![secret("at-rest"), secret("leaving")], vec![])).await.unwrap();
    commit(&claims, &at_rest).await.unwrap();
    let replace = update(vec![secret("at-rest")], vec![secret("at-rest"), secret("leaving")]);
    let held = begin(&claims, replace).await.unwrap();
    refused(begin(&claims, update(vec![secret("at-rest")], vec![])).await);
    roll_back(&claims, &held).await.unwrap();
    refused(begin(&claims, update(vec![secret("at-rest")], vec![])).await);
    refused(begin(&claims, update(vec![], vec![secret("absent")])).await);
    refused(begin(&claims, update(vec![secret("twice"), secret("twice")], vec![])).await);
    refused(begin(&claims, update(vec![secret("control\u{1}")], vec![])).await);
    refused(begin(&claims, BeginUpdateRequest { cell_id: 2, ..update(vec![], vec![secret("at-rest")]) }).await);
    refused(commit(&claims, &format!("{VALUE}-lease")).await);
    refused(call_raw(&channel, BEGIN, [&[0xff], VALUE.as_bytes()].concat()).await);
    claims.clone().get_record(get_username(&format!("{VALUE}-at-rest"))).await.unwrap();
    refused(claims.clone().get_record(get_username(&format!("{VALUE}-absent"))).await);
    let records = ListRecordsRequest { cell_id: 1, source_type: 1, ..ListRecordsRequest::default() };
    let records = claims.clone().list_records(records).await.unwrap().into_inner().records;
    assert_eq!(records.len(), 2);
    let names = vec![named(&format!("{VALUE}-absent")), named(&format!("{VALUE}-at-rest"))];
    let request = ClassifyRequest { claims: names, ..ClassifyRequest::default() };
    ClassifyServiceClient::new(channel).classify(request).await.unwrap();
    for name in ["at-rest", "absent", "broken\u{1}"] {
        let body = serde_json::json!({ "claims": [{ "username": format!("{VALUE}-{name}") }] }).to_string();
        let stream = TcpStream::connect(server.address()).await.unwrap();
        http(stream, CLASSIFY_HEAD, body.as_bytes()).await.unwrap();
    }
    let stream = TcpStream::connect(server.address()).await.unwrap();
    http(stream, CLASSIFY_HEAD, format!("{{\"{VALUE}\": 1}}").as_bytes()).await.unwrap();
}

/// Returns the forms in which a log might contain [`VALUE`]: text, lists of byte values, and
/// hexadecimal digits.
fn spellings() -> Vec<String> {
    let bytes = VALUE.as_bytes();
    let joined =
        |separator: &str, spell: fn(&u8) -> String| bytes.iter().map(spell).collect::<Vec<_>>().join(separator);
    let hex = joined("", |byte| format!("{byte:02x}"));
    vec![VALUE.to_owned(), joined(", ", u8::to_string), joined(",", u8::to_string), hex, SUBJECT.to_string()]
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_carry_no_values_at_any_level() {
    let everything = "trace,fjall=trace,lsm_tree=trace,leasehold_server=trace,h2=trace,hyper=trace,tonic=trace";
    for (format, filter) in [("text", "info"), ("json", "debug"), ("text", everything), ("json", everything)] {
        let builder = Server::builder().arg("--log-format").arg(format).arg("--log").arg(filter);
        let mut server = builder.start().unwrap();
        call_everything(&server).await;
        assert!(server.terminate().unwrap().success());
        let said = server.stderr() + &server.stdout();
        assert!(said.contains("lease begun"), "{format} {filter}: no audit\n{said}");
        assert_eq!(said.contains("TRACE"), filter == everything, "{format} {filter}");
        for line in said.lines() {
            for spelling in spellings() {
                assert!(!line.contains(&spelling), "{format} {filter}: {line}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_json_log_line_is_one_object() {
    let mut server = Server::builder().config("[log]\nformat = \"json\"\nfilter = \"debug\"\n").start().unwrap();
    call_everything(&server).await;
    server.terminate().unwrap();
    let stderr = server.stderr();
    assert!(stderr.lines().count() > 2);
    for line in stderr.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "target"] {
            assert!(line[field].is_string(), "{line}");
        }
    }
}

/// Returns the audit lines of a JSON log: the message, the lease, and the outcome or the number of
/// claims.
fn audit(text: &str) -> Vec<(String, String, String)> {
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let audited = lines.iter().filter(|line| line["target"] == "audit");
    let summary = |line: &Value| {
        assert_eq!((&line["caller"], text(&line["cell"]).as_str()), (&"trusted".into(), "1"), "{line}");
        let figure = if line["message"] == "lease begun" {
            assert!(line["fence"].as_u64().unwrap() > 0, "{line}");
            let organization = line["organization"].as_str().map(|id| format!(", organization {id}"));
            format!("{} claims, replayed {}{}", line["claims"], line["replayed"], organization.unwrap_or_default())
        } else {
            text(&line["outcome"])
        };
        (text(&line["message"]), text(&line["lease"]), figure)
    };
    audited.map(summary).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_begin_and_settle_writes_one_audit_line() {
    let mut server = Server::builder().arg("--log-format").arg("json").start().unwrap();
    let claims = server.claims(None).await.unwrap();
    let keyed = || {
        let mut request = Request::new(creates(1, &["a", "b"]));
        request.metadata_mut().insert("leasehold-idempotency-key", MetadataValue::from_static("once"));
        request
    };
    let first = claims.clone().begin_update(keyed()).await.unwrap().into_inner().lease_uuid.unwrap().value;
    claims.clone().begin_update(keyed()).await.unwrap();
    refused(begin(&claims, creates(1, &["a"])).await);
    commit(&claims, &first).await.unwrap();
    commit(&claims, &first).await.unwrap();
    refused(roll_back(&claims, &first).await);
    let for_organization = BeginUpdateRequest { organization_id: i64::MAX, ..creates(1, &["c"]) };
    let second = begin(&claims, for_organization).await.unwrap();
    roll_back(&claims, &second).await.unwrap();
    server.terminate().unwrap();
    let line = |message: &str, lease: &str, figure: &str| (message.to_owned(), lease.to_owned(), figure.to_owned());
    let expected = [
        line("lease begun", &first, "2 claims, replayed false"),
        line("lease begun", &first, "2 claims, replayed true"),
        line("lease settled", &first, "committed"),
        line("lease begun", &second, "1 claims, replayed false, organization 9223372036854775807"),
        line("lease settled", &second, "rolled_back"),
    ];
    assert_eq!(audit(&server.stderr()), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_lines_go_to_the_audit_file_instead_of_the_log() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("audit.jsonl");
    // The filter `audit=off` concerns the log. It must not suppress lines in the audit file.
    let config = format!("[audit]\nfile = {file:?}\n[log]\nformat = \"json\"\nfilter = \"info,audit=off\"\n");
    let mut expected = Vec::new();
    for name in ["a", "b"] {
        let mut server = Server::builder().config(&config).start().unwrap();
        let lease = begin(&server.claims(None).await.unwrap(), creates(1, &[name])).await.unwrap();
        server.terminate().unwrap();
        assert!(!server.stderr().contains("lease begun"), "{}", server.stderr());
        expected.push(("lease begun".to_owned(), lease, "1 claims, replayed false".to_owned()));
    }
    assert_eq!(audit(&std::fs::read_to_string(&file).unwrap()), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_filter_can_turn_off_audit_lines() {
    let mut server = Server::builder().arg("--log").arg("info,audit=off").start().unwrap();
    begin(&server.claims(None).await.unwrap(), creates(1, &["a"])).await.unwrap();
    server.terminate().unwrap();
    assert!(!server.stderr().contains("lease begun"), "{}", server.stderr());
}

// ---- overload ----

/// Returns a server with the configuration `limits`, started on data with this many outstanding
/// leases, and the ids of the leases.
async fn server_at_limit(leases: usize, limits: &str) -> (TempDir, Server, Vec<String>) {
    let data = TempDir::new().unwrap();
    let mut roomy = Server::builder().data(data.path()).start().unwrap();
    let claims = roomy.claims(None).await.unwrap();
    let mut uuids = Vec::new();
    for n in 0..leases {
        uuids.push(begin(&claims, creates(1, &[&format!("early-{n}")])).await.unwrap());
    }
    drop(claims);
    assert!(roomy.terminate().unwrap().success());
    let full = Server::builder().data(data.path()).config(limits).start().unwrap();
    (data, full, uuids)
}

fn expect_shed(refusal: &Refusal) {
    assert_eq!(refusal.code_and_reason(), OVERLOADED, "{}", refusal.message);
    assert!(refusal.retry_after.is_some_and(|after| !after.is_zero()), "{refusal:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_sheds_begins_and_never_commits_or_rollbacks() {
    let (_data, server, uuids) = server_at_limit(40, "[limits]\nqueued_begins = 1\n").await;
    let claims = server.claims(None).await.unwrap();
    let mut begins = JoinSet::new();
    let mut settles = JoinSet::new();
    for (n, uuid) in uuids.into_iter().enumerate() {
        for m in 0..10 {
            let claims = claims.clone();
            begins.spawn(async move { begin(&claims, creates(1, &[&format!("late-{n}-{m}")])).await });
        }
        let claims = claims.clone();
        settles.spawn(async move {
            if n % 2 == 0 { commit(&claims, &uuid).await } else { roll_back(&claims, &uuid).await }
        });
    }
    let (begun, shed): (Vec<_>, Vec<_>) = begins.join_all().await.into_iter().partition(Result::is_ok);
    let shed: Vec<_> = shed.into_iter().map(refused).collect();
    shed.iter().for_each(expect_shed);
    assert!(!shed.is_empty());
    for answer in settles.join_all().await {
        answer.unwrap();
    }
    let kept = kept(&server.connect(None).await.unwrap(), &[1, 2]).await.unwrap();
    assert_eq!((kept.leases.len(), kept.records.len()), (begun.len(), 20 + begun.len()));
    let scrape = Scrape::of(server.address()).await;
    assert_eq!(scrape.get("leasehold_shed_total{method=\"BeginUpdate\"}"), shed.len() as f64);
    assert_eq!(scrape.requests("BeginUpdate", "RESOURCE_EXHAUSTED"), shed.len() as f64);
}

#[tokio::test(flavor = "multi_thread")]
async fn under_overload_every_begin_is_answered_and_every_lease_can_be_settled() {
    let server = Server::builder().config("[limits]\nqueued_begins = 2\n").start().unwrap();
    let claims = server.claims(None).await.unwrap();
    let mut flood = JoinSet::new();
    for n in 0..500 {
        let claims = claims.clone();
        flood.spawn(async move {
            match begin(&claims, creates(1, &[&format!("flood-{n}")])).await {
                Ok(uuid) => commit(&claims, &uuid).await.map(|()| None),
                Err(status) => Ok(Some(Refusal::of(&status))),
            }
        });
    }
    // Each begun lease must also be committed: `unwrap` fails the test if a commit was refused.
    let answers: Vec<_> = flood.join_all().await.into_iter().map(Result::unwrap).collect();
    let shed: Vec<_> = answers.iter().flatten().collect();
    shed.iter().for_each(|refusal| expect_shed(refusal));
    assert!((1..500).contains(&shed.len()), "{} of 500 were shed", shed.len());
    let kept = kept(&server.connect(None).await.unwrap(), &[1]).await.unwrap();
    assert_eq!((kept.leases.len(), kept.records.len()), (0, 500 - shed.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn begins_are_shed_while_too_many_claims_are_held() {
    let (_data, server, uuids) = server_at_limit(5, "[limits]\nheld_claims = 3\n").await;
    let claims = server.claims(None).await.unwrap();
    let (last, others) = uuids.split_last().unwrap();
    for uuid in others {
        expect_shed(&refused(begin(&claims, creates(1, &["a", "b", "c"])).await));
        roll_back(&claims, uuid).await.unwrap();
    }
    expect_shed(&refused(begin(&claims, creates(1, &["a", "b", "c"])).await));
    let two = begin(&claims, creates(1, &["a", "b"])).await.unwrap();
    expect_shed(&refused(begin(&claims, creates(1, &["c"])).await));
    commit(&claims, last).await.unwrap();
    // A refused update holds no claims. An update that destroys a claim holds it, like one that
    // creates a claim.
    assert_eq!(refused(begin(&claims, creates(1, &["early-4"])).await).reason, "CLAIM_TAKEN");
    let destroy = update(vec![], creates(1, &["early-4"]).create_records);
    let destroyed = begin(&claims, destroy).await.unwrap();
    expect_shed(&refused(begin(&claims, creates(1, &["c"])).await));
    roll_back(&claims, &two).await.unwrap();
    commit(&claims, &destroyed).await.unwrap();
    begin(&claims, creates(1, &["a", "b", "c"])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_begins_never_exceed_the_limit_of_held_claims() {
    let server = Server::builder().config("[limits]\nheld_claims = 10\n").start().unwrap();
    let claims = server.claims(None).await.unwrap();
    let names: Vec<_> = (0..11).map(|n| format!("large-{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let too_large = refused(begin(&claims, creates(1, &names)).await);
    assert_eq!(too_large.code_and_reason(), (Code::InvalidArgument, "LIMIT_EXCEEDED"), "{}", too_large.message);
    assert_eq!(["limit", "max", "actual"].map(|name| too_large.figure(name)), ["held_claims", "8", "11"].map(Some));
    // Two of the ten claims are kept for the other cell.
    for round in 0..3 {
        let mut begins = JoinSet::new();
        for n in 0..50 {
            let claims = claims.clone();
            begins.spawn(async move { begin(&claims, creates(1, &[&format!("burst-{round}-{n}")])).await });
        }
        let (begun, shed): (Vec<_>, Vec<_>) = begins.join_all().await.into_iter().partition(Result::is_ok);
        shed.into_iter().map(refused).for_each(|refusal| expect_shed(&refusal));
        assert_eq!(begun.len(), 8);
        assert_eq!(Scrape::of(server.address()).await.get("leasehold_held_claims"), 8.0);
        for uuid in begun {
            commit(&claims, &uuid.unwrap()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn excess_lists_are_shed_while_begins_and_settles_succeed() {
    let server = Server::builder().config("[limits]\nconcurrent_lists = 1\nqueued_lists = 1\n").start().unwrap();
    let claims = server.claims(None).await.unwrap();
    let names: Vec<_> = (0..2000).map(|n| format!("listed-{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let uuid = begin(&claims, creates(1, &names)).await.unwrap();
    let list = async |claims: Claims| {
        let request = ListRecordsRequest { cell_id: 1, source_type: 1, ..ListRecordsRequest::default() };
        claims.clone().list_records(request).await.map(|page| page.into_inner().records.len())
    };
    let flood = async || {
        let mut lists = JoinSet::new();
        for _ in 0..16 {
            lists.spawn(list(claims.clone()));
        }
        let (good, bad): (Vec<_>, Vec<_>) = lists.join_all().await.into_iter().partition(Result::is_ok);
        assert!(!good.is_empty() && good.into_iter().all(|page| page.unwrap() == 2000));
        let shed: Vec<_> = bad.into_iter().map(refused).collect();
        shed.iter().for_each(expect_shed);
        begin(&claims, creates(1, &["listed-0"])).await.unwrap_err();
        (!shed.is_empty()).then_some(())
    };
    eventually("a list is shed", flood).await.unwrap();
    commit(&claims, &uuid).await.unwrap();
    let scrape = Scrape::of(server.address()).await;
    assert!(scrape.get("leasehold_shed_total{method=\"ListRecords\"}") > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_begin_past_its_deadline_is_answered_deadline_exceeded() {
    let server = Server::start().unwrap();
    // The headers announce a message that never follows. The test writes to the socket, because a
    // client library would end the call itself at the deadline.
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = format!(
        "POST {BEGIN} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/grpc\r\nte: trailers\r\n\
         grpc-timeout: 100m\r\ncontent-length: 50\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    eventually("an answer", async || {
        let read = stream.read_buf(&mut answer).await.unwrap();
        (read == 0 || answer.windows(4).any(|window| window == b"\r\n\r\n")).then_some(())
    })
    .await
    .unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("grpc-status: 4\r\n"), "{answer}");
    assert_eq!(Scrape::of(server.address()).await.requests("BeginUpdate", "DEADLINE_EXCEEDED"), 1.0);
}

/// Reads one HTTP/2 frame. Returns the frame's type and flags.
async fn read_frame(stream: &mut TcpStream) -> (u8, u8) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    let mut body = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
    stream.read_exact(&mut body).await.unwrap();
    (head[3], head[4])
}

/// gRPC clients ping a connection every 30 seconds, and must never receive a GOAWAY frame for it.
#[tokio::test(flavor = "multi_thread")]
async fn pings_on_an_idle_connection_are_answered() {
    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, b'l', b'e', b'a', b's', b'e', b'h', b'o', b'l'];
    let (ping, ack, goaway) = (6, 1, 7);
    let server = Server::start().unwrap();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    for _ in 0..1000 {
        stream.write_all(&PING).await.unwrap();
        loop {
            let (kind, flags) = read_frame(&mut stream).await;
            assert_ne!(kind, goaway);
            if (kind, flags) == (ping, ack) {
                break;
            }
        }
    }
}

// ---- stopping ----

/// Sends the headers of a begin, and returns once the server has read them. The test sends the
/// message later.
async fn begin_slowly(channel: &Channel) -> SlowCall {
    let call = call_slowly(channel, BEGIN).await.unwrap();
    // The server reads the calls of a connection in order, so the answer shows that it has the
    // begin's headers.
    call_raw(channel, GET_CELLS, vec![]).await.unwrap();
    call
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_finishes_calls_in_progress() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut server = Server::start().unwrap();
        let channel = server.connect(None).await.unwrap();
        let request = HealthCheckRequest { service: CLAIM_SERVICE.to_owned() };
        let mut health = HealthClient::new(channel.clone()).watch(request).await.unwrap().into_inner();
        assert_eq!(health.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
        let SlowCall { message, answer } = begin_slowly(&channel).await;
        server.signal(signal).unwrap();
        assert_eq!(health.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
        assert_eq!(health.message().await.unwrap(), None, "the watch holds up the stop");
        eventually("new connections are refused", async || TcpStream::connect(server.address()).await.err())
            .await
            .unwrap();
        assert!(!answer.is_finished());
        message.send(creates(1, &["under-way"]).encode_to_vec()).await.unwrap();
        drop(message);
        let begun = BeginUpdateResponse::decode(answer.await.unwrap().unwrap().into_inner().as_slice()).unwrap();
        drop(channel);
        let status = server.wait().unwrap();
        assert!(status.success(), "{signal}: {status}");
        let stdout = server.stdout();
        assert!(stdout.contains("\nstopping: ") && stdout.ends_with("stopped\n"), "{stdout}");
        assert!(!server.stderr().contains("panicked"), "{}", server.stderr());
        server.restart().unwrap();
        let claims = server.claims(None).await.unwrap();
        commit(&claims, &begun.lease_uuid.unwrap().value).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_delay_a_stop() {
    let mut server = Server::start().unwrap();
    let channel = server.connect(None).await.unwrap();
    call_raw(&channel, GET_CELLS, vec![]).await.unwrap();
    let _silent = TcpStream::connect(server.address()).await.unwrap();
    let mut kept_alive = TcpStream::connect(server.address()).await.unwrap();
    kept_alive.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    kept_alive.read_exact(&mut [0; 12]).await.unwrap();
    let asked = Instant::now();
    let stopped = tokio::task::spawn_blocking(move || server.terminate()).await.unwrap();
    assert!(stopped.unwrap().success());
    assert!(asked.elapsed() < HALF_A_DRAIN, "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_stops_the_server_immediately() {
    let mut server = Server::start().unwrap();
    let channel = server.connect(None).await.unwrap();
    let SlowCall { message: _message, answer } = begin_slowly(&channel).await;
    server.signal(Signal::SIGINT).unwrap();
    eventually("it is stopping", async || server.stdout().contains("\nstopping: ").then_some(())).await.unwrap();
    let asked = Instant::now();
    server.signal(Signal::SIGINT).unwrap();
    assert!(server.wait().unwrap().success());
    assert!(asked.elapsed() < HALF_A_DRAIN, "{:?}", asked.elapsed());
    assert!(answer.await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_closed_output_pipes_serves_and_stops() {
    let data = TempDir::new().unwrap();
    let mut child = command().unwrap();
    child.args(["serve", "--create", "--listen", "127.0.0.1:0", "--log", "debug", "--data"]).arg(data.path());
    let mut child = child.spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    drop(lines);
    drop(child.stderr.take());
    let address = first.split("listening on ").nth(1).unwrap();
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let claims = ClaimServiceClient::new(endpoint.connect().await.unwrap());
    let uuid = begin(&claims, creates(1, &["unread"])).await.unwrap();
    commit(&claims, &uuid).await.unwrap();
    drop(claims);
    kill(pid, Signal::SIGTERM).unwrap();
    let status = child.wait().await.unwrap();
    assert!(status.success(), "{status}");
}

// ---- health, reflection, cells, classify ----

#[tokio::test(flavor = "multi_thread")]
async fn each_service_has_a_health_status() {
    let server = Server::start().unwrap();
    let mut health = HealthClient::new(server.connect(None).await.unwrap());
    let request = |service: &str| HealthCheckRequest { service: service.to_owned() };
    for service in ["", CLAIM_SERVICE, CLASSIFY_SERVICE] {
        let answer = health.check(request(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
        let mut watch = health.watch(request(service)).await.unwrap().into_inner();
        assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving, "{service}");
    }
    assert_eq!(health.check(request("nobody")).await.unwrap_err().code(), Code::NotFound);
}

async fn reflect(channel: &Channel, request: MessageRequest) -> Result<MessageResponse, Status> {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let mut client = ServerReflectionClient::new(channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    Ok(answers.message().await?.unwrap().message_response.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_lists_the_services_and_shows_their_files() {
    let server = Server::start().unwrap();
    let channel = server.connect(None).await.unwrap();
    let Ok(MessageResponse::ListServicesResponse(list)) =
        reflect(&channel, MessageRequest::ListServices(String::new())).await
    else {
        panic!("no list of services")
    };
    let services: BTreeSet<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    for service in [CLAIM_SERVICE, CLASSIFY_SERVICE, "grpc.health.v1.Health"] {
        assert!(services.contains(service), "{services:?}");
    }
    for (symbol, file, service) in [
        (CLAIM_SERVICE.to_owned(), "gitlab/cells/topology_service/claims/v1/claim_service.proto", "ClaimService"),
        (
            format!("{CLASSIFY_SERVICE}.Classify"),
            "gitlab/cells/topology_service/classify_service.proto",
            "ClassifyService",
        ),
    ] {
        let Ok(MessageResponse::FileDescriptorResponse(files)) =
            reflect(&channel, MessageRequest::FileContainingSymbol(symbol.clone())).await
        else {
            panic!("no file for {symbol}")
        };
        let files =
            files.file_descriptor_proto.iter().map(|file| FileDescriptorProto::decode(file.as_slice()).unwrap());
        let found = files.into_iter().find(|found| found.name() == file).unwrap();
        assert_eq!(found.service[0].name(), service);
        assert!(!found.service[0].method.is_empty());
    }
    let unknown = reflect(&channel, MessageRequest::FileContainingSymbol("nobody.Knows".to_owned())).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
}

const TWO_CELLS: &str = r#"
[[cells]]
id = 9
name = "nine"
address = "https://nine.example:443"

[[cells]]
id = 7
name = "seven"
address = "seven.example"
session_prefix = "7-"
sequence_range = { minval = 1, maxval = 9223372036854775807 }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn get_cells_returns_the_configured_cells() {
    let server = Server::builder().config(TWO_CELLS).start().unwrap();
    let cell = |id, name: &str, address: &str, prefix: &str, sequence_range| CellInfo {
        id,
        name: name.to_owned(),
        address: address.to_owned(),
        session_prefix: prefix.to_owned(),
        sequence_range,
        sequence_ranges: sequence_range.into_iter().collect(),
    };
    let expected = [
        cell(7, "seven", "seven.example", "7-", Some(SequenceRange { minval: 1, maxval: i64::MAX })),
        cell(9, "nine", "https://nine.example:443", "", None),
    ];
    let mut classify = server.classify(None).await.unwrap();
    let mut claims = server.claims(None).await.unwrap();
    assert_eq!(classify.get_cells(GetCellsRequest {}).await.unwrap().into_inner().cells, expected);
    assert_eq!(claims.get_cells(GetCellsRequest {}).await.unwrap().into_inner().cells, expected);
    let unknown = begin(&claims, creates(1, &["a"])).await;
    assert_eq!(refused(unknown).code_and_reason(), (Code::InvalidArgument, "INVALID_UPDATE"));
    begin(&claims, BeginUpdateRequest { cell_id: 9, ..creates(1, &["a"]) }).await.unwrap();
    let found = claims.get_record(get_username("a")).await.unwrap().into_inner();
    assert_eq!(found.cell_info.as_ref(), Some(&expected[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn classify_answers_alike_over_grpc_and_http() {
    let server = Server::builder().config(TWO_CELLS).start().unwrap();
    let claims = server.claims(None).await.unwrap();
    let create = update(vec![username("Ada")], vec![]);
    begin(&claims, BeginUpdateRequest { cell_id: 9, ..create }).await.unwrap();
    let pool = descriptor_pool().unwrap();
    let by = |r#type, value: &str| ClassifyRequest { r#type, value: value.to_owned(), claims: vec![] };
    let claims = |r#type, names: &[&str]| ClassifyRequest {
        claims: names.iter().map(|name| named(name)).collect(),
        ..by(r#type, "")
    };
    let requests = [
        (by(1, ""), 200),
        (by(2, "7-"), 200),
        (by(2, "8-"), 404),
        (by(3, "9"), 200),
        (by(3, "8"), 404),
        (by(3, "x"), 400),
        (by(0, ""), 400),
        (claims(0, &["ada"]), 200),
        (claims(0, &["bob", "ADA"]), 200),
        (claims(0, &["bob"]), 404),
        (claims(1, &["bob"]), 200),
        (claims(0, &["a\u{1}"]), 404),
        (claims(0, &["a\u{1}", "ada"]), 200),
    ];
    for (request, code) in requests {
        let over_grpc = server.classify(None).await.unwrap().classify(request.clone()).await;
        let body = to_json(&pool, "gitlab.cells.topology_service.ClassifyRequest", &request).unwrap();
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let (over_http, text) = http(stream, CLASSIFY_HEAD, &body).await.unwrap();
        assert_eq!(over_http, code, "{request:?}: {text}");
        match over_grpc {
            Ok(answer) => {
                let name = "gitlab.cells.topology_service.ClassifyResponse";
                let same: ClassifyResponse = from_json(&pool, name, text.as_bytes()).unwrap();
                assert_eq!(answer.into_inner(), same, "{request:?}");
            }
            Err(status) => {
                let said: Value = serde_json::from_str(&text).unwrap();
                let expected = serde_json::json!({
                    "code": status.code() as i32,
                    "message": status.message(),
                    "reason": Refusal::of(&status).reason,
                });
                assert_eq!(said, expected, "{request:?}");
            }
        }
    }
}

fn micros_now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn r03_lists_carry_the_servers_time_and_version() {
    let server = Server::start().unwrap();
    let mut claims = Claims::new(server.connect(None).await.unwrap());
    let before = micros_now();
    let leases = claims.list_leases(ListLeasesRequest { cell_id: 1, ..Default::default() }).await.unwrap();
    let query = ListRecordsRequest { cell_id: 1, source_type: 1, ..Default::default() };
    let records = claims.list_records(query).await.unwrap();
    let after = micros_now();
    let told = [leases.metadata(), records.metadata()].map(|metadata| {
        let time = metadata.get("leasehold-server-time-micros").unwrap();
        time.to_str().unwrap().parse::<u64>().unwrap()
    });
    assert!(before <= told[0] && told[0] <= told[1] && told[1] <= after, "{before} {told:?} {after}");
    for metadata in [leases.metadata(), records.metadata()] {
        assert_eq!(metadata.get("leasehold-server-version").unwrap(), env!("CARGO_PKG_VERSION"));
    }
}

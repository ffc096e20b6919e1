//! Tests of unusual and invalid requests. The server refuses an invalid request, keeps running and
//! stores nothing. Most refusals have a fixed gRPC code and reason, or a fixed HTTP status.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;

use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_client::ClaimServiceClient;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{
    BeginUpdateRequest, Bucket, CommitUpdateRequest, GetRecordRequest, ListLeasesRequest, ListRecordsRequest, Metadata,
    RollbackUpdateRequest, Source, Subject, record,
};
use leasehold_proto::gitlab::cells::topology_service::classify_service_client::ClassifyServiceClient;
use leasehold_proto::gitlab::cells::topology_service::types::v1::{Claim, Uuid};
use leasehold_proto::gitlab::cells::topology_service::{ClassifyRequest, GetCellsRequest};
use leasehold_proto::leasehold::v1::LeaseCursor;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{
    Kept, Refusal, UNNAMED_TABLE, USERNAMES, call_raw, creates, get, http, kept, lease, rpcs, username,
};
use prost::Message;
use prost_types::{Any, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

const CELLS: [i64; 2] = [1, 2];
const MAX_REQUEST_BYTES: usize = 10 * 1024 * 1024;
const BEGIN: &str = "/gitlab.cells.topology_service.claims.v1.ClaimService/BeginUpdate";
const COMMIT: &str = "/gitlab.cells.topology_service.claims.v1.ClaimService/CommitUpdate";
const GET_RECORD: &str = "/gitlab.cells.topology_service.claims.v1.ClaimService/GetRecord";
const CLASSIFY: &str = "/gitlab.cells.topology_service.ClassifyService/Classify";
const INVALID: (Code, &str) = (Code::InvalidArgument, "INVALID_UPDATE");
const LIMIT: (Code, &str) = (Code::InvalidArgument, "LIMIT_EXCEEDED");
const NOT_ALLOWED: (Code, &str) = (Code::InvalidArgument, "VALUE_NOT_ALLOWED");

/// A running server with active claims and with claims under a lease, and its state before any
/// invalid request.
struct Fixture {
    server: Server,
    channel: Channel,
    claims: ClaimServiceClient<Channel>,
    lease_of_cell_1: String,
    before: Kept,
}

impl Fixture {
    async fn new() -> Self {
        let server = Server::start().unwrap();
        let channel = server.connect(None).await.unwrap();
        let mut claims = ClaimServiceClient::new(channel.clone());
        let at_rest = begin(&mut claims, creates(1, &["at-rest"])).await;
        commit(&mut claims, 1, &at_rest).await.unwrap();
        let lease_of_cell_1 = begin(&mut claims, creates(1, &["held"])).await;
        begin(&mut claims, creates(2, &["held-by-two"])).await;
        let before = kept(&channel, &CELLS).await.unwrap();
        assert_eq!((before.leases.len(), before.records.len()), (2, 3));
        Self { server, channel, claims, lease_of_cell_1, before }
    }

    /// Asserts that the server still answers, has the state of the beginning, and has not panicked.
    async fn expect_unharmed(mut self) {
        assert_eq!(kept(&self.channel, &CELLS).await.unwrap(), self.before);
        let mut fresh = self.server.claims(None).await.unwrap();
        assert_eq!(fresh.get_cells(GetCellsRequest {}).await.unwrap().into_inner().cells.len(), 2);
        let status = self.server.terminate().unwrap();
        assert!(status.success(), "{status}");
        assert!(!self.server.stderr().contains("panicked"), "{}", self.server.stderr());
    }
}

async fn begin(claims: &mut ClaimServiceClient<Channel>, update: BeginUpdateRequest) -> String {
    claims.begin_update(update).await.unwrap().into_inner().lease_uuid.unwrap().value
}

async fn commit(claims: &mut ClaimServiceClient<Channel>, cell_id: i64, uuid: &str) -> Result<(), Status> {
    claims.commit_update(CommitUpdateRequest { cell_id, lease_uuid: lease(uuid) }).await.map(|_| ())
}

fn refused<T: std::fmt::Debug>(what: &str, answer: Result<Response<T>, Status>) -> Refusal {
    match answer {
        Ok(answer) => panic!("{what} was accepted: {answer:?}"),
        Err(status) => Refusal::of(&status),
    }
}

fn metadata(change: impl FnOnce(&mut Metadata)) -> Metadata {
    let mut metadata = username("new");
    change(&mut metadata);
    metadata
}

fn bucket(number: i32, value: &str) -> Option<Bucket> {
    Some(Bucket { r#type: number, value: value.to_owned() })
}

fn with_bucket(number: i32, value: &str) -> Metadata {
    metadata(|m| m.bucket = bucket(number, value))
}

fn with_source(number: i32, id: &[u8]) -> Metadata {
    metadata(|m| m.source = Some(Source { r#type: number, rails_primary_key_id: id.to_vec() }))
}

fn with_subject(number: i32, id: i64) -> Metadata {
    metadata(|m| m.subject = Some(Subject { r#type: number, id }))
}

fn update(create_records: Vec<Metadata>) -> BeginUpdateRequest {
    BeginUpdateRequest { create_records, cell_id: 1, ..BeginUpdateRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rpc_refuses_malformed_messages_as_invalid() {
    let world = Fixture::new().await;
    let unknown_groups_200_deep = [[0x7b; 200], [0x7c; 200]].concat();
    let malformed: [(&str, Vec<u8>); 6] = [
        ("noise", vec![0xff; 11]),
        ("field number 0", vec![0x00, 0x01]),
        ("a length beyond the end", vec![0x0a, 0x7f, 0x01]),
        ("an end of a group that never began", vec![0x0c]),
        ("an unknown wire type", vec![0x0f, 0x01]),
        ("groups 200 deep", unknown_groups_200_deep),
    ];
    let rpcs = rpcs().unwrap();
    assert_eq!(rpcs.len(), 44);
    for rpc in rpcs {
        for (what, bytes) in &malformed {
            let what = format!("{what} to {}", rpc.path);
            let refusal = refused(&what, call_raw(&world.channel, &rpc.path, bytes.clone()).await);
            assert_eq!(refusal.code_and_reason(), INVALID, "{what}: {}", refusal.message);
        }
    }
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_truncation_of_a_valid_update_is_refused() {
    let world = Fixture::new().await;
    let mut whole = creates(1, &["cut-short"]);
    // Send the records last. Then no truncation of the message is a complete valid update by
    // itself.
    let head = BeginUpdateRequest { create_records: Vec::new(), ..whole.clone() }.encode_to_vec();
    whole.cell_id = 0;
    let bytes = [head, whole.encode_to_vec()].concat();
    for length in 0..bytes.len() {
        let what = format!("{length} of {} bytes", bytes.len());
        let refusal = refused(&what, call_raw(&world.channel, BEGIN, bytes[..length].to_vec()).await);
        assert_eq!(refusal.code_and_reason(), INVALID, "{what}: {}", refusal.message);
    }
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strings_that_are_not_utf8_are_refused() {
    let world = Fixture::new().await;
    // Returns the message with one byte of the text `spoil!` replaced by 0xff, which is never valid
    // UTF-8.
    let spoiled = |message: Vec<u8>| {
        let at = message.windows(6).position(|window| window == b"spoil!").unwrap();
        let mut message = message;
        message[at] = 0xff;
        message
    };
    let lease_uuid = Some(Uuid { value: "spoil!".to_owned() });
    let claims = vec![Claim::text(4, "spoil!")];
    let any = Any { type_url: "spoil!".to_owned(), value: vec![] };
    for (path, message) in [
        (BEGIN, creates(1, &["spoil!"]).encode_to_vec()),
        (BEGIN, update(vec![metadata(|m| m.user_data = Some(any))]).encode_to_vec()),
        (COMMIT, CommitUpdateRequest { cell_id: 1, lease_uuid }.encode_to_vec()),
        (GET_RECORD, GetRecordRequest { bucket: bucket(USERNAMES, "spoil!"), claim: None }.encode_to_vec()),
        (CLASSIFY, ClassifyRequest { claims, ..ClassifyRequest::default() }.encode_to_vec()),
    ] {
        let refusal = refused(path, call_raw(&world.channel, path, spoiled(message)).await);
        assert_eq!(refusal.code_and_reason(), INVALID, "{path}: {}", refusal.message);
    }
    world.expect_unharmed().await;
}

/// Sends a request body with an invalid gRPC frame, which no client library sends. Returns the
/// refusal.
async fn call_framed(channel: &Channel, path: &str, header: [u8; 5], message: &str) -> Refusal {
    let body = String::from_utf8(header.to_vec()).unwrap() + message;
    let request = http::Request::post(format!("http://test{path}"))
        .version(http::Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(body));
    let mut channel = channel.clone();
    std::future::poll_fn(|cx| tower::Service::poll_ready(&mut channel, cx)).await.unwrap();
    let response = tower::Service::call(&mut channel, request.unwrap()).await.unwrap();
    Refusal::of(&Status::from_header_map(response.headers()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_grpc_frames_are_refused_as_invalid() {
    let world = Fixture::new().await;
    for (what, header, message) in [
        ("a frame cut short", [0, 0, 0, 0, 100], "cut"),
        ("half a header", [0, 0, 0, 0, 0], ""),
        ("a compressed frame without a compression", [1, 0, 0, 0, 3], "abc"),
        ("an unknown flag", [7, 0, 0, 0, 3], "abc"),
    ] {
        // The server must not take half a frame header for an empty message.
        let refusal = call_framed(&world.channel, BEGIN, header, message).await;
        assert_eq!(refusal.code_and_reason(), INVALID, "{what}: {}", refusal.message);
    }
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_the_limit_of_a_request_is_exactly_10_mib() {
    let world = Fixture::new().await;
    // Returns an empty message of `bytes` bytes: an unknown field pads it. The field has a tag of 2
    // bytes, a length of 4 bytes, then zeros.
    let padded = |bytes: usize| {
        let mut message = vec![0xfa, 0x01];
        prost::encoding::encode_varint((bytes - 6) as u64, &mut message);
        assert_eq!(message.len(), 6);
        message.resize(bytes, 0);
        message
    };
    for path in [BEGIN, GET_RECORD, CLASSIFY] {
        let refusal = refused(path, call_raw(&world.channel, path, padded(MAX_REQUEST_BYTES)).await);
        assert_eq!(refusal.code_and_reason(), INVALID, "{path}: {}", refusal.message);
        for bytes in [MAX_REQUEST_BYTES + 1, 11_500_000, 40_000_000] {
            let refusal = refused(path, call_raw(&world.channel, path, padded(bytes)).await);
            assert_eq!(refusal.code_and_reason(), LIMIT, "{path}: {}", refusal.message);
            let figures = ["limit", "max", "actual"].map(|name| refusal.figure(name).unwrap_or_default().to_owned());
            assert_eq!(figures, ["request_bytes", "10485760", &bytes.to_string()]);
            assert!(refusal.message.contains(&bytes.to_string()), "{}", refusal.message);
        }
    }
    world.expect_unharmed().await;
}

fn frame(kind: u8, flags: u8, stream: u8, body: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags, 0, 0, 0, stream], body].concat()
}

/// Reads one HTTP/2 frame. Returns the frame's type, flags, stream id and content.
async fn read_frame(stream: &mut TcpStream) -> (u8, u8, u8, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    let mut body = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
    stream.read_exact(&mut body).await.unwrap();
    (head[3], head[4], head[8], body)
}

/// A client that is still sending a request above the size limit must receive the refusal before
/// the server resets the stream.
#[tokio::test(flavor = "multi_thread")]
async fn b11_an_oversize_request_is_answered_before_its_stream_is_reset() {
    let (data, headers, reset, settings) = (0, 1, 3, 4);
    let (end_stream, end_headers) = (1, 4);
    let world = Fixture::new().await;
    // Encodes a header field for HTTP/2: an index of the static table, then an uncompressed value
    // (RFC 7541, 6.2).
    let literal = |name: &[u8], value: &str| [name, &[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    let fields = [
        vec![0x83, 0x86],
        literal(&[0x01], "test"),
        literal(&[0x04], BEGIN),
        literal(&[0x0f, 0x10], "application/grpc"),
        literal(&[0x00, 2, b't', b'e'], "trailers"),
    ];
    let announced = [&[0], &11_500_000_u32.to_be_bytes()[..], &[0; 10_000]].concat();
    let mut stream = TcpStream::connect(world.server.address()).await.unwrap();
    let request = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(settings, 0, 0, &[]),
        frame(headers, end_headers, 1, &fields.concat()),
        frame(data, 0, 1, &announced),
    ];
    stream.write_all(&request.concat()).await.unwrap();
    let mut answer = Vec::new();
    while answer.len() < 2 {
        let (kind, flags, id, body) = read_frame(&mut stream).await;
        if id == 1 && (kind == headers || kind == reset) {
            answer.push((kind, flags, if kind == reset { body } else { vec![] }));
        }
    }
    let no_error = vec![0; 4];
    assert_eq!(answer, [(headers, end_headers | end_stream, vec![]), (reset, 0, no_error)]);
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_limit_refusal_states_the_limit_and_the_actual_figure() {
    let mut world = Fixture::new().await;
    let names: Vec<_> = (0..2001).map(|n| format!("name-{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let half =
        BeginUpdateRequest { destroy_records: creates(1, &names[1000..]).create_records, ..creates(1, &names[..1000]) };
    let long = "x".repeat(1025);
    for (what, update, limit, max, actual) in [
        ("2001 creates", creates(1, &names), "claims_per_update", "2000", "2001"),
        ("1000 creates and 1001 destroys", half, "claims_per_update", "2000", "2001"),
        (
            "100,000 claims without a bucket",
            update(vec![Metadata::default(); 100_000]),
            "claims_per_update",
            "2000",
            "100000",
        ),
        ("a value of 1025 bytes", creates(1, &[&long]), "bucket_value_bytes", "1024", "1025"),
        (
            "a value of 1025 bytes in 513 characters",
            creates(1, &[&("é".repeat(512) + "x")]),
            "bucket_value_bytes",
            "1024",
            "1025",
        ),
        ("a source id of 129 bytes", update(vec![with_source(1, &[7; 129])]), "source_id_bytes", "128", "129"),
    ] {
        let refusal = refused(what, world.claims.begin_update(update).await);
        assert_eq!(refusal.code_and_reason(), LIMIT, "{what}: {}", refusal.message);
        let figures = ["limit", "max", "actual"].map(|name| refusal.figure(name).unwrap_or_default().to_owned());
        assert_eq!(figures, [limit, max, actual], "{what}");
        assert!(refusal.message.contains(actual), "{what}: {}", refusal.message);
    }
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b14_malformed_claims_are_refused() {
    let mut world = Fixture::new().await;
    let disagree = |claim| metadata(|m| m.claim = Some(claim));
    for (what, create, kind) in [
        ("no bucket", metadata(|m| m.bucket = None), INVALID),
        ("an empty claim", metadata(|m| (m.bucket, m.claim) = (None, Some(Claim::default()))), INVALID),
        ("an unspecified bucket type", with_bucket(0, "new"), INVALID),
        ("a negative bucket type", with_bucket(-4, "new"), INVALID),
        ("a bucket type between the known ones", with_bucket(19, "new"), INVALID),
        ("an unknown bucket type", with_bucket(4711, "new"), INVALID),
        ("a bucket and a claim of other values", disagree(Claim::text(4, "other")), INVALID),
        ("a bucket and a claim of other types", disagree(Claim::text(5, "new")), INVALID),
        (
            "a claim with a number of a type of texts",
            metadata(|m| (m.bucket, m.claim) = (None, Some(Claim::id(4, 7)))),
            INVALID,
        ),
        (
            "a claim with a text of a type of ids",
            metadata(|m| (m.bucket, m.claim) = (None, Some(Claim::text(6, "7")))),
            INVALID,
        ),
        ("no subject", metadata(|m| m.subject = None), INVALID),
        ("an unspecified subject type", with_subject(0, 7), INVALID),
        ("a negative subject type", with_subject(-1, 7), INVALID),
        ("a negative subject id", with_subject(4, -7), INVALID),
        ("subject id 0", with_subject(4, 0), INVALID),
        ("the least subject id", with_subject(4, i64::MIN), INVALID),
        ("no source", metadata(|m| m.source = None), INVALID),
        ("an unspecified source type", with_source(0, b"7"), INVALID),
        ("a negative source type", with_source(-1, b"7"), INVALID),
        ("an empty source id", with_source(1, b""), INVALID),
        ("an empty value", with_bucket(USERNAMES, ""), NOT_ALLOWED),
        ("a NUL", with_bucket(USERNAMES, "a\0b"), NOT_ALLOWED),
        ("a line feed", with_bucket(USERNAMES, "a\nb"), NOT_ALLOWED),
        ("an escape", with_bucket(USERNAMES, "a\u{1b}[2Jb"), NOT_ALLOWED),
        ("a C1 control", with_bucket(USERNAMES, "a\u{85}b"), NOT_ALLOWED),
        ("a DEL in a route", with_bucket(1, "a/\u{7f}b"), NOT_ALLOWED),
        ("a control character in an email", with_bucket(5, "a\u{1}@b"), NOT_ALLOWED),
        ("a negative id", with_bucket(6, "-7"), NOT_ALLOWED),
        ("a negative id in a claim", metadata(|m| (m.bucket, m.claim) = (None, Some(Claim::id(6, -7)))), NOT_ALLOWED),
        ("an id that is no number", with_bucket(6, "seven"), NOT_ALLOWED),
    ] {
        for (list, in_list) in [("create", update(vec![create.clone()])), ("destroy", destroys(create.clone()))] {
            // Skip this case: a destroy may omit its subject and its source (B05).
            if list == "destroy" && matches!(what, "no subject" | "no source") {
                continue;
            }
            let refusal = refused(what, world.claims.begin_update(in_list).await);
            assert_eq!(refusal.code_and_reason(), kind, "{list} with {what}: {}", refusal.message);
            assert_eq!(refusal.figure("field"), Some(format!("{list}_records[0]").as_str()), "{what}");
            assert_eq!(refusal.rejected.groups.len(), 1, "{list} with {what}");
            assert_eq!(refusal.rejected.groups[0].reason, kind.1, "{list} with {what}");
        }
    }
    world.expect_unharmed().await;
}

fn destroys(record: Metadata) -> BeginUpdateRequest {
    BeginUpdateRequest { destroy_records: vec![record], cell_id: 1, ..BeginUpdateRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn b14_empty_updates_and_unknown_cells_are_refused() {
    let mut world = Fixture::new().await;
    for (what, update) in [
        ("an empty update", update(vec![])),
        ("an unknown cell", creates(3, &["new"])),
        ("cell 0", creates(0, &["new"])),
        ("a negative cell", creates(-1, &["new"])),
        ("the greatest cell", creates(i64::MAX, &["new"])),
    ] {
        let refusal = refused(what, world.claims.begin_update(update).await);
        assert_eq!(refusal.code_and_reason(), INVALID, "{what}: {}", refusal.message);
        assert!(refusal.rejected.groups.is_empty(), "{what}");
    }
    for cell_id in [3, 0, -1] {
        let lease_uuid = lease(&world.lease_of_cell_1);
        let settle = CommitUpdateRequest { cell_id, lease_uuid };
        assert_eq!(refused("commit", world.claims.commit_update(settle).await).code_and_reason(), INVALID);
        let leases = ListLeasesRequest { cell_id, ..ListLeasesRequest::default() };
        assert_eq!(refused("leases", world.claims.list_leases(leases).await).code_and_reason(), INVALID);
        let records = ListRecordsRequest { cell_id, source_type: 1, ..ListRecordsRequest::default() };
        assert_eq!(refused("records", world.claims.list_records(records).await).code_and_reason(), INVALID);
    }
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b07_a_bucket_listed_twice_is_refused_with_both_positions() {
    let mut world = Fixture::new().await;
    let twice = refused("a bucket twice", world.claims.begin_update(creates(1, &["Twice", "once", "tWICE"])).await);
    assert_eq!(twice.code_and_reason(), INVALID, "{}", twice.message);
    assert_eq!(twice.figure("field"), Some("create_records[2]"));
    assert_eq!(twice.figure("also_at"), Some("create_records[0]"));
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_b15_every_offending_claim_is_listed_and_the_first_reason_decides() {
    let mut world = Fixture::new().await;
    let mut mixed = creates(1, &["at-rest", "new", "held"]);
    mixed.create_records.push(with_bucket(5, "new@example.com"));
    mixed.destroy_records = creates(1, &["absent", "held-by-two", "gone"]).create_records;
    mixed.destroy_records.push(metadata(|m| {
        m.bucket = bucket(USERNAMES, "at-rest-too");
    }));
    let refusal = refused("a mixed update", world.claims.begin_update(mixed).await);
    let listed = refusal.rejected.groups.iter().flat_map(|group| {
        let reason = group.reason.clone();
        group.claims.iter().map(move |claims| {
            (reason.clone(), claims.bucket_type, claims.create_positions.clone(), claims.destroy_positions.clone())
        })
    });
    let listed: BTreeSet<_> = listed.collect();
    let expected = [
        ("CLAIM_BUSY", vec![2], vec![1]),
        ("CLAIM_NOT_FOUND", vec![], vec![0, 2, 3]),
        ("CLAIM_TAKEN", vec![0], vec![]),
    ];
    let expected = expected.map(|(reason, creates, destroys)| (reason.to_owned(), USERNAMES, creates, destroys));
    assert_eq!(listed, BTreeSet::from(expected), "{}", refusal.message);
    // `CLAIM_TAKEN` has precedence over not found and busy (B15). The refusal has no retry hint,
    // because it is permanent.
    assert_eq!(refusal.code_and_reason(), (Code::AlreadyExists, "CLAIM_TAKEN"));
    assert_eq!(refusal.retry_after, None);
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_a_claim_without_a_bucket_does_not_hide_other_offending_claims() {
    let mut world = Fixture::new().await;
    let mut mixed = update(vec![metadata(|m| m.bucket = None), username("good"), with_bucket(USERNAMES, "a\u{1}")]);
    mixed.destroy_records = vec![username("good-too"), with_subject(4, -7)];
    let refusal = refused("a mixed update", world.claims.begin_update(mixed).await);
    assert_eq!(refusal.code_and_reason(), INVALID, "{}", refusal.message);
    let places = |reason: &str| {
        let group = refusal.rejected.groups.iter().find(|group| group.reason == reason).unwrap();
        let positions = |claims: &leasehold_proto::leasehold::v1::rejected_claims::Claims| {
            (claims.bucket_type, claims.create_positions.clone(), claims.destroy_positions.clone())
        };
        group.claims.iter().map(positions).collect::<Vec<_>>()
    };
    assert_eq!(places("INVALID_UPDATE"), [(0, vec![0], vec![]), (USERNAMES, vec![], vec![1])]);
    assert_eq!(places("VALUE_NOT_ALLOWED"), [(USERNAMES, vec![2], vec![])]);
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_a_refusal_lists_two_thousand_offending_claims() {
    let mut world = Fixture::new().await;
    let names: Vec<_> = (0..2000).map(|n| format!("control\u{1}{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let refusal = refused("2000 control characters", world.claims.begin_update(creates(1, &names)).await);
    assert_eq!(refusal.code_and_reason(), NOT_ALLOWED, "{}", refusal.message);
    assert_eq!(refusal.rejected.groups[0].claims[0].create_positions, (0..2000).collect::<Vec<_>>());
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_no_refusal_shows_another_cells_data() {
    let server = Server::start().unwrap();
    let mut claims = server.claims(None).await.unwrap();
    let secret = Metadata {
        bucket: bucket(USERNAMES, "Contested"),
        subject: Some(Subject { r#type: 4, id: 0x5EC2_E75E_C2E7 }),
        source: Some(Source { r#type: 2, rails_primary_key_id: b"SECRET-ROW".to_vec() }),
        user_data: Some(Any { type_url: "SECRET-TYPE".to_owned(), value: b"SECRET-DATA".to_vec() }),
        claim: None,
    };
    let lease_uuid = begin(&mut claims, update(vec![secret])).await;
    let contest = |claims: &ClaimServiceClient<Channel>| {
        let mut claims = claims.clone();
        async move {
            let by_2 = |create_records, destroy_records| BeginUpdateRequest {
                create_records,
                destroy_records,
                cell_id: 2,
                organization_id: 0,
            };
            let create = claims.begin_update(by_2(vec![username("contested")], vec![])).await.unwrap_err();
            let destroy = claims.begin_update(by_2(vec![], vec![username("contested")])).await.unwrap_err();
            [create, destroy]
        }
    };
    let under_lease = contest(&claims).await;
    let settle = claims.clone().commit_update(CommitUpdateRequest { cell_id: 2, lease_uuid: lease(&lease_uuid) }).await;
    commit(&mut claims, 1, &lease_uuid).await.unwrap();
    let at_rest = contest(&claims).await;
    let reasons: Vec<_> = under_lease.iter().chain(&at_rest).map(|status| Refusal::of(status).reason).collect();
    assert_eq!(reasons, ["CLAIM_BUSY", "CLAIM_BUSY", "CLAIM_TAKEN", "NOT_OWNER"]);
    for status in under_lease.iter().chain(&at_rest).chain([&settle.unwrap_err()]) {
        let said = [status.message().as_bytes(), status.details()].concat();
        let shows = |secret: &[u8]| said.windows(secret.len()).any(|window| window == secret);
        let id = 0x5EC2_E75E_C2E7_u64;
        let mut varint = Vec::new();
        prost::encoding::encode_varint(id, &mut varint);
        for secret in [b"SECRET".as_slice(), b"ontested", id.to_string().as_bytes(), &varint, b"cell 1", b"cell-1"] {
            assert!(!shows(secret), "{status:?} shows {}", String::from_utf8_lossy(secret));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b24_foreign_unknown_and_malformed_leases_are_refused() {
    let mut world = Fixture::new().await;
    let own = world.lease_of_cell_1.clone();
    let not_found = (Code::NotFound, "LEASE_NOT_FOUND");
    for (what, cell_id, uuid, kind) in [
        ("another cell's lease", 2, lease(&own), (Code::PermissionDenied, "NOT_OWNER")),
        ("an unknown lease", 1, lease("00000000-0000-7000-8000-000000000000"), not_found),
        ("no lease", 1, None, INVALID),
        ("an empty lease", 1, lease(""), INVALID),
        ("text", 1, lease("not-a-uuid"), INVALID),
        ("36 characters that are no uuid", 1, lease(&"z".repeat(36)), INVALID),
        ("a uuid without hyphens", 1, lease(&own.replace('-', "")), INVALID),
        ("a uuid in braces", 1, lease(&format!("{{{own}}}")), INVALID),
        ("a urn", 1, lease(&format!("urn:uuid:{own}")), INVALID),
        ("a uuid and more", 1, lease(&format!("{own} ")), INVALID),
        ("4,000 bytes", 1, lease(&"0".repeat(4000)), INVALID),
    ] {
        let commit = CommitUpdateRequest { cell_id, lease_uuid: uuid.clone() };
        let refusal = refused(what, world.claims.commit_update(commit).await);
        assert_eq!(refusal.code_and_reason(), kind, "commit of {what}: {}", refusal.message);
        let rollback = RollbackUpdateRequest { cell_id, lease_uuid: uuid };
        let refusal = refused(what, world.claims.rollback_update(rollback).await);
        assert_eq!(refusal.code_and_reason(), kind, "rollback of {what}: {}", refusal.message);
    }
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idempotency_keys_must_be_short_printable_ascii() {
    let mut world = Fixture::new().await;
    let long = "k".repeat(129);
    let cases: [(&str, &[&[u8]], _); 6] = [
        ("an empty key", &[b""], INVALID),
        ("a space", &[b"a b"], INVALID),
        ("a tab", &[b"a\tb"], INVALID),
        ("beyond ASCII", &[b"caf\xc3\xa9"], INVALID),
        ("two keys", &[b"a", b"b"], INVALID),
        ("129 bytes", &[long.as_bytes()], LIMIT),
    ];
    for (what, keys, kind) in cases {
        let mut request = Request::new(creates(1, &["new"]));
        let mut headers = request.metadata().clone().into_headers();
        for key in keys {
            headers.append("leasehold-idempotency-key", http::HeaderValue::from_bytes(key).unwrap());
        }
        *request.metadata_mut() = tonic::metadata::MetadataMap::from_headers(headers);
        let refusal = refused(what, world.claims.begin_update(request).await);
        assert_eq!(refusal.code_and_reason(), kind, "{what}: {}", refusal.message);
        if kind == LIMIT {
            let figures = ["limit", "max", "actual"].map(|name| refusal.figure(name).unwrap_or_default().to_owned());
            assert_eq!(figures, ["idempotency_key_bytes", "128", "129"]);
        }
    }
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b09_a_key_reused_for_another_update_is_refused_with_the_difference() {
    let mut world = Fixture::new().await;
    let keyed = |update| {
        let mut request = Request::new(update);
        request.metadata_mut().insert("leasehold-idempotency-key", MetadataValue::from_static("once"));
        request
    };
    let uuid = begin_keyed(&mut world.claims, keyed(creates(1, &["keyed"]))).await;
    assert_eq!(begin_keyed(&mut world.claims, keyed(creates(1, &["keyed"]))).await, uuid);
    let refusal = refused("another update", world.claims.begin_update(keyed(creates(1, &["another"]))).await);
    assert_eq!(refusal.code_and_reason(), (Code::InvalidArgument, "IDEMPOTENCY_KEY_REUSED"));
    assert_eq!(refusal.figure("differs"), Some("create_records[0].bucket"));
    let rollback = RollbackUpdateRequest { cell_id: 1, lease_uuid: lease(&uuid) };
    world.claims.rollback_update(rollback).await.unwrap();
    world.expect_unharmed().await;
}

async fn begin_keyed(claims: &mut ClaimServiceClient<Channel>, update: Request<BeginUpdateRequest>) -> String {
    claims.begin_update(update).await.unwrap().into_inner().lease_uuid.unwrap().value
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_or_malformed_cursor_is_refused() {
    let mut world = Fixture::new().await;
    begin(&mut world.claims, creates(1, &["a-second-lease"])).await;
    world.before = kept(&world.channel, &CELLS).await.unwrap();
    let first = ListLeasesRequest { cell_id: 1, limit: Some(1), ..ListLeasesRequest::default() };
    let good = world.claims.list_leases(first).await.unwrap().into_inner().next.unwrap();
    let decoded: LeaseCursor = good.to_msg().unwrap();
    let ours = |cursor: LeaseCursor| Any::from_msg(&cursor).unwrap();
    for (what, cell_id, next) in [
        ("another cell's cursor", 2, good.clone()),
        ("an empty cursor", 1, Any::default()),
        ("noise", 1, Any { value: vec![0xff; 30], ..good.clone() }),
        ("a cursor cut short", 1, Any { value: good.value[..good.value.len() - 1].to_vec(), ..good.clone() }),
        (
            "another type",
            1,
            Any { type_url: "type.googleapis.com/google.protobuf.Duration".to_owned(), ..good.clone() },
        ),
        ("no type", 1, Any { type_url: String::new(), ..good.clone() }),
        ("a lease of 15 bytes", 1, ours(LeaseCursor { lease_uuid: vec![7; 15], ..decoded.clone() })),
        ("no lease", 1, ours(LeaseCursor { lease_uuid: vec![], ..decoded.clone() })),
        ("a time before 1970", 1, ours(LeaseCursor { created_at_micros: -1, ..decoded.clone() })),
        ("another cell inside", 1, ours(LeaseCursor { cell_id: 2, ..decoded.clone() })),
    ] {
        let request = ListLeasesRequest { cell_id, next: Some(next), ..ListLeasesRequest::default() };
        let refusal = refused(what, world.claims.list_leases(request).await);
        assert_eq!(refusal.code_and_reason(), INVALID, "{what}: {}", refusal.message);
    }
    let rest = ListLeasesRequest { cell_id: 1, next: Some(good), ..ListLeasesRequest::default() };
    let rest = world.claims.list_leases(rest).await.unwrap().into_inner();
    assert_eq!((rest.leases.len(), rest.next), (1, None));
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b31_a_page_of_leases_has_100_by_default_and_1000_at_most() {
    let server = Server::start().unwrap();
    let claims = server.claims(None).await.unwrap();
    let mut begins = tokio::task::JoinSet::new();
    for n in 0..1001 {
        let mut claims = claims.clone();
        begins.spawn(async move { begin(&mut claims, creates(1, &[&format!("name-{n}")])).await });
    }
    assert_eq!(begins.join_all().await.len(), 1001);
    let list = |limit, created_after| {
        let mut claims = claims.clone();
        async move { claims.list_leases(ListLeasesRequest { cell_id: 1, next: None, limit, created_after }).await }
    };
    for (limit, expected) in [(None, 100), (Some(0), 100), (Some(1), 1), (Some(1000), 1000), (Some(5000), 1000)] {
        let page = list(limit, None).await.unwrap().into_inner();
        assert_eq!((page.leases.len(), page.next.is_some()), (expected, true), "{limit:?}");
    }
    for limit in [-1, i32::MIN] {
        assert_eq!(refused("a negative limit", list(Some(limit), None).await).code_and_reason(), INVALID);
    }
    for nanos in [-1, 1_000_000_000] {
        let at = Some(Timestamp { seconds: 0, nanos });
        assert_eq!(refused("nanoseconds out of range", list(None, at).await).code_and_reason(), INVALID);
    }
    let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
    assert_eq!(list(None, at(i64::MAX)).await.unwrap().into_inner().leases.len(), 0);
    assert_eq!(list(None, at(i64::MIN)).await.unwrap().into_inner().leases.len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_lists_and_reads_are_refused() {
    let mut world = Fixture::new().await;
    let records = |change: fn(&mut ListRecordsRequest)| {
        let mut request = ListRecordsRequest { cell_id: 1, source_type: 1, ..ListRecordsRequest::default() };
        change(&mut request);
        request
    };
    for (what, request, kind) in [
        ("no table", records(|r| r.source_type = 0), INVALID),
        ("a negative table", records(|r| r.source_type = -1), INVALID),
        ("an unspecified bucket type", records(|r| r.bucket_types = vec![4, 0]), INVALID),
        ("an unspecified claim type", records(|r| r.claim_types = vec![0]), INVALID),
        ("types that disagree", records(|r| (r.bucket_types, r.claim_types) = (vec![4], vec![5])), INVALID),
        ("a lower bound of 129 bytes", records(|r| r.source_id_gt = vec![7; 129]), LIMIT),
        ("an upper bound of 129 bytes", records(|r| r.source_id_lte = vec![7; 129]), LIMIT),
    ] {
        let refusal = refused(what, world.claims.list_records(request).await);
        assert_eq!(refusal.code_and_reason(), kind, "{what}: {}", refusal.message);
    }
    let absent = (Code::NotFound, "CLAIM_NOT_FOUND");
    for (what, bucket, claim, kind) in [
        ("nothing", None, None, INVALID),
        ("an empty claim", None, Some(Claim::default()), INVALID),
        ("an unknown type", bucket(4711, "x"), None, INVALID),
        ("a control character", bucket(USERNAMES, "a\u{7}"), None, NOT_ALLOWED),
        ("1025 bytes", bucket(USERNAMES, &"x".repeat(1025)), None, LIMIT),
        ("two names", bucket(USERNAMES, "at-rest"), Some(Claim::text(4, "held")), INVALID),
        ("a name that nobody has", bucket(USERNAMES, "nobody"), None, absent),
    ] {
        let refusal = refused(what, world.claims.get_record(GetRecordRequest { bucket, claim }).await);
        assert_eq!(refusal.code_and_reason(), kind, "{what}: {}", refusal.message);
    }
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_classify_requests_are_refused() {
    let world = Fixture::new().await;
    let mut classify = ClassifyServiceClient::new(world.channel.clone());
    let named = |name: &str| Claim::text(4, name);
    let by = |r#type, value: &str| ClassifyRequest { r#type, value: value.to_owned(), claims: vec![] };
    let claims = |claims| ClassifyRequest { claims, ..ClassifyRequest::default() };
    let absent = (Code::NotFound, "CLAIM_NOT_FOUND");
    for (what, request, kind) in [
        ("nothing", by(0, ""), INVALID),
        ("an unknown type", by(99, "1"), INVALID),
        ("a negative type", by(-1, "1"), INVALID),
        ("an empty session prefix", by(2, ""), INVALID),
        ("a session prefix that no cell has", by(2, "cell-9-"), absent),
        ("a cell id that is no number", by(3, "one"), INVALID),
        ("an empty cell id", by(3, ""), INVALID),
        ("a cell that is not there", by(3, "9"), absent),
        ("a negative cell", by(3, "-1"), absent),
        ("an empty claim", claims(vec![Claim::default()]), absent),
        ("a control character, which no claim has", claims(vec![named("a\u{7}")]), absent),
        ("a name that nobody has", claims(vec![named("nobody")]), absent),
    ] {
        let refusal = refused(what, classify.classify(request).await);
        assert_eq!(refusal.code_and_reason(), kind, "{what}: {}", refusal.message);
    }
    let refusal = refused("101 claims", classify.classify(claims(vec![named("nobody"); 101])).await);
    assert_eq!(refusal.code_and_reason(), LIMIT);
    let figures = ["limit", "max", "actual"].map(|name| refusal.figure(name).unwrap_or_default().to_owned());
    assert_eq!(figures, ["claims_per_classify", "100", "101"]);
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typed_claim_alone_names_a_bucket() {
    let server = Server::start().unwrap();
    let mut claims = server.claims(None).await.unwrap();
    let name = || Some(Claim::text(4, "Alone"));
    let alone = metadata(|m| (m.bucket, m.claim) = (None, name()));
    let both = metadata(|m| (m.bucket, m.claim) = (bucket(6, "77"), Some(Claim::id(6, 77))));
    let uuid = begin(&mut claims, update(vec![alone, both])).await;
    commit(&mut claims, 1, &uuid).await.unwrap();
    for (bucket, claim, number, value) in [
        (None, Some(Claim::text(4, "alone")), USERNAMES, "Alone"),
        (bucket(USERNAMES, "ALONE"), None, USERNAMES, "Alone"),
        (bucket(USERNAMES, "Alone"), name(), USERNAMES, "Alone"),
        (None, Some(Claim::id(6, 77)), 6, "77"),
    ] {
        let found = claims.get_record(GetRecordRequest { bucket, claim }).await.unwrap().into_inner().record.unwrap();
        let found = found.metadata.unwrap();
        let bucket = found.bucket.unwrap();
        assert_eq!((bucket.r#type, bucket.value.as_str()), (number, value));
        let (number, value) = (bucket.r#type, bucket.value);
        let claim = value.parse().map_or_else(|_| Claim::text(number, value), |id| Claim::id(number, id));
        assert_eq!(found.claim, Some(claim), "both forms are answered");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_subject_and_source_types_are_stored_and_returned() {
    let mut server = Server::start().unwrap();
    let mut claims = server.claims(None).await.unwrap();
    let subject = Some(Subject { r#type: i32::MAX, id: i64::MAX });
    let source = Some(Source { r#type: UNNAMED_TABLE, rails_primary_key_id: vec![0, 0xff] });
    let user_data = Some(Any { type_url: "example.com/unknown".to_owned(), value: vec![0, 0xff, 7] });
    let sent = metadata(|m| (m.subject, m.source, m.user_data) = (subject, source, user_data));
    begin(&mut claims, update(vec![sent.clone()])).await;
    server.restart().unwrap();
    let kept = kept(&server.connect(None).await.unwrap(), &CELLS).await.unwrap();
    assert_eq!(kept.records.len(), 1);
    assert_eq!(kept.records[0].status(), record::Status::LeaseCreating);
    let answered = Metadata { claim: Some(Claim::text(4, "new")), ..sent };
    assert_eq!(kept.records[0].metadata.as_ref(), Some(&answered));
}

#[tokio::test(flavor = "multi_thread")]
async fn oversize_request_metadata_is_refused() {
    let world = Fixture::new().await;
    for (bytes, code) in [(64 << 10, Some(Code::ResourceExhausted)), (1 << 20, None)] {
        let mut request = Request::new(creates(1, &["new"]));
        let value = MetadataValue::try_from("x".repeat(bytes)).unwrap();
        request.metadata_mut().insert("x-huge", value);
        let mut claims = world.server.claims(None).await.unwrap();
        let status = claims.begin_update(request).await.unwrap_err();
        // If the metadata is far above the limit, the server closes the connection, so the client
        // may not receive a code.
        assert!(code.is_none_or(|code| status.code() == code), "{bytes}: {status:?}");
    }
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_methods_and_services_are_unimplemented() {
    let world = Fixture::new().await;
    for path in [
        "/gitlab.cells.topology_service.claims.v1.ClaimService/DropEverything",
        "/gitlab.cells.topology_service.claims.v1.ClaimService/beginupdate",
        "/gitlab.cells.topology_service.Nobody/GetCells",
        "/",
    ] {
        let refusal = refused(path, call_raw(&world.channel, path, vec![]).await);
        assert_eq!(refusal.code, Code::Unimplemented, "{path}: {}", refusal.message);
    }
    world.expect_unharmed().await;
}

/// Sends bytes to the server. Returns everything that the server sends until it closes the
/// connection.
async fn send_bytes(world: &Fixture, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(world.server.address()).await.unwrap();
    // The result is ignored: the server may close the connection before it has read all bytes.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_the_port_does_no_harm() {
    let world = Fixture::new().await;
    let noise: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let frame_of_16_mib = [preface.as_slice(), &[0xff, 0xff, 0xff, 0x00, 0x00, 0, 0, 0, 1]].concat();
    let data_before_headers =
        [preface.as_slice(), &[0, 0, 0, 4, 0, 0, 0, 0, 0], &[0, 0, 3, 0, 0, 0, 0, 0, 1, 1, 2, 3]].concat();
    let bad_hpack =
        [preface.as_slice(), &[0, 0, 0, 4, 0, 0, 0, 0, 0], &[0, 0, 3, 1, 5, 0, 0, 0, 1, 0xff, 0xff, 0xff]].concat();
    let client_hello = [&[0x16, 0x03, 0x01, 0x00, 0x05, 0x01, 0x00, 0x00, 0x01, 0x03][..], &[0; 40]].concat();
    for bytes in [
        b"".as_slice(),
        b"\0",
        &noise,
        &preface[..10],
        preface,
        &frame_of_16_mib,
        &data_before_headers,
        &bad_hpack,
        &client_hello,
    ] {
        let answer = send_bytes(&world, bytes).await;
        assert!(!answer.windows(6).any(|window| window == b"200 OK"), "{}", String::from_utf8_lossy(&answer));
    }
    for (bytes, status) in [
        (b"BREW /tea HTTP/9.9\r\n\r\n".as_slice(), "400"),
        (b"GET / HTTP/1.1\r\nhost\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n", "400"),
        (b"POST /v1/classify HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n", "400"),
    ] {
        let answer = String::from_utf8(send_bytes(&world, bytes).await).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    world.expect_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_http_requests_are_refused() {
    let world = Fixture::new().await;
    let address = world.server.address();
    assert_eq!(get(address, "/nowhere").await.unwrap().0, 404);
    assert_eq!(get(address, "/v1/classify").await.unwrap().0, 405);
    let head = "POST /v1/classify HTTP/1.1\r\ncontent-type: application/json";
    let bodies: [&[u8]; 7] =
        [b"", b"{", b"[]", b"{\"type\": \"NO_SUCH_TYPE\"}", b"{\"claim\": {}}", b"{\"value\": \"\xff\"}", b"{} {}"];
    for body in bodies {
        let (code, answer) = http(TcpStream::connect(address).await.unwrap(), head, body).await.unwrap();
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((code, &answer["reason"]), (400, &"INVALID_UPDATE".into()), "{answer}");
    }
    let huge = vec![b' '; MAX_REQUEST_BYTES + 1];
    let (code, answer) = http(TcpStream::connect(address).await.unwrap(), head, &huge).await.unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((code, &answer["reason"]), (413, &"LIMIT_EXCEEDED".into()), "{answer}");
    let (code, answer) = http(TcpStream::connect(address).await.unwrap(), head, &huge[1..]).await.unwrap();
    assert_eq!(code, 400, "{answer}");
    world.expect_unharmed().await;
}

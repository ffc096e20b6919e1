//! Compares the contract with its committed listing, and tests access rules, JSON and sizes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;

use leasehold_proto::gitlab::cells::topology_service as topology;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{Bucket, ListLeasesResponse, ListRecordsRequest};
use leasehold_proto::gitlab::cells::topology_service::types::v1::Claim;
use leasehold_proto::gitlab::cells::topology_service::{AuthorizationRule, ClassifyRequest, ClassifyResponse};
use leasehold_proto::leasehold::v1::rejected_claims::{Claims, Group};
use leasehold_proto::leasehold::v1::{LeaseCursor, RejectedClaims};
use leasehold_proto::{AccessError, AccessRules, DescriptorPool, JsonError, descriptor_pool, from_json, to_json};
use prost::Message;
use prost_reflect::{Cardinality, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};
use prost_types::Any;

const CLASSIFY_REQUEST: &str = "gitlab.cells.topology_service.ClassifyRequest";
const CLASSIFY_RESPONSE: &str = "gitlab.cells.topology_service.ClassifyResponse";
const LIST_LEASES_RESPONSE: &str = "gitlab.cells.topology_service.claims.v1.ListLeasesResponse";
const LIST_RECORDS_REQUEST: &str = "gitlab.cells.topology_service.claims.v1.ListRecordsRequest";

#[test]
fn the_contract_equals_its_committed_listing() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract.txt");
    let rendered = render(&descriptor_pool().unwrap());
    if std::env::var_os("UPDATE_CONTRACT").is_some() {
        std::fs::write(&file, &rendered).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap();
    for (number, (committed, rendered)) in committed.lines().zip(rendered.lines()).enumerate() {
        assert_eq!(committed, rendered, "line {}; if meant, run again with UPDATE_CONTRACT=1", number + 1);
    }
    assert_eq!(committed, rendered, "if meant, run again with UPDATE_CONTRACT=1");
}

fn render(pool: &DescriptorPool) -> String {
    let mut blocks: Vec<String> = pool.all_messages().filter(|m| is_ours(m.full_name())).map(message).collect();
    blocks.extend(pool.all_enums().filter(|e| is_ours(e.full_name())).map(enumeration));
    blocks.extend(pool.services().map(|service| {
        let rpcs = service.methods().map(|method| rpc(pool, &method)).collect::<String>();
        format!("service {}\n{rpcs}", service.full_name())
    }));
    blocks.extend(pool.all_extensions().map(|extension| {
        let (on, name) = (extension.containing_message(), extension.full_name().to_owned());
        format!("extension {name}\n  {} {} on {}\n", extension.number(), kind(&extension.kind()), on.full_name())
    }));
    blocks.sort();
    blocks.join("\n")
}

/// True if a type belongs to the contract and not to its imports.
fn is_ours(full_name: &str) -> bool {
    !full_name.starts_with("google.")
}

fn message(message: MessageDescriptor) -> String {
    let mut text = format!("message {}\n", message.full_name());
    for field in message.fields() {
        writeln!(text, "  {} {} {}{}", field.number(), field.name(), label(&field), kind(&field.kind())).unwrap();
    }
    for range in message.reserved_ranges() {
        writeln!(text, "  reserved {}", join(range)).unwrap();
    }
    for name in message.reserved_names() {
        writeln!(text, "  reserved {name}").unwrap();
    }
    text
}

fn label(field: &FieldDescriptor) -> String {
    match field.containing_oneof() {
        Some(oneof) if oneof.is_synthetic() => "optional ".to_owned(),
        Some(oneof) => format!("oneof {} ", oneof.name()),
        None if field.cardinality() == Cardinality::Repeated && field.is_packed() => "repeated packed ".to_owned(),
        None if field.cardinality() == Cardinality::Repeated => "repeated ".to_owned(),
        None => String::new(),
    }
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(enumeration) => enumeration.full_name().to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

fn enumeration(enumeration: EnumDescriptor) -> String {
    let mut text = format!("enum {}\n", enumeration.full_name());
    for value in enumeration.values() {
        writeln!(text, "  {} {}", value.number(), value.name()).unwrap();
    }
    for range in enumeration.reserved_ranges() {
        writeln!(text, "  reserved {}", join(range)).unwrap();
    }
    for name in enumeration.reserved_names() {
        writeln!(text, "  reserved {name}").unwrap();
    }
    text
}

fn join(numbers: impl Iterator<Item = impl ToString>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}

/// Returns the text of an rpc. Its options are printed from the descriptors, not through the crate
/// under test.
fn rpc(pool: &DescriptorPool, method: &MethodDescriptor) -> String {
    let mut text = format!("  {}\n", method.name());
    let streaming = |is: bool| if is { "stream " } else { "" };
    let (to, from) = (streaming(method.is_client_streaming()), streaming(method.is_server_streaming()));
    writeln!(text, "    takes {to}{}", method.input().full_name()).unwrap();
    writeln!(text, "    gives {from}{}", method.output().full_name()).unwrap();
    for name in ["gitlab.cells.topology_service.access_control", "google.api.http"] {
        let extension = pool.get_extension_by_name(name).unwrap();
        if method.options().has_extension(&extension) {
            let value = method.options().get_extension(&extension).into_owned();
            writeln!(text, "    {} {}", extension.name(), value.as_message().unwrap().to_text_format()).unwrap();
        }
    }
    text
}

#[test]
fn access_rules_are_read_from_the_options() {
    use AuthorizationRule::{RuleAllowAnyAdmin, RuleAllowAnyCell, RuleAllowAnyRouter, RuleAllowMatchingCellOnly};
    let rules = AccessRules::from_descriptors().unwrap();
    let claims = |method| rules.for_path(&format!("/gitlab.cells.topology_service.claims.v1.ClaimService/{method}"));
    let classify = |method| rules.for_path(&format!("/gitlab.cells.topology_service.ClassifyService/{method}"));

    assert_eq!(claims("GetCells"), Some(&[AuthorizationRule::RuleAllowAnyAuthenticated][..]));
    assert_eq!(claims("GetRecord"), Some(&[RuleAllowAnyAdmin][..]));
    for method in ["BeginUpdate", "CommitUpdate", "RollbackUpdate", "ListLeases", "ListRecords"] {
        assert_eq!(claims(method), Some(&[RuleAllowMatchingCellOnly, RuleAllowAnyAdmin][..]), "{method}");
    }
    assert_eq!(classify("GetCells"), Some(&[AuthorizationRule::RuleAllowAnyAuthenticated][..]));
    assert_eq!(classify("Classify"), Some(&[RuleAllowAnyCell, RuleAllowAnyRouter, RuleAllowAnyAdmin][..]));
    assert_eq!(claims("beginupdate"), None);
    assert_eq!(rules.for_path("/grpc.health.v1.Health/Check"), None);
}

#[test]
fn an_rpc_without_valid_access_rules_is_refused() {
    let no_rules = |options| match AccessRules::from_pool(&pool_with_rpc(options)) {
        Err(AccessError::NoRules { path }) => assert_eq!(path, "/sample.Sample/Call"),
        other => panic!("`{options}` gave {other:?}"),
    };
    no_rules("");
    no_rules("option deprecated = true;");
    no_rules("option (gitlab.cells.topology_service.access_control) = {};");

    let zero = "option (gitlab.cells.topology_service.access_control) = { authorization_rules: [RULE_UNSPECIFIED] };";
    let unknown = AccessRules::from_pool(&pool_with_rpc(zero));
    assert!(matches!(unknown, Err(AccessError::UnknownRule { number: 0, .. })), "{unknown:?}");

    let without_option = AccessRules::from_pool(&DescriptorPool::global());
    assert!(matches!(without_option, Err(AccessError::NoExtension)), "{without_option:?}");
}

/// Returns the descriptors of the contract and one more service, whose only rpc has these options.
fn pool_with_rpc(options: &str) -> DescriptorPool {
    let source = format!(
        r#"syntax = "proto3";
        package sample;
        import "gitlab/cells/topology_service/classify_service.proto";
        import "gitlab/cells/topology_service/access_control.proto";
        message Empty {{}}
        service Sample {{ rpc Call(Empty) returns (Empty) {{ {options} }} }}"#
    );
    let mut resolver = protox::file::ChainFileResolver::new();
    resolver.add(Inline(source));
    resolver.add(protox::file::IncludeFileResolver::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("proto")));
    resolver.add(protox::file::GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_file("sample.proto").unwrap();
    DescriptorPool::decode(compiler.encode_file_descriptor_set().as_slice()).unwrap()
}

struct Inline(String);

impl protox::file::FileResolver for Inline {
    fn open_file(&self, name: &str) -> Result<protox::file::File, protox::Error> {
        match name {
            "sample.proto" => protox::file::File::from_source(name, &self.0),
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}

#[test]
fn messages_are_read_and_written_as_proto3_json() {
    let pool = descriptor_pool().unwrap();
    let request = ClassifyRequest {
        r#type: topology::ClassifyType::CellId.into(),
        value: "2".to_owned(),
        claims: vec![Claim::id(6, 9_007_199_254_740_993), Claim::text(1, "a/b")],
    };
    let json = r#"{"type":"CELL_ID","value":"2","claims":[{"projectId":"9007199254740993"},{"route":"a/b"}]}"#;
    assert_eq!(String::from_utf8(to_json(&pool, CLASSIFY_REQUEST, &request).unwrap()).unwrap(), json);
    assert_eq!(from_json::<ClassifyRequest>(&pool, CLASSIFY_REQUEST, json.as_bytes()).unwrap(), request);

    let by_field_name =
        br#" {"type": 3, "value": "2", "claims": [{"project_id": 9007199254740993}, {"route": "a/b"}]} "#;
    assert_eq!(from_json::<ClassifyRequest>(&pool, CLASSIFY_REQUEST, by_field_name).unwrap(), request);
    assert_eq!(to_json(&pool, CLASSIFY_RESPONSE, &ClassifyResponse::default()).unwrap(), b"{}");
}

#[test]
fn invalid_json_of_a_message_is_refused() {
    let pool = descriptor_pool().unwrap();
    let bad: [&[u8]; 9] = [
        b"",
        b"{",
        b"[]",
        b"{} {}",
        br#"{"claim": {}}"#,
        br#"{"type": "NO_SUCH_TYPE"}"#,
        br#"{"value": 2}"#,
        br#"{"claims": [{"route": "a", "email": "b"}]}"#,
        b"{\"value\": \"\xff\"}",
    ];
    for json in bad {
        let error = from_json::<ClassifyRequest>(&pool, CLASSIFY_REQUEST, json).unwrap_err();
        assert!(matches!(error, JsonError::Json(_)), "{} gave {error:?}", String::from_utf8_lossy(json));
    }
    let unknown = from_json::<ClassifyRequest>(&pool, "sample.None", b"{}").unwrap_err();
    assert!(matches!(unknown, JsonError::UnknownMessage(_)), "{unknown:?}");
}

#[test]
fn a_cursor_in_an_any_survives_json() {
    let pool = descriptor_pool().unwrap();
    let cursor = LeaseCursor { cell_id: 1, created_at_micros: 7, lease_uuid: vec![0xab; 16] };
    let next = Any::from_msg(&cursor).unwrap();
    assert_eq!(next.type_url, "type.googleapis.com/leasehold.v1.LeaseCursor");
    assert_eq!(next.to_msg::<LeaseCursor>().unwrap(), cursor);

    let page = ListLeasesResponse { leases: vec![], next: Some(next) };
    let json = to_json(&pool, LIST_LEASES_RESPONSE, &page).unwrap();
    assert_eq!(from_json::<ListLeasesResponse>(&pool, LIST_LEASES_RESPONSE, &json).unwrap(), page);
}

#[test]
fn an_unknown_enum_number_is_preserved() {
    let unknown = Bucket { r#type: 4711, value: "v".to_owned() };
    assert_eq!(Bucket::decode(unknown.encode_to_vec().as_slice()).unwrap().r#type, 4711);

    let pool = descriptor_pool().unwrap();
    let request = ListRecordsRequest { source_type: 99, bucket_types: vec![14, 4711], ..Default::default() };
    let decoded = ListRecordsRequest::decode(request.encode_to_vec().as_slice()).unwrap();
    assert_eq!(decoded, request);
    let json = to_json(&pool, LIST_RECORDS_REQUEST, &request).unwrap();
    assert_eq!(from_json::<ListRecordsRequest>(&pool, LIST_RECORDS_REQUEST, &json).unwrap(), request);
}

#[test]
fn two_thousand_rejected_positions_fit_into_trailer_metadata() {
    // Neighbouring positions differ in bucket type and reason, which is the worst case for
    // grouping.
    let (reasons, bucket_types) = (5_u32, 18_u32);
    let positions = |reason: u32, bucket_type: u32, parity: u32| {
        (0..2000)
            .filter(|position| {
                position % reasons == reason && position % bucket_types == bucket_type && position % 2 == parity
            })
            .collect::<Vec<u32>>()
    };
    let claims = |reason, bucket_type| Claims {
        bucket_type: i32::try_from(bucket_type + 1).unwrap(),
        create_positions: positions(reason, bucket_type, 0),
        destroy_positions: positions(reason, bucket_type, 1),
    };
    let group = |reason| Group {
        reason: format!("A_REASON_OF_SOME_LENGTH_{reason}"),
        claims: (0..bucket_types).map(|bucket_type| claims(reason, bucket_type)).collect(),
    };
    let rejected = RejectedClaims { groups: (0..reasons).map(group).collect() };
    let claims = rejected.groups.iter().flat_map(|group| &group.claims);
    let places = claims.map(|claims| claims.create_positions.len() + claims.destroy_positions.len());
    assert_eq!(places.sum::<usize>(), 2000);

    let binary_bytes = Any::from_msg(&rejected).unwrap().encoded_len();
    let base64_bytes = binary_bytes.div_ceil(3) * 4;
    assert!(base64_bytes < 8 * 1024, "{base64_bytes} bytes");
}

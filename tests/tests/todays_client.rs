//! Tests of the newest generation of clients, whose messages are compiled from `tests/today`. This
//! client knows no `bucket`: it names and compares claims by the field `claim` alone.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;

use leasehold_client::RefusalKind;
use leasehold_core::lease::Outcome;
use leasehold_tests::server::Server;
use leasehold_tests::transfer::{export, state};
use leasehold_tests::wire::{Refusal, call_raw};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor};
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Status};

const CLAIMS: &str = "gitlab.cells.topology_service.claims.v1.ClaimService";
const CLASSIFY: &str = "gitlab.cells.topology_service.ClassifyService";
const CELLS: &str = "gitlab.cells.topology_service.CellService";

/// A configuration with two cells. The range of the first cell contains every id. Bucket types 19
/// and 21 are not in the contract.
const CONFIG: &str = r#"
default_cell = 2

[[bucket_types]]
number = 19
name = "JIRA_FORGE_INSTALLATION_IDS"
form = "decimal"
fold_case = false

[[bucket_types]]
number = 21
name = "OAUTH_APPLICATION_UIDS"
form = "word"
fold_case = false

[[cells]]
id = 1
name = "legacy"
address = "legacy.example"
session_prefix = "legacy-"
sequence_range = { minval = 1, maxval = 9223372036854775807 }

[[cells]]
id = 2
name = "new"
address = "new.example"
pages_address = "pages.new.example"
session_prefix = "new-"
sequence_ranges = [{ minval = 1000, maxval = 1999 }, { minval = 3000, maxval = 3999 }]
"#;

/// A client of the newest generation. It takes and returns messages as proto3 JSON.
struct Client {
    channel: Channel,
    pool: DescriptorPool,
}

impl Client {
    async fn connect(server: &Server) -> Self {
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("today");
        let pool = DescriptorPool::from_file_descriptor_set(
            protox::compile(["claims.proto", "topology.proto"], [files]).unwrap(),
        );
        Self { channel: server.connect(None).await.unwrap(), pool: pool.unwrap() }
    }

    fn method(&self, service: &str, name: &str) -> MethodDescriptor {
        let service = self.pool.get_service_by_name(service).unwrap();
        service.methods().find(|method| method.name() == name).unwrap()
    }

    async fn call(&self, service: &str, name: &str, request: Value) -> Result<Value, Status> {
        let method = self.method(service, name);
        let message = DynamicMessage::deserialize(method.input(), request).unwrap();
        let answer = call_raw(&self.channel, &format!("/{service}/{name}"), message.encode_to_vec()).await?;
        let answer = DynamicMessage::decode(method.output(), answer.get_ref().as_slice()).unwrap();
        Ok(serde_json::to_value(answer).unwrap())
    }

    /// Creates these records for cell 2 and commits the update.
    async fn create(&self, records: &[Value]) {
        let begin = json!({"createRecords": records, "cellId": 2, "organizationId": 5});
        let begun = self.call(CLAIMS, "BeginUpdate", begin).await.unwrap();
        let commit = json!({"cellId": 2, "leaseUuid": begun["leaseUuid"]});
        self.call(CLAIMS, "CommitUpdate", commit).await.unwrap();
    }

    /// Lists the claims of the rows of one table, as verification does.
    async fn verified(&self, claim_types: &[i32]) -> Vec<Value> {
        let list = json!({"cellId": 2, "sourceType": 15, "claimTypes": claim_types});
        let page = self.call(CLAIMS, "ListRecords", list).await.unwrap();
        let records = page["records"].as_array().cloned().unwrap_or_default();
        records.into_iter().map(|record| record["metadata"]["claim"].clone()).collect()
    }
}

/// Returns the record of a row with this claim. The table is `RAILS_TABLE_JIRA_CONNECT_INSTALLATIONS`.
fn record(row: u8, claim: &Value) -> Value {
    // The keys of rows are 8 bytes, which JSON has as base64.
    let id = ["AAAAAAAAAAE=", "AAAAAAAAAAI=", "AAAAAAAAAAM=", "AAAAAAAAAAQ=", "AAAAAAAAAAU="][usize::from(row)];
    json!({"subject": {"type": 4, "id": 7}, "source": {"type": 15, "railsPrimaryKeyId": id}, "claim": claim})
}

/// The local claims of the client's rows: one for each row.
fn local() -> Vec<Value> {
    vec![
        json!({"username": "Alice"}),
        json!({"projectId": "9007199254740993"}),
        json!({"serviceDeskProjectKeyAddressSlug": "Group-project-key"}),
        json!({"jiraForgeInstallationId": "9223372036854775807"}),
        json!({"oauthApplicationUid": "0aF"}),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn v01_verification_by_claims_alone_finds_nothing_to_correct() {
    let mut server = Server::builder().config(CONFIG).start().unwrap();
    let client = Client::connect(&server).await;
    let records: Vec<_> = (0..).zip(&local()).map(|(row, claim)| record(row, claim)).collect();
    client.create(&records).await;
    assert_eq!(client.verified(&[4, 6, 14, 19, 21]).await, local());
    assert_eq!(client.verified(&[]).await, local(), "no claim types are no filter");
    assert_eq!(client.verified(&[19]).await, [json!({"jiraForgeInstallationId": "9223372036854775807"})]);
    server.restart().unwrap();
    assert_eq!(Client::connect(&server).await.verified(&[]).await, local());
}

#[tokio::test(flavor = "multi_thread")]
async fn b09_the_organization_of_a_begin_is_kept_with_its_lease() {
    let mut server = Server::builder().config(CONFIG).start().unwrap();
    let client = Client::connect(&server).await;
    let begin = |name: &str, id: i64| {
        let records = [record(0, &json!({ "username": name }))];
        json!({"createRecords": records, "cellId": 2, "organizationId": id.to_string()})
    };
    let negative = client.call(CLAIMS, "BeginUpdate", begin("negative", -1)).await.unwrap_err();
    assert_eq!(Refusal::of(&negative).code_and_reason(), (Code::InvalidArgument, "INVALID_UPDATE"));
    let begun = client.call(CLAIMS, "BeginUpdate", begin("alice", 5)).await.unwrap();
    client.call(CLAIMS, "BeginUpdate", begin("bob", 0)).await.unwrap();
    server.restart().unwrap();
    let commit = json!({"cellId": 2, "leaseUuid": begun["leaseUuid"]});
    Client::connect(&server).await.call(CLAIMS, "CommitUpdate", commit).await.unwrap();
    assert!(server.terminate().unwrap().success());
    let leases = state(&export(server.data()).unwrap()).unwrap().leases;
    let kept: Vec<_> = leases.values().map(|lease| (lease.organization.map(i64::from), lease.outcome())).collect();
    assert_eq!(kept, [(Some(5), Some(Outcome::Committed)), (None, None)], "in the order of begins");
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_a_claim_of_a_configured_type_obeys_its_rule() {
    let server = Server::builder().config(CONFIG).start().unwrap();
    let client = Client::connect(&server).await;
    client.create(&[record(0, &json!({"oauthApplicationUid": "a"}))]).await;
    for (claim, code) in [
        (json!({"oauthApplicationUid": "a"}), Code::AlreadyExists),
        (json!({"oauthApplicationUid": "a b"}), Code::InvalidArgument),
        (json!({"jiraForgeInstallationId": "0"}), Code::InvalidArgument),
        (json!({}), Code::InvalidArgument),
    ] {
        let begin = json!({"createRecords": [record(1, &claim)], "cellId": 2});
        let refused = client.call(CLAIMS, "BeginUpdate", begin).await.unwrap_err();
        assert_eq!(refused.code(), code, "{claim}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_classified_by_their_cells_own_address() {
    let server = Server::builder().config(CONFIG).start().unwrap();
    let client = Client::connect(&server).await;
    let domain = json!({"pagesDomain": "a.example"});
    let ask = |claims: &[&Value]| json!({ "claims": claims });
    let classify = async |claims: &[&Value]| client.call(CLASSIFY, "ClassifyPages", ask(claims)).await;
    assert_eq!(classify(&[&domain]).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(classify(&[]).await.unwrap_err().code(), Code::InvalidArgument);
    client.create(&[record(0, &domain)]).await;
    let found = json!({"action": 1, "pagesAddress": "pages.new.example", "matchedClaim": domain});
    assert_eq!(classify(&[&json!({"pagesDomain": "b.example"}), &domain]).await.unwrap(), found);

    let begin = json!({"createRecords": [record(1, &json!({"pagesDomain": "old.example"}))], "cellId": 1});
    client.call(CLAIMS, "BeginUpdate", begin).await.unwrap();
    let without_pages = classify(&[&json!({"pagesDomain": "old.example"})]).await.unwrap_err();
    assert_eq!(
        (without_pages.code(), without_pages.message()),
        (Code::NotFound, "the cell that owns the claim serves no Pages")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_reads_its_configuration() {
    let server = Server::builder().config(CONFIG).start().unwrap();
    let client = Client::connect(&server).await;
    let ranges = [json!({"minval": "1000", "maxval": "1999"}), json!({"minval": "3000", "maxval": "3999"})];
    let new = json!({
        "id": "2", "address": "new.example", "sessionPrefix": "new-",
        "sequenceRange": ranges[0], "sequenceRanges": ranges,
    });
    assert_eq!(client.call(CELLS, "GetCell", json!({"cellId": 2})).await.unwrap(), json!({ "cellInfo": new }));
    let every = json!({"minval": "1", "maxval": "9223372036854775807"});
    let legacy = client.call(CELLS, "GetCell", json!({"cellId": 1})).await.unwrap();
    assert_eq!(legacy["cellInfo"]["sequenceRanges"], json!([every]));
    let unknown = client.call(CELLS, "GetCell", json!({"cellId": 3})).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);

    let mut classify = server.classify(None).await.unwrap();
    let first = leasehold_proto::gitlab::cells::topology_service::ClassifyRequest { r#type: 1, ..Default::default() };
    let first = classify.classify(first).await.unwrap().into_inner();
    assert_eq!(first.proxy.unwrap().address, "new.example", "the default cell, with its address as configured");
    assert!(server.has_logged("of cells 1 and 2 overlap"), "{}", server.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn b03_a_busy_create_has_the_configured_code_and_keeps_its_reason() {
    for (setting, code) in
        [("", Code::FailedPrecondition), ("busy_create_code = \"already_exists\"\n", Code::AlreadyExists)]
    {
        let server = Server::builder().config(format!("{setting}{CONFIG}")).start().unwrap();
        let client = Client::connect(&server).await;
        client.create(&[record(0, &json!({"username": "held"}))]).await;
        let held = record(0, &json!({"username": "held"}));
        let begun =
            json!({"createRecords": [record(1, &json!({"username": "new"}))], "destroyRecords": [held], "cellId": 2});
        client.call(CLAIMS, "BeginUpdate", begun).await.unwrap();
        for (list, name, code) in [("createRecords", "new", code), ("destroyRecords", "held", Code::FailedPrecondition)]
        {
            let begin = json!({list: [record(0, &json!({"username": name}))], "cellId": 2});
            let status = client.call(CLAIMS, "BeginUpdate", begin).await.unwrap_err();
            let refusal = Refusal::of(&status);
            assert_eq!((refusal.code, refusal.reason.as_str()), (code, "CLAIM_BUSY"), "{setting}{list}");
            assert!(refusal.retry_after.is_some() && refusal.kind() == RefusalKind::Busy, "{refusal:?}");
        }
    }
}

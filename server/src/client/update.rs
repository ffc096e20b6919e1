//! The verbs that change something: begin, commit, rollback.

use std::io::Read;
use std::path::{Path, PathBuf};

use leasehold_proto::gitlab::cells::topology_service::claims::v1::{
    BeginUpdateRequest, BeginUpdateResponse, CommitUpdateRequest, Metadata, RollbackUpdateRequest,
};
use leasehold_proto::gitlab::cells::topology_service::types::v1::Uuid as WireUuid;
use serde_json::{Value, json};
use tonic::Request;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use uuid::{Builder, Uuid};

use super::contract::{message_from, object_of};
use super::error::ClientError;
use super::output;
use super::words::{BucketArg, SourceArg, SubjectArg};
use super::{Connection, Session};

const IDEMPOTENCY_KEY: &str = "leasehold-idempotency-key";
const FENCE: &str = "leasehold-fence";

/// What to begin.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("claims").required(true).multiple(true).args(["create", "destroy", "file"]))]
pub struct BeginArgs {
    /// The cell that claims
    #[arg(long, value_name = "N", required_unless_present = "file")]
    cell: Option<i64>,

    /// A claim to create, such as USERNAMES:alice; may be repeated
    #[arg(long, value_name = "TYPE:VALUE")]
    create: Vec<BucketArg>,

    /// A claim to destroy; may be repeated. One that is also created is replaced
    #[arg(long, value_name = "TYPE:VALUE")]
    destroy: Vec<BucketArg>,

    /// Whom all the claims are for, such as USER:7
    #[arg(long, value_name = "TYPE:ID", required_unless_present = "file")]
    subject: Option<SubjectArg>,

    /// The row that all the claims come out of, such as USERS:7
    ///
    /// An id that is a number is sent as 8 big-endian bytes, a UUID as its 16, one that starts with 0x as the
    /// hexadecimal bytes that follow, any other as its own bytes. Text that itself starts with 0x has to be given in
    /// hexadecimal.
    #[arg(long, value_name = "TABLE:ID", required_unless_present = "file")]
    source: Option<SourceArg>,

    /// Read the whole update as the proto3 JSON of a BeginUpdateRequest; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["create", "destroy", "subject", "source"])]
    file: Option<PathBuf>,

    /// Makes a repeated begin give the same lease again; drawn at random unless given
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Which lease to settle.
#[derive(Clone, Debug, clap::Args)]
pub struct SettleArgs {
    /// The cell that began the lease
    #[arg(long, value_name = "N")]
    cell: i64,

    /// The lease, as begin printed it
    #[arg(value_name = "LEASE_UUID")]
    lease: Uuid,
}

impl BeginArgs {
    fn request(&self) -> Result<BeginUpdateRequest, ClientError> {
        let record = |BucketArg(bucket): &BucketArg| Metadata {
            bucket: Some(bucket.clone()),
            subject: self.subject.as_ref().map(|SubjectArg(subject)| *subject),
            source: self.source.as_ref().map(|SourceArg(source)| source.clone()),
            ..Metadata::default()
        };
        match &self.file {
            Some(path) => from_file(path, self.cell),
            None => Ok(BeginUpdateRequest {
                create_records: self.create.iter().map(record).collect(),
                destroy_records: self.destroy.iter().map(record).collect(),
                cell_id: self.cell.unwrap_or_default(),
            }),
        }
    }
}

fn from_file(path: &Path, cell: Option<i64>) -> Result<BeginUpdateRequest, ClientError> {
    let usage =
        |error: &dyn std::fmt::Display| ClientError::Usage(format!("cannot read `{}`: {error}", path.display()));
    let json = read(path).map_err(|error| usage(&error))?;
    let mut request: BeginUpdateRequest = message_from(&json).map_err(|error| usage(&error))?;
    match (request.cell_id, cell) {
        (0, Some(cell)) => request.cell_id = cell,
        (0, None) => return Err(usage(&"it has no `cellId`: add one, or give --cell")),
        (there, Some(cell)) if there != cell => {
            return Err(usage(&format!("its `cellId` is {there}, not the {cell} of --cell: leave one out")));
        }
        _ => {}
    }
    Ok(request)
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if path != Path::new("-") {
        return std::fs::read(path);
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(super) async fn begin(session: &Session<'_>, args: BeginArgs) -> Result<(), ClientError> {
    let update = args.request()?;
    let key = args.idempotency_key.unwrap_or_else(random_key);
    let mut request = session.connection.request(update.clone());
    attach_key(&mut request, &key)?;
    let mut client = session.claims().await?;
    let answer = session.connection.wait(client.begin_update(request)).await;
    let answer = answer.map_err(|error| error.about(&update, Some(&key)))?;
    let fence = fence(answer.metadata());
    show_lease(session, &answer.into_inner(), fence)
}

pub(super) fn random_key() -> String {
    Builder::from_random_bytes(rand::random()).into_uuid().to_string()
}

pub(super) fn attach_key(request: &mut Request<BeginUpdateRequest>, key: &str) -> Result<(), ClientError> {
    let value = AsciiMetadataValue::try_from(key).map_err(|_| {
        ClientError::Usage(format!("`{key}` cannot be an idempotency key: use ASCII letters and digits"))
    })?;
    request.metadata_mut().insert(IDEMPOTENCY_KEY, value);
    Ok(())
}

fn fence(metadata: &MetadataMap) -> Option<String> {
    metadata.get(FENCE)?.to_str().ok().map(str::to_owned)
}

fn show_lease(session: &Session<'_>, begun: &BeginUpdateResponse, fence: Option<String>) -> Result<(), ClientError> {
    if session.json {
        let mut object = object_of(begun)?;
        object.insert("fence".to_owned(), json!(fence));
        return output::line(&Value::Object(object).to_string());
    }
    let lease = begun.lease_uuid.as_ref().ok_or(ClientError::Nonsense("it names no lease"))?;
    output::line(&lease_text(session.connection, begun.cell_id, &lease.value, fence))
}

fn lease_text(connection: &Connection, cell: i64, lease: &str, fence: Option<String>) -> String {
    let fence = fence.map(|fence| format!(", fence {fence}")).unwrap_or_default();
    let command = |verb: &str| format!("leasehold {verb} --cell {cell} {lease}{}", connection.options());
    let (commit, rollback) = (command("commit"), command("rollback"));
    format!("begun lease {lease} of cell {cell}{fence}\nnext: {commit}\n  or: {rollback}")
}

pub(super) async fn commit(session: &Session<'_>, args: SettleArgs) -> Result<(), ClientError> {
    let message = CommitUpdateRequest { cell_id: args.cell, lease_uuid: Some(wire(args.lease)) };
    let request = session.connection.request(message);
    let mut client = session.claims().await?;
    let done = session.connection.wait(client.commit_update(request)).await?.into_inner();
    if session.json { output::json_line(&done) } else { output::line(&format!("committed lease {}", args.lease)) }
}

pub(super) async fn rollback(session: &Session<'_>, args: SettleArgs) -> Result<(), ClientError> {
    let message = RollbackUpdateRequest { cell_id: args.cell, lease_uuid: Some(wire(args.lease)) };
    let request = session.connection.request(message);
    let mut client = session.claims().await?;
    let done = session.connection.wait(client.rollback_update(request)).await?.into_inner();
    if session.json { output::json_line(&done) } else { output::line(&format!("rolled back lease {}", args.lease)) }
}

fn wire(uuid: Uuid) -> WireUuid {
    WireUuid { value: uuid.to_string() }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BeginArgs,
    }

    fn parse(line: &str) -> Result<BeginArgs, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.args)
    }

    fn from_json(json: &str, cell: Option<i64>) -> Result<BeginUpdateRequest, ClientError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(json.as_bytes()).unwrap();
        from_file(file.path(), cell)
    }

    #[test]
    fn subject_and_source_go_to_every_claim() {
        let line = "begin --cell 1 --create USERNAMES:alice --create 5:a@b --destroy username:bob \
                    --subject USER:7 --source USERS:7";
        let request = parse(line).unwrap().request().unwrap();
        assert_eq!((request.cell_id, request.create_records.len(), request.destroy_records.len()), (1, 2, 1));
        for record in request.create_records.iter().chain(&request.destroy_records) {
            assert_eq!(record.subject.as_ref().unwrap().id, 7);
            assert_eq!(record.source.as_ref().unwrap().rails_primary_key_id, 7_u64.to_be_bytes());
        }
    }

    #[test]
    fn half_an_update_is_no_command() {
        for line in [
            "begin --cell 1 --subject USER:7 --source USERS:7",
            "begin --create USERNAMES:alice --subject USER:7 --source USERS:7",
            "begin --cell 1 --create USERNAMES:alice --source USERS:7",
            "begin --cell 1 --create USERNAMES:alice --subject USER:7",
            "begin --cell 1 --file - --create USERNAMES:alice",
            "begin --cell 1 --create alice --subject USER:7 --source USERS:7",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
        assert!(parse("begin --file update.json").is_ok());
    }

    #[test]
    fn a_file_is_proto3_json_with_one_cell() {
        let json = r#"{"createRecords": [{"bucket": {"type": "USERNAMES", "value": "alice"}}], "cellId": "2"}"#;
        assert_eq!(from_json(json, None).unwrap().cell_id, 2);
        assert_eq!(from_json(json, Some(2)).unwrap().create_records.len(), 1);
        assert_eq!(from_json("{}", Some(3)).unwrap().cell_id, 3);
        for (json, cell) in [(json, Some(1)), ("{}", None), ("{\"create\": []}", Some(1)), ("[", Some(1))] {
            assert_eq!(from_json(json, cell).unwrap_err().exit_code(), 2, "{json}");
        }
    }

    #[test]
    fn keys_travel_as_metadata() {
        let mut request = Request::new(BeginUpdateRequest::default());
        attach_key(&mut request, "k1").unwrap();
        assert_eq!(request.metadata().get("leasehold-idempotency-key").unwrap(), "k1");
        assert_eq!(attach_key(&mut request, "a\nb").unwrap_err().exit_code(), 2);
        assert_ne!(random_key(), random_key());
    }
}

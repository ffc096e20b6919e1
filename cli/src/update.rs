//! The verbs that change claims: begin, commit, rollback.

use std::io::Read;
use std::path::{Path, PathBuf};

use leasehold_client::{check_idempotency_key, fence, new_idempotency_key};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{
    BeginUpdateRequest, BeginUpdateResponse, CommitUpdateRequest, Metadata, RollbackUpdateRequest,
};
use leasehold_proto::gitlab::cells::topology_service::types::v1::Uuid as WireUuid;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::connection::Connection;
use crate::contract::{message_from, object_of};
use crate::error::CliError;
use crate::output;
use crate::session::Session;
use crate::words::{BucketArg, SourceArg, SubjectArg};

/// Arguments of `begin`.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("claims").required(true).multiple(true).args(["create", "destroy", "file"]))]
pub struct BeginArgs {
    /// The cell that claims
    #[arg(long, value_name = "N", required_unless_present = "file")]
    cell: Option<i64>,

    /// A claim to create, such as USERNAMES:alice; may be repeated
    #[arg(long, value_name = "TYPE:VALUE")]
    create: Vec<BucketArg>,

    /// A claim to destroy; may be repeated. A claim that is also created is replaced
    #[arg(long, value_name = "TYPE:VALUE")]
    destroy: Vec<BucketArg>,

    /// The subject of all the claims, such as USER:7
    #[arg(long, value_name = "TYPE:ID", required_unless_present = "file")]
    subject: Option<SubjectArg>,

    /// The row that all the claims come from, such as USERS:7
    ///
    /// An id that is a number is sent as 8 big-endian bytes, a UUID as its 16 bytes, an id that starts with 0x as the
    /// hexadecimal bytes that follow, and any other id as its own bytes. A text that itself starts with 0x must be
    /// given in hexadecimal.
    #[arg(long, value_name = "TABLE:ID", required_unless_present = "file")]
    source: Option<SourceArg>,

    /// The organization that the update is for, which the server keeps with the lease
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(i64).range(1..))]
    organization_id: Option<i64>,

    /// Read the whole update as the proto3 JSON of a BeginUpdateRequest; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["create", "destroy", "subject", "source", "organization_id"])]
    file: Option<PathBuf>,

    /// A begin repeated under the same key gets the same lease; a random key if not given
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Arguments of `commit` and `rollback`.
#[derive(Clone, Debug, clap::Args)]
pub struct SettleArgs {
    /// The cell that began the lease
    #[arg(long, value_name = "N")]
    cell: i64,

    /// The lease that begin printed
    #[arg(value_name = "LEASE_UUID")]
    lease: Uuid,
}

impl BeginArgs {
    fn request(&self) -> Result<BeginUpdateRequest, CliError> {
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
                organization_id: self.organization_id.unwrap_or_default(),
            }),
        }
    }
}

fn from_file(path: &Path, cell: Option<i64>) -> Result<BeginUpdateRequest, CliError> {
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(format!("cannot read `{}`: {error}", path.display()));
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

/// Reads a file, or standard input if the path is `-`.
pub(crate) fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if path != Path::new("-") {
        return std::fs::read(path);
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) async fn begin(session: &Session<'_>, args: BeginArgs) -> Result<(), CliError> {
    let update = args.request()?;
    let key = args.idempotency_key.unwrap_or_else(new_idempotency_key);
    check_idempotency_key(&key).map_err(|error| CliError::Usage(error.to_string()))?;
    let mut stub = session.open().await?;
    let answer = session.connection.wait(stub.begin(update.clone(), Some(&key))).await;
    let answer = answer.map_err(|error| error.of_begin(&update, &key))?;
    let fence = fence(answer.metadata()).map(|fence| fence.to_string());
    show_lease(session, &answer.into_inner(), fence)
}

fn show_lease(session: &Session<'_>, begun: &BeginUpdateResponse, fence: Option<String>) -> Result<(), CliError> {
    if session.json {
        let mut object = object_of(begun)?;
        object.insert("fence".to_owned(), json!(fence));
        return output::line(&Value::Object(object).to_string());
    }
    let lease = begun.lease_uuid.as_ref().ok_or(CliError::BadAnswer("it names no lease"))?;
    output::line(&lease_text(session.connection, begun.cell_id, &lease.value, fence))
}

fn lease_text(connection: &Connection, cell: i64, lease: &str, fence: Option<String>) -> String {
    let fence = fence.map(|fence| format!(", fence {fence}")).unwrap_or_default();
    let command = |verb: &str| format!("leasehold {verb} --cell {cell} {lease}{}", connection.options());
    let (commit, rollback) = (command("commit"), command("rollback"));
    format!("begun lease {lease} of cell {cell}{fence}\nnext: {commit}\n  or: {rollback}")
}

pub(crate) async fn commit(session: &Session<'_>, args: SettleArgs) -> Result<(), CliError> {
    let message = CommitUpdateRequest { cell_id: args.cell, lease_uuid: Some(wire(args.lease)) };
    let mut stub = session.open().await?;
    let done = session.connection.wait(stub.commit(message)).await?.into_inner();
    if session.json { output::json_line(&done) } else { output::line(&format!("committed lease {}", args.lease)) }
}

pub(crate) async fn rollback(session: &Session<'_>, args: SettleArgs) -> Result<(), CliError> {
    let message = RollbackUpdateRequest { cell_id: args.cell, lease_uuid: Some(wire(args.lease)) };
    let mut stub = session.open().await?;
    let done = session.connection.wait(stub.rollback(message)).await?.into_inner();
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

    fn from_json(json: &str, cell: Option<i64>) -> Result<BeginUpdateRequest, CliError> {
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
    fn an_incomplete_update_is_a_usage_error() {
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
}

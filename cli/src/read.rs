//! The verbs that only read: cells, get, classify, leases, records.

use leasehold_client::{Bucket, ClassifyError, MAX_LEASES_PER_PAGE, Stub, claim_of_bucket};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{
    GetRecordRequest, GetRecordResponse, LeaseRecord, ListLeasesRequest, ListLeasesResponse, ListRecordsRequest,
    Metadata, Record, record,
};
use leasehold_proto::gitlab::cells::topology_service::types::v1::{Claim, Uuid};
use leasehold_proto::gitlab::cells::topology_service::{CellInfo, ClassifyAction, ClassifyRequest, ClassifyResponse};
use leasehold_proto::leasehold::v1::{ListOutstandingLeasesResponse, OutstandingLease};
use prost_types::Timestamp;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::contract::{bucket_of, claimed};
use crate::error::CliError;
use crate::output::{Pages, fields, json_line, show_time};
use crate::session::Session;
use crate::words::{
    BucketArg, SourceIdArg, bucket_type, classify_type, name_of, printable, show_bucket, show_source, show_source_id,
    show_subject, source_type,
};

/// Arguments of `cells`: none, all cells are listed.
#[derive(Clone, Debug, clap::Args)]
pub struct CellsArgs {}

/// Arguments of `get`.
#[derive(Clone, Debug, clap::Args)]
pub struct GetArgs {
    /// The claim, such as USERNAMES:alice
    #[arg(value_name = "TYPE:VALUE")]
    bucket: BucketArg,
}

/// Arguments of `classify`.
#[derive(Clone, Debug, clap::Args)]
pub struct ClassifyArgs {
    /// FIRST_CELL, SESSION_PREFIX or CELL_ID
    #[arg(long = "type", value_name = "TYPE", value_parser = classify_type, required_unless_present = "claims")]
    classify_type: Option<i32>,

    /// The session prefix or the cell id
    #[arg(long, value_name = "TEXT", requires = "classify_type")]
    value: Option<String>,

    /// Claims to look for, such as USERNAMES:alice; the first claim found decides
    #[arg(value_name = "TYPE:VALUE")]
    claims: Vec<BucketArg>,
}

/// Arguments of `leases`.
#[derive(Clone, Debug, clap::Args)]
pub struct LeasesArgs {
    /// The cell whose leases to list
    #[arg(long, value_name = "N")]
    cell: i64,

    /// Only leases begun at this time or later, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "RFC3339")]
    created_after: Option<jiff::Timestamp>,

    /// Stop after N leases; all if not given
    ///
    /// If more leases remain, a note on standard error says so; with --json, the last line is {"next": ...} instead of
    /// a lease. It is the cursor of ListLeases.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

/// Arguments of `records`.
#[derive(Clone, Debug, clap::Args)]
pub struct RecordsArgs {
    /// The cell whose records to list
    #[arg(long, value_name = "N")]
    cell: i64,

    /// The table that the records come from, such as USERS
    #[arg(long, value_name = "TABLE", value_parser = source_type)]
    source: i32,

    /// Only records of this bucket type; may be repeated
    #[arg(long = "bucket-type", value_name = "TYPE", value_parser = bucket_type)]
    bucket_types: Vec<i32>,

    /// Only source ids above this one, written as in `begin --source`
    #[arg(long, value_name = "ID")]
    after: Option<SourceIdArg>,

    /// Only source ids up to this one, itself included
    #[arg(long, value_name = "ID")]
    up_to: Option<SourceIdArg>,
}

pub(crate) async fn cells(session: &Session<'_>, _: CellsArgs) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let cells = session.connection.wait(stub.get_cells()).await?.into_inner().cells;
    if session.json {
        return cells.iter().try_for_each(json_line);
    }
    note_if(cells.is_empty(), "the server has no cells");
    Pages::new(&["CELL", "NAME", "ADDRESS", "SESSION PREFIX", "IDS"]).write(cells.iter().map(cell_row))
}

fn cell_row(cell: &CellInfo) -> Vec<String> {
    // A server of an older version sends one range, in the field `sequence_range`.
    let ranges = if cell.sequence_ranges.is_empty() { cell.sequence_range.as_slice() } else { &cell.sequence_ranges };
    let ids: Vec<_> = ranges.iter().map(|range| format!("{}-{}", range.minval, range.maxval)).collect();
    let text = [&cell.name, &cell.address, &cell.session_prefix].map(|text| printable(text));
    std::iter::once(cell.id.to_string()).chain(text).chain([ids.join(", ")]).collect()
}

pub(crate) async fn get(session: &Session<'_>, args: GetArgs) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let BucketArg(bucket) = args.bucket;
    let found = session.connection.wait(stub.get_record(GetRecordRequest { bucket: Some(bucket), claim: None })).await;
    let found = found.map_err(CliError::for_admins)?.into_inner();
    if session.json { json_line(&found) } else { fields(&record_fields(&found)?) }
}

fn record_fields(found: &GetRecordResponse) -> Result<Vec<(&'static str, String)>, CliError> {
    let record = found.record.as_ref().ok_or(CliError::BadAnswer("it has no record"))?;
    let metadata = record.metadata.clone().unwrap_or_default();
    let cell = found.cell_info.as_ref().map(|cell| format!(" ({}, {})", cell.name, cell.address)).unwrap_or_default();
    let uuid = |uuid: &Option<_>| uuid.as_ref().map(show_uuid).unwrap_or_default();
    Ok(vec![
        ("claim", show_claimed(&metadata)),
        ("cell", printable(&format!("{}{cell}", record.cell_id))),
        ("status", name_of::<record::Status>(record.status)),
        ("lease", uuid(&record.lease_uuid)),
        ("subject", show_subject(&metadata)),
        ("source", show_source(&metadata)),
        ("data", metadata.user_data.as_ref().map(|data| printable(&data.type_url)).unwrap_or_default()),
        ("record", uuid(&record.uuid)),
        ("created", show_time(record.created_at.as_ref())),
        ("updated", show_time(record.updated_at.as_ref())),
    ])
}

fn show_uuid(uuid: &Uuid) -> String {
    printable(&uuid.value)
}

fn show_claimed(metadata: &Metadata) -> String {
    claimed(metadata).map(|bucket| show_bucket(&bucket)).unwrap_or_default()
}

pub(crate) async fn classify(session: &Session<'_>, args: ClassifyArgs) -> Result<(), CliError> {
    let message = ClassifyRequest {
        r#type: args.classify_type.unwrap_or_default(),
        value: args.value.unwrap_or_default(),
        claims: args.claims.into_iter().map(typed_claim).collect::<Result<_, _>>()?,
    };
    let mut stub = session.open().await?;
    let found = session.connection.wait(stub.classify(message)).await?.into_inner();
    if session.json { json_line(&found) } else { fields(&classified_fields(&found)) }
}

fn typed_claim(BucketArg(bucket): BucketArg) -> Result<Claim, CliError> {
    let usage = |why| CliError::Usage(format!("`{}` cannot be classified: {why}", show_bucket(&bucket)));
    claim_of_bucket(&Bucket::from(bucket.clone())).map_err(|error| match error {
        ClassifyError::NotAnInteger(_) => usage("its value must be a whole number"),
        _ => usage("the wire contract has no claim of that type"),
    })
}

fn classified_fields(found: &ClassifyResponse) -> Vec<(&'static str, String)> {
    let matched = found.matched_claim.as_ref().and_then(bucket_of);
    vec![
        ("action", name_of::<ClassifyAction>(found.action)),
        ("address", found.proxy.as_ref().map(|proxy| printable(&proxy.address)).unwrap_or_default()),
        ("matched", matched.map(|bucket| show_bucket(&bucket)).unwrap_or_default()),
    ]
}

pub(crate) async fn leases(session: &Session<'_>, args: LeasesArgs) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let mut pages = Pages::new(&["LEASE", "BEGUN", "ORGANIZATION"]);
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut next = None;
    let mut seen = false;
    while left > 0 {
        let message = ListLeasesRequest {
            cell_id: args.cell,
            next,
            limit: Some(page_limit(left)),
            created_after: args.created_after.map(wire_time),
        };
        let page = session.connection.wait(lease_page(&mut stub, message)).await?.into_inner();
        left = left.saturating_sub(u64::try_from(page.leases.len()).unwrap_or(u64::MAX));
        seen |= !page.leases.is_empty();
        if session.json {
            page.leases.iter().try_for_each(json_line)?;
        } else {
            pages.write(page.leases.iter().map(lease_row))?;
        }
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    if session.json {
        return next
            .map_or(Ok(()), |next| json_line(&ListOutstandingLeasesResponse { leases: Vec::new(), next: Some(next) }));
    }
    let since = args.created_after.map(|time| format!(" begun at {time} or later")).unwrap_or_default();
    note_if(next.is_some(), "there are more: raise --limit, or leave it out");
    note_if(!seen, &format!("cell {} has no outstanding leases{since}", args.cell));
    Ok(())
}

fn page_limit(left: u64) -> i32 {
    let limit = usize::try_from(left).unwrap_or(usize::MAX).min(MAX_LEASES_PER_PAGE);
    i32::try_from(limit).unwrap_or(i32::MAX)
}

/// Reads a page of leases. If the server lacks the call `ListOutstandingLeases`, the leases are
/// read without their organizations.
async fn lease_page(
    stub: &mut Stub<Channel>,
    message: ListLeasesRequest,
) -> Result<Response<ListOutstandingLeasesResponse>, Status> {
    match stub.list_outstanding_leases(message.clone()).await {
        Err(status) if status.code() == Code::Unimplemented => {
            let page = stub.list_leases(message).await?;
            Ok(page.map(|ListLeasesResponse { leases, next }| ListOutstandingLeasesResponse {
                leases: leases.into_iter().map(of_record).collect(),
                next,
            }))
        }
        page => page,
    }
}

fn of_record(LeaseRecord { uuid, created_at, updated_at }: LeaseRecord) -> OutstandingLease {
    OutstandingLease { uuid, created_at, updated_at, organization_id: 0 }
}

fn lease_row(lease: &OutstandingLease) -> Vec<String> {
    let organization = if lease.organization_id == 0 { String::new() } else { lease.organization_id.to_string() };
    vec![lease.uuid.as_ref().map(show_uuid).unwrap_or_default(), show_time(lease.created_at.as_ref()), organization]
}

fn wire_time(time: jiff::Timestamp) -> Timestamp {
    // In a protobuf `Timestamp`, `nanos` is never negative and counts forward from `seconds`, also
    // before 1970 (google/protobuf/timestamp.proto).
    let nanos = time.subsec_nanosecond();
    let borrow = i64::from(nanos < 0);
    Timestamp { seconds: time.as_second() - borrow, nanos: if borrow == 1 { nanos + 1_000_000_000 } else { nanos } }
}

pub(crate) async fn records(session: &Session<'_>, args: RecordsArgs) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let mut pages = Pages::new(&["SOURCE", "CLAIM", "SUBJECT", "STATUS", "UPDATED", "LEASE"]);
    let bytes = |id: Option<SourceIdArg>| id.map(|SourceIdArg(bytes)| bytes).unwrap_or_default();
    let mut message = ListRecordsRequest {
        cell_id: args.cell,
        source_type: args.source,
        bucket_types: args.bucket_types,
        source_id_gt: bytes(args.after),
        source_id_lte: bytes(args.up_to),
        claim_types: Vec::new(),
    };
    let mut seen = false;
    loop {
        let page = session.connection.wait(stub.list_records(message.clone())).await?.into_inner();
        seen |= !page.records.is_empty();
        if session.json {
            page.records.iter().try_for_each(json_line)?;
        } else {
            pages.write(page.records.iter().map(record_row))?;
        }
        if !page.truncated {
            break;
        }
        message.source_id_gt = last_source_id(&page.records, &message.source_id_gt)?;
    }
    note_if(!seen && !session.json, &format!("cell {} has no such records", args.cell));
    Ok(())
}

/// Returns the source id of the page's last record, after which the next page begins. It is an
/// error if this id does not exceed `before`, the bound of this page: the same page would then be
/// read for ever.
fn last_source_id(records: &[Record], before: &[u8]) -> Result<Vec<u8>, CliError> {
    let source = records.last().and_then(|record| record.metadata.as_ref()?.source.as_ref());
    source
        .map(|source| source.rails_primary_key_id.clone())
        .filter(|id| id.as_slice() > before)
        .ok_or(CliError::BadAnswer("a truncated page does not get past the page before"))
}

fn record_row(record: &Record) -> Vec<String> {
    let metadata = record.metadata.clone().unwrap_or_default();
    let source = metadata.source.as_ref().map(|source| show_source_id(&source.rails_primary_key_id));
    vec![
        source.unwrap_or_default(),
        show_claimed(&metadata),
        show_subject(&metadata),
        name_of::<record::Status>(record.status),
        show_time(record.updated_at.as_ref()),
        record.lease_uuid.as_ref().map(show_uuid).unwrap_or_default(),
    ]
}

/// Writes a note to standard error if `condition` is true. Standard output has only the list.
fn note_if(condition: bool, text: &str) {
    if condition {
        eprintln!("{text}");
    }
}

#[cfg(test)]
mod tests {
    use leasehold_proto::gitlab::cells::topology_service::claims::v1::{Bucket as WireBucket, Source};

    use super::*;

    fn record(id: &[u8]) -> Record {
        let bucket = Some(WireBucket { r#type: 4, value: "alice\u{7}".to_owned() });
        let source = Some(Source { r#type: 1, rails_primary_key_id: id.to_vec() });
        Record { metadata: Some(Metadata { bucket, source, ..Metadata::default() }), status: 1, ..Record::default() }
    }

    #[test]
    fn pages_of_records_only_go_forward() {
        assert_eq!(last_source_id(&[record(&[1]), record(&[3])], &[2]).unwrap(), [3]);
        assert!(last_source_id(&[record(&[2])], &[2]).is_err());
        assert!(last_source_id(&[], &[]).is_err());
    }

    #[test]
    fn records_are_shown_as_they_are_typed() {
        let row = record_row(&record(&7_u64.to_be_bytes()));
        assert_eq!(row, ["7", "USERNAMES:alice\\u{7}", "", "ACTIVE", "", ""]);
    }

    #[test]
    fn times_before_1970_have_a_positive_fraction() {
        let time = wire_time("1969-12-31T23:59:59.75Z".parse().unwrap());
        assert_eq!((time.seconds, time.nanos), (-1, 750_000_000));
        let time = wire_time("2026-01-31T12:00:00.5Z".parse().unwrap());
        assert_eq!(time.nanos, 500_000_000);
    }
}

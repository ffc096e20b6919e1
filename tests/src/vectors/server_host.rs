//! The running server, asked over gRPC as any client asks it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::BucketType;
use leasehold_core::claim::{Source, SourceId, SourceType, Subject, UserData};
use leasehold_core::lease::Outcome;
use leasehold_core::rejection::Place;
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_client::ClaimServiceClient;
use leasehold_proto::gitlab::cells::topology_service::classify_service_client::ClassifyServiceClient;
use leasehold_proto::gitlab::cells::topology_service::types::v1::{Claim, Uuid as WireUuid, claim};
use leasehold_proto::gitlab::cells::topology_service::{ClassifyRequest, GetCellsRequest};
use leasehold_proto::leasehold::v1::RejectedClaims;
use prost::Message;
use prost_types::{Any, Timestamp};
use tokio::runtime::Runtime;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;
use uuid::Uuid;

use super::host::{Answer, Begun, BucketName, Held, Host, RecordsQuery, Refusal, Since};
use crate::server::{Builder, Server};

const FENCE: &str = "leasehold-fence";
const IDEMPOTENCY_KEY: &str = "leasehold-idempotency-key";
const REJECTED_CLAIMS: &str = "/leasehold.v1.RejectedClaims";

const CELLS: &str = r#"
[[cells]]
id = 1
name = "cell-1"
address = "http://127.0.0.1:3001"
session_prefix = "cell-1-"
sequence_range = { minval = 1, maxval = 1000000 }

[[cells]]
id = 2
name = "cell-2"
address = "http://127.0.0.1:3002"
session_prefix = "cell-2-"
sequence_range = { minval = 1000001, maxval = 2000000 }

[[cells]]
id = 3
name = "cell-3"
address = "http://127.0.0.1:3003"
session_prefix = "cell-3-"
sequence_range = { minval = 2000001, maxval = 3000000 }
"#;

/// A server of its own as a host.
#[derive(Debug)]
pub struct ServerHost {
    // First, so that the connections go before the server does.
    claims: ClaimServiceClient<Channel>,
    classify: ClassifyServiceClient<Channel>,
    cells: BTreeMap<String, i64>,
    runtime: Runtime,
    server: Server,
}

impl ServerHost {
    /// Starts a server with the cells 1, 2 and 3.
    ///
    /// # Errors
    /// The server does not start or cannot be reached.
    pub fn start() -> Result<Self> {
        Self::of(Server::builder())
    }

    /// Starts one that keeps its claims in a database.
    ///
    /// # Errors
    /// The server does not start or cannot be reached.
    pub fn on(store_url: &str) -> Result<Self> {
        Self::of(Server::builder().arg("--store").arg(store_url))
    }

    fn of(builder: Builder) -> Result<Self> {
        let server = builder.config(CELLS).start()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut claims, classify) = runtime.block_on(clients(&server))?;
        let cells = runtime.block_on(claims.get_cells(GetCellsRequest {}))?.into_inner().cells;
        let cells = cells.into_iter().map(|cell| (cell.address, cell.id)).collect();
        Ok(Self { claims, classify, cells, runtime, server })
    }

    /// When an outstanding lease was begun.
    fn begun_at(&mut self, cell: i64, lease: Uuid) -> Result<Option<Timestamp>> {
        let request = wire::ListLeasesRequest { cell_id: cell, limit: Some(1000), ..Default::default() };
        let leases = self.runtime.block_on(self.claims.list_leases(request))?.into_inner().leases;
        let named = leases.into_iter().find(|record| wire_uuid(record.uuid.as_ref()).is_ok_and(|uuid| uuid == lease));
        Ok(named.context("the lease is not in the first page of the list")?.created_at)
    }
}

async fn clients(server: &Server) -> Result<(ClaimServiceClient<Channel>, ClassifyServiceClient<Channel>)> {
    let channel = server.connect(None).await?;
    Ok((ClaimServiceClient::new(channel.clone()), ClassifyServiceClient::new(channel)))
}

impl Host for ServerHost {
    type Cursor = Any;

    const NAME: &'static str = "server";

    fn begin(&mut self, cell: i64, update: UpdateRequest, key: Option<&str>) -> Answer<Begun> {
        let mut request = Request::new(wire::BeginUpdateRequest {
            create_records: update.creates.into_iter().map(metadata).collect(),
            destroy_records: update.destroys.into_iter().map(metadata).collect(),
            cell_id: cell,
        });
        if let Some(key) = key {
            request.metadata_mut().insert(IDEMPOTENCY_KEY, key.parse().context("metadata cannot carry the key")?);
        }
        let response = match self.runtime.block_on(self.claims.begin_update(request)) {
            Ok(response) => response,
            Err(status) => return refused(&status),
        };
        let fence = response.metadata().get(FENCE).context("the response has no fence")?.to_str()?.parse()?;
        let begun = response.into_inner();
        ensure!(begun.cell_id == cell, "the response is for cell {}", begun.cell_id);
        Ok(Ok(Begun { lease: wire_uuid(begun.lease_uuid.as_ref())?, fence }))
    }

    fn settle(&mut self, cell_id: i64, lease: &str, outcome: Outcome) -> Answer<()> {
        let lease_uuid = Some(WireUuid { value: lease.to_owned() });
        let answer = match outcome {
            Outcome::Committed => {
                let request = wire::CommitUpdateRequest { cell_id, lease_uuid };
                self.runtime.block_on(self.claims.commit_update(request)).map(|_| ())
            }
            Outcome::RolledBack => {
                let request = wire::RollbackUpdateRequest { cell_id, lease_uuid };
                self.runtime.block_on(self.claims.rollback_update(request)).map(|_| ())
            }
        };
        answer.map_or_else(|status| refused(&status), |()| Ok(Ok(())))
    }

    fn record(&mut self, bucket: &BucketName) -> Answer<Held> {
        let bucket = Some(wire::Bucket { r#type: bucket.bucket_type.0, value: bucket.value.to_string() });
        let request = wire::GetRecordRequest { bucket, claim: None };
        let response = match self.runtime.block_on(self.claims.get_record(request)) {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(&status),
        };
        let record = held(response.record.context("the response has no record")?)?;
        let cell = response.cell_info.context("the response has no cell")?.id;
        ensure!(cell == record.cell, "the record is of cell {}, but the response names cell {cell}", record.cell);
        Ok(Ok(record))
    }

    fn classify(&mut self, buckets: &[BucketName]) -> Answer<(i64, BucketName)> {
        let claims = buckets.iter().map(typed_claim).collect::<Result<Vec<_>>>()?;
        let request = ClassifyRequest { claims: claims.clone(), ..ClassifyRequest::default() };
        let response = match self.runtime.block_on(self.classify.classify(request)) {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(&status),
        };
        let address = response.proxy.context("the response has no address")?.address;
        let cell = self.cells.get(&address).with_context(|| format!("no cell has the address `{address}`"))?;
        let matched = response.matched_claim.context("the response names no claim")?;
        let asked = claims.iter().zip(buckets).find(|(claim, _)| **claim == matched);
        let (_, bucket) = asked.context("the claim that matched was not asked for")?;
        Ok(Ok((*cell, bucket.clone())))
    }

    fn leases(
        &mut self,
        cell: i64,
        limit: Option<i32>,
        since: Option<Since>,
        after: Option<&Any>,
    ) -> Answer<(Vec<Uuid>, Option<Any>)> {
        let created_after = match since {
            Some(Since::Lease(lease)) => self.begun_at(cell, lease)?,
            Some(Since::Future) => Some(Timestamp { seconds: 4_000_000_000, nanos: 0 }),
            None => None,
        };
        let request = wire::ListLeasesRequest { cell_id: cell, next: after.cloned(), limit, created_after };
        let page = match self.runtime.block_on(self.claims.list_leases(request)) {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(&status),
        };
        let leases = page.leases.iter().map(|lease| wire_uuid(lease.uuid.as_ref())).collect::<Result<_>>()?;
        Ok(Ok((leases, page.next)))
    }

    fn records(&mut self, query: &RecordsQuery) -> Answer<(Vec<Held>, bool)> {
        let request = wire::ListRecordsRequest {
            cell_id: query.cell,
            source_type: query.source_type,
            bucket_types: query.bucket_types.clone(),
            source_id_gt: query.source_id_gt.clone(),
            source_id_lte: query.source_id_lte.clone(),
            claim_types: Vec::new(),
        };
        let page = match self.runtime.block_on(self.claims.list_records(request)) {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(&status),
        };
        Ok(Ok((page.records.into_iter().map(held).collect::<Result<_>>()?, page.truncated)))
    }

    fn restart(&mut self) -> Result<()> {
        self.server.restart()?;
        (self.claims, self.classify) = self.runtime.block_on(clients(&self.server))?;
        Ok(())
    }
}

fn wire_uuid(uuid: Option<&WireUuid>) -> Result<Uuid> {
    let text = &uuid.context("a uuid is missing")?.value;
    ensure!(text.len() == 36, "`{text}` is not the 36-character form");
    Ok(Uuid::parse_str(text)?)
}

fn metadata(claim: ClaimRequest) -> wire::Metadata {
    wire::Metadata {
        bucket: Some(wire::Bucket { r#type: claim.bucket_type.0, value: claim.value.to_string() }),
        subject: claim.subject.map(|subject| wire::Subject { r#type: subject.subject_type, id: subject.id }),
        source: claim.source.map(|source| wire::Source {
            r#type: source.source_type.0,
            rails_primary_key_id: source.id.as_bytes().to_vec(),
        }),
        user_data: claim.user_data.map(|data| Any { type_url: data.type_url, value: data.value }),
        claim: None,
    }
}

fn held(record: wire::Record) -> Result<Held> {
    let status = record.status().as_str_name();
    ensure!(record.created_at.is_some() && record.updated_at.is_some(), "the record has no times");
    wire_uuid(record.uuid.as_ref())?;
    let metadata = record.metadata.context("the record has no metadata")?;
    let bucket = metadata.bucket.context("the record has no bucket")?;
    let subject = metadata.subject.context("the record has no subject")?;
    let source = metadata.source.context("the record has no source")?;
    Ok(Held {
        bucket_type: BucketType(bucket.r#type),
        spelling: bucket.value.into(),
        cell: record.cell_id,
        status,
        subject: Subject { subject_type: subject.r#type, id: subject.id },
        source: Source {
            source_type: SourceType(source.r#type),
            id: SourceId::from_bytes(&source.rails_primary_key_id),
        },
        user_data: metadata.user_data.map(|data| UserData { type_url: data.type_url, value: data.value }),
        lease: record.lease_uuid.as_ref().map(|uuid| wire_uuid(Some(uuid))).transpose()?,
    })
}

fn typed_claim(bucket: &BucketName) -> Result<Claim> {
    use claim::Claim as Kind;
    let text = || bucket.value.to_string();
    let id = || bucket.value.parse::<i64>().context("a claim of this type is a number");
    let kind = match wire::bucket::Type::try_from(bucket.bucket_type.0)? {
        wire::bucket::Type::Routes => Kind::Route(text()),
        wire::bucket::Type::OrganizationPath => Kind::OrganizationPath(text()),
        wire::bucket::Type::Usernames => Kind::Username(text()),
        wire::bucket::Type::Emails => Kind::Email(text()),
        wire::bucket::Type::ProjectIds => Kind::ProjectId(id()?),
        wire::bucket::Type::SshKeys => Kind::SshKey(text()),
        other => bail!("no vector classifies by {}: add it here", other.as_str_name()),
    };
    Ok(Claim { claim: Some(kind) })
}

/// A status as a rejection, or as a failure where it is none.
fn refused<T>(status: &Status) -> Answer<T> {
    let details = status.get_error_details();
    let Some(info) = details.error_info() else { bail!("the server fails: {status}") };
    let reason = info.reason.clone();
    ensure!(Some(status.code()) == code_of(&reason), "`{reason}` comes with the code {:?}", status.code());
    Ok(Err(Refusal {
        reason,
        retry: details.retry_info().is_some(),
        offences: offences(status)?,
        message: status.message().to_owned(),
    }))
}

/// The table of behaviours.md, "Numbers on the wire".
fn code_of(reason: &str) -> Option<Code> {
    Some(match reason {
        "INVALID_UPDATE" | "LIMIT_EXCEEDED" | "VALUE_NOT_ALLOWED" | "IDEMPOTENCY_KEY_REUSED" => Code::InvalidArgument,
        "CLAIM_TAKEN" => Code::AlreadyExists,
        "CLAIM_BUSY" | "CLAIM_CHANGED" | "LEASE_ROLLED_BACK" | "LEASE_COMMITTED" => Code::FailedPrecondition,
        "CLAIM_NOT_FOUND" | "LEASE_NOT_FOUND" => Code::NotFound,
        "NOT_OWNER" => Code::PermissionDenied,
        _ => return None,
    })
}

/// Every claim that was turned down, by its place.
fn offences(status: &Status) -> Result<Vec<(Place, BucketType, String)>> {
    let details = tonic_types::pb::Status::decode(status.details())?.details;
    let Some(any) = details.iter().find(|any| any.type_url.ends_with(REJECTED_CLAIMS)) else { return Ok(Vec::new()) };
    let rejected = RejectedClaims::decode(any.value.as_slice())?;
    let mut offences = Vec::new();
    for group in rejected.groups {
        for claims in group.claims {
            let creates = claims.create_positions.iter().map(|position| Place::create(*position));
            let destroys = claims.destroy_positions.iter().map(|position| Place::destroy(*position));
            let bucket_type = BucketType(claims.bucket_type);
            offences.extend(creates.chain(destroys).map(|place| (place, bucket_type, group.reason.clone())));
        }
    }
    offences.sort();
    Ok(offences)
}

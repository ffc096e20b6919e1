//! A host of golden vectors that runs a real server, and calls it over gRPC like a client.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use leasehold_client::{List, Stub, fence};
use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::BucketType;
use leasehold_core::claim::{Source, SourceId, SourceType, Subject, UserData};
use leasehold_core::lease::Outcome;
use leasehold_core::rejection::Place;
use leasehold_proto::gitlab::cells::topology_service::ClassifyRequest;
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use leasehold_proto::gitlab::cells::topology_service::types::v1::{Claim, Uuid as WireUuid};
use leasehold_proto::leasehold::v1::OutstandingLease;
use prost_types::{Any, Timestamp};
use tokio::runtime::Runtime;
use tonic::transport::Channel;
use tonic::{Code, Status};
use uuid::Uuid;

use super::host::{BegunLease, BucketName, Host, HostRefusal, HostResult, ObservedRecord, RecordsQuery, Since};
use crate::server::{Builder, Server};

const CELLS: &str = r#"
[[cells]]
id = 1
name = "cell-1"
address = "127.0.0.1:3001"
session_prefix = "cell-1-"
sequence_range = { minval = 1, maxval = 1000000 }

[[cells]]
id = 2
name = "cell-2"
address = "127.0.0.1:3002"
session_prefix = "cell-2-"
sequence_range = { minval = 1000001, maxval = 2000000 }

[[cells]]
id = 3
name = "cell-3"
address = "127.0.0.1:3003"
session_prefix = "cell-3-"
sequence_range = { minval = 2000001, maxval = 3000000 }
"#;

/// A running server on which one scenario is played, and the client that calls it.
#[derive(Debug)]
pub struct ServerHost {
    // Fields are dropped in this order: the connection must end before the server.
    stub: Stub<Channel>,
    cells: BTreeMap<String, i64>,
    runtime: Runtime,
    server: Server,
    // The fences that were given out, if the store leaves gaps between them.
    fences: Option<BTreeSet<u64>>,
}

impl ServerHost {
    /// Starts a server with the cells 1, 2 and 3, which stores its rows in a data directory.
    ///
    /// # Errors
    /// The server does not start, or cannot be reached.
    pub fn start() -> Result<Self> {
        Self::of(Server::builder())
    }

    /// Starts a server with the cells 1, 2 and 3, which stores its rows in the PostgreSQL database
    /// of this URL.
    ///
    /// # Errors
    /// The server does not start, or cannot be reached.
    pub fn on(store_url: &str) -> Result<Self> {
        Self::of(Server::builder().arg("--store").arg(store_url))
    }

    /// Starts a server with the cells 1, 2 and 3, and with what the builder has beside its configuration.
    ///
    /// # Errors
    /// The server does not start, or cannot be reached.
    pub fn of(builder: Builder) -> Result<Self> {
        let server = builder.config(CELLS).start()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut stub = Stub::new(runtime.block_on(server.connect(None))?);
        let cells = runtime.block_on(stub.get_cells())?.into_inner().cells;
        let cells = cells.into_iter().map(|cell| (cell.address, cell.id)).collect();
        Ok(Self { stub, cells, runtime, server, fences: None })
    }

    /// Returns a host that tells the rank of a fence in its place, because the store leaves gaps between fences.
    #[must_use]
    pub fn with_gaps(self) -> Self {
        Self { fences: Some(BTreeSet::new()), ..self }
    }

    /// Returns the rank of a fence among those that were given out, or the fence itself if there are no gaps.
    ///
    /// # Errors
    /// A new fence is not larger than all before it.
    fn rank(&mut self, fence: u64) -> Result<u64> {
        let Some(fences) = &mut self.fences else { return Ok(fence) };
        let largest = fences.last().copied().unwrap_or_default();
        let is_new = fences.insert(fence);
        ensure!(!is_new || fence > largest, "the fence {fence} follows {largest}");
        Ok(fences.range(..=fence).count().try_into()?)
    }

    /// Returns the time at which an outstanding lease was begun; `None` if the listed lease has no
    /// time.
    fn begun_at(&mut self, cell: i64, lease: Uuid) -> Result<Option<Timestamp>> {
        let request = wire::ListLeasesRequest { cell_id: cell, limit: Some(1000), ..Default::default() };
        let leases = self.runtime.block_on(self.stub.list_leases(request))?.into_inner().leases;
        let named = leases.into_iter().find(|record| wire_uuid(record.uuid.as_ref()).is_ok_and(|uuid| uuid == lease));
        Ok(named.context("the lease is not in the first page of the list")?.created_at)
    }
}

impl Host for ServerHost {
    type Cursor = Any;

    const NAME: &'static str = "server";

    fn begin(
        &mut self,
        cell: i64,
        update: UpdateRequest,
        organization_id: i64,
        key: Option<&str>,
    ) -> HostResult<BegunLease> {
        let message = wire::BeginUpdateRequest {
            create_records: update.creates.into_iter().map(metadata).collect(),
            destroy_records: update.destroys.into_iter().map(metadata).collect(),
            cell_id: cell,
            organization_id,
        };
        let response = match self.runtime.block_on(self.stub.begin(message, key)) {
            Ok(response) => response,
            Err(status) => return refused(&status),
        };
        let fence = fence(response.metadata()).context("the response has no fence")?;
        let fence = self.rank(fence)?;
        let begun = response.into_inner();
        ensure!(begun.cell_id == cell, "the response is for cell {}", begun.cell_id);
        Ok(Ok(BegunLease { lease: wire_uuid(begun.lease_uuid.as_ref())?, fence }))
    }

    fn settle(&mut self, cell_id: i64, lease: &str, outcome: Outcome) -> HostResult<()> {
        let lease_uuid = Some(WireUuid { value: lease.to_owned() });
        let answer = match outcome {
            Outcome::Committed => {
                let request = wire::CommitUpdateRequest { cell_id, lease_uuid };
                self.runtime.block_on(self.stub.commit(request)).map(|_| ())
            }
            Outcome::RolledBack => {
                let request = wire::RollbackUpdateRequest { cell_id, lease_uuid };
                self.runtime.block_on(self.stub.rollback(request)).map(|_| ())
            }
        };
        answer.map_or_else(|status| refused(&status), |()| Ok(Ok(())))
    }

    fn record(&mut self, bucket: &BucketName) -> HostResult<ObservedRecord> {
        let bucket = Some(wire::Bucket { r#type: bucket.bucket_type.0, value: bucket.value.to_string() });
        let request = wire::GetRecordRequest { bucket, claim: None };
        let response = match self.runtime.block_on(self.stub.get_record(request)) {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(&status),
        };
        let record = observed_record(response.record.context("the response has no record")?)?;
        let cell = response.cell_info.context("the response has no cell")?.id;
        ensure!(cell == record.cell, "the record is of cell {}, but the response names cell {cell}", record.cell);
        Ok(Ok(record))
    }

    fn classify(&mut self, buckets: &[BucketName]) -> HostResult<(i64, BucketName)> {
        let claims = buckets.iter().map(typed_claim).collect::<Result<Vec<_>>>()?;
        let request = ClassifyRequest { claims: claims.clone(), ..ClassifyRequest::default() };
        let response = match self.runtime.block_on(self.stub.classify(request)) {
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
    ) -> HostResult<(Vec<Uuid>, Option<Any>)> {
        let created_after = match since {
            Some(Since::Lease(lease)) => self.begun_at(cell, lease)?,
            Some(Since::Future) => Some(Timestamp { seconds: 4_000_000_000, nanos: 0 }),
            None => None,
        };
        let request = wire::ListLeasesRequest { cell_id: cell, next: after.cloned(), limit, created_after };
        let page = match self.runtime.block_on(self.stub.list_leases(request)) {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(&status),
        };
        let leases = page.leases.iter().map(|lease| wire_uuid(lease.uuid.as_ref())).collect::<Result<_>>()?;
        Ok(Ok((leases, page.next)))
    }

    fn outstanding(&mut self, cell: i64) -> HostResult<Vec<(Uuid, i64)>> {
        let request = wire::ListLeasesRequest { cell_id: cell, ..Default::default() };
        let page = match self.runtime.block_on(self.stub.list_outstanding_leases(request)) {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(&status),
        };
        let lease = |lease: &OutstandingLease| Ok((wire_uuid(lease.uuid.as_ref())?, lease.organization_id));
        Ok(Ok(page.leases.iter().map(lease).collect::<Result<_>>()?))
    }

    fn records(&mut self, query: &RecordsQuery) -> HostResult<(Vec<ObservedRecord>, bool)> {
        let request = wire::ListRecordsRequest {
            cell_id: query.cell,
            source_type: query.source_type,
            bucket_types: query.bucket_types.clone(),
            source_id_gt: query.source_id_gt.clone(),
            source_id_lte: query.source_id_lte.clone(),
            claim_types: Vec::new(),
        };
        let page = match self.runtime.block_on(self.stub.list_records(request)) {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(&status),
        };
        Ok(Ok((page.records.into_iter().map(observed_record).collect::<Result<_>>()?, page.truncated)))
    }

    fn restart(&mut self) -> Result<()> {
        self.server.restart()?;
        self.stub = Stub::new(self.runtime.block_on(self.server.connect(None))?);
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

fn observed_record(record: wire::Record) -> Result<ObservedRecord> {
    let status = record.status().as_str_name();
    ensure!(record.created_at.is_some() && record.updated_at.is_some(), "the record has no times");
    wire_uuid(record.uuid.as_ref())?;
    let metadata = record.metadata.context("the record has no metadata")?;
    let bucket = metadata.bucket.context("the record has no bucket")?;
    let subject = metadata.subject.context("the record has no subject")?;
    let source = metadata.source.context("the record has no source")?;
    Ok(ObservedRecord {
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
    let bucket = leasehold_client::Bucket::new(bucket.bucket_type.0, &*bucket.value);
    Ok(leasehold_client::claim_of_bucket(&bucket)?)
}

/// Returns the refusal that a failed call reports. A status without a reason is a failure of the
/// server.
fn refused<T>(status: &Status) -> HostResult<T> {
    let refusal = leasehold_client::Refusal::of(status);
    ensure!(!refusal.reason.is_empty(), "the server fails: {status}");
    ensure!(Some(status.code()) == code_of(&refusal.reason), "`{}` comes with {:?}", refusal.reason, status.code());
    let mut offences: Vec<_> = refusal.claims().into_iter().map(offence).collect();
    offences.sort();
    Ok(Err(HostRefusal {
        retry: refusal.retry_after.is_some(),
        reason: refusal.reason,
        offences,
        message: status.message().to_owned(),
    }))
}

/// Returns the gRPC code that a refusal must have with this reason, see
/// `docs/src/reference/errors.md`; `None` for other reasons.
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

/// Returns a refused claim as its place in the update, its bucket type and its reason code.
fn offence(claim: leasehold_client::RejectedClaim) -> (Place, BucketType, String) {
    let place = match claim.list {
        List::Creates => Place::create(claim.position),
        List::Destroys => Place::destroy(claim.position),
    };
    (place, BucketType(claim.bucket_type), claim.reason)
}

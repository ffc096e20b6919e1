//! The gRPC service `ClaimService`: begins and settles updates, reads claims, lists leases and
//! claims.

use std::collections::BTreeSet;
use std::sync::Arc;

use leasehold_core::bucket::BucketType;
use leasehold_core::claim::{SourceId, SourceType};
use leasehold_core::command::{Command, Reply};
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::query::RecordQuery;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_server::ClaimService;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{
    BeginUpdateRequest, BeginUpdateResponse, CommitUpdateRequest, CommitUpdateResponse, GetRecordRequest,
    GetRecordResponse, ListLeasesRequest, ListLeasesResponse, ListRecordsRequest, ListRecordsResponse,
    RollbackUpdateRequest, RollbackUpdateResponse,
};
use leasehold_proto::gitlab::cells::topology_service::types::v1::Uuid;
use leasehold_proto::gitlab::cells::topology_service::{GetCellsRequest, GetCellsResponse};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, async_trait};

use super::list_permits::list_sharer;
use super::lists::{ListCall, list_response, read_records};
use super::{Services, admitted, allowed_cell, bucket, convert, errors, record};
use crate::active_config::ActiveConfig;
use crate::committer::{CommitterRefusal, Decision};
use crate::identity::{Caller, Permit};

/// The request metadata that carries the idempotency key of a begin (B09).
const IDEMPOTENCY_KEY: &str = "leasehold-idempotency-key";
/// The response metadata that carries the fence of the begun lease (B13).
const FENCE: &str = "leasehold-fence";
/// The response metadata with the number of damaged rows that a list leaves out; absent if there
/// are none.
const DAMAGED: &str = "leasehold-damaged-records";

/// The handlers of `ClaimService`.
#[derive(Clone)]
pub struct ClaimsHandler(pub Arc<Services>);

impl ClaimsHandler {
    /// Submits a command, and returns its reply when its changes are durable. If the command is
    /// refused for load, the metrics count the refusal under `method`.
    async fn submit(
        &self,
        config: &ActiveConfig,
        method: &'static str,
        caller: Caller,
        command: Command,
    ) -> Result<Reply, Status> {
        self.reply(config, method, self.0.committer.submit(caller, command).await)
    }

    fn reply(&self, config: &ActiveConfig, method: &'static str, decision: Decision) -> Result<Reply, Status> {
        let decided = decision.map_err(|refusal| {
            if matches!(refusal, CommitterRefusal::Overloaded { .. }) {
                self.0.metrics.shed(method);
            }
            errors::refused(&refusal)
        })?;
        decided.map_err(|rejection| self.0.reject(config, &rejection))
    }

    async fn settle(
        &self,
        (permit, config): (Permit, Arc<ActiveConfig>),
        cell_id: i64,
        lease: Option<Uuid>,
        outcome: Outcome,
    ) -> Result<(), Status> {
        let cell = allowed_cell(&permit, cell_id)?;
        let lease = lease.unwrap_or_default().value;
        let settle =
            config.rules.settle(cell, &lease, outcome).map_err(|rejection| self.0.reject(&config, &rejection))?;
        let method = match outcome {
            Outcome::Committed => "CommitUpdate",
            Outcome::RolledBack => "RollbackUpdate",
        };
        self.submit(&config, method, permit.caller(), Command::Settle(settle)).await?;
        Ok(())
    }
}

#[async_trait]
impl ClaimService for ClaimsHandler {
    async fn get_cells(&self, request: Request<GetCellsRequest>) -> Result<Response<GetCellsResponse>, Status> {
        let (_, config) = admitted(&request)?;
        Ok(Response::new(config.all_cells()))
    }

    async fn get_record(&self, request: Request<GetRecordRequest>) -> Result<Response<GetRecordResponse>, Status> {
        let (_, config) = admitted(&request)?;
        let request = request.into_inner();
        let (bucket_type, value) = bucket(&config, request.bucket, request.claim.as_ref())?;
        let key = self.0.bucket_key(&config.rules, bucket_type, value)?;
        let claims = self.0.claims(std::slice::from_ref(&key)).await?;
        let claim =
            claims.into_iter().flatten().next().ok_or_else(|| errors::not_found("no cell claims this bucket"))?;
        let cell_info = config.cell(claim.owner);
        Ok(Response::new(GetRecordResponse { record: Some(record(&config, &key, claim)), cell_info }))
    }

    async fn begin_update(
        &self,
        request: Request<BeginUpdateRequest>,
    ) -> Result<Response<BeginUpdateResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let cell_id = request.get_ref().cell_id;
        let cell = allowed_cell(&permit, cell_id)?;
        let key = idempotency_key(request.metadata())?;
        let lease = LeaseId(uuid::Uuid::now_v7());
        let begin = convert::begin(request.into_inner(), &config.rules, cell, key.as_deref(), lease)
            .map_err(|rejection| self.0.reject(&config, &rejection))?;
        let (decision, undelivered) = self.0.committer.begin(permit.caller(), begin).await;
        let Reply::Begun(begun) = self.reply(&config, "BeginUpdate", decision)? else {
            return Err(errors::internal("a begin got the reply of another command"));
        };
        let mut response = Response::new(BeginUpdateResponse { cell_id, lease_uuid: convert::uuid(begun.lease) });
        response.metadata_mut().insert(FENCE, begun.fence.0.into());
        if let Some(undelivered) = undelivered {
            response.extensions_mut().insert(Arc::new(undelivered));
        }
        Ok(response)
    }

    async fn commit_update(
        &self,
        request: Request<CommitUpdateRequest>,
    ) -> Result<Response<CommitUpdateResponse>, Status> {
        let admitted = admitted(&request)?;
        let CommitUpdateRequest { cell_id, lease_uuid } = request.into_inner();
        self.settle(admitted, cell_id, lease_uuid, Outcome::Committed).await?;
        Ok(Response::new(CommitUpdateResponse {}))
    }

    async fn rollback_update(
        &self,
        request: Request<RollbackUpdateRequest>,
    ) -> Result<Response<RollbackUpdateResponse>, Status> {
        let admitted = admitted(&request)?;
        let RollbackUpdateRequest { cell_id, lease_uuid } = request.into_inner();
        self.settle(admitted, cell_id, lease_uuid, Outcome::RolledBack).await?;
        Ok(Response::new(RollbackUpdateResponse {}))
    }

    async fn list_leases(&self, request: Request<ListLeasesRequest>) -> Result<Response<ListLeasesResponse>, Status> {
        let leases = self.0.outstanding_leases("ListLeases", request).await?;
        Ok(leases.map(|page| ListLeasesResponse {
            leases: page.leases.iter().map(convert::lease_record).collect(),
            next: page.next,
        }))
    }

    async fn list_records(
        &self,
        request: Request<ListRecordsRequest>,
    ) -> Result<Response<ListRecordsResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let cell = allowed_cell(&permit, request.get_ref().cell_id)?;
        let sharer = list_sharer(&permit.caller(), cell);
        let call = ListCall::of("ListRecords", sharer, &request);
        let request = request.into_inner();
        config.rules.check_cell(cell).map_err(|rejection| self.0.reject(&config, &rejection))?;
        let source_type = request.source_type;
        let query = RecordQuery::parse(
            cell,
            SourceType(source_type),
            bucket_types(request.bucket_types, request.claim_types).map_err(errors::invalid)?,
            SourceId::from_bytes(&request.source_id_gt),
            SourceId::from_bytes(&request.source_id_lte),
        )
        .map_err(|rejection| self.0.reject(&config, &rejection))?;
        let read_at = self.0.committer.clock().now();
        let page = self.0.list(&call, |store, caller| read_records(store, query, caller)).await?;
        let damaged = page.damaged;
        if damaged > 0 {
            tracing::error!(damaged, source_type, "a list leaves out damaged rows: export the rest with `--salvage`");
            self.0.metrics.damaged(damaged);
        }
        if page.is_index_damaged {
            self.0.metrics.damaged(1);
        }
        let records = page.records.into_iter().map(|row| record(&config, &row.key, row.claim)).collect();
        let mut response = list_response(ListRecordsResponse { records, truncated: page.truncated }, read_at);
        if damaged > 0 {
            response.metadata_mut().insert(DAMAGED, (damaged as u64).into());
        }
        Ok(response)
    }
}

/// Returns the bucket types that a `ListRecords` request names. A claim type has the same number as
/// its bucket type, so a request may fill either field, or both if they are equal.
/// Returns the idempotency key of a begin, or the status of a call that has two keys or an
/// unreadable one.
fn idempotency_key(metadata: &MetadataMap) -> Result<Option<String>, Status> {
    let mut keys = metadata.get_all(IDEMPOTENCY_KEY).iter();
    match (keys.next().map(|key| key.to_str()), keys.next()) {
        (None, _) => Ok(None),
        (Some(Ok(key)), None) => Ok(Some(key.to_owned())),
        (Some(Ok(_)), Some(_)) => Err(errors::invalid("the call has two idempotency keys")),
        (Some(Err(_)), _) => Err(errors::invalid("the idempotency key is not printable ASCII")),
    }
}

fn bucket_types(buckets: Vec<i32>, claims: Vec<i32>) -> Result<BTreeSet<BucketType>, convert::Malformed> {
    let set = |numbers: Vec<i32>| numbers.into_iter().map(BucketType).collect::<BTreeSet<_>>();
    let (buckets, claims) = (set(buckets), set(claims));
    if !buckets.is_empty() && !claims.is_empty() && buckets != claims {
        return Err("`bucket_types` and `claim_types` disagree");
    }
    Ok(if buckets.is_empty() { claims } else { buckets })
}

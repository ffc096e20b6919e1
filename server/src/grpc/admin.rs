//! The service `AdminService`: lists the tables from which a cell has claims and drops them (B26), and
//! lists the outstanding leases with their organizations. Reloads the configuration.

use std::collections::BTreeSet;
use std::sync::Arc;

use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::cell::CellId;
use leasehold_core::claim::{ClaimState, SourceId, SourceType};
use leasehold_core::command::{Command, Reply};
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::query::{RecordPart, RecordPosition, RecordScan};
use leasehold_core::rejection::Reason;
use leasehold_core::update::Settle;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::ListLeasesRequest;
use leasehold_proto::leasehold::v1::admin_service_server::AdminService;
use leasehold_proto::leasehold::v1::{
    ClaimPosition, DropClaimsRequest, DropClaimsResponse, ListOutstandingLeasesResponse, ListTablesRequest,
    ListTablesResponse, ReloadConfigurationRequest, ReloadConfigurationResponse,
};
use tonic::{Request, Response, Status, async_trait};

use super::failed_reads::Read;
use super::list_permits::list_sharer;
use super::lists::{ListCall, ListFailure, MAX_DROPPED_BYTES};
use super::{Services, admitted, convert, errors};
use crate::active_config::ActiveConfig;
use crate::committer::{CommitterRefusal, Decision};
use crate::identity::Caller;

/// The most claims that one call of `DropClaims` looks at.
const MAX_DROPPED: usize = 1_000;

/// The reasons for which a drop leaves its claims to a later call: the cell has just changed one.
const CHANGED: [Reason; 4] = [Reason::NotOwner, Reason::ClaimNotFound, Reason::ClaimChanged, Reason::ClaimBusy];

/// The handlers of `AdminService`.
#[derive(Clone)]
pub struct AdminHandler(pub Arc<Services>);

impl AdminHandler {
    async fn next_claims(&self, call: &ListCall, scan: RecordScan) -> Result<RecordPart, Status> {
        self.0
            .list(call, async move |store, _| {
                store.records(scan.clone()).await.map_err(|error| ListFailure::Store(error, Read::Records(scan)))
            })
            .await
    }

    /// Destroys claims in one update. Returns their number: 0 if the cell has just changed one.
    async fn destroy(
        &self,
        config: &ActiveConfig,
        caller: Caller,
        cell: CellId,
        keys: Vec<BucketKey>,
    ) -> Result<usize, Status> {
        let claims = keys.len();
        let begin = config.rules.drop_claims(cell, keys, LeaseId(uuid::Uuid::now_v7()));
        let begin = begin.map_err(|rejection| self.0.reject(config, &rejection))?;
        let (decision, undelivered) = self.0.committer.begin_drop(caller.clone(), begin).await;
        if matches!(&decision, Ok(Err(rejection)) if CHANGED.contains(&rejection.reason())) {
            return Ok(0);
        }
        let Reply::Begun(begun) = self.decided(config, decision)? else {
            return Err(errors::internal("a begin got the reply of another command"));
        };
        let commit = Settle { cell, lease: begun.lease, outcome: Outcome::Committed };
        let committed = self.0.committer.submit(caller, Command::Settle(commit)).await;
        self.decided(config, committed)?;
        // If this call ends before the commit, the lease is rolled back.
        if let Some(undelivered) = undelivered {
            undelivered.hand_on();
        }
        Ok(claims)
    }

    fn decided(&self, config: &ActiveConfig, decision: Decision) -> Result<Reply, Status> {
        let decided = decision.map_err(|refusal| {
            if matches!(refusal, CommitterRefusal::Overloaded { .. }) {
                self.0.metrics.shed("DropClaims");
            }
            errors::refused(&refusal)
        })?;
        decided.map_err(|rejection| self.0.reject(config, &rejection))
    }
}

/// Returns the scan for the claims that a call of `DropClaims` looks at.
fn scan_of(request: DropClaimsRequest) -> Result<RecordScan, Status> {
    let limit = usize::try_from(request.limit).unwrap_or(0);
    if !(1..=MAX_DROPPED).contains(&limit) {
        return Err(errors::invalid("`limit` is not from 1 to 1,000"));
    }
    let after = match request.after {
        None => RecordPosition::Source(SourceId::default()),
        Some(ClaimPosition { source_id, bucket_type, canonical }) => {
            let key = BucketKey { bucket_type: BucketType(bucket_type), canonical: canonical.into() };
            RecordPosition::Claim((SourceId::from_bytes(&source_id), key))
        }
    };
    Ok(RecordScan {
        cell: CellId(request.cell_id),
        source_type: SourceType(request.source_type),
        bucket_types: BTreeSet::new(),
        after,
        source_id_lte: SourceId::default(),
        limit,
        max_bytes: MAX_DROPPED_BYTES,
    })
}

#[async_trait]
impl AdminService for AdminHandler {
    async fn list_tables(&self, request: Request<ListTablesRequest>) -> Result<Response<ListTablesResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let cell = CellId(request.get_ref().cell_id);
        let call = ListCall::of("ListTables", list_sharer(&permit.caller(), cell), &request);
        config.rules.check_cell(cell).map_err(|rejection| self.0.reject(&config, &rejection))?;
        let tables = self
            .0
            .list(&call, async move |store, _| {
                store.tables(cell).await.map_err(|error| ListFailure::Store(error, Read::Tables(cell)))
            })
            .await?;
        Ok(Response::new(ListTablesResponse { source_types: tables.into_iter().map(|table| table.0).collect() }))
    }

    async fn drop_claims(&self, request: Request<DropClaimsRequest>) -> Result<Response<DropClaimsResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let (caller, cell) = (permit.caller(), CellId(request.get_ref().cell_id));
        let call = ListCall::of("DropClaims", list_sharer(&caller, cell), &request);
        let request = request.into_inner();
        let is_dry_run = request.dry_run;
        config.rules.check_cell(cell).map_err(|rejection| self.0.reject(&config, &rejection))?;
        let part = self.next_claims(&call, scan_of(request)?).await?;
        let resting = |state: &ClaimState| matches!(state, ClaimState::Active(_));
        let rows = part.rows.into_iter().filter(|row| is_dry_run || resting(&row.claim.state));
        let keys: Vec<_> = rows.map(|row| row.key).collect();
        let claims = match keys.len() {
            counted if is_dry_run || counted == 0 => counted,
            _ => self.destroy(&config, caller, cell, keys).await?,
        };
        let next = part.next.map(|(id, key)| ClaimPosition {
            source_id: id.as_bytes().to_vec(),
            bucket_type: key.bucket_type.0,
            canonical: key.canonical.to_string(),
        });
        Ok(Response::new(DropClaimsResponse { claims: i64::try_from(claims).unwrap_or(i64::MAX), next }))
    }

    async fn list_outstanding_leases(
        &self,
        request: Request<ListLeasesRequest>,
    ) -> Result<Response<ListOutstandingLeasesResponse>, Status> {
        let leases = self.0.outstanding_leases("ListOutstandingLeases", request).await?;
        Ok(leases.map(|page| ListOutstandingLeasesResponse {
            leases: page.leases.iter().map(convert::outstanding_lease).collect(),
            next: page.next,
        }))
    }

    async fn reload_configuration(
        &self,
        request: Request<ReloadConfigurationRequest>,
    ) -> Result<Response<ReloadConfigurationResponse>, Status> {
        let (permit, _) = admitted(&request)?;
        tracing::info!(caller = %permit.caller(), "a call asks for a reload of the configuration");
        let outcome = self.0.reloads.request().await.map_err(errors::no_reload)?;
        let change = outcome.map_err(|refused| errors::config_refused(&refused))?;
        let (changed, kept_until_restart) = (change.changed.into(), change.kept_until_restart.into());
        Ok(Response::new(ReloadConfigurationResponse { changed, kept_until_restart }))
    }
}

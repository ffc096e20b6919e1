//! The service `AdminService`: lists the tables from which a cell has claims (B26), and the
//! outstanding leases with their organizations.

use std::sync::Arc;

use leasehold_core::cell::CellId;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::ListLeasesRequest;
use leasehold_proto::leasehold::v1::admin_service_server::AdminService;
use leasehold_proto::leasehold::v1::{ListOutstandingLeasesResponse, ListTablesRequest, ListTablesResponse};
use tonic::{Request, Response, Status, async_trait};

use super::failed_reads::Read;
use super::list_permits::Sharer;
use super::lists::{ListCall, ListFailure, SMALL_PAGE_BYTES};
use super::{Services, admitted, convert};

/// The handlers of `AdminService`.
#[derive(Clone)]
pub struct AdminHandler(pub Arc<Services>);

#[async_trait]
impl AdminService for AdminHandler {
    async fn list_tables(&self, request: Request<ListTablesRequest>) -> Result<Response<ListTablesResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let cell = CellId(request.get_ref().cell_id);
        let call = ListCall::of("ListTables", SMALL_PAGE_BYTES, Sharer::of(&permit.caller(), cell), &request);
        config.rules.check_cell(cell).map_err(|rejection| self.0.reject(&config, &rejection))?;
        let tables = self
            .0
            .list(&call, async move |store, _| {
                store.tables(cell).await.map_err(|error| ListFailure::Store(error, Read::Tables(cell)))
            })
            .await?;
        Ok(Response::new(ListTablesResponse { source_types: tables.into_iter().map(|table| table.0).collect() }))
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
}

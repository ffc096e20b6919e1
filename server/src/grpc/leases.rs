//! Pages of a cell's outstanding leases, for two calls. `ListLeases` belongs to the contract of
//! cell clients; `ListOutstandingLeases` also has fields that this contract lacks.

use std::sync::Arc;

use leasehold_core::query::{LeaseQuery, LeaseRow};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::ListLeasesRequest;
use prost_types::Any;
use tonic::{Request, Response, Status};

use super::failed_reads::Read;
use super::list_permits::list_sharer;
use super::lists::{ListCall, ListFailure, list_response};
use super::{Services, admitted, allowed_cell, convert, errors};
use crate::store::StoreReader;

/// A page of outstanding leases.
pub(super) struct OutstandingLeases {
    /// The leases of the page, in the order of their begins.
    pub(super) leases: Vec<LeaseRow>,
    /// The cursor of the next page; `None` on the last page.
    pub(super) next: Option<Any>,
}

impl Services {
    /// Reads the page that a request asks for (B31). `method` is the call's label in the metrics.
    pub(super) async fn outstanding_leases(
        &self,
        method: &'static str,
        request: Request<ListLeasesRequest>,
    ) -> Result<Response<OutstandingLeases>, Status> {
        let (permit, config) = admitted(&request)?;
        let cell = allowed_cell(&permit, request.get_ref().cell_id)?;
        let call = ListCall::of(method, list_sharer(&permit.caller(), cell), &request);
        let request = request.into_inner();
        config.rules.check_cell(cell).map_err(|rejection| self.reject(&config, &rejection))?;
        let created_after =
            request.created_after.as_ref().map(convert::lower_bound).transpose().map_err(errors::invalid)?;
        let cursor = request.next.as_ref().map(|next| convert::read_cursor(request.cell_id, next));
        let cursor = cursor.transpose().map_err(errors::invalid)?;
        let query = LeaseQuery::parse(cell, request.limit, created_after, cursor)
            .map_err(|rejection| self.reject(&config, &rejection))?;
        let read_at = self.committer.clock().now();
        let scan = query.scan();
        let list = async move |store: Arc<dyn StoreReader>, _| {
            store.leases(scan).await.map_err(|error| ListFailure::Store(error, Read::Leases(scan)))
        };
        let rows = self.list(&call, list).await?;
        let page = query.page(rows);
        let next = page.next.map(|position| convert::cursor(request.cell_id, position));
        Ok(list_response(OutstandingLeases { leases: page.leases, next }, read_at))
    }
}

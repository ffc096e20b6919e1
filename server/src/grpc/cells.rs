//! The service `CellService`: returns one cell's configuration.

use std::sync::Arc;

use leasehold_core::cell::CellId;
use leasehold_proto::gitlab::cells::topology_service::cell_service_server::CellService;
use leasehold_proto::gitlab::cells::topology_service::{GetCellRequest, GetCellResponse};
use tonic::{Request, Response, Status, async_trait};

use super::{Services, admitted, errors};

/// The handlers of `CellService`.
#[derive(Clone)]
pub struct CellHandler(pub Arc<Services>);

#[async_trait]
impl CellService for CellHandler {
    async fn get_cell(&self, request: Request<GetCellRequest>) -> Result<Response<GetCellResponse>, Status> {
        let (_, config) = admitted(&request)?;
        let cell = config.cell(CellId(request.into_inner().cell_id));
        let cell_info = cell.ok_or_else(|| errors::not_found("no cell has this id"))?;
        Ok(Response::new(GetCellResponse { cell_info: Some(cell_info) }))
    }
}

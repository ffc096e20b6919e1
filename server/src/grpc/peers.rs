//! The service `PeerService`: other servers of the store ring this one.

use std::sync::Arc;

use leasehold_proto::leasehold::peers::v1::peer_service_server::PeerService;
use leasehold_proto::leasehold::peers::v1::{RingRequest, RingResponse};
use tonic::{Request, Response, Status, async_trait};

use super::{Services, admitted};
use crate::metrics::Ring;

/// The handlers of `PeerService`.
#[derive(Clone)]
pub struct PeerHandler(pub Arc<Services>);

#[async_trait]
impl PeerService for PeerHandler {
    async fn ring(&self, request: Request<RingRequest>) -> Result<Response<RingResponse>, Status> {
        admitted(&request)?;
        self.0.metrics.rung(Ring::Received);
        self.0.locks.ring();
        Ok(Response::new(RingResponse {}))
    }
}

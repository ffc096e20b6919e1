//! The service `PeerService`: other servers of the store ring this one.

use std::sync::Arc;

use leasehold_core::queue::QueuePath;
use leasehold_proto::leasehold::peers::v1::peer_service_server::PeerService;
use leasehold_proto::leasehold::peers::v1::{ReadyLanes, RingRequest, RingResponse};
use tonic::{Request, Response, Status, async_trait};

use super::{Services, admitted, errors};
use crate::metrics::Ring;

/// The most queues of a ring. Their longest names fit into a small request.
pub const MAX_RUNG_QUEUES: usize = 12;

/// The handlers of `PeerService`.
#[derive(Clone)]
pub struct PeerHandler(pub Arc<Services>);

#[async_trait]
impl PeerService for PeerHandler {
    async fn ring(&self, request: Request<RingRequest>) -> Result<Response<RingResponse>, Status> {
        admitted(&request)?;
        let RingRequest { ready_lanes } = request.into_inner();
        if ready_lanes.len() > MAX_RUNG_QUEUES {
            return Err(errors::over_limit("ready_lanes", MAX_RUNG_QUEUES, Some(ready_lanes.len())));
        }
        if ready_lanes.is_empty() {
            self.0.metrics.rung_for_locks(Ring::Received);
            self.0.locks.ring();
        } else {
            self.0.metrics.rung_for_queues(Ring::Received);
        }
        let woken_calls = ready_lanes.iter().map(|ready| self.wake(ready)).collect();
        Ok(Response::new(RingResponse { woken_calls }))
    }
}

impl PeerHandler {
    /// Wakes an idle call for each lane, and returns their number. A name that is no queue's wakes none.
    fn wake(&self, ReadyLanes { queue, lanes }: &ReadyLanes) -> u32 {
        QueuePath::parse(queue).map_or(0, |queue| self.0.locks.queues.takers.wake_idle(&queue, *lanes))
    }
}

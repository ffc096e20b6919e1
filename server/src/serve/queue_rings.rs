//! The rings for workers: if lanes become ready and no call of this server is idle, it calls the other servers of the
//! store, each of which wakes idle calls of its own.
//!
//! A ring decides nothing. If it is lost, the workers find the lanes when they look by themselves (Q04).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::queue::QueuePath;
use leasehold_proto::leasehold::peers::v1::{ReadyLanes, RingRequest};
use tokio::time::{Instant, sleep, timeout};

use super::ring_client::{IDLE, RETRY_AFTER_FAILURE, RingClient};
use crate::active_config::CurrentConfig;
use crate::grpc::{MAX_RUNG_QUEUES, Services};
use crate::metrics::Ring;

/// The most servers that are rung for the same lanes.
const MAX_RUNG: usize = 8;
/// The longest time of a ring, with the connection that it may need. The servers behind wait for this time.
const RING_TIMEOUT: Duration = Duration::from_millis(250);
/// The pause after a ring that has woken a call. A lane that becomes ready meanwhile waits for the next ring.
const PAUSE: Duration = Duration::from_millis(5);
/// The pause after a ring that has woken no call, so that busy workers cost few rings.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// The rings of this server to the workers of others.
pub(super) struct QueueRinger {
    services: Arc<Services>,
    current: Arc<CurrentConfig>,
    // The servers that have woken a call lately come first.
    peers: VecDeque<QueuePeer>,
}

struct QueuePeer {
    client: RingClient,
    // The time before which the server is not rung again, since it did not answer.
    retry_at: Option<Instant>,
}

impl QueueRinger {
    pub(super) fn new(services: Arc<Services>, current: Arc<CurrentConfig>) -> Self {
        Self { services, current, peers: VecDeque::new() }
    }

    /// Rings for the lanes that have become ready. Never returns.
    pub(super) async fn run(mut self) {
        let unserved = &self.services.clone().locks.queues.unserved;
        loop {
            let Ok(lanes) = timeout(IDLE, unserved.next(MAX_RUNG_QUEUES)).await else {
                self.peers.clear();
                continue;
            };
            self.update_peers(unserved.peers());
            let lanes = lanes.into_iter().map(|(queue, lanes)| ready_lanes(&queue, lanes)).collect();
            let has_woken = self.ring(lanes).await;
            sleep(if has_woken { PAUSE } else { BUSY_PAUSE }).await;
        }
    }

    /// Keeps the servers that can be rung, and adds new ones.
    fn update_peers(&mut self, mut addresses: BTreeSet<String>) {
        self.peers.retain(|peer| addresses.remove(peer.client.address()));
        let new = addresses.into_iter().map(|address| RingClient::new(address, self.current.clone()));
        self.peers.extend(new.map(|client| QueuePeer { client, retry_at: None }));
    }

    /// Rings one server after the other until each lane has woken a call. Returns false if no call was woken.
    async fn ring(&mut self, mut lanes: Vec<ReadyLanes>) -> bool {
        let (mut successful, mut others) = (VecDeque::new(), VecDeque::new());
        while successful.len() + others.len() < MAX_RUNG
            && !lanes.is_empty()
            && let Some(position) = self.peers.iter().position(QueuePeer::is_reachable)
            && let Some(mut peer) = self.peers.remove(position)
        {
            match self.ring_one(&mut peer, &mut lanes).await {
                true => successful.push_back(peer),
                false => others.push_back(peer),
            }
        }
        let has_woken = !successful.is_empty();
        successful.append(&mut self.peers);
        successful.append(&mut others);
        self.peers = successful;
        has_woken
    }

    /// Rings one server, and removes the lanes for which it has woken calls. Returns true if it has woken any.
    async fn ring_one(&self, peer: &mut QueuePeer, lanes: &mut Vec<ReadyLanes>) -> bool {
        let request = RingRequest { ready_lanes: lanes.clone() };
        let Some(response) = peer.client.ring(request, RING_TIMEOUT).await else {
            self.services.metrics.rung_for_queues(Ring::Failed);
            peer.retry_at = Some(Instant::now() + RETRY_AFTER_FAILURE);
            return false;
        };
        self.services.metrics.rung_for_queues(Ring::Sent);
        for (ready, woken) in lanes.iter_mut().zip(&response.woken_calls) {
            ready.lanes = ready.lanes.saturating_sub(*woken);
        }
        lanes.retain(|ready| ready.lanes > 0);
        response.woken_calls.iter().any(|woken| *woken > 0)
    }
}

impl QueuePeer {
    fn is_reachable(&self) -> bool {
        self.retry_at.is_none_or(|until| Instant::now() >= until)
    }
}

fn ready_lanes(queue: &QueuePath, lanes: u32) -> ReadyLanes {
    ReadyLanes { queue: queue.to_string(), lanes }
}

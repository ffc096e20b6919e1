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

use super::peers::{IDLE, Peer, REST};
use crate::active_config::CurrentConfig;
use crate::grpc::{MAX_RUNG_QUEUES, Services};
use crate::metrics::Ring;

/// The most servers that are rung for the same lanes.
const MAX_RUNG: usize = 8;
/// The pause after a ring that has woken no call, so that busy workers cost few rings. A lane that becomes ready
/// meanwhile waits for the next ring.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// The rings of this server to the workers of others.
pub(super) struct QueueRinger {
    services: Arc<Services>,
    current: Arc<CurrentConfig>,
    // Those that have woken a call lately come first.
    peers: VecDeque<QueuePeer>,
}

struct QueuePeer {
    peer: Peer,
    // The time until which the server is left alone, since it did not answer.
    rests_until: Option<Instant>,
}

impl QueueRinger {
    pub(super) fn new(services: Arc<Services>, current: Arc<CurrentConfig>) -> Self {
        Self { services, current, peers: VecDeque::new() }
    }

    /// Rings for the lanes that have become ready. Never returns.
    pub(super) async fn run(mut self) {
        let elsewhere = &self.services.clone().locks.queues.elsewhere;
        loop {
            let Ok(lanes) = timeout(IDLE, elsewhere.next(MAX_RUNG_QUEUES)).await else {
                self.peers.clear();
                continue;
            };
            self.follow(elsewhere.peers());
            let lanes = lanes.into_iter().map(|(queue, lanes)| ready_lanes(&queue, lanes)).collect();
            if !self.ring(lanes).await {
                sleep(BUSY_PAUSE).await;
            }
        }
    }

    /// Keeps the servers that can be rung, and adds new ones.
    fn follow(&mut self, mut addresses: BTreeSet<String>) {
        self.peers.retain(|rung| addresses.remove(rung.peer.address()));
        let new = addresses.into_iter().map(|address| Peer::new(address, self.current.clone()));
        self.peers.extend(new.map(|peer| QueuePeer { peer, rests_until: None }));
    }

    /// Rings one server after the other until each lane has woken a call. Returns false if no call was woken.
    async fn ring(&mut self, mut lanes: Vec<ReadyLanes>) -> bool {
        let (mut successful, mut others) = (VecDeque::new(), VecDeque::new());
        while successful.len() + others.len() < MAX_RUNG
            && !lanes.is_empty()
            && let Some(position) = self.peers.iter().position(QueuePeer::is_reachable)
            && let Some(mut rung) = self.peers.remove(position)
        {
            match self.ring_one(&mut rung, &mut lanes).await {
                true => successful.push_back(rung),
                false => others.push_back(rung),
            }
        }
        let has_woken = !successful.is_empty();
        successful.append(&mut self.peers);
        successful.append(&mut others);
        self.peers = successful;
        has_woken
    }

    /// Rings one server, and removes the lanes for which it has woken calls. Returns true if it has woken any.
    async fn ring_one(&self, rung: &mut QueuePeer, lanes: &mut Vec<ReadyLanes>) -> bool {
        let Some(response) = rung.peer.ring(RingRequest { ready_lanes: lanes.clone() }).await else {
            self.services.metrics.rung_for_queues(Ring::Failed);
            rung.rests_until = Some(Instant::now() + REST);
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
        self.rests_until.is_none_or(|until| Instant::now() >= until)
    }
}

fn ready_lanes(queue: &QueuePath, lanes: u32) -> ReadyLanes {
    ReadyLanes { queue: queue.to_string(), lanes }
}

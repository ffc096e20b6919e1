//! The rings of a server: if it writes a grant for which a call at another server waits, it calls that
//! server, which then reads its grants at once.
//!
//! A ring decides nothing. If it is lost, the waiting server reads the grant after its usual pause.

use std::sync::Arc;
use std::time::Duration;

use leasehold_proto::leasehold::peers::v1::RingRequest;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::ring_client::{IDLE, MAX_PEERS, RETRY_AFTER_FAILURE, RingClient};
use crate::active_config::CurrentConfig;
use crate::grpc::Services;
use crate::metrics::{Metrics, Ring};
use crate::store::SharedLocks;

/// The longest time of a ring.
const RING_TIMEOUT: Duration = Duration::from_secs(1);

/// The bell of one other server, and the task that rings that server.
struct Bell {
    // Keeps at most one permit, so that all rings during a call become one.
    wanted: Arc<Notify>,
    task: AbortHandle,
}

/// The rings of this server to all others.
pub(super) struct Ringer {
    services: Arc<Services>,
    shared: Arc<dyn SharedLocks>,
    current: Arc<CurrentConfig>,
    bells: FxHashMap<String, Bell>,
    // If it is dropped, its tasks end.
    tasks: JoinSet<()>,
}

impl Ringer {
    pub(super) fn new(services: Arc<Services>, shared: Arc<dyn SharedLocks>, current: Arc<CurrentConfig>) -> Self {
        Self { services, shared, current, bells: FxHashMap::default(), tasks: JoinSet::new() }
    }

    /// Rings the servers whose calls wait for grants that this server has written. Never returns.
    pub(super) async fn run(mut self) {
        loop {
            let asks = self.services.locks.granted_elsewhere().await;
            match self.shared.attendants(&asks, MAX_PEERS).await {
                Ok(addresses) => addresses.into_iter().for_each(|address| self.ring(address)),
                Err(error) => tracing::debug!(%error, "the servers that wait for grants can't be read"),
            }
        }
    }

    fn ring(&mut self, address: String) {
        self.bells.retain(|_, bell| !bell.task.is_finished());
        while self.tasks.try_join_next().is_some() {}
        if let Some(bell) = self.bells.get(&address) {
            bell.wanted.notify_one();
        } else if self.bells.len() < MAX_PEERS {
            let wanted = Arc::new(Notify::new());
            wanted.notify_one();
            let client = RingClient::new(address.clone(), self.current.clone());
            let peer = LockPeer { client, wanted: wanted.clone(), metrics: self.services.metrics.clone() };
            let task = self.tasks.spawn(peer.run());
            self.bells.insert(address, Bell { wanted, task });
        }
    }
}

/// Another server, which one task rings.
struct LockPeer {
    client: RingClient,
    wanted: Arc<Notify>,
    metrics: Arc<Metrics>,
}

impl LockPeer {
    /// Rings whenever a ring is wanted, until none has been wanted for long.
    async fn run(mut self) {
        while timeout(IDLE, self.wanted.notified()).await.is_ok() {
            match self.client.ring(RingRequest::default(), RING_TIMEOUT).await {
                Some(_) => self.metrics.rung_for_locks(Ring::Sent),
                None => {
                    self.metrics.rung_for_locks(Ring::Failed);
                    sleep(RETRY_AFTER_FAILURE).await;
                }
            }
        }
    }
}

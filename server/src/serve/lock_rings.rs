//! The rings of a server: if it writes a grant for which a call at another server waits, it calls that
//! server, which then reads its grants at once.
//!
//! A ring decides nothing. If it is lost, the waiting server reads the grant after its usual pause.

use std::sync::Arc;
use std::time::Duration;

use leasehold_proto::leasehold::peers::v1::RingRequest;
use leasehold_proto::leasehold::peers::v1::peer_service_client::PeerServiceClient;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::active_config::CurrentConfig;
use crate::config::{TlsConfig, read_file};
use crate::grpc::Services;
use crate::metrics::{Metrics, Ring};
use crate::store::SharedLocks;

/// The most servers that are rung.
const MAX_PEERS: usize = 64;
/// The longest time of a ring, with the connection that it may need.
const RING_TIMEOUT: Duration = Duration::from_secs(1);
/// The time for which a server that did not answer a ring is left alone.
const REST: Duration = Duration::from_secs(5);
/// The time without a ring after which the connection to a server is closed.
const IDLE: Duration = Duration::from_secs(600);

type RingError = Box<dyn std::error::Error + Send + Sync>;

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
            let (current, metrics) = (self.current.clone(), self.services.metrics.clone());
            let peer = Peer {
                address: address.clone(),
                wanted: wanted.clone(),
                current,
                metrics,
                client: None,
                is_failing: false,
            };
            let task = self.tasks.spawn(peer.run());
            self.bells.insert(address, Bell { wanted, task });
        }
    }
}

/// Another server, which one task rings: one call at a time, over one connection.
struct Peer {
    address: String,
    wanted: Arc<Notify>,
    current: Arc<CurrentConfig>,
    metrics: Arc<Metrics>,
    client: Option<PeerServiceClient<Channel>>,
    // True if the last ring has failed.
    is_failing: bool,
}

impl Peer {
    /// Rings whenever a ring is wanted, until none has been wanted for long.
    async fn run(mut self) {
        while timeout(IDLE, self.wanted.notified()).await.is_ok() {
            match timeout(RING_TIMEOUT, self.ring()).await.unwrap_or_else(|late| Err(late.into())) {
                Ok(()) => {
                    self.metrics.rung(Ring::Sent);
                    self.is_failing = false;
                }
                Err(error) => {
                    self.metrics.rung(Ring::Failed);
                    self.log(&error);
                    sleep(REST).await;
                }
            }
        }
    }

    /// Logs a failed ring: the first one of several as a warning.
    fn log(&mut self, error: &RingError) {
        let (address, error) = (&self.address, error.as_ref());
        if std::mem::replace(&mut self.is_failing, true) {
            tracing::debug!(address, error, "another server can't be rung");
        } else {
            let advice = "another server can't be rung at its `locks.peer_address`, so that locks pass on to it later";
            tracing::warn!(address, error, "{advice}");
        }
    }

    /// Rings once. A failure ends the connection, so that the next one reads the certificates again.
    async fn ring(&mut self) -> Result<(), RingError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.connect().await?,
        };
        client.ring(RingRequest {}).await?;
        self.client = Some(client);
        Ok(())
    }

    async fn connect(&self) -> Result<PeerServiceClient<Channel>, RingError> {
        let endpoint = Endpoint::from_shared(self.address.clone())?;
        let tls = self.current.load().config.tls.clone();
        let endpoint = match tls {
            Some(tls) => endpoint.tls_config(tokio::task::spawn_blocking(move || tls_config(&tls)).await??)?,
            None => endpoint,
        };
        Ok(PeerServiceClient::new(endpoint.connect_lazy()))
    }
}

/// The TLS settings of a ring: the server's own certificate, and the authority of its clients.
fn tls_config(tls: &TlsConfig) -> std::io::Result<ClientTlsConfig> {
    let identity = Identity::from_pem(read_file(&tls.certificate)?, read_file(&tls.key)?);
    let authority = Certificate::from_pem(read_file(&tls.client_ca)?);
    Ok(ClientTlsConfig::new().identity(identity).ca_certificate(authority))
}

//! The calls of this server to the other servers of its store.

use std::sync::Arc;
use std::time::Duration;

use leasehold_proto::leasehold::peers::v1::peer_service_client::PeerServiceClient;
use leasehold_proto::leasehold::peers::v1::{RingRequest, RingResponse};
use tokio::time::timeout;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::active_config::CurrentConfig;
use crate::config::{TlsConfig, read_file};

/// The most servers that are rung.
pub(super) const MAX_PEERS: usize = 64;
/// The time for which a server that did not answer a ring is left alone.
pub(super) const RETRY_AFTER_FAILURE: Duration = Duration::from_secs(5);
/// The time without a ring after which the connection to a server is closed.
pub(super) const IDLE: Duration = Duration::from_secs(600);

type RingError = Box<dyn std::error::Error + Send + Sync>;

/// Another server, which is rung by one call at a time, over one connection.
pub(super) struct RingClient {
    address: String,
    current: Arc<CurrentConfig>,
    client: Option<PeerServiceClient<Channel>>,
    // True if the last ring has failed.
    is_failing: bool,
}

impl RingClient {
    pub(super) fn new(address: String, current: Arc<CurrentConfig>) -> Self {
        Self { address, current, client: None, is_failing: false }
    }

    /// Returns the address at which the server is rung.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Rings once, within a time that includes the connection that the ring may need. Returns the answer, or `None` after a
    /// failure, which is logged.
    pub(super) async fn ring(&mut self, request: RingRequest, at_most: Duration) -> Option<RingResponse> {
        match timeout(at_most, self.call(request)).await.unwrap_or_else(|late| Err(late.into())) {
            Ok(response) => {
                self.is_failing = false;
                Some(response)
            }
            Err(error) => {
                self.log(&error);
                None
            }
        }
    }

    /// Logs a failed ring: the first one of several as a warning.
    fn log(&mut self, error: &RingError) {
        let (address, error) = (&self.address, error.as_ref());
        if std::mem::replace(&mut self.is_failing, true) {
            tracing::debug!(address, error, "another server can't be rung");
        } else {
            let advice =
                "another server can't be rung at its `locks.peer_address`: locks and requests pass on to it later";
            tracing::warn!(address, error, "{advice}");
        }
    }

    /// A failure ends the connection, so that the next call reads the certificates again.
    async fn call(&mut self, request: RingRequest) -> Result<RingResponse, RingError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.connect().await?,
        };
        let response = client.ring(request).await?;
        self.client = Some(client);
        Ok(response.into_inner())
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

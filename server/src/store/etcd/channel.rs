//! The connections to the members of a cluster, in plain text or with TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::config::{EtcdConfig, EtcdPlace, member_host};
use crate::store::client_tls::ClientFiles;

/// The longest time to open a connection to a member, with TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The time after which a connection that is silent is asked if it still works. etcd closes those that ask more often
/// than every five seconds.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The longest time for the answer, after which the connection is opened again.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// The protocol of gRPC, as TLS names it (RFC 7301).
const PROTOCOL: &[u8] = b"h2";

/// The settings of encrypted connections. The files are read for each connection, so that a renewed
/// certificate needs no restart.
#[derive(Clone)]
pub(super) struct Tls(Arc<EtcdConfig>);

impl Tls {
    /// Returns the settings of encrypted connections, `None` if they are plain, after a first look at the
    /// files.
    ///
    /// # Errors
    /// A file can't be used, or plain text would leave the machine without consent.
    pub(super) fn of(settings: &EtcdConfig, place: &EtcdPlace) -> Result<Option<Self>, String> {
        let is_encrypted = settings.is_encrypted(place)?;
        let tls = Self(Arc::new(settings.clone()));
        tls.config()?;
        Ok(is_encrypted.then_some(tls))
    }

    fn config(&self) -> Result<rustls::ClientConfig, String> {
        let EtcdConfig { ca, certificate, key, .. } = &*self.0;
        let [ca, certificate, key] = [ca, certificate, key].map(|path| path.as_deref());
        let mut config = ClientFiles { table: "etcd", ca, certificate, key }.config()?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }

    /// Opens an encrypted connection to a member.
    async fn connect(self, address: String) -> io::Result<TokioIo<BufReader<TlsStream<TcpStream>>>> {
        let name = ServerName::try_from(member_host(&address).to_owned()).map_err(io::Error::other)?;
        let config = tokio::task::spawn_blocking(move || self.config()).await.map_err(io::Error::other)?;
        let config = Arc::new(config.map_err(io::Error::other)?);
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(TlsConnector::from(config).connect(name, stream).await?);
        // In TLS 1.3, a member refuses the client's certificate after the handshake. It is the first to write, so
        // that its first bytes tell if it has. A later write would only find a closed connection.
        stream.fill_buf().await?;
        Ok(TokioIo::new(stream))
    }
}

/// Returns the channel to a member, which connects at its first call, and again after each failure.
///
/// # Errors
/// The address can't be used.
pub(super) fn open(address: &str, tls: Option<Tls>) -> Result<Channel, String> {
    let unusable = |error: &dyn std::fmt::Display| format!("`{address}`: {error}");
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| unusable(&error))?;
    let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true).keep_alive_while_idle(true);
    let endpoint = endpoint.http2_keep_alive_interval(KEEPALIVE_INTERVAL).keep_alive_timeout(KEEPALIVE_TIMEOUT);
    let Some(tls) = tls else { return Ok(endpoint.connect_lazy()) };
    let origin = format!("https://{address}").parse::<Uri>().map_err(|error| unusable(&error))?;
    let address = address.to_owned();
    let connect = move |_: Uri| tls.clone().connect(address.clone());
    Ok(endpoint.origin(origin).connect_with_connector_lazy(service_fn(connect)))
}

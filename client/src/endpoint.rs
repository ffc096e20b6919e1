//! The server's address and the TLS files, which are checked before a call is sent.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Error as TransportError, Identity};

use crate::refusal::root_cause;

/// Time after which a silent connection is probed with a ping, to notice if a firewall dropped it.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Time within which a ping must be answered; otherwise the connection is closed.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// PEM files for an encrypted connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of the authorities that sign the server's certificate.
    pub ca: PathBuf,
    /// The caller's certificate and key. Without them the server answers NO_IDENTITY to every call.
    pub identity: Option<TlsIdentity>,
}

/// The caller's certificate and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The certificate chain, in PEM.
    pub certificate: PathBuf,
    /// The private key of the certificate, in PEM, without a password.
    pub key: PathBuf,
}

impl Tls {
    /// Returns settings that trust the certificate authorities of a file, without a certificate of
    /// the caller.
    #[must_use]
    pub fn new(ca: impl Into<PathBuf>) -> Self {
        Self { ca: ca.into(), identity: None }
    }

    /// Sets the caller's certificate and private key.
    #[must_use]
    pub fn with_identity(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { identity: Some(TlsIdentity { certificate: certificate.into(), key: key.into() }), ..self }
    }
}

/// One of the files that [`Tls`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PemFile {
    /// The file [`Tls::ca`].
    Ca,
    /// The file [`TlsIdentity::certificate`].
    Certificate,
    /// The file [`TlsIdentity::key`].
    Key,
}

impl PemFile {
    /// Returns the kind of the file's content, for messages: `certificate` or `private key`.
    #[must_use]
    pub const fn content(self) -> &'static str {
        match self {
            Self::Ca | Self::Certificate => "certificate",
            Self::Key => "private key",
        }
    }
}

/// Shows the name of the setting that names the file.
impl fmt::Display for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ca => "tls.ca",
            Self::Certificate => "tls.identity.certificate",
            Self::Key => "tls.identity.key",
        })
    }
}

/// The reason why the address or the TLS files of a server can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The text is not the address of a server.
    #[error("`{0}` is not a server address: use http://HOST:PORT or https://HOST:PORT")]
    Address(String),
    /// The connection to another machine would not be encrypted.
    #[error(
        "`{0}` is another machine, and the connection is not encrypted: use https:// and TLS files, or allow plaintext on a trusted network"
    )]
    Plaintext(String),
    /// TLS files are given for an http address.
    #[error("certificates need an encrypted connection: use https:// in `{0}`")]
    TlsWithoutHttps(String),
    /// The address is https, and no certificate authority is given.
    #[error("`{0}` needs a trusted certificate authority: name its PEM file in `tls.ca`")]
    NoAuthority(String),
    /// A TLS file cannot be read.
    #[error("cannot read `{}` for `{file}`: {error}", path.display())]
    Unreadable {
        /// The setting that names the file.
        file: PemFile,
        /// Path of the TLS file.
        path: PathBuf,
        /// The error of the operating system.
        error: String,
    },
    /// A TLS file has no certificate or private key in PEM form.
    #[error("`{}` for `{file}` has no {} in PEM: name another file", path.display(), file.content())]
    NotPem {
        /// The setting that names the file.
        file: PemFile,
        /// Path of the TLS file.
        path: PathBuf,
    },
    /// The TLS files do not fit together.
    #[error("cannot use the TLS files: {0}; use a certificate and its own private key")]
    Unusable(String),
}

/// Contents of the files of [`Tls`]. The type is not `Debug`, because one of the files is the
/// private key.
#[derive(Clone)]
pub(crate) struct TlsContents {
    pub(crate) ca: Vec<u8>,
    /// Contents of the caller's certificate file and private key file.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// The checked address of a server, and the contents of the TLS files.
#[derive(Clone)]
pub struct Endpoint {
    endpoint: tonic::transport::Endpoint,
    tls: Option<TlsContents>,
}

impl Endpoint {
    /// Checks the address `server` and reads the TLS files. An address without a scheme gets https
    /// if TLS files are given, and http if not. The connection may be unencrypted;
    /// [`Endpoint::require_encryption`] forbids that.
    ///
    /// # Errors
    /// The text is not an address, the TLS files do not fit its scheme, or a file is unusable.
    pub fn new(server: &str, tls: Option<&Tls>) -> Result<Self, EndpointError> {
        let url = match (server.contains("://"), tls) {
            (true, _) => server.to_owned(),
            (false, Some(_)) => format!("https://{server}"),
            (false, None) => format!("http://{server}"),
        };
        let endpoint = tonic::transport::Endpoint::from_shared(url.clone());
        let endpoint = endpoint.map_err(|_| EndpointError::Address(url.clone()))?;
        if !is_server_address(endpoint.uri()) {
            return Err(EndpointError::Address(url));
        }
        let is_https = endpoint.uri().scheme() == Some(&Scheme::HTTPS);
        let tls = match (is_https, tls) {
            (false, None) => None,
            (false, Some(_)) => return Err(EndpointError::TlsWithoutHttps(url)),
            (true, None) => return Err(EndpointError::NoAuthority(url)),
            (true, Some(tls)) => Some(read_files(tls)?),
        };
        Ok(Self { endpoint: configure(endpoint, tls.as_ref())?, tls })
    }

    /// Refuses an unencrypted connection to another machine.
    ///
    /// # Errors
    /// The address is http, and its host is neither `localhost` nor a loopback address.
    pub fn require_encryption(self) -> Result<Self, EndpointError> {
        if self.tls.is_none() && !is_loopback(self.host()) {
            return Err(EndpointError::Plaintext(self.url()));
        }
        Ok(self)
    }

    /// Connects to the server now.
    ///
    /// # Errors
    /// The server cannot be reached, or the TLS handshake fails. [`Endpoint::obstacle`] explains a
    /// failed handshake.
    pub async fn connect(&self) -> Result<Channel, TransportError> {
        self.endpoint.connect().await
    }

    /// Returns a channel that connects with its first call, and again after a broken connection.
    #[must_use]
    pub fn connect_lazy(&self) -> Channel {
        self.endpoint.connect_lazy()
    }

    /// Returns the server's address as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        let uri = self.endpoint.uri();
        let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        format!("{}://{authority}", uri.scheme_str().unwrap_or_default())
    }

    /// Returns the name or IP address of the server's host. An IPv6 address has no brackets.
    pub(crate) fn host(&self) -> &str {
        self.endpoint.uri().host().unwrap_or_default().trim_matches(['[', ']'])
    }

    pub(crate) fn port(&self) -> u16 {
        self.endpoint.uri().port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 })
    }

    pub(crate) fn tls(&self) -> Option<&TlsContents> {
        self.tls.as_ref()
    }
}

/// Shows the address only, because the private key must not appear in a log.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.url())
    }
}

/// Returns true if the URL has only the scheme http or https, a host and an optional port.
fn is_server_address(uri: &Uri) -> bool {
    let has_scheme = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&uri.scheme());
    let has_no_path = uri.path_and_query().is_none_or(|path| path == "/");
    has_scheme && has_no_path && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn configure(
    endpoint: tonic::transport::Endpoint,
    tls: Option<&TlsContents>,
) -> Result<tonic::transport::Endpoint, EndpointError> {
    let unusable = |error: TransportError| EndpointError::Unusable(root_cause(&error));
    let endpoint = endpoint
        .user_agent(concat!("leasehold/", env!("CARGO_PKG_VERSION")))
        .map_err(unusable)?
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    let Some(tls) = tls else { return Ok(endpoint) };
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
    let config = match &tls.identity {
        Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
        None => config,
    };
    endpoint.tls_config(config).map_err(unusable)
}

fn read_files(tls: &Tls) -> Result<TlsContents, EndpointError> {
    let ca = read_certificates(PemFile::Ca, &tls.ca)?;
    let identity = tls.identity.as_ref().map(read_identity).transpose()?;
    Ok(TlsContents { ca, identity })
}

fn read_identity(identity: &TlsIdentity) -> Result<(Vec<u8>, Vec<u8>), EndpointError> {
    let certificate = read_certificates(PemFile::Certificate, &identity.certificate)?;
    let key = read(PemFile::Key, &identity.key)?;
    match PrivateKeyDer::from_pem_slice(&key) {
        Ok(_) => Ok((certificate, key)),
        Err(_) => Err(EndpointError::NotPem { file: PemFile::Key, path: identity.key.clone() }),
    }
}

/// Reads a file of certificates, of which at least one must be valid. tonic skips invalid
/// certificates. Without this check, a connection with only invalid certificates would trust no
/// server. The failure would then look like a server that does not answer.
fn read_certificates(file: PemFile, path: &Path) -> Result<Vec<u8>, EndpointError> {
    let pem = read(file, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let (readable, _) = RootCertStore::empty().add_parsable_certificates(certificates.unwrap_or_default());
    if readable == 0 {
        return Err(EndpointError::NotPem { file, path: path.to_owned() });
    }
    Ok(pem)
}

fn read(file: PemFile, path: &Path) -> Result<Vec<u8>, EndpointError> {
    std::fs::read(path).map_err(|error| EndpointError::Unreadable {
        file,
        path: path.to_owned(),
        error: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(server: &str, tls: Option<&Tls>) -> EndpointError {
        Endpoint::new(server, tls).unwrap_err()
    }

    #[test]
    fn an_address_without_a_scheme_gets_the_one_that_fits() {
        assert_eq!(Endpoint::new("127.0.0.1:7171", None).unwrap().url(), "http://127.0.0.1:7171");
        let tls = Tls::new("/nowhere.pem");
        assert!(matches!(error("host:1", Some(&tls)), EndpointError::Unreadable { file: PemFile::Ca, .. }));
    }

    #[test]
    fn only_a_scheme_a_host_and_a_port_are_an_address() {
        for text in [
            "http://",
            "not a host",
            "ftp://host:1",
            "http://host:1/foo",
            "http://host:1/?a=b",
            "http://me@host:1",
            "host:1/foo",
            "/foo",
        ] {
            assert!(matches!(error(text, None), EndpointError::Address(_)), "{text}");
        }
        for text in ["http://host:1/", "HTTP://host:1", "host", "http://[::1]:1"] {
            assert!(Endpoint::new(text, None).is_ok(), "{text}");
        }
    }

    #[test]
    fn tls_files_and_the_scheme_must_agree() {
        let url = || "http://host:1".to_owned();
        assert_eq!(error("http://host:1", Some(&Tls::new("ca.pem"))), EndpointError::TlsWithoutHttps(url()));
        assert_eq!(error("HTTPS://host:1", None), EndpointError::NoAuthority("HTTPS://host:1".to_owned()));
    }

    #[test]
    fn another_machine_is_not_spoken_to_in_plaintext() {
        let required = |server: &str| Endpoint::new(server, None).unwrap().require_encryption();
        for server in ["http://localhost:1", "http://127.0.0.2:1", "http://[::1]:1"] {
            assert!(required(server).is_ok(), "{server}");
        }
        assert!(matches!(required("http://claims.internal:1"), Err(EndpointError::Plaintext(_))));
    }
}

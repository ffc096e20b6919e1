//! Finds the reason why a TLS connection failed, with one more TLS handshake.
//!
//! A TLS 1.3 server refuses a client certificate with an alert after the handshake (RFC 8446,
//! section 4.4.2.4), when requests are already on their way. A client that writes may see the
//! connection break before it reads the alert. This handshake sends no request, and waits for the
//! alert.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::endpoint::{Endpoint, TlsContents};

/// The longest time to wait for an alert. If none arrives in this time, the server has none to
/// send.
const PATIENCE: Duration = Duration::from_secs(3);
/// Connection preface of an HTTP/2 client (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// First byte of a TLS alert (RFC 8446, section 5.1). A TLS server answers plaintext with an alert.
const ALERT: u8 = 21;

/// A fault that keeps a client and a server from a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// The client uses plaintext, and the server uses TLS.
    ServerUsesTls,
    /// The client uses TLS, and the server does not answer in TLS.
    ServerUsesNoTls,
    /// The client does not accept the server's certificate.
    ServerCertificate(ServerCertificateFault),
    /// The server does not accept the client's certificate.
    ClientCertificate(CertificateFault),
}

/// Reason why the client does not accept the server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerCertificateFault {
    /// No trusted authority signed the certificate.
    UnknownIssuer,
    /// The certificate names other hosts; the text of rustls has their names.
    WrongName(String),
    /// The certificate has expired or is not valid yet; the text of rustls has the times.
    NotValidNow(String),
    /// The certificate has another fault, as rustls describes it.
    Other(String),
}

/// Reason why the server does not accept the client's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateFault {
    /// The server requires a certificate, and the client sent none.
    Missing,
    /// The certificate has expired or is not valid yet.
    NotValidNow,
    /// The certificate is revoked.
    Revoked,
    /// The server does not know the authority that signed the certificate.
    UnknownIssuer,
    /// The certificate is not suitable, for example not made for TLS clients.
    Unsuitable,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerUsesTls => f.write_str("the server speaks TLS: use https:// and TLS files"),
            Self::ServerUsesNoTls => {
                f.write_str("the server does not answer in TLS: if it serves plaintext, use http:// without TLS files")
            }
            Self::ServerCertificate(fault) => write!(f, "the server's certificate is not accepted: {fault}"),
            Self::ClientCertificate(fault) => {
                write!(f, "the server does not accept the client's certificate: {fault}")
            }
        }
    }
}

impl fmt::Display for ServerCertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownIssuer => f.write_str("no trusted authority signed it"),
            Self::WrongName(error) => write!(f, "it is for another name: {error}"),
            Self::NotValidNow(error) => write!(f, "it is not valid now: {error}"),
            Self::Other(error) => f.write_str(error),
        }
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "it requires one, and none was sent",
            Self::NotValidNow => "it has expired, or is not valid yet",
            Self::Revoked => "it is revoked",
            Self::UnknownIssuer => "it is signed by an authority that the server does not know",
            Self::Unsuitable => "it is not made for this use",
        })
    }
}

impl Endpoint {
    /// Connects once more to find the fault that broke a connection, for at most `timeout` and at
    /// most three seconds. Returns `None` if the server can't be reached, or if no fault shows.
    pub async fn obstacle(&self, timeout: Duration) -> Option<Obstacle> {
        tokio::time::timeout(PATIENCE.min(timeout), find(self)).await.ok()?
    }
}

async fn find(endpoint: &Endpoint) -> Option<Obstacle> {
    let stream = TcpStream::connect((endpoint.host(), endpoint.port())).await.ok()?;
    match endpoint.tls() {
        Some(tls) => find_encrypted(endpoint.host(), tls, stream).await,
        None => find_plain(stream).await,
    }
}

async fn find_plain(mut stream: TcpStream) -> Option<Obstacle> {
    stream.write_all(PREFACE).await.ok()?;
    (stream.read_u8().await.ok()? == ALERT).then_some(Obstacle::ServerUsesTls)
}

async fn find_encrypted(host: &str, tls: &TlsContents, stream: TcpStream) -> Option<Obstacle> {
    let name = ServerName::try_from(host.to_owned()).ok()?;
    match TlsConnector::from(Arc::new(config(tls)?)).connect(name, stream).await {
        Ok(mut stream) => obstacle_in(&stream.read_u8().await.err()?),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Some(Obstacle::ServerUsesNoTls),
        Err(error) => obstacle_in(&error),
    }
}

fn config(tls: &TlsContents) -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&tls.ca)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    let builder = builder.with_root_certificates(roots);
    let mut config = match &tls.identity {
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key).ok()?;
            builder.with_client_auth_cert(certificates(certificate)?, key).ok()?
        }
        None => builder.with_no_client_auth(),
    };
    // The client offers HTTP/2 by ALPN as a call does. Otherwise a server that requires ALPN would
    // refuse the client, and this refusal would hide the fault that is looked for.
    config.alpn_protocols = vec![b"h2".to_vec()];
    Some(config)
}

fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()
}

/// Returns the fault that an error of a TLS stream shows; `None` if the error is about neither TLS
/// nor a certificate.
fn obstacle_in(error: &io::Error) -> Option<Obstacle> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidMessage(_) => Some(Obstacle::ServerUsesNoTls),
        rustls::Error::InvalidCertificate(error) => Some(Obstacle::ServerCertificate(server_fault(error))),
        rustls::Error::AlertReceived(alert) => client_fault(*alert).map(Obstacle::ClientCertificate),
        _ => None,
    }
}

fn server_fault(error: &CertificateError) -> ServerCertificateFault {
    match error {
        // If a trusted authority has the right name but another key, rustls reports a bad
        // signature.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => ServerCertificateFault::UnknownIssuer,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            ServerCertificateFault::WrongName(error.to_string())
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => ServerCertificateFault::NotValidNow(error.to_string()),
        _ => ServerCertificateFault::Other(error.to_string()),
    }
}

/// Returns the fault of the client's certificate that an alert of the server reports; `None` if the
/// alert is not about a certificate.
fn client_fault(alert: AlertDescription) -> Option<CertificateFault> {
    Some(match alert {
        AlertDescription::CertificateRequired => CertificateFault::Missing,
        AlertDescription::CertificateExpired => CertificateFault::NotValidNow,
        AlertDescription::CertificateRevoked => CertificateFault::Revoked,
        // If an authority that the server trusts has the right name but another key, the alert is a
        // decryption error.
        AlertDescription::UnknownCA | AlertDescription::DecryptError => CertificateFault::UnknownIssuer,
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => CertificateFault::Unsuitable,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_about_certificates_are_told_from_others() {
        let received = |alert| obstacle_in(&io::Error::other(rustls::Error::AlertReceived(alert)));
        for (alert, fault) in [
            (AlertDescription::UnknownCA, CertificateFault::UnknownIssuer),
            (AlertDescription::DecryptError, CertificateFault::UnknownIssuer),
            (AlertDescription::BadCertificate, CertificateFault::Unsuitable),
            (AlertDescription::CertificateExpired, CertificateFault::NotValidNow),
            (AlertDescription::CertificateRevoked, CertificateFault::Revoked),
            (AlertDescription::CertificateRequired, CertificateFault::Missing),
            (AlertDescription::AccessDenied, CertificateFault::Unsuitable),
        ] {
            assert_eq!(received(alert), Some(Obstacle::ClientCertificate(fault)));
        }
        for alert in [AlertDescription::CloseNotify, AlertDescription::ProtocolVersion] {
            assert_eq!(received(alert), None);
        }
        assert_eq!(obstacle_in(&io::Error::other("no")), None);
    }

    #[test]
    fn a_namesake_of_the_authority_is_an_unknown_issuer() {
        for error in [CertificateError::UnknownIssuer, CertificateError::BadSignature] {
            assert_eq!(server_fault(&error), ServerCertificateFault::UnknownIssuer);
        }
        assert!(matches!(server_fault(&CertificateError::Expired), ServerCertificateFault::NotValidNow(_)));
    }
}

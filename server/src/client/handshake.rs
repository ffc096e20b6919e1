//! Why a connection broke: one more handshake, looked at from close up.
//!
//! A server that does not accept a certificate says so in an alert after the handshake, when requests are already on
//! their way; whoever writes may see the connection break before it reads the alert. This writes nothing and listens.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Connection;
use super::error::ClientError;

/// An alert is here soon, or there is none.
const PATIENCE: Duration = Duration::from_secs(3);
/// What a client of HTTP/2 says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first byte of an alert in TLS, which is how a server of TLS answers plain text.
const ALERT: u8 = 21;

/// What stands between a client and a server.
#[derive(Debug, PartialEq)]
enum Obstacle {
    ServerSpeaksTls,
    ServerSpeaksNoTls,
    /// The client does not accept the server's certificate.
    ServerCertificate(CertificateError),
    /// The server does not accept the client's certificate, or wants one.
    ClientCertificate(AlertDescription),
}

/// Looks for the reason why a connection broke, for as long as there is time; none is found where the server is away.
pub(super) async fn explain(connection: &Connection, left: Duration) -> Option<ClientError> {
    let obstacle = tokio::time::timeout(PATIENCE.min(left), look(connection)).await.ok()??;
    Some(obstacle.explain(connection))
}

async fn look(connection: &Connection) -> Option<Obstacle> {
    let uri: Uri = connection.url().parse().ok()?;
    let encrypted = uri.scheme() == Some(&Scheme::HTTPS);
    let host = uri.host()?.trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await.ok()?;
    if encrypted { look_encrypted(connection, host, stream).await } else { look_plain(stream).await }
}

async fn look_plain(mut stream: TcpStream) -> Option<Obstacle> {
    stream.write_all(PREFACE).await.ok()?;
    (stream.read_u8().await.ok()? == ALERT).then_some(Obstacle::ServerSpeaksTls)
}

async fn look_encrypted(connection: &Connection, host: &str, stream: TcpStream) -> Option<Obstacle> {
    let name = ServerName::try_from(host.to_owned()).ok()?;
    match TlsConnector::from(Arc::new(config(connection)?)).connect(name, stream).await {
        Ok(mut stream) => obstacle_in(&stream.read_u8().await.err()?),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Some(Obstacle::ServerSpeaksNoTls),
        Err(error) => obstacle_in(&error),
    }
}

fn config(connection: &Connection) -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(chain(connection.ca.as_deref()?)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    let builder = builder.with_root_certificates(roots);
    let mut config = match (&connection.cert, &connection.key) {
        (Some(cert), Some(key)) => {
            builder.with_client_auth_cert(chain(cert)?, PrivateKeyDer::from_pem_file(key).ok()?).ok()?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Some(config)
}

fn chain(path: &Path) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path).ok()?.collect::<Result<_, _>>().ok()
}

fn obstacle_in(error: &io::Error) -> Option<Obstacle> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidMessage(_) => Some(Obstacle::ServerSpeaksNoTls),
        rustls::Error::InvalidCertificate(error) => Some(Obstacle::ServerCertificate(error.clone())),
        rustls::Error::AlertReceived(alert) => {
            complaint(*alert).is_some().then_some(Obstacle::ClientCertificate(*alert))
        }
        _ => None,
    }
}

/// What a server's alert says of a client's certificate, where it is about that.
fn complaint(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateRequired => "it wants one, and none was shown",
        AlertDescription::CertificateExpired => "it has expired, or is not valid yet",
        AlertDescription::CertificateRevoked => "it is revoked",
        // One that another authority signed under the same name is an error of decryption.
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it is signed by an authority that the server does not know"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => "it is not made for this",
        _ => return None,
    })
}

impl Obstacle {
    fn explain(self, connection: &Connection) -> ClientError {
        let unreachable = |cause: &str, hint: &str| ClientError::Unreachable {
            server: connection.url(),
            cause: cause.to_owned(),
            hint: hint.to_owned(),
        };
        match self {
            Self::ServerSpeaksTls => unreachable(
                "the server speaks TLS",
                "use https:// in --server, and name the server's certificate authority in --ca",
            ),
            Self::ServerSpeaksNoTls => unreachable(
                "the server does not answer in TLS",
                "if it speaks none, use http:// in --server, and leave out --ca, --cert and --key",
            ),
            Self::ServerCertificate(error) => {
                let (cause, hint) = doubt(&error, connection);
                unreachable(&cause, hint)
            }
            Self::ClientCertificate(alert) => not_accepted(alert, connection.cert.as_deref()),
        }
    }
}

/// Why the server is not believed, and what to do.
fn doubt(error: &CertificateError, connection: &Connection) -> (String, &'static str) {
    let ca = connection.ca.as_deref().unwrap_or(Path::new("")).display();
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            format!("the authority in `{ca}` did not sign the server's certificate"),
            "is --ca the authority that signed the server's certificate?",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            format!("the server's certificate is for another name: {error}"),
            "use a name that the certificate has in --server",
        ),
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => (
            format!("the server's certificate is not valid now: {error}"),
            "give the server a new certificate, or set this machine's clock",
        ),
        _ => (format!("the server's certificate cannot be trusted: {error}"), "is --ca a certificate authority?"),
    }
}

fn not_accepted(alert: AlertDescription, cert: Option<&Path>) -> ClientError {
    let why = complaint(alert).unwrap_or_default();
    let named = cert.map(|path| format!(" `{}`", path.display())).unwrap_or_default();
    let hint = match (cert, alert) {
        (None, _) => "say who you are with --cert and --key",
        (Some(_), AlertDescription::CertificateExpired) => "name a new certificate in --cert, and its key in --key",
        (Some(_), _) => "name a certificate in --cert that an authority of the server's `tls.client_ca` signed",
    };
    ClientError::NotAccepted { message: format!("the server does not accept the certificate{named}: {why}"), hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_about_certificates_are_told_from_others() {
        let received = |alert| obstacle_in(&io::Error::other(rustls::Error::AlertReceived(alert)));
        for alert in [
            AlertDescription::UnknownCA,
            AlertDescription::DecryptError,
            AlertDescription::BadCertificate,
            AlertDescription::CertificateExpired,
            AlertDescription::CertificateRevoked,
            AlertDescription::CertificateRequired,
            AlertDescription::AccessDenied,
        ] {
            assert_eq!(received(alert), Some(Obstacle::ClientCertificate(alert)));
            assert_eq!(not_accepted(alert, None).exit_code(), 6);
        }
        for alert in [AlertDescription::CloseNotify, AlertDescription::ProtocolVersion] {
            assert_eq!(received(alert), None);
        }
        assert_eq!(obstacle_in(&io::Error::other("no")), None);
    }

    #[test]
    fn who_shows_no_certificate_is_told_to_show_one() {
        let error = not_accepted(AlertDescription::CertificateRequired, None);
        assert_eq!(error.to_string(), "the server does not accept the certificate: it wants one, and none was shown");
    }
}

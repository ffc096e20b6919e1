//! Certificates, and the handshake that gives each connection its caller. Files are read at start, where a failure stops
//! the server, and again when they change, where a failure keeps what was good.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{ASN1Time, FromDer, Validity, X509Certificate};

use crate::config::TlsConfig;
use crate::identity::{Caller, Peer};

/// How long a client may take to shake hands.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A certificate, key or authority that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("the {what} `{path}` can't be used: {error}")]
pub struct TlsError {
    what: &'static str,
    path: String,
    error: String,
}

fn unusable(what: &'static str, path: &Path, error: impl ToString) -> TlsError {
    TlsError { what, path: path.display().to_string(), error: error.to_string() }
}

fn read_certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unusable(what, path, error))?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(|error| unusable(what, path, error))?;
    if certificates.is_empty() {
        return Err(unusable(what, path, "it holds no certificate"));
    }
    Ok(certificates)
}

/// Reads the files into a configuration of the TLS library.
///
/// # Errors
/// A file is missing, unreadable, or does not fit the others.
fn server_config(tls: &TlsConfig) -> Result<rustls::ServerConfig, TlsError> {
    let chain = read_certificates("certificate", &tls.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| unusable("private key", &tls.key, error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // By itself first, so that what is wrong with it is not said of the certificate.
    let private_key = provider.key_provider.load_private_key(key.clone_key());
    private_key.map_err(|error| unusable("private key", &tls.key, error))?;
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("certificate", &tls.certificate, error))?;
    let authority = &tls.client_ca;
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates("client authority", authority)? {
        roots.add(certificate).map_err(|error| unusable("client authority", authority, error))?;
    }
    // A client without a certificate gets as far as a clear refusal, and health checks need none.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).allow_unauthenticated();
    let verifier = verifier.build().map_err(|error| unusable("client authority", authority, error))?;
    let builder = builder.with_client_cert_verifier(verifier);
    let mut config =
        builder.with_single_cert(chain, key).map_err(|error| unusable("certificate", &tls.certificate, error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn hosts(der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Vec::new() };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let host = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) if !name.contains('*') => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
            (Ok(v4), _) => Some(Ipv4Addr::from(v4).to_string()),
            (_, Ok(v6)) => Some(format!("[{}]", Ipv6Addr::from(v6))),
            _ => None,
        },
        _ => None,
    };
    names.value.general_names.iter().filter_map(host).collect()
}

fn wrong_dates(der: &[u8], now: ASN1Time) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let Validity { not_before, not_after } = certificate.validity();
    if *not_after < now {
        return Some(format!("has expired on {not_after}"));
    }
    (*not_before > now).then(|| format!("is not valid before {not_before}"))
}

/// The certificates in force.
pub struct Certificates {
    tls: TlsConfig,
    current: ArcSwap<rustls::ServerConfig>,
}

impl Certificates {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// They can't be used: the server must not start.
    pub fn load(tls: TlsConfig) -> Result<Self, TlsError> {
        let current = ArcSwap::from_pointee(server_config(&tls)?);
        Ok(Self { tls, current })
    }

    /// The hosts that the server's certificate is for, in its order; a wildcard is none.
    pub fn hosts(&self) -> Vec<String> {
        let chain = read_certificates("certificate", &self.tls.certificate).unwrap_or_default();
        chain.first().map(|certificate| hosts(certificate)).unwrap_or_default()
    }

    /// What is wrong with the dates of the server's certificate, or of those that vouch for it.
    pub fn warning(&self) -> Option<String> {
        let path = &self.tls.certificate;
        let chain = read_certificates("certificate", path).unwrap_or_default();
        let found = chain.iter().find_map(|der| wrong_dates(der, ASN1Time::now()))?;
        Some(format!("the certificate `{}` {found}: clients will refuse it; give the server a new one", path.display()))
    }

    /// Watches the files for as long as it is polled, and takes up what has changed.
    pub async fn watch(&self) {
        let mut seen = self.fingerprint();
        let mut ticks = tokio::time::interval(Duration::from_secs(self.tls.reload_interval_seconds));
        loop {
            ticks.tick().await;
            let now = self.fingerprint();
            if now == seen {
                continue;
            }
            match server_config(&self.tls) {
                Ok(config) => {
                    self.current.store(Arc::new(config));
                    seen = now;
                    tracing::info!("the certificates have changed and are in force for new connections");
                    self.warning().iter().for_each(|warning| tracing::warn!("{warning}"));
                }
                // Perhaps half written: it is tried again at the next tick.
                Err(error) => {
                    tracing::error!(%error, "the changed certificates can't be used, the former stay in force")
                }
            }
        }
    }

    /// The files' contents, to see a change of any kind.
    fn fingerprint(&self) -> Vec<Option<Vec<u8>>> {
        let files = [&self.tls.certificate, &self.tls.key, &self.tls.client_ca];
        files.into_iter().map(|path| std::fs::read(path).ok()).collect()
    }
}

/// A connection, with or without TLS.
pub enum Stream {
    /// Plain.
    Plain(TcpStream),
    /// Under TLS.
    Tls(Box<tokio_rustls::server::TlsStream<TcpStream>>, Caller),
}

impl Stream {
    /// What its requests know of it.
    pub fn peer(&self) -> Peer {
        match self {
            Self::Plain(_) => Peer { caller: Caller::Trusted },
            Self::Tls(_, caller) => Peer { caller: *caller },
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream, _) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream, _) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream, _) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream, _) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream, _) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream, _) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Shakes hands with a client, under TLS where there are certificates.
///
/// # Errors
/// The client went away, or may not come in.
pub async fn greet(stream: TcpStream, certificates: Option<Arc<Certificates>>) -> io::Result<Stream> {
    stream.set_nodelay(true)?;
    match certificates {
        None => Ok(Stream::Plain(stream)),
        Some(certificates) => shake_hands(stream, &certificates).await,
    }
}

async fn shake_hands(stream: TcpStream, certificates: &Certificates) -> io::Result<Stream> {
    let acceptor = TlsAcceptor::from(certificates.current.load_full());
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    let trust_domain = &certificates.tls.trust_domain;
    let caller = certificate.map_or(Caller::Unknown, |der| Caller::of_certificate(der, trust_domain));
    Ok(Stream::Tls(Box::new(stream), caller))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_certificate_has_its_time() {
        let mut params = rcgen::CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let at = |year| {
            let time = rcgen::date_time_ymd(year, 6, 1).unix_timestamp();
            wrong_dates(certificate.der(), ASN1Time::from_timestamp(time).unwrap())
        };
        assert!(at(2019).unwrap().starts_with("is not valid before "));
        assert_eq!(at(2020), None);
        assert!(at(2021).unwrap().starts_with("has expired on "));
    }
}

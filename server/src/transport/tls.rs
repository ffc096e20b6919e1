//! TLS: the server's certificates, and the handshake that identifies the client of each connection.
//!
//! The PEM files are read when the server starts, and again when they change. A failure at the
//! start stops the server; a later failure keeps the previous certificates in force.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{ASN1Time, CertificateRevocationList, FromDer, Validity, X509Certificate};

use crate::active_config::ActiveConfig;
use crate::budget::ConnectionBudgets;
use crate::config::{TlsConfig, read_file};
use crate::metrics::{Metrics, TlsFile};
use crate::peer::{Credentials, Peer};

/// The longest time for a TLS handshake. A client that never finishes one would otherwise occupy
/// its connection for ever.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The bytes of the authorities' names that a server sends, with their lengths (RFC 8446, section
/// 4.2.4).
const MAX_AUTHORITY_NAMES: usize = 0xffff;

/// The error that a certificate, key or authority file can't be used.
#[derive(Debug, thiserror::Error)]
#[error("the {role} `{path}` can't be used: {error}")]
pub struct TlsError {
    role: &'static str,
    path: String,
    error: String,
}

fn invalid(role: &'static str, path: &Path, error: impl ToString) -> TlsError {
    TlsError { role, path: path.display().to_string(), error: error.to_string() }
}

/// Reads the certificates of a PEM file, which has at least one.
///
/// # Errors
/// The file can't be read, is not PEM, or has no certificate.
pub fn read_certificates(role: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    match read_pem(role, path)? {
        certificates if certificates.is_empty() => Err(invalid(role, path, "it holds no certificate")),
        certificates => Ok(certificates),
    }
}

/// Reads the certificate revocation lists of a PEM file, which has at least one.
fn read_revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    match read_pem(REVOCATION_LIST, path)? {
        lists if lists.is_empty() => Err(invalid(REVOCATION_LIST, path, "it holds no certificate revocation list")),
        lists => Ok(lists),
    }
}

const REVOCATION_LIST: &str = "certificate revocation list";

fn read_pem<T: PemObject>(role: &'static str, path: &Path) -> Result<Vec<T>, TlsError> {
    let bytes = read_file(path).map_err(|error| invalid(role, path, error))?;
    T::pem_slice_iter(&bytes).collect::<Result<_, _>>().map_err(|error| invalid(role, path, error))
}

/// The PEM files that `[tls]` names, parsed for rustls.
pub struct TlsFiles {
    tls: TlsConfig,
    /// The bytes of the files.
    contents: Vec<Option<Vec<u8>>>,
    dates: Dates,
    config: Arc<rustls::ServerConfig>,
    /// Verifies the certificates of clients.
    verifier: Arc<dyn ClientCertVerifier>,
}

/// The dates between which files can be used.
struct Dates {
    /// The validity of each certificate of the server's chain.
    chain: Vec<Validity>,
    /// The date by which each revocation list must be replaced, if the list names one.
    next_lists: Vec<ASN1Time>,
}

impl Dates {
    fn of(chain: &[CertificateDer<'_>], lists: &[CertificateRevocationListDer<'_>]) -> Self {
        Self { chain: chain.iter().filter_map(|der| validity(der)).collect(), next_lists: next_lists(lists) }
    }

    /// Returns the warnings of [`Certificates::warnings`].
    fn warnings(&self, tls: &TlsConfig, now: ASN1Time) -> Vec<String> {
        let found = self.chain.iter().find_map(|validity| date_problem(validity, now));
        let path = tls.certificate.display();
        let expired =
            found.map(|found| format!("the certificate `{path}` {found}: clients will refuse it; replace it"));
        let overdue = tls.client_crl.iter().flat_map(|path| overdue(path, &self.next_lists, now));
        expired.into_iter().chain(overdue).collect()
    }

    /// Publishes the earliest date of each file.
    fn publish(&self, metrics: &Metrics) {
        let ends = self.chain.iter().map(|validity| validity.not_after.timestamp());
        metrics.set_tls_end(TlsFile::Certificate, ends.min());
        metrics.set_tls_end(TlsFile::RevocationList, self.next_lists.iter().map(ASN1Time::timestamp).min());
    }
}

fn validity(der: &[u8]) -> Option<Validity> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate.validity().clone())
}

fn next_lists(lists: &[CertificateRevocationListDer<'_>]) -> Vec<ASN1Time> {
    lists.iter().filter_map(|der| CertificateRevocationList::from_der(der).ok()?.1.next_update()).collect()
}

/// Reads the PEM files.
///
/// # Errors
/// A file is missing or unreadable, or the key does not belong to the certificate.
fn read_files(tls: &TlsConfig) -> Result<TlsFiles, TlsError> {
    // The contents are read before the files are parsed, so that the next check finds a change in
    // between.
    let contents = contents(tls);
    let chain = read_certificates("certificate", &tls.certificate)?;
    let key = read_file(&tls.key).map_err(|error| invalid("private key", &tls.key, error))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| invalid("private key", &tls.key, error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // `with_single_cert` below does not report which of the two files has a problem. So the key is
    // loaded alone first, and its problems are reported under its own name.
    let private_key = provider.key_provider.load_private_key(key.clone_key());
    private_key.map_err(|error| invalid("private key", &tls.key, error))?;
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("certificate", &tls.certificate, error))?;
    let authority = &tls.client_ca;
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates("client authority", authority)? {
        roots.add(certificate).map_err(|error| invalid("client authority", authority, error))?;
    }
    let lists = tls.client_crl.as_deref().map(read_revocation_lists).transpose()?.unwrap_or_default();
    let dates = Dates::of(&chain, &lists);
    let verifier = client_verifier(tls, lists, roots, provider)?;
    let builder = builder.with_client_cert_verifier(verifier.clone());
    let mut config =
        builder.with_single_cert(chain, key).map_err(|error| invalid("certificate", &tls.certificate, error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsFiles { tls: tls.clone(), contents, dates, config: Arc::new(config), verifier })
}

/// Returns the verifier of clients' certificates, by the authorities and the revocation lists.
///
/// rustls refuses a revoked certificate. If there is any list, it also refuses a certificate whose
/// issuer has no list. It accepts a list that should have been replaced already
/// (`UnknownStatusPolicy::Deny` and `ExpirationPolicy::Ignore`, the defaults of rustls 0.23). A
/// forgotten renewal must not lock out all cells. [`overdue_lists`] reports such a list.
fn client_verifier(
    tls: &TlsConfig,
    lists: Vec<CertificateRevocationListDer<'static>>,
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    // The handshake accepts a client without a certificate, because health checks need none. Other
    // calls of such a client are refused later with `NO_IDENTITY`, which is clearer than a TLS
    // alert.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).allow_unauthenticated();
    let verifier = verifier.with_crls(lists).build().map_err(|error| match (error, &tls.client_crl) {
        (error @ VerifierBuilderError::InvalidCrl(_), Some(path)) => invalid(REVOCATION_LIST, path, error),
        (error, _) => invalid("client authority", &tls.client_ca, error),
    })?;
    // rustls does not check the length of this list, and panics in each handshake.
    let names: usize = verifier.root_hint_subjects().iter().map(|name| name.as_ref().len() + 2).sum();
    if names > MAX_AUTHORITY_NAMES {
        let error = format!("its authorities' names have {names} bytes, and a handshake has room for 65,535");
        return Err(invalid("client authority", &tls.client_ca, error));
    }
    Ok(verifier)
}

/// Returns a warning for each certificate revocation list of a file that should have been replaced
/// before `now`. If the file can't be read, there are no warnings.
pub fn overdue_lists(path: &Path, now: ASN1Time) -> Vec<String> {
    overdue(path, &next_lists(&read_revocation_lists(path).unwrap_or_default()), now)
}

/// Returns a warning for each of these dates of lists of a file that has passed.
fn overdue(path: &Path, next_lists: &[ASN1Time], now: ASN1Time) -> Vec<String> {
    let warning = |next: &ASN1Time| {
        let path = path.display();
        format!(
            "a list in `{path}` should have been replaced by {next}: certificates that were revoked since then are accepted; replace it"
        )
    };
    next_lists.iter().filter(|next| **next < now).map(warning).collect()
}

/// Checks the PEM files as a start of the server does.
///
/// # Errors
/// A file is missing or unreadable, or the key does not belong to the certificate.
pub fn check_files(tls: &TlsConfig) -> Result<(), TlsError> {
    read_files(tls).map(drop)
}

/// Checks that a server with the same authorities accepts this server's certificate as a client's.
///
/// # Errors
/// A file can't be used, or the certificate is no client's.
pub fn check_as_client(tls: &TlsConfig) -> Result<(), TlsError> {
    let verifier = read_files(tls)?.verifier;
    let chain = read_certificates("certificate", &tls.certificate)?;
    let Some((own, intermediates)) = chain.split_first() else { return Ok(()) };
    let verified = verifier.verify_client_cert(own, intermediates, UnixTime::now());
    verified.map(drop).map_err(|error| invalid("certificate", &tls.certificate, error))
}

/// Returns the hosts among the subject alternative names of a certificate, in their order.
/// Wildcards are left out.
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

/// Returns the problem with the dates of a certificate at `now`, as the end of a sentence; `None`
/// if the certificate is valid.
fn date_problem(Validity { not_before, not_after }: &Validity, now: ASN1Time) -> Option<String> {
    if *not_after < now {
        return Some(format!("expired on {not_after}"));
    }
    (*not_before > now).then(|| format!("is not valid before {not_before}"))
}

/// The certificates in force. [`watch`](Self::watch) replaces them when their files change.
pub struct Certificates {
    current: ArcSwap<TlsFiles>,
    /// Counts the changes of `current`.
    changes: watch::Sender<u64>,
    /// The warnings that the log has.
    told: Mutex<Vec<String>>,
}

impl Certificates {
    /// Reads the PEM files for the first time.
    ///
    /// # Errors
    /// The PEM files can't be used, so the server must not start.
    pub fn load(tls: &TlsConfig) -> Result<Self, TlsError> {
        let current = ArcSwap::from_pointee(read_files(tls)?);
        Ok(Self { current, changes: watch::Sender::new(0), told: Mutex::default() })
    }

    /// Reads the PEM files that a configuration names, without putting them in force.
    ///
    /// # Errors
    /// The PEM files can't be used.
    pub fn read(tls: &TlsConfig) -> Result<TlsFiles, TlsError> {
        read_files(tls)
    }

    /// Puts new files in force. Connections of clients whose certificates the new files reject are
    /// then closed.
    pub fn replace(&self, files: TlsFiles) {
        self.current.store(Arc::new(files));
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Returns the hosts that the server's certificate names, in its order, without wildcards.
    pub fn hosts(&self) -> Vec<String> {
        let chain = read_certificates("certificate", &self.current.load().tls.certificate).unwrap_or_default();
        chain.first().map(|certificate| hosts(certificate)).unwrap_or_default()
    }

    /// Returns a warning if the server's certificate, or another one in its file, has expired or is
    /// not valid yet, and a warning for each revocation list that should have been replaced
    /// already. The caller must log them.
    pub fn warnings(&self) -> Vec<String> {
        self.tell().1
    }

    /// Returns the warnings that were not told before, and all warnings.
    fn tell(&self) -> (Vec<String>, Vec<String>) {
        let current = self.current.load();
        let warnings = current.dates.warnings(&current.tls, ASN1Time::now());
        // INVARIANT: a list of texts is valid at every moment, so a panic leaves none half changed.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let new = warnings.iter().filter(|warning| !told.contains(warning)).cloned().collect();
        told.clone_from(&warnings);
        (new, warnings)
    }

    /// Checks the PEM files for changes every `tls.reload_interval_seconds`, and puts changed
    /// certificates in force. Warns of files that have become too old, and publishes their dates. Never
    /// returns.
    pub async fn watch(&self, metrics: &Metrics) {
        loop {
            let files = self.current.load_full();
            files.dates.publish(metrics);
            self.tell().0.iter().for_each(|warning| tracing::warn!("{warning}"));
            tokio::time::sleep(Duration::from_secs(files.tls.reload_interval_seconds)).await;
            if contents(&files.tls) == files.contents {
                continue;
            }
            match read_files(&files.tls) {
                Ok(changed) => self.replace_unless_reloaded(&files, changed),
                // A file may be half written. The next check tries again.
                Err(error) => {
                    tracing::error!(%error, "the changed certificates can't be used; the former ones stay in force")
                }
            }
        }
    }

    /// Puts changed files in force, unless a reload of the configuration has replaced `former` in
    /// the meantime.
    fn replace_unless_reloaded(&self, former: &Arc<TlsFiles>, changed: TlsFiles) {
        let before = self.current.compare_and_swap(former, Arc::new(changed));
        if Arc::ptr_eq(&before, former) {
            self.changes.send_modify(|changes| *changes += 1);
            tracing::info!("the changed certificates are in force: clients that they do not allow are disconnected");
            self.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        }
    }
}

/// Returns the contents of the PEM files; `None` for one that can't be read. Contents are compared
/// instead of modification times, which miss two changes in quick succession and a symlink that
/// points to another file.
fn contents(tls: &TlsConfig) -> Vec<Option<Vec<u8>>> {
    let files = [&tls.certificate, &tls.key, &tls.client_ca].into_iter().chain(&tls.client_crl);
    files.map(|path| read_file(path).ok()).collect()
}

/// The certificates that a client presented, its own first.
pub(super) type Chain = Vec<CertificateDer<'static>>;

impl Certificates {
    /// Completes when a change of the certificates in force makes the server reject the client's
    /// certificates. The caller must have subscribed to `changes` before the handshake.
    pub(super) async fn reject(&self, chain: &Chain, mut changes: watch::Receiver<u64>) {
        loop {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            let Some((own, intermediates)) = chain.split_first() else { continue };
            let verifier = self.current.load().verifier.clone();
            if verifier.verify_client_cert(own, intermediates, UnixTime::now()).is_err() {
                return;
            }
        }
    }

    /// Subscribes to the changes of the certificates from now on.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// Returns the time at which the first certificate of a chain expires; `None` if no certificate's
/// expiry date can be read.
fn valid_until(chain: &Chain) -> Option<Instant> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let end = |der: &CertificateDer<'_>| {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        // A certificate is still valid in the second `not_after` itself (RFC 5280, 4.1.2.5), so it
        // expires one second later.
        u64::try_from(certificate.validity().not_after.timestamp()).ok()?.checked_add(1)
    };
    let end = Duration::from_secs(chain.iter().filter_map(end).min()?);
    Instant::now().checked_add(end.saturating_sub(now))
}

/// A client's connection after the handshake.
pub(super) enum ClientStream {
    /// A connection in plain text.
    Plain(TcpStream),
    /// TLS.
    Tls(Box<tokio_rustls::server::TlsStream<TcpStream>>),
}

/// A client's connection after the handshake, and its certificates.
pub(super) struct Accepted {
    pub(super) stream: ClientStream,
    /// The certificates that the client presented; empty without TLS.
    pub(super) chain: Chain,
}

impl Accepted {
    /// Returns the peer, which is added to the extensions of each request.
    pub(super) fn peer(&self, config: Arc<ActiveConfig>, budgets: ConnectionBudgets) -> Peer {
        let credentials = match (&self.stream, self.chain.first()) {
            (ClientStream::Plain(_), _) => Credentials::Plaintext,
            (ClientStream::Tls(_), Some(own)) => Credentials::Certificate(own.clone()),
            (ClientStream::Tls(_), None) => Credentials::None,
        };
        Peer::new(credentials, config, valid_until(&self.chain), budgets)
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Turns an accepted TCP connection into a client's stream. If `certificates` is given, this needs
/// a TLS handshake first.
///
/// # Errors
/// The client disconnected, took too long, or presented a certificate that the client authority did
/// not sign or has revoked.
pub(super) async fn accept(stream: TcpStream, certificates: Option<&Certificates>) -> io::Result<Accepted> {
    stream.set_nodelay(true)?;
    match certificates {
        None => Ok(Accepted { stream: ClientStream::Plain(stream), chain: Chain::new() }),
        Some(certificates) => handshake(stream, certificates).await,
    }
}

async fn handshake(stream: TcpStream, certificates: &Certificates) -> io::Result<Accepted> {
    let acceptor = TlsAcceptor::from(certificates.current.load().config.clone());
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
    let (_, session) = stream.get_ref();
    let chain: Chain =
        session.peer_certificates().unwrap_or_default().iter().cloned().map(|der| der.into_owned()).collect();
    Ok(Accepted { stream: ClientStream::Tls(Box::new(stream)), chain })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_certificate_is_valid_between_its_dates() {
        let mut params = rcgen::CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let at = |year| {
            let time = rcgen::date_time_ymd(year, 6, 1).unix_timestamp();
            date_problem(&validity(certificate.der()).unwrap(), ASN1Time::from_timestamp(time).unwrap())
        };
        assert!(at(2019).unwrap().starts_with("is not valid before "));
        assert_eq!(at(2020), None);
        assert!(at(2021).unwrap().starts_with("expired on "));
    }
}

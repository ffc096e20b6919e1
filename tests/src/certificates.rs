//! Certificates that tests create at run time, and TLS connections for tests of the handshake.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName, DnType,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// A certificate authority of a test, which signs certificates for servers and clients.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its private key, both as PEM text.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate as PEM text.
    pub certificate: String,
    /// The certificate's private key as PEM text.
    pub key: String,
    /// The certificate's serial number, which no other certificate of this process has.
    pub serial: u64,
}

impl Authority {
    /// Creates an authority with a new key. `name` is the common name of its certificate.
    ///
    /// # Errors
    /// No key can be generated.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// Returns the authority's own certificate as PEM text, for the `ca` setting of servers and
    /// clients.
    #[must_use]
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Returns a certificate for a server on the loopback address, signed by this authority.
    ///
    /// # Errors
    /// No key can be generated.
    pub fn server(&self) -> Result<Pair> {
        self.sign(server_params()?)
    }

    /// Returns a certificate for a server on the loopback address with a further name, by which other
    /// servers identify it.
    ///
    /// # Errors
    /// The URI is not ASCII, or no key can be generated.
    pub fn server_named(&self, uri: &str) -> Result<Pair> {
        let mut params = server_params()?;
        params.subject_alt_names.push(SanType::URI(Ia5String::try_from(uri)?));
        self.sign(params)
    }

    /// Returns a server certificate for a host other than the loopback address. Clients must refuse
    /// this certificate.
    ///
    /// # Errors
    /// No key can be generated.
    pub fn server_elsewhere(&self) -> Result<Pair> {
        self.sign(CertificateParams::new(["elsewhere.example.com".to_owned()])?)
    }

    /// Returns a server certificate that expired in 2001, signed by this authority.
    ///
    /// # Errors
    /// No key can be generated.
    pub fn expired_server(&self) -> Result<Pair> {
        self.sign(expire(server_params()?))
    }

    /// Returns a client certificate with `uris` as its subject alternative names.
    ///
    /// # Errors
    /// A URI is not ASCII, or no key can be generated.
    pub fn client(&self, uris: &[&str]) -> Result<Pair> {
        self.sign(client_params(uris)?)
    }

    /// Returns a client certificate with the common name `name` and no subject alternative names.
    ///
    /// # Errors
    /// No key can be generated.
    pub fn client_named(&self, name: &str) -> Result<Pair> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        self.sign(params)
    }

    /// Returns a client certificate that expired in 2001, with `uris` as its subject alternative
    /// names.
    ///
    /// # Errors
    /// A URI is not ASCII, or no key can be generated.
    pub fn expired(&self, uris: &[&str]) -> Result<Pair> {
        self.sign(expire(client_params(uris)?))
    }

    /// Returns a certificate for a client that expires after `left`, to the second.
    ///
    /// # Errors
    /// See [`Authority::client`].
    pub fn client_until(&self, uris: &[&str], left: std::time::Duration) -> Result<Pair> {
        let mut params = client_params(uris)?;
        params.not_after = (std::time::SystemTime::now() + left).into();
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Pair> {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        params.serial_number = Some(serial.into());
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem(), serial })
    }

    /// Returns a certificate revocation list with these certificates as PEM text. Its successor is
    /// due in the year `next_update`.
    ///
    /// # Errors
    /// The list can't be signed.
    pub fn revocation_list(&self, revoked: &[&Pair], next_update: i32) -> Result<String> {
        let this_update = rcgen::date_time_ymd(2001, 1, 1);
        let entry = |pair: &&Pair| RevokedCertParams {
            serial_number: pair.serial.into(),
            revocation_time: this_update,
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update,
            next_update: rcgen::date_time_ymd(next_update, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(params.signed_by(&self.issuer)?.pem()?)
    }

    /// Returns the TLS settings of a tonic client that trusts this authority. The client presents
    /// the certificate `presented`, or none.
    #[must_use]
    pub fn client_config(&self, presented: Option<&Pair>) -> ClientTlsConfig {
        let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.pem())).domain_name("localhost");
        match presented {
            Some(pair) => config.identity(Identity::from_pem(&pair.certificate, &pair.key)),
            None => config,
        }
    }

    /// Opens a TLS connection that trusts this authority and offers `protocol` by ALPN.
    ///
    /// # Errors
    /// The handshake fails on the client's side. In TLS 1.3 the server checks the client's
    /// certificate after the client's handshake has ended, so a refusal appears only at the first
    /// read.
    pub async fn connect(
        &self,
        address: SocketAddr,
        presented: Option<&Pair>,
        protocol: &str,
    ) -> Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem().as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = builder.with_root_certificates(roots);
        let mut config = match presented {
            Some(pair) => builder.with_client_auth_cert(vec![pair.der()?], pair.private_key()?)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.into()];
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost")?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.context("the handshake failed")
    }
}

impl Pair {
    /// Returns the certificate in DER form.
    ///
    /// # Errors
    /// The field `certificate` is not valid PEM.
    pub fn der(&self) -> Result<CertificateDer<'static>> {
        Ok(CertificateDer::from_pem_slice(self.certificate.as_bytes())?)
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>> {
        Ok(PrivateKeyDer::from_pem_slice(self.key.as_bytes())?)
    }
}

fn expire(mut params: CertificateParams) -> CertificateParams {
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    params
}

fn server_params() -> Result<CertificateParams> {
    Ok(CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?)
}

fn client_params(uris: &[&str]) -> Result<CertificateParams> {
    let name = |uri: &&str| Ok(SanType::URI(Ia5String::try_from(*uri)?));
    let mut params = CertificateParams::default();
    params.subject_alt_names = uris.iter().map(name).collect::<Result<_>>()?;
    Ok(params)
}

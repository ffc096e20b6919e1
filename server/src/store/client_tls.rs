//! TLS from the server to a database or an engine that is its store.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::config::read_file;

/// The PEM files that a table of the settings names.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientFiles<'a> {
    /// The name of the table, for messages.
    pub(super) table: &'static str,
    /// The authority that signs the certificates of the store's machines.
    pub(super) ca: Option<&'a Path>,
    /// The client certificate that the server presents.
    pub(super) certificate: Option<&'a Path>,
    /// The private key of the client certificate.
    pub(super) key: Option<&'a Path>,
}

impl ClientFiles<'_> {
    /// Reads the files.
    ///
    /// # Errors
    /// A file can't be read or used, or one is missing. The text says what to do.
    pub(super) fn config(&self) -> Result<ClientConfig, String> {
        let roots = self.ca.map_or_else(|| Ok(RootCertStore::empty()), authorities)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?.with_root_certificates(roots);
        let table = self.table;
        match (self.certificate, self.key) {
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(_), Some(_)) if self.ca.is_none() => {
                Err(format!("`{table}.certificate` needs an encrypted connection: set `{table}.ca` too"))
            }
            (Some(certificate), Some(key)) => {
                let (chain, private_key) = (chain(certificate)?, private_key(key)?);
                builder.with_client_auth_cert(chain, private_key).map_err(|error| unusable(certificate, &error))
            }
            _ => Err(format!("`{table}.certificate` and `{table}.key` belong together: one of them is missing")),
        }
    }
}

fn unusable(path: &Path, error: &dyn Display) -> String {
    format!("`{}`: {error}", path.display())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    read_file(path).map_err(|error| unusable(path, &error))
}

fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for authority in chain(path)? {
        roots.add(authority).map_err(|error| unusable(path, &error))?;
    }
    if roots.is_empty() { Err(unusable(path, &"the file has no certificate")) } else { Ok(roots) }
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(path)?;
    let chain = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    chain.map_err(|error| unusable(path, &error))
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| unusable(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_needs_its_key_and_an_authority() {
        let config = |certificate: Option<&str>, key: Option<&str>| {
            let (certificate, key) = (certificate.map(Path::new), key.map(Path::new));
            ClientFiles { table: "postgres", ca: None, certificate, key }.config().map(drop)
        };
        assert_eq!(config(None, None), Ok(()));
        for (certificate, key) in [(Some("cert.pem"), None), (None, Some("key.pem"))] {
            assert!(config(certificate, key).is_err_and(|text| text.contains("belong together")));
        }
        assert!(config(Some("cert.pem"), Some("key.pem")).is_err_and(|text| text.contains("`postgres.ca`")));
    }
}

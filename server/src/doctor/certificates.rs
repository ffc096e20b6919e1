//! Checks of the certificates: their files, their dates, and the order of the server's chain.

use std::path::{Path, PathBuf};

use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

use super::{CheckResult, Finding};
use crate::config::{Config, RelayConfig, TlsConfig};
use crate::identity::{Caller, Role};
use crate::transport::{check_as_client, check_files, overdue_lists, read_certificates};

const CHECK: &str = "certificates";
/// A certificate is reported if it expires within this many days.
const SOON_DAYS: i64 = 14;
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// Returns the findings about the certificates of the server, of its clients' authority, and of its
/// connections to the store and to relays' databases, and about the revocation lists.
pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let mut findings = config.tls.as_ref().map_or_else(Vec::new, |tls| of_server(config, tls));
    findings.extend(files_of_stores(config).iter().flat_map(|path| dates(path)));
    if findings.is_empty() {
        let text = match &config.tls {
            Some(_) => "the key belongs to the certificate, and all are valid",
            None => "none: connections are neither encrypted nor identified",
        };
        findings.push(Finding::new(CHECK, CheckResult::Ok, text));
    }
    findings
}

fn of_server(config: &Config, tls: &TlsConfig) -> Vec<Finding> {
    if let Err(error) = check_files(tls) {
        let text = format!("{error}: name files that belong together in `[tls]`");
        return vec![Finding::new(CHECK, CheckResult::Fail, text)];
    }
    let files = [&tls.certificate, &tls.client_ca].into_iter();
    let mut findings: Vec<_> = files.flat_map(|path| dates(path)).collect();
    findings.extend(chain(tls));
    findings.extend(peers(config, tls));
    let overdue = tls.client_crl.iter().flat_map(|path| overdue_lists(path, ASN1Time::now()));
    findings.extend(overdue.map(|warning| Finding::new(CHECK, CheckResult::Warn, warning)));
    findings
}

/// Returns the files with certificates for connections to the store and to relays' databases.
fn files_of_stores(config: &Config) -> Vec<PathBuf> {
    let relays = config.relays.iter().map(RelayConfig::database);
    let databases = config.postgres.iter().cloned().chain(relays).flat_map(|it| [it.ca, it.certificate]);
    let etcd = config.etcd.iter().flat_map(|it| [it.ca.clone(), it.certificate.clone()]);
    databases.chain(etcd).flatten().collect()
}

/// Returns a finding for each certificate of a file that is not valid now, or expires soon.
fn dates(path: &Path) -> Vec<Finding> {
    let now = jiff::Timestamp::now().as_second();
    let finding = |der: &[u8]| {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let validity = certificate.validity();
        let (first, last) = (validity.not_before, validity.not_after);
        let (state, problem) = match (first.timestamp(), last.timestamp()) {
            (_, end) if end < now => (CheckResult::Fail, format!("expired on {last}: replace it")),
            (start, _) if start > now => {
                (CheckResult::Fail, format!("is not valid before {first}: check this machine's clock"))
            }
            (_, end) if end < now + SOON_DAYS * DAY_SECONDS => {
                (CheckResult::Warn, format!("expires on {last}: replace it"))
            }
            _ => return None,
        };
        Some(Finding::new(CHECK, state, format!("the certificate `{}` {problem}", path.display())))
    };
    read_certificates("certificate", path).unwrap_or_default().iter().filter_map(|der| finding(der)).collect()
}

/// Returns a finding if a certificate of the server's chain was not issued by the next one. Clients
/// that trust only the last authority refuse such a chain (RFC 8446, section 4.4.2).
fn chain(tls: &TlsConfig) -> Option<Finding> {
    let ders = read_certificates("certificate", &tls.certificate).ok()?;
    let certificates: Vec<_> = ders.iter().filter_map(|der| Some(X509Certificate::from_der(der).ok()?.1)).collect();
    let is_broken = certificates.windows(2).any(|pair| matches!(pair, [one, next] if one.issuer() != next.subject()));
    is_broken.then(|| {
        let path = tls.certificate.display();
        let text = format!("the chain in `{path}` is out of order: put each certificate before that of its issuer");
        Finding::new(CHECK, CheckResult::Warn, text)
    })
}

/// Returns a finding if other servers would refuse the rings of this one.
fn peers(config: &Config, tls: &TlsConfig) -> Option<Finding> {
    config.locks.peer_address.as_ref()?;
    let chain = read_certificates("certificate", &tls.certificate).ok()?;
    let caller = Caller::of_certificate(chain.first()?, &tls.trust_domain, |_| Caller::Unrecognised);
    let problem = match caller {
        Caller::Authenticated(Role::Server) => check_as_client(tls).err()?.to_string(),
        _ => {
            let (path, domain) = (tls.certificate.display(), &tls.trust_domain);
            format!("the certificate `{path}` lacks the URI `spiffe://{domain}/server`, or has another one of a caller")
        }
    };
    let advice = "other servers refuse the rings of this one (`locks.peer_address`): issue another certificate";
    Some(Finding::new(CHECK, CheckResult::Warn, format!("{problem}; {advice}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use rcgen::string::Ia5String;
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
    };
    use tempfile::TempDir;

    use super::*;

    fn authority() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// Returns the finding about a server's certificate with this URI and these uses.
    fn found(
        issuer: &CertifiedIssuer<'static, KeyPair>,
        trusted: &str,
        uri: &str,
        uses: &[ExtendedKeyUsagePurpose],
    ) -> Option<String> {
        let (dir, key) = (TempDir::new().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::URI(Ia5String::try_from(uri).unwrap()));
        params.extended_key_usages = uses.to_vec();
        let own = params.signed_by(&key, issuer).unwrap().pem();
        for (name, text) in [("own.pem", own), ("own.key", key.serialize_pem()), ("ca.pem", trusted.to_owned())] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let path = |name: &str| dir.path().join(name);
        let text = format!(
            "[locks]\npeer_address = \"https://one:1\"\n[tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n",
            path("own.pem"),
            path("own.key"),
            path("ca.pem")
        );
        let config: Config = toml::from_str(&text).unwrap();
        peers(&config, config.tls.as_ref().unwrap()).map(|finding| finding.text)
    }

    #[test]
    fn an_expired_authority_of_a_store_is_found_without_tls_of_the_server() {
        let dir = TempDir::new().unwrap();
        let mut params = CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        let expired = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        let [expired, good] = [("expired.pem", expired), ("good.pem", authority().pem())].map(|(name, pem)| {
            std::fs::write(dir.path().join(name), pem).unwrap();
            dir.path().join(name)
        });
        for store in ["[postgres]\nurl = \"postgres://u@127.0.0.1/d\"", "[etcd]\nurl = \"etcd://127.0.0.1\""] {
            let found = |ca: &Path| {
                let config: Config = toml::from_str(&format!("{store}\nca = {ca:?}\n")).unwrap();
                findings(&config).into_iter().map(|finding| (finding.state, finding.text)).collect::<Vec<_>>()
            };
            assert!(
                matches!(&*found(&good), [(CheckResult::Ok, text)] if text.starts_with("none: ")),
                "{:?}",
                found(&good)
            );
            let [(CheckResult::Fail, text)] = &*found(&expired) else { panic!("{:?}", found(&expired)) };
            assert!(text.contains("expired.pem` expired on Jan  1"), "{text}");
        }
    }

    #[test]
    fn a_certificate_by_which_a_server_can_t_ring_is_named() {
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        let (issuer, other, server) = (authority(), authority(), "spiffe://leasehold/server");
        assert_eq!(found(&issuer, &issuer.pem(), server, &[]), None);
        assert_eq!(found(&issuer, &issuer.pem(), server, &[ServerAuth, ClientAuth]), None);
        for (trusted, uri, uses, said) in [
            (&issuer, "spiffe://other/server", &[][..], "lacks the URI `spiffe://leasehold/server`"),
            (&issuer, server, &[ServerAuth], "own.pem` can't be used"),
            (&other, server, &[], "own.pem` can't be used"),
        ] {
            let text = found(&issuer, &trusted.pem(), uri, uses).unwrap();
            assert!(text.contains(said) && text.contains("`locks.peer_address`"), "{text}");
        }
    }
}

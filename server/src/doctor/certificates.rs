//! Checks of the certificates: their files, their dates, and the order of the server's chain.

use std::path::Path;

use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

use super::{CheckResult, Finding};
use crate::config::{Config, TlsConfig};
use crate::transport::{check_files, overdue_lists, read_certificates};

const CHECK: &str = "certificates";
/// A certificate is reported if it expires within this many days.
const SOON_DAYS: i64 = 14;
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// Returns the findings about the certificates of the server, of its clients' authority, and of its
/// connection to the database, and about the revocation lists.
pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let Some(tls) = &config.tls else {
        return vec![Finding::new(CHECK, CheckResult::Ok, "none: connections are neither encrypted nor identified")];
    };
    if let Err(error) = check_files(tls) {
        return vec![Finding::new(
            CHECK,
            CheckResult::Fail,
            format!("{error}: name files that belong together in `[tls]`"),
        )];
    }
    let database = config.postgres.iter().flat_map(|it| [&it.ca, &it.certificate].into_iter().flatten());
    let files = [&tls.certificate, &tls.client_ca].into_iter().chain(database);
    let mut findings: Vec<_> = files.flat_map(|path| dates(path)).collect();
    findings.extend(chain(tls));
    let overdue = tls.client_crl.iter().flat_map(|path| overdue_lists(path, ASN1Time::now()));
    findings.extend(overdue.map(|warning| Finding::new(CHECK, CheckResult::Warn, warning)));
    if findings.is_empty() {
        findings.push(Finding::new(CHECK, CheckResult::Ok, "the key belongs to the certificate, and all are valid"));
    }
    findings
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

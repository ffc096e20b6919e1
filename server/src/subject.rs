//! Identity by the subject of a certificate: a mapping from common names to roles, for clients whose
//! certificates have no SPIFFE URI, and for balancers that end TLS in front of the server.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::HeaderMap;
use leasehold_core::invisible::is_invisible;
use serde::{Deserialize, Serialize};
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use crate::identity::{Caller, Role, cell_of};

/// The headers in which a balancer sends the subject of its client's certificate, as base64 of the
/// DER name; the second is the older name.
const HEADERS: [&str; 2] = ["x-client-runway-cc-subject-dn", "x-client-cert-subject-dn"];

/// The longest subject that is decoded, in bytes of base64.
const MAX_SUBJECT_BYTES: usize = 4096;

/// The part of a pattern that stands for a cell's id.
const ID: &str = "{id}";

/// The common names that give roles, and the balancers whose header is trusted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SubjectConfig {
    /// The common name of cells, with `{id}` for the cell's id: `CELL-{id}`.
    pub cell: Option<String>,
    /// The common name of routers.
    pub router: Option<String>,
    /// The common name of administrators.
    pub admin: Option<String>,
    /// The common names of the balancers whose header is trusted.
    pub balancers: Vec<String>,
    /// Treats every caller over loopback without TLS as a balancer, and so trusts its header. A
    /// caller without the header then has no identity.
    pub loopback_balancer: bool,
}

impl SubjectConfig {
    /// Returns the caller whose certificate has this subject. For a balancer, this is
    /// [`Caller::Balancer`].
    pub fn caller(&self, subject: &X509Name<'_>) -> Caller {
        let Some(name) = common_name(subject) else { return Caller::Unrecognised };
        if self.is_balancer(name) {
            return Caller::Balancer;
        }
        // A common name that matches two roles gives none, like a certificate with two roles.
        let mut roles = self.roles(name);
        let role = roles.next().filter(|_| roles.next().is_none());
        role.map_or(Caller::Unrecognised, Caller::Authenticated)
    }

    fn is_balancer(&self, name: &str) -> bool {
        self.balancers.iter().any(|balancer| balancer == name)
    }

    /// Returns the roles whose configured name is this common name.
    fn roles(&self, name: &str) -> impl Iterator<Item = Role> {
        let is = |configured: &Option<String>| configured.as_deref() == Some(name);
        let cell = self.cell.as_deref().and_then(|pattern| {
            let (before, after) = pattern.split_once(ID)?;
            cell_of(name.strip_prefix(before)?.strip_suffix(after)?)
        });
        let named =
            [cell.map(Role::Cell), is(&self.router).then_some(Role::Router), is(&self.admin).then_some(Role::Admin)];
        named.into_iter().flatten()
    }

    /// Returns the caller that a balancer's header names; [`Caller::Unrecognised`] if the name has no
    /// role or is a balancer's. A header that can't be read names no client, as if it were absent.
    fn caller_of_header(&self, header: &[u8]) -> Caller {
        let Some(der) = decoded(header) else { return Caller::Balancer };
        match X509Name::from_der(&der).map(|(rest, subject)| (rest, self.caller(&subject))) {
            Ok(([], caller @ Caller::Authenticated(_))) => caller,
            Ok(([], _)) => Caller::Unrecognised,
            _ => Caller::Balancer,
        }
    }

    /// Returns the first configured name that can't be used, and its fault. Callers with such a name
    /// get no role.
    pub fn fault(&self) -> Option<(&str, SubjectFault)> {
        let names = [&self.cell, &self.router, &self.admin].into_iter().flatten().chain(&self.balancers);
        names
            .map(String::as_str)
            .find_map(|name| Some((name, SubjectFault::of_text(name).or_else(|| self.clash(name))?)))
    }

    /// Returns the fault of a name that has another meaning too.
    fn clash(&self, name: &str) -> Option<SubjectFault> {
        if self.cell.as_deref() == Some(name) {
            return None;
        }
        let balancers = self.balancers.iter().filter(|balancer| *balancer == name).count();
        match (balancers, self.roles(name).count() + balancers.min(1)) {
            (_, kinds) if kinds > 1 => Some(SubjectFault::TwoKinds),
            (2.., _) => Some(SubjectFault::Twice),
            _ if self.is_almost_cell(name) => Some(SubjectFault::AlmostCell),
            _ => None,
        }
    }

    /// True if the name fits the pattern of cells, but with a number that is not in the form of ids,
    /// such as `CELL-01`. People would take it for a cell's.
    fn is_almost_cell(&self, name: &str) -> bool {
        let id = self.cell.as_deref().and_then(|pattern| {
            let (before, after) = pattern.split_once(ID)?;
            name.strip_prefix(before)?.strip_suffix(after)
        });
        id.is_some_and(|id| !id.is_empty() && id.chars().all(char::is_numeric) && cell_of(id).is_none())
    }

    /// True if the pattern of cells has exactly one `{id}`, or there is none.
    pub fn has_valid_pattern(&self) -> bool {
        self.cell.as_ref().is_none_or(|pattern| pattern.matches(ID).count() == 1)
    }
}

/// The fault of a configured common name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectFault {
    /// The name has no character.
    #[error("which is empty: leave the setting out, or give a name")]
    Empty,
    /// The name begins or ends with a space.
    #[error("which has spaces around it: remove them")]
    Spaces,
    /// The name has a character that people don't see. Two names would look the same.
    #[error("which has the invisible character U+{:04X}: remove it", u32::from(*.0))]
    Invisible(char),
    /// The list of balancers has the name more than once.
    #[error("which is there twice: name each balancer once")]
    Twice,
    /// The name stands for more than one kind of callers.
    #[error("which stands for two kinds of callers: give each a name of its own")]
    TwoKinds,
    /// The name fits the pattern of cells, but its number is no cell's id.
    #[error("which looks like a cell's name but has no cell's id: choose another name")]
    AlmostCell,
}

impl SubjectFault {
    /// Returns the fault of a name's text alone.
    fn of_text(name: &str) -> Option<Self> {
        let invisible = name.chars().find(|c| c.is_control() || is_invisible(*c)).map(Self::Invisible);
        match name {
            "" => Some(Self::Empty),
            _ if name.trim() != name => Some(Self::Spaces),
            _ => invisible,
        }
    }
}

/// Decodes the base64 of a header; `None` if it is not base64, empty or too long.
fn decoded(header: &[u8]) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let bytes = GeneralPurpose::new(&STANDARD, config);
    (header.len() <= MAX_SUBJECT_BYTES).then(|| bytes.decode(header).ok()).flatten()
}

/// Returns the one common name of a subject; `None` if it has none or several.
fn common_name<'a>(subject: &'a X509Name<'_>) -> Option<&'a str> {
    let mut names = subject.iter_common_name();
    let name = names.next().filter(|_| names.next().is_none())?;
    name.as_str().ok()
}

/// The content of the balancers' headers of a request.
enum Header {
    Absent,
    One(Vec<u8>),
    /// The balancer added its header, but did not remove one that its client had sent. No header
    /// can be trusted then.
    Several,
}

fn remove(headers: &mut HeaderMap) -> Header {
    let values: Vec<_> = HEADERS.iter().flat_map(|name| headers.get_all(*name)).cloned().collect();
    HEADERS.iter().for_each(|name| drop(headers.remove(*name)));
    match values.as_slice() {
        [] => Header::Absent,
        [one] => Header::One(one.as_bytes().to_vec()),
        _ => Header::Several,
    }
}

/// The caller of a request, and if a header was removed that could not be trusted.
pub struct Identified {
    /// The caller of the request.
    pub caller: Caller,
    /// True if a header was removed because the peer is no balancer.
    pub has_removed: bool,
}

/// Removes the balancers' headers from a request, and returns the caller of the request. If the
/// peer `caller` is a balancer, this is the caller that the header names. Otherwise it is the peer
/// itself.
pub fn identify(caller: Caller, headers: &mut HeaderMap, subjects: &SubjectConfig) -> Identified {
    match (caller, remove(headers)) {
        (Caller::Balancer, Header::One(subject)) => {
            Identified { caller: subjects.caller_of_header(&subject), has_removed: false }
        }
        (Caller::Balancer, Header::Several) => Identified { caller: Caller::Unrecognised, has_removed: false },
        (caller, Header::Absent) => Identified { caller, has_removed: false },
        (caller, Header::One(_) | Header::Several) => Identified { caller, has_removed: true },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use base64::engine::general_purpose::STANDARD as BASE64;
    use leasehold_core::cell::CellId;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
    use x509_parser::prelude::X509Certificate;

    use super::*;

    fn subjects() -> SubjectConfig {
        SubjectConfig {
            cell: Some("CELL-{id}".into()),
            router: Some("router.example".into()),
            admin: Some("admin.example".into()),
            balancers: vec!["balancer.example".into()],
            loopback_balancer: false,
        }
    }

    /// Returns the header for a subject with these common names.
    fn header(names: &[&str]) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "an organization");
        if let [name, ..] = names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let (_, certificate) = X509Certificate::from_der(certificate.der()).unwrap();
        BASE64.encode(certificate.subject().as_raw())
    }

    fn identified(caller: Caller, values: &[(&'static str, &str)]) -> (Caller, bool) {
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(*name, value.parse().unwrap());
        }
        let identified = identify(caller, &mut headers, &subjects());
        assert!(headers.is_empty());
        (identified.caller, identified.has_removed)
    }

    #[test]
    fn a_common_name_gives_a_role() {
        let cell = |id| Caller::Authenticated(Role::Cell(CellId(id)));
        for (name, caller) in [
            ("CELL-1", cell(1)),
            ("CELL-9223372036854775807", cell(i64::MAX)),
            ("router.example", Caller::Authenticated(Role::Router)),
            ("admin.example", Caller::Authenticated(Role::Admin)),
            ("CELL-", Caller::Unrecognised),
            ("CELL-0", Caller::Unrecognised),
            ("CELL-01", Caller::Unrecognised),
            ("CELL-+1", Caller::Unrecognised),
            ("CELL-1 ", Caller::Unrecognised),
            ("cell-1", Caller::Unrecognised),
            ("CELL-9223372036854775808", Caller::Unrecognised),
            // A balancer's header never names a balancer.
            ("balancer.example", Caller::Unrecognised),
        ] {
            let value = header(&[name]);
            assert_eq!(identified(Caller::Balancer, &[(HEADERS[0], &value)]), (caller.clone(), false), "{name}");
            assert_eq!(identified(Caller::Balancer, &[(HEADERS[1], &value)]), (caller, false), "{name}");
        }
        let unnamed = header(&[]);
        assert_eq!(identified(Caller::Balancer, &[(HEADERS[0], &unnamed)]).0, Caller::Unrecognised);
    }

    #[test]
    fn only_a_balancer_is_believed_and_only_one_header() {
        let admin = header(&["admin.example"]);
        for caller in [Caller::Trusted, Caller::Anonymous, Caller::Unrecognised, Caller::Authenticated(Role::Router)] {
            assert_eq!(identified(caller.clone(), &[(HEADERS[0], &admin)]), (caller.clone(), true));
            assert_eq!(identified(caller.clone(), &[]), (caller, false));
        }
        let twice = [(HEADERS[0], admin.as_str()), (HEADERS[0], &admin)];
        assert_eq!(identified(Caller::Balancer, &twice), (Caller::Unrecognised, false));
        let both = [(HEADERS[0], admin.as_str()), (HEADERS[1], &admin)];
        assert_eq!(identified(Caller::Balancer, &both), (Caller::Unrecognised, false));
        assert_eq!(identified(Caller::Balancer, &[]), (Caller::Balancer, false));
        let long = "A".repeat(MAX_SUBJECT_BYTES + 4);
        assert_eq!(identified(Caller::Balancer, &[(HEADERS[0], &long)]).0, Caller::Balancer);
        for unreadable in ["", "!", "AAAA"] {
            assert_eq!(identified(Caller::Balancer, &[(HEADERS[0], unreadable)]), (Caller::Balancer, false));
        }
        let longer = BASE64.encode([BASE64.decode(&admin).unwrap(), vec![0]].concat());
        assert_eq!(identified(Caller::Balancer, &[(HEADERS[0], &longer)]).0, Caller::Balancer, "bytes follow");
    }

    proptest! {
        #[test]
        fn any_header_gives_a_caller(header in prop::collection::vec(any::<u8>(), 0..200)) {
            let encoded = BASE64.encode(&header);
            for header in [&header, encoded.as_bytes()] {
                prop_assert!(matches!(subjects().caller_of_header(header), Caller::Unrecognised | Caller::Balancer));
            }
        }
    }
}

//! Authentication and authorisation of callers.
//!
//! The caller's role comes from a URI in the client certificate. The access rules of each method
//! come from the option `access_control` in the `.proto` files. The namespaces of locks that a
//! caller may use come from the configuration.

use leasehold_core::cell::CellId;
use leasehold_core::session::Principal;
use leasehold_proto::gitlab::cells::topology_service::AuthorizationRule;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

/// The role that a client certificate gives to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The client is a cell: `spiffe://DOMAIN/cell/7`.
    Cell(CellId),
    /// The client is a router: `spiffe://DOMAIN/router`.
    Router,
    /// The client is an administrator: `spiffe://DOMAIN/admin`.
    Admin,
    /// The client is a service, which uses locks: `spiffe://DOMAIN/service/billing`. The principal
    /// is `service/billing`.
    Service(Principal),
    /// The client is another server of the store, which may only ring: `spiffe://DOMAIN/server`.
    Server,
}

/// The caller at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A client of a server without TLS, which may be anybody. This caller may call every method
    /// for every cell.
    Trusted,
    /// This server itself, when it rolls back a begin whose caller is gone (B25).
    Server,
    /// A balancer that ends TLS in front of the server. The header of each request names the request's
    /// caller (`subject.rs`).
    Balancer,
    /// A client with a certificate that the client authority signed and that names exactly one
    /// role.
    Authenticated(Role),
    /// A client with a certificate that the client authority signed and that names no role, or more
    /// than one.
    Unrecognised,
    /// A client without a certificate.
    Anonymous,
}

/// Shows the caller in the form that the audit trail uses.
impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Trusted => f.write_str("trusted"),
            Self::Server | Self::Authenticated(Role::Server) => f.write_str("server"),
            Self::Authenticated(Role::Cell(cell)) => write!(f, "cell/{cell}"),
            Self::Authenticated(Role::Router) => f.write_str("router"),
            Self::Authenticated(Role::Admin) => f.write_str("admin"),
            Self::Authenticated(Role::Service(principal)) => f.write_str(principal.as_str()),
            Self::Balancer | Self::Unrecognised | Self::Anonymous => f.write_str("unknown"),
        }
    }
}

/// A caller's right to call one method. A handler whose request names a cell must pass that cell to
/// [`check`](Self::check) before it does anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    caller: Caller,
    scope: CellScope,
}

/// The cells for which a permit allows a method to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellScope {
    AnyCell,
    Only(CellId),
}

/// The reason why a call is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The client has no certificate.
    NoIdentity,
    /// The client's certificate names no role, or more than one.
    NoRole,
    /// A balancer's request has no header with the subject of a client.
    NoSubject,
    /// No rule of the method allows the caller's role.
    RuleDenied,
    /// No entry of `[[locks.access]]` allows the caller to use the namespace of the lock, or any
    /// namespace.
    NamespaceDenied,
}

impl Permit {
    /// Checks that the method may be called for `cell`.
    ///
    /// # Errors
    /// The caller may call the method for its own cell only, and `cell` is another one.
    pub fn check(&self, cell: CellId) -> Result<(), Denied> {
        match self.scope {
            CellScope::Only(own) if own != cell => Err(Denied::RuleDenied),
            CellScope::Only(_) | CellScope::AnyCell => Ok(()),
        }
    }

    /// The caller that got this permit.
    pub fn caller(&self) -> Caller {
        self.caller.clone()
    }
}

impl Caller {
    /// Returns the caller that a client certificate names. `der` is the certificate in DER, which
    /// the TLS handshake has verified.
    ///
    /// The URIs come first. If no URI names a role, `of_subject` decides by the subject.
    pub fn of_certificate(der: &[u8], trust_domain: &str, of_subject: impl FnOnce(&X509Name<'_>) -> Self) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Self::Unrecognised };
        let Ok(names) = certificate.subject_alternative_name() else { return Self::Unrecognised };
        let names = names.iter().flat_map(|names| &names.value.general_names);
        let mut roles = names.filter_map(|name| match name {
            GeneralName::URI(uri) => parse_role(uri, trust_domain),
            _ => None,
        });
        match (roles.next(), roles.next()) {
            (Some(role), None) => Self::Authenticated(role),
            (None, _) => of_subject(certificate.subject()),
            // A certificate with two roles is refused: a choice between them would depend on their
            // order in the certificate.
            _ => Self::Unrecognised,
        }
    }

    /// Returns the caller's permit for a method with these access rules.
    ///
    /// # Errors
    /// The caller has no role, or no rule allows the role.
    pub fn permit(self, rules: &[AuthorizationRule]) -> Result<Permit, Denied> {
        let scope = match self {
            Self::Trusted | Self::Server => Some(CellScope::AnyCell),
            Self::Unrecognised => return Err(Denied::NoRole),
            Self::Anonymous => return Err(Denied::NoIdentity),
            Self::Balancer => return Err(Denied::NoSubject),
            Self::Authenticated(ref role) => widest(rules.iter().filter_map(|rule| role.scope(*rule))),
        };
        scope.map(|scope| Permit { caller: self, scope }).ok_or(Denied::RuleDenied)
    }
}

fn widest(scopes: impl Iterator<Item = CellScope>) -> Option<CellScope> {
    scopes.reduce(|a, b| if a == CellScope::AnyCell { a } else { b })
}

impl Caller {
    /// Returns the name under which this caller opens sessions; `None` for a caller that can't use
    /// locks. On a server without TLS all callers have one name.
    pub fn principal(&self) -> Option<Principal> {
        match self {
            Self::Trusted => Principal::parse("trusted").ok(),
            Self::Authenticated(Role::Service(principal)) => Some(principal.clone()),
            Self::Authenticated(Role::Cell(cell)) => Principal::parse(&format!("cell/{cell}")).ok(),
            Self::Authenticated(Role::Router | Role::Admin | Role::Server)
            | Self::Server
            | Self::Balancer
            | Self::Unrecognised
            | Self::Anonymous => None,
        }
    }
}

impl Role {
    /// Returns the cells for which one access rule lets this role call a method; `None` if the rule
    /// does not allow this role.
    fn scope(&self, rule: AuthorizationRule) -> Option<CellScope> {
        use AuthorizationRule as Rule;
        match (rule, self) {
            (Rule::RuleAllowAnyServer, Self::Server) => Some(CellScope::AnyCell),
            // A server's certificate lies on each machine that serves clients, so it opens one call only.
            (_, Self::Server) => None,
            (Rule::RuleAllowAnyAuthenticated, _)
            | (Rule::RuleAllowAnyCell, Self::Cell(_))
            | (Rule::RuleAllowAnyRouter, Self::Router)
            | (Rule::RuleAllowAnyAdmin, Self::Admin)
            | (Rule::RuleAllowAnyService, Self::Service(_) | Self::Cell(_)) => Some(CellScope::AnyCell),
            (Rule::RuleAllowMatchingCellOnly, Self::Cell(cell)) => Some(CellScope::Only(*cell)),
            (
                Rule::RuleUnspecified
                | Rule::RuleAllowAnyCell
                | Rule::RuleAllowMatchingCellOnly
                | Rule::RuleAllowAnyRouter
                | Rule::RuleAllowAnyAdmin
                | Rule::RuleAllowAnyService
                | Rule::RuleAllowAnyServer,
                _,
            ) => None,
        }
    }
}

/// Returns the role that a URI of a certificate names; `None` for a URI of another trust domain or
/// of another form.
fn parse_role(uri: &str, trust_domain: &str) -> Option<Role> {
    let path = uri.strip_prefix("spiffe://")?.strip_prefix(trust_domain)?.strip_prefix('/')?;
    match path.split_once('/') {
        None if path == "router" => Some(Role::Router),
        None if path == "admin" => Some(Role::Admin),
        None if path == "server" => Some(Role::Server),
        Some(("cell", id)) => cell_of(id).map(Role::Cell),
        Some(("service", name)) => service_of(name).map(Role::Service),
        _ => None,
    }
}

/// Returns the cell with this id in a certificate; `None` for text that is no id.
pub(crate) fn cell_of(id: &str) -> Option<CellId> {
    // Each cell has exactly one valid name. `i64::from_str` alone would also accept `+7` and `07`.
    let is_id = id.bytes().all(|byte| byte.is_ascii_digit()) && !id.starts_with('0');
    id.parse().ok().filter(|_| is_id).map(CellId)
}

/// Returns the principal of a service with this name; `None` for a name that is empty, too long, has
/// another part, or has a character that is not printable ASCII.
fn service_of(name: &str) -> Option<Principal> {
    let is_name = !name.is_empty() && !name.contains('/');
    is_name.then(|| Principal::parse(&format!("service/{name}")).ok()).flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn roles_are_read_from_uris() {
        for (uri, role) in [
            ("spiffe://leasehold/cell/7", Some(Role::Cell(CellId(7)))),
            ("spiffe://leasehold/router", Some(Role::Router)),
            ("spiffe://leasehold/admin", Some(Role::Admin)),
            ("spiffe://leasehold/server", Some(Role::Server)),
            ("spiffe://leasehold/server/1", None),
            ("spiffe://leasehold/service/billing", Principal::parse("service/billing").ok().map(Role::Service)),
            ("spiffe://leasehold/service/", None),
            ("spiffe://leasehold/service/a/b", None),
            ("spiffe://leasehold/service/a b", None),
            ("spiffe://leasehold/cell/0", None),
            ("spiffe://leasehold/cell/-7", None),
            ("spiffe://leasehold/cell/7/x", None),
            ("spiffe://leasehold/cell/", None),
            ("spiffe://leasehold-evil/admin", None),
            ("spiffe://other/admin", None),
            ("https://leasehold/admin", None),
            ("spiffe://leasehold/admin/", None),
        ] {
            assert_eq!(parse_role(uri, "leasehold"), role, "{uri}");
        }
    }

    #[test]
    fn the_widest_rule_applies_and_a_cell_acts_for_itself_only() {
        use AuthorizationRule::{RuleAllowAnyAdmin, RuleAllowAnyCell, RuleAllowMatchingCellOnly};
        let cell = Caller::Authenticated(Role::Cell(CellId(1)));
        let own = cell.clone().permit(&[RuleAllowMatchingCellOnly, RuleAllowAnyAdmin]).unwrap();
        assert_eq!((own.check(CellId(1)), own.check(CellId(2))), (Ok(()), Err(Denied::RuleDenied)));
        let any = cell.clone().permit(&[RuleAllowMatchingCellOnly, RuleAllowAnyCell]).unwrap();
        assert_eq!(any.check(CellId(2)), Ok(()));
        assert_eq!(cell.clone().permit(&[RuleAllowAnyAdmin]), Err(Denied::RuleDenied));
        assert_eq!(cell.permit(&[]), Err(Denied::RuleDenied));
        let server = Caller::Authenticated(Role::Server);
        assert!(server.clone().permit(&[AuthorizationRule::RuleAllowAnyServer]).is_ok());
        assert_eq!(server.permit(&[AuthorizationRule::RuleAllowAnyAuthenticated]), Err(Denied::RuleDenied));
        assert_eq!(Caller::Anonymous.permit(&[RuleAllowMatchingCellOnly]), Err(Denied::NoIdentity));
        assert!(Caller::Trusted.permit(&[RuleAllowMatchingCellOnly]).unwrap().check(CellId(9)).is_ok());
    }
}

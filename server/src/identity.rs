//! Who calls: from the client certificate's SAN URI. Which calls that allows: from the method's own `access_control`
//! option, as the descriptor has it.

use leasehold_core::claim::CellId;
use leasehold_proto::gitlab::cells::topology_service::AuthorizationRule;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// What a certificate says its holder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A cell: `spiffe://DOMAIN/cell/7`.
    Cell(CellId),
    /// A router: `spiffe://DOMAIN/router`.
    Router,
    /// An administrator: `spiffe://DOMAIN/admin`.
    Admin,
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Anybody, on a server without TLS: may do everything.
    Trusted,
    /// The holder of a certificate that the client authority signed.
    Known(Role),
    /// The holder of a certificate that does not say who it is.
    Unnamed,
    /// Whoever shows no certificate.
    Unknown,
}

/// The caller at the other end of a connection: an extension of each of its requests.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The caller that the handshake found.
    pub caller: Caller,
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Trusted => f.write_str("trusted"),
            Self::Known(Role::Cell(cell)) => write!(f, "cell/{cell}"),
            Self::Known(Role::Router) => f.write_str("router"),
            Self::Known(Role::Admin) => f.write_str("admin"),
            Self::Unnamed | Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// What a caller may do with one method. A handler that names a cell has to show it the permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    caller: Caller,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    AnyCell,
    Only(CellId),
}

/// Why a caller may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Nobody knows who calls: there is no certificate.
    NoIdentity,
    /// The certificate does not say who calls.
    NoRole,
    /// No rule of the method fits the caller.
    RuleDenied,
}

impl Permit {
    /// Whether the method may be called on behalf of `cell`.
    ///
    /// # Errors
    /// The caller may call it for its own cell only.
    pub fn check(&self, cell: CellId) -> Result<(), Denied> {
        match self.scope {
            Scope::Only(own) if own != cell => Err(Denied::RuleDenied),
            Scope::Only(_) | Scope::AnyCell => Ok(()),
        }
    }

    /// Who calls.
    pub fn caller(&self) -> Caller {
        self.caller
    }
}

impl Caller {
    /// The caller that a certificate names, in DER.
    pub fn of_certificate(der: &[u8], trust_domain: &str) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Self::Unnamed };
        let Ok(Some(names)) = certificate.subject_alternative_name() else { return Self::Unnamed };
        let mut roles = names.value.general_names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => parse_role(uri, trust_domain),
            _ => None,
        });
        match (roles.next(), roles.next()) {
            (Some(role), None) => Self::Known(role),
            // Two roles are one too many to tell who calls.
            _ => Self::Unnamed,
        }
    }

    /// What the caller may do with a method of these rules.
    ///
    /// # Errors
    /// Nothing.
    pub fn permit(self, rules: &[AuthorizationRule]) -> Result<Permit, Denied> {
        let scope = match self {
            Self::Trusted => Some(Scope::AnyCell),
            Self::Unnamed => return Err(Denied::NoRole),
            Self::Unknown => return Err(Denied::NoIdentity),
            Self::Known(role) => widest(rules.iter().filter_map(|rule| role.scope(*rule))),
        };
        scope.map(|scope| Permit { caller: self, scope }).ok_or(Denied::RuleDenied)
    }
}

fn widest(scopes: impl Iterator<Item = Scope>) -> Option<Scope> {
    scopes.reduce(|a, b| if a == Scope::AnyCell { a } else { b })
}

impl Role {
    /// What a rule lets this role do.
    fn scope(self, rule: AuthorizationRule) -> Option<Scope> {
        use AuthorizationRule as Rule;
        match (rule, self) {
            (Rule::RuleAllowAnyAuthenticated, _)
            | (Rule::RuleAllowAnyCell, Self::Cell(_))
            | (Rule::RuleAllowAnyRouter, Self::Router)
            | (Rule::RuleAllowAnyAdmin, Self::Admin) => Some(Scope::AnyCell),
            (Rule::RuleAllowMatchingCellOnly, Self::Cell(cell)) => Some(Scope::Only(cell)),
            (
                Rule::RuleUnspecified
                | Rule::RuleAllowAnyCell
                | Rule::RuleAllowMatchingCellOnly
                | Rule::RuleAllowAnyRouter
                | Rule::RuleAllowAnyAdmin,
                _,
            ) => None,
        }
    }
}

fn parse_role(uri: &str, trust_domain: &str) -> Option<Role> {
    let path = uri.strip_prefix("spiffe://")?.strip_prefix(trust_domain)?.strip_prefix('/')?;
    match path.split_once('/') {
        None if path == "router" => Some(Role::Router),
        None if path == "admin" => Some(Role::Admin),
        Some(("cell", id)) if id.bytes().all(|byte| byte.is_ascii_digit()) && !id.starts_with('0') => {
            id.parse().ok().map(|id| Role::Cell(CellId(id)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_from_uris() {
        for (uri, role) in [
            ("spiffe://leasehold/cell/7", Some(Role::Cell(CellId(7)))),
            ("spiffe://leasehold/router", Some(Role::Router)),
            ("spiffe://leasehold/admin", Some(Role::Admin)),
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
    fn the_widest_rule_counts_and_own_cell_means_own() {
        use AuthorizationRule::{RuleAllowAnyAdmin, RuleAllowAnyCell, RuleAllowMatchingCellOnly};
        let cell = Caller::Known(Role::Cell(CellId(1)));
        let own = cell.permit(&[RuleAllowMatchingCellOnly, RuleAllowAnyAdmin]).unwrap();
        assert_eq!((own.check(CellId(1)), own.check(CellId(2))), (Ok(()), Err(Denied::RuleDenied)));
        let any = cell.permit(&[RuleAllowMatchingCellOnly, RuleAllowAnyCell]).unwrap();
        assert_eq!(any.check(CellId(2)), Ok(()));
        assert_eq!(cell.permit(&[RuleAllowAnyAdmin]), Err(Denied::RuleDenied));
        assert_eq!(cell.permit(&[]), Err(Denied::RuleDenied));
        assert_eq!(Caller::Unknown.permit(&[RuleAllowMatchingCellOnly]), Err(Denied::NoIdentity));
        assert!(Caller::Trusted.permit(&[RuleAllowMatchingCellOnly]).unwrap().check(CellId(9)).is_ok());
    }
}

//! The settings of locks: which callers may use which namespaces, which namespaces are reaped, and how
//! servers reach each other.

use std::num::NonZeroU32;

use http::Uri;
use leasehold_core::lock::{LockPath, MAX_CLEANUPS};
use leasehold_core::locking::scan::is_within;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::check::is_address;
use crate::identity::Caller;

/// The settings of locks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocksConfig {
    /// The address at which the other servers of the database ring this one when they have written a
    /// grant for which it waits. `None` if they do not ring it.
    pub peer_address: Option<String>,
    /// The rights of callers with a certificate. Without TLS every caller may use every namespace.
    pub access: Vec<LockAccess>,
    /// The namespaces whose locks need a cleanup after their holder has died, before they are granted
    /// again.
    pub reaped: Vec<ReapedNamespaces>,
}

/// Namespaces that are reaped.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReapedNamespaces {
    /// The namespaces, each with the namespaces in it: `user` stands for `user.update` too.
    pub namespaces: Vec<String>,
    /// The most cleanups that are begun after a holder has died: 1 to 1,000. After the last one has
    /// failed, the lock is set aside for an operator.
    #[serde(default = "default_attempts")]
    pub attempts: u32,
}

fn default_attempts() -> u32 {
    10
}

/// The namespaces of locks that one caller may use.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockAccess {
    /// The caller, as its certificate names it: `service/billing` or `cell/7`.
    pub caller: String,
    /// The namespaces, each with the namespaces in it: `user` stands for `user.update` too.
    pub namespaces: Vec<String>,
}

impl LocksConfig {
    /// True if a caller may use locks of a namespace. The empty namespace stands for all of them.
    pub fn allows(&self, caller: &Caller, namespace: &str) -> bool {
        let is_allowed = |outer: &String| is_within(namespace, outer) && !outer.is_empty();
        *caller == Caller::Trusted || self.namespaces(caller).any(is_allowed)
    }

    /// True if a caller may use locks of at least one namespace.
    pub fn allows_any(&self, caller: &Caller) -> bool {
        *caller == Caller::Trusted || self.namespaces(caller).next().is_some()
    }

    fn namespaces(&self, caller: &Caller) -> impl Iterator<Item = &String> {
        let principal = caller.principal();
        let is_named =
            move |access: &&LockAccess| principal.as_ref().is_some_and(|principal| principal.as_str() == access.caller);
        self.access.iter().filter(is_named).flat_map(|access| &access.namespaces)
    }

    /// Returns the most cleanups after the death of a lock's holder, `None` if the namespace is not
    /// reaped. The first entry that names the namespace counts.
    pub fn reaped(&self, namespace: &str) -> Option<NonZeroU32> {
        let is_named = |reaped: &&ReapedNamespaces| reaped.namespaces.iter().any(|outer| is_within(namespace, outer));
        NonZeroU32::new(self.reaped.iter().find(is_named)?.attempts)
    }

    /// Checks the address at which other servers reach this one.
    ///
    /// # Errors
    /// Other servers can't call the address, or the server shares its store with no other server.
    pub(super) fn check_peer_address(&self, has_tls: bool, is_shared: bool) -> Result<(), ConfigError> {
        let Some(address) = &self.peer_address else { return Ok(()) };
        if !is_shared {
            return Err(ConfigError::PeerAddressAlone);
        }
        let scheme = if has_tls { "https" } else { "http" };
        let uri = address.parse::<Uri>().ok().filter(|uri| uri.scheme_str() == Some(scheme));
        let is_whole = uri.is_some_and(|uri| uri.path() == "/" && uri.query().is_none());
        match is_whole && is_address(address) {
            true => Ok(()),
            false => Err(ConfigError::PeerAddress { address: address.clone(), scheme }),
        }
    }

    /// Checks the callers and namespaces, and the numbers of attempts.
    ///
    /// # Errors
    /// The first entry that no caller can match, whose namespace is malformed (K16), or whose attempts
    /// are out of range (K21).
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        for access in &self.access {
            let is_caller =
                matches!(access.caller.split_once('/'), Some(("service" | "cell", name)) if !name.is_empty());
            if !is_caller {
                return Err(ConfigError::LockCaller(access.caller.clone()));
            }
            check_namespaces("[[locks.access]]", &access.namespaces)?;
        }
        for reaped in &self.reaped {
            check_namespaces("[[locks.reaped]]", &reaped.namespaces)?;
            if !(1..=MAX_CLEANUPS).contains(&reaped.attempts) {
                return Err(ConfigError::CleanupAttempts(reaped.attempts));
            }
        }
        Ok(())
    }
}

fn check_namespaces(table: &'static str, namespaces: &[String]) -> Result<(), ConfigError> {
    let is_bad = |namespace: &&String| LockPath::parse_joined(namespace, "k").is_err();
    match namespaces.iter().find(is_bad) {
        Some(namespace) => Err(ConfigError::LockNamespace { table, namespace: namespace.clone() }),
        None => Ok(()),
    }
}

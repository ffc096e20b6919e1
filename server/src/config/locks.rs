//! The settings of locks: which callers may use which namespaces.

use leasehold_core::lock::LockPath;
use leasehold_core::locking::scan::is_within;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::identity::Caller;

/// The settings of locks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocksConfig {
    /// The rights of callers with a certificate. Without TLS every caller may use every namespace.
    pub access: Vec<LockAccess>,
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

    /// Checks the callers and namespaces.
    ///
    /// # Errors
    /// The first entry that no caller can match, or whose namespace is malformed (K16).
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        for access in &self.access {
            let is_caller =
                matches!(access.caller.split_once('/'), Some(("service" | "cell", name)) if !name.is_empty());
            if !is_caller {
                return Err(ConfigError::LockCaller(access.caller.clone()));
            }
            let is_bad = |namespace: &&String| LockPath::parse_joined(namespace, "k").is_err();
            if let Some(namespace) = access.namespaces.iter().find(is_bad) {
                return Err(ConfigError::LockNamespace(namespace.clone()));
            }
        }
        Ok(())
    }
}

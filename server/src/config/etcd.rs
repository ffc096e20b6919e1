//! The settings of the table `[etcd]`, which makes a cluster of etcd the store.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The scheme of a URL of etcd.
const SCHEME: &str = "etcd://";
/// The port of a member whose address names none.
const DEFAULT_PORT: u16 = 2379;
/// The prefix of all keys of a store whose URL names none.
const DEFAULT_PREFIX: &str = "leasehold";
/// The most bytes of a prefix, which each key has.
const MAX_PREFIX_BYTES: usize = 64;

/// The settings of a cluster of etcd as the store. Several servers may share it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdConfig {
    /// `etcd://HOST:PORT,HOST:PORT,…?prefix=PREFIX`, with all members of the cluster.
    pub url: String,
    /// The time in seconds that commands wait while the cluster is unreachable, before they are refused as
    /// `UNAVAILABLE`.
    #[serde(default = "default_patience_seconds")]
    pub patience_seconds: u64,
}

fn default_patience_seconds() -> u64 {
    5
}

/// The members of a cluster of etcd, and the prefix of the store's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdPlace {
    /// The addresses of the members, each as `HOST:PORT`.
    pub members: Vec<String>,
    /// The prefix of all keys of the store.
    pub prefix: String,
}

impl EtcdConfig {
    /// Returns the settings of the cluster at `url`, with every other setting at its default.
    pub fn at(url: impl Into<String>) -> Self {
        Self { url: url.into(), patience_seconds: default_patience_seconds() }
    }

    /// True if a URL names a cluster of etcd.
    pub fn is_url(url: &str) -> bool {
        url.starts_with(SCHEME)
    }

    /// Reads the members and the prefix from the URL.
    ///
    /// # Errors
    /// The URL is not of the form `etcd://HOST:PORT,…?prefix=PREFIX`. The text says what to do.
    pub fn place(&self) -> Result<EtcdPlace, String> {
        let rest = self.url.strip_prefix(SCHEME).ok_or("the URL does not begin with `etcd://`")?;
        let (hosts, options) = rest.split_once('?').unwrap_or((rest, ""));
        let members = hosts.trim_end_matches('/').split(',').map(member).collect::<Option<Vec<_>>>();
        let members = members.ok_or("a member is not of the form `HOST` or `HOST:PORT`")?;
        let prefix = match options {
            "" => DEFAULT_PREFIX,
            option => option.strip_prefix("prefix=").ok_or("`prefix` is the only option")?,
        };
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES || !prefix.bytes().all(is_allowed) {
            return Err(format!("`prefix` is not 1 to {MAX_PREFIX_BYTES} letters, digits, `-`, `_`, `.` and `/`"));
        }
        Ok(EtcdPlace { members, prefix: prefix.into() })
    }

    /// Returns the URL for logs and messages. If it can't be read, the result is its scheme alone, because
    /// the rest may have a password.
    pub fn shown_url(&self) -> String {
        match self.place() {
            Ok(EtcdPlace { members, prefix }) => format!("{SCHEME}{}?prefix={prefix}", members.join(",")),
            Err(_) => format!("{SCHEME}…"),
        }
    }
}

/// Prints the URL only if it can be read: it may have a password by mistake.
impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig").field("url", &self.shown_url()).finish_non_exhaustive()
    }
}

/// Returns the address of a member with its port; `None` if it is no address.
fn member(address: &str) -> Option<String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if address.is_empty() || !address.bytes().all(is_allowed) {
        return None;
    }
    // The colons of an IPv6 address are in brackets.
    let name_end = address.rfind(']').map_or(0, |end| end + 1);
    match address.split_at_checked(name_end)?.1.split_once(':') {
        Some((_, port)) => port.parse::<u16>().ok().map(|_| address.to_owned()),
        None => Some(format!("{address}:{DEFAULT_PORT}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_url_names_members_and_a_prefix() {
        for (url, shown) in [
            ("etcd://a", "etcd://a:2379?prefix=leasehold"),
            ("etcd://a:1,b,[::1]:3,[::1]?prefix=x/y", "etcd://a:1,b:2379,[::1]:3,[::1]:2379?prefix=x/y"),
            ("etcd://u:secret@a", "etcd://…"),
            ("etcd://a,?prefix=x", "etcd://…"),
            ("etcd://a:b", "etcd://…"),
            ("etcd://a?prefix=", "etcd://…"),
            ("etcd://a?user=me", "etcd://…"),
        ] {
            assert_eq!(EtcdConfig::at(url).shown_url(), shown, "{url}");
        }
    }

    #[test]
    fn a_url_without_the_scheme_is_refused() {
        assert!(EtcdConfig::at("a:2379").place().unwrap_err().contains("etcd://"));
    }
}

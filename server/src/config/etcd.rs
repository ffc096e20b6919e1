//! The settings of the table `[etcd]`, which makes a cluster of etcd the store.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::state_folder;

/// The text about settings that ask for two kinds of connections.
const CONTRADICTION: &str = "`etcd.ca` asks for encrypted connections, `tls=off` for plain ones: leave one out";
/// The text about plain text that would leave the machine.
const NO_CONSENT: &str = "set `etcd.ca` to the authority of the members' certificates, or add `tls=off` to the URL \
                          if the network is trusted";
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
    /// The authority that signs the members' certificates. With it, connections are encrypted and each
    /// certificate is checked against its host. Without it, the members must be on this machine or the
    /// URL must have `tls=off`.
    pub ca: Option<PathBuf>,
    /// The client certificate that the server presents to the members.
    pub certificate: Option<PathBuf>,
    /// The private key of the client certificate.
    pub key: Option<PathBuf>,
    /// The directory of the file with the newest revision that the cluster has acknowledged. Without it, it is
    /// `leasehold-etcd` in the user's state folder.
    pub state_directory: Option<PathBuf>,
    /// The `--quota-backend-bytes` of the members, in MiB. etcd 3.6 and later tell it themselves.
    #[serde(default = "default_quota_mib")]
    pub quota_mib: u64,
    /// The time in seconds that commands wait while the cluster is unreachable, before they are refused as
    /// `UNAVAILABLE`.
    #[serde(default = "default_patience_seconds")]
    pub patience_seconds: u64,
}

fn default_quota_mib() -> u64 {
    2048
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
    /// True if the URL has `tls=off`.
    allows_plaintext: bool,
}

impl EtcdPlace {
    fn is_local(&self) -> bool {
        self.members.iter().all(|member| {
            let host = member_host(member);
            host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        })
    }
}

/// Returns the host of a member's address, without the brackets of an IPv6 address.
pub(crate) fn member_host(member: &str) -> &str {
    let host = member.rsplit_once(':').map_or(member, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

impl EtcdConfig {
    /// Returns the settings of the cluster at `url`, with every other setting at its default.
    pub fn at(url: impl Into<String>) -> Self {
        let (ca, certificate, key, state_directory) = Default::default();
        let (quota_mib, patience_seconds) = (default_quota_mib(), default_patience_seconds());
        Self { url: url.into(), ca, certificate, key, state_directory, quota_mib, patience_seconds }
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
        let mut place = EtcdPlace { members, prefix: DEFAULT_PREFIX.into(), allows_plaintext: false };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("prefix", prefix)) => place.prefix = prefix.into(),
                Some(("tls", "off")) => place.allows_plaintext = true,
                _ => return Err("`prefix=PREFIX` and `tls=off` are the only options".into()),
            }
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        let EtcdPlace { prefix, .. } = &place;
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES || !prefix.bytes().all(is_allowed) {
            return Err(format!("`prefix` is not 1 to {MAX_PREFIX_BYTES} letters, digits, `-`, `_`, `.` and `/`"));
        }
        Ok(place)
    }

    /// Returns true if connections are encrypted. Plain text leaves the machine only with consent.
    ///
    /// # Errors
    /// The settings contradict each other, or lack the consent. The text says what to do.
    pub fn is_encrypted(&self, place: &EtcdPlace) -> Result<bool, String> {
        match (&self.ca, place.allows_plaintext) {
            (Some(_), true) => Err(CONTRADICTION.into()),
            (Some(_), false) => Ok(true),
            (None, is_allowed) if is_allowed || place.is_local() => Ok(false),
            (None, _) => Err(NO_CONSENT.into()),
        }
    }

    /// Returns the directory of the state file.
    ///
    /// # Errors
    /// No directory is configured, and the user has no state folder. The text says what to do.
    pub fn state_directory(&self) -> Result<PathBuf, String> {
        let default = || Some(state_folder()?.join("leasehold-etcd"));
        let directory = self.state_directory.clone().or_else(default);
        directory
            .ok_or_else(|| "set `etcd.state_directory`: neither `XDG_STATE_HOME` nor `HOME` is an absolute path".into())
    }

    /// Returns the URL for logs and messages. If it can't be read, the result is its scheme alone, because
    /// the rest may have a password.
    pub fn shown_url(&self) -> String {
        match self.place() {
            Ok(EtcdPlace { members, prefix, .. }) => format!("{SCHEME}{}?prefix={prefix}", members.join(",")),
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
            ("etcd://a?tls=on", "etcd://…"),
            ("etcd://a?tls=off&prefix=x", "etcd://a:2379?prefix=x"),
        ] {
            assert_eq!(EtcdConfig::at(url).shown_url(), shown, "{url}");
        }
    }

    #[test]
    fn plain_text_leaves_the_machine_only_with_consent() {
        for (url, ca, expected) in [
            ("etcd://127.0.0.1:1,[::1]:2,localhost", None, Some(false)),
            ("etcd://127.0.0.1:1,db", None, None),
            ("etcd://db?tls=off", None, Some(false)),
            ("etcd://db", Some("ca.pem"), Some(true)),
            ("etcd://localhost", Some("ca.pem"), Some(true)),
            ("etcd://db?tls=off", Some("ca.pem"), None),
        ] {
            let settings = EtcdConfig { ca: ca.map(PathBuf::from), ..EtcdConfig::at(url) };
            let place = settings.place().unwrap();
            assert_eq!(settings.is_encrypted(&place).ok(), expected, "{url} {ca:?}");
        }
    }

    #[test]
    fn a_url_without_the_scheme_is_refused() {
        assert!(EtcdConfig::at("a:2379").place().unwrap_err().contains("etcd://"));
    }
}

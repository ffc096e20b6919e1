//! The settings of relays, which hand on what transactions have written into the outbox of a user's own
//! database (Q14).

use std::fmt;
use std::path::PathBuf;

use leasehold_core::cell::CellId;
use leasehold_core::session::Principal;
use serde::{Deserialize, Serialize};

use super::{ConfigError, PostgresConfig};
use crate::identity::{Caller, Role};

/// The most relays of a server.
const MAX_RELAYS: usize = 64;
/// The most bytes of a relay's name, which is the label of its metrics.
const MAX_NAME_BYTES: usize = 64;

/// A relay of one outbox.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayConfig {
    /// The name of the relay in the log and in the metrics.
    pub name: String,
    /// The service whose queues the outbox is for, as its certificate names it: `service/billing` or `cell/7`. Its
    /// workers settle their batches in the database. Required with `[tls]`; without it every caller has every right.
    pub caller: Option<String>,
    /// The database with the outbox, as `postgres.url`.
    pub url: String,
    /// The authority that signs the database's certificate, as `postgres.ca`.
    pub ca: Option<PathBuf>,
    /// The client certificate that the server presents to the database.
    pub certificate: Option<PathBuf>,
    /// The private key of the client certificate.
    pub key: Option<PathBuf>,
    /// The file with the password of the database's user, as `postgres.password_file`.
    pub password_file: Option<PathBuf>,
    /// The longest time to open a connection to the database, in seconds.
    #[serde(default = "default_connect_timeout_seconds")]
    pub connect_timeout_seconds: u64,
    /// The longest time that one call to the outbox may take, in seconds.
    #[serde(default = "default_statement_timeout_seconds")]
    pub statement_timeout_seconds: u64,
}

fn default_connect_timeout_seconds() -> u64 {
    5
}

fn default_statement_timeout_seconds() -> u64 {
    10
}

impl RelayConfig {
    /// Returns the settings of the connections to the database.
    pub fn database(&self) -> PostgresConfig {
        PostgresConfig {
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            password_file: self.password_file.clone(),
            connect_timeout_seconds: self.connect_timeout_seconds,
            statement_timeout_seconds: self.statement_timeout_seconds,
            ..PostgresConfig::at(self.url.clone())
        }
    }

    /// Returns the caller for which the relay submits and settles; `None` if no certificate can name it.
    pub fn caller(&self) -> Option<Caller> {
        let Some(name) = &self.caller else { return Some(Caller::Trusted) };
        match name.split_once('/')? {
            ("cell", id) => Some(Caller::Authenticated(Role::Cell(CellId(id.parse().ok().filter(|id| *id > 0)?)))),
            ("service", service) if !service.is_empty() => {
                Some(Caller::Authenticated(Role::Service(Principal::parse(name).ok()?)))
            }
            _ => None,
        }
    }

    /// The paths of the files that the settings name.
    pub(super) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.ca, &mut self.certificate, &mut self.key, &mut self.password_file].into_iter().flatten()
    }

    fn check(&self, has_tls: bool) -> Result<(), ConfigError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if self.name.is_empty() || self.name.len() > MAX_NAME_BYTES || !self.name.bytes().all(allowed) {
            return Err(ConfigError::RelayName(self.name.clone()));
        }
        // On a server without TLS all workers have one name, which no relay of a certain service could use.
        match &self.caller {
            None if has_tls => Err(ConfigError::RelayWithoutCaller(self.name.clone())),
            Some(_) if !has_tls => Err(ConfigError::RelayCallerWithoutTls(self.name.clone())),
            Some(caller) if self.caller().is_none() => {
                Err(ConfigError::RelayCaller { relay: self.name.clone(), caller: caller.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// Checks the names and callers of relays, and that no two have one name.
///
/// # Errors
/// The first problem found.
pub(super) fn check(relays: &[RelayConfig], has_tls: bool) -> Result<(), ConfigError> {
    if relays.len() > MAX_RELAYS {
        return Err(ConfigError::TooManyRelays { count: relays.len(), max: MAX_RELAYS });
    }
    for (at, relay) in relays.iter().enumerate() {
        relay.check(has_tls)?;
        if relays.iter().skip(at + 1).any(|other| other.name == relay.name) {
            return Err(ConfigError::DuplicateRelay(relay.name.clone()));
        }
    }
    Ok(())
}

/// Prints the URL without the password, which a derived implementation would print.
impl fmt::Debug for RelayConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.database().shown_url();
        f.debug_struct("RelayConfig").field("name", &self.name).field("url", &url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

    use super::*;
    use crate::config::Config;

    const TLS: &str = "[tls]\ncertificate = \"a\"\nkey = \"b\"\nclient_ca = \"c\"\n";

    /// Checks the configuration of a relay with these lines.
    fn checked(lines: &str, others: &str) -> Result<Config, String> {
        let text = format!("[[relays]]\nurl = \"postgres://u:secret@db/shop?sslmode=disable\"\n{lines}\n{others}");
        let config: Config = toml::from_str(&text).map_err(|error| error.to_string())?;
        Config { cells: Config::development().cells, ..config }.checked().map_err(|error| error.to_string())
    }

    #[test]
    fn a_relay_has_a_name_and_with_tls_a_caller() {
        let twice = "[[relays]]\nname = \"shop\"\nurl = \"postgres://db/b\"\n";
        for (lines, others, said) in [
            ("", "", "missing field `name`"),
            ("name = \"\"", "", "the `name` of `[[relays]]`, ``,"),
            ("name = \"a b\"", "", "the `name` of `[[relays]]`, `a b`,"),
            ("name = \"shop\"", twice, "two `[[relays]]` have the `name` `shop`"),
            ("name = \"shop\"", TLS, "the relay `shop` has no `caller`"),
            ("name = \"shop\"\ncaller = \"service/shop\"", "", "and there is no `[tls]`"),
            ("name = \"shop\"\ncaller = \"cell/x\"", TLS, "the `caller` of the relay `shop`, `cell/x`,"),
            ("name = \"shop\"\nstatement_timeout_seconds = 0", "", "`relays.statement_timeout_seconds`"),
            ("name = \"shop\"\npatience_seconds = 1", "", "unknown field `patience_seconds`"),
        ] {
            let error = checked(lines, others).unwrap_err();
            assert!(error.contains(said), "{lines}: {error}");
        }
        let relays = checked("name = \"shop\"\ncaller = \"service/shop\"", TLS).unwrap().relays;
        assert_eq!(relays[0].caller().unwrap().to_string(), "service/shop");
        let relays = checked("name = \"shop\"", "").unwrap().relays;
        assert_eq!(relays[0].caller(), Some(Caller::Trusted));
        assert!(!format!("{relays:?}").contains("secret"), "{relays:?}");
    }

    #[test]
    fn a_changed_relay_needs_no_restart() {
        let relay = |url: &str| checked(&format!("name = \"shop\"\nca = \"{url}\""), "").unwrap();
        let (config, change) = relay("a").reloaded(relay("b")).unwrap();
        assert_eq!((change.changed.to_string().as_str(), change.kept_until_restart.is_empty()), ("`relays`", true));
        assert_eq!(config.relays[0].ca.as_deref(), Some(std::path::Path::new("b")));
    }
}

//! The settings of the table `[postgres]`, which makes a database the store. Also converts the
//! database's URL into a form without secrets, for logs and messages.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio_postgres::config::Host;

/// The port of a PostgreSQL server whose URL names none.
const DEFAULT_PORT: u16 = 5432;

/// The settings of a PostgreSQL database as the store. Several servers may share the database.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresConfig {
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. Several hosts are separated by commas; the
    /// server uses the one that accepts writes.
    pub url: String,
    /// The authority that signs the database's certificate. With it, connections are encrypted and
    /// the certificate is checked against the host. Without it, the database must be on this
    /// machine or the URL must have `sslmode=disable`.
    pub ca: Option<PathBuf>,
    /// The client certificate that the server presents to the database.
    pub certificate: Option<PathBuf>,
    /// The private key of the client certificate.
    pub key: Option<PathBuf>,
    /// The file with the password of the database's user. It is read for each new connection, so
    /// that a changed password needs no restart.
    pub password_file: Option<PathBuf>,
    /// The number of connections that write. Each writes one group of commands at a time, and has a
    /// thread of its own. Servers that write to one database at the same time divide this number
    /// among them, at least one connection each.
    #[serde(default = "default_write_connections")]
    pub write_connections: usize,
    /// The most connections that read. Each read uses one connection.
    #[serde(default = "default_read_connections")]
    pub read_connections: usize,
    /// The longest time to open a connection to the database, or to get one from the pool, in
    /// seconds.
    #[serde(default = "default_connect_timeout_seconds")]
    pub connect_timeout_seconds: u64,
    /// The longest time that one SQL statement may take, in seconds.
    #[serde(default = "default_statement_timeout_seconds")]
    pub statement_timeout_seconds: u64,
    /// The time in seconds that commands wait while the database is unreachable, before they are
    /// refused as `UNAVAILABLE`.
    #[serde(default = "default_patience_seconds")]
    pub patience_seconds: u64,
    /// The longest time in seconds that `leasehold serve` and `leasehold migrate` wait for another
    /// migration, or for sessions that use the tables, such as a `pg_dump`.
    #[serde(default = "default_migration_wait_seconds")]
    pub migration_wait_seconds: u64,
}

fn default_write_connections() -> usize {
    2
}

fn default_read_connections() -> usize {
    8
}

fn default_connect_timeout_seconds() -> u64 {
    5
}

fn default_statement_timeout_seconds() -> u64 {
    10
}

fn default_patience_seconds() -> u64 {
    5
}

fn default_migration_wait_seconds() -> u64 {
    60
}

impl PostgresConfig {
    /// Returns the settings of the database at `url`, with every other setting at its default.
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ca: None,
            certificate: None,
            key: None,
            password_file: None,
            write_connections: default_write_connections(),
            read_connections: default_read_connections(),
            connect_timeout_seconds: default_connect_timeout_seconds(),
            statement_timeout_seconds: default_statement_timeout_seconds(),
            patience_seconds: default_patience_seconds(),
            migration_wait_seconds: default_migration_wait_seconds(),
        }
    }

    /// Returns the hosts and the name of the database as a URL, for logs and messages. The URL
    /// never has the user, the password or an option.
    ///
    /// If the parser may have taken a part of the password for another part, the result is the
    /// scheme alone, such as `postgres://…`.
    pub fn shown_url(&self) -> String {
        // An unknown option makes the whole URL invalid, so a second try parses the URL without its
        // options. If an `@` follows the `?`, the `?` may belong to the password, and the URL is
        // not cut.
        let without_options = || self.url.rsplit_once('?').filter(|(_, options)| !options.contains('@'));
        let parsed = self.url.parse::<tokio_postgres::Config>().ok();
        let parsed = parsed.or_else(|| without_options()?.0.parse().ok());
        // The parser ends the password at the first `@`, and the host at the next `/`. If a
        // password contains both unescaped, its end is therefore in the database name, with an `@`.
        let is_unambiguous =
            |config: &tokio_postgres::Config| config.get_dbname().is_none_or(|name| !name.contains('@'));
        let Some(config) = parsed.filter(is_unambiguous) else {
            return format!("{}://…", foreign_scheme(&self.url).unwrap_or("postgres"));
        };
        let hosts = hosts_with_ports(&config).join(",");
        format!("postgres://{hosts}/{}", config.get_dbname().unwrap_or_default())
    }
}

/// The hosts of a connection string, each as `HOST:PORT`.
pub(crate) fn hosts_with_ports(config: &tokio_postgres::Config) -> Vec<String> {
    // If a password contains an `@` that is not escaped as `%40`, the parser puts the rest of the
    // password into the host. So only the part after the last `@` is shown.
    let public = |name: &str| name.rsplit_once('@').map_or(name, |(_, host)| host).to_owned();
    let host = |host: &Host| match host {
        Host::Tcp(name) if name.contains(':') => format!("[{}]", public(name)),
        Host::Tcp(name) => public(name),
        Host::Unix(path) => path.display().to_string().replace('/', "%2F"),
    };
    let mut hosts: Vec<_> = config.get_hosts().iter().map(host).collect();
    if hosts.is_empty() {
        hosts = config.get_hostaddrs().iter().map(ToString::to_string).collect();
    }
    let ports = config.get_ports();
    // A single port applies to every host, as in libpq.
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
    hosts.iter().enumerate().map(|(at, host)| format!("{host}:{}", port(at))).collect()
}

/// Returns the scheme of a URL that is not a PostgreSQL URL; `None` for a PostgreSQL URL, and for
/// text without a scheme.
pub(crate) fn foreign_scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once("://")?;
    let is_scheme = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_scheme && !matches!(scheme, "postgres" | "postgresql")).then_some(scheme)
}

/// Prints the URL without the password, which a derived implementation would print.
impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig").field("url", &self.shown_url()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shown_url_names_the_database_but_never_a_password() {
        for (url, shown) in [
            ("postgres://me:secret@db:5432/claims?sslmode=disable", "postgres://db:5432/claims"),
            ("postgres://db", "postgres://db:5432/"),
            ("postgresql://me:a/b?c@db:5433/claims", "postgres://db:5433/claims"),
            ("postgres://me:se@cret@db/claims", "postgres://db:5432/claims"),
            ("postgres://me:secret@a:1,b:2/claims?target_session_attrs=read-write", "postgres://a:1,b:2/claims"),
            ("postgres://[::1]:5433/claims", "postgres://[::1]:5433/claims"),
            ("host=db port=5433 user=me password=secret dbname=claims", "postgres://db:5433/claims"),
            ("host=/run/postgresql dbname=claims", "postgres://%2Frun%2Fpostgresql:5432/claims"),
            ("host=a,b port=5433 password='it''s secret'", "postgres://…"),
            ("mysql://me:secret@db/claims", "mysql://…"),
            ("postgres://me:se@cr/et@db/claims", "postgres://…"),
            ("postgres://me:secret@db/claims?sslmode=verify-full", "postgres://db:5432/claims"),
            ("postgres://me:12?34@db:bad/claims", "postgres://…"),
        ] {
            assert_eq!(PostgresConfig::at(url).shown_url(), shown);
        }
    }
}

//! One typed configuration: file, environment, flags; the later wins.

mod check;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use leasehold_core::catalogue::{BucketRule, Catalogue, RuleChange};
use leasehold_core::claim::CellId;
use leasehold_core::rules::Rules;
use serde::Deserialize;
use tokio_postgres::config::Host;

/// What the configuration file may say. Every field has a default; unknown fields are errors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where to serve.
    pub listen: SocketAddr,
    /// Where to serve `/metrics` in plain HTTP; without TLS it is on `listen` too.
    pub metrics_listen: Option<SocketAddr>,
    /// Where the data lies; a folder in the user's state folder unless told.
    pub data: Option<PathBuf>,
    /// The shared store; without it, the embedded one.
    pub postgres: Option<Postgres>,
    /// Serve beyond loopback without TLS.
    pub insecure_plaintext: bool,
    /// How long settled leases are remembered (B22).
    pub settled_retention_seconds: u64,
    /// Begins are refused while the disk has less free than this.
    pub min_free_disk_mib: u64,
    /// Limits of load.
    pub limits: Limits,
    /// How to log.
    pub log: Log,
    /// Certificates.
    pub tls: Option<Tls>,
    /// The cells.
    pub cells: Vec<CellConfig>,
    /// Bucket types beside the built-in ones.
    pub bucket_types: Vec<BucketRule>,
}

/// Limits of load. Commits and rollbacks have none.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Begins that may wait for the writer; beyond it they are shed.
    pub queued_begins: usize,
    /// Claims that may be held by leases at a time; beyond it begins are shed.
    pub held_claims: usize,
    /// Lists that may run at a time.
    pub concurrent_lists: usize,
    /// Lists that may wait; beyond it they are shed.
    pub queued_lists: usize,
    /// Requests that one connection may have open.
    pub streams_per_connection: u32,
    /// How long a connection may send nothing. Clients that speak HTTP/2 are asked often enough whether they live.
    pub idle_seconds: u32,
}

/// How to log.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// `text` or `json`.
    pub format: LogFormat,
    /// A level, or a filter such as `info,audit=off`.
    pub filter: String,
}

/// A log's format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Certificates, in PEM files, read again when they change.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The server's certificate chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who signs clients' certificates. Without it nobody could be identified, and nothing be called.
    pub client_ca: PathBuf,
    /// The trust domain of clients' SAN URIs: `spiffe://DOMAIN/cell/7`, `…/router`, `…/admin`.
    #[serde(default = "default_trust_domain")]
    pub trust_domain: String,
    /// How often the files are looked at.
    #[serde(default = "default_reload_interval_seconds")]
    pub reload_interval_seconds: u64,
}

/// A PostgreSQL database as the store. Several servers may share it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Postgres {
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. Of several hosts, by commas, the one that takes writes is used.
    pub url: String,
    /// Who signs the database's certificate; connections are then encrypted, and the certificate is checked.
    pub ca: Option<PathBuf>,
    /// The certificate to show to the database.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// Connections that write, one group of commands each at a time.
    #[serde(default = "default_write_connections")]
    pub write_connections: usize,
    /// Connections that read, at the most.
    #[serde(default = "default_read_connections")]
    pub read_connections: usize,
    /// How long a connection may take to be made, or to be had.
    #[serde(default = "default_connect_timeout_seconds")]
    pub connect_timeout_seconds: u64,
    /// How long a statement may take.
    #[serde(default = "default_statement_timeout_seconds")]
    pub statement_timeout_seconds: u64,
    /// How long commands wait for a database that is away before they are refused.
    #[serde(default = "default_patience_seconds")]
    pub patience_seconds: u64,
    /// How long a start waits for another one that brings the tables to a new version.
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

/// Where PostgreSQL listens unless told.
const DEFAULT_PORT: u16 = 5432;

impl Postgres {
    /// A database with every setting at its default.
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ca: None,
            certificate: None,
            key: None,
            write_connections: default_write_connections(),
            read_connections: default_read_connections(),
            connect_timeout_seconds: default_connect_timeout_seconds(),
            statement_timeout_seconds: default_statement_timeout_seconds(),
            patience_seconds: default_patience_seconds(),
            migration_wait_seconds: default_migration_wait_seconds(),
        }
    }

    /// Hosts and database, as a URL: without what must not be shown, user, password and options.
    pub fn shown_url(&self) -> String {
        let without_options = || self.url.rsplit_once('?').filter(|(_, options)| !options.contains('@'));
        let parsed = self.url.parse::<tokio_postgres::Config>().ok();
        let parsed = parsed.or_else(|| without_options()?.0.parse().ok());
        // Nor is it known where a password with `@` and `/` in it ends.
        let is_clear = |config: &tokio_postgres::Config| config.get_dbname().is_none_or(|name| !name.contains('@'));
        let Some(config) = parsed.filter(is_clear) else {
            return format!("{}://…", foreign_scheme(&self.url).unwrap_or("postgres"));
        };
        // In a password whose `@` is not written as `%40` the rest is taken for a host.
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
        // One port is all hosts'.
        let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
        let hosts: Vec<_> = hosts.iter().enumerate().map(|(at, host)| format!("{host}:{}", port(at))).collect();
        format!("postgres://{}/{}", hosts.join(","), config.get_dbname().unwrap_or_default())
    }
}

/// What a URL begins with, where that is another kind of store.
pub(crate) fn foreign_scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once("://")?;
    let is_one = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_one && !matches!(scheme, "postgres" | "postgresql")).then_some(scheme)
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").field("url", &self.shown_url()).finish_non_exhaustive()
    }
}

fn default_trust_domain() -> String {
    "leasehold".into()
}

fn default_reload_interval_seconds() -> u64 {
    5
}

/// One cell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellConfig {
    /// Its number, 1 or more.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Where routers send its users.
    pub address: String,
    /// What its sessions begin with.
    #[serde(default)]
    pub session_prefix: String,
    /// The ids that its database may give out.
    pub sequence_range: Option<SequenceRange>,
}

/// The ids that a cell's database may give out, both ends inclusive.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceRange {
    /// The first.
    pub minval: i64,
    /// The last.
    pub maxval: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7171)),
            metrics_listen: None,
            data: None,
            postgres: None,
            insecure_plaintext: false,
            settled_retention_seconds: 24 * 60 * 60,
            min_free_disk_mib: 256,
            limits: Limits::default(),
            log: Log::default(),
            tls: None,
            cells: Vec::new(),
            bucket_types: Vec::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queued_begins: 4096,
            held_claims: 1_000_000,
            concurrent_lists: 16,
            queued_lists: 256,
            streams_per_connection: 1024,
            idle_seconds: 60,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".into() }
    }
}

/// What is wrong with the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("the configuration file `{}` can't be read: {error}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("the configuration file `{}` is not valid: {error}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Where and why.
        error: Box<toml::de::Error>,
    },
    /// A configuration that serves nobody.
    #[error(
        "the configuration has no `[[cells]]`: give each cell one; development cells are there only without a configuration file"
    )]
    NoCells,
    /// A cell's number is below 1.
    #[error("cell id {0} is not 1 or more: give the cell another `id`")]
    CellId(i64),
    /// Two cells have one number.
    #[error("cell id {0} is given twice: give one of the cells another `id`")]
    CellTwice(i64),
    /// A cell without a name.
    #[error("cell {0} has an empty `name`: give it one")]
    EmptyName(i64),
    /// Two cells have one name.
    #[error("cells {first} and {second} have one `name`, `{name}`: rename one")]
    NameTwice {
        /// The name.
        name: String,
        /// One cell.
        first: i64,
        /// The other.
        second: i64,
    },
    /// Nobody can be sent there.
    #[error(
        "the `address` of cell {cell}, `{address}`, is neither an http(s) URL nor a host: write `https://HOST:PORT` or `HOST:PORT`"
    )]
    Address {
        /// The cell.
        cell: i64,
        /// What it has for an address.
        address: String,
    },
    /// A session would belong to two cells.
    #[error(
        "the `session_prefix` of cell {cell}, `{prefix}`, begins that of cell {other}, `{longer}`: a session would belong to both; end each in a sign that the others lack, such as `-`"
    )]
    SessionPrefix {
        /// The shorter prefix.
        prefix: String,
        /// Its cell.
        cell: i64,
        /// The one that begins with it.
        longer: String,
        /// That one's cell.
        other: i64,
    },
    /// A range that has no ids, or such that no sequence gives out.
    #[error(
        "the `sequence_range` of cell {cell} goes from {minval} to {maxval}: let `minval` be 1 or more, and `maxval` no less than that"
    )]
    SequenceRange {
        /// The cell.
        cell: i64,
        /// Where it begins.
        minval: i64,
        /// Where it ends.
        maxval: i64,
    },
    /// Two cells would give out the same ids.
    #[error(
        "the `sequence_range`s of cells {first} and {second} overlap from {from} to {to}: both would give out these ids; move one of them"
    )]
    SequenceRanges {
        /// One cell.
        first: i64,
        /// The other.
        second: i64,
        /// The first id of both.
        from: i64,
        /// The last.
        to: i64,
    },
    /// A setting with which nothing works.
    #[error("`{name}` is {value}: give 1 to {max}, or leave it out for the default")]
    OutOfRange {
        /// Its name.
        name: &'static str,
        /// What it is set to.
        value: i128,
        /// The most that works.
        max: u64,
    },
    /// A trust domain that no certificate can have.
    #[error(
        "`tls.trust_domain`, `{0}`, is not a trust domain: it has lower-case letters, digits, `.`, `-` and `_` only"
    )]
    TrustDomain(String),
    /// Metrics and calls at one address.
    #[error("`metrics_listen` and `listen` are both `{0}`: give one of them another port")]
    MetricsListen(SocketAddr),
    /// A bucket type's number is below 1.
    #[error("bucket type number {0} is not 1 or more")]
    BucketType(i32),
    /// A bucket type's number is built in, or given twice.
    #[error("bucket type number {0} is built in or given twice: what is claimed under it would change its meaning")]
    BucketTypeTwice(i32),
    /// A bucket type's number was another type's once.
    #[error("bucket type number {0} is reserved by the contract: give the type another `number`")]
    BucketTypeReserved(i32),
    /// A bucket type's name that can't be said.
    #[error(
        "the `name` of bucket type {number}, `{name}`, can't be told from a number or a value: write letters, digits and `_`, such as `TEAMS`"
    )]
    BucketTypeName {
        /// The type.
        number: i32,
        /// What it has for a name.
        name: String,
    },
    /// Two bucket types have one name.
    #[error("bucket types {first} and {second} have one `name`, `{name}`: rename one")]
    BucketTypeNameTwice {
        /// The name.
        name: String,
        /// One type, perhaps a built-in one.
        first: i32,
        /// The other.
        second: i32,
    },
    /// Claims were made under another rule.
    #[error(
        "{0}: what was one name could be two, or the other way round; keep the rule, or `export` the data, and `import` them with `--config` of the new one, which names each claim that does not fit it"
    )]
    BucketTypeChanged(Box<RuleChange>),
    /// Plain text beyond loopback, unasked.
    #[error(
        "`{0}` is not a loopback address, and there is no `[tls]`: configure certificates, or say `--insecure-plaintext` if the network is trusted"
    )]
    Plaintext(SocketAddr),
    /// What was asked for is of the embedded store, and a database is configured.
    #[error(
        "the claims are in the database `{0}`: `export` and `import` are for the embedded store, use `pg_dump` and `pg_restore`, or name a directory with `--data`"
    )]
    InDatabase(String),
    /// Two stores.
    #[error(
        "both a data directory (`{}`, from `data`, `--data` or `LEASEHOLD_DATA`) and the database `{database}` are to be the store: leave one of them out", .data.display()
    )]
    TwoStores {
        /// The directory.
        data: PathBuf,
        /// The database.
        database: String,
    },
    /// Nothing says which database.
    #[error("no database is named: say which with `--store postgres://…`, or in `[postgres]` of the configuration")]
    NoDatabase,
    /// No folder for the data.
    #[error("no state folder is known for this user: say where the data lies with `--data DIR`")]
    NoStateFolder,
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// It can't be read, or is not valid.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable { path: path.into(), error })?;
        let invalid = |error| ConfigError::Invalid { path: path.into(), error: Box::new(error) };
        toml::from_str(&text).map_err(|error| check::beyond_its_type(&text).unwrap_or_else(|| invalid(error)))
    }

    /// What is served without a configuration file: two cells for development.
    pub fn development() -> Self {
        Self { cells: development_cells(), ..Self::default() }
    }

    /// Checks what the fields' types don't say.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn checked(self) -> Result<Self, ConfigError> {
        check::all(&self)?;
        Ok(self)
    }

    /// The database to migrate, which needs no cells.
    ///
    /// # Errors
    /// None is named, or one of its settings can't work.
    pub fn database(&self) -> Result<&Postgres, ConfigError> {
        let postgres = self.postgres.as_ref().ok_or(ConfigError::NoDatabase)?;
        check::database(postgres)?;
        Ok(postgres)
    }

    /// Where the data lies.
    ///
    /// # Errors
    /// Nothing says where, and the user has no state folder.
    pub fn data_dir(&self) -> Result<PathBuf, ConfigError> {
        // Empty is unset; and what is relative would be another folder from each place (XDG).
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let state = || absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        self.data.clone().or_else(|| Some(state()?.join("leasehold"))).ok_or(ConfigError::NoStateFolder)
    }

    /// What an import is held to: the bucket types, and the cells where any are given.
    ///
    /// # Errors
    /// One of them can't be.
    pub fn import_rules(&self) -> Result<Rules, ConfigError> {
        check::cells(&self.cells)?;
        check::bucket_types(&self.bucket_types)?;
        Ok(self.rules())
    }

    /// The bucket types and the cells, as the engine takes them.
    pub fn rules(&self) -> Rules {
        Rules {
            catalogue: Catalogue::with(self.bucket_types.iter().cloned()),
            cells: self.cells().into_keys().collect(),
        }
    }

    /// Takes a database as the store, with the settings that are there for one.
    pub fn store_at(&mut self, url: Option<String>) {
        let Some(url) = url else { return };
        let settings = self.postgres.take().unwrap_or_else(|| Postgres::at(""));
        self.postgres = Some(Postgres { url, ..settings });
    }

    /// Where the data lies, for people to read.
    ///
    /// # Errors
    /// As for [`data_dir`](Self::data_dir).
    pub fn place(&self) -> Result<String, ConfigError> {
        match &self.postgres {
            Some(postgres) => Ok(postgres.shown_url()),
            None => Ok(self.data_dir()?.display().to_string()),
        }
    }

    /// The cells by number.
    pub fn cells(&self) -> BTreeMap<CellId, CellConfig> {
        self.cells.iter().map(|cell| (CellId(cell.id), cell.clone())).collect()
    }
}

fn development_cells() -> Vec<CellConfig> {
    let cell = |id: i64| CellConfig {
        id,
        name: format!("cell-{id}"),
        address: format!("http://127.0.0.1:{}", 3000 + id),
        session_prefix: format!("cell-{id}-"),
        sequence_range: Some(SequenceRange { minval: (id - 1) * 1_000_000_000 + 1, maxval: id * 1_000_000_000 }),
    };
    vec![cell(1), cell(2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_names_the_database_and_no_password() {
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
            assert_eq!(Postgres::at(url).shown_url(), shown);
        }
    }
}

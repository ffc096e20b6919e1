//! The server's configuration: [`Config`], read from a TOML file.
//!
//! A command-line flag wins over its environment variable, and the variable wins over the file:
//! `main.rs` merges the three, then calls [`Config::checked`]. The page
//! `docs/src/reference/settings.md` describes the same settings for operators.

mod check;
mod error;
mod etcd;
mod files;
mod locks;
mod postgres;
mod relays;
mod reload;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use leasehold_core::catalogue::{BucketRule, Catalogue, MAX_USER_DATA_BYTES};
use leasehold_core::cell::CellId;
use leasehold_core::rules::Rules;
use serde::{Deserialize, Serialize};

pub use crate::subject::SubjectConfig;
pub use error::ConfigError;
pub(crate) use etcd::member_host;
pub use etcd::{EtcdConfig, EtcdPlace};
pub(crate) use files::{open_file, read_file};
pub use locks::{LockAccess, LocksConfig};
pub use postgres::PostgresConfig;
pub(crate) use postgres::{foreign_scheme, hosts_with_ports};
pub use relays::RelayConfig;
pub use reload::{ConfigChange, SettingNames};

/// Every setting of the server. Each field has a default; an unknown field is an error, so that a
/// misspelt setting cannot be ignored in silence.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The address that serves gRPC and `POST /v1/classify`. Port 0 picks a free port; the banner
    /// prints it.
    pub listen: SocketAddr,
    /// The address that serves `/metrics` in plain HTTP. A server without `[tls]` serves it on
    /// `listen` as well.
    pub metrics_listen: Option<SocketAddr>,
    /// The host names under which plain HTTP is served, besides IP addresses and `localhost`. If
    /// the list is empty and the server listens beyond loopback, every host name is allowed.
    pub http_hosts: Vec<String>,
    /// The data directory of the embedded store. The default is `leasehold` in the user's state
    /// folder.
    pub data: Option<PathBuf>,
    /// The PostgreSQL database that replaces the embedded store, which several servers may share.
    pub postgres: Option<PostgresConfig>,
    /// The cluster of etcd that replaces the embedded store, which several servers may share.
    pub etcd: Option<EtcdConfig>,
    /// Allows `listen` to be reachable from other machines without `[tls]`. Every caller then has
    /// every right.
    pub insecure_plaintext: bool,
    /// The time for which a settled lease is remembered, so that a repeated commit or rollback gets
    /// a true answer (B22).
    pub settled_retention_seconds: u64,
    /// The least free space on the disk of the data directory, in MiB. Begins are refused while
    /// there is less; commits and rollbacks, which need little space, are not. 0 switches the check
    /// off; with `[postgres]` or `[etcd]` there is none.
    pub min_free_disk_mib: u64,
    /// The gRPC code of a begin that creates a claim under another lease (B03).
    pub busy_create_code: BusyCreateCode,
    /// Limits on the load that the server accepts.
    pub limits: Limits,
    /// Settings of locks.
    pub locks: LocksConfig,
    /// The relays of outboxes in users' own databases.
    pub relays: Vec<RelayConfig>,
    /// Settings of the operational log.
    pub log: LogConfig,
    /// Settings of the audit trail.
    pub audit: AuditConfig,
    /// The collector that receives traces of calls. Without this table, calls are not traced.
    pub traces: Option<TracesConfig>,
    /// Certificates and keys for TLS. Without them the server accepts connections in plain text.
    pub tls: Option<TlsConfig>,
    /// The roles of callers by the subjects of their certificates, and the trusted balancers.
    pub subjects: SubjectConfig,
    /// The id of the cell that `Classify` returns for the type `FIRST_CELL`. The default is the
    /// cell with the lowest id.
    pub default_cell: Option<i64>,
    /// The cells that this server serves. A configuration file must have at least one.
    pub cells: Vec<CellConfig>,
    /// Bucket types in addition to those of the wire contract.
    pub bucket_types: Vec<BucketRule>,
}

/// Bounds on the load that the server accepts. A begin or a list that exceeds a bound is refused as
/// `OVERLOADED`, with a delay for the retry. A commit or rollback is never refused for load,
/// because it ends a lease on claims that other callers wait for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The most begins that may wait in the queue of the committer.
    pub queued_begins: usize,
    /// The most claims that may be under outstanding leases at a time. A single begin with more
    /// claims than this is refused for good.
    pub held_claims: usize,
    /// The most updates that a cell may begin in a second, unless the cell has a limit of its own.
    /// `None` means no limit.
    pub cell_begins_per_second: Option<NonZeroU32>,
    /// The most claims that a cell may have under outstanding leases, unless the cell has a limit
    /// of its own. If this is `None`, only the cell's share of `held_claims` limits the cell.
    pub cell_held_claims: Option<NonZeroU32>,
    /// The most bytes of data that a cell may attach to a claim. Stored claims with more data keep
    /// their data.
    pub user_data_bytes: usize,
    /// The most `ListLeases` and `ListRecords` calls that may run at a time.
    pub concurrent_lists: usize,
    /// The most list calls that may wait while `concurrent_lists` list calls run.
    pub queued_lists: usize,
    /// The most sessions of locks that may be live.
    pub sessions: usize,
    /// The most sessions of locks that one service or cell may have live.
    pub sessions_per_service: usize,
    /// The most connections that clients may have open; fewer if the limit of open files leaves no
    /// room for so many. The server closes further connections, or the oldest of clients without an
    /// identity.
    pub connections: usize,
    /// The age in seconds at which the server closes a connection, once its requests are answered.
    /// Clients then connect again by themselves.
    pub connection_age_seconds: u32,
    /// The longest time in seconds from the arrival of a request's head to the arrival of its last
    /// byte.
    pub body_seconds: u32,
    /// The most MiB of requests that the server may hold, from their arrival to their answer.
    /// Commits and rollbacks don't count.
    pub request_mib: usize,
    /// The most MiB of requests that one connection may hold.
    pub request_mib_per_connection: usize,
    /// The most MiB of answers that the server may hold, until their callers have taken them.
    pub answer_mib: usize,
    /// The most MiB of answers that one connection may hold.
    pub answer_mib_per_connection: usize,
    /// The longest time in seconds from the moment at which an answer is ready to the moment at which
    /// its last byte is sent. The server then ends the connection.
    pub answer_seconds: u32,
    /// The most requests that one connection may have open at a time.
    pub streams_per_connection: u32,
    /// The server closes a connection that has sent nothing for this many seconds. After each third
    /// of this time, the server sends an HTTP/2 ping. A living client answers it and stays
    /// connected.
    pub idle_seconds: u32,
}

/// The gRPC code of a begin that creates a claim under another lease. Both codes come with the same
/// reason and the same retry delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BusyCreateCode {
    /// A code that differs from the code for a claim at rest, so that clients can tell the two
    /// conflicts apart.
    #[default]
    FailedPrecondition,
    /// The code for a claim at rest, for clients that handle only this code.
    AlreadyExists,
}

/// The operational log, on standard error.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// The form of a log line: text or JSON.
    pub format: LogFormat,
    /// The lowest level that is logged, for all targets or for each: `warn`, or `info,audit=off`.
    pub filter: String,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// A log line is text for people.
    #[default]
    Text,
    /// A log line is one JSON object for machines.
    Json,
}

/// The audit trail: one line when a lease begins, and one when it is settled.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// The file to which the trail is appended as JSON lines, whatever `log.filter` says. Without
    /// it the trail goes to standard error in the form of `log.format`, unless `log.filter`
    /// switches the target `audit` off.
    pub file: Option<PathBuf>,
    /// The size in MiB at which the file is renamed to `FILE.1`, and a new file is begun. If this
    /// is `None`, the file grows until another program rotates it.
    pub max_mib: Option<u64>,
    /// The most renamed files that are kept.
    pub kept_files: usize,
}

/// Traces of calls, which are sent by OTLP over gRPC.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracesConfig {
    /// The collector's address, such as `http://127.0.0.1:4317`.
    pub endpoint: String,
    /// The share of calls that are traced, from 0 to 1, among the calls without a `traceparent`
    /// header. With this header, the caller decides if its call is traced.
    #[serde(default = "default_sample_ratio")]
    pub sample_ratio: f64,
    /// The authority that signed the certificate of a collector with an `https` address.
    pub ca: Option<PathBuf>,
}

fn default_sample_ratio() -> f64 {
    1.0
}

/// Mutual TLS between the server and its callers, from PEM files that the server reads again when
/// they change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The server's certificate, followed by its chain.
    pub certificate: PathBuf,
    /// The private key of the server's certificate.
    pub key: PathBuf,
    /// The authority that signs client certificates. It is required: without it no caller could be
    /// identified, and every call would be refused.
    pub client_ca: PathBuf,
    /// The file with the revocation lists of the client authorities. If it is set, every authority
    /// in the chain of a client needs a list.
    pub client_crl: Option<PathBuf>,
    /// The trust domain of the URIs in client certificates: `spiffe://DOMAIN/cell/7`,
    /// `spiffe://DOMAIN/router`, `spiffe://DOMAIN/admin`.
    #[serde(default = "default_trust_domain")]
    pub trust_domain: String,
    /// The time between two checks of the PEM files for changes, in seconds.
    #[serde(default = "default_reload_interval_seconds")]
    pub reload_interval_seconds: u64,
}

fn default_trust_domain() -> String {
    "leasehold".into()
}

fn default_reload_interval_seconds() -> u64 {
    5
}

/// One cell that the server serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellConfig {
    /// The number of the cell, 1 or more.
    pub id: i64,
    /// The name of the cell.
    pub name: String,
    /// The address that `Classify` gives to routers, unchanged. Most routers take a host alone and
    /// add scheme and port themselves.
    pub address: String,
    /// The address that `ClassifyPages` gives to routers of Pages, unchanged. If this is `None`,
    /// the cell serves no Pages.
    pub pages_address: Option<String>,
    /// The prefix of this cell's session ids, by which routers find the cell. No prefix may be a
    /// prefix of another cell's.
    #[serde(default)]
    pub session_prefix: String,
    /// The ids that the cell's database may give out, if they are one range.
    pub sequence_range: Option<SequenceRange>,
    /// The ids that the cell's database may give out, if they are several ranges. The ranges of two
    /// cells must not overlap, unless one of the ranges has every id.
    #[serde(default)]
    pub sequence_ranges: Vec<SequenceRange>,
    /// The most updates that the cell may begin in a second, instead of
    /// `limits.cell_begins_per_second`.
    pub begins_per_second: Option<NonZeroU32>,
    /// The most claims that the cell may have under outstanding leases, instead of
    /// `limits.cell_held_claims`.
    pub held_claims: Option<NonZeroU32>,
}

/// The ids that a cell's database may give out, both ends included.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceRange {
    /// The first id of the range.
    pub minval: i64,
    /// The last id of the range.
    pub maxval: i64,
}

impl CellConfig {
    /// The ranges of ids that the cell's database may give out.
    pub fn ranges(&self) -> Vec<SequenceRange> {
        self.sequence_range.iter().chain(&self.sequence_ranges).copied().collect()
    }
}

impl SequenceRange {
    /// True if the range has every id. A database has such a range if it is older than its cell.
    pub fn has_every_id(self) -> bool {
        self.minval <= 1 && self.maxval == i64::MAX
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7171)),
            metrics_listen: None,
            http_hosts: Vec::new(),
            data: None,
            postgres: None,
            etcd: None,
            insecure_plaintext: false,
            settled_retention_seconds: 24 * 60 * 60,
            min_free_disk_mib: 256,
            busy_create_code: BusyCreateCode::default(),
            limits: Limits::default(),
            locks: LocksConfig::default(),
            relays: Vec::new(),
            log: LogConfig::default(),
            audit: AuditConfig::default(),
            traces: None,
            tls: None,
            subjects: SubjectConfig::default(),
            default_cell: None,
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
            cell_begins_per_second: None,
            cell_held_claims: None,
            user_data_bytes: MAX_USER_DATA_BYTES,
            concurrent_lists: 16,
            queued_lists: 256,
            sessions: 100_000,
            sessions_per_service: 20_000,
            connections: 10_000,
            connection_age_seconds: 3600,
            body_seconds: 30,
            request_mib: 128,
            request_mib_per_connection: 32,
            answer_mib: 128,
            answer_mib_per_connection: 32,
            answer_seconds: 60,
            streams_per_connection: 1024,
            idle_seconds: 60,
        }
    }
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self { file: None, max_mib: None, kept_files: 10 }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".into() }
    }
}

/// No name that a setting may have as its value is longer.
const SHOWN_BYTES: usize = 16;

/// Tells where a file is not valid. The text of the line is left out, since the log shows the error
/// and the line may have a password. So is a long string that the reason quotes, such as a URL in the
/// place of a table.
fn invalid(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let span = error.span().unwrap_or_default();
    let before = text.get(..span.start).unwrap_or_default();
    let line_before = before.rsplit('\n').next().unwrap_or_default();
    let value = text.get(span).filter(|value| value.starts_with(['"', '\'']));
    let quoted = value.map(|value| value.trim_matches(['"', '\''])).filter(|value| value.len() > SHOWN_BYTES);
    let message = quoted.map_or_else(|| error.message().to_owned(), |quoted| error.message().replace(quoted, "…"));
    let (line, column) = (before.matches('\n').count() + 1, line_before.chars().count() + 1);
    let setting = text.lines().nth(line - 1).and_then(setting_of);
    let reason = setting.map_or_else(|| message.clone(), |setting| format!("`{setting}`: {message}"));
    ConfigError::Invalid { path: path.into(), line, column, reason }
}

/// Returns the bare key of a line, the name of a setting.
fn setting_of(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    let is_bare = |key: &&str| key.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.".contains(letter));
    Some(key.trim()).filter(is_bare)
}

impl Config {
    /// Reads a configuration file. Relative paths in it start from the file's directory, so that they
    /// name the same files wherever the program is started. The result is not checked yet: see
    /// [`checked`](Self::checked).
    ///
    /// # Errors
    /// The file can't be read, is not TOML, or has a field that is unknown or of another type.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_file(path).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        let text = text.map_err(|error| ConfigError::Unreadable { path: path.into(), error })?;
        let config: Self = toml::from_str(&text)
            .map_err(|error| check::number_out_of_range(&text).unwrap_or_else(|| invalid(path, &text, &error)))?;
        Ok(config.relative_to(absolute(path).parent().unwrap_or(path)))
    }

    /// Returns the configuration with each relative path below `directory`.
    fn relative_to(mut self, directory: &Path) -> Self {
        let tls = self.tls.iter_mut().flat_map(|tls| {
            [&mut tls.certificate, &mut tls.key, &mut tls.client_ca].into_iter().chain(&mut tls.client_crl)
        });
        let database = self
            .postgres
            .iter_mut()
            .flat_map(|it| [&mut it.ca, &mut it.certificate, &mut it.key, &mut it.password_file].into_iter().flatten());
        let members = self.etcd.iter_mut().flat_map(|it| {
            [&mut it.ca, &mut it.certificate, &mut it.key, &mut it.state_directory].into_iter().flatten()
        });
        let authority = self.traces.as_mut().and_then(|traces| traces.ca.as_mut());
        let relays = self.relays.iter_mut().flat_map(RelayConfig::paths);
        let others = [&mut self.data, &mut self.audit.file].into_iter().flatten().chain(authority);
        tls.chain(database).chain(members).chain(relays).chain(others).for_each(|path| *path = directory.join(&*path));
        self
    }

    /// The configuration of a server that has no configuration file: the defaults, and two
    /// development cells.
    pub fn development() -> Self {
        Self { cells: development_cells(), ..Self::default() }
    }

    /// Returns the configuration unchanged if no setting has an invalid value or contradicts
    /// another.
    ///
    /// # Errors
    /// The first problem found in the settings.
    pub fn checked(self) -> Result<Self, ConfigError> {
        check::all(&self)?;
        Ok(self)
    }

    /// Returns the configuration unchanged if the settings of its store are valid.
    ///
    /// # Errors
    /// The first problem found in these settings.
    pub fn checked_store(self) -> Result<Self, ConfigError> {
        check::store(&self)?;
        Ok(self)
    }

    /// The settings of the database that `leasehold migrate` migrates. Unlike `serve`, it needs no
    /// cells.
    ///
    /// # Errors
    /// No database is configured, or one of its settings is out of range.
    pub fn migration_database(&self) -> Result<&PostgresConfig, ConfigError> {
        let postgres = self.postgres.as_ref().ok_or(ConfigError::NoDatabase)?;
        check::postgres(postgres)?;
        Ok(postgres)
    }

    /// The absolute path of the data directory of the embedded store.
    ///
    /// # Errors
    /// No data directory is configured, and the user has no state folder.
    pub fn data_dir(&self) -> Result<PathBuf, ConfigError> {
        let dir = self.data.as_deref().map(absolute).or_else(|| Some(state_folder()?.join("leasehold")));
        dir.ok_or(ConfigError::NoStateFolder)
    }

    /// The rules that imported rows must obey: the bucket types, and the cells if the configuration
    /// has any.
    ///
    /// # Errors
    /// A configured bucket type or cell is not valid.
    pub fn import_rules(&self) -> Result<Rules, ConfigError> {
        check::cells(&self.cells)?;
        check::bucket_types(&self.bucket_types)?;
        Ok(self.rules())
    }

    /// The configured bucket types and cells, as the engine's rules.
    pub fn rules(&self) -> Rules {
        Rules {
            catalogue: Catalogue::with(self.bucket_types.iter().cloned())
                .with_user_data_bytes(self.limits.user_data_bytes),
            cells: self.cells().into_keys().collect(),
        }
    }

    /// Replaces the URL of the database with `url` if it is given, and keeps the other settings of
    /// `[postgres]` or of `[etcd]`, whichever the URL is for.
    pub fn override_database(&mut self, url: Option<String>) {
        let Some(url) = url else { return };
        if EtcdConfig::is_url(&url) {
            let settings = self.etcd.take().unwrap_or_else(|| EtcdConfig::at(""));
            (self.postgres, self.etcd) = (None, Some(EtcdConfig { url, ..settings }));
            return;
        }
        self.etcd = None;
        let settings = self.postgres.take().unwrap_or_else(|| PostgresConfig::at(""));
        self.postgres = Some(PostgresConfig { url, ..settings });
    }

    /// The URL of the database or cluster that is the store, without secrets; `None` for the embedded
    /// store.
    pub fn shown_database(&self) -> Option<String> {
        self.postgres.as_ref().map(PostgresConfig::shown_url).or_else(|| Some(self.etcd.as_ref()?.shown_url()))
    }

    /// The location of the store as text for people: the data directory, or the database's URL
    /// without its password.
    ///
    /// # Errors
    /// No store is configured, and the user has no state folder.
    pub fn store_location(&self) -> Result<String, ConfigError> {
        match self.shown_database() {
            Some(database) => Ok(database),
            None => {
                let dir = self.data_dir()?;
                Ok(dir.canonicalize().unwrap_or(dir).display().to_string())
            }
        }
    }

    /// The cell that `Classify` returns for the type `FIRST_CELL`; `None` if no cell is configured.
    pub fn default_cell(&self) -> Option<CellId> {
        self.default_cell.map(CellId).or_else(|| self.cells().into_keys().next())
    }

    /// The pairs of cells whose ranges of ids overlap, because one of the ranges has every id.
    pub fn overlapping_cells(&self) -> Vec<(CellId, CellId)> {
        check::overlapping_cells(&self.cells)
    }

    /// The configured cells by their number.
    pub fn cells(&self) -> BTreeMap<CellId, CellConfig> {
        self.cells.iter().map(|cell| (CellId(cell.id), cell.clone())).collect()
    }
}

/// Returns the user's folder for state (the XDG Base Directory Specification); `None` if there is none. An empty
/// variable counts as unset, and a relative path is invalid: it would name another folder for each working directory.
fn state_folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")))
}

/// Returns the absolute form of a path, or the path itself if the working directory is gone.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn development_cells() -> Vec<CellConfig> {
    let cell = |id: i64| CellConfig {
        id,
        name: format!("cell-{id}"),
        address: format!("127.0.0.1:{}", 3000 + id),
        pages_address: None,
        session_prefix: format!("cell-{id}-"),
        sequence_range: Some(SequenceRange { minval: (id - 1) * 1_000_000_000 + 1, maxval: id * 1_000_000_000 }),
        sequence_ranges: Vec::new(),
        begins_per_second: None,
        held_claims: None,
    };
    vec![cell(1), cell(2)]
}

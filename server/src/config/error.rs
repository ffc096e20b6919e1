//! The problems of the server's configuration. Each message names the setting and says how to mend
//! the problem.

use std::net::SocketAddr;
use std::path::PathBuf;

use leasehold_core::catalogue::RuleChange;

use crate::subject::SubjectFault;

/// A problem of the server's configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file can't be read.
    #[error("the configuration file `{}` can't be read: {error}", .path.display())]
    Unreadable {
        /// The path of the configuration file that can't be read.
        path: PathBuf,
        /// The reason that the operating system gave.
        error: std::io::Error,
    },
    /// The configuration file is not TOML, or has a field that is unknown or of another type.
    #[error("the configuration file `{}` is not valid: line {line}, column {column}: {reason}", .path.display())]
    Invalid {
        /// The path of the configuration file that is not valid.
        path: PathBuf,
        /// The line of the fault, from 1.
        line: usize,
        /// The column of the fault, from 1.
        column: usize,
        /// The setting, and the TOML parser's reason without a long value of the file.
        reason: String,
    },
    /// No cell is configured, so no call could succeed.
    #[error(
        "the configuration has no `[[cells]]`: add one for each cell; only a server without a configuration file has development cells"
    )]
    NoCells,
    /// No certificate can name this caller of locks.
    #[error("the `caller` of `[[locks.access]]`, `{0}`, is neither `service/NAME` nor `cell/ID`: name one")]
    LockCaller(String),
    /// A namespace of locks is malformed.
    #[error(
        "the namespace `{namespace}` in `{table}` is not one: write parts that are joined by dots, such as `user.update`"
    )]
    LockNamespace {
        /// The table of the configuration.
        table: &'static str,
        /// The namespace.
        namespace: String,
    },
    /// A number of cleanups is out of range.
    #[error("the `attempts` of `[[locks.reaped]]`, {0}, are out of range: allow 1 to 1,000 cleanups")]
    CleanupAttempts(u32),
    /// The name of a relay can't be a label of metrics.
    #[error("the `name` of `[[relays]]`, `{0}`, is not 1 to 64 letters, digits, `-`, `_` and `.`: choose such a name")]
    RelayName(String),
    /// Two relays have the same name.
    #[error("two `[[relays]]` have the `name` `{0}`: rename one")]
    DuplicateRelay(String),
    /// More relays than a server runs.
    #[error("there are {count} `[[relays]]`, and a server runs at most {max}: leave the others to another server")]
    TooManyRelays {
        /// The number of configured relays.
        count: usize,
        /// The most relays of a server.
        max: usize,
    },
    /// A server with TLS does not know for whom a relay submits and settles.
    #[error(
        "the relay `{0}` has no `caller`: name the service whose queues its outbox is for, as `service/NAME` or `cell/ID`"
    )]
    RelayWithoutCaller(String),
    /// A server without TLS knows no service.
    #[error(
        "the relay `{0}` has a `caller`, and there is no `[tls]` that could tell callers apart: leave `caller` out"
    )]
    RelayCallerWithoutTls(String),
    /// No certificate can name this caller.
    #[error("the `caller` of the relay `{relay}`, `{caller}`, is neither `service/NAME` nor `cell/ID`: name one")]
    RelayCaller {
        /// The name of the relay.
        relay: String,
        /// The caller.
        caller: String,
    },
    /// The settings of a relay's database can't be used.
    #[error("the database of the relay `{relay}` {problem}")]
    RelayDatabase {
        /// The name of the relay.
        relay: String,
        /// The problem of the settings.
        problem: String,
    },
    /// Other servers can't call the address of this one.
    #[error(
        "`locks.peer_address`, `{address}`, is not of the form `{scheme}://HOST:PORT`: give the address at which other servers reach this one, with `https` if there is `[tls]`"
    )]
    PeerAddress {
        /// The address.
        address: String,
        /// The scheme that it must have.
        scheme: &'static str,
    },
    /// A server that shares its store with no other one has an address for other servers.
    #[error("`locks.peer_address` needs `[postgres]`: only servers of one database call each other; remove it")]
    PeerAddressAlone,
    /// The id of a cell is less than 1.
    #[error("cell id {0} is not 1 or more: give the cell another `id`")]
    CellId(i64),
    /// Two cells have the same id.
    #[error("cell id {0} is used twice: give one of the cells another `id`")]
    DuplicateCellId(i64),
    /// The name of a cell is empty.
    #[error("cell {0} has an empty `name`: give it a name")]
    EmptyCellName(i64),
    /// Two cells have the same name.
    #[error("cells {first} and {second} have the same `name`, `{name}`: rename one")]
    DuplicateCellName {
        /// The name of both cells.
        name: String,
        /// The id of one cell.
        first: i64,
        /// The id of the other cell.
        second: i64,
    },
    /// The address of a cell is not of a form that a router could use.
    #[error(
        "the `{field}` of cell {cell}, `{address}`, is neither a host nor an http(s) URL: write `HOST`, `HOST:PORT` or `https://HOST:PORT`"
    )]
    CellAddress {
        /// The id of the cell.
        cell: i64,
        /// The setting: `address` or `pages_address`.
        field: &'static str,
        /// The configured address.
        address: String,
    },
    /// The session prefix of one cell is a prefix of another cell's.
    #[error(
        "the `session_prefix` of cell {cell}, `{prefix}`, is also the start of cell {other}'s, `{longer}`: a session would belong to both; end each prefix with a character that the others lack, such as `-`"
    )]
    OverlappingSessionPrefixes {
        /// The shorter prefix.
        prefix: String,
        /// The id of the cell with the shorter prefix.
        cell: i64,
        /// The longer prefix.
        longer: String,
        /// The id of the cell with the longer prefix.
        other: i64,
    },
    /// The sequence range of a cell is empty, or begins below 1, the least id that a sequence
    /// assigns.
    #[error(
        "the `sequence_range` of cell {cell} goes from {minval} to {maxval}: set `minval` to 1 or more, and `maxval` to `minval` or more"
    )]
    SequenceRange {
        /// The id of the cell.
        cell: i64,
        /// The first id of the range.
        minval: i64,
        /// The last id of the range.
        maxval: i64,
    },
    /// A cell has both `sequence_range` and `sequence_ranges`.
    #[error("cell {0} has `sequence_range` and `sequence_ranges`: move all ranges to `sequence_ranges`")]
    TwoSequenceRanges(i64),
    /// The default cell is not configured.
    #[error("`default_cell` is {0}, and no cell has this id: name a cell of `[[cells]]`")]
    DefaultCell(i64),
    /// The sequence ranges of two cells overlap, so both cells would assign the same ids.
    #[error(
        "the `sequence_range`s of cells {first} and {second} overlap from {from} to {to}: both cells would give out these ids; move one of the ranges"
    )]
    OverlappingSequenceRanges {
        /// The id of one cell.
        first: i64,
        /// The id of the other cell.
        second: i64,
        /// The first id in both ranges.
        from: i64,
        /// The last id in both ranges.
        to: i64,
    },
    /// A numeric setting is 0, negative, or larger than can work.
    #[error("`{name}` is {value}: give 1 to {max}, or leave it out for the default")]
    OutOfRange {
        /// The name of the setting, with its table.
        name: &'static str,
        /// The configured value.
        value: i128,
        /// The largest value that works for the setting.
        max: u64,
    },
    /// The trust domain has a character that SPIFFE forbids, so that no certificate could match it.
    #[error("`tls.trust_domain`, `{0}`, is not a trust domain: use lower-case letters, digits, `.`, `-` and `_` only")]
    TrustDomain(String),
    /// The address of the collector of traces is no URL of a host.
    #[error("`traces.endpoint`, `{0}`, is not the URL of a collector: write `http://HOST:PORT` or `https://HOST:PORT`")]
    TracesEndpoint(String),
    /// `traces.endpoint` is an `https` URL without `traces.ca`, or an `http` URL with `traces.ca`.
    #[error("`traces.ca` is needed for an `https` address in `traces.endpoint`, and for no other")]
    TracesAuthority,
    /// The share of traced calls is not between 0 and 1.
    #[error("`traces.sample_ratio` is {0}: give 0 to 1")]
    SampleRatio(f64),
    /// The pattern for the common names of cells does not have `{id}` exactly once.
    #[error("`subjects.cell` is `{0}`: write `{{id}}` once in the place of the cell's id, such as `CELL-{{id}}`")]
    SubjectPattern(String),
    /// A common name of `[subjects]` can't be used.
    #[error("`[subjects]` has the name `{name}`, {fault}")]
    SubjectName {
        /// The name.
        name: String,
        /// Its fault.
        fault: SubjectFault,
    },
    /// `subjects.loopback_balancer` is set, but the server has TLS or callers may reach it from
    /// other machines.
    #[error(
        "`subjects.loopback_balancer` needs a `listen` on loopback and no `[tls]`, and `listen` is `{0}`: name the balancer's certificate in `subjects.balancers` instead"
    )]
    LoopbackBalancer(SocketAddr),
    /// `audit.max_mib` is set, but `audit.file` is not.
    #[error(
        "`audit.max_mib` rotates the audit file, and there is no `audit.file`: name the file, or leave `audit.max_mib` out"
    )]
    AuditRotation,
    /// `metrics_listen` and `listen` are the same address.
    #[error("`metrics_listen` and `listen` are both `{0}`: give one of them another port")]
    MetricsListen(SocketAddr),
    /// The number of a bucket type is less than 1.
    #[error("bucket type number {0} is not 1 or more: give the type another `number`")]
    BucketTypeNumber(i32),
    /// The number of a bucket type is that of another type, built in or configured.
    #[error(
        "bucket type number {0} is built in or used twice: claims under it would change their meaning; give the type another `number`"
    )]
    DuplicateBucketTypeNumber(i32),
    /// The name of a bucket type can't be written as `TYPE:VALUE` on the command line.
    #[error(
        "the `name` of bucket type {number}, `{name}`, could be read as a number or a value: use letters, digits and `_`, such as `TEAMS`"
    )]
    BucketTypeName {
        /// The number of the bucket type.
        number: i32,
        /// The configured name of the bucket type.
        name: String,
    },
    /// Two bucket types have the same name.
    #[error("bucket types {first} and {second} have the same `name`, `{name}`: rename one")]
    DuplicateBucketTypeName {
        /// The name of both bucket types.
        name: String,
        /// The number of one bucket type, which may be built in.
        first: i32,
        /// The number of the other bucket type.
        second: i32,
    },
    /// The configured rule of a bucket type differs from the rule under which its stored claims
    /// were made (B12).
    #[error(
        "{0}: two values that were the same name could become different ones, or the reverse; keep the rule, or `export` the data and `import` it with `--config` naming the new rule, which reports each claim that does not fit"
    )]
    BucketTypeChanged(Box<RuleChange>),
    /// Other machines could reach the server in plain text, and `insecure_plaintext` is not set.
    #[error(
        "`{0}` is not a loopback address, and there is no `[tls]`: configure certificates, or pass `--insecure-plaintext` if the network is trusted"
    )]
    Plaintext(SocketAddr),
    /// A data directory and a database are both configured.
    #[error(
        "both a data directory (`{}`, from `data`, `--data` or `LEASEHOLD_DATA`) and the database `{database}` are configured as the store: leave one of them out", .data.display()
    )]
    TwoStores {
        /// The data directory.
        data: PathBuf,
        /// The database, without user and password.
        database: String,
    },
    /// A database and a cluster of etcd are both configured.
    #[error("both `{0}` and `{1}` are configured as the store: leave one of them out")]
    TwoDatabases(String, String),
    /// The URL of a cluster of etcd can't be read.
    #[error("the URL of etcd can't be used: {0}: write `etcd://HOST:PORT,HOST:PORT?prefix=PREFIX`")]
    EtcdUrl(String),
    /// The connections to a cluster of etcd would be in plain text without consent, or the settings contradict each
    /// other.
    #[error("the connections to etcd can't be made: {0}")]
    EtcdTls(String),
    /// A relay has no queue to submit to.
    #[error("`[[relays]]` submit to queues, and a store in etcd keeps claims only: remove them")]
    RelaysOnEtcd,
    /// `migrate` was called without a database.
    #[error("no database is named: pass `--store postgres://…`, or add `[postgres]` to the configuration")]
    NoDatabase,
    /// No data directory is configured, and neither `XDG_STATE_HOME` nor `HOME` is an absolute
    /// path.
    #[error("this user has no state folder: name the data directory with `--data DIR`")]
    NoStateFolder,
}

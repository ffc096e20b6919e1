//! The problems of a database that keep a server from starting, each with the next step for the
//! operator.

use crate::config::EtcdConfig;

/// A problem of a database that keeps a server from starting, or the tables from being migrated.
#[derive(Debug, thiserror::Error)]
#[error("the database `{database}` {problem}")]
pub struct PreflightError {
    /// The URL of the database, without user and password.
    pub database: String,
    /// The problem of the database.
    pub problem: Problem,
}

/// A problem of a database. The text of each variant continues the sentence "the database `…` …".
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The settings of `[postgres]` contradict each other, or a setting is not valid.
    #[error("can't be used: {0}")]
    Settings(String),
    /// The database does not answer.
    #[error("can't be reached: {0}")]
    Unreachable(String),
    /// Hosts of the database answer, and none can be the primary of a server: all are standbys, or COMMITs do not end.
    #[error("can't serve now: {0}")]
    NotServing(String),
    /// The TLS handshake with the database failed: for example, its certificate is not trusted, or
    /// the database has TLS switched off.
    #[error("can't be reached over TLS: {0}")]
    Untrusted(String),
    /// The database does not trust the certificate of this server.
    #[error("does not accept this server's certificate: {0}")]
    CertificateRejected(String),
    /// The database, or a pooler in front of it, has reached its limit of connections.
    #[error("accepts no more connections: {0}")]
    TooManyConnections(String),
    /// The database cancels statements before they are done.
    #[error("cancels statements before they are done: {0}")]
    StatementTimeout(String),
    /// The database is a standby: a replica that accepts only reads.
    #[error("is a standby, which can only be read")]
    Standby,
    /// The database accepts no writes, because `default_transaction_read_only` is on.
    #[error("is read-only: `default_transaction_read_only` is on")]
    ReadOnly,
    /// The user or the password is wrong, or `pg_hba.conf` allows no connection from this address.
    #[error("does not let this server in: {0}")]
    AuthenticationFailed(String),
    /// The role lacks the right to connect to the database.
    #[error("does not let the role `{role}` connect: {cause}")]
    NoConnect {
        /// The database role of the server.
        role: String,
        /// The name of the database.
        name: String,
        /// The database's error message.
        cause: String,
    },
    /// The PostgreSQL server has no database with the name in the URL.
    #[error("does not exist: {0}")]
    Missing(String),
    /// The encoding of the database can't represent every name.
    #[error("has the encoding {0}, and names are in UTF8")]
    Encoding(String),
    /// The PostgreSQL version is too old.
    #[error("is PostgreSQL {0}, and this program needs 15 or newer")]
    TooOld(String),
    /// The database has no tables of a store, and none may be made.
    #[error("holds no store")]
    NoStore,
    /// A newer program has migrated the tables to a version that this program does not know.
    #[error("has tables of version {found}, newer than the {known} that this program knows")]
    Newer {
        /// The version of the tables.
        found: i32,
        /// The newest version of the tables that this program knows.
        known: i32,
    },
    /// The tables have an older version, which an export can't read.
    #[error("has tables of version {found}, older than the {known} that this program reads")]
    Older {
        /// The version of the tables.
        found: i32,
        /// The version of the tables that this program reads.
        known: i32,
    },
    /// The store that an import was to fill has rows.
    #[error("holds a store already")]
    NotEmpty,
    /// An import into the store did not finish.
    #[error("has the rest of an import that did not finish")]
    ImportIncomplete,
    /// No schema in the search path of the role exists, so tables can't be created.
    #[error("has no schema for the tables: {0}")]
    NoSchema(String),
    /// The tables are in a schema that is not in the search path of the role.
    #[error(
        "has the tables in the schema {schema}, but the search path of the role {role} begins with {current}: a second set of tables would give the same names out twice"
    )]
    WrongSchema {
        /// The schema that has the tables.
        schema: String,
        /// The first schema of the role's search path, in which new tables would be created.
        current: String,
        /// The database role of the server.
        role: String,
    },
    /// The tables are a copy of those that servers have used, in this cluster of databases or another one.
    #[error("is a copy of the database that servers have used: two copies would give the same names out twice")]
    Foreign,
    /// The store was made in another cluster of etcd, whose snapshot was restored here.
    #[error(
        "has the store of the cluster {made_in:x}, and is the cluster {found_in:x}: two copies would give the same names out twice"
    )]
    Restored {
        /// The id of the cluster in which the store was made.
        made_in: u64,
        /// The id of the cluster in which the store was found.
        found_in: u64,
    },
    /// The engine lacks what it has acknowledged to a server of this machine.
    #[error("is at revision {found}, and has acknowledged revision {seen}: an older snapshot was restored")]
    WentBack {
        /// The newest revision that was acknowledged.
        seen: u64,
        /// The revision that was found.
        found: u64,
    },
    /// Other sessions have locked the tables, so a migration can't change them.
    #[error("can't change the tables, because another session uses them: {0}")]
    TablesLocked(String),
    /// The schema has another object with the name of a table, type or function of the store.
    #[error("has another object with a name that the tables need: {0}")]
    NameConflict(String),
    /// The tables were migrated, but some objects are missing.
    #[error("was migrated, but lacks {}", .0.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))]
    Incomplete(Vec<String>),
    /// Another program has kept the advisory lock of migrations for the whole wait.
    #[error("is still being migrated by another program after {seconds} s")]
    BeingMigrated {
        /// The time that this program waited, in seconds.
        seconds: u64,
    },
    /// The role lacks rights on the tables.
    #[error("does not give the role `{role}` the rights that a server needs")]
    Rights {
        /// The database role of the server.
        role: String,
        /// The SQL statements that grant the missing rights.
        grants: Vec<String>,
    },
    /// The database denies the role a statement, for a reason that no other variant names.
    #[error("refuses a statement: {0}")]
    PermissionDenied(String),
    /// Any other failure of the database.
    #[error("failed: {0}")]
    Failed(String),
}

/// The next step for a store that is a copy of another one.
const ADOPT: &str = "if no server uses the other copy, accept this one: `leasehold migrate --adopt`";

/// The next step if hosts answer, and none can be the primary.
const COMPARE_HOSTS: &str = "compare the hosts: `patronictl list`, or `SELECT pg_is_in_recovery()` and \
    `SELECT * FROM pg_stat_replication` on each";

/// The next step for tables that another session has locked.
const WAIT_FOR_TABLES: &str = "try again when that session, such as a `pg_dump`, is done, or raise \
    `postgres.migration_wait_seconds`; find the session with `SELECT * FROM pg_locks JOIN pg_stat_activity USING (pid) \
    WHERE relation IN ('claims'::regclass, 'claim_leases'::regclass, 'settled_leases'::regclass)`";

impl PreflightError {
    /// The next step for the operator; `None` if the message of the problem names it.
    pub fn hint(&self) -> Option<String> {
        let database = &self.database;
        Some(match &self.problem {
            Problem::Settings(_) | Problem::Failed(_) => return None,
            Problem::Unreachable(_) => unreachable_hint(database),
            Problem::NotServing(_) => COMPARE_HOSTS.into(),
            Problem::Untrusted(_) => {
                "check that `postgres.ca` names the authority that signed the database's certificate, that the \
                 certificate is for the host in the URL, and that the database has `ssl = on`"
                    .into()
            }
            Problem::CertificateRejected(_) => "check that `postgres.certificate` is valid, and that the \
                 database's `ssl_ca_file` has the authority that signed it"
                .into(),
            Problem::TooManyConnections(_) => "lower `postgres.write_connections` and `postgres.read_connections` of \
                 all servers, or raise the database's `max_connections` and the limit of a pooler in front of it, such \
                 as `max_client_conn`"
                .into(),
            Problem::StatementTimeout(_) => "raise or remove `statement_timeout`: `ALTER ROLE` or `ALTER DATABASE` \
                 `… SET statement_timeout = 0`, or leave it out of the URL's `options`"
                .into(),
            Problem::Standby => {
                "name the primary, or all hosts as `HOST:PORT,HOST:PORT`: the server then finds the primary".into()
            }
            Problem::ReadOnly => "reset it with `… RESET default_transaction_read_only` of `ALTER DATABASE`, \
                 `ALTER ROLE` or `ALTER SYSTEM`, whichever has set it"
                .into(),
            Problem::AuthenticationFailed(_) => {
                "check user and password in the URL, and the database's `pg_hba.conf`".into()
            }
            Problem::NoConnect { role, name, .. } => {
                format!("as the owner of the database: GRANT CONNECT ON DATABASE {} TO {};", quoted(name), quoted(role))
            }
            Problem::Missing(_) => format!("check the name, or create it: {CREATE_DATABASE}"),
            Problem::Encoding(_) => format!("create another one: {CREATE_DATABASE}"),
            Problem::NoSchema(_) => "set `search_path` to a schema that exists: `ALTER ROLE` or `ALTER DATABASE` \
                 `… SET search_path = public`, or create the schema that it names"
                .into(),
            Problem::WrongSchema { schema, role, .. } => format!(
                "set the search path: `ALTER ROLE {role} IN DATABASE … SET search_path = {schema}`; or give the claims a \
                 database of their own: {CREATE_DATABASE}"
            ),
            Problem::Foreign | Problem::Restored { .. } | Problem::WentBack { .. } => ADOPT.into(),
            Problem::TablesLocked(_) => WAIT_FOR_TABLES.into(),
            Problem::NameConflict(_) => format!("give the claims a database of their own: {CREATE_DATABASE}"),
            Problem::Incomplete(_) => {
                "check that the role's `search_path` has the schema of the tables; if the objects \
                 are gone, restore the whole database from a copy"
                    .into()
            }
            Problem::NoStore => "check the URL; to make a new store there, run `leasehold init`, or start a server \
                 with `--create`"
                .into(),
            Problem::TooOld(_) => "upgrade it".into(),
            Problem::Newer { .. } => "use the newer program".into(),
            Problem::Older { .. } => "migrate them first: `leasehold migrate`".into(),
            Problem::NotEmpty => "import into a new one".into(),
            Problem::ImportIncomplete => "import again, which begins anew".into(),
            Problem::BeingMigrated { .. } => "try again when that migration is done, or raise \
                 `postgres.migration_wait_seconds`; find the holder of its lock with \
                 `SELECT * FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory'`"
                .into(),
            Problem::Rights { grants, .. } => format!("as the owner of the tables: {};", grants.join("; ")),
            Problem::PermissionDenied(_) => {
                "run `leasehold migrate` as the owner of the database, and grant this role \
                 the right that the message names"
                    .into()
            }
        })
    }
}

fn unreachable_hint(database: &str) -> String {
    match EtcdConfig::is_url(database) {
        true => "check that its members are up: `etcdctl endpoint health`".into(),
        false => format!("check that it is up: `pg_isready --dbname={database}`"),
    }
}

/// Returns a name as a quoted SQL identifier.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

const CREATE_DATABASE: &str = "`CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0`";

//! Why a database can't be the store: found before anything is served, and told with what to do about it.

use tonic::Code;

/// A database that can't be served from, or migrated.
#[derive(Debug, thiserror::Error)]
#[error("the database `{database}` {trouble}")]
pub struct Unusable {
    /// Which one, without user and password.
    pub database: String,
    /// What is the matter with it.
    pub trouble: Trouble,
}

/// What is the matter with a database.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The settings contradict each other, or are not understood.
    #[error("can't be used: {0}")]
    Settings(String),
    /// It does not answer.
    #[error("can't be reached: {0}")]
    Unreachable(String),
    /// It is not believed to be the one that is meant, or does not encrypt.
    #[error("can't be reached over TLS: {0}")]
    Untrusted(String),
    /// It does not believe the certificate that it was shown.
    #[error("does not accept this server's certificate: {0}")]
    NotAccepted(String),
    /// It has no room for another connection.
    #[error("takes no more connections: {0}")]
    Crowded(String),
    /// It gives no statement the time that it needs.
    #[error("does not let a statement come to its end: {0}")]
    Hasty(String),
    /// It follows another one.
    #[error("is a standby, which can only be read")]
    Standby,
    /// It takes no writes.
    #[error("is read-only: `default_transaction_read_only` is on")]
    ReadOnly,
    /// The user or the password is wrong, or nobody may come from here.
    #[error("does not let this server in: {0}")]
    NotLetIn(String),
    /// The role may not connect to it.
    #[error("does not let the role `{role}` connect: {cause}")]
    NoConnect {
        /// The role.
        role: String,
        /// The database, by its own name.
        name: String,
        /// What the database says.
        cause: String,
    },
    /// The server of databases has none of that name.
    #[error("is not there: {0}")]
    Missing(String),
    /// Names can't be kept in it as they are.
    #[error("has the encoding {0}, and names are in UTF8")]
    Encoding(String),
    /// It is of a version before the first that is supported.
    #[error("is PostgreSQL {0}, and this program needs 15 or newer")]
    TooOld(String),
    /// A newer program has changed the tables.
    #[error("has tables of version {found}, newer than the {known} that this program knows")]
    Newer {
        /// The version found.
        found: i32,
        /// The newest one known.
        known: i32,
    },
    /// No schema of the role's search path is there, so that tables would have no place.
    #[error("has no schema for the tables: {0}")]
    NoSchema(String),
    /// The tables are in a schema that the role's search path does not lead to.
    #[error(
        "has the tables in the schema {schema}, and the role {role} is led to {current}: another set of tables would give the same names out twice"
    )]
    Elsewhere {
        /// Where they are.
        schema: String,
        /// Where new ones would be made.
        current: String,
        /// The role.
        role: String,
    },
    /// Other sessions use the tables, so that they can't be changed.
    #[error("lets nobody change the tables, which another session uses: {0}")]
    TablesLocked(String),
    /// Something else has the names of our tables.
    #[error("has something else under a name that the tables need: {0}")]
    Occupied(String),
    /// The tables were made, and are not all there.
    #[error("was migrated, but lacks {}", .0.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))]
    Incomplete(Vec<String>),
    /// Another program holds the lock of migrations.
    #[error("is still being migrated by another program after {seconds} s")]
    BeingMigrated {
        /// How long that was waited for.
        seconds: u64,
    },
    /// The role lacks rights on the tables.
    #[error("does not let the role `{role}` do what a server does")]
    Rights {
        /// The role.
        role: String,
        /// The statements that give them.
        grants: Vec<String>,
    },
    /// The role may not do something else.
    #[error("refuses: {0}")]
    Refused(String),
    /// Something else.
    #[error("failed: {0}")]
    Failed(String),
}

impl Unusable {
    /// What the trouble comes to in the terms of calls, which decide on exit codes; none where only a person can mend it.
    pub fn code(&self) -> Option<Code> {
        use Trouble::{
            BeingMigrated, Crowded, Hasty, NoConnect, NotAccepted, NotLetIn, ReadOnly, Refused, Rights, Standby,
            TablesLocked, Unreachable, Untrusted,
        };
        match self.trouble {
            Unreachable(_) | Untrusted(_) | Crowded(_) | Hasty(_) | Standby | ReadOnly => Some(Code::Unavailable),
            BeingMigrated { .. } | TablesLocked(_) => Some(Code::DeadlineExceeded),
            NotLetIn(_) | NotAccepted(_) => Some(Code::Unauthenticated),
            Rights { .. } | NoConnect { .. } | Refused(_) => Some(Code::PermissionDenied),
            _ => None,
        }
    }

    /// What to do.
    pub fn hint(&self) -> Option<String> {
        let database = &self.database;
        Some(match &self.trouble {
            Trouble::Settings(_) | Trouble::Failed(_) => return None,
            Trouble::Unreachable(_) => format!("try: `pg_isready --dbname={database}`, which tells whether it is up"),
            Trouble::Untrusted(_) => {
                "see that `postgres.ca` names the authority that signed the database's certificate, \
                 that the URL has the host that it is for, and that the database has `ssl = on`"
                    .into()
            }
            Trouble::NotAccepted(_) => "see that `postgres.certificate` is valid, and that the authority that signed \
                 it is in the database's `ssl_ca_file`"
                .into(),
            Trouble::Crowded(_) => "let fewer come: `postgres.write_connections` and `postgres.read_connections` of \
                 every server together; or let the database's `max_connections` be more, and that of a pooler before \
                 it, such as `max_client_conn`"
                .into(),
            Trouble::Hasty(_) => "let `statement_timeout` be more, or none: `ALTER ROLE` or `ALTER DATABASE` \
                 `… SET statement_timeout = 0`, or leave it out of the URL's `options`"
                .into(),
            Trouble::Standby => {
                "name the primary, or all hosts, `HOST:PORT,HOST:PORT`: the one that takes writes is found".into()
            }
            Trouble::ReadOnly => "have it reset: `ALTER DATABASE`, `ALTER ROLE` or `ALTER SYSTEM` \
                 `… RESET default_transaction_read_only`, whichever has set it"
                .into(),
            Trouble::NotLetIn(_) => "see user and password in the URL, and the database's `pg_hba.conf`".into(),
            Trouble::NoConnect { role, name, .. } => {
                format!("let its owner say: GRANT CONNECT ON DATABASE {} TO {};", quoted(name), quoted(role))
            }
            Trouble::Missing(_) => format!("see its name, or make it: {CREATE_DATABASE}"),
            Trouble::Encoding(_) => format!("make another one: {CREATE_DATABASE}"),
            Trouble::NoSchema(_) => "let `search_path` name a schema that is there: `ALTER ROLE` or `ALTER DATABASE` \
                 `… SET search_path = public`, or make the schema that it names"
                .into(),
            Trouble::Elsewhere { schema, role, .. } => format!(
                "lead it there: `ALTER ROLE {role} IN DATABASE … SET search_path = {schema}`; or give the claims a \
                 database of their own: {CREATE_DATABASE}"
            ),
            Trouble::TablesLocked(_) => "try again when that one, such as a `pg_dump`, is done, or let \
                 `postgres.migration_wait_seconds` be more; who uses them: `SELECT * FROM pg_locks JOIN \
                 pg_stat_activity USING (pid) WHERE relation IN ('claims'::regclass, 'claim_leases'::regclass, \
                 'settled_leases'::regclass)`"
                .into(),
            Trouble::Occupied(_) => format!("give the claims a database of their own: {CREATE_DATABASE}"),
            Trouble::Incomplete(_) => "see that the role's `search_path` has the schema that they are in; where they \
                 are gone, restore the whole database from a copy"
                .into(),
            Trouble::TooOld(_) => "upgrade it".into(),
            Trouble::Newer { .. } => "use the newer program".into(),
            Trouble::BeingMigrated { .. } => "try again when that one is done, or let \
                 `postgres.migration_wait_seconds` be more; who holds the lock: \
                 `SELECT * FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory'`"
                .into(),
            Trouble::Rights { grants, .. } => format!("let the owner of the tables say: {};", grants.join("; ")),
            Trouble::Refused(_) => "let the owner of the database run `leasehold migrate`, and grant this role what \
                 the message names"
                .into(),
        })
    }
}

/// A name as statements write it, whatever is in it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

const CREATE_DATABASE: &str = "`CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0`";

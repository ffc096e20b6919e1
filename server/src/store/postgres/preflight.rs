//! Checks of a database before a server starts, and the conversion of errors at that time into a
//! [`Problem`].

use leasehold_core::unicode_version::{UNICODE_VERSION, UnicodeVersion};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::connect::has_several_hosts;
use super::failure::{ClientFailure, PoolerFailure, is_unreachable, text};
use super::standbys::STANDBYS;
use crate::config::PostgresConfig;
use crate::store::error::StoreError;
use crate::store::identity::Identity;
use crate::store::preflight::Problem;

/// The oldest supported PostgreSQL version, in the form of `server_version_num`.
const OLDEST: i32 = 150_000;
const READ_COMMITTED: [&str; 2] = ["read committed", "read uncommitted"];

const CONDITIONS: &str = "
    SELECT current_setting('server_encoding'), current_setting('server_version'),
           current_setting('server_version_num')::integer, pg_is_in_recovery(),
           current_setting('transaction_read_only')::boolean, current_setting('transaction_isolation')";

/// A query for the rights that the role lacks, as GRANT statements. Objects that do not exist yet
/// are left out, because the role will create and own them.
const MISSING_GRANTS: &str = "
    WITH needs (object, privileges) AS (VALUES
        ('store_epochs', 'SELECT'), ('leasehold_migrations', 'SELECT'), ('claims', 'SELECT INSERT UPDATE DELETE'),
        ('claim_leases', 'SELECT INSERT UPDATE DELETE'), ('settled_leases', 'SELECT INSERT UPDATE DELETE'),
        ('idempotency_keys', 'SELECT INSERT DELETE'), ('abandoned_groups', 'SELECT INSERT DELETE'),
        ('bucket_types', 'SELECT INSERT'), ('leasehold_store', 'SELECT'),
        ('lock_sessions', 'SELECT INSERT UPDATE DELETE'), ('locks', 'SELECT INSERT UPDATE DELETE'),
        ('lock_asks', 'SELECT INSERT UPDATE DELETE'), ('lock_turns', 'SELECT INSERT DELETE'),
        ('lock_servers', 'SELECT INSERT UPDATE DELETE'), ('lock_news', 'SELECT INSERT DELETE'),
        ('lock_forced', 'SELECT INSERT'), ('request_queues', 'SELECT INSERT UPDATE DELETE'),
        ('request_lanes', 'SELECT INSERT UPDATE DELETE'), ('open_requests', 'SELECT INSERT UPDATE DELETE'),
        ('settled_requests', 'SELECT INSERT DELETE'), ('request_bodies', 'SELECT INSERT DELETE')
    ), missing (privileges, object) AS (
        SELECT string_agg(privilege, ', ' ORDER BY at), object
        FROM needs, unnest(string_to_array(privileges, ' ')) WITH ORDINALITY AS p (privilege, at)
        WHERE NOT has_table_privilege(to_regclass(object), privilege) GROUP BY object
        UNION ALL
        SELECT 'UPDATE (unicode_version)', 'leasehold_store' FROM pg_attribute
        WHERE attrelid = to_regclass('leasehold_store') AND attname = 'unicode_version'
            AND NOT has_column_privilege(attrelid, attnum, 'UPDATE')
        UNION ALL
        SELECT 'USAGE', 'SEQUENCE lease_fences' WHERE NOT has_sequence_privilege(to_regclass('lease_fences'), 'USAGE')
        UNION ALL
        SELECT 'EXECUTE', 'FUNCTION ' || f.proname FROM pg_proc f JOIN pg_class t ON t.relnamespace = f.pronamespace
        WHERE t.oid = to_regclass('claims') AND NOT has_function_privilege(f.oid, 'EXECUTE') AND f.proname IN (
            'begin_group', 'begin_speculative_group', 'abandon_group', 'expect_rows', 'read_claims', 'lock_leases',
            'lock_claims', 'change_claims', 'write_group', 'try_write_group', 'commit_durably', 'read_sessions',
            'read_locks', 'read_turns', 'read_asks', 'write_locks', 'try_write_locks', 'save_locks',
            'try_save_locks', 'try_swap_locks', 'adopt_sessions', 'save_queues',
            'read_lanes', 'read_requests', 'read_requests_of_lanes', 'shift_request_partitions', 'write_durably',
            'host_epoch', 'current_epoch', 'are_same_tables', 'at_epoch', 'begin_epoch')
    )
    SELECT current_user::text, format('GRANT %s ON %s TO %I', privileges, object, current_user) FROM missing
    ORDER BY object";

/// Like [`MISSING_GRANTS`], but for the right to set the sequence of fences.
const MISSING_FENCE_GRANT: &str = "
    SELECT current_user::text, format('GRANT UPDATE ON SEQUENCE lease_fences TO %I', current_user)
    WHERE NOT has_sequence_privilege('lease_fences', 'UPDATE')";

/// Checks the properties of a database that no migration changes: the PostgreSQL version, the
/// encoding, and that it accepts writes.
///
/// # Errors
/// A server can't run on the database.
pub(super) async fn check(client: &Client) -> Result<(), Problem> {
    let row = client.query_typed_one(CONDITIONS, &[]).await.map_err(Problem::from)?;
    let (encoding, version): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let (number, is_standby, is_read_only): (i32, bool, bool) = (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
    if number < OLDEST {
        return Err(Problem::TooOld(version));
    }
    if encoding != "UTF8" {
        return Err(Problem::Encoding(encoding));
    }
    if is_standby {
        return Err(Problem::Standby);
    }
    if is_read_only {
        return Err(Problem::ReadOnly);
    }
    let isolation: String = row.try_get(5)?;
    if !READ_COMMITTED.contains(&isolation.as_str()) {
        tracing::warn!(
            "`default_transaction_isolation` of the database is `{isolation}`, so commands take more round trips: run \
             `ALTER ROLE … SET default_transaction_isolation = 'read committed'` for this server's role"
        );
    }
    Ok(())
}

/// A query for the settings that protect commits from a power cut and are switched off.
const UNSAFE_SETTINGS: &str =
    "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'";

/// A query that returns true if the database logs statements with their parameters, which are names
/// of people.
const LOGS_PARAMETERS: &str = "
    SELECT current_setting('log_parameter_max_length') <> '0' AND (
        current_setting('log_statement') IN ('mod', 'all') OR current_setting('log_min_duration_statement') <> '-1'
        OR current_setting('log_min_duration_sample') <> '-1')";

/// The time in which Patroni replaces a primary without power, with a `ttl` of 20 seconds, and the servers answer again.
const FAILOVER_SECONDS: u64 = 40;

/// Returns a warning for each setting with which a power cut or a failover loses acknowledged writes, names appear in the
/// database's log, or commands do not wait for a failover to end.
///
/// # Errors
/// The database can't be read.
pub(super) async fn warnings(client: &Client, settings: &PostgresConfig) -> Result<Vec<String>, Problem> {
    let mut warnings = Vec::new();
    for row in client.query_typed(UNSAFE_SETTINGS, &[]).await? {
        let setting: String = row.try_get(0)?;
        warnings.push(format!(
            "`{setting}` of the database is `off`: a power cut may lose or damage acknowledged writes; run \
             `ALTER SYSTEM SET {setting} = on`"
        ));
    }
    if client.query_typed_one(LOGS_PARAMETERS, &[]).await?.try_get(0)? {
        warnings.push(
            "the database logs statements with their parameters, which are names of people: run \
             `ALTER SYSTEM SET log_parameter_max_length = 0`"
                .into(),
        );
    }
    let row = client.query_typed_one(&format!("SELECT {STANDBYS}"), &[]).await?;
    let (waits, has_standbys): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    if has_standbys && !waits {
        warnings.push(
            "the database has standbys, and its COMMITs wait for none: a failover loses answered changes; set \
             `synchronous_standby_names`, or `synchronous_mode` and `synchronous_mode_strict` of Patroni"
                .into(),
        );
    }
    if !has_standbys && has_several_hosts(settings) {
        warnings.push(
            "`postgres.url` names several hosts, and no standby follows the primary: if its machine is lost, all commands stop"
                .into(),
        );
    }
    let patience = settings.patience_seconds;
    if has_standbys && patience < FAILOVER_SECONDS {
        warnings.push(format!(
            "commands wait {patience} s for the database, and a failover may take {FAILOVER_SECONDS} s: if your clients wait \
             so long, set `postgres.patience_seconds = {FAILOVER_SECONDS}`"
        ));
    }
    Ok(warnings)
}

/// Checks that the role has the rights that a server needs.
///
/// # Errors
/// The role lacks a right.
pub(super) async fn check_rights(client: &Client) -> Result<(), Problem> {
    check_grants(client, MISSING_GRANTS).await
}

/// Checks that the role may set the sequence of fences. Only a start with `--restored` needs this
/// right.
///
/// # Errors
/// The role lacks the right.
pub(super) async fn check_right_to_set_fences(client: &Client) -> Result<(), Problem> {
    check_grants(client, MISSING_FENCE_GRANT).await
}

/// Checks that the role may read all tables and the sequence of fences, as an export does.
///
/// # Errors
/// The role lacks a right.
pub(super) async fn check_rights_to_read(client: &Client) -> Result<(), Problem> {
    check_grants(client, MISSING_READ_GRANTS).await
}

/// A query for the SELECT rights that a role lacks on the tables and the sequence, if they exist.
const MISSING_READ_GRANTS: &str = "
    SELECT current_user::text, format('GRANT SELECT ON %s TO %I', name, current_user)
    FROM unnest(ARRAY[
        'claims', 'claim_leases', 'settled_leases', 'idempotency_keys', 'leasehold_store', 'leasehold_migrations',
        'lock_sessions', 'locks', 'lock_asks', 'lock_turns', 'request_queues', 'request_lanes', 'open_requests',
        'settled_requests', 'request_bodies'
    ]) AS name WHERE NOT has_table_privilege(to_regclass(name), 'SELECT')
    UNION ALL
    SELECT current_user::text, format('GRANT SELECT ON SEQUENCE lease_fences TO %I', current_user)
    WHERE NOT has_sequence_privilege(to_regclass('lease_fences'), 'SELECT')";

/// Runs the query `missing`, whose columns are the role and a GRANT statement. If it returns rows,
/// returns an error with these statements.
async fn check_grants(client: &Client, missing: &str) -> Result<(), Problem> {
    let rows = client.query_typed(missing, &[]).await.map_err(Problem::from)?;
    let Some(first) = rows.first() else { return Ok(()) };
    let role = first.try_get(0)?;
    let grants = rows.iter().map(|row| row.try_get(1)).collect::<Result<_, _>>()?;
    Err(Problem::Rights { role, grants })
}

/// A query for the names of tables, sequences and functions that migrations create and that are
/// missing.
const MISSING_OBJECTS: &str = "
    SELECT name FROM unnest(ARRAY[
        'claims', 'claim_leases', 'settled_leases', 'idempotency_keys', 'abandoned_groups', 'bucket_types',
        'leasehold_store', 'lease_fences', 'begin_group', 'begin_speculative_group', 'abandon_group', 'expect_rows', 'read_claims',
        'lock_leases', 'lock_claims', 'change_claims', 'write_group', 'try_write_group', 'commit_durably',
        'lock_sessions', 'locks', 'lock_asks', 'lock_turns', 'read_sessions', 'read_locks', 'read_turns', 'read_asks',
        'write_locks', 'try_write_locks', 'lock_servers', 'lock_news', 'lock_forced', 'save_locks', 'try_save_locks',
        'try_swap_locks', 'adopt_sessions', 'request_queues', 'request_lanes', 'open_requests', 'settled_requests',
        'request_bodies', 'save_queues', 'read_lanes', 'read_requests', 'read_requests_of_lanes',
        'shift_request_partitions', 'store_epochs', 'write_durably', 'host_epoch', 'current_epoch', 'are_same_tables',
        'at_epoch', 'begin_epoch'
    ]) AS name WHERE to_regclass(name) IS NULL AND to_regproc(name) IS NULL";

/// Checks that all objects of the migrations exist in the role's search path.
///
/// # Errors
/// An object is missing.
pub(super) async fn check_objects(client: &Client) -> Result<(), Problem> {
    let rows = client.query_typed(MISSING_OBJECTS, &[]).await.map_err(Problem::from)?;
    let missing: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    if missing.is_empty() { Ok(()) } else { Err(Problem::Incomplete(missing)) }
}

/// Returns the identity of the store.
///
/// # Errors
/// The table has no row, or can't be read.
pub(super) async fn identity(client: &Client, is_new: bool) -> Result<Identity, Problem> {
    let row = client.query_typed_opt("SELECT id, unicode_version FROM leasehold_store", &[]).await?;
    let row = row.ok_or_else(|| Problem::Incomplete(vec!["the row of leasehold_store".into()]))?;
    let unicode = match row.try_get::<_, Option<&str>>(1)? {
        None => UNICODE_VERSION,
        Some(text) => UnicodeVersion::parse(text).ok_or_else(|| {
            Problem::Failed(format!("`{text}` in `leasehold_store.unicode_version` is no version of Unicode"))
        })?,
    };
    Ok(Identity { id: row.try_get(0)?, is_new, unicode })
}

/// A query with three columns. The first is true if the role owns the table of leases or the
/// database, and so may vacuum the table (https://www.postgresql.org/docs/15/sql-vacuum.html). The
/// others are the role's name and the PostgreSQL version.
const MAY_VACUUM: &str = "
    SELECT pg_has_role(c.relowner, 'USAGE') OR pg_has_role(d.datdba, 'USAGE'), format('%I', current_user),
           current_setting('server_version_num')::integer
    FROM pg_class c, pg_database d WHERE c.oid = to_regclass('claim_leases') AND d.datname = current_database()";

/// The first PostgreSQL version in which the right MAINTAIN can be granted.
const GRANTS_MAINTENANCE: i32 = 170_000;

/// Returns the role as a quoted identifier if the role may not vacuum the table of outstanding
/// leases, else `None`.
///
/// # Errors
/// The database can't be read.
pub(super) async fn role_without_vacuum(client: &Client) -> Result<Option<String>, Error> {
    let Some(row) = client.query_typed_opt(MAY_VACUUM, &[]).await? else { return Ok(None) };
    let (is_owner, role, version): (bool, String, i32) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if is_owner {
        return Ok(None);
    }
    if version >= GRANTS_MAINTENANCE {
        let granted = "SELECT has_table_privilege('claim_leases', 'MAINTAIN')";
        if client.query_typed_one(granted, &[]).await?.try_get(0)? {
            return Ok(None);
        }
    }
    Ok(Some(role))
}

/// The first two characters of all SQLSTATEs for authorization failures.
const AUTHORIZATION_CLASS: &str = "28";

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let text = text(&error);
        let Some(code) = error.code() else { return of_client(&error, text) };
        match *code {
            SqlState::INVALID_CATALOG_NAME => Self::Missing(text),
            SqlState::INVALID_SCHEMA_NAME => Self::NoSchema(text),
            SqlState::INSUFFICIENT_PRIVILEGE => Self::PermissionDenied(text),
            SqlState::READ_ONLY_SQL_TRANSACTION => Self::ReadOnly,
            SqlState::TOO_MANY_CONNECTIONS => Self::TooManyConnections(text),
            SqlState::QUERY_CANCELED => Self::StatementTimeout(text),
            SqlState::LOCK_NOT_AVAILABLE => Self::TablesLocked(text),
            SqlState::DUPLICATE_TABLE | SqlState::DUPLICATE_FUNCTION | SqlState::DUPLICATE_OBJECT => {
                Self::NameConflict(text)
            }
            SqlState::PROTOCOL_VIOLATION => of_pooler(text),
            _ if code.code().starts_with(AUTHORIZATION_CLASS) => Self::AuthenticationFailed(text),
            _ if is_unreachable(code) => Self::Unreachable(text),
            _ => Self::Failed(text),
        }
    }
}

fn of_pooler(text: String) -> Problem {
    match PoolerFailure::of(&text) {
        PoolerFailure::UnknownDatabase => Problem::Missing(text),
        PoolerFailure::TooManyConnections => Problem::TooManyConnections(text),
        PoolerFailure::AuthenticationFailed => Problem::AuthenticationFailed(text),
        PoolerFailure::Unreachable => Problem::Unreachable(text),
    }
}

fn of_client(error: &Error, text: String) -> Problem {
    match ClientFailure::of(error) {
        ClientFailure::CertificateRejected => Problem::CertificateRejected(text),
        ClientFailure::Tls => Problem::Untrusted(text),
        ClientFailure::ReadOnlyHost => Problem::Standby,
        ClientFailure::PasswordMissing => Problem::AuthenticationFailed(text),
        ClientFailure::Network => Problem::Unreachable(text),
        ClientFailure::Other => Problem::Failed(text),
    }
}

/// Converts an outage of the database into a problem; returns any other error unchanged.
pub(super) fn of_away(error: StoreError) -> Result<Problem, StoreError> {
    match error {
        StoreError::TooManyConnections(cause) => Ok(Problem::TooManyConnections(cause)),
        StoreError::StatementTimeout(cause) => Ok(Problem::StatementTimeout(cause)),
        StoreError::Unreachable(cause) => Ok(Problem::Unreachable(cause)),
        error => Err(error),
    }
}

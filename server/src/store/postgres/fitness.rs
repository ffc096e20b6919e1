//! Whether a database can be served from: what is asked of it before anything else, and what its errors mean then.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::failure::{is_away, is_of_the_network, text};
use crate::store::Trouble;

/// The oldest version that is supported, as the database tells it.
const OLDEST: i32 = 150_000;
const READ_COMMITTED: [&str; 2] = ["read committed", "read uncommitted"];

const CONDITIONS: &str = "
    SELECT current_setting('server_encoding'), current_setting('server_version'),
           current_setting('server_version_num')::integer, pg_is_in_recovery(),
           current_setting('transaction_read_only')::boolean, current_setting('transaction_isolation')";

/// What a server does with each table, sequence and function. What is not there yet will be the role's own.
const MISSING_GRANTS: &str = "
    WITH needs (object, privileges) AS (VALUES
        ('leasehold_migrations', 'SELECT'), ('claims', 'SELECT INSERT UPDATE DELETE'),
        ('claim_leases', 'SELECT INSERT UPDATE DELETE'), ('settled_leases', 'SELECT INSERT UPDATE DELETE'),
        ('idempotency_keys', 'SELECT INSERT DELETE'), ('abandoned_groups', 'SELECT INSERT DELETE'),
        ('bucket_types', 'SELECT INSERT')
    ), missing (privileges, object) AS (
        SELECT string_agg(privilege, ', ' ORDER BY at), object
        FROM needs, unnest(string_to_array(privileges, ' ')) WITH ORDINALITY AS p (privilege, at)
        WHERE NOT has_table_privilege(to_regclass(object), privilege) GROUP BY object
        UNION ALL
        SELECT 'USAGE', 'SEQUENCE lease_fences' WHERE NOT has_sequence_privilege(to_regclass('lease_fences'), 'USAGE')
        UNION ALL
        SELECT 'EXECUTE', 'FUNCTION ' || f.proname FROM pg_proc f JOIN pg_class t ON t.relnamespace = f.pronamespace
        WHERE t.oid = to_regclass('claims') AND NOT has_function_privilege(f.oid, 'EXECUTE') AND f.proname IN (
            'begin_group', 'begin_speculative_group', 'abandon_group', 'expect_rows', 'read_claims', 'lock_leases',
            'lock_claims', 'change_claims', 'write_rows', 'try_write_rows', 'commit_durably')
    )
    SELECT current_user::text, format('GRANT %s ON %s TO %I', privileges, object, current_user) FROM missing
    ORDER BY object";

/// Checks what no migration changes: what kind of database it is, and whether it can be written.
///
/// # Errors
/// It can't be served from.
pub(super) async fn check(client: &Client) -> Result<(), Trouble> {
    let row = client.query_typed_one(CONDITIONS, &[]).await.map_err(Trouble::from)?;
    let (encoding, version): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let (number, is_standby, is_read_only): (i32, bool, bool) = (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
    if number < OLDEST {
        return Err(Trouble::TooOld(version));
    }
    if encoding != "UTF8" {
        return Err(Trouble::Encoding(encoding));
    }
    if is_standby {
        return Err(Trouble::Standby);
    }
    if is_read_only {
        return Err(Trouble::ReadOnly);
    }
    let isolation: String = row.try_get(5)?;
    if !READ_COMMITTED.contains(&isolation.as_str()) {
        tracing::warn!(
            "`default_transaction_isolation` of the database is `{isolation}`: commands take more round trips; say \
             `ALTER ROLE … SET default_transaction_isolation = 'read committed'` of this server's role"
        );
    }
    Ok(())
}

/// What keeps the database whole through a power cut, where it is off.
const CARELESS: &str = "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'";

/// Whether the database's log is made to show the values of statements, which are names of people.
const TALKATIVE: &str = "
    SELECT current_setting('log_parameter_max_length') <> '0' AND (
        current_setting('log_statement') IN ('mod', 'all') OR current_setting('log_min_duration_statement') <> '-1'
        OR current_setting('log_min_duration_sample') <> '-1')";

/// Warns of settings under which a power cut takes back what was acknowledged, or names get into the database's log.
///
/// # Errors
/// The database can't be read.
pub(super) async fn warn_of_carelessness(client: &Client) -> Result<(), Trouble> {
    for row in client.query_typed(CARELESS, &[]).await? {
        let setting: String = row.try_get(0)?;
        tracing::warn!(
            "`{setting}` of the database is `off`: a power cut may lose or damage what was acknowledged; say \
             `ALTER SYSTEM SET {setting} = on`"
        );
    }
    if client.query_typed_one(TALKATIVE, &[]).await?.try_get(0)? {
        tracing::warn!(
            "the database logs statements with their values, which are names of people; say \
             `ALTER SYSTEM SET log_parameter_max_length = 0`"
        );
    }
    Ok(())
}

/// Checks that the role may do what a server does.
///
/// # Errors
/// It lacks rights.
pub(super) async fn check_rights(client: &Client) -> Result<(), Trouble> {
    let rows = client.query_typed(MISSING_GRANTS, &[]).await.map_err(Trouble::from)?;
    let Some(first) = rows.first() else { return Ok(()) };
    let role = first.try_get(0)?;
    let grants = rows.iter().map(|row| row.try_get(1)).collect::<Result<_, _>>()?;
    Err(Trouble::Rights { role, grants })
}

/// The tables, the sequence and the functions that are not there, of those that migrations make.
const MISSING_OBJECTS: &str = "
    SELECT name FROM unnest(ARRAY[
        'claims', 'claim_leases', 'settled_leases', 'idempotency_keys', 'abandoned_groups', 'bucket_types',
        'lease_fences', 'begin_group', 'begin_speculative_group', 'abandon_group', 'expect_rows', 'read_claims',
        'lock_leases', 'lock_claims', 'change_claims', 'write_rows', 'try_write_rows', 'commit_durably'
    ]) AS name WHERE to_regclass(name) IS NULL AND to_regproc(name) IS NULL";

/// Checks that what migrations have made is still there, where the role looks for it.
///
/// # Errors
/// Something is missing.
pub(super) async fn check_objects(client: &Client) -> Result<(), Trouble> {
    let rows = client.query_typed(MISSING_OBJECTS, &[]).await.map_err(Trouble::from)?;
    let missing: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    if missing.is_empty() { Ok(()) } else { Err(Trouble::Incomplete(missing)) }
}

/// Whether the role may vacuum: the owner of the table or of the database may.
const MAY_VACUUM: &str = "
    SELECT pg_has_role(c.relowner, 'USAGE') OR pg_has_role(d.datdba, 'USAGE'), format('%I', current_user),
           current_setting('server_version_num')::integer
    FROM pg_class c, pg_database d WHERE c.oid = to_regclass('claim_leases') AND d.datname = current_database()";

/// The first version in which the right can be granted.
const GRANTS_MAINTENANCE: i32 = 170_000;

/// The role, where it may not vacuum the table of outstanding leases.
///
/// # Errors
/// The database can't be read.
pub(super) async fn without_vacuum(client: &Client) -> Result<Option<String>, Error> {
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

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let text = text(&error);
        let Some(code) = error.code() else { return of_connection(&error, text) };
        match *code {
            SqlState::INVALID_CATALOG_NAME => Self::Missing(text),
            SqlState::INVALID_SCHEMA_NAME => Self::NoSchema(text),
            SqlState::INSUFFICIENT_PRIVILEGE => Self::Refused(text),
            SqlState::READ_ONLY_SQL_TRANSACTION => Self::ReadOnly,
            SqlState::TOO_MANY_CONNECTIONS => Self::Crowded(text),
            SqlState::QUERY_CANCELED => Self::Hasty(text),
            SqlState::LOCK_NOT_AVAILABLE => Self::TablesLocked(text),
            SqlState::DUPLICATE_TABLE | SqlState::DUPLICATE_FUNCTION | SqlState::DUPLICATE_OBJECT => {
                Self::Occupied(text)
            }
            SqlState::PROTOCOL_VIOLATION => of_pooler(text),
            _ if code.code().starts_with(AUTHORIZATION_CLASS) => Self::NotLetIn(text),
            _ if is_away(code) => Self::Unreachable(text),
            _ => Self::Failed(text),
        }
    }
}

/// The class of errors about who may connect.
const AUTHORIZATION_CLASS: &str = "28";

/// What pgbouncer says, whose errors have one code for nearly everything.
fn of_pooler(text: String) -> Trouble {
    // What it remembers of the last try may be over.
    let is_remembered = text.starts_with("server login has been failing");
    let says = |words: &[&str]| !is_remembered && words.iter().any(|words| text.contains(words));
    if says(&["no such database"]) {
        Trouble::Missing(text)
    } else if says(&["no more connections allowed"]) {
        Trouble::Crowded(text)
    } else if says(&["SASL authentication failed", "password authentication failed", "no such user"]) {
        Trouble::NotLetIn(text)
    } else {
        Trouble::Unreachable(text)
    }
}

/// Whether a database that says so has no room for another connection.
pub(super) fn is_crowded(cause: &str) -> bool {
    cause.ends_with(&format!("({})", SqlState::TOO_MANY_CONNECTIONS.code()))
}

/// A database that was there a moment ago, and is away now.
pub(super) fn of_away(cause: String) -> Trouble {
    if is_crowded(&cause) { Trouble::Crowded(cause) } else { Trouble::Unreachable(cause) }
}

/// What TLS calls the troubles of a certificate that was shown.
const CERTIFICATE_ALERTS: [&str; 4] = ["UnknownCA", "Certificate", "AccessDenied", "DecryptError"];

/// The client's own errors tell their kinds in words only.
fn of_connection(error: &Error, text: String) -> Trouble {
    let alert = text.split_once("received fatal alert: ").map(|(_, alert)| alert);
    if alert.is_some_and(|alert| CERTIFICATE_ALERTS.iter().any(|name| alert.contains(name))) {
        Trouble::NotAccepted(text)
    } else if text.contains("TLS handshake") || alert.is_some() {
        Trouble::Untrusted(text)
    } else if text.contains("database does not allow writes") {
        Trouble::Standby
    } else if text.contains("password missing") {
        Trouble::NotLetIn(text)
    } else if error.is_closed() || is_of_the_network(error) {
        Trouble::Unreachable(text)
    } else {
        Trouble::Failed(text)
    }
}

//! Creates the tables of the shared store and migrates them to newer versions. If several servers
//! start at once, one server migrates and the others wait.

use std::time::{Duration, Instant};

use leasehold_core::unicode_version::UNICODE_VERSION;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, IsolationLevel, Transaction};

use crate::store::identity::Creation;
use crate::store::preflight::Problem;

/// The SQL statements of each version of the tables, from version 1 on. The statements of a
/// released version never change. A later version keeps the functions of earlier versions, because
/// servers of those versions may still be running.
const MIGRATIONS: &[&str] = &[
    concat!(include_str!("migrations/0001_schema.sql"), include_str!("migrations/0001_functions.sql")),
    include_str!("migrations/0002_comments.sql"),
    include_str!("migrations/0003_identity.sql"),
    include_str!("migrations/0004_listed.sql"),
    include_str!("migrations/0005_organization.sql"),
    include_str!("migrations/0006_unicode.sql"),
    include_str!("migrations/0007_locks.sql"),
    include_str!("migrations/0008_lock_homes.sql"),
    include_str!("migrations/0009_lock_peers.sql"),
    include_str!("migrations/0010_reaped_locks.sql"),
    include_str!("migrations/0011_shared_locks.sql"),
    include_str!("migrations/0012_queues.sql"),
    include_str!("migrations/0013_epochs.sql"),
];

/// The version of the tables that this program reads and writes.
pub(super) const VERSION: i32 = 13;

const TABLE: &str = "
    CREATE TABLE leasehold_migrations (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())";

/// The number of the advisory lock that a migration takes: the bytes of the text `leaseho`.
const LOCK: i64 = 0x006c_6561_7365_686f;

/// The lock timeout of a migration, shorter than the lock timeout of a group of commands. While a
/// migration waits for a table lock, such as that of a `pg_dump`, every later request for the table
/// waits behind it (https://www.postgresql.org/docs/15/explicit-locking.html).
const TABLE_LOCK_TIMEOUT_MS: u32 = 300;
/// The time between two attempts of a migration to lock the tables, in which running servers can
/// get their locks.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Migrates the tables to [`VERSION`]. Returns the former version; 0 if there were no tables. Waits
/// at most `wait_seconds` for another migration, and then at most `wait_seconds` for sessions that
/// use the tables.
///
/// # Errors
/// The database can't be reached or refuses a statement. Another session still migrates or uses the
/// tables. The tables are newer than this program, or in another schema. Or there are no tables,
/// and `creation` does not allow to make them.
pub(super) async fn migrate(client: &mut Client, wait_seconds: u64, creation: Creation) -> Result<i32, Problem> {
    // If the tables have the current version, nothing needs the lock of migrations, and a start
    // must not wait for it.
    if let Some(VERSION) = version(client).await? {
        return Ok(VERSION);
    }
    let (started, wait) = (Instant::now(), Duration::from_secs(wait_seconds));
    let mut is_logged = false;
    loop {
        match migrate_once(client, wait_seconds, creation).await {
            Err(Problem::TablesLocked(cause)) if started.elapsed() < wait => {
                if !std::mem::replace(&mut is_logged, true) {
                    tracing::warn!(cause, "another session uses the tables: retrying for at most {wait_seconds} s");
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            migrated => return migrated,
        }
    }
}

/// Returns the version of the tables, which must exist.
///
/// # Errors
/// There are no tables, or they are newer than this program, or in another schema.
pub(super) async fn existing_version(client: &Client) -> Result<i32, Problem> {
    match version(client).await? {
        Some(version) => Ok(version),
        None => {
            refuse_a_second_set(client).await?;
            Err(Problem::NoStore)
        }
    }
}

async fn migrate_once(client: &mut Client, wait_seconds: u64, creation: Creation) -> Result<i32, Problem> {
    // The isolation level must be READ COMMITTED, whatever the database's default is. After the
    // wait for the lock, the statements must see the tables that another migration has created
    // meanwhile.
    let transaction = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
    lock(&transaction, wait_seconds).await?;
    let found = version(transaction.client()).await?;
    if found.is_none() {
        refuse_a_second_set(transaction.client()).await?;
        if creation == Creation::Refused {
            return Err(Problem::NoStore);
        }
        transaction.batch_execute(TABLE).await?;
    }
    transaction.batch_execute(&format!("SET LOCAL lock_timeout = {TABLE_LOCK_TIMEOUT_MS}")).await?;
    let found = found.unwrap_or_default();
    for (version, statements) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
        transaction.batch_execute(statements).await?;
        let record = "INSERT INTO leasehold_migrations (version) VALUES ($1)";
        transaction.execute_typed(record, &[(&version, Type::INT4)]).await?;
    }
    // The migration that adds the column can't know the version. The migrating role owns the table,
    // but a server's role may only read it.
    let version = UNICODE_VERSION.to_string();
    let unicode = "UPDATE leasehold_store SET unicode_version = $1 WHERE unicode_version IS NULL";
    transaction.execute_typed(unicode, &[(&version, Type::TEXT)]).await?;
    transaction.commit().await?;
    Ok(found)
}

/// Returns the version of the tables; `None` if there are no tables.
async fn version(client: &Client) -> Result<Option<i32>, Problem> {
    // `CREATE TABLE IF NOT EXISTS` would need the right to create tables, which a server may lack.
    // The query reads `pg_class`, because `to_regclass` uses a cache of the transaction. The cache
    // misses a table that another migration has just created.
    let sql = "SELECT EXISTS (
        SELECT FROM pg_class WHERE relname = 'leasehold_migrations' AND pg_table_is_visible(oid))";
    let exists = client.query_typed_one(sql, &[]).await?;
    if !exists.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let found = client.query_typed_one("SELECT coalesce(max(version), 0) FROM leasehold_migrations", &[]).await?;
    let found: i32 = found.try_get(0)?;
    if found > VERSION { Err(Problem::Newer { found, known: VERSION }) } else { Ok(Some(found)) }
}

/// Returns an error if a schema outside of the role's search path has the tables of a store. A
/// second set of tables could give the same name to two cells.
async fn refuse_a_second_set(client: &Client) -> Result<(), Problem> {
    let sql = "SELECT quote_ident(nspname), quote_ident(current_schema()), quote_ident(current_user)
               FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE c.relname = 'leasehold_migrations' AND c.relkind = 'r' LIMIT 1";
    let Some(row) = client.query_typed_opt(sql, &[]).await? else { return Ok(()) };
    Err(Problem::WrongSchema { schema: row.try_get(0)?, current: row.try_get(1)?, role: row.try_get(2)? })
}

/// Takes the advisory lock of migrations, which the transaction keeps to its end. Waits at most
/// `wait_seconds`.
async fn lock(transaction: &Transaction<'_>, wait_seconds: u64) -> Result<(), Problem> {
    let lock: &[(&(dyn ToSql + Sync), Type)] = &[(&LOCK, Type::INT8)];
    let is_free = transaction.query_typed_one("SELECT pg_try_advisory_xact_lock($1)", lock).await?;
    if is_free.try_get(0)? {
        return Ok(());
    }
    tracing::warn!("another program is migrating the database: waiting for at most {wait_seconds} s");
    let timeouts = format!("SET LOCAL lock_timeout = '{wait_seconds}s'; SET LOCAL statement_timeout = 0");
    transaction.batch_execute(&timeouts).await?;
    match transaction.query_typed("SELECT pg_advisory_xact_lock($1)", lock).await {
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            Err(Problem::BeingMigrated { seconds: wait_seconds })
        }
        locked => Ok(locked.map(drop)?),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::catalogue::{Catalogue, Form};

    use super::*;

    #[test]
    fn the_version_is_the_number_of_migrations() {
        assert_eq!(usize::try_from(VERSION), Ok(MIGRATIONS.len()));
    }

    #[test]
    fn the_comment_on_forms_lists_every_form() {
        let statements = MIGRATIONS.concat();
        let comment = statements.rsplit("COMMENT ON COLUMN bucket_types.form").next().unwrap_or_default();
        let comment = comment.split("';").next().unwrap_or_default();
        let words: Vec<_> = comment.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for form in Form::ALL {
            assert!(words.contains(&&*form.to_string()), "the comment lacks `{form}`: add a migration that lists it");
        }
    }

    #[test]
    fn the_comments_list_every_built_in_bucket_type() {
        let statements = MIGRATIONS.concat();
        for rule in Catalogue::default().rules() {
            let listed = format!("{} {}", rule.number, rule.name);
            assert!(statements.contains(&listed), "no comment lists `{listed}`: add a migration that does");
        }
    }
}

//! The tables, by version. Several servers may start at once: one migrates, the others wait for it.

use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, IsolationLevel, Transaction};

use crate::store::Trouble;

/// Each version's statements. What has been released is never changed.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_claims.sql"),
    include_str!("migrations/0002_comments.sql"),
    include_str!("migrations/0003_write_group.sql"),
    include_str!("migrations/0004_keep_group.sql"),
    include_str!("migrations/0005_durable_groups.sql"),
    include_str!("migrations/0006_group_rows.sql"),
    include_str!("migrations/0007_discretion.sql"),
];

/// The version of tables that this program reads and writes.
pub(super) const VERSION: i32 = 7;

const TABLE: &str = "
    CREATE TABLE leasehold_migrations (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())";

/// Whoever migrates holds this lock.
const LOCK: i64 = 0x006c_6561_7365_686f;

/// How long a migration waits for a table that others use. Servers at work queue up behind it, and wait longer themselves.
const TABLE_PATIENCE_MS: u32 = 300;
/// Between two tries to get it.
const PAUSE: Duration = Duration::from_secs(1);

/// Brings the tables to [`VERSION`]; the version found. Waits for another one that does so, and for sessions that use the
/// tables, for so many seconds each.
///
/// # Errors
/// The database can't be reached, refuses a statement, is still being migrated or used, was migrated by a newer program, or
/// has such tables elsewhere.
pub(super) async fn migrate(client: &mut Client, wait_seconds: u64) -> Result<i32, Trouble> {
    // Most starts have nothing to wait for.
    if let Some(VERSION) = version(client).await? {
        return Ok(VERSION);
    }
    let (started, wait) = (Instant::now(), Duration::from_secs(wait_seconds));
    let mut is_told = false;
    loop {
        match migrate_once(client, wait_seconds).await {
            Err(Trouble::TablesLocked(cause)) if started.elapsed() < wait => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(
                        cause,
                        "another session uses the tables: trying again, {wait_seconds} s at the most"
                    );
                }
                tokio::time::sleep(PAUSE).await;
            }
            migrated => return migrated,
        }
    }
}

async fn migrate_once(client: &mut Client, wait_seconds: u64) -> Result<i32, Trouble> {
    // Whatever is the default: after the wait it is to see what the other one has done.
    let transaction = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
    lock(&transaction, wait_seconds).await?;
    let found = version(transaction.client()).await?;
    if found.is_none() {
        refuse_a_second_set(transaction.client()).await?;
        transaction.batch_execute(TABLE).await?;
    }
    transaction.batch_execute(&format!("SET LOCAL lock_timeout = {TABLE_PATIENCE_MS}")).await?;
    let found = found.unwrap_or_default();
    for (version, statements) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
        transaction.batch_execute(statements).await?;
        let record = "INSERT INTO leasehold_migrations (version) VALUES ($1)";
        transaction.execute_typed(record, &[(&version, Type::INT4)]).await?;
    }
    transaction.commit().await?;
    Ok(found)
}

/// The version of the tables; none where there are no tables at all.
async fn version(client: &Client) -> Result<Option<i32>, Trouble> {
    // Asked first: the right to create the table is then not needed to serve. Asked of the catalogue's rows: within a
    // transaction `to_regclass` remembers that the table was not there.
    let sql = "SELECT EXISTS (
        SELECT FROM pg_class WHERE relname = 'leasehold_migrations' AND pg_table_is_visible(oid))";
    let exists = client.query_typed_one(sql, &[]).await?;
    if !exists.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let found = client.query_typed_one("SELECT coalesce(max(version), 0) FROM leasehold_migrations", &[]).await?;
    let found: i32 = found.try_get(0)?;
    if found > VERSION { Err(Trouble::Newer { found, known: VERSION }) } else { Ok(Some(found)) }
}

/// Where the tables lie in a schema that the role's search path does not lead to, new ones would give names out twice.
async fn refuse_a_second_set(client: &Client) -> Result<(), Trouble> {
    let sql = "SELECT quote_ident(nspname), quote_ident(current_schema()), quote_ident(current_user)
               FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE c.relname = 'leasehold_migrations' AND c.relkind = 'r' LIMIT 1";
    let Some(row) = client.query_typed_opt(sql, &[]).await? else { return Ok(()) };
    Err(Trouble::Elsewhere { schema: row.try_get(0)?, current: row.try_get(1)?, role: row.try_get(2)? })
}

/// Takes the lock of migrations, to the end of the transaction.
async fn lock(transaction: &Transaction<'_>, wait_seconds: u64) -> Result<(), Trouble> {
    let lock: &[(&(dyn ToSql + Sync), Type)] = &[(&LOCK, Type::INT8)];
    let is_free = transaction.query_typed_one("SELECT pg_try_advisory_xact_lock($1)", lock).await?;
    if is_free.try_get(0)? {
        return Ok(());
    }
    tracing::warn!("another program is migrating the database: waiting for it, {wait_seconds} s at the most");
    let timeouts = format!("SET LOCAL lock_timeout = '{wait_seconds}s'; SET LOCAL statement_timeout = 0");
    transaction.batch_execute(&timeouts).await?;
    match transaction.query_typed("SELECT pg_advisory_xact_lock($1)", lock).await {
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            Err(Trouble::BeingMigrated { seconds: wait_seconds })
        }
        locked => Ok(locked.map(drop)?),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::catalogue::Catalogue;

    use super::*;

    #[test]
    fn the_version_counts_the_migrations() {
        assert_eq!(usize::try_from(VERSION), Ok(MIGRATIONS.len()));
    }

    #[test]
    fn the_comments_list_every_built_in_bucket_type() {
        let statements = MIGRATIONS.concat();
        for rule in Catalogue::default().rules() {
            let listed = format!("{} {}", rule.number, rule.name);
            assert!(statements.contains(&listed), "no comment lists `{listed}`: a new migration has to");
        }
    }
}

//! The tables, by version. Several servers may start at once: one migrates, the others wait for it.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::failure::failed;
use crate::store::StoreError;

/// Each version's statements. What has been released is never changed.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_claims.sql")];

/// The version of tables that this program reads and writes.
pub(super) const VERSION: i32 = 1;

/// Whoever migrates holds this lock.
const LOCK: i64 = 0x006c_6561_7365_686f;

/// Brings the tables to [`VERSION`]; the version found.
///
/// # Errors
/// The database can't be reached, refuses a statement, or was migrated by a newer program.
pub(super) async fn migrate(client: &mut Client) -> Result<i32, StoreError> {
    let transaction = client.transaction().await.map_err(failed)?;
    let lock = "SELECT pg_advisory_xact_lock($1)";
    transaction.query_typed(lock, &[(&LOCK, Type::INT8)]).await.map_err(failed)?;
    let table = "CREATE TABLE IF NOT EXISTS leasehold_migrations (
        version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())";
    // Only where it is missing: the right to create is then not needed to serve.
    let exists = transaction.query_typed_one("SELECT to_regclass('leasehold_migrations') IS NOT NULL", &[]).await;
    if !exists.and_then(|row| row.try_get(0)).map_err(failed)? {
        transaction.batch_execute(table).await.map_err(failed)?;
    }
    let found = transaction.query_typed_one("SELECT coalesce(max(version), 0) FROM leasehold_migrations", &[]).await;
    let found: i32 = found.and_then(|row| row.try_get(0)).map_err(failed)?;
    if found > VERSION {
        return Err(StoreError::Failed(format!(
            "the tables have version {found}, this program knows {VERSION}: use the newer program"
        )));
    }
    for (version, statements) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
        transaction.batch_execute(statements).await.map_err(failed)?;
        let record = "INSERT INTO leasehold_migrations (version) VALUES ($1)";
        transaction.execute_typed(record, &[(&version, Type::INT4)]).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_counts_the_migrations() {
        assert_eq!(usize::try_from(VERSION), Ok(MIGRATIONS.len()));
    }
}

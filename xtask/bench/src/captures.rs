//! The rows `capture-keys` and `capture-columns`: the time of an UPDATE of 100,000 rows whose changes are captured
//! into the outbox. The peer is the same UPDATE of a table without capture.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use leasehold_core::outbox;
use tokio_postgres::{Client, NoTls};
use xtask::needs;

use super::load::{median, microseconds};
use super::postgres;
use super::row::{Better, Heading, Row};

/// A captured UPDATE may take 1.3 times as long, and twice as long with old and new values.
const KEYS: Heading = Heading { name: "capture-keys", unit: "ms", better: Better::Lower, target: 0.77 };
const COLUMNS: Heading = Heading { name: "capture-columns", target: 0.5, ..KEYS };

const ROWS: usize = 100_000;
/// The pairs of UPDATEs, of which the medians count.
const PAIRS: usize = 7;

/// Two equal tables. Pages have room for the next versions of their rows.
const TABLES: &str = "
    CREATE TABLE plain (id bigint PRIMARY KEY, name text NOT NULL, email text NOT NULL) WITH (fillfactor = 45);
    CREATE TABLE captured (LIKE plain INCLUDING ALL) WITH (fillfactor = 45);
    INSERT INTO plain
      SELECT n, 'name of user ' || n, 'user-' || n || '@example.com' FROM generate_series(1, 100000) AS n;
    INSERT INTO captured SELECT * FROM plain";

/// Measures the capture of primary keys.
///
/// # Errors
/// PostgreSQL can't be started, or captures nothing.
pub(crate) async fn keys() -> Result<Row> {
    row(KEYS, "SELECT leasehold_capture('captured', 'changes', ARRAY[]::text[], 'changes')").await
}

/// Measures the capture of the old and new values of two columns.
///
/// # Errors
/// See [`keys`].
pub(crate) async fn columns() -> Result<Row> {
    row(COLUMNS, "SELECT leasehold_capture('captured', 'changes', ARRAY['name', 'email'], 'changes')").await
}

async fn row(heading: Heading, capture: &str) -> Result<Row> {
    needs::install(needs::FOR_POSTGRES)?;
    let database = postgres::database().await?;
    let url = postgres::cluster().await?.url(&database);
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.context("cannot connect")?;
    tokio::spawn(connection);
    for sql in [outbox::SQL, outbox::CAPTURE_SQL, TABLES, capture] {
        client.batch_execute(sql).await?;
    }
    let (mut captured, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        plain.push(update(&client, "plain").await?);
        captured.push(update(&client, "captured").await?);
        check_captured(&client).await?;
    }
    drop(client);
    postgres::stop().await;
    Ok(heading.row(milliseconds(&captured)?, milliseconds(&plain)?))
}

/// Returns the time of an UPDATE of all rows of a table.
async fn update(client: &Client, table: &str) -> Result<Duration> {
    client.batch_execute(&format!("VACUUM {table}")).await?;
    client.batch_execute("CHECKPOINT").await?;
    let started = Instant::now();
    let updated = client.execute(&format!("UPDATE {table} SET name = reverse(name)"), &[]).await?;
    let took = started.elapsed();
    ensure!(updated == ROWS as u64, "{updated} rows were updated");
    Ok(took)
}

/// Checks that the outbox has all changed rows, and empties it.
async fn check_captured(client: &Client) -> Result<()> {
    let count = "SELECT coalesce(sum(jsonb_array_length(convert_from(body, 'UTF8')::jsonb -> 'rows')), 0)::bigint
      FROM leasehold_outbox";
    let rows: i64 = client.query_one(count, &[]).await?.get(0);
    ensure!(rows == ROWS as i64, "the outbox has {rows} rows");
    client.batch_execute("TRUNCATE leasehold_outbox").await?;
    Ok(())
}

fn milliseconds(times: &[Duration]) -> Result<f64> {
    median(times, |time| microseconds(*time) as f64 / 1000.0).context("nothing was measured")
}

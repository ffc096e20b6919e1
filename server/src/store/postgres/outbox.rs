//! The outbox in a user's own database, as a relay uses it. Its functions are in `core/src/outbox.sql`.
//!
//! Each call is a transaction of its own, in which all settings are made. So a pgbouncer in transaction
//! mode may be in front of the database. After a failed call the connection must be dropped.

use std::time::Duration;

use leasehold_core::outbox;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::connect::{Connector, DatabaseConnection};
use super::failure::text;
use crate::config::PostgresConfig;
use crate::store::error::StoreError;
use crate::store::preflight::Problem;

/// The most rows that one read returns: as many as one submit may have.
const READ_ROWS: i32 = 1_000;
/// The most bytes of bodies that one read returns: as many as one submit may have.
const READ_BYTES: i32 = 4 << 20;
/// The size at which the partitions change places.
const ROTATED_BYTES: i64 = 8 << 20;
/// The time by which the server waits longer than the database for the end of a statement.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The relayed columns. Intervals are read as microseconds: `12 months` are 360 days for a comparison, and 365.25
/// days for `extract`, which exceeds the limit of a retry.
const READ: &str = "
    SELECT place, number, operation, queue, key, request_id, kind, priority,
        (extract(epoch FROM delay) * 1000000)::bigint AS delay_micros, max_attempts, body, session_id, fence,
        CASE WHEN retry IS NOT NULL THEN least((extract(epoch FROM retry) * 1000000)::bigint, 31536000000000) END
            AS retry_micros, requests,
        (extract(epoch FROM clock_timestamp() - written_at) * 1000)::bigint AS age_millis
    FROM leasehold_outbox_read($1, $2, $3)";

/// The failure of a call to an outbox.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// The database can't be reached, or refuses the connection.
    #[error("{0}")]
    Connect(StoreError),
    /// The database has not answered in time.
    #[error("the database does not answer")]
    Timeout,
    /// The database has ended a call that took too long.
    #[error("the database ended a call: it took longer than `statement_timeout_seconds`, or someone cancelled it")]
    Canceled,
    /// The functions of the outbox are missing, or those of a former version.
    #[error(
        "the database has no outbox of this version in the search path: run the SQL of `leasehold outbox` as its owner"
    )]
    NotInstalled,
    /// The role may not call the functions of the outbox.
    #[error("the role may not call the outbox: connect as its owner, or grant EXECUTE on its functions")]
    Denied,
    /// Another relay has ended the batch.
    #[error("the batch is not under way")]
    NotUnderWay,
    /// The call failed in another way.
    #[error("the database failed: {0}")]
    Failed(String),
}

type Result<T> = std::result::Result<T, OutboxError>;

/// A user's database with an outbox.
#[derive(Clone)]
pub struct OutboxDatabase {
    connector: Connector,
    statement_timeout: Duration,
}

/// A connection to an outbox.
pub struct OutboxConnection {
    connection: DatabaseConnection,
    connector: Connector,
    statement_timeout: Duration,
}

/// The answer to a relay that asks to be the one that works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxTurn {
    /// True if this relay is the one that works.
    pub holds: bool,
    /// The number that grows while another relay works.
    pub beats: i64,
}

/// The answer to the begin of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxBatch {
    /// The batch; `None` if there is none.
    pub batch: Option<i64>,
    /// The epoch of the batch. Without a batch it is the epoch that the call has begun, if it has begun one.
    pub epoch: Option<i32>,
}

/// The place of a row in the order in which rows are relayed. The default is before all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxPlace {
    place: i64,
    number: i64,
}

/// A row that a transaction has written.
pub struct OutboxRow {
    /// The place of the row.
    pub place: OutboxPlace,
    /// The time since the row was written.
    pub age: Duration,
    /// The call that the row stands for.
    pub operation: OutboxOperation,
}

/// A call that a transaction has written.
pub enum OutboxOperation {
    /// A request is submitted.
    Submit(OutboxSubmit),
    /// A batch is settled.
    Settle(OutboxSettle),
    /// The row has nothing to relay.
    Pass,
}

/// A request that a transaction has submitted.
pub struct OutboxSubmit {
    /// The queue, not parsed yet.
    pub queue: String,
    /// The key, not parsed yet.
    pub key: String,
    /// The id of the request.
    pub request: Uuid,
    /// True if the request creates its resource.
    pub is_create: bool,
    /// The priority, not parsed yet.
    pub priority: i32,
    /// The time for which the request is not taken.
    pub delay_micros: u64,
    /// The largest number of attempts, not parsed yet.
    pub max_attempts: i32,
    /// The body of the request.
    pub body: Vec<u8>,
}

/// The outcome of a batch that a transaction has settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxOutcome {
    /// The work succeeded.
    Completed,
    /// The work failed.
    Failed {
        /// The time until the next attempt; `None` if it grows with the attempts.
        retry_micros: Option<u64>,
    },
    /// The batch is given back.
    GivenBack,
}

/// The settle of a batch that a transaction has written.
pub struct OutboxSettle {
    /// The session of the worker.
    pub session: Uuid,
    /// The queue, not parsed yet.
    pub queue: String,
    /// The key, not parsed yet.
    pub key: String,
    /// The fence of the batch.
    pub fence: u64,
    /// The outcome of the work.
    pub outcome: OutboxOutcome,
    /// The requests of which the transaction has left done-marks.
    pub done: Vec<Uuid>,
}

/// A row that the server has refused for good.
pub struct OutboxRefusal {
    /// The place of the row.
    pub place: OutboxPlace,
    /// The code of the reason.
    pub reason: &'static str,
}

impl OutboxDatabase {
    /// Checks the settings of the database. Does not connect.
    ///
    /// # Errors
    /// The URL or a certificate can't be used.
    pub fn parse(settings: &PostgresConfig) -> std::result::Result<Self, Problem> {
        let connector = Connector::parse(settings)?;
        Ok(Self { connector, statement_timeout: Duration::from_secs(settings.statement_timeout_seconds) })
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// The database can't be reached, or refuses the connection.
    pub async fn connect(&self) -> Result<OutboxConnection> {
        let connection = self.connector.connect().await.map_err(OutboxError::Connect)?;
        let Self { connector, statement_timeout } = self.clone();
        Ok(OutboxConnection { connection, connector, statement_timeout })
    }
}

impl OutboxConnection {
    /// Asks that `relay` be the one that works. `seen` is the number of beats that the relay has seen unchanged for
    /// long enough to take the place of another one.
    ///
    /// # Errors
    /// The call failed.
    pub async fn hold(&mut self, relay: Uuid, seen: Option<i64>) -> Result<OutboxTurn> {
        let sql = "SELECT holds, beats FROM leasehold_outbox_hold($1, $2)";
        let rows = self.call(sql, &[(&relay, Type::UUID), (&seen, Type::INT8)]).await?;
        first(&rows, |row| Ok(OutboxTurn { holds: row.try_get(0)?, beats: row.try_get(1)? }))
    }

    /// Gives up the place of the relay that works.
    ///
    /// # Errors
    /// The call failed.
    pub async fn release(&mut self, relay: Uuid) -> Result<()> {
        self.call("SELECT leasehold_outbox_release($1)", &[(&relay, Type::UUID)]).await.map(drop)
    }

    /// Begins a batch, or goes on with the one that is under way.
    ///
    /// # Errors
    /// The call failed.
    pub async fn begin(&mut self) -> Result<OutboxBatch> {
        let rows = self.call("SELECT batch, epoch FROM leasehold_outbox_begin()", &[]).await?;
        first(&rows, |row| Ok(OutboxBatch { batch: row.try_get(0)?, epoch: row.try_get(1)? }))
    }

    /// Returns the next rows of a batch in their order; `None` if another relay has ended the batch. A batch may have no
    /// rows, and is then acknowledged without one.
    ///
    /// # Errors
    /// The call failed.
    pub async fn read(&mut self, batch: i64) -> Result<Option<Vec<OutboxRow>>> {
        let values: &[(&(dyn ToSql + Sync), Type)] =
            &[(&batch, Type::INT8), (&READ_ROWS, Type::INT4), (&READ_BYTES, Type::INT4)];
        match self.call(READ, values).await {
            Ok(rows) => rows.iter().map(OutboxRow::of).collect::<Result<_>>().map(Some),
            Err(OutboxError::NotUnderWay) => {
                self.connection.batch_execute("ROLLBACK").await.map_err(failed)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Acknowledges all rows up to `last`, sets the refused ones of them aside, and marks the requests that
    /// transactions have done whose settle was refused. Returns true if the batch is done.
    ///
    /// # Errors
    /// The call failed.
    pub async fn acknowledge(&mut self, batch: i64, last: OutboxPlace, refusals: &[OutboxRefusal]) -> Result<bool> {
        let places: Vec<_> = refusals.iter().map(|refusal| refusal.place.place).collect();
        let numbers: Vec<_> = refusals.iter().map(|refusal| refusal.place.number).collect();
        let reasons: Vec<_> = refusals.iter().map(|refusal| refusal.reason).collect();
        let sql = "SELECT leasehold_outbox_acknowledge($1, $2, $3) FROM (
            SELECT count(leasehold_outbox_refuse($1, place, number, reason))
                FROM unnest($4::bigint[], $5::bigint[], $6::text[]) AS refused (place, number, reason)
            OFFSET 0) AS refusals WHERE count >= 0";
        let values: &[(&(dyn ToSql + Sync), Type)] = &[
            (&batch, Type::INT8),
            (&last.place, Type::INT8),
            (&last.number, Type::INT8),
            (&places, Type::INT8_ARRAY),
            (&numbers, Type::INT8_ARRAY),
            (&reasons, Type::TEXT_ARRAY),
        ];
        first(&self.call(sql, values).await?, |row| row.try_get(0))
    }

    /// Empties a partition of the outbox, or has the partitions change places, if it is time.
    ///
    /// # Errors
    /// The call failed.
    pub async fn rotate(&mut self) -> Result<()> {
        self.call("SELECT leasehold_outbox_rotate($1)", &[(&ROTATED_BYTES, Type::INT8)]).await.map(drop)
    }

    /// Returns the number of requests that are set aside, up to 10,000.
    ///
    /// # Errors
    /// The call failed.
    pub async fn refusals(&mut self) -> Result<u64> {
        let rows = self.call("SELECT leasehold_outbox_refusals()", &[]).await?;
        first(&rows, |row| row.try_get::<_, i64>(0)).map(i64::unsigned_abs)
    }

    /// Returns some of the requests that have done-marks, in the order of their ids.
    ///
    /// # Errors
    /// The call failed.
    pub async fn marks(&mut self, after: Uuid, limit: i32) -> Result<Vec<Uuid>> {
        let sql = "SELECT leasehold_outbox_marks($1, $2)";
        let rows = self.call(sql, &[(&after, Type::UUID), (&limit, Type::INT4)]).await?;
        rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<_, _>>().map_err(failed)
    }

    /// Forgets the done-marks of requests that no worker can take any more.
    ///
    /// # Errors
    /// The call failed.
    pub async fn forget_marks(&mut self, requests: &[Uuid]) -> Result<()> {
        self.call("SELECT leasehold_outbox_forget($1)", &[(&requests, Type::UUID_ARRAY)]).await.map(drop)
    }

    /// Runs one statement in a transaction of its own.
    async fn call(&mut self, sql: &str, values: &[(&(dyn ToSql + Sync), Type)]) -> Result<Vec<Row>> {
        let millis = self.statement_timeout.as_millis();
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED;
             SET LOCAL statement_timeout = {millis};
             SET LOCAL idle_in_transaction_session_timeout = {millis}"
        );
        let statement = async {
            self.connection.batch_execute(&begin).await?;
            let rows = self.connection.query_typed(sql, values).await?;
            self.connection.batch_execute("COMMIT").await?;
            Ok(rows)
        };
        match tokio::time::timeout(self.statement_timeout + ANSWER_TIMEOUT, statement).await {
            Ok(done) => done.map_err(failed),
            Err(_) => {
                self.connector.cancel(self.connection.cancel_token());
                Err(OutboxError::Timeout)
            }
        }
    }
}

impl OutboxRow {
    fn of(row: &Row) -> Result<Self> {
        let operation = OutboxOperation::of(row).map_err(failed)?;
        // An acknowledged row is gone, so one that this program does not know must wait.
        let operation = operation.ok_or_else(|| OutboxError::Failed("the outbox is newer than this program".into()))?;
        Self::with(row, operation).map_err(failed)
    }

    fn with(row: &Row, operation: OutboxOperation) -> std::result::Result<Self, Error> {
        let age: i64 = row.try_get("age_millis")?;
        Ok(Self {
            place: OutboxPlace { place: row.try_get("place")?, number: row.try_get("number")? },
            // The database's clock may have been set back.
            age: Duration::from_millis(u64::try_from(age).unwrap_or_default()),
            operation,
        })
    }
}

impl OutboxOperation {
    /// Returns the operation of a row; `None` if it is unknown.
    fn of(row: &Row) -> std::result::Result<Option<Self>, Error> {
        let retry = || row.try_get::<_, Option<i64>>("retry_micros").map(|micros| micros.map(i64::unsigned_abs));
        Ok(Some(match row.try_get("operation")? {
            "submit" => Self::Submit(OutboxSubmit::of(row)?),
            "complete" => Self::Settle(OutboxSettle::of(row, OutboxOutcome::Completed)?),
            "fail" => Self::Settle(OutboxSettle::of(row, OutboxOutcome::Failed { retry_micros: retry()? })?),
            "give_back" => Self::Settle(OutboxSettle::of(row, OutboxOutcome::GivenBack)?),
            "pass" => Self::Pass,
            _ => return Ok(None),
        }))
    }
}

impl OutboxSubmit {
    fn of(row: &Row) -> std::result::Result<Self, Error> {
        Ok(Self {
            queue: row.try_get("queue")?,
            key: row.try_get("key")?,
            request: row.try_get("request_id")?,
            is_create: row.try_get::<_, &str>("kind")? == "create",
            priority: row.try_get("priority")?,
            delay_micros: row.try_get::<_, i64>("delay_micros")?.unsigned_abs(),
            max_attempts: row.try_get("max_attempts")?,
            body: row.try_get("body")?,
        })
    }
}

impl OutboxSettle {
    fn of(row: &Row, outcome: OutboxOutcome) -> std::result::Result<Self, Error> {
        Ok(Self {
            session: row.try_get("session_id")?,
            queue: row.try_get("queue")?,
            key: row.try_get("key")?,
            fence: row.try_get::<_, i64>("fence")?.unsigned_abs(),
            outcome,
            done: row.try_get::<_, Option<Vec<Uuid>>>("requests")?.unwrap_or_default(),
        })
    }
}

/// Returns what `read` finds in the first row.
fn first<T>(rows: &[Row], read: impl FnOnce(&Row) -> std::result::Result<T, Error>) -> Result<T> {
    let row = rows.first().ok_or_else(|| OutboxError::Failed("the outbox has returned no row".into()))?;
    read(row).map_err(failed)
}

/// Converts an error of tokio-postgres. The text has no value of a row.
fn failed(error: Error) -> OutboxError {
    match error.code() {
        Some(&(SqlState::UNDEFINED_FUNCTION | SqlState::UNDEFINED_COLUMN)) => OutboxError::NotInstalled,
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => OutboxError::Denied,
        Some(&SqlState::QUERY_CANCELED) => OutboxError::Canceled,
        Some(code) if code.code() == outbox::NOT_UNDER_WAY => OutboxError::NotUnderWay,
        _ => OutboxError::Failed(text(&error)),
    }
}

//! The pool of connections for reads and periodic tasks.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use deadpool::Runtime;
use deadpool::managed::{Manager, Metrics, Object, PoolError, RecycleError, RecycleResult, TimeoutType};
use futures_util::FutureExt;

use super::connect::{Connector, EpochConnection};
use super::failure::failed;
use crate::config::PostgresConfig;
use crate::store::error::StoreError;
use crate::store::port::PoolState;

type Result<T> = std::result::Result<T, StoreError>;

/// The time for which a read waits for a database that answers no probe.
const READ_PATIENCE: Duration = Duration::from_secs(1);

/// Opens the connections of the pool. It tests none with a query before use: `run` tries again if one has died.
struct Connections(Connector);

impl Manager for Connections {
    type Type = EpochConnection;
    type Error = StoreError;

    async fn create(&self) -> Result<EpochConnection> {
        self.0.connect_in_epoch().await
    }

    async fn recycle(&self, connection: &mut EpochConnection, _: &Metrics) -> RecycleResult<StoreError> {
        if !self.0.is_current(connection) {
            return Err(RecycleError::message("the connection is closed, or another host was promoted"));
        }
        Ok(())
    }
}

/// The kind of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The statement reads rows, which must not be stale (B30).
    Read,
    /// The statement changes rows. Its answer counts only once the change is durable.
    Write,
    /// The statement can't be in a transaction with others, and its answer tells nothing of rows.
    Alone,
}

/// The pool of connections for reads and periodic tasks.
pub(super) struct Pool {
    connections: deadpool::managed::Pool<Connections>,
    connector: Connector,
    connect_timeout: Duration,
    statement_timeout: Duration,
    size: usize,
}

impl Pool {
    /// Returns a pool without connections. It opens them when they are needed.
    ///
    /// # Errors
    /// The pool library `deadpool` does not accept the settings.
    pub(super) fn new(settings: &PostgresConfig, connector: &Connector) -> std::result::Result<Self, String> {
        let connect_timeout = Duration::from_secs(settings.connect_timeout_seconds);
        let connections = deadpool::managed::Pool::builder(Connections(connector.clone()))
            .max_size(settings.read_connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(connect_timeout))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            connections,
            connector: connector.clone(),
            connect_timeout,
            statement_timeout: Duration::from_secs(settings.statement_timeout_seconds),
            size: settings.read_connections,
        })
    }

    pub(super) fn state(&self) -> PoolState {
        let status = self.connections.status();
        PoolState { open: status.size, idle: status.available, waiting: status.waiting }
    }

    /// Runs a statement on a connection of the pool. Runs it once more, within the statement
    /// timeout, after two kinds of failure. The store was away ([`StoreError::is_away`]), for
    /// example because the connection had died. Or another transaction was first, which can happen
    /// if the database's default isolation level keeps one snapshot for a whole transaction.
    ///
    /// A read does not wait for a database that answers no probe: its caller can ask another server.
    pub(super) async fn run<T, F: Future<Output = Result<T>>>(
        &self,
        access: Access,
        statement: impl Fn(Arc<PooledConnection>) -> F,
    ) -> Result<T> {
        let tried = self.run_twice(access, statement);
        if access != Access::Read {
            return tried.await;
        }
        tokio::select! {
            answer = tried => answer,
            () = self.connector.epochs().away_for(READ_PATIENCE) => {
                Err(StoreError::Unreachable("the database does not answer".into()))
            }
        }
    }

    async fn run_twice<T, F: Future<Output = Result<T>>>(
        &self,
        access: Access,
        statement: impl Fn(Arc<PooledConnection>) -> F,
    ) -> Result<T> {
        let (started, timeout) = (Instant::now(), self.statement_timeout);
        match self.run_once(access, &statement, timeout).await {
            Err(error) if is_worth_a_retry(&error) && started.elapsed() < timeout => {
                self.run_once(access, &statement, timeout).await
            }
            answer => answer,
        }
    }

    /// Runs a statement once on a connection of the pool, for at most `timeout`.
    pub(super) async fn run_once<T, F: Future<Output = Result<T>>>(
        &self,
        access: Access,
        statement: &impl Fn(Arc<PooledConnection>) -> F,
        timeout: Duration,
    ) -> Result<T> {
        let connection = self.connections.get().await.map_err(|error| self.not_connected(error))?;
        let (connector, is_idle) = (self.connector.clone(), AtomicBool::new(false));
        let pooled = Arc::new(PooledConnection { connection: Some(connection), connector, access, is_idle });
        let late = |_| StoreError::Unreachable(format!("no answer within {} s", timeout.as_secs()));
        let answer = tokio::time::timeout(timeout, answer_in_epoch(access, &pooled, statement)).await.map_err(late)?;
        // A connection that has left its epoch is not used again.
        let is_idle = !answer.as_ref().is_err_and(StoreError::is_away);
        pooled.is_idle.store(is_idle, Ordering::Relaxed);
        answer
    }

    fn not_connected(&self, error: PoolError<StoreError>) -> StoreError {
        let seconds = self.connect_timeout.as_secs();
        match error {
            PoolError::Backend(error) => error,
            PoolError::Timeout(TimeoutType::Wait) => StoreError::Unreachable(format!(
                "all {} connections for reads, `postgres.read_connections`, were in use for {seconds} s",
                self.size
            )),
            error => StoreError::Unreachable(error.to_string()),
        }
    }
}

/// Runs a statement in a transaction that fails in another epoch than that of the connection.
async fn answer_in_epoch<T, F: Future<Output = Result<T>>>(
    access: Access,
    pooled: &Arc<PooledConnection>,
    statement: &impl Fn(Arc<PooledConnection>) -> F,
) -> Result<T> {
    let (guard, is_write) = (pooled.accepted().guard("0"), access == Access::Write);
    let durably = if is_write { ", write_durably()" } else { "" };
    // The isolation level is that of single statements, whatever the database's default is.
    let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT {guard}{durably}");
    if access == Access::Alone {
        return statement(pooled.clone()).await;
    }
    // INVARIANT: `join!` polls its futures, and so sends their statements, in this order.
    let (begun, answer) = futures_util::join!(pooled.batch_execute(&begin), statement(pooled.clone()));
    if is_write && begun.is_ok() && answer.is_ok() {
        pooled.durable(async { pooled.batch_execute("END").await.map_err(failed) }).await?;
        return answer;
    }
    // The first poll sends the statement. Its answer needs no wait, because the next statement of the connection comes after it.
    drop(pooled.batch_execute("ROLLBACK").now_or_never());
    begun.map_err(failed)?;
    let answer = answer?;
    // A durable write after the read proves the read too.
    if !pooled.accepted().is_proved() {
        pooled.prove().await?;
    }
    Ok(answer)
}

fn is_worth_a_retry(error: &StoreError) -> bool {
    error.is_away() || matches!(error, StoreError::Conflict(_))
}

/// A connection of the pool while one statement uses it.
///
/// If the statement takes too long, or its caller no longer waits, the connection is dropped while
/// it is busy. It is then removed from the pool, because its next statement would have to wait. The
/// database is asked to cancel the statement.
pub(super) struct PooledConnection {
    connection: Option<Object<Connections>>,
    connector: Connector,
    access: Access,
    is_idle: AtomicBool,
}

impl Deref for PooledConnection {
    type Target = EpochConnection;

    fn deref(&self) -> &EpochConnection {
        #[expect(clippy::expect_used, reason = "INVARIANT: only `drop` takes the connection")]
        let connection = self.connection.as_ref().expect("the connection is there until the drop");
        connection
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && !self.is_idle.load(Ordering::Relaxed)
        {
            // The canceled statement may be a COMMIT that waits for a standby. That of a read changes no row.
            if self.access == Access::Write {
                connection.accepted().doubt();
            }
            self.connector.cancel(connection.cancel_token());
            drop(Object::take(connection));
        }
    }
}

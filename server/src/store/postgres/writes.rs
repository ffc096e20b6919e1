//! Converts the changes of a group into SQL statements, one for each kind of change, in an order
//! that rules out deadlocks: see [`super::writer`].

use std::sync::LazyLock;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use leasehold_core::claim::{Claim, ClaimState};
use leasehold_core::lease::{Lease, Outcome, Replay};
use leasehold_core::rows::{NetChanges, RowChange};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::columns::{KeyArrays, Micros, Parameters};
use super::composite::CompositeRows;
use super::connect::EpochConnection;
use super::lock_writes::LockWrites;
use super::queue_writes::QueueWrites;
use crate::store::error::StoreError;

/// The result of a statement: rows with the new leases and their fences, or no rows.
pub(super) type StatementResult = Result<Vec<Row>, tokio_postgres::Error>;

/// A future of a statement's result. The statement is sent when the future is first polled.
pub(super) type StatementFuture<'a> = LocalBoxFuture<'a, StatementResult>;

/// The changes of a group, sorted by kind.
#[derive(Default)]
pub(super) struct Writes<'a> {
    begun: CompositeRows,
    settled: SettledArrays,
    forgotten: Vec<Uuid>,
    // The keys of changed claims that were under no lease before. Other servers may change such a
    // claim at the same time, so these rows are locked first.
    contended: KeyArrays<'a>,
    inserted: CompositeRows,
    // The claims that become active with an unchanged record, and the times of the change.
    activated: (KeyArrays<'a>, Vec<Micros>),
    changed: CompositeRows,
    removed: KeyArrays<'a>,
    keyed: CompositeRows,
    unkeyed: (Vec<i64>, Vec<&'a str>),
    locks: LockWrites<'a>,
    queues: QueueWrites<'a>,
}

#[derive(Default)]
struct SettledArrays {
    uuids: Vec<Uuid>,
    committed: Vec<bool>,
    settled_at: Vec<Micros>,
}

/// The call of `write_group` in a transaction with other statements. A lost race is an error, so
/// that the other statements are undone too.
static WRITE_BESIDE: LazyLock<String> = LazyLock::new(|| call("write_group", "NULL"));

/// The call of `try_write_group` as the only statement of a transaction. After a lost race there is
/// nothing else to undo. So the race is reported in a row and not as an error, which the database
/// would log.
static TRY_WRITE: LazyLock<String> = LazyLock::new(|| call("try_write_group", "NULL"));

/// The call of `try_write_group` as a transaction of its own. The function then also takes the
/// advisory lock of the group.
static TRY_WRITE_ALONE: LazyLock<String> = LazyLock::new(|| call("try_write_group", "at_epoch($11, $10)"));

/// Returns the SQL of a call of `function` with the parameters of [`Writes::group_parameters`].
/// `lock` is the SQL of the first argument.
fn call(function: &str, lock: &str) -> String {
    format!(
        "SELECT * FROM {function}({lock}, $1, $2, $3, $4::new_claim[], $5, $6, $7, $8::begun_lease[], $9::new_key[])"
    )
}

const LOCK_CLAIMS: &str = "SELECT lock_claims($1, $2)";

const CHANGE_CLAIMS: &str = "SELECT change_claims($1::new_claim[])";

const REMOVE_CLAIMS: &str = "
    WITH done AS (
        DELETE FROM claims c USING unnest($1, $2) AS k (t, v) WHERE c.bucket_type = k.t AND c.bucket_value = k.v RETURNING 1
    ) SELECT expect_rows(count(*), cardinality($1)) FROM done";

const FORGET_LEASES: &str = "
    WITH done AS (DELETE FROM settled_leases WHERE uuid = ANY ($1) RETURNING 1)
    SELECT expect_rows(count(*), cardinality($1)) FROM done";

const REMOVE_KEYS: &str = "
    WITH done AS (
        DELETE FROM idempotency_keys k USING unnest($1, $2) AS n (cell, name)
        WHERE k.creator_id = n.cell AND k.idempotency_key = n.name RETURNING 1
    ) SELECT expect_rows(count(*), cardinality($1)) FROM done";

impl<'a> Writes<'a> {
    /// Sorts the changes of a group by kind, and each kind by its keys.
    ///
    /// # Errors
    /// The engine has no command that makes one of the changes.
    pub(super) fn of(changes: &'a NetChanges) -> Result<Self, StoreError> {
        // The database's sequence gives out the fences. `LockWrites` has sessions, locks, asks and turns,
        // `QueueWrites` all kinds of queues.
        // The pattern names each kind of row, so that the compiler finds a kind that is not written.
        let NetChanges {
            claims,
            leases,
            replays,
            sessions: _,
            locks: _,
            asks: _,
            turns: _,
            queues: _,
            lanes: _,
            requests: _,
            bodies: _,
            fence: _,
        } = changes;
        let (locks, queues) = (LockWrites::of(changes)?, QueueWrites::of(changes)?);
        let mut writes = Self { locks, queues, ..Self::default() };
        let mut leases: Vec<_> = leases.iter().collect();
        // The sort is stable, so new leases stay in the order of their commands. The database
        // assigns fences in this order.
        leases.sort_by_key(|change| change.before.is_some().then_some(change.key));
        leases.into_iter().try_for_each(|change| writes.lease(change))?;
        let mut claims: Vec<_> = claims.iter().collect();
        claims.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        claims.into_iter().try_for_each(|change| writes.claim(change))?;
        let mut replays: Vec<_> = replays.iter().collect();
        replays.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        replays.into_iter().try_for_each(|change| writes.replay(change))?;
        Ok(writes)
    }

    fn lease(&mut self, change: &'a RowChange<Lease>) -> Result<(), StoreError> {
        match (&change.before, &change.after) {
            (None, Some(lease)) => self.begun.push_lease(change.key, lease)?,
            (Some(lease), None) if lease.outcome().is_some() => self.forgotten.push(change.key.0),
            (Some(lease), Some(_)) if lease.outcome().is_none() => {}
            _ => return Err(unexpected("lease")),
        }
        if let Some(lease) = &change.after
            && let Some(outcome) = lease.outcome()
        {
            self.settled.uuids.push(change.key.0);
            self.settled.committed.push(outcome == Outcome::Committed);
            self.settled.settled_at.push(Micros(lease.updated_at));
        }
        Ok(())
    }

    fn claim(&mut self, change: &'a RowChange<Claim>) -> Result<(), StoreError> {
        if change.before.as_ref().is_some_and(|before| before.hold().is_none()) {
            self.contended.push(&change.key);
        }
        match (&change.before, &change.after) {
            (None, None) => {}
            (None, Some(after)) => self.inserted.push_claim(&change.key, after)?,
            (Some(_), None) => self.removed.push(&change.key),
            (Some(before), Some(after)) if is_only_activated(before, after) => {
                self.activated.0.push(&change.key);
                self.activated.1.push(Micros(after.record().updated_at));
            }
            (Some(_), Some(after)) => self.changed.push_claim(&change.key, after)?,
        }
        Ok(())
    }

    fn replay(&mut self, change: &'a RowChange<Replay>) -> Result<(), StoreError> {
        match (&change.before, &change.after) {
            (None, Some(replay)) => self.keyed.push_key(&change.key, replay),
            (Some(_), None) => {
                self.unkeyed.0.push(change.key.cell.0);
                self.unkeyed.1.push(&change.key.key);
                Ok(())
            }
            _ => Err(unexpected("idempotency key")),
        }
    }

    /// True if [`Writes::alone`] can write all changes of the group.
    pub(super) fn is_one_statement(&self) -> bool {
        self.contended.is_empty()
            && self.removed.is_empty()
            && self.changed.is_empty()
            && self.forgotten.is_empty()
            && self.unkeyed.0.is_empty()
            && self.locks.is_empty()
            && self.queues.is_empty()
    }

    /// Returns the changes to sessions and locks.
    pub(super) fn locks(&self) -> &LockWrites<'a> {
        &self.locks
    }

    /// Returns the changes to queues.
    pub(super) fn queues(&self) -> &QueueWrites<'a> {
        &self.queues
    }

    /// Writes all changes with one statement, which is a transaction of its own and takes the
    /// advisory lock `lock`. Returns the fences of new leases.
    pub(super) async fn alone(&self, connection: &EpochConnection, lock: i64) -> StatementResult {
        let epoch = connection.accepted().text();
        let parameters = [self.group_parameters(), vec![(&lock as _, Type::INT8), (&epoch as _, Type::TEXT)]];
        connection.query_typed(&TRY_WRITE_ALONE, &parameters.concat()).await
    }

    /// Returns the statements that have rows to write, except for those of sessions, locks and
    /// queues, in order. The last one returns the fences of new leases.
    pub(super) fn statements<'c>(&'c self, client: &'c Client) -> Vec<StatementFuture<'c>> {
        let mut statements = Vec::new();
        let mut push = |sql: &'static str, parameters: Parameters<'c>, is_empty: bool| {
            if !is_empty {
                statements
                    .push(async move { client.query_typed(sql, &parameters).await.map(|_| Vec::new()) }.boxed_local());
            }
        };
        push(LOCK_CLAIMS, self.contended.parameters(), self.contended.is_empty());
        push(REMOVE_CLAIMS, self.removed.parameters(), self.removed.is_empty());
        push(CHANGE_CLAIMS, self.changed.parameter(), self.changed.is_empty());
        push(FORGET_LEASES, vec![(&self.forgotten, Type::UUID_ARRAY)], self.forgotten.is_empty());
        let unkeyed = vec![(&self.unkeyed.0 as _, Type::INT8_ARRAY), (&self.unkeyed.1 as _, Type::TEXT_ARRAY)];
        push(REMOVE_KEYS, unkeyed, self.unkeyed.0.is_empty());
        let has_no_claims = self.activated.1.is_empty() && self.inserted.is_empty();
        // Only an import writes keys without their leases.
        let has_no_leases = self.settled.uuids.is_empty() && self.begun.is_empty() && self.keyed.is_empty();
        if !(has_no_claims && has_no_leases) {
            let (sql, parameters) = (
                if statements.is_empty() && self.locks.is_empty() && self.queues.is_empty() {
                    &TRY_WRITE
                } else {
                    &WRITE_BESIDE
                },
                self.group_parameters(),
            );
            statements.push(async move { client.query_typed(sql, &parameters).await }.boxed_local());
        }
        statements
    }

    fn group_parameters(&self) -> Parameters<'_> {
        let parameters = [
            self.activated.0.parameters(),
            vec![(&self.activated.1 as _, Type::TIMESTAMPTZ_ARRAY)],
            self.inserted.parameter(),
            self.settled.parameters(),
            self.begun.parameter(),
            self.keyed.parameter(),
        ];
        parameters.concat()
    }
}

/// True if the change only takes the claim out of its lease and sets the time of the change, as in
/// most settles.
fn is_only_activated(before: &Claim, after: &Claim) -> bool {
    let (ClaimState::Creating(..) | ClaimState::Replacing(..), ClaimState::Active(record)) =
        (&before.state, &after.state)
    else {
        return false;
    };
    let shown = before.record();
    before.owner == after.owner
        && shown.uuid == record.uuid
        && shown.created_at == record.created_at
        && shown.spelling == record.spelling
        && shown.subject == record.subject
        && shown.source == record.source
        && shown.user_data == record.user_data
}

fn unexpected(kind: &str) -> StoreError {
    StoreError::Failed(format!("no command makes such a change of a row of the kind {kind}"))
}

impl SettledArrays {
    fn parameters(&self) -> Parameters<'_> {
        vec![
            (&self.uuids, Type::UUID_ARRAY),
            (&self.committed, Type::BOOL_ARRAY),
            (&self.settled_at, Type::TIMESTAMPTZ_ARRAY),
        ]
    }
}

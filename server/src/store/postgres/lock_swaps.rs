//! The write of a group of acquires and releases whose rows were taken from the cache: one
//! statement, which is a transaction of its own.
//!
//! The statement compares every assumed row with the row in the table. It compares a row that the
//! group changes when it locks and writes the row. Then, in one snapshot, it compares the rows that
//! the group leaves as they are: those of a refused acquire, for example.
//!
//! The comparison of a lock has its holder, its last holder and the numbers of its queue. Fences are
//! given out once, a grant ends once, and the numbers of turns only grow. So a lock that is free or
//! held never has the same values twice with other contents. A session is compared by the time at
//! which it was opened, by its renewals and by its end. The number of its asks is changed and not
//! overwritten, so that two groups may change it one after the other.

use leasehold_core::lock::{AskId, Lock, LockPath, LockState};
use leasehold_core::rows::NetChanges;
use leasehold_core::session::{MAX_ASKS_PER_SESSION, Session, SessionId};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::active_servers::ServerId;
use super::columns::{Micros, Parameters};
use super::composite::CompositeRows;
use super::connect::EpochConnection;
use super::failure::failed;
use super::lock_cache::AssumedLocks;
use super::lock_columns::sent;
use super::lock_writes::{Grants, LockWrites, grants, sorted};
use crate::store::error::StoreError;

type Result<T> = std::result::Result<T, StoreError>;

const TRY_SWAP: &str = "
    SELECT try_swap_locks($1, at_epoch($17, $2), $3, $4, $5::seen_session[], $6::seen_session[], $7::seen_lock[], $8::new_lock[],
        $9::seen_lock[], $10::new_ask[], $11::new_share[], $12::new_ask[], $13, $14, $15::new_turn[], $16::new_turn[])";

/// The assumed rows of a group, sorted by how the group's write compares them.
#[derive(Default)]
pub(super) struct LockSwaps {
    changed_sessions: CompositeRows,
    seen_sessions: CompositeRows,
    // The changed locks as they were assumed, in the order of `LockWrites`.
    former_locks: CompositeRows,
    seen_locks: CompositeRows,
    // The asks that were assumed to be absent and that the group does not add.
    absent_asks: Vec<Uuid>,
}

impl LockSwaps {
    /// Sorts the assumed rows of a group. `None` if the changes have a row that was not assumed, or
    /// change a session in another way than by its number of asks.
    ///
    /// # Errors
    /// A row has a value that its column can't have.
    pub(super) fn of(changes: &NetChanges, assumed: &AssumedLocks) -> Result<Option<Self>> {
        let mut swaps = Self::default();
        let mut sessions: FxHashMap<SessionId, &Session> =
            assumed.sessions.iter().map(|(id, row)| (*id, row)).collect();
        for change in sorted(&changes.sessions) {
            let (Some(before), Some(after)) = (sessions.remove(&change.key), &change.after) else { return Ok(None) };
            if *after != (Session { asks: after.asks, ..before.clone() }) {
                return Ok(None);
            }
            let more = after.asks.cast_signed().wrapping_sub(before.asks.cast_signed());
            swaps.changed_sessions.push_seen_session(change.key, before, Some(more))?;
        }
        let mut locks: FxHashMap<&LockPath, &Lock> =
            assumed.locks.iter().map(|(path, row)| (path, &row.lock)).collect();
        for change in sorted(&changes.locks) {
            let Some(before) = locks.remove(&change.key) else { return Ok(None) };
            swaps.former_locks.push_seen_lock(&change.key, before)?;
        }
        let changed: FxHashSet<AskId> = changes.asks.iter().map(|change| change.key).collect();
        swaps.absent_asks = assumed.absent.difference(&changed).map(|id| id.0).collect();
        sessions.into_iter().try_for_each(|(id, row)| swaps.seen_sessions.push_seen_session(id, row, None))?;
        locks.into_iter().try_for_each(|(path, row)| swaps.seen_locks.push_seen_lock(path, row))?;
        Ok(Some(swaps))
    }

    /// Writes the changes of a group and compares the rows that it assumed. Takes the advisory lock
    /// `lock`. Returns the fences of new grants by placeholder.
    ///
    /// # Errors
    /// A row is not as it was assumed, or the database failed.
    pub(super) async fn write(
        &self,
        connection: &EpochConnection,
        server: ServerId,
        lock: i64,
        writes: &LockWrites<'_>,
    ) -> Result<Grants> {
        let (home, most) = (server.home(), MAX_ASKS_PER_SESSION.cast_signed());
        let first: Parameters<'_> =
            vec![(&home, Type::INT8), (&lock, Type::INT8), (&writes.drawn, Type::INT4), (&most, Type::INT4)];
        let epoch = connection.accepted().text();
        let parameters = [first, self.parameters(writes), vec![(&epoch as _, Type::TEXT)]].concat();
        let rows = connection.query_typed(TRY_SWAP, &parameters).await.map_err(failed)?;
        grants(&rows)
    }

    fn parameters<'a>(&'a self, writes: &'a LockWrites<'_>) -> Parameters<'a> {
        [
            self.changed_sessions.parameter(),
            self.seen_sessions.parameter(),
            self.former_locks.parameter(),
            writes.changed_locks.parameter(),
            self.seen_locks.parameter(),
            writes.asked.parameter(),
            writes.sharing.parameter(),
            writes.changed_asks.parameter(),
            vec![(&writes.ended_asks as _, Type::UUID_ARRAY), (&self.absent_asks as _, Type::UUID_ARRAY)],
            writes.queued.parameter(),
            writes.left_turns.parameter(),
        ]
        .concat()
    }
}

impl CompositeRows {
    /// Adds a row of the composite type `seen_session`. `more` is the number of asks that the group
    /// adds; `None` if the group leaves the session as it is.
    fn push_seen_session(&mut self, id: SessionId, session: &Session, more: Option<i32>) -> Result<()> {
        self.push(&[
            (&id.0, Type::UUID),
            (&Micros(session.opened_at), Type::TIMESTAMPTZ),
            (&session.renewals.cast_signed(), Type::INT8),
            (&session.asks.cast_signed(), Type::INT4),
            (&more, Type::INT4),
        ])
    }

    /// Adds a row of the composite type `seen_lock`.
    fn push_seen_lock(&mut self, path: &LockPath, lock: &Lock) -> Result<()> {
        let (grant, last) = (lock.grant(), lock.last.as_ref().map(|last| &last.grant));
        // The cache has no lock in another state.
        let state = if lock.state == LockState::Free { 1_i16 } else { 2 };
        self.push(&[
            (&path.namespace(), Type::TEXT),
            (&&*path.stored_key(), Type::TEXT),
            (&state, Type::INT2),
            (&lock.waiting.cast_signed(), Type::INT4),
            (&lock.served_turn.cast_signed(), Type::INT8),
            (&lock.last_turn.cast_signed(), Type::INT8),
            (&grant.map(|grant| sent(grant.fence)), Type::INT8),
            (&grant.map(|grant| grant.ask.0), Type::UUID),
            (&last.map(|grant| sent(grant.fence)), Type::INT8),
            (&last.map(|grant| grant.ask.0), Type::UUID),
        ])
    }
}

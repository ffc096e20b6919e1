//! The changes of a group to sessions and locks, as the parameters of one statement.
//!
//! The statement takes the fences of new grants from the sequence `lease_fences`. Until then, a new
//! grant has a placeholder (`Fence::PLACEHOLDER`), which is sent as a negative number.

use std::borrow::Cow;
use std::sync::LazyLock;

use leasehold_core::lease::Fence;
use leasehold_core::lock::{Ask, Lock, LockState, Turn};
use leasehold_core::rows::{NetChanges, RowChange};
use leasehold_core::session::Session;
use rustc_hash::FxHashMap;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::active_servers::ServerId;
use super::columns::Parameters;
use super::composite::CompositeRows;
use super::failure::failed;
use super::lock_columns::sent;
use super::queue_writes::QueueWrites;
use crate::store::error::StoreError;

/// The changes of a group to sessions and locks, sorted by kind.
#[derive(Default)]
pub(super) struct LockWrites<'a> {
    // The number of fences that the group gives out.
    pub(super) drawn: i32,
    opened: CompositeRows,
    changed_sessions: CompositeRows,
    forgotten_sessions: Vec<Uuid>,
    made: CompositeRows,
    pub(super) changed_locks: CompositeRows,
    forgotten_locks: (Vec<&'a str>, Vec<Cow<'a, str>>),
    pub(super) asked: CompositeRows,
    pub(super) changed_asks: CompositeRows,
    pub(super) ended_asks: Vec<Uuid>,
    pub(super) queued: CompositeRows,
    pub(super) left_turns: CompositeRows,
    // The changed locks whose obituary or whose most attempts change.
    reaped: CompositeRows,
    // The locks whose slots change, and the new asks that share a lock or whose caller holds others.
    divided: CompositeRows,
    pub(super) sharing: CompositeRows,
    // The sessions that the group opens, or whose renewals it counts.
    moved: Vec<Uuid>,
    // True if the group counts a renewal or ends a session, which is news for the session's home.
    tells: bool,
    // The sessions of grants that an operator takes, and the fences of the grants.
    forced: (Vec<Uuid>, Vec<i64>),
}

/// The call of `save_locks` in a transaction with other statements. A lost race is an error, so
/// that the other statements are undone too.
static WRITE_BESIDE: LazyLock<String> = LazyLock::new(|| call("save_locks", ""));
static WRITE_REAPED_BESIDE: LazyLock<String> = LazyLock::new(|| call("save_reaped_locks", REAPED));
static WRITE_SHARED_BESIDE: LazyLock<String> = LazyLock::new(|| call("save_shared_locks", SHARED));

/// The call of `try_save_locks` as the only statement of a transaction. A lost race is reported in
/// a row and not as an error, which the database would log.
static TRY_WRITE: LazyLock<String> = LazyLock::new(|| call("try_save_locks", ""));
static TRY_WRITE_REAPED: LazyLock<String> = LazyLock::new(|| call("try_save_reaped_locks", REAPED));
static TRY_WRITE_SHARED: LazyLock<String> = LazyLock::new(|| call("try_save_shared_locks", SHARED));

/// The last argument of the functions that write obituaries.
const REAPED: &str = ", $19::new_obituary[]";
/// The last arguments of the functions that also write slots.
const SHARED: &str = ", $19::new_obituary[], $20::new_division[], $21::new_share[]";

/// The first argument also sets the default of `lock_asks.attendant`, for this transaction. PostgreSQL
/// evaluates it before it calls the function.
fn call(function: &str, last_arguments: &str) -> String {
    format!(
        "SELECT {function}(set_config('leasehold.server', $1::text, true)::bigint, $2, $3, $4, $5, $6, \
         $7::new_session[], $8::new_session[], $9, $10::new_lock[], $11::new_lock[], $12, $13, \
         $14::new_ask[], $15::new_ask[], $16, $17::new_turn[], $18::new_turn[]{last_arguments})"
    )
}

impl<'a> LockWrites<'a> {
    /// Sorts the changes of a group by kind, and each kind by its keys.
    ///
    /// # Errors
    /// A row has a value that its column can't have.
    pub(super) fn of(changes: &'a NetChanges) -> Result<Self, StoreError> {
        let NetChanges { sessions, locks, asks, turns, leases, lanes, fence, .. } = changes;
        let mut writes = Self::default();
        sorted(sessions).into_iter().try_for_each(|change| writes.session(change))?;
        sorted(locks).into_iter().try_for_each(|change| writes.lock(change))?;
        sorted(asks).into_iter().try_for_each(|change| writes.ask(change))?;
        sorted(turns).into_iter().try_for_each(|change| writes.turn(change))?;
        // The fences of new leases are drawn where the leases are written.
        if leases.is_empty() || !(locks.is_empty() && asks.is_empty() && lanes.is_empty()) {
            let given_out = fence.map_or(0, |newest| newest.0.saturating_sub(Fence::PLACEHOLDER.0));
            writes.drawn = i32::try_from(given_out).unwrap_or(i32::MAX);
        }
        Ok(writes)
    }

    fn session(&mut self, change: &RowChange<Session>) -> Result<(), StoreError> {
        let renewals = change.before.as_ref().map(|before| before.renewals);
        if let Some(session) = &change.after {
            let is_moved = renewals != Some(session.renewals);
            self.moved.extend(is_moved.then_some(change.key.0));
            self.tells |= renewals.is_some() && (is_moved || !session.is_live());
        }
        match (&change.before, &change.after) {
            (None, Some(session)) => self.opened.push_session(change.key, session)?,
            (Some(_), Some(session)) => self.changed_sessions.push_session(change.key, session)?,
            (Some(_), None) => self.forgotten_sessions.push(change.key.0),
            (None, None) => {}
        }
        Ok(())
    }

    fn lock(&mut self, change: &'a RowChange<Lock>) -> Result<(), StoreError> {
        if let Some(grant) = Lock::newly_forced(change.before.as_ref(), change.after.as_ref()) {
            self.forced.0.push(grant.session.0);
            self.forced.1.push(sent(grant.fence));
        }
        let reaped = |lock: Option<&Lock>| lock.map_or((None, None), |lock| (lock.reaped, lock.obituary));
        if let Some(lock) = &change.after
            && reaped(Some(lock)) != reaped(change.before.as_ref())
        {
            self.reaped.push_obituary(&change.key, lock)?;
        }
        let division = |lock: Option<&Lock>| match lock?.state {
            LockState::Divided(division) => Some(division),
            _ => None,
        };
        let (before, after) = (division(change.before.as_ref()), division(change.after.as_ref()));
        if before != after && change.after.is_some() {
            self.divided.push_division(&change.key, after)?;
        }
        match (&change.before, &change.after) {
            (None, Some(lock)) => self.made.push_lock(&change.key, lock)?,
            (Some(_), Some(lock)) => self.changed_locks.push_lock(&change.key, lock)?,
            (Some(_), None) => {
                self.forgotten_locks.0.push(change.key.namespace());
                self.forgotten_locks.1.push(change.key.stored_key());
            }
            (None, None) => {}
        }
        Ok(())
    }

    fn ask(&mut self, change: &RowChange<Ask>) -> Result<(), StoreError> {
        match (&change.before, &change.after) {
            (None, Some(ask)) => {
                self.asked.push_ask(change.key, ask)?;
                if ask.share.is_some() || !ask.held.is_empty() {
                    self.sharing.push_share(change.key, ask)?;
                }
            }
            (Some(_), Some(ask)) => self.changed_asks.push_ask(change.key, ask)?,
            (Some(_), None) => self.ended_asks.push(change.key.0),
            (None, None) => {}
        }
        Ok(())
    }

    fn turn(&mut self, change: &RowChange<Turn>) -> Result<(), StoreError> {
        if let Some(turn) = &change.before {
            self.left_turns.push_turn(&change.key, turn)?;
        }
        match &change.after {
            Some(turn) => self.queued.push_turn(&change.key, turn),
            None => Ok(()),
        }
    }

    /// True if the group changes no row of sessions and locks and gives out no fence of a grant.
    pub(super) fn is_empty(&self) -> bool {
        self.drawn == 0
            && self.opened.is_empty()
            && self.changed_sessions.is_empty()
            && self.forgotten_sessions.is_empty()
            && self.made.is_empty()
            && self.changed_locks.is_empty()
            && self.forgotten_locks.0.is_empty()
            && self.asked.is_empty()
            && self.changed_asks.is_empty()
            && self.ended_asks.is_empty()
            && self.queued.is_empty()
            && self.left_turns.is_empty()
    }

    /// True if [`LockSwaps`](super::lock_swaps::LockSwaps) can write the changes: the group only changes
    /// asks and turns, and the rows of the sessions and locks that have them.
    pub(super) fn is_swap(&self) -> bool {
        let makes = !(self.opened.is_empty() && self.made.is_empty());
        let forgets = !(self.forgotten_sessions.is_empty() && self.forgotten_locks.0.is_empty());
        let tells = self.tells || !(self.moved.is_empty() && self.forced.0.is_empty());
        !(makes || forgets || tells) && self.reaped.is_empty() && self.divided.is_empty()
    }

    /// Writes the changes and those of queues, and returns the fences of new grants and holds by placeholder. `is_alone` is true if
    /// the transaction has no other statement that writes. `server` becomes the home of the sessions
    /// that are opened or renewed.
    ///
    /// # Errors
    /// Another transaction was first, or the database failed.
    pub(super) async fn write(
        &self,
        client: &Client,
        server: ServerId,
        queues: &QueueWrites<'_>,
        is_alone: bool,
    ) -> Result<Grants, StoreError> {
        match (self.is_empty(), queues.is_empty()) {
            (true, true) => return Ok(Grants::default()),
            (true, false) => {
                let call = QueueWrites::call("'{}'::bigint[]", 0);
                let rows = client.query_typed(&call, &queues.parameters()).await.map_err(failed)?;
                return grants(&rows);
            }
            (false, _) => {}
        }
        // Few groups change an obituary or slots, and a second write of their locks' rows is not for the
        // others.
        let shares = !(self.divided.is_empty() && self.sharing.is_empty());
        let (alone, beside, more) = if shares {
            let more = [self.reaped.parameter(), self.divided.parameter(), self.sharing.parameter()].concat();
            (&TRY_WRITE_SHARED, &WRITE_SHARED_BESIDE, more)
        } else if !self.reaped.is_empty() {
            (&TRY_WRITE_REAPED, &WRITE_REAPED_BESIDE, self.reaped.parameter())
        } else {
            (&TRY_WRITE, &WRITE_BESIDE, Vec::new())
        };
        let home = server.home();
        let mut parameters = [vec![(&home as _, Type::INT8)], self.parameters(), more].concat();
        let rows = if queues.is_empty() {
            client.query_typed(if is_alone { alone } else { beside }, &parameters).await
        } else {
            // The fences of new holds are among those that the write of sessions and locks draws.
            let call = QueueWrites::call(&format!("ARRAY({})", **beside), parameters.len());
            parameters.extend(queues.parameters());
            client.query_typed(&call, &parameters).await
        };
        grants(&rows.map_err(failed)?)
    }

    fn parameters(&self) -> Parameters<'_> {
        [
            vec![(&self.moved as _, Type::UUID_ARRAY), (&self.tells as _, Type::BOOL)],
            vec![(&self.forced.0 as _, Type::UUID_ARRAY), (&self.forced.1 as _, Type::INT8_ARRAY)],
            vec![(&self.drawn as _, Type::INT4)],
            self.opened.parameter(),
            self.changed_sessions.parameter(),
            vec![(&self.forgotten_sessions as _, Type::UUID_ARRAY)],
            self.made.parameter(),
            self.changed_locks.parameter(),
            vec![(&self.forgotten_locks.0 as _, Type::TEXT_ARRAY), (&self.forgotten_locks.1 as _, Type::TEXT_ARRAY)],
            self.asked.parameter(),
            self.changed_asks.parameter(),
            vec![(&self.ended_asks as _, Type::UUID_ARRAY)],
            self.queued.parameter(),
            self.left_turns.parameter(),
        ]
        .concat()
    }
}

/// The fences of new grants by their placeholders.
pub(super) type Grants = FxHashMap<Fence, Fence>;

/// Reads the fences of new grants, in the order of their placeholders.
///
/// # Errors
/// Another transaction was first, or the group waited too long for a lock.
pub(super) fn grants(rows: &[Row]) -> Result<Grants, StoreError> {
    let number = |row: &Row| row.try_get::<_, i64>(0).map_err(failed);
    (1_u64..).zip(rows).map(|(place, row)| grant(place, number(row)?)).collect()
}

/// Returns the changes in the order of their keys. All transactions write in this order, so two of
/// them can't wait for each other.
pub(super) fn sorted<K: leasehold_core::rows::RowKind>(changes: &[RowChange<K>]) -> Vec<&RowChange<K>> {
    let mut changes: Vec<_> = changes.iter().collect();
    changes.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    changes
}

/// Returns the placeholder at this place and its fence, which `save_locks` has returned.
///
/// # Errors
/// `try_save_locks` returned a number that stands for a lost race.
fn grant(place: u64, fence: i64) -> Result<(Fence, Fence), StoreError> {
    match fence {
        -1 => Err(StoreError::Conflict("another transaction was first".into())),
        -2 => Err(StoreError::Locked("lock timeout".into())),
        fence => Ok((Fence(Fence::PLACEHOLDER.0.saturating_add(place)), Fence(fence.cast_unsigned()))),
    }
}

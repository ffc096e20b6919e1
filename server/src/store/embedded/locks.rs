//! The keyspaces of sessions, locks, asks and turns, and the lists of asks and turns in memory.
//!
//! An ask and its turn exist while the ask waits or holds, so their rows come and go. A scan of
//! their keyspaces would step over the deleted rows. So the two lists that commands read, the asks
//! of a session and the turns of a lock, are kept in memory, and are read from disk when the store
//! is opened. The rows of asks are kept too, so a new ask is known to have no row without a read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use fjall::Snapshot;
use leasehold_core::circle::{CircleRead, MAX_SEARCHED_ASKS};
use leasehold_core::lock::{Ask, AskId, Lock, LockPath, LockState, Turn, TurnKey};
use leasehold_core::rows::{AnyRow, Keys, NetChanges, RowChange, Workspace};
use leasehold_core::session::{Session, SessionId};
use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::Result;
use super::keyed_rows::{all, ends_after, get, get_cached, put};
use super::row_cache::RowCache;
use super::rows::{Keyspace, WriteBatch};
use crate::store::error::StoreError;

/// The names of the keyspaces. A store of a version below `stored::LOCK_VERSION` may lack them.
pub(super) const KEYSPACES: [&str; 6] = ["sessions", "session_order", "locks", "lock_order", "asks", "turns"];

/// The keyspaces of sessions and locks.
pub(super) struct Locks {
    pub(super) sessions: Keyspace,
    pub(super) session_order: Keyspace,
    pub(super) locks: Keyspace,
    pub(super) lock_order: Keyspace,
    pub(super) asks: Keyspace,
    pub(super) turns: Keyspace,
    waits: RwLock<Waits>,
    // INVARIANT: only the committer takes this mutex, so nobody waits for it while a row is read from disk.
    recent: Mutex<Recent>,
}

/// The sessions and locks that commands read or changed last.
#[derive(Default)]
struct Recent {
    sessions: RowCache<Session>,
    locks: RowCache<Lock>,
}

/// The asks of all sessions and the turns of all locks, in order.
#[derive(Default)]
struct Waits {
    asks: BTreeSet<(SessionId, AskId)>,
    ask_rows: FxHashMap<AskId, Ask>,
    turns: BTreeMap<TurnKey, Turn>,
}

impl Waits {
    fn put_ask(&mut self, change: &RowChange<Ask>) {
        if let Some(ask) = &change.before {
            self.asks.remove(&(ask.session, change.key));
        }
        match &change.after {
            Some(ask) => self.add_ask(change.key, ask.clone()),
            None => _ = self.ask_rows.remove(&change.key),
        }
    }

    fn add_ask(&mut self, id: AskId, ask: Ask) {
        self.asks.insert((ask.session, id));
        self.ask_rows.insert(id, ask);
    }

    fn put_turn(&mut self, change: &RowChange<Turn>) {
        match change.after {
            Some(turn) => _ = self.turns.insert(change.key.clone(), turn),
            None => _ = self.turns.remove(&change.key),
        }
    }
}

impl Locks {
    /// Opens the keyspaces with `keyspace`, whose arguments are a name, the size of the memtable in
    /// MiB, and true if the keyspace gets a Bloom filter. The lists of asks and turns are empty.
    ///
    /// # Errors
    /// A keyspace can't be opened.
    pub(super) fn open(keyspace: impl Fn(&'static str, u64, bool) -> Result<Keyspace>) -> Result<Self> {
        Ok(Self {
            sessions: keyspace("sessions", 4, true)?,
            session_order: keyspace("session_order", 1, false)?,
            locks: keyspace("locks", 8, true)?,
            lock_order: keyspace("lock_order", 4, false)?,
            asks: keyspace("asks", 4, true)?,
            turns: keyspace("turns", 4, false)?,
            waits: RwLock::default(),
            recent: Mutex::default(),
        })
    }

    /// Reads the lists of asks and turns into memory.
    ///
    /// # Errors
    /// A row can't be read.
    pub(super) fn read_waits(&self, snapshot: &Snapshot) -> Result<()> {
        let mut waits = self.waits.write().unwrap_or_else(PoisonError::into_inner);
        for row in all::<Ask>(&self.asks, snapshot) {
            let (id, ask) = row?;
            waits.add_ask(id, ask);
        }
        for row in all::<Turn>(&self.turns, snapshot) {
            waits.turns.extend([row?]);
        }
        Ok(())
    }

    fn waits(&self) -> RwLockReadGuard<'_, Waits> {
        // INVARIANT: no code panics halfway through a change of the value while it has locked it.
        self.waits.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the rows of sessions and locks among `keys` into the workspace.
    ///
    /// # Errors
    /// A row could not be read.
    pub(super) fn load(&self, keys: &Keys, into: &mut Workspace) -> Result<()> {
        let Keys { sessions, locks, asks, turns, asks_of_session, turns_of_lock, .. } = keys;
        let mut guard = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = &mut *guard;
        for id in sessions {
            into.load(*id, get_cached(&mut recent.sessions, &self.sessions, id)?);
        }
        for path in locks {
            into.load(path.clone(), get_cached(&mut recent.locks, &self.locks, path)?);
        }
        drop(guard);
        let waits = self.waits();
        for id in asks {
            into.load(*id, waits.ask_rows.get(id).cloned());
        }
        for key in turns {
            into.load(key.clone(), waits.turns.get(key).copied());
        }
        for read in asks_of_session {
            let range = waits.asks.range((read.from, Bound::Unbounded)).take_while(|at| ends_after(&read.to, at));
            // INVARIANT: both lists of asks are changed together.
            let asks = range.take(read.limit).filter_map(|(_, id)| Some((*id, waits.ask_rows.get(id)?.clone())));
            into.load_first(read, asks.collect());
        }
        for read in turns_of_lock {
            let range = waits.turns.range((read.from.clone(), Bound::Unbounded));
            let turns = range.take_while(|(at, _)| ends_after(&read.to, at)).take(read.limit);
            into.load_first(read, turns.map(|(key, turn)| (key.clone(), *turn)).collect());
        }
        Ok(())
    }

    /// Reads asks for a search for circles (K15).
    ///
    /// # Errors
    /// A row could not be read.
    pub(super) fn related_asks(&self, read: &CircleRead) -> Result<Vec<(AskId, Ask)>> {
        let ids = match read {
            CircleRead::OfSession(session) => {
                let (from, to) = ((*session, AskId(Uuid::nil())), (*session, AskId(Uuid::max())));
                self.waits().asks.range(from..=to).map(|(_, id)| *id).collect()
            }
            CircleRead::OfLock(lock) => {
                let mut ids = self.holders(lock)?;
                let from = TurnKey { lock: lock.clone(), number: 0 };
                let waits = self.waits();
                let turns = waits.turns.range(from..).take_while(|(turn, _)| turn.lock == *lock);
                ids.extend(turns.take(MAX_SEARCHED_ASKS).map(|(_, turn)| turn.ask));
                ids
            }
        };
        let waits = self.waits();
        Ok(ids.into_iter().filter_map(|id| Some((id, waits.ask_rows.get(&id)?.clone()))).collect())
    }

    /// Returns the asks that hold a lock or a slot of it.
    fn holders(&self, path: &LockPath) -> Result<Vec<AskId>> {
        let Some(lock) = get::<Lock>(&self.locks, path)? else { return Ok(Vec::new()) };
        let LockState::Divided(division) = lock.state else {
            return Ok(lock.grant().map(|grant| grant.ask).into_iter().collect());
        };
        let mut holders = Vec::new();
        for slot in division.slots().filter_map(|slot| path.at_slot(slot).ok()) {
            holders.extend(get::<Lock>(&self.locks, &slot)?.and_then(|slot| Some(slot.grant()?.ask)));
        }
        Ok(holders)
    }

    /// Adds the changes of a group to the batch. Returns true if there is at least one new or
    /// changed row.
    ///
    /// # Errors
    /// A row can't be encoded.
    pub(super) fn put(&self, batch: &mut WriteBatch, changes: &NetChanges) -> Result<bool> {
        let NetChanges { sessions, locks, asks, turns, .. } = changes;
        sessions.iter().try_for_each(|change| put(batch, &self.sessions, Some(&self.session_order), change))?;
        locks.iter().try_for_each(|change| put(batch, &self.locks, Some(&self.lock_order), change))?;
        asks.iter().try_for_each(|change| put(batch, &self.asks, None, change))?;
        turns.iter().try_for_each(|change| put(batch, &self.turns, None, change))?;
        let is_written = sessions.iter().any(|change| change.after.is_some())
            || locks.iter().any(|change| change.after.is_some())
            || asks.iter().any(|change| change.after.is_some())
            || turns.iter().any(|change| change.after.is_some());
        Ok(is_written)
    }

    /// Changes the lists and rows in memory after the changes were committed.
    pub(super) fn committed(&self, changes: &NetChanges) {
        if !changes.sessions.is_empty() || !changes.locks.is_empty() {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            changes.sessions.iter().for_each(|change| recent.sessions.committed(change));
            changes.locks.iter().for_each(|change| recent.locks.committed(change));
        }
        if changes.asks.is_empty() && changes.turns.is_empty() {
            return;
        }
        let mut waits = self.waits.write().unwrap_or_else(PoisonError::into_inner);
        changes.asks.iter().for_each(|change| waits.put_ask(change));
        changes.turns.iter().for_each(|change| waits.put_turn(change));
    }

    /// Passes the rows of sessions, locks, asks and turns to `visit`, each kind in the order of
    /// keys.
    ///
    /// # Errors
    /// A row could not be read, or `visit` failed.
    pub(super) fn visit<E: From<StoreError>>(
        &self,
        snapshot: &Snapshot,
        visit: &mut impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        for row in all(&self.sessions, snapshot) {
            let (id, session) = row?;
            visit(AnyRow::Session(id, session))?;
        }
        for row in all(&self.locks, snapshot) {
            let (path, lock) = row?;
            visit(AnyRow::Lock(path, lock))?;
        }
        self.visit_asks(snapshot, visit)
    }

    /// Passes the rows of asks and turns to `visit`, each kind in the order of keys.
    ///
    /// # Errors
    /// A row could not be read, or `visit` failed.
    pub(super) fn visit_asks<E: From<StoreError>>(
        &self,
        snapshot: &Snapshot,
        visit: &mut impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        for row in all(&self.asks, snapshot) {
            let (id, ask) = row?;
            visit(AnyRow::Ask(id, ask))?;
        }
        for row in all(&self.turns, snapshot) {
            let (key, turn) = row?;
            visit(AnyRow::Turn(key, turn))?;
        }
        Ok(())
    }
}

//! A cache of the sessions and locks that this server has read or written lately, so that an acquire
//! or a release need not read them again.
//!
//! A cached row may be stale, because other servers change the same rows. So a group that assumes
//! cached rows compares each of them at its write: see [`super::lock_swaps`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::command::Fences;
use leasehold_core::lock::{Ask, AskId, AskState, Ended, Grant, Lock, LockPath, LockState, Turn, TurnKey};
use leasehold_core::rows::{Keys, NetChanges, RowChange};
use leasehold_core::session::{Session, SessionId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::lock_reads::LoadedLocks;

/// The most sessions and the most locks in the cache. If there are more, all of the kind are dropped,
/// and the next groups read their rows.
const MAX_ROWS: usize = 50_000;
/// The most asks that may wait for a cached lock. A longer queue is read, because each group would
/// copy it.
const MAX_WAITING: usize = 16;

/// The cache of sessions and locks. All writers of the server share it.
#[derive(Clone, Debug, Default)]
pub(super) struct LockCache(Arc<Mutex<Rows>>);

#[derive(Debug, Default)]
struct Rows {
    sessions: FxHashMap<SessionId, Session>,
    locks: FxHashMap<LockPath, Arc<CachedLock>>,
    // The locks of the asks that the cached locks have.
    asks: FxHashMap<AskId, LockPath>,
}

/// A lock that is free or held, with every ask that holds it or waits for it. Asks and turns change
/// only together with the row of their lock. So the row of the lock stands for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CachedLock {
    pub(super) lock: Lock,
    asks: Vec<(AskId, Ask)>,
    turns: Vec<(TurnKey, Turn)>,
}

/// The rows that a group assumes instead of reading them.
#[derive(Debug, Default)]
pub(super) struct AssumedLocks {
    pub(super) sessions: FxHashMap<SessionId, Session>,
    pub(super) locks: FxHashMap<LockPath, Arc<CachedLock>>,
    // The asks that are assumed to be absent.
    pub(super) absent: FxHashSet<AskId>,
}

impl LockCache {
    /// Forgets all rows.
    pub(super) fn clear(&self) {
        *self.lock() = Default::default();
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cached rows of `keys`, and the locks of the asks among them. An ask that no cached lock
    /// has is assumed to be absent. `None` if a session or a lock is not cached.
    pub(super) fn assume(&self, keys: &Keys) -> Option<AssumedLocks> {
        let rows = self.lock();
        let session = |id: &SessionId| Some((*id, rows.sessions.get(id)?.clone()));
        let sessions = keys.sessions.iter().map(session).collect::<Option<_>>()?;
        let paths = keys.locks.iter().chain(keys.asks.iter().filter_map(|id| rows.asks.get(id)));
        let lock = |path: &LockPath| Some((path.clone(), rows.locks.get(path)?.clone()));
        let locks = paths.map(lock).collect::<Option<_>>()?;
        let absent = keys.asks.iter().filter(|id| !rows.asks.contains_key(id)).copied().collect();
        Some(AssumedLocks { sessions, locks, absent })
    }

    /// Adds the sessions and locks that a group has read in one snapshot.
    pub(super) fn add_read(&self, loaded: &LoadedLocks) {
        let mut rows = self.lock();
        for (id, session) in &loaded.sessions {
            rows.put_session(*id, Some(session));
        }
        for (path, lock) in &loaded.locks {
            rows.put_lock(path, Some(CachedLock::of_read(path, lock, loaded)));
        }
    }

    /// Updates the cache with the changes of a group and the fences of its grants. `fences` is `None`
    /// if the group was not committed: then its rows are removed from the cache.
    pub(super) fn update(&self, changes: &NetChanges, fences: Option<&Fences>) {
        let mut rows = self.lock();
        for change in &changes.sessions {
            rows.put_session(change.key, change.after.as_ref().filter(|_| fences.is_some()));
        }
        let mut changed: FxHashMap<&LockPath, CachedLock> = FxHashMap::default();
        for change in &changes.locks {
            let former = rows.take_lock(&change.key);
            let lock = fences.and_then(|fences| CachedLock::after(former.as_deref(), change, fences));
            changed.extend(lock.map(|lock| (&change.key, lock)));
        }
        let Some(fences) = fences else { return };
        for change in &changes.asks {
            let path = change.after.as_ref().or(change.before.as_ref()).map(|ask| &ask.lock);
            if let Some(lock) = path.and_then(|path| changed.get_mut(path)) {
                lock.change_ask(change, fences);
            }
        }
        for change in &changes.turns {
            if let Some(lock) = changed.get_mut(&change.key.lock) {
                lock.change_turn(change);
            }
        }
        changed.into_iter().for_each(|(path, lock)| rows.put_lock(path, Some(lock)));
    }

    /// Removes rows that a group assumed, because one of them was not as it is in the cache.
    pub(super) fn forget(&self, assumed: &AssumedLocks) {
        let mut rows = self.lock();
        assumed.sessions.keys().for_each(|id| rows.put_session(*id, None));
        assumed.locks.keys().for_each(|path| rows.put_lock(path, None));
    }
}

impl Rows {
    fn put_session(&mut self, id: SessionId, session: Option<&Session>) {
        let Some(session) = session.filter(|session| session.is_live()) else {
            self.sessions.remove(&id);
            return;
        };
        if self.sessions.len() >= MAX_ROWS {
            self.sessions.clear();
        }
        self.sessions.insert(id, session.clone());
    }

    fn put_lock(&mut self, path: &LockPath, lock: Option<CachedLock>) {
        self.take_lock(path);
        let Some(lock) = lock.filter(CachedLock::is_whole) else { return };
        if self.locks.len() >= MAX_ROWS {
            self.locks.clear();
            self.asks.clear();
        }
        self.asks.extend(lock.asks.iter().map(|(id, _)| (*id, path.clone())));
        self.locks.insert(path.clone(), Arc::new(lock));
    }

    fn take_lock(&mut self, path: &LockPath) -> Option<Arc<CachedLock>> {
        let lock = self.locks.remove(path)?;
        lock.asks.iter().for_each(|(id, _)| _ = self.asks.remove(id));
        Some(lock)
    }
}

impl CachedLock {
    fn of_read(path: &LockPath, lock: &Lock, loaded: &LoadedLocks) -> Self {
        let mut turns: Vec<_> = loaded.turns.iter().filter(|(key, _)| key.lock == *path).cloned().collect();
        turns.sort_unstable_by_key(|(key, _)| key.number);
        turns.dedup_by_key(|(key, _)| key.number);
        let ids = turns.iter().map(|(_, turn)| turn.ask).chain(lock.grant().map(|grant| grant.ask));
        let asks = ids.filter_map(|id| Some((id, loaded.asks.get(&id)?.clone()))).collect();
        Self { lock: lock.clone(), asks, turns }
    }

    /// Returns the lock after a change of its row, with the asks and turns that it had before. `None`
    /// if these are not known.
    fn after(former: Option<&Self>, change: &RowChange<Lock>, fences: &Fences) -> Option<Self> {
        let lock = with_fences(change.after.clone()?, fences);
        let had_none = |before: &Lock| before.state == LockState::Free;
        match &change.before {
            Some(before) if !had_none(before) => {
                let former = former.filter(|former| former.lock == *before)?;
                Some(Self { lock, ..former.clone() })
            }
            _ => Some(Self { lock, asks: Vec::new(), turns: Vec::new() }),
        }
    }

    fn change_ask(&mut self, change: &RowChange<Ask>, fences: &Fences) {
        self.asks.retain(|(id, _)| *id != change.key);
        let with_fence = |ask: Ask| match ask.state {
            AskState::Holding(fence) => Ask { state: AskState::Holding(fences.of_grant(fence)), ..ask },
            AskState::Waiting(_) => ask,
        };
        self.asks.extend(change.after.clone().map(|ask| (change.key, with_fence(ask))));
    }

    fn change_turn(&mut self, change: &RowChange<Turn>) {
        self.turns.retain(|(key, _)| *key != change.key);
        self.turns.extend(change.after.map(|turn| (change.key.clone(), turn)));
    }

    /// True if the lock may be cached: it is no slot and has none, waits for no cleanup, and all of its
    /// asks and turns are known.
    fn is_whole(&self) -> bool {
        let is_plain = matches!(self.lock.state, LockState::Free | LockState::Held(_)) && self.lock.obituary.is_none();
        let waiting = self.lock.waiting as usize;
        let known = (self.turns.len(), self.asks.len());
        let is_known = known == (waiting, waiting + usize::from(self.lock.grant().is_some()));
        is_plain && is_known && waiting <= MAX_WAITING && self.asks.iter().all(|(_, ask)| ask.lock.slot() == 0)
    }
}

impl AssumedLocks {
    /// Returns the rows as if they had been read. All turns of a lock are there, so they answer a read
    /// of its queue with any limit.
    pub(super) fn loaded(&self) -> LoadedLocks {
        let locks = || self.locks.iter();
        LoadedLocks {
            sessions: self.sessions.clone(),
            locks: locks().map(|(path, cached)| (path.clone(), cached.lock.clone())).collect(),
            asks: locks().flat_map(|(_, cached)| cached.asks.iter().cloned()).collect(),
            turns: locks().flat_map(|(_, cached)| cached.turns.iter().cloned()).collect(),
            queues: locks().map(|(path, cached)| (path.clone(), cached.turns.len() + 1)).collect(),
        }
    }
}

/// Returns the lock with the fences that the database has assigned to its grants.
fn with_fences(lock: Lock, fences: &Fences) -> Lock {
    let grant = |grant: Grant| Grant { fence: fences.of_grant(grant.fence), ..grant };
    let state = match lock.state {
        LockState::Held(held) => LockState::Held(grant(held)),
        state => state,
    };
    let last = lock.last.map(|last| Ended { grant: grant(last.grant), ..last });
    Lock { state, last, ..lock }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use leasehold_core::command::Command;
    use leasehold_core::lease::Fence;
    use leasehold_core::lock::LockValue;
    use leasehold_core::locking::LockCommand;
    use leasehold_core::locking::acquire::Acquire;
    use leasehold_core::locking::open::Open;
    use leasehold_core::locking::release::{Release, ReleaseOutcome};
    use leasehold_core::rows::Workspace;
    use leasehold_core::session::{Principal, Terms};
    use leasehold_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> SessionId {
        SessionId(Uuid::from_u128(number))
    }

    fn path() -> LockPath {
        LockPath::parse(&["a"], "k").unwrap()
    }

    fn principal() -> Principal {
        Principal::parse("billing").unwrap()
    }

    fn open(number: u128) -> LockCommand {
        let terms = Terms::parse(10_000_000, 1_000_000).unwrap();
        LockCommand::Open(Open { session: id(number), principal: principal(), terms })
    }

    /// Returns an acquire whose ask has the number of its session.
    fn acquire(number: u128) -> LockCommand {
        LockCommand::Acquire(Acquire {
            session: id(number),
            principal: principal(),
            ask: AskId(id(number).0),
            lock: path(),
            share: None,
            held: Vec::new(),
            wait: true,
            reaped: None,
        })
    }

    fn release(number: u128, fence: u64) -> LockCommand {
        let (outcome, value) = (ReleaseOutcome::Succeeded, LockValue::default());
        let (session, lock, fence) = (id(number), path(), Fence(fence));
        LockCommand::Release(Release { session, principal: principal(), lock, fence, outcome, value })
    }

    fn cached_among(cache: &LockCache, keys: &Keys) -> AssumedLocks {
        let rows = cache.lock();
        let sessions = keys.sessions.iter().filter_map(|id| Some((*id, rows.sessions.get(id)?.clone())));
        let locks = keys.locks.iter().filter_map(|path| Some((path.clone(), rows.locks.get(path)?.clone())));
        AssumedLocks { sessions: sessions.collect(), locks: locks.collect(), absent: FxHashSet::default() }
    }

    /// Decides a command on rows of the cache, or on absent rows if the cache has none. The database
    /// would give out the fence.
    fn decide(cache: &LockCache, command: LockCommand, fence: u64) -> (NetChanges, Fences) {
        let mut workspace = Workspace::new(Fence::PLACEHOLDER);
        let commands = [Command::Lock(command)];
        loop {
            let keys = workspace.missing(&commands);
            if keys.is_empty() {
                break;
            }
            cached_among(cache, &keys).loaded().put_into(&mut workspace, &keys);
        }
        let [command] = commands;
        command.apply(&mut workspace, Timestamp::from_micros(1)).unwrap().unwrap();
        let mut fences = Fences::default();
        fences.grants.insert(Fence::PLACEHOLDER.next(), Fence(fence));
        (workspace.into_changes(), fences)
    }

    fn run(cache: &LockCache, command: LockCommand, fence: u64) {
        let (changes, fences) = decide(cache, command, fence);
        cache.update(&changes, Some(&fences));
    }

    fn cached(cache: &LockCache) -> Option<Arc<CachedLock>> {
        cache.lock().locks.get(&path()).cloned()
    }

    /// Returns a cache with a lock that the first of two sessions holds under the fence 7, and for which
    /// the second waits.
    fn with_a_waiting_ask() -> LockCache {
        let cache = LockCache::default();
        [open(1), open(2)].into_iter().for_each(|command| run(&cache, command, 0));
        run(&cache, acquire(1), 7);
        run(&cache, acquire(2), 0);
        cache
    }

    #[test]
    fn a_cached_lock_has_its_asks_with_the_fences_of_the_database() {
        let cache = with_a_waiting_ask();
        let lock = cached(&cache).unwrap();
        assert_eq!((lock.lock.grant().unwrap().fence, lock.asks.len(), lock.turns.len()), (Fence(7), 2, 1));
        run(&cache, release(1, 7), 8);
        let lock = cached(&cache).unwrap();
        assert_eq!((lock.lock.grant().unwrap().fence, lock.lock.grant().unwrap().session), (Fence(8), id(2)));
        assert_eq!((lock.asks.len(), lock.turns.len(), cache.lock().sessions[&id(1)].asks), (1, 0, 0));
        run(&cache, release(2, 8), 0);
        assert_eq!(cached(&cache).unwrap().lock.state, LockState::Free);
    }

    #[test]
    fn the_rows_of_a_group_without_an_answer_are_dropped() {
        let cache = with_a_waiting_ask();
        let (changes, _) = decide(&cache, release(1, 7), 8);
        cache.update(&changes, None);
        assert!(cached(&cache).is_none() && !cache.lock().sessions.contains_key(&id(1)));
        assert!(cache.lock().sessions.contains_key(&id(2)));
    }

    #[test]
    fn a_change_of_another_state_of_the_lock_drops_it() {
        let cache = with_a_waiting_ask();
        let (changes, fences) = decide(&cache, release(1, 7), 8);
        // Meanwhile another writer has put a newer row into the cache.
        run(&cache, open(3), 0);
        run(&cache, acquire(3), 0);
        cache.update(&changes, Some(&fences));
        assert!(cached(&cache).is_none());
    }

    #[test]
    fn an_ask_of_no_cached_lock_is_assumed_to_be_absent() {
        let cache = with_a_waiting_ask();
        let (known, unknown) = (AskId(id(2).0), AskId(id(9).0));
        let keys = Keys { asks: vec![known, unknown], ..Keys::default() };
        let assumed = cache.assume(&keys).unwrap();
        assert_eq!(assumed.absent, [unknown].into_iter().collect());
        assert!(assumed.locks.contains_key(&path()), "the lock of a known ask comes with it");
        cache.forget(&assumed);
        assert_eq!(cache.assume(&keys).unwrap().absent.len(), 2);
        assert!(cache.assume(&Keys { locks: vec![path()], ..keys }).is_none());
    }

    #[test]
    fn a_long_queue_is_not_cached() {
        let cache = with_a_waiting_ask();
        for number in 3..=1 + MAX_WAITING as u128 {
            run(&cache, open(number), 0);
            run(&cache, acquire(number), 0);
        }
        assert_eq!(cached(&cache).unwrap().turns.len(), MAX_WAITING);
        run(&cache, open(99), 0);
        run(&cache, acquire(99), 0);
        assert!(cached(&cache).is_none());
    }
}

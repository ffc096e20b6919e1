//! The invariants of sessions and locks. A violation names ids and fences, never a key (K24).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::division::{Division, ShareMode};
use crate::lease::Fence;
use crate::lock::{Ask, AskId, AskState, Grant, Lock, LockPath, LockState, Turn, TurnKey};
use crate::rows::{SortedRows, State};
use crate::session::{Session, SessionId};
use crate::time::Timestamp;

/// The first broken invariant of sessions and locks. No variant stands for two holders of one lock:
/// the row of a lock or of a slot names at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockViolation {
    /// An ask's session is unknown or has ended.
    #[error("ask {0} has no live session")]
    AskWithoutLiveSession(AskId),
    /// A session's count of asks differs from the number of its asks.
    #[error("session {0} counts another number of asks than it has")]
    SessionMiscounts(SessionId),
    /// An ask holds a lock whose row does not name the ask, or waits without a turn.
    #[error("ask {0} is not where its lock has it")]
    AskOutOfPlace(AskId),
    /// A turn names an ask that is unknown or does not wait at this turn.
    #[error("a turn names ask {0}, which does not wait there")]
    TurnWithoutItsAsk(AskId),
    /// A turn lies outside the turns that its lock has given out and not served.
    #[error("the turn of ask {0} is out of range")]
    TurnOutOfRange(AskId),
    /// A held lock names an ask that is unknown or does not hold it.
    #[error("the lock with fence {} names ask {}, which does not hold it", .0.fence.0, .0.ask)]
    GrantWithoutItsAsk(Grant),
    /// A lock's count of waiting asks differs from the number of its turns, or the lock is free
    /// while asks wait.
    #[error("a lock counts {counted} waiting asks and has {waiting}, or is free while asks wait")]
    LockMiscounts {
        /// The lock's count of waiting asks.
        counted: u32,
        /// The number of turns of the lock.
        waiting: u32,
    },
    /// A divided lock counts another slot as taken than those that have rows, or has none. Or a slot has a
    /// queue of its own.
    #[error("a lock with {found} taken slots counts others")]
    SlotsDiffer {
        /// The number of rows of the lock's slots.
        found: u32,
    },
    /// The first ask that waits for a lock could hold it.
    #[error("ask {0} waits for a lock that has room for it")]
    Overlooked(AskId),
    /// An orphaned lock has no obituary, or a free lock has one. Or more cleanups were begun than are
    /// allowed, or the obituary is not of an earlier grant.
    #[error("the obituary of fence {} does not fit its lock", .0.0)]
    ObituaryUnfit(Fence),
    /// Two grants have the same fence, or a fence is 0 or above the newest fence given out. Or the
    /// fence of a lock's grant is not above the fence of the grant before.
    #[error("fence {} of a lock is doubled or out of order", .0.0)]
    FenceOutOfOrder(Fence),
}

/// The rows of sessions and locks, and the newest fence given out.
pub struct LockRows<'a> {
    /// The sessions, live or ended.
    pub sessions: SortedRows<'a, Session>,
    /// The locks, each with its slots behind it.
    pub locks: SortedRows<'a, Lock>,
    /// The asks, waiting or holding.
    pub asks: SortedRows<'a, Ask>,
    /// The turns, those of a lock in the order of its queue.
    pub turns: SortedRows<'a, Turn>,
    /// The newest fence given out.
    pub fence: Fence,
}

impl<'a> From<&'a State> for LockRows<'a> {
    fn from(state: &'a State) -> Self {
        let State { sessions, locks, asks, turns, fence, .. } = state;
        let (sessions, locks, asks) = (sessions.into(), locks.into(), asks.into());
        Self { sessions, locks, asks, turns: turns.into(), fence: *fence }
    }
}

/// Checks every invariant of sessions and locks. `seen` has the fences of leases.
///
/// # Errors
/// The first violation found.
pub(super) fn check(state: &LockRows<'_>, seen: FxHashSet<Fence>) -> Result<(), LockViolation> {
    check_sessions(state)?;
    state.asks.iter().try_for_each(|(id, ask)| check_ask(state, *id, ask))?;
    state.turns.iter().try_for_each(|(key, turn)| check_turn(state, key, turn.ask))?;
    // The number of turns of each lock, and the ask at the first of them.
    let mut waiting: FxHashMap<&LockPath, (u32, AskId)> = FxHashMap::default();
    state.turns.iter().for_each(|(key, turn)| waiting.entry(&key.lock).or_insert((0, turn.ask)).0 += 1);
    for (path, lock) in state.locks.iter() {
        let first = waiting.get(path).copied();
        check_lock(state, lock, first.map_or(0, |(turns, _)| turns))?;
        if let Some((_, id)) = first
            && state.asks.get(&id).is_some_and(|ask| lock.room_for(ask.share).is_some())
        {
            return Err(LockViolation::Overlooked(id));
        }
    }
    check_slots(state)?;
    check_fences(state, seen)
}

/// Checks that each lock counts the slots that have rows (K13). The rows of slots come right after the
/// row of their lock.
fn check_slots(state: &LockRows<'_>) -> Result<(), LockViolation> {
    let mut rows = state.locks.iter();
    let mut next = rows.next();
    while let Some((path, lock)) = next {
        let (mut found, mut has_queue) = (Division::new(ShareMode::Shared), false);
        next = rows.next();
        while let Some((slot, row)) = next.filter(|(slot, _)| slot.slot() > 0 && slot.is_of(path)) {
            found.mark(slot.slot());
            has_queue |= row.last_turn > 0;
            next = rows.next();
        }
        let (counted, is_empty) = match &lock.state {
            LockState::Divided(division) => (division.words(), division.taken() == 0),
            _ => ([0; 4], false),
        };
        if path.slot() > 0 || counted != found.words() || is_empty || has_queue {
            return Err(LockViolation::SlotsDiffer { found: found.taken() });
        }
    }
    Ok(())
}

fn check_sessions(state: &LockRows<'_>) -> Result<(), LockViolation> {
    let mut asks: FxHashMap<SessionId, u32> = FxHashMap::default();
    state.asks.iter().for_each(|(_, ask)| *asks.entry(ask.session).or_default() += 1);
    let has = |id: &SessionId| asks.get(id).copied().unwrap_or(0);
    let wrong = state.sessions.iter().find(|(id, session)| session.asks != has(id));
    wrong.map_or(Ok(()), |(id, _)| Err(LockViolation::SessionMiscounts(*id)))
}

fn check_ask(state: &LockRows<'_>, id: AskId, ask: &Ask) -> Result<(), LockViolation> {
    if !state.sessions.get(&ask.session).is_some_and(|session| session.is_live()) {
        return Err(LockViolation::AskWithoutLiveSession(id));
    }
    let is_in_place = match ask.state {
        AskState::Holding(fence) => {
            let grant = state.locks.get(&ask.lock).and_then(Lock::grant);
            grant.is_some_and(|grant| (grant.ask, grant.session, grant.fence) == (id, ask.session, fence))
        }
        AskState::Waiting(number) => {
            let turn = state.turns.get(&TurnKey { lock: ask.lock.clone(), number });
            turn.is_some_and(|turn| turn.ask == id)
        }
    };
    if is_in_place { Ok(()) } else { Err(LockViolation::AskOutOfPlace(id)) }
}

fn check_turn(state: &LockRows<'_>, key: &TurnKey, id: AskId) -> Result<(), LockViolation> {
    let waits = |ask: &Ask| ask.lock == key.lock && ask.state == AskState::Waiting(key.number);
    if !state.asks.get(&id).is_some_and(waits) {
        return Err(LockViolation::TurnWithoutItsAsk(id));
    }
    let is_open = |lock: &Lock| lock.served_turn < key.number && key.number <= lock.last_turn;
    if state.locks.get(&key.lock).is_some_and(is_open) { Ok(()) } else { Err(LockViolation::TurnOutOfRange(id)) }
}

fn check_lock(state: &LockRows<'_>, lock: &Lock, turns: u32) -> Result<(), LockViolation> {
    if lock.waiting != turns || lock.state == LockState::Free && turns > 0 {
        return Err(LockViolation::LockMiscounts { counted: lock.waiting, waiting: turns });
    }
    check_obituary(lock)?;
    let Some(grant) = lock.grant() else { return Ok(()) };
    let holds = |ask: &Ask| ask.state == AskState::Holding(grant.fence);
    if state.asks.get(&grant.ask).is_some_and(holds) { Ok(()) } else { Err(LockViolation::GrantWithoutItsAsk(*grant)) }
}

/// Checks that an orphaned lock has an obituary, and a free one has none (K17).
fn check_obituary(lock: &Lock) -> Result<(), LockViolation> {
    let Some(obituary) = lock.obituary else {
        let newest = lock.last.as_ref().map_or(Fence(0), |last| last.grant.fence);
        return if lock.state == LockState::Orphaned { Err(LockViolation::ObituaryUnfit(newest)) } else { Ok(()) };
    };
    let is_bounded = lock.reaped.is_some_and(|most| obituary.attempts <= most.get());
    let is_counted = lock.grant().is_none() || obituary.attempts > 0;
    let is_of_earlier = lock.last.as_ref().is_some_and(|last| obituary.fence <= last.grant.fence);
    let fits = lock.state != LockState::Free && is_bounded && is_counted && is_of_earlier;
    if fits { Ok(()) } else { Err(LockViolation::ObituaryUnfit(obituary.fence)) }
}

/// Returns the times in the rows of sessions and locks.
pub(super) fn times(state: &LockRows<'_>) -> impl Iterator<Item = Timestamp> {
    let of_sessions = state.sessions.iter().flat_map(|(_, session)| [session.opened_at, session.updated_at]);
    let of_locks = state.locks.iter().flat_map(|(_, lock)| {
        let last = lock.last.iter().flat_map(|last| [last.grant.granted_at, last.ended_at]);
        let granted = lock.grant().map(|grant| grant.granted_at);
        let died = lock.obituary.map(|obituary| obituary.ended_at);
        last.chain(granted).chain(died).chain([lock.updated_at])
    });
    of_sessions.chain(of_locks).chain(state.asks.iter().map(|(_, ask)| ask.asked_at))
}

/// Returns the fences of all grants in the rows of locks.
pub(super) fn fences(state: &LockRows<'_>) -> impl Iterator<Item = Fence> {
    state.locks.iter().flat_map(|(_, lock)| {
        let last = lock.last.as_ref().map(|last| last.grant.fence);
        last.into_iter().chain(lock.grant().map(|grant| grant.fence))
    })
}

/// Checks that each grant has a fence of its own, which was given out. Also checks that the fences
/// of one lock's grants grow.
fn check_fences(state: &LockRows<'_>, mut seen: FxHashSet<Fence>) -> Result<(), LockViolation> {
    for (_, lock) in state.locks.iter() {
        let last = lock.last.as_ref().map(|last| last.grant.fence);
        let current = lock.grant().map(|grant| grant.fence);
        for fence in last.iter().chain(&current) {
            let is_late = fence.0 == 0 || *fence > state.fence;
            if is_late || !seen.insert(*fence) {
                return Err(LockViolation::FenceOutOfOrder(*fence));
            }
        }
        if let (Some(last), Some(current)) = (last, current)
            && current <= last
        {
            return Err(LockViolation::FenceOutOfOrder(current));
        }
    }
    Ok(())
}

//! Makes the salvaged rows of sessions and locks fit together, so that an import accepts them.
//!
//! A row of each kind may be lost. The holder of a lock may still work, so no lock becomes free by
//! the loss of a row: either its holder is known from the ask, or the lock is withheld (K06). A
//! waiting ask without its turn ends, and so does a turn without its ask.

use leasehold_core::lock::{Ask, AskId, AskState, Grant, Lock, LockPath, LockState, TurnKey, Withholding};
use leasehold_core::rows::State;
use leasehold_core::session::{MAX_DURATION_MICROS, MAX_GRACE_MICROS};
use leasehold_core::time::Timestamp;
use rustc_hash::FxHashMap;

/// The longest silence that a session may have, for a session whose terms are lost.
const LONGEST_SILENCE: u64 = MAX_DURATION_MICROS + MAX_GRACE_MICROS;

/// Restores lost locks that asks name, and ends the asks of lost sessions and turns.
pub(super) fn repair(state: &mut State) {
    end_halves(state);
    let lost: Vec<_> =
        state.asks.values().map(|ask| &ask.lock).filter(|path| !state.locks.contains_key(path)).collect();
    let restored: Vec<_> = lost.into_iter().map(|path| (path.clone(), restored_lock(state, path))).collect();
    state.locks.extend(restored);
    let is_lost = |ask: &Ask| !state.sessions.get(&ask.session).is_some_and(|session| session.is_live());
    let lost: Vec<AskId> = state.asks.iter().filter(|(_, ask)| is_lost(ask)).map(|(id, _)| *id).collect();
    for id in lost {
        if let Some(ask) = state.asks.remove(&id) {
            end_ask(state, id, &ask);
        }
    }
    let mut counts = FxHashMap::default();
    state.asks.values().for_each(|ask| *counts.entry(ask.session).or_insert(0) += 1);
    for (id, session) in &mut state.sessions {
        session.asks = counts.get(id).copied().unwrap_or(0);
    }
}

/// Ends waiting asks without a turn and turns without an ask. Withholds locks whose holder's ask is
/// lost.
fn end_halves(state: &mut State) {
    let State { asks, turns, locks, .. } = state;
    let turn_of = |ask: &Ask, number| TurnKey { lock: ask.lock.clone(), number };
    asks.retain(|id, ask| match ask.state {
        AskState::Waiting(number) => turns.get(&turn_of(ask, number)).is_some_and(|turn| turn.ask == *id),
        AskState::Holding(_) => true,
    });
    turns.retain(|_, turn| asks.contains_key(&turn.ask));
    for (path, lock) in locks {
        let waiting = turns.keys().filter(|turn| turn.lock == *path).count();
        lock.waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        if let LockState::Held(Grant { ask, fence, .. }) = &lock.state
            && !asks.contains_key(ask)
        {
            lock.state = LockState::Withheld(Withholding { fence: *fence, silence_micros: LONGEST_SILENCE });
        }
    }
}

/// Returns the row of a lost lock, as far as its asks and turns tell.
fn restored_lock(state: &State, path: &LockPath) -> Lock {
    let holder = state.asks.iter().find_map(|(id, ask)| match ask.state {
        AskState::Holding(fence) if ask.lock == *path => {
            Some(Grant { ask: *id, session: ask.session, fence, granted_at: ask.asked_at })
        }
        AskState::Holding(_) | AskState::Waiting(_) => None,
    });
    let turns: Vec<u64> = state.turns.keys().filter(|turn| turn.lock == *path).map(|turn| turn.number).collect();
    let withheld = LockState::Withheld(Withholding { fence: state.fence, silence_micros: LONGEST_SILENCE });
    Lock {
        state: holder.map_or(withheld, LockState::Held),
        waiting: u32::try_from(turns.len()).unwrap_or(u32::MAX),
        served_turn: turns.first().map_or(0, |first| first.saturating_sub(1)),
        last_turn: turns.last().copied().unwrap_or(0),
        last: None,
        updated_at: holder.map_or(Timestamp::MIN, |holder| holder.granted_at),
    }
}

/// Ends an ask whose session is lost. A lock that the ask held is withheld.
fn end_ask(state: &mut State, id: AskId, ask: &Ask) {
    let Some(lock) = state.locks.get_mut(&ask.lock) else { return };
    match ask.state {
        AskState::Holding(fence) => {
            lock.state = LockState::Withheld(Withholding { fence, silence_micros: LONGEST_SILENCE });
        }
        AskState::Waiting(_) => {
            lock.waiting = lock.waiting.saturating_sub(1);
            state.turns.retain(|_, turn| turn.ask != id);
        }
    }
}

//! Makes the salvaged rows of sessions and locks fit together, so that an import accepts them.
//!
//! Asks and turns are complete, since the store can't be opened without them. A session or a lock
//! may be lost. The holder of a lock may still work, so no lock becomes free by the loss of a row:
//! either its holder is known from the ask, or the lock is withheld (K06).

use leasehold_core::lock::{Ask, AskId, AskState, Grant, Lock, LockPath, LockState, Withholding};
use leasehold_core::rows::State;
use leasehold_core::session::{MAX_DURATION_MICROS, MAX_GRACE_MICROS};
use leasehold_core::time::Timestamp;
use rustc_hash::FxHashMap;

/// The longest silence that a session may have, for a session whose terms are lost.
const LONGEST_SILENCE: u64 = MAX_DURATION_MICROS + MAX_GRACE_MICROS;

/// Restores lost locks that asks name, and ends the asks of lost sessions.
pub(super) fn repair(state: &mut State) {
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

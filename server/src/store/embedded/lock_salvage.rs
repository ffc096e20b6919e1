//! Makes the salvaged rows of sessions and locks fit together, so that an import accepts them.
//!
//! A row of each kind may be lost, or rows of different times may stand side by side. The holder of a
//! lock may still work, so no lock becomes free by the loss of a row: either its holder is known from
//! the ask, or the lock is withheld (K06). The larger fence shows the later grant (K05). A waiting ask
//! without its turn ends, and so does a turn without its ask.

use std::collections::BTreeMap;

use leasehold_core::division::{Division, ShareMode};
use leasehold_core::lease::Fence;
use leasehold_core::lock::{
    Ask, AskId, AskState, Grant, Lock, LockPath, LockState, Obituary, Turn, TurnKey, Withholding,
};
use leasehold_core::rows::State;
use leasehold_core::session::{MAX_DURATION_MICROS, MAX_GRACE_MICROS};
use leasehold_core::time::Timestamp;
use rustc_hash::FxHashMap;

/// The longest silence that a session may have, for a session whose terms are lost.
const LONGEST_SILENCE: u64 = MAX_DURATION_MICROS + MAX_GRACE_MICROS;

/// Restores lost locks that asks name, and ends what has lost its other half.
pub(super) fn repair(state: &mut State) {
    restore_locks(state);
    let State { sessions, asks, turns, locks, fence, .. } = state;
    let grants = last_grants(asks);
    for (path, lock) in &mut *locks {
        put_grant(lock, grants.get(path));
        put_ask(path, lock, asks);
    }
    remove_ended_slots(locks);
    divide(locks, asks, *fence);
    let is_live = |ask: &Ask| sessions.get(&ask.session).is_some_and(|session| session.is_live());
    asks.retain(|id, ask| is_live(ask) && is_in_place(*id, ask, locks, turns));
    turns.retain(|key, turn| asks.get(&turn.ask).is_some_and(|ask| waits_at(ask, key)));
    end_overlooked(locks, asks, turns);
    for (path, lock) in locks {
        withhold_if_lost(path, lock, asks);
        count_turns(lock, turns.keys().filter(|turn| turn.lock == *path), *fence);
    }
    let mut counts = FxHashMap::default();
    asks.values().for_each(|ask| *counts.entry(ask.session).or_insert(0) += 1);
    for (id, session) in sessions {
        session.asks = counts.get(id).copied().unwrap_or(0);
    }
}

/// Removes the slots whose grant had ended by the time of their lock's row, which keeps the last end of a
/// slot that became free (K13).
fn remove_ended_slots(locks: &mut BTreeMap<LockPath, Lock>) {
    let has_ended = |path: &LockPath, slot: &Lock| {
        let last = locks.get(&path.base()).and_then(|lock| lock.last.as_ref());
        path.slot() > 0 && last.is_some_and(|last| last.grant.fence == fence_of(slot))
    };
    let ended: Vec<_> =
        locks.iter().filter(|(path, slot)| has_ended(path, slot)).map(|(path, _)| path.clone()).collect();
    ended.iter().for_each(|path| _ = locks.remove(path));
}

/// Makes each lock count the slots that have rows (K13). A lock and its slots may be of different times:
/// the larger fence is the later grant, and the others had ended before it.
fn divide(locks: &mut BTreeMap<LockPath, Lock>, asks: &BTreeMap<AskId, Ask>, newest: Fence) {
    let mut slots: BTreeMap<LockPath, Vec<(u32, Fence)>> = BTreeMap::new();
    for (path, lock) in locks.iter().filter(|(path, _)| path.slot() > 0) {
        slots.entry(path.base()).or_default().push((path.slot(), fence_of(lock)));
    }
    let divided = locks.iter().filter(|(_, lock)| matches!(lock.state, LockState::Divided(_)));
    for (path, _) in divided {
        slots.entry(path.clone()).or_default();
    }
    for (path, rows) in slots {
        let lock = locks.entry(path.clone()).or_insert_with(|| Lock::new(Timestamp::MIN));
        let later = rows.iter().map(|(_, fence)| *fence).max();
        if !matches!(lock.state, LockState::Divided(_)) && later.is_none_or(|later| later < fence_of(lock)) {
            rows.iter().for_each(|(slot, _)| _ = path.at_slot(*slot).map(|slot| locks.remove(&slot)));
            continue;
        }
        let counted: Vec<u32> = match lock.state {
            LockState::Divided(division) => division.slots().collect(),
            _ => Vec::new(),
        };
        let mut division = Division::new(share_of(lock, &path, asks));
        rows.iter().map(|(slot, _)| *slot).chain(counted.iter().copied()).for_each(|slot| division.mark(slot));
        (lock.state, lock.obituary) = (LockState::Divided(division), None);
        // The holder of a slot whose row is lost may still work.
        for slot in counted.into_iter().filter_map(|slot| path.at_slot(slot).ok()) {
            locks.entry(slot).or_insert_with(|| Lock { state: withheld(newest), ..Lock::new(Timestamp::MIN) });
        }
    }
}

/// Ends the first asks that wait for a lock with room for them, whose grants are lost. Their callers ask
/// again.
fn end_overlooked(
    locks: &BTreeMap<LockPath, Lock>,
    asks: &mut BTreeMap<AskId, Ask>,
    turns: &mut BTreeMap<TurnKey, Turn>,
) {
    for (path, lock) in locks.iter().filter(|(_, lock)| matches!(lock.state, LockState::Divided(_))) {
        let from = TurnKey { lock: path.clone(), number: 0 };
        while let Some((key, turn)) = turns.range(&from..).next().map(|(key, turn)| (key.clone(), *turn)) {
            let has_room = |ask: &Ask| key.lock == *path && lock.room_for(ask.share).is_some();
            if !asks.get(&turn.ask).is_some_and(has_room) {
                break;
            }
            turns.remove(&key);
            asks.remove(&turn.ask);
        }
    }
}

/// Returns the way in which asks share a lock: as its row says, else as an ask of one of its slots says.
fn share_of(lock: &Lock, path: &LockPath, asks: &BTreeMap<AskId, Ask>) -> ShareMode {
    if let LockState::Divided(division) = lock.state {
        return division.share;
    }
    let of_slot = |ask: &&Ask| ask.lock.slot() > 0 && ask.lock.is_of(path);
    asks.values().filter(of_slot).find_map(|ask| ask.share).unwrap_or(ShareMode::Shared)
}

/// Returns the fence of the newest grant that a row tells of.
fn fence_of(lock: &Lock) -> Fence {
    let ended = lock.last.as_ref().map_or(Fence(0), |last| last.grant.fence);
    match lock.state {
        LockState::Held(grant) => grant.fence.max(ended),
        LockState::Withheld(withholding) => withholding.fence.max(ended),
        LockState::Free | LockState::Orphaned | LockState::Divided(_) => ended,
    }
}

/// Makes a row for each lock that an ask names and that has none. It is withheld, until a grant is
/// found.
fn restore_locks(state: &mut State) {
    let withheld = withheld(state.fence);
    for ask in state.asks.values() {
        let lock = || Lock { state: withheld, ..Lock::new(Timestamp::MIN) };
        state.locks.entry(ask.lock.clone()).or_insert_with(lock);
    }
}

fn withheld(fence: Fence) -> LockState {
    LockState::Withheld(Withholding { fence, silence_micros: LONGEST_SILENCE })
}

/// Returns the last grant of each lock, as the asks that hold one tell.
fn last_grants(asks: &BTreeMap<AskId, Ask>) -> FxHashMap<LockPath, Grant> {
    let mut grants = FxHashMap::<_, Grant>::default();
    for (id, ask) in asks {
        if let AskState::Holding(fence) = ask.state
            && grants.get(&ask.lock).is_none_or(|grant| grant.fence < fence)
        {
            let grant = Grant { ask: *id, session: ask.session, fence, granted_at: ask.asked_at };
            grants.insert(ask.lock.clone(), grant);
        }
    }
    grants
}

/// Gives a lock to its last grant, if the lock's row is older or was lost.
fn put_grant(lock: &mut Lock, grant: Option<&Grant>) {
    let ended = lock.last.as_ref().map_or(Fence(0), |last| last.grant.fence);
    let newest = match lock.state {
        LockState::Held(grant) => grant.fence,
        // A row that was restored.
        LockState::Withheld(_) if lock.updated_at == Timestamp::MIN => Fence(0),
        LockState::Withheld(withholding) => withholding.fence,
        LockState::Free | LockState::Orphaned | LockState::Divided(_) => ended,
    };
    if let Some(grant) = grant.filter(|grant| grant.fence > newest.max(ended)) {
        (lock.state, lock.updated_at) = (LockState::Held(*grant), grant.granted_at);
        // The holder counts as the cleaner, so that the lock is not granted on before a cleanup (K17).
        lock.obituary = lock.obituary.map(|due| Obituary { attempts: due.attempts.max(1), ..due });
    }
}

/// Gives a lock to the ask of its grant, if the ask's row is older: the ask waited then.
fn put_ask(path: &LockPath, lock: &Lock, asks: &mut BTreeMap<AskId, Ask>) {
    if let Some(grant) = lock.grant()
        && let Some(ask) = asks.get_mut(&grant.ask)
        && (&ask.lock, ask.session) == (path, grant.session)
    {
        ask.state = AskState::Holding(grant.fence);
    }
}

/// True if the ask holds its lock or has its turn.
fn is_in_place(id: AskId, ask: &Ask, locks: &BTreeMap<LockPath, Lock>, turns: &BTreeMap<TurnKey, Turn>) -> bool {
    let lock = locks.get(&ask.lock);
    match ask.state {
        AskState::Holding(fence) => lock
            .and_then(Lock::grant)
            .is_some_and(|grant| (grant.ask, grant.session, grant.fence) == (id, ask.session, fence)),
        AskState::Waiting(number) => {
            let turn = turns.get(&TurnKey { lock: ask.lock.clone(), number });
            turn.is_some_and(|turn| turn.ask == id) && lock.is_some_and(|lock| lock.served_turn < number)
        }
    }
}

fn waits_at(ask: &Ask, turn: &TurnKey) -> bool {
    ask.lock == turn.lock && ask.state == AskState::Waiting(turn.number)
}

/// Withholds a lock whose holder's ask is lost.
fn withhold_if_lost(path: &LockPath, lock: &mut Lock, asks: &BTreeMap<AskId, Ask>) {
    let holds = |ask: &Ask, grant: &Grant| ask.lock == *path && ask.state == AskState::Holding(grant.fence);
    if let LockState::Held(grant) = &lock.state
        && !asks.get(&grant.ask).is_some_and(|ask| holds(ask, grant))
    {
        lock.state = withheld(grant.fence);
    }
}

/// Counts the turns of a lock. A free lock for which asks wait has lost its last grant.
fn count_turns<'a>(lock: &mut Lock, turns: impl DoubleEndedIterator<Item = &'a TurnKey>, newest: Fence) {
    let numbers: Vec<u64> = turns.map(|turn| turn.number).collect();
    lock.waiting = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    lock.last_turn = numbers.last().copied().unwrap_or(0).max(lock.last_turn);
    if lock.state == LockState::Free && lock.waiting > 0 {
        lock.state = withheld(newest);
    }
}
